/* ops/tokens/responses.c - ragged responses: checks of offsets and ids, and the iterator over their tiles. */
#include "ops/tokens/responses.h"

#include <inttypes.h>

#include "core/base/view.h"

/* ---- Checks ------------------------------------------------------------------------------------------------------ */

napier_status napier_check_indices(napier_context *context, const char *name, napier_indices indices) {
    if (indices.type != NAPIER_I32 && indices.type != NAPIER_I64) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "%s: type %d is no type of index", name,
                           (int)indices.type);
    }
    if (indices.size < 0) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "%s: size %" PRId64 " is negative", name, indices.size);
    }
    const napier_const_vector bytes = napier_indices_bytes(indices);
    return napier_check_vector(context, name, bytes);
}

napier_status napier_check_length(napier_context *context, const char *name, int64_t size, int64_t wanted) {
    if (size != wanted) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "%s: size %" PRId64 " is not %" PRId64, name, size,
                           wanted);
    }
    return NAPIER_OK;
}

napier_status napier_check_offset_count(napier_context *context, const char *name, napier_indices offsets) {
    const napier_status status = napier_check_indices(context, name, offsets);
    if (!status && offsets.size < 1) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "%s: size 0, but B responses have B + 1 offsets", name);
    }
    return status;
}

napier_status napier_check_offsets_of(napier_context *context, const char *name, napier_indices offsets,
                                      int64_t tokens) {
    const napier_status status = napier_check_offset_count(context, name, offsets);
    if (status) {
        return status;
    }
    int64_t before = 0;
    for (int64_t i = 0; i < offsets.size; i++) {
        const int64_t at = napier_index_at(offsets, i);
        if (i == 0 && at != 0) {
            return napier_fail(context, NAPIER_INVALID_ARGUMENT, "%s: %s[0] is %" PRId64 ", not 0", name, name, at);
        }
        if (at < before) {
            return napier_fail(context, NAPIER_INVALID_ARGUMENT,
                               "%s: %s[%" PRId64 "] is %" PRId64 ", less than %" PRId64 " before it", name, name, i, at,
                               before);
        }
        before = at;
    }
    if (before != tokens) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT,
                           "%s: %s[%" PRId64 "] is %" PRId64 ", not the number of tokens, %" PRId64, name, name,
                           offsets.size - 1, before, tokens);
    }
    return NAPIER_OK;
}

napier_status napier_check_offsets(napier_context *context, napier_indices offsets, int64_t tokens) {
    return napier_check_offsets_of(context, "offsets", offsets, tokens);
}

/* Checks whole blocks first. An unsigned comparison finds negative ids too. */
static bool napier_ids_within(napier_indices ids, int64_t begin, int64_t end, int64_t limit) {
    unsigned bad = 0;
    if (ids.type == NAPIER_I32) {
        const uint32_t most = limit > INT32_MAX ? (uint32_t)INT32_MAX + 1u : (uint32_t)limit;
        const int32_t *id = ids.data;
        for (int64_t i = begin; i < end; i++) {
            bad |= (unsigned)((uint32_t)id[i] >= most);
        }
    } else {
        const int64_t *id = ids.data;
        for (int64_t i = begin; i < end; i++) {
            bad |= (unsigned)((uint64_t)id[i] >= (uint64_t)limit);
        }
    }
    return !bad;
}

napier_status napier_check_ids(napier_context *context, const char *name, napier_indices ids, int64_t size,
                               int64_t limit) {
    enum { BLOCK = 4096 };
    napier_status status = napier_check_indices(context, name, ids);
    if (!status)
        status = napier_check_length(context, name, ids.size, size);
    for (int64_t begin = 0; begin < size && !status; begin += BLOCK) {
        const int64_t end = size - begin < BLOCK ? size : begin + BLOCK;
        if (napier_ids_within(ids, begin, end, limit)) {
            continue;
        }
        int64_t i = begin;
        while (napier_ids_within(ids, i, i + 1, limit)) {
            i++;
        }
        status = napier_fail(context, NAPIER_INVALID_ARGUMENT,
                             "%s: %s[%" PRId64 "] is %" PRId64 ", not an id below %" PRId64, name, name, i,
                             napier_index_at(ids, i), limit);
    }
    return status;
}

napier_status napier_check_offsets_on(napier_context *context, napier_place place, napier_indices offsets,
                                      int64_t tokens) {
    return place == NAPIER_ON_HOST ? napier_check_offsets(context, offsets, tokens)
                                   : napier_check_offset_count(context, "offsets", offsets);
}

napier_status napier_check_ids_on(napier_context *context, napier_place place, const char *name, napier_indices ids,
                                  int64_t size, int64_t limit) {
    if (place == NAPIER_ON_HOST) {
        return napier_check_ids(context, name, ids, size, limit);
    }
    const napier_status status = napier_check_indices(context, name, ids);
    return status ? status : napier_check_length(context, name, ids.size, size);
}

napier_status napier_check_not_f64(napier_context *context, const char *name, napier_dtype dtype) {
    if (dtype == NAPIER_F64) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "%s: dtype f64 is not f32, f16 or bf16", name);
    }
    return NAPIER_OK;
}

napier_status napier_check_tokens(napier_context *context, const char *name, napier_const_vector v, int64_t size,
                                  bool optional) {
    if (optional && !v.data) {
        return NAPIER_OK;
    }
    napier_status status = napier_check_vector(context, name, v);
    if (!status)
        status = napier_check_not_f64(context, name, v.dtype);
    if (!status)
        status = napier_check_length(context, name, v.size, size);
    return status;
}

napier_status napier_check_tokens_out(napier_context *context, const char *name, napier_vector v, int64_t size,
                                      bool optional) {
    if (optional && !v.data) {
        return NAPIER_OK;
    }
    const napier_status status = napier_check_tokens(context, name, napier_read_only_vector(v), size, false);
    return status ? status : napier_check_vector_out(context, name, v);
}

napier_status napier_check_apart(napier_context *context, const char *a_name, napier_vector a, const char *b_name,
                                 napier_const_vector b) {
    if (!a.data || !b.data || a.size == 0 || b.size == 0) {
        return NAPIER_OK;
    }
    if (a.data == b.data) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "%s: starts where %s does, at %p", a_name, b_name, a.data);
    }
    return napier_check_alias(context, a_name, napier_vector_row_out(a), b_name, napier_vector_row(b));
}

napier_const_vector napier_indices_bytes(napier_indices indices) {
    const napier_dtype dtype = indices.type == NAPIER_I32 ? NAPIER_F32 : NAPIER_F64; /* as wide */
    const napier_const_vector v = {indices.data, indices.size, 1, dtype};
    return v;
}

int64_t napier_count_mask(const uint8_t *mask, int64_t begin, int64_t end) {
    enum { BLOCK = 64 };
    int64_t counted = end - begin, i = begin;
    if (!mask) {
        return counted;
    }
    for (; i + BLOCK <= end; i += BLOCK) {
        int out = 0;
        for (int j = 0; j < BLOCK; j++) {
            out += mask[i + j] == 0;
        }
        counted -= out;
    }
    for (; i < end; i++) {
        counted -= mask[i] == 0;
    }
    return counted;
}

/* ---- The iterator over tiles ------------------------------------------------------------------------------------- */

int64_t napier_response_at(const napier_responses *r, int64_t token) {
    int64_t low = 0, high = r->count; /* begin(low) <= token < begin(high), except that high may be count */
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (napier_response_begin(r, middle) <= token) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

napier_tiles napier_tiles_in(const napier_responses *r, int64_t begin, int64_t end) {
    napier_tiles t = {.responses = r, .end = end};
    if (r->count == 0) {
        t.end = begin;
        return t;
    }
    t.response = napier_response_at(r, begin);
    const int64_t start = napier_response_begin(r, t.response);
    t.next = start + (begin - start + NAPIER_TILE - 1) / NAPIER_TILE * NAPIER_TILE;
    return t;
}

bool napier_next_tile(napier_tiles *t) {
    const napier_responses *r = t->responses;
    int64_t stop = t->response < r->count ? napier_response_begin(r, t->response + 1) : r->tokens;
    while (t->next >= stop) {
        if (++t->response >= r->count) {
            return false;
        }
        t->next = stop;
        stop = napier_response_begin(r, t->response + 1);
    }
    if (t->next >= t->end) {
        return false;
    }
    t->first = t->next;
    t->n = stop - t->first < NAPIER_TILE ? (int)(stop - t->first) : NAPIER_TILE;
    t->slot = napier_tile_slot(r, t->response, t->first);
    t->next = t->first + t->n;
    return true;
}

int64_t napier_token_chunk(const napier_context *context, int64_t tokens) {
    enum { SMALL = 1 << 14, LARGE = 1 << 17 };
    const int64_t share = tokens / (context->threads * (int64_t)8) / NAPIER_TILE * NAPIER_TILE;
    return share < SMALL ? SMALL : share > LARGE ? LARGE : share;
}
