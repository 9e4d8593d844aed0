/* umap/isa/umap_kernels.h - the kernels of maps: a table for each instruction set, all with the same bits.
 * umap_scalar.c, umap_avx2.c, umap_avx512.c and umap_neon.c compile every kernel for one instruction set and fill one
 * table each. */
#ifndef NAPIER_UMAP_ISA_UMAP_KERNELS_H
#define NAPIER_UMAP_ISA_UMAP_KERNELS_H

#include <napier/types.h>

#include "umap/layout/layout_kernels.h"
#include "umap/metric/distance_kernels.h"
#include "core/isa/core_kernels.h"
#include "ops/isa/ops_kernels.h"

typedef struct napier_umap_kernels {
    napier_layout_kernels layout;
    napier_distance_kernels distance;
    /* Kernels of other parts for the same instruction set. */
    const napier_math_kernels *math;
    const napier_linear_kernels *linear;
} napier_umap_kernels;

/* Each exists only on its processor. */
extern const napier_umap_kernels napier_umap_kernels_scalar, napier_umap_kernels_avx2, napier_umap_kernels_avx512,
    napier_umap_kernels_neon;

/* The table of an instruction set. Never NULL if the set is available here (napier_isa_available). */
const napier_umap_kernels *napier_umap_kernels_of(napier_isa isa);

#endif
