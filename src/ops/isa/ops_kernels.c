/* ops/isa/ops_kernels.c - from an instruction set to its kernels. */
#include "ops/isa/ops_kernels.h"

#include "core/isa/choose.h"

#define NAPIER_OPS_KERNELS(isa)                                                                                        \
    {                                                                                                                  \
        .core = &napier_core_kernels_##isa, .softmax = &napier_softmax_kernels_##isa,                                  \
        .sparsemax = &napier_sparsemax_kernels_##isa, .linear = &napier_linear_kernels_##isa,                          \
        .attention = &napier_attention_kernels_##isa, .layers = &napier_layer_kernels_##isa,                           \
        .tokens = &napier_token_kernels_##isa, .sample = &napier_sample_kernels_##isa, .kl = &napier_kl_kernels_##isa, \
        .rubric = &napier_rubric_kernels_##isa, .grpo = &napier_grpo_kernels_##isa                                     \
    }

static const napier_ops_kernels table_scalar = NAPIER_OPS_KERNELS(scalar);
#if defined(__x86_64__)
static const napier_ops_kernels table_avx2 = NAPIER_OPS_KERNELS(avx2), table_avx512 = NAPIER_OPS_KERNELS(avx512);
#elif defined(__aarch64__)
static const napier_ops_kernels table_neon = NAPIER_OPS_KERNELS(neon);
#endif

const napier_ops_kernels *napier_ops_kernels_of(napier_isa isa) { return NAPIER_CHOOSE(table, isa); }
