/* ops/isa/scalar/sample_scalar.c - the kernels of sample for plain C. The other instruction sets are compared with it. */
#include "core/isa/scalar.h"
#include "ops/sample/sample_kernels.inc.h"
#include "core/isa/end.h"
