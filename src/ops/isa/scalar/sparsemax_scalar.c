/* ops/isa/scalar/sparsemax_scalar.c - the kernels of sparsemax for plain C. The other instruction sets are compared with it. */
#include "core/isa/scalar.h"
#include "ops/sparsemax/sparsemax_kernels.inc.h"
#include "core/isa/end.h"
