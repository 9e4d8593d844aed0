/* lm/decoder/gguf_weights.h - the tensors of a GGUF file under the names of transformers, as a set like that of
 * safetensors. Elements that the file holds as f32, f16 or bf16 stay in it, unless their rows must be put back into
 * transformers' order; quantised ones become f32 or bf16, once, in memory. */
#ifndef NAPIER_LM_DECODER_GGUF_WEIGHTS_H
#define NAPIER_LM_DECODER_GGUF_WEIGHTS_H

#include "lm/decoder/safetensors.h"
#include "lm/gguf/gguf.h"

typedef struct napier_gguf_weights {
    napier_gguf file;
    void *memory; /* the tensors that do not stay in the file */
} napier_gguf_weights;

/* Makes the set of the open weights->file, for a model with these heads. wide: quantised elements become f32, not bf16.
 * Close the set before the weights. Errors: UNSUPPORTED (a type, by name), CORRUPT_DATA, OUT_OF_MEMORY. */
napier_status napier_gguf_weights_get(napier_gguf_weights *weights, int64_t head_dim, bool wide,
                                      napier_safetensors **out);

/* NULL is allowed, and weights that were not opened. */
void napier_gguf_weights_free(napier_context *context, napier_gguf_weights *weights);

#endif
