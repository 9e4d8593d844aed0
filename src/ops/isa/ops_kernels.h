/* ops/isa/ops_kernels.h - the kernels of the operations: a table for each instruction set, all with the same bits. ops_scalar.c, ops_avx2.c,
 * ops_avx512.c and ops_neon.c compile every kernel for one instruction set and fill one table each. */
#ifndef NAPIER_OPS_ISA_OPS_KERNELS_H
#define NAPIER_OPS_ISA_OPS_KERNELS_H

#include <napier/types.h>

#include "ops/softmax/softmax_kernels.h"
#include "ops/sparsemax/sparsemax_kernels.h"
#include "ops/linear/linear_kernels.h"
#include "ops/attention/attention_kernels.h"
#include "ops/layers/layer_kernels.h"
#include "ops/tokens/token_kernels.h"
#include "ops/sample/sample_kernels.h"
#include "ops/losses/kl_kernels.h"
#include "ops/losses/rubric_kernels.h"
#include "ops/losses/grpo_kernels.h"

typedef struct napier_ops_kernels {
    napier_softmax_kernels softmax;
    napier_sparsemax_kernels sparsemax;
    napier_linear_kernels linear;
    napier_attention_kernels attention;
    napier_layer_kernels layers;
    napier_token_kernels tokens;
    napier_sample_kernels sample;
    napier_kl_kernels kl;
    napier_rubric_kernels rubric;
    napier_grpo_kernels grpo;
} napier_ops_kernels;

/* Each is compiled for its processor alone. */
extern const napier_ops_kernels napier_ops_kernels_scalar, napier_ops_kernels_avx2, napier_ops_kernels_avx512,
    napier_ops_kernels_neon;

/* The table of an instruction set that is available here (napier_isa_available); never NULL for those. */
const napier_ops_kernels *napier_ops_kernels_of(napier_isa isa);

#endif
