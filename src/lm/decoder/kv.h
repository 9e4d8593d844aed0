/* lm/decoder/kv.h - the keys and values of a beginning, which outlive a call. */
#ifndef NAPIER_LM_DECODER_KV_H
#define NAPIER_LM_DECODER_KV_H

#include "lm/decoder/layers.h"

struct napier_kv {
    const napier_model *model;
    int64_t updates;       /* the model's, when this was made */
    napier_kv_store store; /* [tokens] */
    int64_t *ids;          /* [tokens] */
};

/* A kv of so many tokens, whose ids, keys and values the caller fills. */
napier_status napier_kv_allocate(napier_context *context, const napier_model *model, int64_t tokens, napier_kv **out);
/* Copies rows of a store to row `to` and following. */
void napier_kv_copy(napier_kv *kv, int64_t to, const napier_kv_store *from, napier_key_rows rows);

/* Checks options->kvs of a call: `count` of this model. */
napier_status napier_kv_check(napier_context *context, const napier_model *model, const napier_kv *const *kvs,
                              int64_t count);

/* How many of the first `most` tokens ids[begin ..] the kv holds. */
int64_t napier_kv_match(const napier_kv *kv, napier_indices ids, int64_t begin, int64_t most);

#endif
