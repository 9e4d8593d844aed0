/* ops/linear/product_few.c - products with few lanes, which are not packed into panels. Rows are read in place, and once. */
#include <string.h>

#include "ops/linear/bf16_pairs.h"
#include "ops/linear/product_steps.h"

void napier_pack_few(const napier_core_kernels *core, const napier_const_matrix *lanes, int64_t first, int64_t count,
                     bool flush, int64_t k, float *out) {
    const int64_t width = napier_few_width(count), there = lanes->cols;
    const napier_const_matrix turned = napier_const_transposed(*lanes);
    if (width == 1) {
        core->pack(lanes, first, 1, 0, there, flush, out, there, napier_round_up(k, 16));
        return;
    }
    core->pack(&turned, 0, there, first, count, flush, out, width, 16);
    memset(out + there * width, 0, (size_t)((k - there) * width) * sizeof(float));
}

/* The same for few split lanes. */
static void pack_few_pieces(const napier_product_sides *s, float *out) {
    enum { SOME_K = 256 };
    const int64_t lanes = s->lane_count, width = s->sum_step;
    memset(out, 0, (size_t)(s->k * width) * sizeof *out);
    for (int64_t k = 0; k < s->lanes.cols; k += SOME_K) {
        const int64_t cols = napier_least(s->lanes.cols - k, SOME_K);
        for (int64_t sum = 0; sum < NAPIER_PIECES * lanes; sum++) {
            float x[SOME_K];
            s->core->pack(&s->lanes, s->first_lane + sum % lanes, 1, k, cols, false, x, SOME_K,
                          napier_round_up(cols, 16));
            s->kernels->piece(x, napier_round_up(cols, 16) / 16, 16, (int)(sum / lanes));
            for (int64_t i = 0; i < cols; i++) {
                out[(k + i) * width + sum] = x[i];
            }
        }
    }
}

void napier_pack_few_lanes(const napier_product_sides *s) {
    if (s->split) {
        pack_few_pieces(s, s->panels);
    } else {
        napier_pack_few(s->core, &s->lanes, s->first_lane, s->lane_count, napier_is_pairs(s), s->k, s->panels);
    }
    if (s->route == NAPIER_ROUTE_DOT_ONE) {
        napier_bf16_one_pack(s->panels, s->lanes.cols);
    } else if (s->route == NAPIER_ROUTE_DOT_FEW) {
        napier_bf16_few_pack(s->panels, s->k, s->sum_step);
    }
}

static void (*few_kernel(const napier_product_sides *s))(const napier_few_block *) {
    switch (s->route) {
    case NAPIER_ROUTE_PAIRS_FEW: return s->kernels->few_pairs;
    case NAPIER_ROUTE_PAIRS_ONE: return s->kernels->one_pairs;
    case NAPIER_ROUTE_DOT_FEW: return napier_bf16_few_multiply;
    case NAPIER_ROUTE_DOT_ONE: return napier_bf16_one_multiply;
    default: return s->kernels->few_chain;
    }
}

/* Rows that are stored as blocks: 16 of them, and some k, are widened at a time, and stay in the first-level cache. */
static void multiply_blocks(const napier_product_sides *s, int64_t row, int64_t rows, float *c, float *room) {
    enum { SOME_ROWS = 16, SOME_K = 768, STEP = SOME_K + 16 };
    float *const widened = room + (64 - (uintptr_t)room % 64) % 64 / sizeof *room;
    _Static_assert(SOME_ROWS * STEP + 16 <= NAPIER_ROW_GROUP * NAPIER_ROW_STEP, "rows are widened in this room");
    for (int64_t r = 0; r < rows; r += SOME_ROWS) {
        for (int64_t k = 0; k < s->k; k += SOME_K) {
            const napier_few_block few = {.rows = widened,
                                          .dtype = NAPIER_F32,
                                          .row_count = napier_least(rows - r, SOME_ROWS),
                                          .row_step = STEP * (int64_t)sizeof *widened,
                                          .lane_data = s->panels + k * s->sum_step,
                                          .lanes = s->lane_count,
                                          .width = s->sum_step,
                                          .k = napier_least(s->k - k, SOME_K),
                                          .add = k > 0,
                                          .c = c + r * s->sum_step,
                                          .c_step = s->sum_step};
            s->core->widen_rows(s->blocks, row + r, few.row_count, k, few.k, widened, STEP);
            s->kernels->few_chain(&few);
        }
    }
}

void napier_multiply_few(const napier_product_sides *s, int64_t block, int64_t row, int64_t rows, int64_t k, bool first,
                         float *c, float *room) {
    (void)block, (void)k, (void)first;
    if (s->blocks && (s->blocks->kind == NAPIER_BLOCK_OTHER || s->lane_count > s->kernels->few_stored_lanes)) {
        multiply_blocks(s, row, rows, c, room);
        return;
    }
    const int64_t step =
        s->blocks ? s->blocks->row_bytes : s->rows.row_stride * (int64_t)napier_dtype_size(s->rows.dtype);
    const char *const first_row = s->blocks ? (const char *)s->blocks->data : s->rows.data;
    const napier_few_block few = {.rows = first_row + row * step,
                                  .dtype = s->rows.dtype,
                                  .row_count = rows,
                                  .row_step = step,
                                  .lane_data = s->panels,
                                  .lanes = napier_few_sums(s, s->lane_count),
                                  .width = s->sum_step,
                                  .k = s->rows.cols,
                                  .c = c,
                                  .c_step = s->sum_step};
    if (s->blocks) {
        s->kernels->few_stored(&few, s->blocks);
    } else {
        few_kernel(s)(&few);
    }
}

void napier_product_write(const napier_product_sides *s, const float *result, int64_t row, int64_t rows,
                          napier_matrix out) {
    if (s->c_step == 1) { /* one lane: its elements lie side by side */
        s->core->unpack(result, rows, 1, rows, napier_transposed(out), 0, row, false);
    } else {
        s->core->unpack(result, s->c_step, rows, s->lane_count, out, row, 0, false);
    }
}

/* ---- Few lanes ---------------------------------------------------------------------------------------------------
 * Such products wait for memory. So a thread reads long stretches of rows, which get shorter towards the end, where they
 * even out the threads' speeds. Products of the same lanes are one piece of work: threads wait for each other once. */

/* A thread reads so many bytes in a few microseconds, which is how long another one waits for it. */
enum { SHORTEST_BYTES = 96 << 10, SHORTEST = 16 };

static napier_product_stretch next_stretch(const napier_context *context, const napier_const_matrix *rows,
                                           int64_t count, int64_t begin) {
    const int64_t row_bytes = (rows->cols + 1) * (int64_t)napier_dtype_size(rows->dtype), left = count - begin;
    const int64_t few = napier_round_up(SHORTEST_BYTES / row_bytes + 1, SHORTEST);
    const int64_t share = napier_round_up(left / (4 * (int64_t)context->threads) * 3, NAPIER_ROW_GROUP);
    return (napier_product_stretch){begin, begin + napier_least(left, share > few ? share : few)};
}

int64_t napier_product_stretches(const napier_context *context, const napier_const_matrix *rows, int64_t count) {
    int64_t stretches = 0;
    for (int64_t row = 0; row < count; stretches++) {
        row = next_stretch(context, rows, count, row).end;
    }
    return stretches;
}

napier_product_stretch napier_product_stretch_of(const napier_context *context, const napier_const_matrix *rows,
                                                 int64_t count, int64_t index) {
    napier_product_stretch s = {0, 0};
    for (int64_t i = 0; i <= index; i++) {
        s = next_stretch(context, rows, count, s.end);
    }
    return s;
}
