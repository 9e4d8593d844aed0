/* lm/decoder/gguf_weights.h - the tensors of a GGUF file under the names of transformers, as a set like that of
 * safetensors. Elements that the file holds as f32, f16 or bf16 stay in it, unless their rows must be put back into
 * transformers' order. So do quantised ones that are used as f32: products widen them (core/math/blocks.h). Others become bf16,
 * once, in memory: two bytes for each are read faster than four bits are widened and rounded. */
#ifndef NAPIER_LM_DECODER_GGUF_WEIGHTS_H
#define NAPIER_LM_DECODER_GGUF_WEIGHTS_H

#include "lm/decoder/safetensors.h"
#include "lm/gguf/gguf.h"

/* A quantised tensor that stays as it is; the set has a pointer to this as its data. */
typedef struct napier_stored {
    napier_blocks blocks; /* the first member: a matrix of blocks has the same pointer */
    int64_t rows, cols;
    _Atomic(float *) wide; /* NULL, or the whole tensor, which a caller of the library has asked for */
} napier_stored;

typedef struct napier_gguf_weights {
    napier_gguf file;
    void *memory; /* the tensors that do not stay in the file */
    napier_stored *stored;
    int64_t stored_count;
} napier_gguf_weights;

/* Makes the set of the open weights->file, for a model with these heads. wide: quantised elements are f32, not bf16. Close the set before the weights. Errors: UNSUPPORTED (a type, by name), CORRUPT_DATA, OUT_OF_MEMORY. */
napier_status napier_gguf_weights_get(napier_gguf_weights *weights, int64_t head_dim, bool wide,
                                      napier_safetensors **out);

/* The stored tensor that `data`, of a tensor of the set, points to; NULL: it points to elements. weights may be NULL. */
const napier_stored *napier_gguf_weights_stored(const napier_gguf_weights *weights, const void *data);
/* The elements: `data` itself, or those of the stored tensor, which are widened at the first call. NULL: no memory. Any thread
 * may call it. */
const void *napier_gguf_weights_elements(const napier_gguf_weights *weights, const void *data);

/* NULL is allowed, and weights that were not opened. */
void napier_gguf_weights_free(napier_context *context, napier_gguf_weights *weights);

#endif
