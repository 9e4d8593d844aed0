/* umap/isa/umap_scalar.c - the kernels of maps in plain C: the oracle the other instruction sets are compared with. */
#define NAPIER_LANES_SCALAR
#include "umap/isa/umap_kernels.inc.h"

const napier_umap_kernels napier_umap_kernels_scalar = NAPIER_UMAP_KERNELS(scalar);
