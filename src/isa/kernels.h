/* isa/kernels.h - the table of kernels: one per instruction set, all with the same bits.
 * src/isa/{scalar,avx2,avx512,neon}.c compile every kernel for one instruction set and fill one table each. */
#ifndef NAPIER_ISA_KERNELS_H
#define NAPIER_ISA_KERNELS_H

#include <napier/types.h>

#include "attention/attention_kernels.h"
#include "linear/linear_kernels.h"
#include "math/math_kernels.h"
#include "model/model_kernels.h"
#include "rl/rl_kernels.h"
#include "softmax/softmax_kernels.h"
#include "umap/distance_kernels.h"
#include "umap/umap_kernels.h"

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
