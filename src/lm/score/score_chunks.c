/* lm/score/score_chunks.c - as many responses at a time as memory allows, and which row rates which token. */
#include "lm/score/score_parts.h"

#include "core/base/scope.h"

static int64_t response_size(const napier_score_lists *l, int64_t i) {
    const napier_token_list list = napier_score_response(l, l->order[i]);
    return napier_token_list_size(&list);
}

/* How many tokens of a response run. Its last token rates nothing, so only a reward model reads its row. */
static int64_t run_size(const napier_score_lists *l, int64_t i) { return response_size(l, i) - (l->rewards ? 0 : 1); }

/* ---- How much is in a chunk -------------------------------------------------------------------------------------- */

/* The first prompt of the same group in the chunk. */
static int64_t group_begin(const napier_score_lists *l, const napier_score_chunk *c, int64_t prompt) {
    const int64_t group = l->prompts[prompt].group;
    return group > c->prompt ? group : c->prompt;
}

/* Adds the tokens before .. end - 1 of a list, and copies of all up to `end` if there are some before. */
static void add_piece(napier_score_chunk *c, int64_t before, int64_t end) {
    c->size.tokens += end - before;
    c->size.sequences++;
    c->size.copies += before > 0 ? 2 : 0;
    c->size.copied += before > 0 ? end : 0;
}

static void add_prompt(const napier_score_lists *l, int64_t prompt, napier_score_chunk *c) {
    const napier_prompt *p = &l->prompts[prompt];
    const int64_t size = napier_token_list_size(&p->list);
    if (p->common == 0) {
        add_piece(c, p->kept, size);
    } else if (group_begin(l, c, prompt) == prompt) {
        add_piece(c, p->kept, p->common);
    }
    if (p->common > 0 && size > p->common) {
        add_piece(c, p->common, size);
    }
    c->size.positions = size > c->size.positions ? size : c->size.positions;
}

static void add_response(const napier_score_lists *l, int64_t prompt, int64_t i, napier_score_chunk *c) {
    const int64_t rows = run_size(l, i), last = napier_token_list_size(&l->prompts[prompt].list) + rows;
    c->size.tokens += rows;
    c->size.sequences += rows > 0 ? 1 : 0;
    c->size.positions = last > c->size.positions ? last : c->size.positions;
    c->ratings += l->rewards ? 1 : rows + 1;
    c->end = i + 1;
}

/* ---- The next chunk ---------------------------------------------------------------------------------------------- */

/* The chunk with up to `count` more responses of a prompt, from c->end on. */
static napier_score_chunk with(const napier_score_lists *l, int64_t prompt, int64_t count, napier_score_chunk c) {
    const int64_t end = l->prompts[prompt].first + l->prompts[prompt].count, begin = c.end;
    add_prompt(l, prompt, &c);
    for (int64_t i = begin; i < end && i - begin < count; i++) {
        add_response(l, prompt, i, &c);
    }
    return c;
}

static napier_score_chunk planned(const napier_context *context, const napier_model *model, napier_score_chunk c) {
    const int64_t head = model->config.labels > 0 ? napier_reward_head_bytes(context, model, c.ratings)
                                                  : napier_score_head_bytes(context, model, c.ratings);
    napier_layers_plan_for(context, model, c.size, &c.layers);
    c.bytes = c.layers.bytes > INT64_MAX - head ? INT64_MAX : c.layers.bytes + head;
    return c;
}

/* A chunk with as many responses of the first prompt as fit, but at least one. */
static napier_score_chunk piece(const napier_context *context, const napier_model *model, const napier_score_lists *l,
                                napier_score_chunk c) {
    napier_score_chunk fits = planned(context, model, with(l, c.prompt, 1, c));
    const int64_t end = l->prompts[c.prompt].first + l->prompts[c.prompt].count;
    while (fits.end < end) {
        napier_score_chunk more = fits;
        add_response(l, c.prompt, fits.end, &more);
        more = planned(context, model, more);
        if (more.bytes > model->memory) {
            break;
        }
        fits = more;
    }
    return fits;
}

napier_score_chunk napier_score_chunk_next(const napier_context *context, const napier_model *model,
                                           const napier_score_lists *l, napier_score_chunk chunk) {
    napier_score_chunk c = {.first = chunk.end, .end = chunk.end, .prompt = chunk.prompt};
    while (c.prompt < l->count && l->prompts[c.prompt].first + l->prompts[c.prompt].count <= c.first) {
        c.prompt++;
    }
    for (int64_t p = c.prompt; p < l->count; p++) {
        const napier_score_chunk more = planned(context, model, with(l, p, INT64_MAX, c));
        if (more.bytes > model->memory) {
            return c.end > c.first ? c : piece(context, model, l, c);
        }
        c = more;
    }
    return c;
}

/* ---- The chunk as a batch ---------------------------------------------------------------------------------------- */

typedef napier_key_rows rows;

static const rows NONE = {0, 0};

/* Adds a copy of rows after the rows of tokens and of earlier copies. Returns its rows. */
static rows add_copy(napier_ragged *b, int64_t *free_row, rows from, const napier_kv_store *store) {
    const rows to = {*free_row, *free_row + (from.end - from.begin)};
    napier_ragged_add_copy(b, (napier_row_copy){to.begin, from, store});
    *free_row = to.end;
    return to;
}

/* Adds tokens before .. to - 1 of a list, after the rows of those before. Returns the rows of all, which are copied
 * together if there are some before: `known`, of a store or of the batch. */
static rows add_tokens(napier_ragged *b, int64_t *free_row, const napier_token_list *list, int64_t to, rows known,
                       const napier_kv_store *store, int64_t wanted) {
    const int64_t before = known.end - known.begin;
    const rows prefix = before > 0 ? add_copy(b, free_row, known, store) : NONE;
    const rows added =
        napier_ragged_add(b, list->ids, list->begin + before, list->begin + to, before, store ? prefix : known, wanted);
    return before > 0 ? (rows){prefix.begin, add_copy(b, free_row, added, NULL).end} : added;
}

/* Adds a prompt, and the beginning of its group if the batch does not have it yet. Returns the rows that its responses
 * follow. */
static rows add_prompt_rows(const napier_score_lists *l, const napier_score_chunk *c, int64_t prompt, rows *common,
                            int64_t *free_row, napier_ragged *b) {
    const napier_prompt *p = &l->prompts[prompt];
    const int64_t size = napier_token_list_size(&p->list);
    const rows kept = {0, p->kept};
    const napier_kv_store *store = p->kv ? &p->kv->store : NULL;
    if (p->common == 0) {
        return add_tokens(b, free_row, &p->list, size, kept, store, 1);
    }
    if (group_begin(l, c, prompt) == prompt) {
        *common = add_tokens(b, free_row, &p->list, p->common, kept, store, size == p->common ? 1 : 0);
    }
    return size == p->common ? *common : add_tokens(b, free_row, &p->list, size, *common, NULL, 1);
}

void napier_score_chunk_batch(const napier_score_lists *l, const napier_score_chunk *c, napier_ragged *b) {
    rows common = NONE;
    int64_t free_row = c->size.tokens;
    for (int64_t p = c->prompt, i = c->first; i < c->end; p++) {
        const rows prompt = add_prompt_rows(l, c, p, &common, &free_row, b);
        for (; i < c->end && i < l->prompts[p].first + l->prompts[p].count; i++) {
            const napier_token_list response = napier_score_response(l, l->order[i]);
            const int64_t count = run_size(l, i);
            if (count > 0) {
                napier_ragged_add(b, response.ids, response.begin, response.begin + count,
                                  napier_token_list_size(&l->prompts[p].list), prompt, l->rewards ? 1 : count);
            }
        }
    }
}

/* ---- The tokens that rows rate ----------------------------------------------------------------------------------- */

napier_status napier_score_chunk_rate(const napier_score_lists *l, const napier_score_chunk *c,
                                      napier_score_head *head) {
    int64_t row = 0;
    for (int64_t p = c->prompt, first = c->first, end; first < c->end; p++, first = end) {
        end = l->prompts[p].first + l->prompts[p].count;
        end = end < c->end ? end : c->end;
        for (int64_t i = first; i < end; i++) {
            NAPIER_TRY(napier_score_head_add(head, row, napier_score_response(l, l->order[i]).begin));
        }
        row++;
        for (int64_t i = first; i < end; i++) {
            const napier_token_list response = napier_score_response(l, l->order[i]);
            for (int64_t t = response.begin + 1; t < response.end; t++) {
                NAPIER_TRY(napier_score_head_add(head, row++, t));
            }
        }
    }
    return napier_score_head_flush(head);
}
