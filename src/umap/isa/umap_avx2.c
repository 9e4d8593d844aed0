/* umap/isa/umap_avx2.c - the kernels of maps for AVX2, FMA and F16C. */
#if defined(__x86_64__)
#include "core/simd/target_avx2.h"
#define NAPIER_LANES_AVX2
#include "umap/isa/umap_kernels.inc.h"

const napier_umap_kernels napier_umap_kernels_avx2 = NAPIER_UMAP_KERNELS(avx2);
#include "core/simd/target_end.h"
#else
typedef int napier_umap_avx2_is_for_x86;
#endif
