/* umap/isa/umap_avx512.c - the kernels of maps for AVX-512 F, BW, DQ and VL. */
#include "core/isa/avx512.h"
#include "umap/isa/umap_kernels.inc.h"
#include "core/isa/end.h"
