/* cli/rl/rl_batch.c - growing columns of numbers, and their views for the library. */
#include "rl_batch.h"

#include "program/memory.h"
#include "program/message.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const rl_field_names rl_fields[RL_FIELDS] = {
    {"logprobs", "logprobs"},   {"old_logprobs", "old"},     {"ref_logprobs", "ref"}, {"sampler_logprobs", "sampler"},
    {"entropies", "entropies"}, {"advantage", "advantages"}, {"mask", "mask"},        {"token_ids", "token-ids"},
};

static size_t element_size(rl_field field) {
    return field == RL_MASK ? sizeof(uint8_t) : field == RL_TOKEN_IDS ? sizeof(int64_t) : sizeof(float);
}

/* Makes space for one more element. */
static bool make_room(rl_column *column, size_t size) {
    const int64_t wanted = column->count + 1;
    return memory_grow(&column->data, &column->capacity, wanted < 1024 ? 1024 : wanted, size);
}

static const char *add_number(rl_column *column, double value) {
    if (isfinite(value) && fabs(value) > (double)FLT_MAX) {
        return "no f32 holds";
    }
    ((float *)column->data)[column->count++] = (float)value;
    return NULL;
}

static const char *add_mask(rl_column *column, double value) {
    if (value != 0 && value != 1) {
        return "is neither 0 nor 1";
    }
    ((uint8_t *)column->data)[column->count++] = value != 0;
    return NULL;
}

static const char *add_id(rl_column *column, double value) {
    if (!(value >= 0 && value <= 0x1p53 && floor(value) == value)) {
        return "is not a whole number from 0";
    }
    ((int64_t *)column->data)[column->count++] = (int64_t)value;
    return NULL;
}

const char *rl_column_add(rl_column *column, rl_field field, double value) {
    if (!make_room(column, element_size(field))) {
        return "has no place: out of memory";
    }
    return field == RL_MASK        ? add_mask(column, value)
           : field == RL_TOKEN_IDS ? add_id(column, value)
                                   : add_number(column, value);
}

int rl_offsets_add(rl_batch *batch, int64_t offset) {
    if (!make_room(&batch->offsets, sizeof offset)) {
        return complain("out of memory");
    }
    ((int64_t *)batch->offsets.data)[batch->offsets.count++] = offset;
    return STATUS_OK;
}

void rl_batch_free(rl_batch *batch) {
    for (int field = 0; field < RL_FIELDS; field++) {
        free(batch->columns[field].data);
    }
    free(batch->offsets.data);
    memset(batch, 0, sizeof *batch);
}

/* ---- Views ------------------------------------------------------------------------------------------------------- */

/* The pointer of a present field is never NULL, even without tokens, so it differs from that of an absent field. */
static const void *data_of(const rl_batch *batch, rl_field field) {
    static const int64_t none;
    const void *const data = batch->columns[field].data;
    return (batch->have & RL_BIT(field)) == 0 ? NULL : data != NULL ? data : &none;
}

napier_const_vector rl_batch_numbers(const rl_batch *batch, rl_field field) {
    const void *const data = data_of(batch, field);
    return napier_const_array(data, data != NULL ? batch->columns[field].count : 0, NAPIER_F32);
}

const uint8_t *rl_batch_mask(const rl_batch *batch) { return data_of(batch, RL_MASK); }

napier_indices rl_batch_ids(const rl_batch *batch) {
    return napier_indices_i64(data_of(batch, RL_TOKEN_IDS), batch->columns[RL_TOKEN_IDS].count);
}

napier_indices rl_batch_offsets(const rl_batch *batch) {
    return napier_indices_i64(batch->offsets.data, batch->offsets.count);
}
