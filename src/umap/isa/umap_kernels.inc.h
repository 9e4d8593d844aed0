/* umap/isa/umap_kernels.inc.h - the table of every kernel of maps, for the instruction set
 * that the including file has chosen. */
#if defined(NAPIER_TABLE)
#include "core/isa/core_kernels.h"
#include "umap/isa/umap_kernels.h"
#include "umap/layout/layout.inc.h"
#include "umap/metric/distance.inc.h"

const napier_umap_kernels NAPIER_TABLE(napier_umap_kernels) = {.layout = NAPIER_LAYOUT_KERNELS,
                                                               .distance = NAPIER_DISTANCE_KERNELS,
                                                               .math = &NAPIER_TABLE(napier_core_kernels).math,
                                                               .linear = &NAPIER_TABLE(napier_linear_kernels)};
#endif
