/* ops/isa/scalar/softmax_scalar.c - the kernels of softmax in plain C. */
#include "core/isa/scalar.h"
#include "ops/softmax/rows_kernels.inc.h"
#include "core/isa/end.h"
