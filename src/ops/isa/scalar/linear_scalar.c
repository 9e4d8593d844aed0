/* ops/isa/scalar/linear_scalar.c - the kernels of linear for plain C. The other instruction sets are compared with it. */
#include "core/isa/scalar.h"
#include "ops/linear/linear_kernels.inc.h"
#include "core/isa/end.h"
