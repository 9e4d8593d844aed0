/* ops/isa/neon/losses_neon.c - the kernels of losses for AArch64's NEON. */
#include "core/isa/neon.h"
#include "ops/losses/losses_kernels.inc.h"
#include "core/isa/end.h"
