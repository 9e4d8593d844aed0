/* lm/isa/lm_avx512.c - the kernels of language models for AVX-512 F, BW, DQ and VL. */
#if defined(__x86_64__)
#include "core/simd/target_avx512.h"
#define NAPIER_LANES_AVX512
#include "lm/isa/lm_kernels.inc.h"

const napier_lm_kernels napier_lm_kernels_avx512 = NAPIER_LM_KERNELS(avx512);
#include "core/simd/target_end.h"
#else
typedef int napier_lm_avx512_is_for_x86;
#endif
