/* lm/isa/lm_avx2.c - the kernels of language models for AVX2, FMA and F16C. */
#if defined(__x86_64__)
#include "core/simd/target_avx2.h"
#define NAPIER_LANES_AVX2
#include "lm/isa/lm_kernels.inc.h"

const napier_lm_kernels napier_lm_kernels_avx2 = NAPIER_LM_KERNELS(avx2);
#include "core/simd/target_end.h"
#else
typedef int napier_lm_avx2_is_for_x86;
#endif
