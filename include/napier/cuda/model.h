/* napier/cuda/model.h - the language models of napier/model.h on a GPU: states and logits of all positions.
 * napier/cuda/device.h has the rules that all calls share.
 *
 * Dense models of every family that napier/model.h reads, in the compute modes F32 and BF16. Models with experts, and mode
 * SPLIT, are UNSUPPORTED. To score tokens, pass hidden and napier_cuda_model_head to napier_cuda_linear_token_logprobs.
 *
 * This has not yet run on a GPU: the kernels are compiled for sm_80 and sm_90, and tested on an emulated device.
 * These functions are in builds with NAPIER_MODEL. */
#ifndef NAPIER_CUDA_MODEL_H
#define NAPIER_CUDA_MODEL_H

#include <napier/cuda/linear.h>
#include <napier/model.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A model's weights in the caller's device memory. */
typedef struct napier_cuda_model napier_cuda_model;

/* Copies the weights of a model to `memory`, for sequences of up to `positions` tokens, and waits for that. memory->data NULL:
 * writes the number of bytes to memory->size and makes no model. The memory must outlive *out; the CPU's model need not.
 * The cosines and sines of all positions are computed here, and take 4 * head_dim bytes for each position.
 * On an error, or if the size was asked for, *out is NULL.
 * Errors: INVALID_ARGUMENT (positions outside 1 .. 2^24 or beyond the model's sliding window; too little memory),
 * UNSUPPORTED (experts, mode SPLIT), OUT_OF_MEMORY, DEVICE_ERROR. */
NAPIER_API napier_status napier_cuda_model_create(napier_cuda_context *context, struct CUstream_st *stream,
                                                  napier_cuda_workspace *memory, const napier_model *model,
                                                  int64_t positions, napier_cuda_model **out);
/* Frees what is in host memory. The work of its streams must be done. NULL is allowed. */
NAPIER_API void napier_cuda_model_destroy(napier_cuda_context *context, napier_cuda_model *model);

/* Like napier_model_head, in device memory. */
NAPIER_API napier_const_matrix napier_cuda_model_head(const napier_cuda_model *model);

/* Like napier_model_forward.
 * BITWISE: the CPU's bits. BATCH_INVARIANT: tensor cores for products of bf16 in mode BF16, and for attention (napier_cuda_matmul,
 * napier_cuda_attention).
 * An invalid id, and a token after the first `positions` of its sequence, make the results of that token and of the later ones
 * of its sequence NaN. Invalid offsets make all results NaN. napier_cuda_synchronize reports them.
 * Workspace: for N tokens, 4 bytes for each element of a state and 2 or 4 for each of a state, of two rows of queries and of one
 * of keys and one of values; and up to 4096 rows of the widest product.
 * Errors: INVALID_ARGUMENT, UNSUPPORTED (heads that do not fit in shared memory), OUT_OF_MEMORY (sizes that overflow). */
NAPIER_API napier_status napier_cuda_model_forward(napier_cuda_context *context, struct CUstream_st *stream,
                                                   napier_cuda_workspace *workspace, const napier_cuda_model *model,
                                                   napier_indices ids, napier_indices offsets, napier_matrix hidden,
                                                   napier_matrix logits, napier_cuda_mode mode);

#ifdef __cplusplus
}
#endif
#endif
