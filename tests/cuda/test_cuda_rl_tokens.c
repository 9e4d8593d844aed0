/* tests/cuda/test_cuda_rl_tokens.c - token_logprobs and its gradient on a device against the CPU, bit for bit: rows of every kind,
 * widths around tiles, rows that do not lie on 16 bytes, all rules and results; ids at fault. */
#include <math.h>

#include "rl_support.h"

enum { MOST_COLS = 40100, MOST_ROWS = 24, MOST_IDS = 3, TOP = 7 };

static const napier_dtype dtypes[3] = {NAPIER_F32, NAPIER_BF16, NAPIER_F16};

typedef struct grid {
    line x;
    int64_t rows, cols, row_stride;
} grid;

/* Rows of the kinds `kind`, `kind` + 1, ..; element stride, and `gap` more elements from row to row. */
static grid make_grid(int64_t rows, int64_t cols, int kind, napier_dtype dtype, int64_t stride, int64_t gap) {
    static double wide[MOST_COLS];
    const grid g = {.rows = rows, .cols = cols, .row_stride = cols * stride + gap};
    const int64_t size = rows * g.row_stride;
    float *const x = calloc((size_t)size + 1, sizeof *x);
    for (int64_t i = 0; i < rows; i++) {
        row_fill((row_kind)((kind + i) % ROW_KINDS), (uint64_t)(i + 3 * kind + cols), dtype, wide, cols);
        for (int64_t j = 0; j < cols; j++) {
            x[i * g.row_stride + j * stride] = (float)wide[j];
        }
    }
    grid made = g;
    made.x = line_in(x, size, dtype, 1);
    free(x);
    return made;
}
static napier_const_matrix grid_view(const grid *g, bool device) {
    const int64_t stride = g->cols > 0 && g->row_stride >= 2 * g->cols && g->cols > 1 ? 2 : 1;
    return (napier_const_matrix){
        device ? g->x.p.there : g->x.p.here, g->rows, g->cols, g->row_stride, stride, g->x.dtype};
}

static integers make_ids(int64_t rows, int64_t per_row, int64_t cols) {
    static int64_t ids[MOST_ROWS * MOST_IDS];
    rng r = rng_make((uint64_t)(rows + cols));
    for (int64_t i = 0; i < rows * per_row; i++) {
        ids[i] = i % 9 == 4 ? -100 : i % 5 == 3 && per_row > 1 ? ids[i - 1] : rng_below(&r, cols);
    }
    return integers_in(ids, rows * per_row, cols % 2 ? NAPIER_I32 : NAPIER_I64);
}

typedef struct outcome {
    line logprobs, lse, entropy, loss, top;
    pair argmax, rank, top_ids;
} outcome;

enum { WANT_LSE, WANT_ENTROPY, WANT_ALL };

static napier_token_results results_of(const outcome *o, int64_t rows, int64_t per_row, int64_t top_k, int want,
                                       bool device) {
    napier_token_results r = NAPIER_TOKEN_RESULTS_INIT;
    r.lse = device ? there_out(o->lse) : here_out(o->lse);
    if (per_row > 0) {
        r.logprobs = device ? rows_there_out(o->logprobs, rows, per_row, per_row)
                            : rows_here_out(o->logprobs, rows, per_row, per_row);
    }
    if (want >= WANT_ENTROPY) {
        r.entropy = device ? there_out(o->entropy) : here_out(o->entropy);
        r.argmax = device ? o->argmax.there : o->argmax.here;
    }
    if (want == WANT_ALL) {
        r.top_k = top_k;
        r.top_ids = device ? o->top_ids.there : o->top_ids.here;
        r.top_logprobs =
            device ? rows_there_out(o->top, rows, top_k, top_k) : rows_here_out(o->top, rows, top_k, top_k);
        if (per_row == 1) {
            r.loss = device ? there_out(o->loss) : here_out(o->loss);
        }
        if (per_row > 0) {
            r.rank = device ? o->rank.there : o->rank.here;
        }
    }
    return r;
}

static void check_tokens(const grid *g, int64_t per_row, int want, napier_token_options *o, const pair *keep) {
    char what[120];
    snprintf(what, sizeof what, "%d x %d, dtype %d, K %d, want %d, T %g, cap %g%s", (int)g->rows, (int)g->cols,
             (int)g->x.dtype, (int)per_row, want, o->temperature, o->softcap, keep ? ", keep" : "");
    const int64_t top = g->cols < TOP ? g->cols : TOP;
    outcome all = {.logprobs = line_out(g->rows * per_row, dtypes[want], 1),
                   .lse = line_out(g->rows, NAPIER_F32, 2),
                   .entropy = line_out(g->rows, NAPIER_F32, 1),
                   .loss = line_out(g->rows, NAPIER_BF16, 1),
                   .top = line_out(g->rows * top, NAPIER_F32, 1),
                   .argmax = both_of(NULL, (size_t)g->rows * 8),
                   .rank = both_of(NULL, (size_t)(g->rows * per_row) * 8),
                   .top_ids = both_of(NULL, (size_t)(g->rows * top) * 8)};
    const integers ids = make_ids(g->rows, per_row, g->cols);
    const napier_token_results a = results_of(&all, g->rows, per_row, top, want, false);
    const napier_token_results b = results_of(&all, g->rows, per_row, top, want, true);
    o->keep = keep ? keep->here : NULL;
    cpu_ok(what, napier_token_logprobs(cpu, grid_view(g, false), indices_here(ids), o, &a));
    o->keep = keep ? keep->there : NULL;
    WITH_WORKSPACE(what, napier_cuda_token_logprobs(gpu, NULL, w, grid_view(g, true), indices_there(ids), o, &b));
    char part[160];
    const pair *const pairs_of[] = {&all.lse.p, &all.logprobs.p, &all.entropy.p, &all.argmax,
                                    &all.rank,  &all.loss.p,     &all.top_ids,   &all.top.p};
    static const char *const names[] = {"lse", "logprobs", "entropy", "argmax", "rank", "loss", "top_ids", "top"};
    for (int i = 0; i < 8; i++) {
        snprintf(part, sizeof part, "%s: %s", what, names[i]);
        same(part, pairs_of[i]);
    }
    both_forget();
}

static void test_rows(void **state) {
    (void)state;
    static const int64_t cols[] = {1, 2, 31, 300, 1023, 1024, 1025, 2050, 5000};
    for (int i = 0; i < 9; i++) {
        for (int d = 0; d < 3; d++) {
            for (int want = WANT_LSE; want <= WANT_ALL; want++) {
                napier_token_options o = NAPIER_TOKEN_OPTIONS_INIT;
                device_order((uint64_t)(i + d));
                const int64_t rows = cols[i] > 2000 ? 10 : 20;
                const grid g = make_grid(rows, cols[i], i + 4 * d, dtypes[d], 1, want == WANT_ENTROPY ? 0 : 3 * d);
                check_tokens(&g, want == WANT_LSE ? 1 : (i + d) % 3, want, &o, NULL);
            }
        }
    }
}

/* More tiles than a warp has threads. */
static void test_long_rows(void **state) {
    (void)state;
    static const row_kind kinds[3] = {ROW_NORMAL, ROW_TIES, ROW_ONE_LEFT};
    for (int i = 0; i < 3; i++) {
        napier_token_options o = NAPIER_TOKEN_OPTIONS_INIT;
        o.label_smoothing = i == 1 ? 0.1 : 0.0;
        device_order((uint64_t)i + 2);
        const grid g = make_grid(2, 40001 - 960 * i, (int)kinds[i], dtypes[i], 1, i);
        check_tokens(&g, 1, i == 0 ? WANT_ENTROPY : WANT_ALL, &o, NULL);
    }
}

static pair make_keep(uint32_t rows, uint32_t cols) {
    static uint8_t keep[MOST_ROWS * MOST_COLS];
    rng r = rng_make(77);
    for (uint32_t i = 0; i < rows * cols; i++) {
        keep[i] = i / cols == 2 ? 0 : (uint8_t)(rng_below(&r, 4) > 0 ? 1 + i % 200 : 0);
    }
    return both_of(keep, (size_t)rows * cols);
}

static void test_rules(void **state) {
    (void)state;
    static const int64_t cols[] = {5, 1030, 2048};
    for (int i = 0; i < 3; i++) {
        for (int d = 0; d < 3; d++) {
            for (int rule = 0; rule < 5; rule++) {
                napier_token_options o = NAPIER_TOKEN_OPTIONS_INIT;
                o.temperature = rule == 1 || rule == 4 ? 0.7 : 1.0;
                o.softcap = rule == 2 || rule == 4 ? 30.0 : 0.0;
                o.label_smoothing = rule >= 3 ? 0.1 : 0.0;
                o.z_loss = rule == 4 ? 1e-3 : 0.0;
                const grid g = make_grid(8, cols[i], 3 * rule + d, dtypes[d], 1 + (rule == 1), d);
                const pair keep = make_keep(8, (uint32_t)cols[i]);
                o.keep_stride = rule == 3 ? cols[i] : 0;
                device_order((uint64_t)rule);
                check_tokens(&g, 1 + rule % 2, rule == 1 ? WANT_ENTROPY : WANT_ALL, &o, rule >= 3 ? &keep : NULL);
            }
        }
    }
}

/* ---- Gradient -------------------------------------------------------------------------------------------------------- */

/* which: bits of logprobs, lse, entropy, loss. */
static void check_gradient(const grid *g, int64_t per_row, int which, napier_token_options *o, const pair *keep,
                           napier_dtype out, bool in_place) {
    static float values[MOST_ROWS * MOST_IDS];
    char what[120];
    snprintf(what, sizeof what, "gradient %d x %d, dtype %d to %d, K %d, of %d, T %g, cap %g%s", (int)g->rows,
             (int)g->cols, (int)g->x.dtype, (int)out, (int)per_row, which, o->temperature, o->softcap,
             keep ? ", keep" : "");
    rng r = rng_make((uint64_t)(which + 10 * g->cols));
    line v[4];
    for (int i = 0; i < 4; i++) {
        const int64_t n = i == 0 ? g->rows * per_row : g->rows;
        for (int64_t j = 0; j < n; j++) {
            values[j] = j % 7 == 5 || j / (i ? 1 : per_row + !per_row) == 2 ? 0.0f : (float)rng_normal(&r);
        }
        v[i] = line_in(values, n, i == 1 ? NAPIER_BF16 : NAPIER_F32, 1);
    }
    const integers ids = make_ids(g->rows, per_row, g->cols);
    const napier_const_matrix x[2] = {grid_view(g, false), grid_view(g, true)};
    const line dense = in_place ? g->x : line_out(g->rows * (g->cols + 1), out, 1);
    napier_matrix y[2];
    for (int device = 0; device < 2; device++) {
        const napier_matrix same_place = {
            device ? g->x.p.there : g->x.p.here, g->rows, g->cols, x[0].row_stride, x[0].col_stride, g->x.dtype};
        y[device] = in_place ? same_place
                    : device ? rows_there_out(dense, g->rows, g->cols, g->cols + 1)
                             : rows_here_out(dense, g->rows, g->cols, g->cols + 1);
        napier_token_gradients of = NAPIER_TOKEN_GRADIENTS_INIT;
        if (which & 1 && per_row > 0) {
            of.logprobs =
                device ? rows_there(v[0], g->rows, per_row, per_row) : rows_here(v[0], g->rows, per_row, per_row);
        }
        of.lse = which & 2 ? (device ? there(v[1]) : here(v[1])) : of.lse;
        of.entropy = which & 4 ? (device ? there(v[2]) : here(v[2])) : of.entropy;
        of.loss = which & 8 && per_row == 1 ? (device ? there(v[3]) : here(v[3])) : of.loss;
        o->keep = !keep ? NULL : device ? keep->there : keep->here;
        if (device) {
            WITH_WORKSPACE(what,
                           napier_cuda_token_logprobs_backward(gpu, NULL, w, x[1], indices_there(ids), o, &of, y[1]));
        } else {
            cpu_ok(what, napier_token_logprobs_backward(cpu, x[0], indices_here(ids), o, &of, y[0]));
        }
    }
    same(what, &dense.p);
    both_forget();
}

static void test_gradients(void **state) {
    (void)state;
    static const int64_t cols[] = {1, 40, 1024, 1025, 5000};
    for (int i = 0; i < 5; i++) {
        for (int d = 0; d < 3; d++) {
            for (int which = 1; which < 16; which += 1 + (i == 4)) {
                napier_token_options o = NAPIER_TOKEN_OPTIONS_INIT;
                o.label_smoothing = which >= 8 ? 0.1 : 0.0;
                device_order((uint64_t)which);
                const grid g = make_grid(6, cols[i], which + 7 * d, dtypes[d], 1, which % 4 == 1 ? 1 : 0);
                check_gradient(&g, which % 3 + (which == 9), which, &o, NULL, dtypes[(d + which) % 3], which % 5 == 2);
            }
        }
    }
}

static void test_gradient_rules(void **state) {
    (void)state;
    for (int d = 0; d < 3; d++) {
        for (int rule = 1; rule < 6; rule++) {
            napier_token_options o = NAPIER_TOKEN_OPTIONS_INIT;
            o.temperature = rule == 1 || rule == 4 ? 0.7 : 1.0;
            o.softcap = rule == 2 || rule == 4 ? 30.0 : 0.0;
            o.z_loss = 1e-3;
            const grid g = make_grid(6, 1100, 2 * rule + d, dtypes[d], 1 + (rule == 1), d);
            const pair keep = make_keep(6, 1100);
            o.keep_stride = rule == 3 ? 1100 : 0;
            device_order((uint64_t)rule);
            check_gradient(&g, 1 + rule % 3, 15, &o, rule >= 3 ? &keep : NULL, dtypes[d], rule % 2);
        }
    }
}

/* A row of many tiles: over the blocks of a cluster; in place. */
static void test_gradient_clusters(void **state) {
    (void)state;
    static float x[2 * 75001];
    rng r = rng_make(5);
    for (int i = 0; i < 2 * 75001; i++) {
        x[i] = (float)(3.0 * rng_normal(&r));
    }
    for (int in_place = 0; in_place < 2; in_place++) {
        const grid g = {line_in(x, 2 * 75001, in_place ? NAPIER_BF16 : NAPIER_F32, 1), 2, 75001, 75001};
        napier_token_options o = NAPIER_TOKEN_OPTIONS_INIT;
        device_order((uint64_t)in_place + 2);
        check_gradient(&g, 1, 5, &o, NULL, NAPIER_BF16, in_place);
    }
}

/* ---- KL over the vocabulary ------------------------------------------------------------------------------------------- */

static void check_kl_full(int64_t rows, int64_t cols, int kind, napier_dtype p_dtype, napier_dtype q_dtype,
                          double temperature, bool in_place) {
    static float gradients[MOST_ROWS];
    const grid p = make_grid(rows, cols, kind, p_dtype, 1, 1),
               q = make_grid(rows, cols, kind % 3 ? 0 : kind, q_dtype, 1, 2);
    rng r = rng_make((uint64_t)kind);
    for (int64_t i = 0; i < rows; i++) {
        gradients[i] = i % 4 == 3 ? 0.0f : (float)rng_normal(&r);
    }
    const line g = line_in(gradients, rows, NAPIER_F32, 1), kl = line_out(rows, NAPIER_F32, 2);
    const line gp = in_place ? p.x : line_out(rows * cols, NAPIER_F32, 1), gq = line_out(rows * cols, NAPIER_BF16, 1);
    napier_softmax_options o = NAPIER_SOFTMAX_OPTIONS_INIT;
    o.temperature = temperature;
    const int64_t step = in_place ? p.row_stride : cols;
    char what[100];
    snprintf(what, sizeof what, "kl_full %d x %d, kind %d, dtypes %d %d, T %g", (int)rows, (int)cols, kind,
             (int)p_dtype, (int)q_dtype, temperature);
    cpu_ok(what, napier_kl_full(cpu, grid_view(&p, false), grid_view(&q, false), &o, here_out(kl)));
    WITH_WORKSPACE(what,
                   napier_cuda_kl_full(gpu, NULL, w, grid_view(&p, true), grid_view(&q, true), &o, there_out(kl)));
    same(what, &kl.p);
    cpu_ok(what, napier_kl_full_backward(cpu, grid_view(&p, false), grid_view(&q, false), &o, here(g),
                                         rows_here_out(gp, rows, cols, step), rows_here_out(gq, rows, cols, cols)));
    WITH_WORKSPACE(what, napier_cuda_kl_full_backward(gpu, NULL, w, grid_view(&p, true), grid_view(&q, true), &o,
                                                      there(g), rows_there_out(gp, rows, cols, step),
                                                      rows_there_out(gq, rows, cols, cols)));
    same(what, &gp.p);
    same(what, &gq.p);
    both_forget();
}

static void test_kl_full(void **state) {
    (void)state;
    static const int64_t cols[] = {1, 33, 1024, 2500};
    for (int i = 0; i < 4; i++) {
        for (int kind = 0; kind < ROW_KINDS; kind += 1 + (i > 1) * 4) {
            device_order((uint64_t)kind);
            check_kl_full(5, cols[i], kind, dtypes[kind % 3], dtypes[(kind + i) % 3], kind % 2 ? 0.7 : 1.0, kind % 2);
        }
    }
}

static void refused(napier_status status, const char *text) {
    assert_int_equal(status, NAPIER_INVALID_ARGUMENT);
    if (!strstr(napier_cuda_last_error(gpu), text)) {
        fprintf(stderr, "said '%s', not '%s'\n", napier_cuda_last_error(gpu), text);
        fail();
    }
}

static void test_bad_ids(void **state) {
    (void)state;
    const grid g = make_grid(4, 10, ROW_NORMAL, NAPIER_F32, 1, 0);
    const int64_t bad[4] = {3, -100, 10, INT64_MIN};
    const integers ids = integers_in(bad, 4, NAPIER_I64);
    const line logprobs = line_out(4, NAPIER_F32, 1);
    const pair rank = both_of(NULL, 32);
    napier_token_results r = NAPIER_TOKEN_RESULTS_INIT;
    r.logprobs = rows_there_out(logprobs, 4, 1, 1);
    r.rank = rank.there;
    napier_cuda_workspace w = {both_of(NULL, 4096).there, 4096};
    gpu_ok("bad", napier_cuda_token_logprobs(gpu, NULL, &w, grid_view(&g, true), indices_there(ids), NULL, &r));
    refused(napier_cuda_synchronize(gpu, NULL), "ids: the id at index 2 is no column");
    float got[4];
    int64_t ranks[4];
    device_read(got, logprobs.p.there, sizeof got);
    device_read(ranks, rank.there, sizeof ranks);
    assert_true(got[0] < 0.0f && got[1] == 0.0f && got[2] != got[2] && got[3] != got[3]);
    assert_true(ranks[0] >= 0 && ranks[1] == -1 && ranks[2] == -1 && ranks[3] == -1);
    w.size = 16;
    refused(napier_cuda_token_logprobs(gpu, NULL, &w, grid_view(&g, true), indices_there(ids), NULL, &r),
            "workspace: size 16 is less than the 256 bytes needed");
    refused(napier_cuda_token_logprobs(gpu, NULL, &w, grid_view(&g, true), indices_there(ids), NULL, NULL),
            "results: NULL");
    napier_token_options o = NAPIER_TOKEN_OPTIONS_INIT;
    o.temperature = 0;
    refused(napier_cuda_token_logprobs(gpu, NULL, &w, grid_view(&g, true), indices_there(ids), &o, &r), "temperature");
    both_forget();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),           cmocka_unit_test(test_long_rows),
        cmocka_unit_test(test_rules),          cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_gradient_rules), cmocka_unit_test(test_gradient_clusters),
        cmocka_unit_test(test_kl_full),        cmocka_unit_test(test_bad_ids),
    };
    both_set_up();
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    both_tear_down();
    return failed;
}
