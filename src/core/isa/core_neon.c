/* core/isa/core_neon.c - elementary functions over arrays for AArch64's NEON. */
#if defined(__aarch64__)
#define NAPIER_LANES_NEON
#include "core/isa/core_kernels.inc.h"

const napier_core_kernels napier_core_kernels_neon = NAPIER_CORE_KERNELS(neon);
#else
typedef int napier_core_neon_is_for_aarch64;
#endif
