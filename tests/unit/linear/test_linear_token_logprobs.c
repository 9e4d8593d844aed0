/* Log-probabilities straight from hidden states: bit for bit what napier_matmul and napier_token_logprobs give one
 * after the other, whatever the shape, dtype, options, instruction set, threads and batch; gradients bit for bit
 * those of the chains that rl.h names, and close to float64; memory within what the query says; wrong
 * arguments. */
#include "support/check.h"

#include <math.h>
#include <napier/linear.h>
#include <napier/rl.h>
#include <string.h>

#include "support/formats.h"
#include "support/memory.h"
#include "support/scores.h"

static rng numbers;

static grid random_grid(layout l, int64_t rows, int64_t cols, napier_dtype dtype, double size) {
    grid g = grid_make(l, rows, cols, dtype);
    for (int64_t i = 0; i < rows * cols; i++) {
        grid_set(&g, i / cols, i % cols, size * (2.0 * rng_uniform(&numbers) - 1.0));
    }
    return g;
}

/* ---- A case ------------------------------------------------------------------------------------------------------ */

typedef struct linear_case {
    int64_t rows, hidden, vocabulary, per_row, top_k;
    napier_dtype hidden_dtype, weights_dtype;
    layout hidden_layout, weights_layout;
    napier_token_options options;
    grid x, w, logits;
    int64_t *ids;
} linear_case;

static void multiply(napier_context *context, const linear_case *c) {
    works((c->options.split ? napier_matmul_split : napier_matmul), context, grid_input(&c->x),
          napier_const_transposed(grid_input(&c->w)), c->logits.view);
}

static void case_make(linear_case *c) {
    c->x = random_grid(c->hidden_layout, c->rows, c->hidden, c->hidden_dtype, 3.0);
    c->w = random_grid(c->weights_layout, c->vocabulary, c->hidden, c->weights_dtype, 1.0);
    c->logits = grid_plain(c->rows, c->vocabulary, NAPIER_F32);
    c->ids = scratch(c->rows * c->per_row + 1, sizeof *c->ids);
    for (int64_t i = 0; i < c->rows * c->per_row; i++) {
        c->ids[i] = i % 11 == 7 ? c->options.ignore_index : rng_below(&numbers, c->vocabulary);
    }
    multiply(context_for_test(NAPIER_ISA_AUTO, 2), c);
}

static napier_indices case_ids(const linear_case *c) { return napier_indices_i64(c->ids, c->rows * c->per_row); }

static linear_case ordinary_case(int64_t rows, int64_t hidden, int64_t vocabulary) {
    const napier_token_options options = NAPIER_TOKEN_OPTIONS_INIT;
    return (linear_case){.rows = rows,
                         .hidden = hidden,
                         .vocabulary = vocabulary,
                         .per_row = 1,
                         .hidden_dtype = NAPIER_F32,
                         .weights_dtype = NAPIER_F32,
                         .options = options};
}

static scores scores_of(const linear_case *c) { return scores_make(c->rows, c->per_row, c->top_k); }

static bool by_logits(napier_context *context, const linear_case *c, scores *s) {
    return scores_fill(context, grid_input(&c->logits), c->ids, &c->options, s);
}
static bool by_hidden(napier_context *context, const linear_case *c, scores *s) {
    const napier_token_results r = scores_views(s);
    return works(napier_linear_token_logprobs, context, grid_input(&c->x), grid_input(&c->w), case_ids(c), &c->options,
                 &r);
}

static void check_forward(linear_case *c, const char *what) {
    case_make(c);
    scores wanted = scores_of(c);
    napier_context *context = context_for_test(NAPIER_ISA_AUTO, 1);
    by_logits(context, c, &wanted);
    for (int run = 0; (context = context_of_run(run)) != NULL; run++) {
        scores got = scores_of(c);
        if (by_hidden(context, c, &got)) {
            expect(same_scores(&got, &wanted), "%s: %lld x %lld x %lld, run %d: other bits than by way of the logits",
                   what, (long long)c->rows, (long long)c->hidden, (long long)c->vocabulary, run);
        }
    }
}

static void results_are_those_of_the_logits(void) {
    static const int64_t shapes[][3] = {{1, 1, 1},     {1, 40, 1025},  {3, 33, 1024}, {5, 64, 1023},
                                        {17, 100, 15}, {33, 17, 2050}, {2, 0, 40},    {300, 20, 1100}};
    static const napier_dtype dtypes[] = {NAPIER_F32, NAPIER_F16, NAPIER_BF16};
    numbers = rng_make(1);
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        for (int d = 0; d < 3; d++) {
            linear_case c = ordinary_case(shapes[s][0], shapes[s][1], shapes[s][2]);
            c.hidden_dtype = c.weights_dtype = dtypes[d];
            c.top_k = c.vocabulary < 5 ? c.vocabulary : 5;
            c.hidden_layout = (layout)((int)s % LAYOUTS);
            c.weights_layout = s % 2 ? LAYOUT_PADDED : LAYOUT_CONTIGUOUS;
            check_forward(&c, napier_dtype_name(dtypes[d]));
            c.weights_dtype = NAPIER_BF16;
            c.options.split = 1;
            check_forward(&c, "split");
        }
    }
}

static void options_are_those_of_the_logits(void) {
    enum { V = 1500 };
    static uint8_t keep[20 * V];
    numbers = rng_make(2);
    for (size_t i = 0; i < sizeof keep; i++) {
        keep[i] = rng_below(&numbers, 3) != 0;
    }
    for (int which = 0; which < 6; which++) {
        linear_case c = ordinary_case(20, 30, V);
        c.weights_dtype = which % 2 ? NAPIER_BF16 : NAPIER_F32;
        c.weights_layout = which % 3 ? LAYOUT_CONTIGUOUS : LAYOUT_TRANSPOSED;
        c.per_row = which == 3 ? 35 : which == 4 ? 0 : 1;
        c.options.temperature = which == 1 ? 0.7 : 1.0;
        c.options.softcap = which == 2 ? 2.5 : 0.0;
        c.options.keep = which >= 4 ? keep : NULL;
        c.options.keep_stride = which == 5 ? V : 0;
        c.options.label_smoothing = which == 5 ? 0.1 : 0.0;
        c.options.z_loss = which == 5 ? 1e-3 : 0.0;
        check_forward(&c, "options");
    }
}

/* So many of the best that memory holds some of the rows at a time. */
static void rows_in_several_lots(void) {
    numbers = rng_make(3);
    for (int split = 0; split < 2; split++) {
        linear_case c = ordinary_case(2100, 3, 1030);
        c.top_k = 1024;
        c.options.temperature = 2.0;
        c.options.split = split;
        c.weights_dtype = split ? NAPIER_BF16 : NAPIER_F32;
        case_make(&c);
        scores wanted = scores_of(&c), got = scores_of(&c);
        napier_context *context = context_for_test(NAPIER_ISA_AUTO, 7);
        by_logits(context, &c, &wanted);
        by_hidden(context, &c, &got);
        expect(same_scores(&got, &wanted), "other bits in several lots");
    }
}

static void odd_rows_are_those_of_the_logits(void) {
    numbers = rng_make(4);
    for (int which = 0; which < 6; which++) {
        linear_case c = ordinary_case(6, 8, 1100);
        c.options.split = which / 3;
        c.weights_dtype = c.options.split ? NAPIER_BF16 : NAPIER_F32;
        case_make(&c);
        grid_set(&c.x, 1, 2, which % 3 == 0 ? HUGE_VAL : which % 3 == 1 ? (double)NAN : 1e30);
        grid_set(&c.w, 7, 2, which % 3 == 0 ? 0.0 : 3e38);
        napier_context *context = context_for_test(NAPIER_ISA_AUTO, 2);
        multiply(context, &c);
        scores wanted = scores_of(&c), got = scores_of(&c);
        by_logits(context, &c, &wanted);
        by_hidden(context, &c, &got);
        expect(same_scores(&got, &wanted), "odd row %d: other bits", which);
    }
}

/* ---- Gradients --------------------------------------------------------------------------------------------------- */

typedef struct pull {
    napier_token_gradients gradients;
    grid logprobs, lse, entropy, loss;
} pull;

static napier_const_vector column(const grid *g) {
    const napier_const_vector v = {g->view.data, g->view.rows, g->view.row_stride, g->view.dtype};
    return v;
}

static pull pull_of(const linear_case *c) {
    pull p = {.gradients = NAPIER_TOKEN_GRADIENTS_INIT};
    p.logprobs = random_grid(LAYOUT_CONTIGUOUS, c->rows, c->per_row, NAPIER_F32, 1.0);
    p.lse = random_grid(LAYOUT_CONTIGUOUS, c->rows, 1, NAPIER_F32, 1.0);
    p.entropy = random_grid(LAYOUT_CONTIGUOUS, c->rows, 1, NAPIER_F32, 1.0);
    p.loss = random_grid(LAYOUT_CONTIGUOUS, c->rows, 1, NAPIER_F32, 1.0);
    p.gradients.logprobs = c->per_row > 0 ? grid_input(&p.logprobs) : p.gradients.logprobs;
    p.gradients.lse = column(&p.lse);
    p.gradients.entropy = column(&p.entropy);
    p.gradients.loss = c->per_row == 1 ? column(&p.loss) : p.gradients.loss;
    return p;
}

/* g by way of the logits, and the two products of it. */
static void expected_gradients(const linear_case *c, const pull *p, grid *hidden, grid *weights) {
    napier_context *context = context_for_test(NAPIER_ISA_AUTO, 2);
    grid g = grid_plain(c->rows, c->vocabulary, c->options.bf16_gradient ? NAPIER_BF16 : NAPIER_F32);
    works(napier_token_logprobs_backward, context, grid_input(&c->logits), case_ids(c), &c->options, &p->gradients,
          g.view);
    works(napier_matmul, context, grid_input(&g), grid_input(&c->w), hidden->view);
    works(napier_matmul, context, napier_const_transposed(grid_input(&g)), grid_input(&c->x), weights->view);
}

static void check_backward(linear_case *c, napier_dtype out, layout l, int threads, const char *what) {
    case_make(c);
    pull p = pull_of(c);
    grid hidden = grid_plain(c->rows, c->hidden, out);
    grid weights = grid_plain(c->vocabulary, c->hidden, out);
    expected_gradients(c, &p, &hidden, &weights);
    napier_isa isas[ISA_LIMIT];
    const int count = threads == 1 ? available_isas(isas) : 1;
    for (int i = 0; i < count; i++) {
        for (int both = 0; both < 3; both++) {
            napier_context *context = context_for_test(threads == 1 ? isas[i] : NAPIER_ISA_AUTO, threads);
            grid got_hidden = grid_make(l, c->rows, c->hidden, out),
                 got_weights = grid_make(l, c->vocabulary, c->hidden, out);
            const napier_status status = napier_linear_token_logprobs_backward(
                context, grid_input(&c->x), grid_input(&c->w), case_ids(c), &c->options, &p.gradients,
                both == 1 ? NO_MATRIX : got_hidden.view, both == 2 ? NO_MATRIX : got_weights.view);
            if (succeeded(context, status, what)) {
                if (both != 1) {
                    grid_differences(&got_hidden, &hidden, what);
                }
                if (both != 2) {
                    grid_differences(&got_weights, &weights, what);
                }
                expect(grid_damage(&got_hidden) + grid_damage(&got_weights) == 0, "%s: wrote outside", what);
            }
        }
    }
}

/* The last one has more columns and tokens than are packed together. */
static void gradients_have_the_bits_of_their_chains(void) {
    static const int64_t shapes[][3] = {{1, 1, 1}, {3, 20, 1025}, {40, 33, 50}, {17, 5, 4200}, {60, 330, 700}};
    static const napier_dtype dtypes[] = {NAPIER_F32, NAPIER_F16, NAPIER_BF16};
    numbers = rng_make(5);
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        for (int d = 0; d < 3; d++) {
            linear_case c = ordinary_case(shapes[s][0], shapes[s][1], shapes[s][2]);
            c.hidden_dtype = c.weights_dtype = dtypes[d];
            c.per_row = s == 2 ? 3 : 1;
            c.options.temperature = d == 1 ? 1.5 : 1.0;
            c.options.softcap = d == 2 ? 4.0 : 0.0;
            check_backward(&c, dtypes[d], (layout)((int)s * 2 % LAYOUTS), 1, napier_dtype_name(dtypes[d]));
            check_backward(&c, NAPIER_F32, LAYOUT_CONTIGUOUS, 7, "7 threads");
        }
        linear_case c = ordinary_case(shapes[s][0], shapes[s][1], shapes[s][2]);
        c.weights_dtype = NAPIER_BF16;
        c.options.split = 1;
        check_backward(&c, NAPIER_F32, LAYOUT_CONTIGUOUS, 2, "split");
    }
}

static linear_case narrow_case(int64_t rows, int64_t hidden, int64_t vocabulary) {
    linear_case c = ordinary_case(rows, hidden, vocabulary);
    c.hidden_dtype = c.weights_dtype = NAPIER_BF16;
    c.options.bf16_gradient = 1;
    return c;
}

static void gradients_of_bf16_have_the_bits_of_their_products(void) {
    static const int64_t shapes[][3] = {{1, 1, 1}, {3, 20, 1025}, {40, 33, 50}, {17, 5, 4200}, {300, 40, 5000}};
    numbers = rng_make(9);
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        linear_case c = narrow_case(shapes[s][0], shapes[s][1], shapes[s][2]);
        c.per_row = s == 2 ? 3 : 1;
        c.options.softcap = s == 1 ? 4.0 : 0.0;
        check_backward(&c, NAPIER_BF16, (layout)((int)s * 2 % LAYOUTS), 1, "bf16 gradient");
        check_backward(&c, NAPIER_F32, LAYOUT_CONTIGUOUS, 7, "bf16 gradient, 7 threads");
    }
}

static void gradients_of_several_lots_of_rows(void) {
    numbers = rng_make(6);
    linear_case c = ordinary_case(5900, 3, 4150);
    check_backward(&c, NAPIER_BF16, LAYOUT_CONTIGUOUS, 2, "several lots");
    c = narrow_case(5900, 3, 600);
    check_backward(&c, NAPIER_BF16, LAYOUT_CONTIGUOUS, 2, "several lots, bf16 gradient");
}

/* Memory keeps the logits of the first 8192 tokens. */
static void gradients_of_logits_that_are_kept_in_part(void) {
    numbers = rng_make(8);
    linear_case c = ordinary_case(2000, 3, 11000);
    check_backward(&c, NAPIER_F32, LAYOUT_CONTIGUOUS, 2, "kept in part");
}

/* The gradient of the weights has room for the logits of 8192 tokens, with and without padded rows. */
static void gradients_of_logits_that_are_kept_in_place(void) {
    numbers = rng_make(10);
    for (int64_t rows = 12; rows <= 20; rows += 8) {
        linear_case c = ordinary_case(rows, 20, 8200);
        check_backward(&c, NAPIER_F32, LAYOUT_CONTIGUOUS, 2, "kept in place");
    }
}

/* ---- Finals ------------------------------------------------------------------------------------------------------- */

/* What a forward call knows of rows for the backward call. */
typedef struct known {
    int64_t *finals;
    float *chosen;
} known;

static known known_of(napier_context *context, const linear_case *c, bool from_logits) {
    const known k = {scratch(c->rows * NAPIER_TOKEN_FINAL_WORDS, sizeof(int64_t)),
                     scratch(c->rows * c->per_row + 1, sizeof(float))};
    grid entropy = grid_plain(c->rows, 1, NAPIER_F32);
    napier_token_results r = NAPIER_TOKEN_RESULTS_INIT;
    r.entropy = (napier_vector){entropy.view.data, c->rows, entropy.view.row_stride, NAPIER_F32};
    r.finals = k.finals;
    r.chosen = k.chosen;
    if (from_logits) {
        works(napier_token_logprobs, context, grid_input(&c->logits), case_ids(c), &c->options, &r);
    } else {
        works(napier_linear_token_logprobs, context, grid_input(&c->x), grid_input(&c->w), case_ids(c), &c->options,
              &r);
    }
    return k;
}

static void pull_known(pull *p, known k) {
    p->gradients.finals = k.finals;
    p->gradients.chosen = k.chosen;
}

static void backward_to(napier_context *context, const linear_case *c, const pull *p, grid *hidden, grid *weights) {
    works(napier_linear_token_logprobs_backward, context, grid_input(&c->x), grid_input(&c->w), case_ids(c),
          &c->options, &p->gradients, hidden ? hidden->view : NO_MATRIX, weights ? weights->view : NO_MATRIX);
}

static void check_finals(linear_case *c, napier_dtype out, const char *what) {
    case_make(c);
    pull p = pull_of(c);
    grid hidden = grid_plain(c->rows, c->hidden, out), weights = grid_plain(c->vocabulary, c->hidden, out);
    napier_context *context = context_for_test(NAPIER_ISA_AUTO, 2);
    backward_to(context, c, &p, &hidden, &weights);
    const known k = known_of(context, c, false), other = known_of(context, c, true);
    expect(memcmp(k.finals, other.finals, (size_t)(c->rows * NAPIER_TOKEN_FINAL_WORDS) * sizeof(int64_t)) == 0 &&
               memcmp(k.chosen, other.chosen, (size_t)(c->rows * c->per_row) * sizeof(float)) == 0,
           "%s: other finals than those of the logits", what);
    pull_known(&p, k);
    for (int run = 0; (context = context_of_run(run)) != NULL; run++) {
        for (int both = 0; both < 3; both++) {
            grid got_hidden = grid_plain(c->rows, c->hidden, out),
                 got_weights = grid_plain(c->vocabulary, c->hidden, out);
            backward_to(context, c, &p, both == 1 ? NULL : &got_hidden, both == 2 ? NULL : &got_weights);
            if (both != 1) {
                grid_differences(&got_hidden, &hidden, what);
            }
            if (both != 2) {
                grid_differences(&got_weights, &weights, what);
            }
        }
    }
}

static void gradients_have_the_same_bits_with_finals(void) {
    enum { V = 2100, ROWS = 40 };
    static uint8_t keep[ROWS * V];
    numbers = rng_make(11);
    for (size_t i = 0; i < sizeof keep; i++) {
        keep[i] = rng_below(&numbers, 3) != 0;
    }
    for (int which = 0; which < 12; which++) {
        linear_case c = which % 4 == 3 ? narrow_case(ROWS, 20, V) : ordinary_case(which % 3 ? ROWS : 1, 20, V);
        c.per_row = which == 5 ? 3 : which == 6 ? 0 : 1;
        c.hidden_dtype = which == 1 ? NAPIER_BF16 : c.hidden_dtype;
        c.weights_dtype = which == 1 || which == 8 ? NAPIER_BF16 : which == 9 ? NAPIER_F16 : c.weights_dtype;
        c.options.split = which == 8;
        c.options.label_smoothing = which >= 2 && which <= 4 ? 0.2 : 0.0;
        c.options.z_loss = which == 4 ? 1e-3 : 0.0;
        c.options.temperature = which == 7 ? 0.7 : 1.0;
        c.options.softcap = which == 10 ? 2.5 : 0.0;
        c.options.keep = which == 3 || which == 5 ? keep : NULL;
        c.options.keep_stride = which == 3 ? V : 0;
        check_finals(&c, which % 2 ? NAPIER_BF16 : NAPIER_F32, "with finals");
    }
}

static void gradients_of_several_lots_have_the_same_bits_with_finals(void) {
    numbers = rng_make(12);
    for (int narrow = 0; narrow < 2; narrow++) {
        linear_case c = narrow ? narrow_case(5900, 3, 60) : ordinary_case(5900, 3, 600);
        case_make(&c);
        pull p = pull_of(&c);
        napier_context *context = context_for_test(NAPIER_ISA_AUTO, 2);
        grid hidden[2], weights[2];
        for (int i = 0; i < 2; i++) {
            hidden[i] = grid_plain(c.rows, c.hidden, NAPIER_F32);
            weights[i] = grid_plain(c.vocabulary, c.hidden, NAPIER_F32);
            backward_to(context, &c, &p, &hidden[i], &weights[i]);
            pull_known(&p, known_of(context, &c, false));
        }
        grid_differences(&hidden[1], &hidden[0], "finals of several lots");
        grid_differences(&weights[1], &weights[0], "finals of several lots");
    }
}

/* NaN, infinities, rows without a gradient, and a huge maximum. */
static void odd_rows_have_the_same_bits_with_finals(void) {
    static const double odd[] = {HUGE_VAL, -HUGE_VAL, (double)NAN, 1e30, 3e38};
    numbers = rng_make(13);
    for (size_t which = 0; which < sizeof odd / sizeof *odd; which++) {
        linear_case c = ordinary_case(6, 8, 1100);
        case_make(&c);
        grid_set(&c.x, 1, 2, odd[which]);
        grid_set(&c.w, 7, 2, 0.0);
        pull p = pull_of(&c);
        grid_set(&p.logprobs, 3, 0, 0.0);
        grid_set(&p.lse, 3, 0, 0.0);
        grid_set(&p.entropy, 3, 0, 0.0);
        grid_set(&p.loss, 3, 0, 0.0);
        napier_context *context = context_for_test(NAPIER_ISA_AUTO, 2);
        grid hidden[2] = {grid_plain(6, 8, NAPIER_F32), grid_plain(6, 8, NAPIER_F32)};
        grid weights[2] = {grid_plain(1100, 8, NAPIER_F32), grid_plain(1100, 8, NAPIER_F32)};
        backward_to(context, &c, &p, &hidden[0], &weights[0]);
        pull_known(&p, known_of(context, &c, false));
        backward_to(context, &c, &p, &hidden[1], &weights[1]);
        grid_differences(&hidden[1], &hidden[0], "finals of odd rows");
        grid_differences(&weights[1], &weights[0], "finals of odd rows");
    }
}

/* Finals of a forward call that did not compute the entropy serve all gradients but that of the entropy. */
static void finals_without_an_entropy(napier_context *context) {
    numbers = rng_make(14);
    linear_case c = ordinary_case(4, 8, 1100);
    case_make(&c);
    pull p = pull_of(&c);
    const napier_const_vector of_entropy = p.gradients.entropy;
    p.gradients.entropy.data = NULL;
    grid wanted = grid_plain(4, 8, NAPIER_F32), got = grid_plain(4, 8, NAPIER_F32);
    backward_to(context, &c, &p, &wanted, NULL);
    const known k = known_of(context, &c, false);
    napier_token_results r = NAPIER_TOKEN_RESULTS_INIT;
    r.finals = k.finals;
    works(napier_linear_token_logprobs, context, grid_input(&c.x), grid_input(&c.w), case_ids(&c), &c.options, &r);
    pull_known(&p, k);
    backward_to(context, &c, &p, &got, NULL);
    grid_differences(&got, &wanted, "finals without an entropy");
    p.gradients.entropy = of_entropy;
    backward_to(context, &c, &p, &got, NULL);
    expect(isnan(grid_get(&got, 0, 0)), "a gradient of an unknown entropy is %g", grid_get(&got, 0, 0));
}

/* Any bytes are safe as finals. */
static void finals_of_any_bytes_are_safe(napier_context *context) {
    numbers = rng_make(15);
    linear_case c = ordinary_case(40, 8, 1100);
    case_make(&c);
    pull p = pull_of(&c);
    grid hidden = grid_plain(40, 8, NAPIER_F32), weights = grid_plain(1100, 8, NAPIER_F32);
    const known k = known_of(context, &c, false);
    pull_known(&p, k);
    for (int round = 0; round < 30; round++) {
        for (int64_t i = 0; i < c.rows * NAPIER_TOKEN_FINAL_WORDS; i++) {
            k.finals[i] = (int64_t)(((uint64_t)rng_below(&numbers, INT64_C(1) << 32) << 32) |
                                    (uint64_t)rng_below(&numbers, INT64_C(1) << 32));
        }
        for (int64_t i = 0; i < c.rows; i++) {
            const uint32_t bits = (uint32_t)rng_below(&numbers, INT64_C(1) << 32);
            memcpy(k.chosen + i, &bits, sizeof bits);
        }
        backward_to(context, &c, &p, &hidden, &weights);
    }
    expect(grid_damage(&hidden) + grid_damage(&weights) == 0, "wrote outside");
}

/* d/d hidden and d/d weights of sum_i a_i logprob_i + b_i lse_i in float64. */
static void gradients_are_close_to_float64(napier_context *context) {
    enum { N = 5, H = 7, V = 60 };
    numbers = rng_make(7);
    linear_case c = ordinary_case(N, H, V);
    case_make(&c);
    pull p = pull_of(&c);
    p.gradients.entropy.data = p.gradients.loss.data = NULL;
    double grad_x[N][H] = {{0}}, grad_w[V][H] = {{0}};
    for (int i = 0; i < N; i++) {
        double z[V], sum = 0.0;
        for (int j = 0; j < V; j++) {
            z[j] = 0.0;
            for (int h = 0; h < H; h++) {
                z[j] += grid_get(&c.x, i, h) * grid_get(&c.w, j, h);
            }
            sum += exp(z[j]);
        }
        const bool ignored = c.ids[i] == c.options.ignore_index;
        const double a = ignored ? 0.0 : grid_get(&p.logprobs, i, 0), b = grid_get(&p.lse, i, 0);
        for (int j = 0; j < V; j++) {
            const double g = a * (c.ids[i] == j) + (b - a) * exp(z[j]) / sum;
            for (int h = 0; h < H; h++) {
                grad_x[i][h] += g * grid_get(&c.w, j, h);
                grad_w[j][h] += g * grid_get(&c.x, i, h);
            }
        }
    }
    grid x = grid_plain(N, H, NAPIER_F32), w = grid_plain(V, H, NAPIER_F32);
    works(napier_linear_token_logprobs_backward, context, grid_input(&c.x), grid_input(&c.w), case_ids(&c), &c.options,
          &p.gradients, x.view, w.view);
    for (int i = 0; i < N * H; i++) {
        expect(fabs(grid_get(&x, i / H, i % H) - grad_x[i / H][i % H]) < 3e-6, "grad_hidden[%d][%d]", i / H, i % H);
    }
    for (int i = 0; i < V * H; i++) {
        expect(fabs(grid_get(&w, i / H, i % H) - grad_w[i / H][i % H]) < 3e-6, "grad_weights[%d][%d]", i / H, i % H);
    }
}

/* ---- Nothing ----------------------------------------------------------------------------------------------------- */

static void nothing_gives_nothing(napier_context *context) {
    static float x[12], w[12];
    static int64_t ids[4];
    float grad[12];
    const napier_token_gradients none = NAPIER_TOKEN_GRADIENTS_INIT;
    napier_token_results results = NAPIER_TOKEN_RESULTS_INIT;
    works(napier_linear_token_logprobs, context, napier_const_rows_f32(NULL, 0, 4), napier_const_rows_f32(w, 3, 4),
          napier_indices_i64(NULL, 0), NULL, &results);
    float lse[3] = {1.0f, 1.0f, 1.0f};
    results.lse = napier_array_f32(lse, 3);
    works(napier_linear_token_logprobs, context, napier_const_rows_f32(x, 3, 4), napier_const_rows_f32(NULL, 0, 4),
          napier_indices_i64(NULL, 0), NULL, &results);
    expect(lse[0] == -INFINITY && lse[2] == -INFINITY, "lse of no tokens is %g", (double)lse[0]);
    memset(grad, 1, sizeof grad);
    works(napier_linear_token_logprobs_backward, context, napier_const_rows_f32(NULL, 0, 4),
          napier_const_rows_f32(w, 3, 4), napier_indices_i64(NULL, 0), NULL, &none, NO_MATRIX,
          napier_rows_f32(grad, 3, 4));
    for (int i = 0; i < 12; i++) {
        expect(f32_bits(grad[i]) == 0, "gradient of nothing is %g", (double)grad[i]);
    }
    works(napier_linear_token_logprobs_backward, context, napier_const_rows_f32(x, 3, 4),
          napier_const_rows_f32(w, 3, 4), napier_indices_i64(ids, 3), NULL, &none, NO_MATRIX, NO_MATRIX);
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

static void run_case(napier_context *context, linear_case *c, bool backward) {
    scores s = scores_of(c);
    pull p = pull_of(c);
    grid hidden = grid_plain(c->rows, c->hidden, NAPIER_F32);
    grid weights = grid_plain(c->vocabulary, c->hidden, NAPIER_F32);
    if (!backward) {
        by_hidden(context, c, &s);
        return;
    }
    works(napier_linear_token_logprobs_backward, context, grid_input(&c->x), grid_input(&c->w), case_ids(c),
          &c->options, &p.gradients, hidden.view, weights.view);
}

static void the_workspace_is_what_the_query_says(void) {
    static const int64_t shapes[][3] = {{5, 6, 1030}, {700, 20, 2000}, {64, 256, 5000}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        for (int backward = 0; backward < 2; backward++) {
            linear_case c = ordinary_case(shapes[s][0], shapes[s][1], shapes[s][2]);
            case_make(&c);
            ledger l = LEDGER_INIT;
            napier_context *context = ledger_context(&l, 2);
            const size_t said =
                napier_linear_token_logprobs_workspace(context, c.rows, c.hidden, c.vocabulary, backward);
            const size_t before = l.most;
            run_case(context, &c, backward);
            expect(l.most - before <= said + 4096 && said <= 2 * (l.most - before), "said %zu, took %zu", said,
                   l.most - before);
            napier_context_destroy(context);
        }
    }
}

/* What the header promises. */
static void the_workspace_is_limited(void) {
    for (int threads = 1; threads <= 64; threads *= 4) {
        napier_context *context = context_for_test(NAPIER_ISA_AUTO, threads);
        for (int64_t hidden = 1; hidden <= 16384; hidden *= 2) {
            for (int64_t rows = 1; rows <= 1000000; rows = rows * 3 / 2 + 1) {
                const size_t forward = napier_linear_token_logprobs_workspace(context, rows, hidden, 151936, 0);
                const size_t backward = napier_linear_token_logprobs_workspace(context, rows, hidden, 151936, 1);
                const int64_t most = 190000000 + 16384 * hidden + 2000000 * threads + 200 * rows;
                expect(forward > 0 && forward < 256000000 && backward > 0 && backward <= (size_t)most,
                       "%lld rows, H %lld, %d threads: %zu and %zu bytes", (long long)rows, (long long)hidden, threads,
                       forward, backward);
            }
        }
    }
}

/* ---- What cannot be ---------------------------------------------------------------------------------------------- */

static void wrong_arguments_are_named(napier_context *context) {
    static float x[12], w[20], y[64];
    static int64_t ids[3] = {0, 5, 1}, records[3 * NAPIER_TOKEN_FINAL_WORDS + 1];
    const napier_const_matrix hidden = napier_const_rows_f32(x, 3, 4), weights = napier_const_rows_f32(w, 5, 4);
    const napier_indices none = napier_indices_i64(NULL, 0);
    const napier_token_gradients gradients = NAPIER_TOKEN_GRADIENTS_INIT;
    napier_token_results results = NAPIER_TOKEN_RESULTS_INIT;
    invalid(context, napier_linear_token_logprobs(context, hidden, weights, none, NULL, NULL), "results");
    invalid(context,
            napier_linear_token_logprobs(context, hidden, napier_const_rows_f32(w, 4, 5), none, NULL, &results),
            "weights", "cols 5", "hidden");
    invalid(
        context,
        napier_linear_token_logprobs(context, napier_const_rows(x, 1, 4, NAPIER_F64), weights, none, NULL, &results),
        "hidden", "f64");
    results.lse = napier_array_f32(y, 3);
    invalid(context, napier_linear_token_logprobs(context, hidden, weights, napier_indices_i64(ids, 3), NULL, &results),
            "ids", "5");
    results.lse = napier_array_f32(w + 2, 3);
    invalid(context, napier_linear_token_logprobs(context, hidden, weights, none, NULL, &results), "lse", "weights");
    invalid(context,
            napier_linear_token_logprobs_backward(context, hidden, weights, none, NULL, NULL, NO_MATRIX, NO_MATRIX),
            "gradients");
    invalid(context,
            napier_linear_token_logprobs_backward(context, hidden, weights, none, NULL, &gradients,
                                                  napier_rows_f32(y, 3, 5), NO_MATRIX),
            "grad_hidden", "3 x 5");
    invalid(context,
            napier_linear_token_logprobs_backward(context, hidden, weights, none, NULL, &gradients, NO_MATRIX,
                                                  napier_rows_f32(w, 5, 4)),
            "grad_weights", "weights");
    invalid(context,
            napier_linear_token_logprobs_backward(context, hidden, weights, none, NULL, &gradients,
                                                  napier_rows_f32(y, 3, 4), napier_rows_f32(y + 4, 5, 4)),
            "grad_hidden", "grad_weights");
    expect(napier_linear_token_logprobs_workspace(NULL, 1, 1, 1, 0) == 0, "no context wants memory");
    napier_token_options options = NAPIER_TOKEN_OPTIONS_INIT;
    napier_token_gradients pulls = gradients;
    pulls.logprobs = napier_const_rows_f32(y, 3, 1);
    pulls.finals = (const int64_t *)(const void *)((const char *)records + 4);
    ids[1] = 2;
    invalid(context,
            napier_linear_token_logprobs_backward(context, hidden, weights, napier_indices_i64(ids, 3), NULL, &pulls,
                                                  NO_MATRIX, NO_MATRIX),
            "gradients: finals", "aligned");
    pulls.finals = records;
    invalid(context,
            napier_linear_token_logprobs_backward(context, hidden, weights, napier_indices_i64(ids, 3), NULL, &pulls,
                                                  NO_MATRIX, NO_MATRIX),
            "gradients: chosen", "NULL");
    pulls.chosen = y + 3;
    invalid(context,
            napier_linear_token_logprobs_backward(context, hidden, weights, napier_indices_i64(ids, 3), NULL, &pulls,
                                                  napier_rows_f32(y + 4, 3, 4), NO_MATRIX),
            "grad_hidden", "gradients: chosen");
    results.lse.data = NULL;
    results.finals = (int64_t *)(void *)((char *)records + 4);
    invalid(context, napier_linear_token_logprobs(context, hidden, weights, none, NULL, &results), "finals", "aligned");
    results.finals = records;
    results.chosen = (float *)(void *)(records + 11);
    invalid(context, napier_linear_token_logprobs(context, hidden, weights, napier_indices_i64(ids, 3), NULL, &results),
            "chosen", "finals");
    results.finals = NULL;
    results.chosen = NULL;
    options.split = 1;
    results.lse = napier_array_f32(y, 3);
    invalid(context, napier_linear_token_logprobs(context, hidden, weights, none, &options, &results), "weights",
            "dtype f32", "split");
    invalid(context,
            napier_linear_token_logprobs_backward(context, hidden, weights, none, &options, &gradients, NO_MATRIX,
                                                  NO_MATRIX),
            "weights", "dtype f32", "split");
    options.split = 0;
    options.bf16_gradient = 1;
    invalid(context,
            napier_linear_token_logprobs_backward(context, hidden, weights, none, &options, &gradients, NO_MATRIX,
                                                  NO_MATRIX),
            "weights", "dtype f32", "bf16_gradient");
    invalid(context,
            napier_linear_token_logprobs_backward(context, napier_const_rows(x, 3, 4, NAPIER_BF16), weights, none,
                                                  &options, &gradients, NO_MATRIX, NO_MATRIX),
            "weights", "dtype f32", "bf16_gradient");
}

int main(void) {
    return RUN_TESTS(
        "linear_token_logprobs", TEST(results_are_those_of_the_logits), TEST(options_are_those_of_the_logits),
        TEST(rows_in_several_lots), TEST(odd_rows_are_those_of_the_logits),
        TEST(gradients_have_the_bits_of_their_chains), TEST(gradients_of_bf16_have_the_bits_of_their_products),
        TEST(gradients_of_several_lots_of_rows), TEST(gradients_of_logits_that_are_kept_in_part),
        TEST(gradients_of_logits_that_are_kept_in_place), TEST(gradients_have_the_same_bits_with_finals),
        TEST(gradients_of_several_lots_have_the_same_bits_with_finals), TEST(odd_rows_have_the_same_bits_with_finals),
        TEST_2(finals_without_an_entropy), TEST_2(finals_of_any_bytes_are_safe), TEST_2(gradients_are_close_to_float64),
        TEST_2(nothing_gives_nothing), TEST(the_workspace_is_what_the_query_says), TEST(the_workspace_is_limited),
        TEST_1(wrong_arguments_are_named));
}
