/* ops/isa/scalar/losses_scalar.c - the kernels of losses in plain C. */
#include "core/isa/scalar.h"
#include "ops/losses/losses_kernels.inc.h"
#include "core/isa/end.h"
