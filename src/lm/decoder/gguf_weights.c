/* lm/decoder/gguf_weights.c - names, types and rows of a GGUF file's tensors, as transformers has them. */
#include "lm/decoder/gguf_weights.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "core/base/parallel.h"
#include "core/base/scope.h"
#include "core/isa/core_kernels.h"
#include "lm/text/json.h"

enum { NAME_SIZE = 96, PART_SIZE = 32, ALIGNMENT = 64 };

/* ---- Names ------------------------------------------------------------------------------------------------------- */

typedef struct pair {
    const char *theirs, *ours;
} pair;

static const pair parts[] = {{"attn_norm", "input_layernorm"},    {"ffn_norm", "post_attention_layernorm"},
                             {"attn_q", "self_attn.q_proj"},      {"attn_k", "self_attn.k_proj"},
                             {"attn_v", "self_attn.v_proj"},      {"attn_output", "self_attn.o_proj"},
                             {"attn_q_norm", "self_attn.q_norm"}, {"attn_k_norm", "self_attn.k_norm"},
                             {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
                             {"ffn_down", "mlp.down_proj"}};
static const pair wholes[] = {{"token_embd.weight", "model.embed_tokens.weight"},
                              {"output_norm.weight", "model.norm.weight"},
                              {"output.weight", "lm_head.weight"}};

static const char *ours(const pair *pairs, size_t count, const char *theirs) {
    for (size_t i = 0; i < count; i++) {
        if (strcmp(pairs[i].theirs, theirs) == 0) {
            return pairs[i].ours;
        }
    }
    return NULL;
}

/* The name in transformers of "blk.7.attn_q.weight", or its own name. *part receives "attn_q", or "". */
static void name_of(const char *theirs, char *name, char *part) {
    const bool is_inner = strncmp(theirs, "blk.", 4) == 0;
    const char *const layer = theirs + (is_inner ? 4 : 0), *const end = layer + strspn(layer, "0123456789");
    const size_t size = is_inner && end[0] == '.' ? strcspn(end + 1, ".") : 0;
    (void)snprintf(part, PART_SIZE, "%.*s", size < PART_SIZE ? (int)size : 0, end + (size > 0 ? 1 : 0));
    const char *const inner = ours(parts, sizeof parts / sizeof *parts, part);
    const char *const whole = ours(wholes, sizeof wholes / sizeof *wholes, theirs);
    if (inner != NULL) {
        (void)snprintf(name, NAME_SIZE, "model.layers.%.*s.%s%s", (int)(end - layer), layer, inner, end + 1 + size);
    } else {
        (void)snprintf(name, NAME_SIZE, "%s", whole != NULL ? whole : theirs);
    }
}

/* ---- Values ------------------------------------------------------------------------------------------------------ */

/* A tensor of the file, and what becomes of it. */
typedef struct moved {
    const napier_gguf_tensor *from;
    char name[NAME_SIZE];
    int64_t cols;
    int64_t head; /* rows of a head whose halves alternate; 0: rows keep their places */
    napier_dtype dtype;
    bool is_stored; /* its elements are not widened */
    int64_t bytes;  /* of the copy; 0: the tensor stays in the file */
    char *to;
    const napier_math_kernels *math;
} moved;

/* Where row `row` goes: rows 0, 2, 4, .. of a head are its first half. */
static int64_t place_of(const moved *m, int64_t row) {
    const int64_t in_head = m->head > 0 ? row % m->head : 0;
    return m->head > 0 ? row - in_head + in_head % 2 * (m->head / 2) + in_head / 2 : row;
}

static void widen_row(const moved *m, const uint8_t *from, char *to) {
    const napier_gguf_type *const type = m->from->type;
    float block[NAPIER_GGUF_MOST_BLOCK];
    for (int64_t i = 0; i < m->cols; i += type->block, from += type->bytes) {
        type->widen(from, block);
        m->math->f32_to_bf16(block, (uint16_t *)(void *)to + i, type->block);
    }
}

/* In the file. */
static int64_t row_bytes(const moved *m) { return m->cols / m->from->type->block * m->from->type->bytes; }

static void move_row(void *argument, int64_t row) {
    const moved *const m = argument;
    const bool widens = m->from->type->widen != NULL && !m->is_stored;
    const int64_t stored = row_bytes(m), bytes = widens ? m->cols * (int64_t)napier_dtype_size(m->dtype) : stored;
    const uint8_t *const from = m->from->data + row * stored;
    char *const to = m->to + place_of(m, row) * bytes;
    if (widens) {
        widen_row(m, from, to);
    } else {
        memcpy(to, from, (size_t)bytes);
    }
}

/* ---- The set ----------------------------------------------------------------------------------------------------- */

/* Decides what becomes of a tensor. */
static napier_status plan(napier_gguf *file, const napier_gguf_tensor *t, int64_t head_dim, bool is_interleaved,
                          bool wide, moved *m) {
    char part[PART_SIZE];
    *m = (moved){.from = t, .cols = t->ndim > 1 ? t->shape[t->ndim - 1] : 1, .dtype = t->type->dtype};
    name_of(t->name, m->name, part);
    if (t->type->block == 0) {
        return napier_gguf_fail(file, NAPIER_UNSUPPORTED,
                                "%s: type %s, but only F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K and "
                                "Q6_K are supported",
                                napier_show_text(t->name).text, t->type->name);
    }
    if (t->type->widen != NULL && t->ndim < 2) {
        return napier_gguf_fail(file, NAPIER_UNSUPPORTED,
                                "%s: type %s, but only F32, F16 and BF16 are supported in a vector",
                                napier_show_text(t->name).text, t->type->name);
    }
    if (is_interleaved && (strcmp(part, "attn_q") == 0 || strcmp(part, "attn_k") == 0)) {
        if (t->ndim == 0 || t->shape[0] % head_dim != 0) {
            return napier_gguf_fail(file, NAPIER_CORRUPT_DATA, "%s: rows that are no multiple of a head's %" PRId64,
                                    t->name, head_dim);
        }
        m->head = head_dim;
    }
    if (t->type->widen != NULL) {
        m->dtype = wide ? NAPIER_F32 : NAPIER_BF16;
    }
    m->is_stored = wide && t->type->widen != NULL;
    const int64_t bytes = m->is_stored ? t->size : t->elements * (int64_t)napier_dtype_size(m->dtype);
    m->bytes = (t->type->widen == NULL || m->is_stored) && m->head == 0 ? 0 : bytes;
    return NAPIER_OK;
}

static napier_stored stored_of(const moved *m) {
    const napier_gguf_type *const type = m->from->type;
    return (napier_stored){.blocks = {.data = m->bytes > 0 ? (const uint8_t *)m->to : m->from->data,
                                      .row_bytes = row_bytes(m),
                                      .elements = type->block,
                                      .bytes = type->bytes,
                                      .kind = type->kind,
                                      .widen = type->widen},
                           .rows = m->cols > 0 ? m->from->elements / m->cols : 0,
                           .cols = m->cols};
}

/* Gives each tensor that moves its place in weights->memory, and moves it there. */
static napier_status move_all(napier_gguf_weights *weights, moved *all) {
    napier_context *const context = weights->file.context;
    int64_t bytes = 1;
    for (int64_t i = 0; i < weights->file.tensor_count; i++) {
        bytes += (all[i].bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    weights->memory = napier_alloc(&context->allocator, (size_t)bytes, 1);
    if (weights->memory == NULL) {
        return napier_gguf_fail(&weights->file, NAPIER_OUT_OF_MEMORY, "no memory for %" PRId64 " bytes of weights",
                                bytes);
    }
    char *next = weights->memory;
    for (int64_t i = 0; i < weights->file.tensor_count; i++) {
        moved *const m = &all[i];
        m->to = next;
        next += (m->bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        if (m->bytes > 0) {
            napier_parallel_each(context, m->from->elements / m->cols, 1 + 16384 / m->cols, move_row, m);
        }
    }
    return NAPIER_OK;
}

napier_status napier_gguf_weights_get(napier_gguf_weights *weights, int64_t head_dim, bool wide,
                                      napier_safetensors **out) {
    napier_gguf *const file = &weights->file;
    const napier_gguf_family *const family = napier_gguf_family_of(file);
    NAPIER_TRY(file->status);
    const int64_t count = file->tensor_count;
    NAPIER_MEMORY(memory, file->context);
    moved *const all = napier_take(&memory, count, sizeof *all);
    napier_named_tensor *const named = napier_take(&memory, count, sizeof *named);
    weights->stored = napier_alloc(&file->context->allocator, (size_t)count + 1, sizeof *weights->stored);
    memory.missing = memory.missing || weights->stored == NULL;
    NAPIER_TRY(napier_taken(&memory, "gguf: no memory for %" PRId64 " tensors", count));
    for (int64_t i = 0; i < count; i++) {
        NAPIER_TRY(plan(file, &file->tensors[i], head_dim, family->interleaved, wide, &all[i]));
        all[i].math = &napier_core_kernels_of(file->context->isa)->math;
    }
    NAPIER_TRY(move_all(weights, all));
    int64_t used = 0;
    for (int64_t i = 0; i < count; i++) {
        const napier_gguf_tensor *const t = all[i].from;
        const void *data = all[i].bytes > 0 ? all[i].to : (const char *)t->data;
        if (all[i].is_stored) {
            weights->stored[weights->stored_count] = stored_of(&all[i]);
            data = &weights->stored[weights->stored_count++];
        }
        if (strcmp(t->name, NAPIER_GGUF_FREQUENCIES) != 0) { /* the config has what it says */
            named[used++] = (napier_named_tensor){
                .name = all[i].name, .data = data, .shape = t->shape, .ndim = t->ndim, .dtype = all[i].dtype};
        }
    }
    return napier_safetensors_view(file->context, named, used, NAPIER_CORRUPT_DATA, out);
}

/* ---- Stored tensors ---------------------------------------------------------------------------------------------- */

const napier_stored *napier_gguf_weights_stored(const napier_gguf_weights *weights, const void *data) {
    const uintptr_t at = (uintptr_t)data, begin = weights ? (uintptr_t)weights->stored : 0;
    const bool is_one = weights && at >= begin && at < (uintptr_t)(weights->stored + weights->stored_count);
    return is_one ? data : NULL;
}

const void *napier_gguf_weights_elements(const napier_gguf_weights *weights, const void *data) {
    const napier_stored *const t = napier_gguf_weights_stored(weights, data);
    if (t == NULL) {
        return data;
    }
    const napier_context *const context = weights->file.context;
    napier_stored *const changing = &weights->stored[t - weights->stored];
    float *wide = atomic_load(&changing->wide);
    float *const mine = wide ? NULL : napier_alloc(&context->allocator, (size_t)(t->rows * t->cols) + 1, sizeof *mine);
    if (mine != NULL) {
        napier_core_kernels_of(context->isa)->widen_rows(&t->blocks, 0, t->rows, 0, t->cols, mine, t->cols);
        if (!atomic_compare_exchange_strong(&changing->wide, &wide, mine)) { /* another thread was faster */
            napier_free(&context->allocator, mine);
        } else {
            wide = mine;
        }
    }
    return wide;
}

void napier_gguf_weights_free(napier_context *context, napier_gguf_weights *weights) {
    if (weights != NULL) {
        for (int64_t i = 0; i < weights->stored_count; i++) {
            napier_free(&context->allocator, weights->stored[i].wide);
        }
        napier_free(&context->allocator, weights->stored);
        napier_gguf_close(&weights->file);
        napier_free(&context->allocator, weights->memory);
        napier_free(&context->allocator, weights);
    }
}
