/* ops/isa/neon/linear_neon.c - the kernels of linear for AArch64's NEON. */
#include "core/isa/neon.h"
#include "ops/linear/linear_kernels.inc.h"
#include "core/isa/end.h"
