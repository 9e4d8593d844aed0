/* ops/isa/scalar/softmax_scalar.c - the kernels of softmax for plain C. The other instruction sets are compared with it. */
#include "core/isa/scalar.h"
#include "ops/softmax/softmax_kernels.inc.h"
#include "core/isa/end.h"
