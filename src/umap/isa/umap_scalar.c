/* umap/isa/umap_scalar.c - the kernels of maps in plain C: tests compare the other instruction sets with these. */
#define NAPIER_LANES_SCALAR
#include "umap/isa/umap_kernels.inc.h"

const napier_umap_kernels napier_umap_kernels_scalar = NAPIER_UMAP_KERNELS(scalar);
