/* ops/isa/neon/token_neon.c - the kernels of tokens for AArch64's NEON. */
#include "core/isa/neon.h"
#include "ops/tokens/token_kernels.inc.h"
#include "core/isa/end.h"
