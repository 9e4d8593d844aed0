/* core/isa/kernels.h - the table of kernels: one per instruction set, all with the same bits.
 * src/core/isa/{scalar,avx2,avx512,neon}.c compile every kernel for one instruction set and fill one table each. */
#ifndef NAPIER_CORE_ISA_KERNELS_H
#define NAPIER_CORE_ISA_KERNELS_H

#include <napier/types.h>

#include "ops/attention/attention_kernels.h"
#include "ops/linear/linear_kernels.h"
#include "core/math/math_kernels.h"
#include "lm/decoder/model_kernels.h"
#include "ops/tokens/rl_kernels.h"
#include "ops/softmax/softmax_kernels.h"
#include "umap/metric/distance_kernels.h"
#include "umap/layout/umap_kernels.h"

typedef struct napier_kernels {
    napier_math_kernels math;
    napier_softmax_kernels softmax;
    napier_linear_kernels linear;
    napier_attention_kernels attention;
    napier_rl_kernels rl;
    napier_umap_kernels umap;
    napier_distance_kernels distance;
    napier_model_kernels model;
} napier_kernels;

/* The table of an instruction set that is available here (napier_isa_available); never NULL for those. */
const napier_kernels *napier_kernels_of(napier_isa isa);

#endif
