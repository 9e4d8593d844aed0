/* core/isa/core_avx512.c - elementary functions over arrays for AVX-512 F, BW, DQ and VL. */
#if defined(__x86_64__)
#include "core/simd/target_avx512.h"
#define NAPIER_LANES_AVX512
#include "core/isa/core_kernels.inc.h"

const napier_core_kernels napier_core_kernels_avx512 = NAPIER_CORE_KERNELS(avx512);
#include "core/simd/target_end.h"
#else
typedef int napier_core_avx512_is_for_x86;
#endif
