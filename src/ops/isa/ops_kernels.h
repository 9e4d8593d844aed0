/* ops/isa/ops_kernels.h - the tables of kernels of the operations for each instruction set, all with the same bits. The folders
 * scalar, avx2, avx512 and neon compile each room's kernels for one of them. */
#ifndef NAPIER_OPS_ISA_OPS_KERNELS_H
#define NAPIER_OPS_ISA_OPS_KERNELS_H

#include <napier/types.h>

#include "core/isa/core_kernels.h"
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
    const napier_core_kernels *core;
    const napier_softmax_kernels *softmax;
    const napier_sparsemax_kernels *sparsemax;
    const napier_linear_kernels *linear;
    const napier_attention_kernels *attention;
    const napier_layer_kernels *layers;
    const napier_token_kernels *tokens;
    const napier_sample_kernels *sample;
    const napier_kl_kernels *kl;
    const napier_rubric_kernels *rubric;
    const napier_grpo_kernels *grpo;
} napier_ops_kernels;

/* The table of an instruction set that is available here (napier_isa_available); never NULL for those. */
const napier_ops_kernels *napier_ops_kernels_of(napier_isa isa);

#endif
