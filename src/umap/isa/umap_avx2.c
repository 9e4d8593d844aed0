/* umap/isa/umap_avx2.c - the kernels of maps for AVX2, FMA and F16C. */
#include "core/isa/avx2.h"
#include "umap/isa/umap_kernels.inc.h"
#include "core/isa/end.h"
