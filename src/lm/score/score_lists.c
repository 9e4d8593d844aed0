/* lm/score/score_lists.c - finds equal prompts, and prompts with a common beginning. */
#include "lm/score/score_parts.h"

#include <inttypes.h>
#include <string.h>

#include "core/base/scope.h"
#include "core/base/struct_size.h"
#include "ops/tokens/responses.h"

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

static napier_status check_ragged(napier_context *context, const char *ids_name, napier_indices ids,
                                  const char *offsets_name, napier_indices offsets, int64_t vocabulary) {
    NAPIER_TRY(napier_check_ids(context, ids_name, ids, ids.size, vocabulary));
    return napier_check_offsets_of(context, offsets_name, offsets, ids.size);
}

static napier_status check_prompt_of(napier_context *context, const napier_score_batch *b) {
    const int64_t prompts = b->prompt_offsets.size - 1, responses = b->response_offsets.size - 1;
    if (b->prompt_of.size != 0) {
        return napier_check_ids(context, "prompt_of", b->prompt_of, responses, prompts);
    }
    NAPIER_REFUSE_IF(context, prompts != responses,
                     "prompt_offsets: %" PRId64 " prompts for %" PRId64 " responses, and no prompt_of", prompts,
                     responses);
    return NAPIER_OK;
}

static napier_status check_batch(napier_context *context, int64_t vocabulary, const napier_score_batch *b,
                                 int64_t prefix_token) {
    NAPIER_REFUSE_IF(context, prefix_token >= vocabulary,
                     "options: prefix_token %" PRId64 " is not an id below %" PRId64, prefix_token, vocabulary);
    NAPIER_TRY(check_ragged(context, "prompt_ids", b->prompt_ids, "prompt_offsets", b->prompt_offsets, vocabulary));
    NAPIER_TRY(
        check_ragged(context, "response_ids", b->response_ids, "response_offsets", b->response_offsets, vocabulary));
    return check_prompt_of(context, b);
}

/* ---- Lists of the batch ------------------------------------------------------------------------------------------ */

napier_token_list napier_score_response(const napier_score_lists *l, int64_t b) {
    const napier_indices offsets = l->batch.response_offsets;
    return (napier_token_list){l->batch.response_ids, napier_index_at(offsets, b), napier_index_at(offsets, b + 1)};
}

static int64_t prompt_of(const napier_score_lists *l, int64_t b) {
    return l->batch.prompt_of.size > 0 ? napier_index_at(l->batch.prompt_of, b) : b;
}

static napier_token_list prompt_list(const napier_score_lists *l, int64_t p) {
    const napier_indices offsets = l->batch.prompt_offsets;
    const napier_token_list list = {l->batch.prompt_ids, napier_index_at(offsets, p), napier_index_at(offsets, p + 1)};
    if (list.begin == list.end && l->prefix_token >= 0) {
        return (napier_token_list){napier_indices_i64(&l->prefix_token, 1), 0, 1};
    }
    return list;
}

/* The length of the common beginning of two lists. */
static int64_t common_of(const napier_token_list *a, const napier_token_list *b) {
    const int64_t size =
        napier_token_list_size(a) < napier_token_list_size(b) ? napier_token_list_size(a) : napier_token_list_size(b);
    int64_t i = 0;
    while (i < size && napier_index_at(a->ids, a->begin + i) == napier_index_at(b->ids, b->begin + i)) {
        i++;
    }
    return i;
}

/* Compares lists lexicographically by tokens. A list precedes its continuations. */
static bool is_after(const napier_token_list *a, const napier_token_list *b) {
    const int64_t i = common_of(a, b);
    if (i == napier_token_list_size(a) || i == napier_token_list_size(b)) {
        return napier_token_list_size(a) > napier_token_list_size(b);
    }
    return napier_index_at(a->ids, a->begin + i) > napier_index_at(b->ids, b->begin + i);
}

/* ---- Order ------------------------------------------------------------------------------------------------------- */

/* Merges order[begin .. middle - 1] and order[middle .. end - 1] by their prompts. It is stable. */
static void merge(const napier_score_lists *l, int64_t begin, int64_t middle, int64_t end, int64_t *room) {
    int64_t i = begin, j = middle;
    for (int64_t at = begin; at < end; at++) {
        bool second = i == middle;
        if (i < middle && j < end) {
            const int64_t p = prompt_of(l, l->order[i]), q = prompt_of(l, l->order[j]);
            const napier_token_list a = prompt_list(l, p), b = prompt_list(l, q);
            second = p != q && is_after(&a, &b);
        }
        room[at] = second ? l->order[j++] : l->order[i++];
    }
    memcpy(l->order + begin, room + begin, (size_t)(end - begin) * sizeof *room);
}

static void sort(const napier_score_lists *l, int64_t *room) {
    for (int64_t width = 1; width < l->responses; width *= 2) {
        for (int64_t begin = 0; begin + width < l->responses; begin += 2 * width) {
            const int64_t end = begin + 2 * width < l->responses ? begin + 2 * width : l->responses;
            merge(l, begin, begin + width, end, room);
        }
    }
}

/* ---- Distinct prompts, and groups of them ------------------------------------------------------------------------ */

static void find_prompts(napier_score_lists *l) {
    for (int64_t i = 0; i < l->responses; i++) {
        const napier_token_list list = prompt_list(l, prompt_of(l, l->order[i]));
        napier_prompt *last = l->prompts + l->count - 1;
        const int64_t size = napier_token_list_size(&list);
        const bool same = !l->unshared && l->count > 0 && napier_token_list_size(&last->list) == size &&
                          common_of(&last->list, &list) == size;
        if (same) {
            last->count++;
        } else {
            l->prompts[l->count] = (napier_prompt){.list = list, .first = i, .count = 1, .group = l->count};
            l->count++;
        }
    }
}

static void close_group(napier_score_lists *l, int64_t begin, int64_t end, int64_t common) {
    for (int64_t p = begin; end - begin > 1 && p < end; p++) {
        l->prompts[p].group = begin;
        l->prompts[p].common = common;
    }
}

/* A prompt joins the preceding group if that group then saves more tokens than without it. */
static void find_groups(napier_score_lists *l) {
    int64_t begin = 0, common = 0;
    for (int64_t p = 0; p < l->count; p++) {
        const int64_t members = p - begin;
        int64_t with = p > 0 ? common_of(&l->prompts[p - 1].list, &l->prompts[p].list) : 0;
        with = members > 1 && common < with ? common : with;
        const int64_t saved = members > 1 ? (members - 1) * common : 0;
        if (members > 0 && with >= NAPIER_COMMON_LEAST && members * with > saved) {
            common = with;
        } else {
            close_group(l, begin, p, common);
            begin = p;
        }
    }
    close_group(l, begin, l->count, common);
}

/* Finds the object that holds the most of each prompt's beginning. One token is left to run: its row rates the next. */
static void find_kvs(napier_score_lists *l, const napier_score_options *options) {
    for (int64_t p = 0; p < l->count; p++) {
        napier_prompt *prompt = &l->prompts[p];
        const int64_t size = prompt->common > 0 ? prompt->common : napier_token_list_size(&prompt->list);
        for (int64_t i = 0; i < options->kv_count; i++) {
            const int64_t held = napier_kv_match(options->kvs[i], prompt->list.ids, prompt->list.begin, size - 1);
            if (held > prompt->kept) {
                prompt->kept = held;
                prompt->kv = options->kvs[i];
            }
        }
    }
}

/* ---- All --------------------------------------------------------------------------------------------------------- */

static napier_status take_responses(napier_context *context, napier_score_lists *l) {
    const int64_t all = l->batch.response_offsets.size - 1;
    for (int64_t b = 0; b < all; b++) {
        const napier_token_list response = napier_score_response(l, b), prompt = prompt_list(l, prompt_of(l, b));
        NAPIER_REFUSE_IF(context, napier_token_list_size(&prompt) == 0,
                         "prompt_ids: the prompt of response %" PRId64 " is empty, and there is no prefix_token", b);
        if (l->rewards || napier_token_list_size(&response) > 0) {
            l->order[l->responses++] = b;
        }
    }
    return NAPIER_OK;
}

napier_status napier_score_lists_make(napier_context *context, const napier_model *model,
                                      const napier_score_batch *batch, const napier_score_options *options,
                                      napier_score_lists *lists) {
    *lists = (napier_score_lists){.batch = NAPIER_SCORE_BATCH_INIT, .rewards = model->config.labels > 0};
    lists->unshared = options->unshared != 0;
    lists->prefix_token = options->prefix_token;
    NAPIER_TRY(napier_read_struct(
        context, "batch", NAPIER_STRUCT(napier_score_batch, NAPIER_SCORE_BATCH_INIT, prompt_of), batch, &lists->batch));
    NAPIER_TRY(check_batch(context, model->config.vocab_size, &lists->batch, options->prefix_token));
    const int64_t all = lists->batch.response_offsets.size - 1;
    if (all == 0) {
        return NAPIER_OK;
    }
    NAPIER_MEMORY(memory, context);
    int64_t *const spare = napier_take(&memory, all, sizeof *spare);
    lists->order = napier_take(&memory, all, sizeof *lists->order);
    lists->prompts = napier_take(&memory, all, sizeof *lists->prompts);
    NAPIER_TRY(napier_taken(&memory, "batch: no memory for %" PRId64 " responses", all));
    NAPIER_TRY(take_responses(context, lists));
    if (!lists->unshared) {
        sort(lists, spare);
    }
    find_prompts(lists);
    if (!lists->unshared) {
        find_groups(lists);
        find_kvs(lists, options);
    }
    napier_let_go(&memory, lists->order);
    napier_let_go(&memory, lists->prompts);
    return NAPIER_OK;
}

void napier_score_lists_free(napier_context *context, napier_score_lists *lists) {
    napier_free(&context->allocator, lists->order);
    napier_free(&context->allocator, lists->prompts);
}
