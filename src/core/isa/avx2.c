/* core/isa/avx2.c - the kernels for AVX2, FMA and F16C. */
#if defined(__x86_64__)
#include "core/simd/target_avx2.h"
#define NAPIER_LANES_AVX2
#include "core/isa/kernels.inc.h"

extern const napier_kernels napier_kernels_avx2;
const napier_kernels napier_kernels_avx2 = NAPIER_KERNELS;
#include "core/simd/target_end.h"
#else
typedef int napier_avx2_is_for_x86;
#endif
