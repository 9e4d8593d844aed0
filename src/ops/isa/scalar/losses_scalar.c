/* ops/isa/scalar/losses_scalar.c - the kernels of losses for plain C. The other instruction sets are compared with it. */
#include "core/isa/scalar.h"
#include "ops/losses/losses_kernels.inc.h"
#include "core/isa/end.h"
