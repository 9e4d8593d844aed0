/* core/isa/core_avx2.c - elementary functions over arrays for AVX2, FMA and F16C. */
#if defined(__x86_64__)
#include "core/simd/target_avx2.h"
#define NAPIER_LANES_AVX2
#include "core/isa/core_kernels.inc.h"

const napier_core_kernels napier_core_kernels_avx2 = NAPIER_CORE_KERNELS(avx2);
#include "core/simd/target_end.h"
#else
typedef int napier_core_avx2_is_for_x86;
#endif
