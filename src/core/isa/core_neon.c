/* core/isa/core_neon.c - elementary functions over arrays for AArch64's NEON. */
#include "core/isa/neon.h"
#include "core/isa/core_kernels.inc.h"
#include "core/isa/end.h"
