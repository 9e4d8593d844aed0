/* ops/isa/ops_avx2.c - the kernels of the operations for AVX2, FMA and F16C. */
#if defined(__x86_64__)
#include "core/simd/target_avx2.h"
#define NAPIER_LANES_AVX2
#include "ops/isa/ops_kernels.inc.h"

const napier_ops_kernels napier_ops_kernels_avx2 = NAPIER_OPS_KERNELS(avx2);
#include "core/simd/target_end.h"
#else
typedef int napier_ops_avx2_is_for_x86;
#endif
