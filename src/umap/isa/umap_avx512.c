/* umap/isa/umap_avx512.c - the kernels of maps for AVX-512 F, BW, DQ and VL. */
#if defined(__x86_64__)
#include "core/simd/target_avx512.h"
#define NAPIER_LANES_AVX512
#include "umap/isa/umap_kernels.inc.h"

const napier_umap_kernels napier_umap_kernels_avx512 = NAPIER_UMAP_KERNELS(avx512);
#include "core/simd/target_end.h"
#else
typedef int napier_umap_avx512_is_for_x86;
#endif
