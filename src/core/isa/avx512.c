/* core/isa/avx512.c - the kernels for AVX-512 F, BW, DQ and VL. */
#if defined(__x86_64__)
#include "core/simd/target_avx512.h"
#define NAPIER_LANES_AVX512
#include "core/isa/kernels.inc.h"

extern const napier_kernels napier_kernels_avx512;
const napier_kernels napier_kernels_avx512 = NAPIER_KERNELS;
#include "core/simd/target_end.h"
#else
typedef int napier_avx512_is_for_x86;
#endif
