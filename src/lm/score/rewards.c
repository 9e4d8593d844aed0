/* lm/score/rewards.c - the head of a reward model, on the last row of each pair of prompt and response. */
#include "core/math/f64.h"
#include "lm/decoder/project.h"
#include "lm/score/score_parts.h"

enum { BLOCK_ROWS = 256 }; /* rows that the head multiplies at a time */

/* Each response has a prompt, whose last row is also wanted. */
static int64_t rows_of(int64_t responses) { return 2 * responses; }

static int64_t product_floats(const napier_context *context, const napier_model *model, int64_t rows) {
    const int64_t block = rows < BLOCK_ROWS ? rows : BLOCK_ROWS;
    return (int64_t)napier_project_most_floats(
        context, napier_const_rows(NULL, block, model->head.cols, napier_model_activations(model)), model->head,
        napier_model_splits(model));
}

int64_t napier_reward_head_bytes(const napier_context *context, const napier_model *model, int64_t responses) {
    const int64_t rows = rows_of(responses), product = product_floats(context, model, rows);
    return (rows * model->head.rows + product) * (int64_t)sizeof(float);
}

napier_status napier_reward_head_allocate(napier_memory *memory, const napier_model *model, int64_t responses,
                                          napier_reward_head *head) {
    const int64_t rows = rows_of(responses), product = product_floats(memory->context, model, rows);
    head->sums = napier_take(memory, rows * model->head.rows, sizeof *head->sums);
    head->memory = napier_take(memory, product, sizeof *head->memory);
    return napier_taken(memory, "rewards: no memory for %lld responses", (long long)responses);
}

static void multiply(napier_context *context, const napier_model *model, napier_const_matrix states,
                     const napier_reward_head *head) {
    const int64_t rows = states.rows, labels = model->head.rows;
    const int64_t row_bytes = states.row_stride * (int64_t)napier_dtype_size(states.dtype);
    for (int64_t first = 0; first < rows; first += BLOCK_ROWS) {
        napier_const_matrix x = states;
        x.data = (const char *)states.data + first * row_bytes;
        x.rows = rows - first < BLOCK_ROWS ? rows - first : BLOCK_ROWS;
        const napier_projection product = {model->head, napier_rows_f32(head->sums + first * labels, x.rows, labels)};
        napier_project(context, x, &product, 1, napier_model_splits(model), head->memory);
    }
}

static void write_row(const float *sums, napier_matrix out, int64_t row) {
    for (int64_t label = 0; label < out.cols; label++) {
        napier_f64_store(out.data, out.dtype, row * out.row_stride + label * out.col_stride, (double)sums[label]);
    }
}

/* The wanted rows are, for each prompt, its own and then those of its responses that are not empty. */
void napier_score_chunk_rewards(napier_context *context, const napier_model *model, const napier_score_lists *l,
                                const napier_score_chunk *c, napier_const_matrix states, const napier_reward_head *head,
                                napier_matrix out) {
    int64_t row = 0;
    multiply(context, model, states, head);
    for (int64_t p = c->prompt, i = c->first; i < c->end; p++) {
        const int64_t of_prompt = row++;
        for (; i < c->end && i < l->prompts[p].first + l->prompts[p].count; i++) {
            const napier_token_list response = napier_score_response(l, l->order[i]);
            const int64_t last = napier_token_list_size(&response) > 0 ? row++ : of_prompt;
            write_row(head->sums + last * out.cols, out, l->order[i]);
        }
    }
}
