/* core/isa/neon.c - the kernels for AArch64's NEON. */
#if defined(__aarch64__)
#define NAPIER_LANES_NEON
#include "core/isa/kernels.inc.h"

extern const napier_kernels napier_kernels_neon;
const napier_kernels napier_kernels_neon = NAPIER_KERNELS;
#else
typedef int napier_neon_is_for_aarch64;
#endif
