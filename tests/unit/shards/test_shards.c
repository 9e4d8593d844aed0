/* test_shards - the parts of operations on shards, put together in one process, against the calls on whole rows: byte by
 * byte, for every instruction set, every kind of row and any boundaries. And what they refuse. */
#include <napier/shards.h>
#include <string.h>

#include "support/check.h"
#include "support/formats.h"

enum { ROWS = 3, COLS = 3500, PARTS = 3, HIDDEN = 20, TILES = (COLS + 1023) / 1024 };

/* The tiles' owners, and the columns that results are written for. */
static const int64_t owned[PARTS + 1] = {0, 1024, 3072, COLS}, written[PARTS + 1] = {0, 1000, 1001, COLS};
static const int64_t token_ids[ROWS] = {1023, -100, COLS - 1};

static napier_const_matrix columns(napier_const_matrix m, int64_t begin, int64_t end) {
    m.data = (const char *)m.data + begin * m.col_stride * (int64_t)napier_dtype_size(m.dtype);
    m.cols = end - begin;
    return m;
}
static napier_matrix columns_out(napier_matrix m, int64_t begin, int64_t end) {
    m.data = (char *)m.data + begin * m.col_stride * (int64_t)napier_dtype_size(m.dtype);
    m.cols = end - begin;
    return m;
}
static napier_const_matrix some_rows(napier_const_matrix m, int64_t begin, int64_t end) {
    m.data = (const char *)m.data + begin * m.row_stride * (int64_t)napier_dtype_size(m.dtype);
    m.rows = end - begin;
    return m;
}

/* What all ranks know of the rows. */
typedef struct known {
    int64_t finals[ROWS * NAPIER_SHARD_FINAL_WORDS];
    float chosen[ROWS];
    napier_indices ids;
    napier_token_options options;
} known;

static void start(known *k) {
    k->ids = napier_indices_i64(token_ids, ROWS);
    for (int i = 0; i < ROWS; i++) {
        k->chosen[i] = INFINITY;
    }
}

/* The tiles of logits x, or of hidden and weights. */
static void tiles_of(napier_context *c, napier_const_matrix x, const napier_const_matrix *weights,
                     napier_shard_values values, float *tiles, known *k) {
    start(k);
    for (int p = 0; p < PARTS; p++) {
        const int64_t tile = owned[p] / 1024, count = (owned[p + 1] + 1023) / 1024 - tile;
        const napier_matrix to = {tiles + tile * values, ROWS, count * values, TILES * values, 1, NAPIER_F32};
        if (weights) {
            works(napier_shard_linear_tiles, c, x, some_rows(*weights, owned[p], owned[p + 1]), owned[p], COLS, k->ids,
                  &k->options, values, to, k->chosen);
        } else {
            works(napier_shard_tiles, c, columns(x, owned[p], owned[p + 1]), owned[p], COLS, k->ids, &k->options,
                  values, to, k->chosen);
        }
    }
}

/* The finals by one sum of each part, merged from the last to the first. */
static void finish_by_sums(napier_context *c, const float *tiles, known *k) {
    int64_t sums[PARTS][ROWS * NAPIER_SHARD_SUM_WORDS];
    for (int p = 0; p < PARTS; p++) {
        const int64_t tile = owned[p] / 1024, count = (owned[p + 1] + 1023) / 1024 - tile;
        const napier_const_matrix own = {tiles + tile * 3, ROWS, count * 3, TILES * 3, 1, NAPIER_F32};
        works(napier_shard_sums, c, own, NAPIER_SHARD_LSE, sums[PARTS - 1 - p]);
    }
    works(napier_shard_finish_sums, c, sums[0], PARTS, ROWS, k->finals);
}

static void same(const void *a, const void *b, size_t bytes, const char *what, int kind) {
    expect(memcmp(a, b, bytes) == 0, "%s of rows of kind %d: not the bytes of the whole", what, kind);
}

/* ---- softmax, log_softmax, logsumexp --------------------------------------------------------------------------------- */

static void check_maps(napier_context *c, const grid *x, const grid *g, int kind, known *k) {
    const napier_softmax_options o = options_of(k->options.temperature, NAPIER_ALGORITHM_AUTO, NAPIER_MASKED_NAN);
    const napier_dtype dtype = x->view.dtype;
    grid whole = grid_plain(ROWS, COLS, dtype), parts = grid_plain(ROWS, COLS, dtype);
    grid back = grid_plain(ROWS, COLS, dtype), back_parts = grid_plain(ROWS, COLS, dtype);
    float dots[ROWS * 3 * TILES];
    for (int log = 0; log < 2; log++) {
        const napier_softmax_kind map = log ? NAPIER_KIND_LOG_SOFTMAX : NAPIER_KIND_SOFTMAX;
        works((log ? napier_log_softmax : napier_softmax), c, grid_input(x), whole.view, &o);
        works((log ? napier_log_softmax_backward : napier_softmax_backward), c, grid_input(&whole), grid_input(g),
              back.view, &o);
        for (int p = 0; p < PARTS; p++) {
            works(napier_shard_softmax, c, k->finals, map, columns(grid_input(x), written[p], written[p + 1]),
                  columns_out(parts.view, written[p], written[p + 1]), &o);
            const int64_t tile = owned[p] / 1024, count = (owned[p + 1] + 1023) / 1024 - tile;
            const napier_matrix own = {dots + 3 * tile, ROWS, 3 * count, 3 * TILES, 1, NAPIER_F32};
            const napier_const_matrix none = {NULL, 0, 0, 0, 0, NAPIER_F32};
            works(napier_shard_dots, c, log ? none : columns(grid_input(&whole), owned[p], owned[p + 1]),
                  columns(grid_input(g), owned[p], owned[p + 1]), own);
        }
        for (int p = 0; p < PARTS; p++) {
            works(napier_shard_softmax_backward, c, map, columns(grid_input(&whole), written[p], written[p + 1]),
                  columns(grid_input(g), written[p], written[p + 1]), napier_const_rows_f32(dots, ROWS, 3 * TILES),
                  columns_out(back_parts.view, written[p], written[p + 1]), &o);
        }
        expect(grid_differences(&parts, &whole, "softmax of shards") == 0, "kind %d, log %d", kind, log);
        expect(grid_differences(&back_parts, &back, "its gradient") == 0, "kind %d, log %d", kind, log);
    }
    const napier_const_vector grad = {g->view.data, ROWS, g->view.row_stride, dtype};
    works(napier_logsumexp_backward, c, grid_input(x), grad, back.view, &o);
    for (int p = 0; p < PARTS; p++) {
        works(napier_shard_logsumexp_backward, c, k->finals, columns(grid_input(x), written[p], written[p + 1]), grad,
              columns_out(back_parts.view, written[p], written[p + 1]), &o);
    }
    expect(grid_differences(&back_parts, &back, "the gradient of logsumexp") == 0, "kind %d", kind);
    grid_free(&whole);
    grid_free(&parts);
    grid_free(&back);
    grid_free(&back_parts);
}

/* ---- Tokens ---------------------------------------------------------------------------------------------------------- */

static napier_token_results results_in(float made[4][ROWS]) {
    napier_token_results r = NAPIER_TOKEN_RESULTS_INIT;
    r.logprobs = napier_rows_f32(made[0], ROWS, 1);
    r.lse = napier_array_f32(made[1], ROWS);
    r.entropy = napier_array_f32(made[2], ROWS);
    r.loss = napier_array_f32(made[3], ROWS);
    return r;
}

static napier_token_gradients gradients(void) {
    static const float values[ROWS] = {0.5F, -1.25F, 3.0F};
    napier_token_gradients g = NAPIER_TOKEN_GRADIENTS_INIT;
    g.logprobs = napier_const_rows_f32(values, ROWS, 1);
    g.lse = g.entropy = g.loss = napier_const_array_f32(values, ROWS);
    return g;
}

static void check_tokens(napier_context *c, const grid *x, int kind, const known *k) {
    float whole[4][ROWS], mine[4][ROWS];
    const napier_token_results to_whole = results_in(whole), to_mine = results_in(mine);
    const napier_token_gradients g = gradients();
    grid back = grid_plain(ROWS, COLS, x->view.dtype), parts = grid_plain(ROWS, COLS, x->view.dtype);
    works(napier_token_logprobs, c, grid_input(x), k->ids, &k->options, &to_whole);
    works(napier_shard_token_results, c, ROWS, k->finals, k->chosen, COLS, k->ids, &k->options, &to_mine);
    same(whole, mine, sizeof whole, "the results of tokens", kind);
    works(napier_token_logprobs_backward, c, grid_input(x), k->ids, &k->options, &g, back.view);
    for (int p = 0; p < PARTS; p++) {
        works(napier_shard_token_backward, c, k->finals, k->chosen, columns(grid_input(x), written[p], written[p + 1]),
              written[p], COLS, k->ids, &k->options, &g, columns_out(parts.view, written[p], written[p + 1]));
    }
    expect(grid_differences(&parts, &back, "the gradient of tokens") == 0, "kind %d", kind);
    grid_free(&back);
    grid_free(&parts);
}

static void check_linear(napier_context *c, napier_dtype dtype, int kind, known *k) {
    grid hidden = grid_plain(ROWS, HIDDEN, dtype), weights = grid_plain(COLS, HIDDEN, dtype);
    grid back = grid_plain(ROWS, HIDDEN, NAPIER_F32), to_weights = grid_plain(COLS, HIDDEN, dtype);
    grid sums = grid_plain(ROWS, HIDDEN, NAPIER_F32), mine = grid_plain(COLS, HIDDEN, dtype);
    float tiles[ROWS * TILES * 5], whole[4][ROWS], made[4][ROWS];
    const napier_token_results to_whole = results_in(whole), to_made = results_in(made);
    const napier_token_gradients g = gradients();
    const napier_const_matrix w = grid_input(&weights);
    grid_fill(&hidden, ROW_NORMAL, 7);
    grid_fill(&weights, ROW_NORMAL, 8);
    tiles_of(c, grid_input(&hidden), &w, NAPIER_SHARD_TOTAL, tiles, k);
    works(napier_shard_finish_tiles, c, napier_const_rows_f32(tiles, ROWS, TILES * 5), NAPIER_SHARD_TOTAL, k->finals);
    works(napier_linear_token_logprobs, c, grid_input(&hidden), w, k->ids, &k->options, &to_whole);
    works(napier_shard_token_results, c, ROWS, k->finals, k->chosen, COLS, k->ids, &k->options, &to_made);
    same(whole, made, sizeof whole, "the head's results", kind);
    works(napier_linear_token_logprobs_backward, c, grid_input(&hidden), w, k->ids, &k->options, &g, back.view,
          to_weights.view);
    for (int p = 0; p < PARTS; p++) {
        napier_matrix some = mine.view;
        some.data = (char *)some.data + written[p] * some.row_stride * (int64_t)napier_dtype_size(dtype);
        some.rows = written[p + 1] - written[p];
        works(napier_shard_linear_backward, c, k->finals, k->chosen, grid_input(&hidden),
              some_rows(w, written[p], written[p + 1]), written[p], COLS, k->ids, &k->options, &g, p > 0, sums.view,
              some);
    }
    expect(grid_differences(&sums, &back, "grad_hidden") == 0, "dtype %d", (int)dtype);
    expect(grid_differences(&mine, &to_weights, "grad_weights") == 0, "dtype %d", (int)dtype);
    grid *const all[] = {&hidden, &weights, &back, &to_weights, &sums, &mine};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        grid_free(all[i]);
    }
}

static void test_bits(void) {
    napier_isa isas[ISA_LIMIT];
    const int count = available_isas(isas);
    for (int i = 0; i < count; i++) {
        napier_context *const c = context_for_test(isas[i], i % 2 ? 3 : 1);
        for (int kind = 0; kind < ROW_KINDS; kind++) {
            const napier_dtype dtype = kind % 3 == 0 ? NAPIER_F32 : kind % 3 == 1 ? NAPIER_BF16 : NAPIER_F16;
            float tiles[ROWS * TILES * 5];
            grid x = grid_plain(ROWS, COLS, dtype), g = grid_plain(ROWS, COLS, dtype);
            known k = {.options = NAPIER_TOKEN_OPTIONS_INIT};
            grid_fill(&x, (row_kind)kind, 1);
            grid_fill(&g, ROW_NORMAL, 2);
            k.options.temperature = kind % 2 ? 0.75 : 1.0;
            tiles_of(c, grid_input(&x), NULL, NAPIER_SHARD_LSE, tiles, &k);
            finish_by_sums(c, tiles, &k);
            check_maps(c, &x, &g, kind, &k);
            k.options.label_smoothing = 0.1;
            k.options.softcap = kind % 2 ? 20.0 : 0.0;
            tiles_of(c, grid_input(&x), NULL, NAPIER_SHARD_TOTAL, tiles, &k);
            works(napier_shard_finish_tiles, c, napier_const_rows_f32(tiles, ROWS, TILES * 5), NAPIER_SHARD_TOTAL,
                  k.finals);
            check_tokens(c, &x, kind, &k);
            if (kind < 3) {
                check_linear(c, dtype, kind, &k);
            }
            grid_free(&x);
            grid_free(&g);
        }
    }
}

/* ---- Refusals, and records that are not what they should be ------------------------------------------------------------- */

static void test_refusals(void) {
    napier_context *const c = context_for_test(NAPIER_ISA_AUTO, 1);
    static float x[2 * 2048], tiles[2 * 2 * 5], chosen[2];
    int64_t finals[2 * NAPIER_SHARD_FINAL_WORDS], sums[2 * NAPIER_SHARD_SUM_WORDS];
    const int64_t wrong[2] = {0, 2048};
    const napier_indices none = napier_indices_i64(NULL, 0), ids = napier_indices_i64(wrong, 2);
    const napier_const_matrix m = napier_const_rows_f32(x, 2, 2048), part = napier_const_rows_f32(x, 2, 1500);
    const napier_matrix to = napier_rows_f32(tiles, 2, 6);
    napier_token_options keep = NAPIER_TOKEN_OPTIONS_INIT;
    const uint8_t kept[2048] = {1};
    napier_token_results r = NAPIER_TOKEN_RESULTS_INIT;
    int64_t argmax[2];
    keep.keep = kept;
    r.argmax = argmax;
    invalid(c, napier_shard_tiles(c, m, 100, 4096, none, NULL, NAPIER_SHARD_LSE, to, NULL), "first", "100", "1024");
    invalid(c, napier_shard_tiles(c, m, 1024, 2048, none, NULL, NAPIER_SHARD_LSE, to, NULL), "first", "vocabulary");
    invalid(c, napier_shard_tiles(c, m, -1024, 2048, none, NULL, NAPIER_SHARD_LSE, to, NULL), "first");
    invalid(c, napier_shard_tiles(c, part, 0, 2048, none, NULL, NAPIER_SHARD_LSE, to, NULL), "inside a tile");
    invalid(c, napier_shard_tiles(c, m, 0, 2048, none, NULL, (napier_shard_values)2, to, NULL), "values", "2");
    invalid(c, napier_shard_tiles(c, m, 0, 2048, none, NULL, NAPIER_SHARD_ENTROPY, to, NULL), "tiles");
    invalid(c, napier_shard_tiles(c, m, 0, 2048, ids, NULL, NAPIER_SHARD_LSE, to, NULL), "chosen");
    invalid(c, napier_shard_tiles(c, m, 0, 2048, ids, NULL, NAPIER_SHARD_LSE, to, chosen), "ids[1]", "2048");
    invalid(c, napier_shard_tiles(c, m, 0, 2048, none, &keep, NAPIER_SHARD_LSE, to, NULL), "keep");
    keep.keep = NULL;
    keep.split = 1;
    invalid(c, napier_shard_tiles(c, m, 0, 2048, none, &keep, NAPIER_SHARD_LSE, to, NULL), "split");
    invalid(c, napier_shard_tiles(c, m, 0, -1, none, NULL, NAPIER_SHARD_LSE, to, NULL), "vocabulary");
    invalid(c, napier_shard_sums(c, napier_const_rows_f32(tiles, 2, 5), NAPIER_SHARD_LSE, sums), "tiles", "5", "3");
    invalid(c, napier_shard_sums(c, napier_const_rows_f32(tiles, 2, 6), NAPIER_SHARD_LSE, NULL), "sums");
    invalid(c, napier_shard_finish_sums(c, sums, -1, 2, finals), "parts");
    invalid(c, napier_shard_finish_sums(c, sums, INT64_MAX / 2, 4, finals), "parts");
    invalid(c, napier_shard_softmax(c, NULL, NAPIER_KIND_SOFTMAX, m, napier_rows_f32(x, 2, 2048), NULL), "finals");
    invalid(c, napier_shard_softmax(c, finals, (napier_softmax_kind)5, m, napier_rows_f32(x, 2, 2048), NULL), "kind");
    invalid(c, napier_shard_token_results(c, 2, finals, chosen, 2048, none, NULL, &r), "argmax");
}

/* The check of a linear backward call whose parts look at some rows each. */
static void test_check_of_linear_backward(void) {
    napier_context *const c = context_for_test(NAPIER_ISA_AUTO, 1);
    enum { N = 3, H = 4, V = 5 };
    uint16_t h[2 * N * H], w[V * H];
    float rows[N], wide[N * H];
    int64_t id[N] = {0, V - 1, 2};
    memset(h, 0, sizeof h);
    memset(w, 0, sizeof w);
    memset(rows, 0, sizeof rows);
    const napier_const_matrix hidden = {h, N, H, 2 * H, 1, NAPIER_BF16}, head = napier_const_rows(w, V, H, NAPIER_BF16);
    const napier_indices ids = napier_indices_i64(id, N);
    const napier_matrix none = {NULL, 0, 0, 0, 0, NAPIER_F32};
    napier_matrix out = {h + H, N, H, 2 * H, 1, NAPIER_BF16}; /* beside hidden, in the rows of one array */
    napier_token_gradients g = NAPIER_TOKEN_GRADIENTS_INIT;
    napier_token_options o = NAPIER_TOKEN_OPTIONS_INIT;
    g.logprobs = napier_const_rows_f32(rows, N, 1);
    works(napier_shard_linear_backward_check, c, hidden, head, V, ids, &o, &g, out, none);
    works(napier_shard_linear_backward_check, c, hidden, head, INT64_MAX, ids, NULL, &g, none, none);
    id[1] = V;
    invalid(c, napier_shard_linear_backward_check(c, hidden, head, V, ids, &o, &g, out, none), "ids[1]", "5");
    works(napier_shard_linear_backward_check, c, hidden, head, INT64_MAX, ids, &o, &g, out, none);
    out.data = h + 1;
    invalid(c, napier_shard_linear_backward_check(c, hidden, head, INT64_MAX, ids, &o, &g, out, none),
            "overlaps hidden");
    out = napier_rows(w, N, H, NAPIER_BF16);
    invalid(c, napier_shard_linear_backward_check(c, hidden, head, INT64_MAX, ids, &o, &g, out, none),
            "overlaps weights");
    invalid(c,
            napier_shard_linear_backward_check(c, hidden, head, INT64_MAX, ids, &o, &g, none,
                                               napier_rows(h, V, H, NAPIER_BF16)),
            "grad_weights", "overlaps hidden");
    out = napier_rows_f32(wide, N, H - 1);
    invalid(c, napier_shard_linear_backward_check(c, hidden, head, INT64_MAX, ids, &o, &g, out, none), "grad_hidden",
            "3 x 3");
    out = napier_rows_f32(wide, N, H);
    g.logprobs = napier_const_rows_f32(rows, 1, 1);
    invalid(c, napier_shard_linear_backward_check(c, hidden, head, INT64_MAX, ids, &o, &g, out, none),
            "gradients: logprobs", "1 x 1");
    g.logprobs = napier_const_rows_f32(rows, N, 1);
    o.split = 1;
    invalid(c, napier_shard_linear_backward_check(c, hidden, head, INT64_MAX, ids, &o, &g, out, none), "split");
    o.split = 0;
    o.bf16_gradient = 1;
    invalid(c, napier_shard_linear_backward_check(c, hidden, head, INT64_MAX, ids, &o, &g, out, none), "bf16");
    invalid(c, napier_shard_linear_backward_check(c, hidden, head, INT64_MAX, ids, NULL, NULL, out, none), "gradients");
    invalid(c, napier_shard_linear_backward_check(c, hidden, head, V - 1, ids, NULL, &g, out, none), "vocabulary");
}

/* Any bytes are safe as records. */
static void test_hostile_records(void) {
    napier_context *const c = context_for_test(NAPIER_ISA_AUTO, 1);
    static float x[2048], y[2048];
    uint64_t state = 1;
    for (int round = 0; round < 2000; round++) {
        int64_t sums[2 * NAPIER_SHARD_SUM_WORDS], finals[NAPIER_SHARD_FINAL_WORDS];
        float tiles[15];
        for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) {
            state = state * UINT64_C(6364136223846793005) + 1442695040888963407U;
            sums[i] = (int64_t)(state ^ state >> 29);
        }
        memcpy(tiles, sums, sizeof tiles);
        works(napier_shard_finish_tiles, c, napier_const_rows_f32(tiles, 1, 15), NAPIER_SHARD_TOTAL, finals);
        works(napier_shard_sums, c, napier_const_rows_f32(tiles, 1, 15), NAPIER_SHARD_LSE, sums);
        works(napier_shard_finish_sums, c, sums, 2, 1, finals);
        if (round % 2) {
            memcpy(finals, sums + 3, sizeof finals);
        }
        works(napier_shard_softmax, c, finals, NAPIER_KIND_SOFTMAX, napier_const_rows_f32(x, 1, 2048),
              napier_rows_f32(y, 1, 2048), NULL);
    }
}

int main(void) {
    return RUN_TESTS("shards", TEST(test_bits), TEST(test_refusals), TEST(test_check_of_linear_backward),
                     TEST(test_hostile_records));
}
