/* ops/isa/scalar/sparsemax_scalar.c - the kernels of sparsemax in plain C. */
#include "core/isa/scalar.h"
#include "ops/sparsemax/sparsemax_kernels.inc.h"
#include "core/isa/end.h"
