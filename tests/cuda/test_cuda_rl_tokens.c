/* tests/cuda/test_cuda_rl_tokens.c - token_logprobs, its gradient and the KL over the vocabulary on a device against the CPU,
 * bit for bit: rows of every kind, widths around tiles, rows that do not lie on 16 bytes, all rules and results; ids at
 * fault. */
#include "rl_support.h"

enum { MOST_COLS = 40100, MOST_ROWS = 275, MOST_IDS = 3, TOP = 7 };

/* Rows of the kinds `kind`, `kind` + 1, ..; element stride, and `gap` more elements from row to row. */
static napier_matrix make_rows(int64_t rows, int64_t cols, int kind, napier_dtype dtype, int64_t stride, int64_t gap) {
    static double wide[MOST_COLS];
    const int64_t row_stride = cols * stride + gap;
    napier_matrix m = as_rows_out(vector_new(rows * row_stride, dtype, 1), rows, cols, row_stride);
    m.col_stride = cols > 1 ? stride : 1;
    for (int64_t i = 0; i < rows; i++) {
        row_fill((row_kind)((kind + i) % ROW_KINDS), (uint64_t)(i + 3 * kind + cols), dtype, wide, cols);
        for (int64_t j = 0; j < cols; j++) {
            element_set(m.data, dtype, i * row_stride + j * stride, wide[j]);
        }
    }
    return m;
}

static napier_indices make_ids(int64_t rows, int64_t per_row, int64_t cols) {
    static int64_t ids[MOST_ROWS * MOST_IDS];
    rng r = rng_make((uint64_t)(rows + cols));
    for (int64_t i = 0; i < rows * per_row; i++) {
        ids[i] = i % 9 == 4 ? -100 : i % 5 == 3 && per_row > 1 ? ids[i - 1] : rng_below(&r, cols);
    }
    return indices_of(ids, rows * per_row, cols % 2 ? NAPIER_I32 : NAPIER_I64);
}

enum { WANT_LSE, WANT_ENTROPY, WANT_ALL };

static napier_token_results make_results(int64_t rows, int64_t per_row, int64_t top_k, int want) {
    napier_token_results r = NAPIER_TOKEN_RESULTS_INIT;
    r.lse = vector_new(rows, NAPIER_F32, 2);
    if (per_row > 0) {
        r.logprobs = as_rows_out(vector_new(rows * per_row, dtypes[want], 1), rows, per_row, per_row);
    }
    if (want >= WANT_ENTROPY) {
        r.entropy = vector_new(rows, NAPIER_F32, 1);
        r.argmax = array_new((size_t)rows * 8);
    }
    if (want == WANT_ALL) {
        r.top_k = top_k;
        r.top_ids = array_new((size_t)(rows * top_k) * 8);
        r.top_logprobs = as_rows_out(vector_new(rows * top_k, NAPIER_F32, 1), rows, top_k, top_k);
        r.loss = per_row == 1 ? vector_new(rows, NAPIER_BF16, 1) : r.loss;
        r.rank = per_row > 0 ? array_new((size_t)(rows * per_row) * 8) : NULL;
    }
    return r;
}

static void check_tokens(napier_matrix x, int64_t per_row, int want, const napier_token_options *o) {
    const napier_indices ids = make_ids(x.rows, per_row, x.cols);
    const napier_token_results results = make_results(x.rows, per_row, x.cols < TOP ? x.cols : TOP, want);
    both_case("%d x %d, dtype %d, K %d, want %d, T %g, cap %g%s", (int)x.rows, (int)x.cols, (int)x.dtype, (int)per_row,
              want, o->temperature, o->softcap, o->keep ? ", keep" : "");
    SAME(token_logprobs, napier_read_only(x), ids, o, &results);
    arrays_free();
}

static void test_rows(void) {
    static const int64_t cols[] = {1, 2, 31, 300, 1023, 1024, 1025, 2050, 5000};
    const napier_token_options o = NAPIER_TOKEN_OPTIONS_INIT;
    for (int i = 0; i < 9; i++) {
        for (int d = 0; d < 3; d++) {
            for (int want = WANT_LSE; want <= WANT_ALL; want++) {
                device_order((uint64_t)(i + d));
                const napier_matrix x = make_rows(cols[i] > 2000 ? 10 : 20, cols[i], i + 4 * d, dtypes[d], 1,
                                                  want == WANT_ENTROPY ? 0 : 3 * d);
                check_tokens(x, want == WANT_LSE ? 1 : (i + d) % 3, want, &o);
            }
        }
    }
}

/* More tiles than a warp has threads. */
static void test_long_rows(void) {
    static const row_kind kinds[3] = {ROW_NORMAL, ROW_TIES, ROW_ONE_LEFT};
    for (int i = 0; i < 3; i++) {
        napier_token_options o = NAPIER_TOKEN_OPTIONS_INIT;
        o.label_smoothing = i == 1 ? 0.1 : 0.0;
        device_order((uint64_t)i + 2);
        check_tokens(make_rows(2, 40001 - 960 * i, (int)kinds[i], dtypes[i], 1, i), 1, i == 0 ? WANT_ENTROPY : WANT_ALL,
                     &o);
    }
}

/* 16-bit numbers of every exponent up to 64 in magnitude, in each row below another of them. */
static napier_matrix make_table_rows(int64_t rows, int64_t cols, napier_dtype dtype) {
    const uint32_t end = dtype == NAPIER_BF16 ? 0x4281 : 0x5401;
    uint16_t *const bits = array_new((size_t)(rows * cols) * 2);
    rng r = rng_make(5);
    for (int64_t i = 0; i < rows; i++) {
        const uint32_t below = i % 3 == 0 ? end : 1 + (uint32_t)rng_below(&r, end - 1);
        for (int64_t j = 0; j < cols; j++) {
            bits[i * cols + j] = (uint16_t)(rng_below(&r, below) | (rng_below(&r, 2) << 15));
        }
    }
    return napier_rows(bits, rows, cols, dtype);
}

/* So many tiles that the device makes a table of exp. */
static void test_table(void) {
    const napier_token_options o = NAPIER_TOKEN_OPTIONS_INIT;
    for (int d = 1; d < 3; d++) {
        for (int want = WANT_LSE; want <= WANT_ENTROPY; want++) {
            device_order((uint64_t)(d + want));
            check_tokens(make_table_rows(MOST_ROWS, 4096, dtypes[d]), 1, want, &o);
            check_tokens(make_rows(MOST_ROWS, 3080, ROW_KINDS, dtypes[d], 1, d), 1, want, &o);
        }
        check_tokens(make_rows(MOST_ROWS, 3079, ROW_KINDS, dtypes[d], 1, d), 1, WANT_LSE, &o);
    }
}

/* Rule 0: none; 1: a temperature; 2: a cap; 3: smoothing and kept tokens of each row; 4: all, and of all rows. */
static napier_token_options rule_of(int rule, int64_t rows, int64_t cols) {
    napier_token_options o = NAPIER_TOKEN_OPTIONS_INIT;
    o.temperature = rule == 1 || rule == 4 ? 0.7 : 1.0;
    o.softcap = rule == 2 || rule == 4 ? 30.0 : 0.0;
    if (rule >= 3) {
        uint8_t *const keep = array_new((size_t)(rows * cols));
        rng r = rng_make(77);
        for (int64_t i = 0; i < rows * cols; i++) {
            keep[i] = i / cols == 2 ? 0 : (uint8_t)(rng_below(&r, 4) > 0 ? 1 + i % 200 : 0);
        }
        o.keep = keep;
        o.keep_stride = rule == 3 ? cols : 0;
    }
    return o;
}

static void test_rules(void) {
    static const int64_t cols[] = {5, 1030, 2048};
    for (int i = 0; i < 3; i++) {
        for (int d = 0; d < 3; d++) {
            for (int rule = 0; rule < 5; rule++) {
                napier_token_options o = rule_of(rule, 8, cols[i]);
                o.label_smoothing = rule >= 3 ? 0.1 : 0.0;
                o.z_loss = rule == 4 ? 1e-3 : 0.0;
                device_order((uint64_t)rule);
                check_tokens(make_rows(8, cols[i], 3 * rule + d, dtypes[d], 1 + (rule == 1), d), 1 + rule % 2,
                             rule == 1 ? WANT_ENTROPY : WANT_ALL, &o);
            }
        }
    }
}

/* ---- Gradient -------------------------------------------------------------------------------------------------------- */

/* which: bits of logprobs, lse, entropy, loss. */
static void check_gradient(napier_matrix x, int64_t per_row, int which, const napier_token_options *o, napier_dtype out,
                           bool in_place) {
    static float values[MOST_ROWS * MOST_IDS];
    rng r = rng_make((uint64_t)(which + 10 * x.cols));
    napier_const_vector v[4];
    for (int i = 0; i < 4; i++) {
        const int64_t n = i == 0 ? x.rows * per_row : x.rows;
        for (int64_t j = 0; j < n; j++) {
            values[j] = j % 7 == 5 || j / (i ? 1 : per_row + !per_row) == 2 ? 0.0f : (float)rng_normal(&r);
        }
        v[i] = vector_of(values, n, i == 1 ? NAPIER_BF16 : NAPIER_F32, 1);
    }
    napier_token_gradients of = NAPIER_TOKEN_GRADIENTS_INIT;
    of.logprobs = which & 1 && per_row > 0 ? as_rows(v[0], x.rows, per_row, per_row) : of.logprobs;
    of.lse = which & 2 ? v[1] : of.lse;
    of.entropy = which & 4 ? v[2] : of.entropy;
    of.loss = which & 8 && per_row == 1 ? v[3] : of.loss;
    const napier_indices ids = make_ids(x.rows, per_row, x.cols);
    const napier_matrix y =
        in_place ? x : as_rows_out(vector_new(x.rows * (x.cols + 1), out, 1), x.rows, x.cols, x.cols + 1);
    both_case("gradient %d x %d, dtype %d to %d, K %d, of %d, T %g, cap %g%s", (int)x.rows, (int)x.cols, (int)x.dtype,
              (int)out, (int)per_row, which, o->temperature, o->softcap, o->keep ? ", keep" : "");
    SAME(token_logprobs_backward, napier_read_only(x), ids, o, &of, y);
    arrays_free();
}

static void test_gradients(void) {
    static const int64_t cols[] = {1, 40, 1024, 1025, 5000};
    for (int i = 0; i < 5; i++) {
        for (int d = 0; d < 3; d++) {
            for (int which = 1; which < 16; which += 1 + (i == 4)) {
                napier_token_options o = NAPIER_TOKEN_OPTIONS_INIT;
                o.label_smoothing = which >= 8 ? 0.1 : 0.0;
                device_order((uint64_t)which);
                check_gradient(make_rows(6, cols[i], which + 7 * d, dtypes[d], 1, which % 4 == 1 ? 1 : 0),
                               which % 3 + (which == 9), which, &o, dtypes[(d + which) % 3], which % 5 == 2);
            }
        }
    }
}

static void test_gradient_rules(void) {
    for (int d = 0; d < 3; d++) {
        for (int rule = 1; rule < 6; rule++) {
            napier_token_options o = rule_of(rule, 6, 1100);
            o.z_loss = 1e-3;
            device_order((uint64_t)rule);
            check_gradient(make_rows(6, 1100, 2 * rule + d, dtypes[d], 1 + (rule == 1), d), 1 + rule % 3, 15, &o,
                           dtypes[d], rule % 2);
        }
    }
}

/* A row of many tiles: over the blocks of a cluster; in place. */
static void test_gradient_clusters(void) {
    static float x[2 * 75001];
    const napier_token_options o = NAPIER_TOKEN_OPTIONS_INIT;
    rng r = rng_make(5);
    for (int i = 0; i < 2 * 75001; i++) {
        x[i] = (float)(3.0 * rng_normal(&r));
    }
    for (int in_place = 0; in_place < 2; in_place++) {
        const napier_dtype dtype = in_place ? NAPIER_BF16 : NAPIER_F32;
        const napier_const_vector v = vector_of(x, 2 * 75001, dtype, 1);
        const napier_matrix rows = {(void *)(uintptr_t)v.data, 2, 75001, 75001, 1, dtype};
        device_order((uint64_t)in_place + 2);
        check_gradient(rows, 1, 5, &o, NAPIER_BF16, in_place);
    }
}

/* ---- KL over the vocabulary ------------------------------------------------------------------------------------------- */

static void check_kl_full(int64_t rows, int64_t cols, int kind, napier_dtype p_dtype, napier_dtype q_dtype,
                          double temperature, bool in_place) {
    static float gradients[MOST_ROWS];
    const napier_matrix p = make_rows(rows, cols, kind, p_dtype, 1, 1);
    const napier_matrix q = make_rows(rows, cols, kind % 3 ? 0 : kind, q_dtype, 1, 2);
    rng r = rng_make((uint64_t)kind);
    for (int64_t i = 0; i < rows; i++) {
        gradients[i] = i % 4 == 3 ? 0.0f : (float)rng_normal(&r);
    }
    const napier_const_vector g = vector_of(gradients, rows, NAPIER_F32, 1);
    const napier_vector kl = vector_new(rows, NAPIER_F32, 2);
    const napier_matrix gp = in_place ? p : as_rows_out(vector_new(rows * cols, NAPIER_F32, 1), rows, cols, cols);
    const napier_matrix gq = as_rows_out(vector_new(rows * cols, NAPIER_BF16, 1), rows, cols, cols);
    napier_softmax_options o = NAPIER_SOFTMAX_OPTIONS_INIT;
    o.temperature = temperature;
    both_case("kl_full %d x %d, kind %d, dtypes %d %d, T %g", (int)rows, (int)cols, kind, (int)p_dtype, (int)q_dtype,
              temperature);
    SAME(kl_full, napier_read_only(p), napier_read_only(q), &o, kl);
    SAME(kl_full_backward, napier_read_only(p), napier_read_only(q), &o, g, gp, gq);
    arrays_free();
}

static void test_kl_full(void) {
    static const int64_t cols[] = {1, 33, 1024, 2500};
    for (int i = 0; i < 4; i++) {
        for (int kind = 0; kind < ROW_KINDS; kind += 1 + (i > 1) * 4) {
            device_order((uint64_t)kind);
            check_kl_full(5, cols[i], kind, dtypes[kind % 3], dtypes[(kind + i) % 3], kind % 2 ? 0.7 : 1.0, kind % 2);
        }
    }
}

static void test_bad_ids(void) {
    const napier_const_matrix x = napier_read_only(make_rows(4, 10, ROW_NORMAL, NAPIER_F32, 1, 0));
    const int64_t wrong[4] = {3, -100, 10, INT64_MIN};
    const napier_indices ids = indices_of(wrong, 4, NAPIER_I64);
    napier_token_results r = NAPIER_TOKEN_RESULTS_INIT;
    r.logprobs = as_rows_out(vector_new(4, NAPIER_F32, 1), 4, 1, 1);
    r.rank = array_new(32);
    const float *const got = r.logprobs.data;
    both_case("wrong ids");
    bad(through_token_logprobs(cpu, x, ids, NULL, &r), "ids: the id at index 2 is no column");
    assert_true(got[0] < 0.0f && got[1] == 0.0f);
    all_nan(got + 2, NAPIER_F32, 2);
    assert_true(r.rank[0] >= 0 && r.rank[1] == -1 && r.rank[2] == -1 && r.rank[3] == -1);
    bad(through_token_logprobs(cpu, x, ids, NULL, NULL), "results: NULL");
    napier_token_options o = NAPIER_TOKEN_OPTIONS_INIT;
    o.temperature = 0;
    bad(through_token_logprobs(cpu, x, ids, &o, &r), "temperature");
}

int main(void) {
    return BOTH_TESTS("cuda_rl_tokens", TEST(test_rows), TEST(test_long_rows), TEST(test_table), TEST(test_rules),
                      TEST(test_gradients), TEST(test_gradient_rules), TEST(test_gradient_clusters), TEST(test_kl_full),
                      TEST(test_bad_ids));
}
