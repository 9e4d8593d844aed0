/* umap/isa/umap_neon.c - the kernels of maps for AArch64's NEON. */
#if defined(__aarch64__)
#define NAPIER_LANES_NEON
#include "umap/isa/umap_kernels.inc.h"

const napier_umap_kernels napier_umap_kernels_neon = NAPIER_UMAP_KERNELS(neon);
#else
typedef int napier_umap_neon_is_for_aarch64;
#endif
