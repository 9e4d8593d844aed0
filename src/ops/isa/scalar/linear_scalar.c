/* ops/isa/scalar/linear_scalar.c - the kernels of linear in plain C. */
#include "core/isa/scalar.h"
#include "ops/linear/linear_kernels.inc.h"
#include "core/isa/end.h"
