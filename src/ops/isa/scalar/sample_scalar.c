/* ops/isa/scalar/sample_scalar.c - the kernels of sample in plain C. */
#include "core/isa/scalar.h"
#include "ops/sample/sample_kernels.inc.h"
#include "core/isa/end.h"
