/* umap/isa/umap_kernels.c - from an instruction set to its kernels. */
#include "umap/isa/umap_kernels.h"

#include "core/isa/choose.h"

const napier_umap_kernels *napier_umap_kernels_of(napier_isa isa) { return NAPIER_CHOOSE(napier_umap_kernels, isa); }
