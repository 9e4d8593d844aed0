/* lm/isa/lm_neon.c - the kernels of language models for AArch64's NEON. */
#if defined(__aarch64__)
#define NAPIER_LANES_NEON
#include "lm/isa/lm_kernels.inc.h"

const napier_lm_kernels napier_lm_kernels_neon = NAPIER_LM_KERNELS(neon);
#else
typedef int napier_lm_neon_is_for_aarch64;
#endif
