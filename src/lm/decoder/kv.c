/* lm/decoder/kv.c - runs a beginning through the layers, and keeps its keys and values. */
#include "lm/decoder/kv.h"

#include <inttypes.h>
#include <string.h>

#include "core/base/view.h"
#include "ops/linear/engine.h"
#include "ops/tokens/responses.h"

enum { CHUNK_TOKENS = 2048 }; /* run together, if they fit: enough that products run at full speed */

static napier_ragged_size size_of(int64_t tokens, int64_t positions) {
    return (napier_ragged_size){.tokens = tokens, .sequences = 1, .copies = 1, .positions = positions};
}

/* Plans for as many tokens as fit in the model's memory, together with the tables for all positions. Returns their number;
 * 0: not even one. */
static int64_t plan_chunk(const napier_context *context, const napier_model *model, int64_t tokens, int64_t positions,
                          napier_layers_plan *plan) {
    int64_t chunk = tokens < CHUNK_TOKENS ? tokens : CHUNK_TOKENS;
    for (; chunk > 0; chunk /= 2) {
        napier_layers_plan_for(context, model, size_of(chunk, positions), plan);
        if (plan->bytes <= model->memory) {
            break;
        }
    }
    return chunk;
}

/* Runs ids[begin ..] of a kv whose keys and values before `begin` are there. */
static napier_status run(napier_context *context, napier_kv *kv, int64_t begin, napier_layers *layers, int64_t chunk) {
    const int64_t first = begin, tokens = kv->store.rows;
    const napier_indices ids = napier_indices_i64(kv->ids, tokens);
    layers->store = &kv->store;
    for (; begin < tokens; begin += chunk) {
        const int64_t end = tokens - begin < chunk ? tokens : begin + chunk;
        napier_ragged *const batch = &layers->batch;
        napier_ragged_clear(batch);
        const napier_key_rows added = napier_ragged_add(batch, ids, begin, end, begin, (napier_key_rows){0, 0}, 0);
        napier_ragged_set_own(batch, (napier_key_rows){0, end});
        napier_ragged_add_copy(batch, (napier_row_copy){begin, added, NULL});
        layers->done = (double)(begin - first) / (double)(tokens - first);
        layers->share = (double)(end - begin) / (double)(tokens - first);
        NAPIER_TRY(napier_layers_run(context, layers));
    }
    return NAPIER_OK;
}

napier_status napier_kv_allocate(napier_context *context, const napier_model *model, int64_t tokens, napier_kv **out) {
    NAPIER_MEMORY(kept, context);
    napier_kv *const kv = napier_take(&kept, 1, sizeof *kv);
    int64_t *const ids = napier_take(&kept, tokens, sizeof *ids);
    NAPIER_TRY(napier_taken(&kept, "keys and values: no memory for %" PRId64 " ids", tokens));
    *kv = (napier_kv){.model = model, .updates = model->updates, .ids = ids};
    NAPIER_TRY(napier_kv_store_allocate(&kept, model, tokens, &kv->store));
    napier_let_go(&kept, kv->store.v);
    napier_let_go(&kept, kv->store.k);
    napier_let_go(&kept, ids);
    napier_let_go(&kept, kv);
    *out = kv;
    return NAPIER_OK;
}

void napier_kv_copy(napier_kv *kv, int64_t to, const napier_kv_store *from, napier_key_rows rows) {
    const int64_t layers = kv->model->config.num_hidden_layers, count = rows.end - rows.begin;
    const int64_t row = napier_kv_store_bytes(kv->model, 1) / 2 / layers;
    for (int64_t i = 0; i < layers && count > 0; i++) {
        const int64_t at = (i * kv->store.rows + to) * row, of = (i * from->rows + rows.begin) * row;
        memcpy((char *)kv->store.k + at, (const char *)from->k + of, (size_t)(count * row));
        memcpy((char *)kv->store.v + at, (const char *)from->v + of, (size_t)(count * row));
    }
}

/* Fills a kv: with what `before` holds, if it is not NULL, and with ids behind it. */
static napier_status fill(napier_context *context, const napier_kv *before, napier_indices ids,
                          napier_progress *progress, void *user, napier_kv *kv) {
    const int64_t held = napier_kv_tokens(before), total = kv->store.rows;
    napier_layers_plan plan = {0};
    const int64_t chunk = plan_chunk(context, kv->model, ids.size, total, &plan);
    if (chunk == 0) {
        return napier_fail(context, NAPIER_OUT_OF_MEMORY,
                           "memory: %" PRId64 " bytes are too few for %" PRId64 " tokens", kv->model->memory, total);
    }
    for (int64_t i = 0; i < total; i++) {
        kv->ids[i] = i < held ? before->ids[i] : napier_index_at(ids, i - held);
    }
    if (before) {
        napier_kv_copy(kv, 0, &before->store, (napier_key_rows){0, held});
    }
    NAPIER_MEMORY(memory, context);
    napier_layers layers;
    NAPIER_TRY(napier_layers_allocate(&memory, &plan, &layers));
    layers.progress = progress;
    layers.user = user;
    return run(context, kv, held, &layers, chunk);
}

static napier_status make(napier_context *context, const napier_model *model, const napier_kv *before,
                          napier_indices ids, napier_progress *progress, void *user, napier_kv **out) {
    const int64_t held = napier_kv_tokens(before);
    NAPIER_TRY(napier_check_ids(context, "ids", ids, ids.size, model->config.vocab_size));
    NAPIER_REFUSE_IF(context, ids.size < 1, "ids: %" PRId64 " tokens, where there should be one or more", ids.size);
    NAPIER_TRY(napier_model_check_length(context, model, "ids", held + ids.size));
    if (model->compute != NAPIER_COMPUTE_F32) {
        napier_matrix_engine_decide(context);
    }
    NAPIER_TRY(napier_kv_allocate(context, model, held + ids.size, out));
    const napier_status status = fill(context, before, ids, progress, user, *out);
    if (status) {
        napier_kv_destroy(context, *out);
        *out = NULL;
    }
    return status;
}

napier_status napier_kv_create(napier_context *context, const napier_model *model, napier_indices ids,
                               napier_progress *progress, void *user, napier_kv **out) {
    NAPIER_DEFAULT_FENV;
    NAPIER_TRY(napier_begin(context));
    NAPIER_REFUSE_IF(context, !out, "out: NULL");
    *out = NULL;
    NAPIER_REFUSE_IF(context, !model, "model: NULL");
    return make(context, model, NULL, ids, progress, user, out);
}

napier_status napier_kv_extend(napier_context *context, const napier_kv *kv, napier_indices ids,
                               napier_progress *progress, void *user, napier_kv **out) {
    NAPIER_DEFAULT_FENV;
    NAPIER_TRY(napier_begin(context));
    NAPIER_REFUSE_IF(context, !out, "out: NULL");
    *out = NULL;
    NAPIER_REFUSE_IF(context, !kv, "kv: NULL");
    NAPIER_TRY(napier_kv_check(context, kv->model, &kv, 1));
    return make(context, kv->model, kv, ids, progress, user, out);
}

void napier_kv_destroy(napier_context *context, napier_kv *kv) {
    if (context && kv) {
        napier_free(&context->allocator, kv->store.k);
        napier_free(&context->allocator, kv->store.v);
        napier_free(&context->allocator, kv->ids);
        napier_free(&context->allocator, kv);
    }
}

int64_t napier_kv_tokens(const napier_kv *kv) { return kv ? kv->store.rows : 0; }
int64_t napier_kv_bytes(const napier_kv *kv) { return kv ? napier_kv_store_bytes(kv->model, kv->store.rows) : 0; }

napier_status napier_kv_check(napier_context *context, const napier_model *model, const napier_kv *const *kvs,
                              int64_t count) {
    NAPIER_REFUSE_IF(context, count < 0 || (count > 0 && !kvs), "options: kv_count is %" PRId64 " and kvs is %p", count,
                     (const void *)kvs);
    for (int64_t i = 0; i < count; i++) {
        NAPIER_REFUSE_IF(context, !kvs[i] || kvs[i]->model != model,
                         "options: kvs[%" PRId64 "] %p is not of this model", i, (const void *)kvs[i]);
        NAPIER_REFUSE_IF(context, kvs[i]->updates != model->updates,
                         "options: kvs[%" PRId64 "] %p is stale: the model's weights were updated after it was made", i,
                         (const void *)kvs[i]);
    }
    return NAPIER_OK;
}

int64_t napier_kv_match(const napier_kv *kv, napier_indices ids, int64_t begin, int64_t most) {
    const int64_t size = most < kv->store.rows ? most : kv->store.rows;
    int64_t i = 0;
    while (i < size && napier_index_at(ids, begin + i) == kv->ids[i]) {
        i++;
    }
    return i;
}
