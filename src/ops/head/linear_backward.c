/* ops/head/linear_backward.c - gradients with respect to hidden states and weights. It computes the logits again.
 *
 * The gradient g of the logits is computed in rectangles of some thousand rows by 4096 tokens. Each rectangle continues
 * the chains of both results: grad_hidden = g weights over the tokens, and grad_weights = g^T hidden over the rows. g^T
 * is stored too, because rows of a product that lie along k need no packing. If all rows fit in one rectangle, both
 * products read it. Otherwise the rectangles are computed twice, once in each direction, so that only the partial sums
 * of some rows, or of 4096 tokens, are in memory. The few numbers that a row's gradient needs are stored for every
 * row. They come from the finals that the caller has, or from the logits, of which those of the first tokens are then
 * kept, in grad_weights or in the memory that the rows leave, and not computed again.
 *
 * With the option bf16_gradient g and g^T are bf16, and the f32 gradient exists only for a tile at a time. */
#include <napier/rl.h>

#include "core/base/stop.h"
#include "ops/head/linear_backward.h"
#include "ops/head/linear_head.h"
#include "ops/tokens/responses.h"

enum {
    NAPIER_LINEAR_COLS = NAPIER_KEPT_COLS, /* tokens of a rectangle */
    NAPIER_LINEAR_PAD = 32,                /* so that rows do not all map to one cache set */
    NAPIER_LINEAR_STEP = NAPIER_LINEAR_COLS + NAPIER_LINEAR_PAD,
    NAPIER_LINEAR_BYTES = 144 << 20 /* the memory that its rows and kept logits may take */
};

/* The data of a row between forward and backward. */
typedef struct napier_linear_row {
    napier_final final;
    napier_token_slope slope;
} napier_linear_row;

typedef struct napier_linear_back {
    napier_head head;
    napier_const_matrix hidden, weights;
    napier_matrix grad_hidden, grad_weights;
    napier_linear_row *rows; /* [N] */
    double *doubles;         /* [N][3 K] */
    int64_t *ids;            /* [N][K] */
    napier_dtype dtype;      /* of g */
    void *g;                 /* [rows_at_a_time][NAPIER_LINEAR_STEP] */
    void *turned;            /* [NAPIER_LINEAR_COLS][turned_step]: g^T */
    float *hidden_sums;      /* [rows_at_a_time][H], a row in whole vectors */
    float *weight_sums;      /* [NAPIER_LINEAR_COLS][H] */
    float *memory;           /* of a product */
    size_t memory_floats;
    int64_t row, count, col, cols; /* the rectangle */
    bool wants_hidden, wants_weights;
    bool reads_kept;            /* the head's kept logits are those of the rectangle's rows */
    bool continues;             /* grad_hidden holds the sums over earlier tokens */
    napier_linear_slope *slope; /* NULL: the finals are computed here */
    void *argument;
} napier_linear_back;

/* ---- Rectangles -------------------------------------------------------------------------------------------------- */

/* A part of the matrix of all logits, from (row, col) on, as a view in which element (i, j) of the whole is at its
 * position. */
static napier_matrix part_of_logits(const napier_linear_back *b, float *part, int64_t row, int64_t col, int64_t step) {
    const uintptr_t before = ((uintptr_t)row * (uintptr_t)step + (uintptr_t)col) * sizeof(float);
    const napier_matrix m = {
        (void *)((uintptr_t)part - before), b->head.call->rows, b->head.call->cols, step, 1, NAPIER_F32};
    return m;
}

/* The kept logits from (row, token) on. */
static napier_const_matrix kept_logits(const napier_linear_back *b, int64_t row, int64_t token) {
    const napier_head *h = &b->head;
    return napier_read_only(part_of_logits(b, napier_kept_at(h, row, token), row, token, h->kept_step));
}

/* Row stride of g^T, in elements. */
static int64_t turned_step(const napier_linear_back *b) {
    return napier_round_up(b->head.rows_at_a_time, NAPIER_LINEAR_PAD) + NAPIER_LINEAR_PAD;
}

static napier_const_matrix gradient_view(const napier_linear_back *b) {
    return (napier_const_matrix){b->g, b->count, b->cols, NAPIER_LINEAR_STEP, 1, b->dtype};
}

/* Transposes n tokens of g by `rows` of its rows into g^T. */
static void turn_tile(const napier_linear_back *b, int64_t tile, int64_t n, int64_t row, int64_t rows) {
    const int64_t step = turned_step(b), token = tile * NAPIER_TILE;
    const napier_const_matrix turned = napier_const_transposed(gradient_view(b));
    b->head.sides.core->pack(&turned, token, n, row, rows, false, (float *)b->turned + token * step + row, step,
                             (rows + 15) / 16 * 16);
}

/* Rounds `rows` rows of the f32 gradient g of a tile to b->g and b->turned. */
static void narrow_tile(const napier_linear_back *b, const float *g, int64_t tile, int64_t n, int64_t row,
                        int64_t rows) {
    const napier_matrix along = {b->g, b->count, b->cols, NAPIER_LINEAR_STEP, 1, NAPIER_BF16};
    const napier_matrix across = {b->turned, b->count, b->cols, 1, turned_step(b), NAPIER_BF16};
    b->head.sides.core->unpack(g, NAPIER_HEAD_Z, rows, n, along, row, tile * NAPIER_TILE, false);
    if (b->wants_weights) {
        b->head.sides.core->unpack(g, NAPIER_HEAD_Z, rows, n, across, row, tile * NAPIER_TILE, false);
    }
}

static void compute_tile(const napier_linear_back *b, int worker, int64_t tile, int64_t block) {
    const napier_head *h = &b->head;
    const int64_t begin = b->col + tile * NAPIER_TILE, left = b->col + b->cols - begin;
    const int64_t n = napier_least(left, NAPIER_TILE), lanes = napier_block_lanes(&h->sides, block);
    const int64_t first = b->row + block * h->sides.lane_block;
    float *scratch = h->scratch + (int64_t)worker * NAPIER_HEAD_SCRATCH;
    const bool kept = b->reads_kept && begin < h->kept_cols, narrow = b->dtype == NAPIER_BF16;
    const int64_t step = narrow ? NAPIER_HEAD_Z : NAPIER_LINEAR_STEP;
    float *const g = narrow ? scratch + NAPIER_HEAD_PRODUCT
                            : (float *)b->g + (first - b->row) * NAPIER_LINEAR_STEP + tile * NAPIER_TILE;
    const napier_matrix turned = {g, n, lanes, 1, step, NAPIER_F32};
    if (!kept) {
        napier_head_logits(h, worker, block, begin, n, turned);
    }
    const napier_matrix whole = part_of_logits(b, g, first, begin, step);
    const napier_token_job job = {kept ? kept_logits(b, first, begin) : napier_read_only(whole), h->call->rules,
                                  h->call->wants};
    for (int64_t row = first; row < first + lanes; row++) {
        h->kernels->token_gradient(&job, row, begin, begin + n, &b->rows[row].final, &b->rows[row].slope, NULL, whole,
                                   false, scratch);
    }
    if (narrow) {
        narrow_tile(b, g, tile, n, first - b->row, lanes);
    } else if (b->wants_weights) {
        turn_tile(b, tile, n, first - b->row, lanes);
    }
}

static void tiles_task(void *argument, int worker, int64_t begin, int64_t end) {
    const napier_linear_back *b = argument;
    const int64_t blocks = napier_lane_blocks(&b->head.sides);
    for (int64_t unit = begin; unit < end; unit++) {
        compute_tile(b, worker, unit / blocks, unit % blocks);
    }
}

/* Computes a rectangle. The rows' hidden states must be packed. */
static void rectangle(const napier_context *context, napier_linear_back *b, int64_t col) {
    b->col = col;
    b->cols = napier_least(b->head.call->cols - col, NAPIER_LINEAR_COLS);
    napier_parallel(context, napier_token_tiles(b->cols) * napier_lane_blocks(&b->head.sides), 1, tiles_task, b);
}

static void pack_rows(const napier_context *context, napier_linear_back *b, int64_t row) {
    b->row = row;
    b->count = napier_least(b->head.call->rows - row, b->head.rows_at_a_time);
    napier_pack_lanes(context, &b->head.sides, row, b->count);
}

/* ---- The two products -------------------------------------------------------------------------------------------- */

/* Row stride of the sums, in floats. */
static int64_t sum_step(const napier_linear_back *b) { return napier_round_up(b->hidden.cols, 16) + 16; }

static napier_matrix sums_view(const napier_linear_back *b, float *sums, int64_t rows) {
    const napier_matrix m = {sums, rows, b->hidden.cols, sum_step(b), 1, NAPIER_F32};
    return m;
}

/* With a gradient of bf16. */
static napier_product_plan to_hidden(const napier_context *context, const napier_linear_back *b) {
    const napier_const_matrix weights = napier_some_rows(b->weights, b->col, b->cols);
    return napier_product_plan_of(context, napier_const_transposed(weights), gradient_view(b),
                                  sums_view(b, b->hidden_sums, b->count), false, b->col > 0 || b->continues);
}

/* out: [cols, H]. add: it holds the sums over the earlier rows. */
static napier_product_plan to_weights(const napier_context *context, const napier_linear_back *b, napier_matrix out,
                                      bool add) {
    const napier_const_matrix hidden = napier_some_rows(b->hidden, b->row, b->count);
    const napier_const_matrix turned = {b->turned, b->cols, b->count, turned_step(b), 1, b->dtype};
    return napier_product_plan_of(context, napier_const_transposed(hidden), turned, out, false, add);
}

static void run_product(const napier_context *context, napier_linear_back *b, napier_product_plan plan) {
    napier_product_run(context, &plan, b->memory);
}

/* grad_hidden in f32. The lanes are columns of the weights, whose rows are read once, in order. So a worker takes some
 * columns and all tokens: it packs some rows at a time, which stay in its second-level cache, and adds their products to
 * the sums in place. PACK_TOGETHER rows at a time, one vector of each after the other, because rows that are far apart
 * share sets of the cache. */
enum { PACKED_TOKENS = 512, PACKED_COLUMNS = 256, PACKED_FLOATS = PACKED_TOKENS * PACKED_COLUMNS, PACK_TOGETHER = 16 };

/* A unit of work: `columns` of the weights, whole panels, by `rows` of g. */
typedef struct hidden_share {
    int64_t columns, rows;
} hidden_share;

static hidden_share hidden_share_of(int threads, int64_t columns, int64_t rows) {
    const int64_t units = 2 * (int64_t)threads, fair = napier_round_up((columns + units - 1) / units, 2 * NAPIER_LANES);
    const int64_t each = napier_least(fair, PACKED_COLUMNS), shares = (columns + each - 1) / each;
    const int64_t parts = (units + shares - 1) / shares;
    return (hidden_share){each, napier_round_up((rows + parts - 1) / parts, NAPIER_ROW_GROUP)};
}

/* Packs columns [col, col + cols) of `count` rows of the weights from `token` on, as panels of PACKED_TOKENS. */
static void pack_weights(const napier_linear_back *b, int64_t token, int64_t count, int64_t col, int64_t cols,
                         float *panels) {
    for (int64_t i = 0; i < count; i += PACK_TOGETHER) {
        const int64_t together = napier_least(count - i, PACK_TOGETHER);
        for (int64_t c = 0; c < cols; c += NAPIER_LANES) {
            b->head.sides.core->pack(&b->weights, token + i, together, col + c, napier_least(cols - c, NAPIER_LANES),
                                     false, panels + c * PACKED_TOKENS + i * NAPIER_LANES, NAPIER_LANES, NAPIER_LANES);
        }
    }
}

static void hidden_task(void *argument, int worker, int64_t begin, int64_t end) {
    const napier_linear_back *b = argument;
    float *const panels = b->memory + (int64_t)worker * PACKED_FLOATS;
    const hidden_share share = hidden_share_of(b->head.threads, b->hidden.cols, b->count);
    const int64_t shares = (b->hidden.cols + share.columns - 1) / share.columns;
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t col = unit % shares * share.columns, row = unit / shares * share.rows;
        const int64_t cols = napier_least(b->hidden.cols - col, share.columns);
        napier_direct_block block = {.dtype = NAPIER_F32,
                                     .row_count = napier_least(b->count - row, share.rows),
                                     .row_step = NAPIER_LINEAR_STEP * (int64_t)sizeof(float),
                                     .panels = panels,
                                     .panel_step = PACKED_TOKENS * NAPIER_LANES,
                                     .lanes = napier_round_up(cols, 16),
                                     .c = b->hidden_sums + row * sum_step(b) + col,
                                     .c_step = sum_step(b)};
        for (int64_t token = 0; token < b->cols && napier_goes_on(b->head.sides.context); token += PACKED_TOKENS) {
            block.cols = block.k = napier_least(b->cols - token, PACKED_TOKENS);
            block.rows = (const float *)b->g + row * NAPIER_LINEAR_STEP + token;
            block.first = b->col + token == 0 && !b->continues;
            pack_weights(b, b->col + token, block.k, col, cols, panels);
            b->head.sides.kernels->direct_chain(&block);
        }
    }
}

static void add_to_hidden(const napier_context *context, napier_linear_back *b) {
    if (b->dtype == NAPIER_BF16) {
        run_product(context, b, to_hidden(context, b));
        return;
    }
    const hidden_share share = hidden_share_of(b->head.threads, b->hidden.cols, b->count);
    const int64_t shares = (b->hidden.cols + share.columns - 1) / share.columns;
    napier_parallel(context, (b->count + share.rows - 1) / share.rows * shares, 1, hidden_task, b);
}

static napier_matrix weight_sums_view(const napier_linear_back *b) { return sums_view(b, b->weight_sums, b->cols); }

/* Copies sums to a result of any dtype and strides. Each worker copies some rows. */
typedef struct napier_linear_copy {
    const napier_core_kernels *core;
    const float *sums;
    int64_t step;
    napier_matrix out;
} napier_linear_copy;

static void copy_task(void *argument, int worker, int64_t begin, int64_t end) {
    const napier_linear_copy *c = argument;
    (void)worker;
    c->core->unpack(c->sums + begin * c->step, c->step, end - begin, c->out.cols, c->out, begin, 0, false);
}

static void write_sums(const napier_context *context, const napier_linear_back *b, const float *sums,
                       napier_matrix out) {
    napier_linear_copy copy = {b->head.sides.core, sums, sum_step(b), out};
    napier_parallel(context, out.rows, 64, copy_task, &copy);
}

/* Copies the sums over earlier tokens. */
static void read_sums(const napier_linear_back *b) {
    const napier_matrix from = b->grad_hidden;
    for (int64_t row = 0; row < b->count; row++) {
        const float *at = (const float *)from.data + (b->row + row) * from.row_stride;
        for (int64_t col = 0; col < from.cols; col++) {
            b->hidden_sums[row * sum_step(b) + col] = at[col * from.col_stride];
        }
    }
}

/* ---- Walks ------------------------------------------------------------------------------------------------------- */

/* Computes along the tokens, for a range of rows whose hidden states are packed. with_weights: there are no others. */
static void along(const napier_context *context, napier_linear_back *b, bool with_weights) {
    if (b->wants_hidden && b->continues) {
        read_sums(b);
    }
    for (int64_t col = 0; col < b->weights.rows; col += NAPIER_LINEAR_COLS) {
        rectangle(context, b, col);
        if (b->wants_hidden) {
            add_to_hidden(context, b);
        }
        if (with_weights) {
            const napier_matrix out = napier_some_rows_out(b->grad_weights, col, b->cols);
            run_product(context, b, to_weights(context, b, out, false));
        }
    }
    if (b->wants_hidden) {
        write_sums(context, b, b->hidden_sums, napier_some_rows_out(b->grad_hidden, b->row, b->count));
    }
}

/* Computes along the rows, for one range of tokens after the other. */
static void across(const napier_context *context, napier_linear_back *b) {
    b->reads_kept = false;
    for (int64_t col = 0; col < b->weights.rows; col += NAPIER_LINEAR_COLS) {
        for (int64_t row = 0; row < b->hidden.rows; row += b->head.rows_at_a_time) {
            pack_rows(context, b, row);
            rectangle(context, b, col);
            run_product(context, b, to_weights(context, b, weight_sums_view(b), row > 0));
        }
        write_sums(context, b, b->weight_sums, napier_some_rows_out(b->grad_weights, col, b->cols));
    }
}

/* The row's own memory. */
static napier_token_slope_desk desk_of(const napier_linear_back *b, int64_t row) {
    const int64_t k = b->head.call->chosen ? b->head.call->per_row : 0;
    const napier_token_slope_desk none = {.doubles = NULL};
    return k > 0 ? napier_token_slope_desk_of(b->doubles + row * 3 * k, b->ids + row * k, k) : none;
}

/* Converts a row's final to its slope. */
static void keep_row(void *argument, int64_t row, const napier_token_final *final, napier_token_seen *seen) {
    napier_linear_back *b = argument;
    const napier_token_call *call = b->head.call;
    napier_token_slope_desk d = desk_of(b, row);
    const napier_token_pull pull = napier_token_pull_of(call, row, &d);
    napier_token_slope_of(call, row, &pull, final, seen, &d);
    b->rows[row] = (napier_linear_row){final->row, d.slope};
}

static void keep_known(void *argument, int64_t row) {
    napier_linear_back *b = argument;
    napier_token_slope_desk d = desk_of(b, row);
    b->slope(b->argument, row, &b->rows[row].final, &d);
    b->rows[row].slope = d.slope;
}

/* Packs the rows from `row` on that are computed at a time, and computes their slopes unless these are known. */
static void prepare_rows(const napier_context *context, napier_linear_back *b, int64_t row) {
    if (b->slope) {
        pack_rows(context, b, row);
        return;
    }
    b->row = row;
    b->count = napier_least(b->hidden.rows - row, b->head.rows_at_a_time);
    napier_head_rows(context, &b->head, row, b->count, keep_row, b);
    b->reads_kept = b->head.kept_cols > 0;
}

static void compute(const napier_context *context, napier_linear_back *b) {
    const bool one_lot = b->hidden.rows <= b->head.rows_at_a_time;
    if (b->slope) {
        napier_parallel_each(context, b->hidden.rows, 16, keep_known, b);
    }
    for (int64_t row = 0; row < b->hidden.rows; row += b->head.rows_at_a_time) {
        prepare_rows(context, b, row);
        if (b->wants_hidden || one_lot) {
            along(context, b, one_lot && b->wants_weights);
        }
    }
    if (b->wants_weights && !one_lot) {
        across(context, b);
    }
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

/* The maximum number of floats that the products need, of the first rectangle and of the smaller ones at the ends. */
static size_t product_floats(const napier_context *context, const napier_linear_back *b) {
    const int64_t rows = b->hidden.rows, cols = b->weights.rows, at_a_time = b->head.rows_at_a_time;
    const int64_t heights[2] = {at_a_time, rows % at_a_time},
                  widths[2] = {napier_least(cols, NAPIER_LINEAR_COLS), cols % NAPIER_LINEAR_COLS};
    size_t most = b->dtype == NAPIER_BF16 ? 0 : (size_t)context->threads * PACKED_FLOATS;
    for (int i = 0; i < 4; i++) {
        napier_linear_back some = *b;
        some.row = some.col = 0;
        some.count = heights[i / 2];
        some.cols = widths[i % 2];
        if (some.count == 0 || some.cols == 0) {
            continue;
        }
        const napier_product_plan plans[3] = {to_weights(context, &some, weight_sums_view(&some), false),
                                              to_weights(context, &some, weight_sums_view(&some), true),
                                              to_hidden(context, &some)};
        for (int p = 0; p < (b->dtype == NAPIER_BF16 ? 3 : 2); p++) {
            const size_t floats = napier_product_floats(context, &plans[p]);
            if (floats == 0) {
                return 0;
            }
            most = floats > most ? floats : most;
        }
    }
    return most;
}

/* Decides how many tokens' logits are kept in the memory that the rows leave: all, or those of whole rectangles. */
static void keep_logits(napier_linear_back *b, int64_t row_floats) {
    const int64_t vocabulary = b->weights.rows;
    napier_head *const h = &b->head;
    const int64_t left = NAPIER_LINEAR_BYTES / (int64_t)sizeof(float) - h->rows_at_a_time * row_floats;
    h->kept_step = napier_least(vocabulary, NAPIER_KEPT_COLS) + 16;
    h->kept_region = h->rows_at_a_time * h->kept_step;
    const int64_t regions = h->kept_region > 0 && left > 0 ? left / h->kept_region : 0;
    h->kept_cols = vocabulary / NAPIER_KEPT_COLS < regions ? vocabulary : regions * NAPIER_KEPT_COLS;
}

/* Keeps logits where grad_weights will be instead, if it is f32 and contiguous and has room for nearly as many. Rectangle j
 * reads its region before the gradients of its tokens are written, and these end where the next region begins, or before. */
static void keep_in_place(napier_linear_back *b) {
    const napier_matrix *out = &b->grad_weights;
    napier_head *const h = &b->head;
    const int64_t width = out->cols, rows = h->rows_at_a_time;
    if (!out->data || out->dtype != NAPIER_F32 || out->col_stride != 1 || out->row_stride != width) {
        return;
    }
    const int64_t region = (rows > width ? rows : width) * NAPIER_KEPT_COLS;
    const int64_t cols = out->rows * width / region * NAPIER_KEPT_COLS;
    if (cols < napier_least(h->kept_cols, out->rows - out->rows / 16)) {
        return;
    }
    h->kept = out->data;
    h->kept_step = rows < width - width / 128 ? NAPIER_LINEAR_STEP : NAPIER_KEPT_COLS; /* rows of a region fit in it */
    h->kept_region = region;
    h->kept_cols = cols;
}

static napier_linear_back back_of(const napier_context *context, const napier_token_call *call,
                                  napier_const_matrix hidden, napier_const_matrix weights) {
    napier_linear_back b = {.head = napier_head_of(context, call, hidden, weights),
                            .hidden = hidden,
                            .weights = weights,
                            .dtype = call->options.bf16_gradient ? NAPIER_BF16 : NAPIER_F32};
    const int64_t row_floats =
        NAPIER_LINEAR_STEP + NAPIER_LINEAR_COLS + sum_step(&b) + napier_lane_floats(&b.head.sides) + b.head.slot_floats;
    const int64_t blocks = NAPIER_LINEAR_BYTES / (int64_t)sizeof(float) / row_floats / NAPIER_LANE_BLOCK;
    b.head.rows_at_a_time = napier_least(b.head.rows_at_a_time, (blocks > 0 ? blocks : 1) * (int64_t)NAPIER_LANE_BLOCK);
    keep_logits(&b, row_floats);
    b.memory_floats = b.head.rows_at_a_time > 0 && weights.rows > 0 ? product_floats(context, &b) : 0;
    return b;
}

/* Floats of memory for kept logits. */
static size_t kept_size(const napier_linear_back *b) {
    const int64_t regions = (b->head.kept_cols + NAPIER_KEPT_COLS - 1) / NAPIER_KEPT_COLS;
    return b->head.kept ? 0 : (size_t)(regions * b->head.kept_region);
}

static size_t bytes_of(const napier_linear_back *b) {
    const size_t at_a_time = (size_t)b->head.rows_at_a_time, h = (size_t)sum_step(b);
    const size_t g =
        (NAPIER_LINEAR_STEP * at_a_time + NAPIER_LINEAR_COLS * (size_t)turned_step(b)) * napier_dtype_size(b->dtype);
    const size_t floats = at_a_time * h + kept_size(b) + NAPIER_LINEAR_COLS * h + b->memory_floats;
    const size_t k = b->head.call->chosen ? (size_t)b->head.call->per_row : 0;
    const size_t row = sizeof(napier_linear_row) + k * (3 * sizeof(double) + sizeof(int64_t));
    return napier_head_bytes(&b->head) + g + floats * sizeof(float) + (size_t)b->hidden.rows * row;
}

static napier_status take(napier_memory *memory, napier_linear_back *b) {
    const int64_t rows = b->hidden.rows, at_a_time = b->head.rows_at_a_time;
    const size_t sums = (size_t)sum_step(b) * sizeof(float);
    const size_t k = b->head.call->chosen ? (size_t)b->head.call->per_row : 0, bytes = bytes_of(b);
    NAPIER_TRY(napier_head_take(memory, &b->head));
    b->rows = napier_take(memory, rows, sizeof *b->rows);
    b->doubles = k > 0 ? napier_take(memory, rows, 3 * k * sizeof(double)) : NULL;
    b->ids = k > 0 ? napier_take(memory, rows, k * sizeof(int64_t)) : NULL;
    if (kept_size(b) > 0) {
        b->head.kept = napier_take(memory, sizeof(float), kept_size(b));
    }
    b->g = napier_take(memory, at_a_time, NAPIER_LINEAR_STEP * napier_dtype_size(b->dtype));
    b->turned = napier_take(memory, turned_step(b), NAPIER_LINEAR_COLS * napier_dtype_size(b->dtype));
    b->hidden_sums = napier_take(memory, at_a_time, sums);
    b->weight_sums = napier_take(memory, NAPIER_LINEAR_COLS, sums);
    b->memory =
        napier_take(memory, sizeof(float), b->memory_floats); /* 0 means too many: an element of no size fails */
    return napier_taken(memory, "workspace: no memory for %zu bytes", bytes);
}

/* ---- The call ---------------------------------------------------------------------------------------------------- */

/* Without rows or tokens the results are 0. */
static void write_zeros(const napier_context *context, napier_matrix out) {
    const napier_core_kernels *core = napier_ops_kernels_of(context->isa)->core;
    const float zeros[16] = {0.0f};
    for (int64_t row = 0; out.data && row < out.rows; row++) {
        for (int64_t col = 0; col < out.cols; col += 16) {
            core->unpack(zeros, 16, 1, napier_least(out.cols - col, 16), out, row, col, false);
        }
    }
}

static napier_status back_run(napier_context *context, napier_linear_back *b) {
    NAPIER_MEMORY(memory, context);
    NAPIER_TRY(take(&memory, b));
    NAPIER_DEFAULT_FENV;
    NAPIER_MAY_STOP(context);
    compute(context, b);
    return napier_stopped(context);
}

napier_status napier_linear_backward_of(napier_context *context, const napier_token_call *call,
                                        napier_const_matrix hidden, napier_const_matrix weights,
                                        napier_linear_slope *slope, void *argument, bool continues,
                                        napier_matrix grad_hidden, napier_matrix grad_weights) {
    if ((!grad_hidden.data && !grad_weights.data) || hidden.cols == 0) {
        return NAPIER_OK;
    }
    if (hidden.rows == 0 || weights.rows == 0) {
        if (!continues) {
            write_zeros(context, grad_hidden);
        }
        write_zeros(context, grad_weights);
        return NAPIER_OK;
    }
    napier_linear_back b = back_of(context, call, hidden, weights);
    b.grad_hidden = grad_hidden;
    b.grad_weights = grad_weights;
    b.wants_hidden = grad_hidden.data != NULL;
    b.wants_weights = grad_weights.data != NULL;
    b.continues = continues;
    b.slope = slope;
    if (slope) {
        b.head.kept_cols = 0; /* what is known is not computed with logits */
    } else {
        keep_in_place(&b);
    }
    b.argument = argument;
    return back_run(context, &b);
}

static void known_slope(void *argument, int64_t row, napier_final *final, napier_token_slope_desk *desk) {
    napier_token_slope_known(argument, row, final, desk);
}

napier_status napier_linear_token_logprobs_backward(napier_context *context, napier_const_matrix hidden,
                                                    napier_const_matrix weights, napier_indices ids,
                                                    const napier_token_options *options,
                                                    const napier_token_gradients *gradients, napier_matrix grad_hidden,
                                                    napier_matrix grad_weights) {
    napier_token_call call;
    NAPIER_TRY(napier_head_back_read(context, NAPIER_ON_HOST, hidden, weights, ids, options, gradients, grad_hidden,
                                     grad_weights, &call));
    return napier_linear_backward_of(context, &call, hidden, weights, call.gradients.finals ? known_slope : NULL, &call,
                                     false, grad_hidden, grad_weights);
}

/* ---- The question ------------------------------------------------------------------------------------------------ */

/* For one id per row, in f32, which takes the most memory. */
size_t napier_linear_token_logprobs_workspace(const napier_context *context, int64_t rows, int64_t hidden,
                                              int64_t vocabulary, int backward) {
    if (!context || rows <= 0 || hidden < 0 || vocabulary < 0 || rows > NAPIER_K_MOST || hidden > NAPIER_K_MOST ||
        vocabulary > NAPIER_K_MOST) {
        return 0;
    }
    const napier_token_call call = {.rows = rows, .cols = vocabulary, .per_row = 1, .chosen = true};
    const float unread = 0.0f;
    const napier_const_matrix states = {&unread, rows, hidden, hidden, 1, NAPIER_F32};
    const napier_const_matrix weights = {&unread, vocabulary, hidden, hidden, 1, NAPIER_F32};
    if (backward) {
        const napier_linear_back b = back_of(context, &call, states, weights);
        return bytes_of(&b);
    }
    return napier_head_workspace(context, rows, hidden, vocabulary, false);
}
