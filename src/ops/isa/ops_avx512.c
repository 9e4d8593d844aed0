/* ops/isa/ops_avx512.c - the kernels of the operations for AVX-512 F, BW, DQ and VL. */
#if defined(__x86_64__)
#include "core/simd/target_avx512.h"
#define NAPIER_LANES_AVX512
#include "ops/isa/ops_kernels.inc.h"

const napier_ops_kernels napier_ops_kernels_avx512 = NAPIER_OPS_KERNELS(avx512);
#include "core/simd/target_end.h"
#else
typedef int napier_ops_avx512_is_for_x86;
#endif
