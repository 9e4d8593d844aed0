/* umap/isa/umap_kernels.inc.h - every kernel of this part, compiled for the instruction set that the including file
 * chooses, and their table. */
#include "umap/isa/umap_kernels.h"
#include "umap/layout/layout.inc.h"
#include "umap/metric/distance.inc.h"

#define NAPIER_UMAP_KERNELS(isa)                                                                                       \
    {                                                                                                                  \
        .layout = NAPIER_LAYOUT_KERNELS, .distance = NAPIER_DISTANCE_KERNELS, .math = &napier_core_kernels_##isa.math, \
        .linear = &napier_ops_kernels_##isa.linear                                                                     \
    }
