/* The gradients against their formulas in long double, against finite differences of the forward operations in f64, and
 * against themselves: the same bits on every instruction set, thread count, layout and in place. */
#include "support/check.h"

#include <fenv.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/math/f64.h"
#include "support/formats.h"
#include "support/oracle.h"

typedef enum gradient { GRAD_SOFTMAX, GRAD_LOG_SOFTMAX, GRAD_LOGSUMEXP, GRAD_LOGSUMEXP_ALL, GRADIENTS } gradient;

static const char *gradient_name(gradient g) {
    static const char *const names[GRADIENTS] = {"softmax_backward", "log_softmax_backward", "logsumexp_backward",
                                                 "logsumexp_all_backward"};
    return names[g];
}

/* `first` is probs, logprobs or logits; `grad` is a matrix, or a column (element 0 of it) for the last two. */
static napier_status gradient_run(napier_context *context, gradient g, const grid *first, const grid *grad,
                                  napier_matrix out, double temperature) {
    const napier_softmax_options options = options_of(temperature, NAPIER_ALGORITHM_AUTO, NAPIER_MASKED_NAN);
    const napier_const_vector column = {grad->view.data, grad->view.rows, grad->view.row_stride, grad->view.dtype};
    switch (g) {
    case GRAD_SOFTMAX: return napier_softmax_backward(context, grid_input(first), grid_input(grad), out, &options);
    case GRAD_LOG_SOFTMAX:
        return napier_log_softmax_backward(context, grid_input(first), grid_input(grad), out, &options);
    case GRAD_LOGSUMEXP: return napier_logsumexp_backward(context, grid_input(first), column, out, &options);
    default: return napier_logsumexp_all_backward(context, grid_input(first), column, out, &options);
    }
}

static int64_t grad_rows(gradient g, int64_t rows) { return g == GRAD_LOGSUMEXP_ALL ? 1 : rows; }
static int64_t grad_cols(gradient g, int64_t cols) { return g <= GRAD_LOG_SOFTMAX ? cols : 1; }

/* Finite logits of ordinary size, some of them masked, and what the forward call makes of them. */
static void make_inputs(napier_context *context, gradient g, grid *first, grid *grad, uint64_t seed,
                        double temperature) {
    rng r = rng_make(seed);
    double *const x = scratch(first->view.cols, sizeof *x);
    for (int64_t i = 0; i < first->view.rows; i++) {
        for (int64_t j = 0; j < first->view.cols; j++) {
            x[j] = 3 * rng_normal(&r);
            x[j] = j % 5 == 3 && i % 3 == 1 ? -HUGE_VAL : x[j];
        }
        grid_set_row(first, i, x);
    }
    for (int64_t i = 0; i < grad->view.rows; i++) {
        for (int64_t j = 0; j < grad->view.cols; j++) {
            grid_set(grad, i, j, rng_normal(&r));
        }
    }
    const napier_softmax_options options = options_of(temperature, NAPIER_ALGORITHM_AUTO, NAPIER_MASKED_NAN);
    if (g == GRAD_SOFTMAX) {
        works(napier_softmax, context, grid_input(first), first->view, &options);
    } else if (g == GRAD_LOG_SOFTMAX) {
        works(napier_log_softmax, context, grid_input(first), first->view, &options);
    }
}

/* ---- Against the formulas ---------------------------------------------------------------------------------------- */

/* The formula's value at (row, col), and the size of the parts that cancel in it. */
typedef struct exact {
    long double value, size;
} exact;

static void exact_row(gradient g, const grid *first, const grid *grad, int64_t row, double temperature,
                      napier_dtype compute, exact *out) {
    const int64_t n = first->view.cols;
    const long double t = compute == NAPIER_F64 ? (long double)temperature : (long double)(float)temperature;
    double *const x = scratch(n, sizeof *x);
    grid_get_row(first, row, x);
    long double sum = 0, size = 0, others = 0, rest = 0; /* the last two over probabilities up to 1/2 */
    for (int64_t j = 0; j < n && g <= GRAD_LOG_SOFTMAX; j++) {
        const long double term = (long double)grid_get(grad, row, j) * (g == GRAD_SOFTMAX ? (long double)x[j] : 1.0L);
        sum += term;
        size += fabsl(term);
        others += x[j] > 0.5 ? 0 : (long double)x[j];
        rest += x[j] > 0.5 ? 0 : term;
    }
    oracle_row reduced = {ORACLE_FINITE, 0, 0, 0, 0, 0};
    if (g == GRAD_LOGSUMEXP) {
        divide_by_temperature(x, x, n, temperature, compute);
        reduced = oracle_reduce(x, n);
    }
    for (int64_t j = 0; j < n; j++) {
        long double own, prob;
        switch (g) {
        case GRAD_SOFTMAX:
            own = (long double)grid_get(grad, row, j);
            out[j].value = (long double)x[j] * (x[j] > 0.5 ? others * own - rest : own - sum) / t;
            out[j].size = (long double)x[j] * (fabsl(own) + size) / t;
            break;
        case GRAD_LOG_SOFTMAX:
            own = (long double)grid_get(grad, row, j);
            prob = expl((long double)x[j]);
            out[j].value = (own - prob * sum) / t;
            out[j].size = (fabsl(own) + prob * size) / t;
            break;
        default:
            own = (long double)grid_get(grad, row, 0);
            out[j].value = own * oracle_softmax(&reduced, x[j]) / t;
            out[j].size = fabsl(out[j].value);
            break;
        }
    }
}

/* Roundings on the way to a result: at most 12 in the longest chain of additions of a tile (4 in a lane, 8 folds), a
 * few for exp, the product, the difference and the quotient. */
#define ROUNDINGS 24.0L

static void check_formula(napier_context *context, gradient g, int64_t rows, int64_t cols, napier_dtype in,
                          napier_dtype out_dtype, double temperature, uint64_t seed) {
    grid first = grid_plain(rows, cols, in);
    grid grad = grid_plain(grad_rows(g, rows), grad_cols(g, cols), in);
    grid out = grid_plain(rows, cols, out_dtype);
    make_inputs(context, g, &first, &grad, seed, temperature);
    exact *const truth = scratch(cols, sizeof *truth);
    const napier_dtype compute = compute_dtype(in, out_dtype);
    if (succeeded(context, gradient_run(context, g, &first, &grad, out.view, temperature), gradient_name(g))) {
        for (int64_t row = 0; row < rows; row++) {
            exact_row(g, &first, &grad, row, temperature, compute, truth);
            for (int64_t col = 0; col < cols; col++) {
                const double got = grid_get(&out, row, col);
                const long double bound = ROUNDINGS * ldexpl(truth[col].size, -dtype_precision(compute)) +
                                          dtype_ulp(out_dtype, truth[col].value);
                const bool masked = g == GRAD_SOFTMAX && grid_get(&first, row, col) == 0;
                if (!expect(
                        oracle_within(got, truth[col].value, bound, out_dtype) && (!masked || got == 0),
                        "%s %lld x %lld, %s to %s, T = %g, seed %llu: [%lld, %lld] is %.9g, truth %.9Lg, bound %.3Lg",
                        gradient_name(g), (long long)rows, (long long)cols, napier_dtype_name(in),
                        napier_dtype_name(out_dtype), temperature, (unsigned long long)seed, (long long)row,
                        (long long)col, got, truth[col].value, bound)) {
                    break;
                }
            }
        }
    }
}

static void test_formulas(napier_context *context) {
    static const int64_t sizes[] = {1, 2, 5, 16, 17, 48, 50, 255, 1024, 1025, 4097};
    static const double temperatures[] = {1.0, 0.7, 3.0};
    for (gradient g = 0; g < GRAD_LOGSUMEXP_ALL; g++) {
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            for (int d = 0; d < DTYPE_COUNT * DTYPE_COUNT; d++) {
                check_formula(context, g, 5, sizes[s], all_dtypes[d / DTYPE_COUNT], all_dtypes[d % DTYPE_COUNT],
                              temperatures[(size_t)d % 3], s);
            }
        }
    }
}

/* logsumexp_all_backward is logsumexp_backward of the one row that holds all elements. */
static void test_all_is_one_row(napier_context *context) {
    for (layout l = 0; l < LAYOUTS; l++) {
        for (int d = 0; d < DTYPE_COUNT; d++) {
            enum { ROWS = 37, COLS = 61 };
            grid one = grid_plain(1, ROWS * COLS, all_dtypes[d]);
            grid many = grid_make(l, ROWS, COLS, all_dtypes[d]), grad = grid_plain(1, 1, all_dtypes[d]);
            grid expected = grid_plain(1, ROWS * COLS, all_dtypes[d]);
            grid got = grid_make(l, ROWS, COLS, all_dtypes[d]), row_major = expected;
            make_inputs(context, GRAD_LOGSUMEXP, &one, &grad, (uint64_t)l, 1.0);
            for (int64_t i = 0; i < ROWS * COLS; i++) {
                grid_set(&many, i / COLS, i % COLS, grid_get(&one, 0, i));
            }
            succeeded(context, gradient_run(context, GRAD_LOGSUMEXP, &one, &grad, expected.view, 1.3), "one row");
            succeeded(context, gradient_run(context, GRAD_LOGSUMEXP_ALL, &many, &grad, got.view, 1.3), "all");
            row_major.view = napier_rows(expected.view.data, ROWS, COLS, all_dtypes[d]);
            expect(grid_differences(&got, &row_major, "logsumexp_all_backward") == 0 && grid_damage(&got) == 0,
                   "%s, %s", layout_name(l), napier_dtype_name(all_dtypes[d]));
        }
    }
}

/* ---- Against finite differences ---------------------------------------------------------------------------------- */

enum { DIFF_ROWS = 3, DIFF_COLS = 23 };

/* sum of weights * result of the forward operation, in f64. */
static double objective(napier_context *context, gradient g, const double *x, const double *weights,
                        double temperature) {
    double out[DIFF_ROWS * DIFF_COLS];
    const napier_softmax_options options = options_of(temperature, NAPIER_ALGORITHM_AUTO, NAPIER_MASKED_NAN);
    const operation op = (operation)g;
    const int64_t rows = operation_rows(op, DIFF_ROWS), cols = operation_cols(op, DIFF_COLS);
    succeeded(context,
              operation_run(context, op, napier_const_rows(x, DIFF_ROWS, DIFF_COLS, NAPIER_F64),
                            napier_rows(out, rows, cols, NAPIER_F64), &options),
              "forward");
    double sum = 0;
    for (int64_t i = 0; i < rows * cols; i++) {
        sum += weights[i] * out[i];
    }
    return sum;
}

static void test_finite_differences(napier_context *context) {
    static const double temperatures[] = {1.0, 0.5, 2.5};
    for (gradient g = 0; g < GRADIENTS; g++) {
        for (int t = 0; t < 3; t++) {
            grid x = grid_plain(DIFF_ROWS, DIFF_COLS, NAPIER_F64);
            grid weights = grid_plain(grad_rows(g, DIFF_ROWS), grad_cols(g, DIFF_COLS), NAPIER_F64);
            grid first = grid_plain(DIFF_ROWS, DIFF_COLS, NAPIER_F64);
            grid got = grid_plain(DIFF_ROWS, DIFF_COLS, NAPIER_F64);
            rng r = rng_make((uint64_t)t);
            for (int64_t i = 0; i < DIFF_ROWS * DIFF_COLS; i++) {
                grid_set(&x, i / DIFF_COLS, i % DIFF_COLS, rng_normal(&r));
            }
            for (int64_t i = 0; i < weights.view.rows * weights.view.cols; i++) {
                grid_set(&weights, i / weights.view.cols, i % weights.view.cols, rng_normal(&r));
            }
            grid_copy(&first, &x);
            const napier_softmax_options options =
                options_of(temperatures[t], NAPIER_ALGORITHM_AUTO, NAPIER_MASKED_NAN);
            if (g <= GRAD_LOG_SOFTMAX) {
                succeeded(context, operation_run(context, (operation)g, grid_input(&x), first.view, &options),
                          "forward");
            }
            succeeded(context, gradient_run(context, g, &first, &weights, got.view, temperatures[t]), "backward");
            double *const values = x.view.data;
            const double h = 1e-4;
            for (int64_t i = 0; i < DIFF_ROWS * DIFF_COLS; i++) {
                const double kept = values[i];
                double side[4]; /* at -2h, -h, h, 2h: an error of h^4 */
                for (int k = 0; k < 4; k++) {
                    values[i] = kept + h * (k < 2 ? k - 2 : k - 1);
                    side[k] = objective(context, g, values, weights.view.data, temperatures[t]);
                }
                values[i] = kept;
                const double slope = (side[0] - 8 * side[1] + 8 * side[2] - side[3]) / (12 * h);
                const double gradient_here = grid_get(&got, i / DIFF_COLS, i % DIFF_COLS);
                expect(fabs(slope - gradient_here) < 1e-9, "%s, T = %g, element %lld: %.12g, finite difference %.12g",
                       gradient_name(g), temperatures[t], (long long)i, gradient_here, slope);
            }
        }
    }
}

/* ---- Bits -------------------------------------------------------------------------------------------------------- */

/* Scalar, one thread, contiguous, against every machine and layout, and in place of either input. */
static void check_gradient_bits(gradient g, int64_t rows, int64_t cols, napier_dtype in, napier_dtype out,
                                uint64_t seed) {
    napier_isa isas[ISA_LIMIT];
    const int count = available_isas(isas);
    napier_context *const scalar = context_for_test(NAPIER_ISA_SCALAR, 1);
    grid first = grid_plain(rows, cols, in);
    grid grad = grid_plain(grad_rows(g, rows), grad_cols(g, cols), in);
    grid expected = grid_plain(rows, cols, out);
    make_inputs(scalar, g, &first, &grad, seed, 0.9);
    succeeded(scalar, gradient_run(scalar, g, &first, &grad, expected.view, 0.9), gradient_name(g));
    for (int turn = 0; turn < count * 6; turn++) {
        static const int threads[] = {1, 2, 7};
        napier_context *const context = context_for_test(isas[turn / 6], threads[turn % 3]);
        const layout l = turn % 2 ? LAYOUT_CONTIGUOUS : (layout)((seed + (uint64_t)turn) % LAYOUTS);
        grid first_here = grid_make(l, rows, cols, in), got = grid_make(l, rows, cols, out);
        grid grad_here = grid_make(l, grad.view.rows, grad.view.cols, in);
        grid_copy(&first_here, &first);
        grid_copy(&grad_here, &grad);
        succeeded(context, gradient_run(context, g, &first_here, &grad_here, got.view, 0.9), gradient_name(g));
        bool same = grid_differences(&got, &expected, gradient_name(g)) == 0 && grid_damage(&got) == 0;
        if (in == out) {
            const bool over_grad = g <= GRAD_LOG_SOFTMAX && turn % 4 < 2;
            grid *const place = over_grad ? &grad_here : &first_here;
            succeeded(context, gradient_run(context, g, &first_here, &grad_here, place->view, 0.9), gradient_name(g));
            same = grid_differences(place, &expected, over_grad ? "in place of the gradient" : "in place") == 0 && same;
        }
        expect(same, "%s %lld x %lld, %s to %s: %s, %d threads, %s", gradient_name(g), (long long)rows, (long long)cols,
               napier_dtype_name(in), napier_dtype_name(out), napier_isa_name(isas[turn / 6]), threads[turn % 3],
               layout_name(l));
    }
}

static void test_gradient_bits(void) {
    static const int64_t sizes[] = {1, 3, 8, 16, 17, 40, 48, 49, 64, 100, 255, 257, 1000, 1024, 1025, 3000};
    for (gradient g = 0; g < GRADIENTS; g++) {
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            check_gradient_bits(g, 19, sizes[s], NAPIER_F32, NAPIER_F32, s);
            check_gradient_bits(g, 5, sizes[s], all_dtypes[s % 4], all_dtypes[s / 4], s);
        }
        check_gradient_bits(g, 3, 400, NAPIER_F64, NAPIER_F64, 1);
        check_gradient_bits(g, 2, 20000, NAPIER_BF16, NAPIER_BF16, 2);
    }
}

/* ---- Edges ------------------------------------------------------------------------------------------------------- */

static void test_gradient_edges(napier_context *context) {
    /* A row of only -inf has gradient 0; so has a masked position. With +inf the softmax, and so the gradient, is NaN. */
    const float logits[3][3] = {{-INFINITY, -INFINITY, -INFINITY}, {0, -INFINITY, 0}, {INFINITY, 0, -INFINITY}};
    const float grad_lse[3] = {5, 2, 1};
    float out[3][3];
    works(napier_logsumexp_backward, context, napier_const_rows_f32(&logits[0][0], 3, 3),
          napier_const_array_f32(grad_lse, 3), napier_rows_f32(&out[0][0], 3, 3), NULL);
    for (int j = 0; j < 3; j++) {
        expect(out[0][j] == 0, "an all -inf row has gradient %g", (double)out[0][j]);
        expect(out[1][j] == (j == 1 ? 0.0f : 1.0f), "gradient %g at %d", (double)out[1][j], j);
        expect(f32_bits(out[2][j]) == 0x7fc00000u, "a row with +inf has gradient %g", (double)out[2][j]);
    }
    /* A masked position stays 0 under an infinite or NaN-free large gradient; one column has gradient 0. */
    const float probs[3] = {0.5f, 0.0f, 0.5f}, grad[3] = {1.0f, 1e30f, -1.0f};
    works(napier_softmax_backward, context, napier_const_rows_f32(probs, 1, 3), napier_const_rows_f32(grad, 1, 3),
          napier_rows_f32(out[0], 1, 3), NULL);
    expect(out[0][0] == 0.5f && out[0][1] == 0 && out[0][2] == -0.5f, "masked: %g %g %g", (double)out[0][0],
           (double)out[0][1], (double)out[0][2]);
    /* A log-probability of -inf contributes its own gradient and no probability. */
    const float logprobs[3] = {-0.6931472f, -INFINITY, -0.6931472f}, grad_log[3] = {1.0f, 0.0f, 0.0f};
    works(napier_log_softmax_backward, context, napier_const_rows_f32(logprobs, 1, 3),
          napier_const_rows_f32(grad_log, 1, 3), napier_rows_f32(out[0], 1, 3), NULL);
    expect(fabsf(out[0][0] - 0.5f) < 1e-6f && out[0][1] == 0 && fabsf(out[0][2] + 0.5f) < 1e-6f, "masked: %g %g %g",
           (double)out[0][0], (double)out[0][1], (double)out[0][2]);
    /* Nothing at all. */
    const napier_const_matrix none = napier_const_rows_f32(NULL, 0, 4), flat = napier_const_rows_f32(NULL, 2, 0);
    works(napier_softmax_backward, context, none, none, napier_rows_f32(NULL, 0, 4), NULL);
    works(napier_log_softmax_backward, context, flat, flat, napier_rows_f32(NULL, 2, 0), NULL);
    works(napier_logsumexp_backward, context, flat, napier_const_array_f32(grad_lse, 2), napier_rows_f32(NULL, 2, 0),
          NULL);
    works(napier_logsumexp_all_backward, context, none, napier_const_array_f32(grad_lse, 1),
          napier_rows_f32(NULL, 0, 4), NULL);
}

/* The caller's rounding mode is none of the gradients' business. */
static void test_callers_rounding_does_not_matter(napier_context *context) {
    for (gradient g = 0; g < GRADIENTS; g++) {
        for (int d = 0; d < DTYPE_COUNT; d++) {
            grid first = grid_make(LAYOUT_PADDED, 9, 500, all_dtypes[d]);
            grid grad = grid_plain(grad_rows(g, 9), grad_cols(g, 500), all_dtypes[d]);
            grid expected = grid_plain(9, 500, all_dtypes[d]);
            grid got = grid_plain(9, 500, all_dtypes[d]);
            make_inputs(context, g, &first, &grad, 4, 0.7);
            succeeded(context, gradient_run(context, g, &first, &grad, expected.view, 0.7), "to nearest");
            fesetround(FE_UPWARD);
            const napier_status status = gradient_run(context, g, &first, &grad, got.view, 0.7);
            const int after = fegetround();
            fesetround(FE_TONEAREST);
            succeeded(context, status, "upward");
            expect(after == FE_UPWARD, "%s changed the rounding mode", gradient_name(g));
            expect(grid_differences(&got, &expected, gradient_name(g)) == 0, "rounding upward changed bits in %s",
                   napier_dtype_name(all_dtypes[d]));
        }
    }
}

/* log_softmax then its gradient leave rows that add up to 0: a shift of all logits changes nothing. */
static void test_gradients_add_up_to_zero(napier_context *context) {
    for (gradient g = 0; g < GRAD_LOGSUMEXP; g++) {
        grid first = grid_plain(8, 333, NAPIER_F32), grad = grid_plain(8, 333, NAPIER_F32);
        grid out = grid_plain(8, 333, NAPIER_F32);
        make_inputs(context, g, &first, &grad, 77, 1.0);
        succeeded(context, gradient_run(context, g, &first, &grad, out.view, 1.0), gradient_name(g));
        for (int64_t row = 0; row < 8; row++) {
            double sum = 0, size = 0;
            for (int64_t col = 0; col < 333; col++) {
                sum += grid_get(&out, row, col);
                size += fabs(grid_get(&out, row, col));
            }
            expect(fabs(sum) <= 2e-6 * size, "%s: row %lld adds up to %g of %g", gradient_name(g), (long long)row, sum,
                   size);
        }
    }
}

static void test_bad_gradient_arguments(napier_context *context) {
    float a[24], b[24], c[24], v[3];
    memset(a, 0, sizeof a);
    memset(b, 0, sizeof b);
    memset(v, 0, sizeof v);
    const napier_const_matrix probs = napier_const_rows_f32(a, 3, 8), grad = napier_const_rows_f32(b, 3, 8);
    const napier_matrix out = napier_rows_f32(c, 3, 8);
    napier_softmax_options options = options_of(0.0, NAPIER_ALGORITHM_AUTO, NAPIER_MASKED_NAN);
    invalid(context, napier_softmax_backward(context, probs, grad, out, &options), "temperature", "0");
    invalid(context, napier_softmax_backward(context, napier_const_rows_f32(a, 3, 7), grad, out, NULL), "7", "8");
    invalid(context, napier_softmax_backward(context, probs, napier_const_rows_f32(b, 2, 8), out, NULL), "grad_probs",
            "2");
    invalid(context, napier_softmax_backward(context, probs, grad, napier_rows_f32(c, 3, 5), NULL), "grad_logits", "5");
    invalid(context, napier_softmax_backward(context, probs, grad, napier_rows_f32(a + 1, 2, 8), NULL), "grad_logits");
    invalid(context, napier_softmax_backward(context, probs, napier_const_rows_f32(NULL, 3, 8), out, NULL),
            "grad_probs", "NULL");
    invalid(context, napier_log_softmax_backward(context, napier_const_rows_f32(a, -3, 8), grad, out, NULL), "logprobs",
            "-3");
    invalid(context, napier_log_softmax_backward(context, probs, grad, napier_rows_f32(b + 8, 2, 8), NULL),
            "grad_logits");
    invalid(context, napier_logsumexp_backward(context, probs, napier_const_array_f32(v, 2), out, NULL), "grad_lse",
            "2");
    invalid(context, napier_logsumexp_all_backward(context, probs, napier_const_array_f32(v, 3), out, NULL), "grad_lse",
            "3");
    invalid(context, napier_logsumexp_backward(context, probs, napier_const_array_f32(c, 3), out, NULL), "grad_logits",
            "grad_lse");
}

/* ---- An almost certain element ------------------------------------------------------------------------------------- */

static void expect_near(const grid *got, const double *wanted, double share, const char *what) {
    for (int j = 0; j < 3; j++) {
        const double v = grid_get(got, 0, j);
        expect(fabs(v - wanted[j]) <= share * fabs(wanted[j]), "%s of %s [%d] is %.9g, not %.9g", what,
               napier_dtype_name(got->view.dtype), j, v, wanted[j]);
    }
}

/* Rows [top, 0, -1], and the gradient 1 of the first element: p (1 - p), -p p_j of softmax; 1 - p, -p_j of log_softmax. */
static void test_certain(napier_context *context) {
    static const napier_dtype dtypes[] = {NAPIER_F32, NAPIER_F16, NAPIER_BF16, NAPIER_F64};
    static const double share[] = {1e-6, 4e-3, 2e-2, 1e-14}, top[] = {20, 7, 20, 60};
    for (int d = 0; d < 4; d++) {
        const double b = exp(-top[d]), c = exp(-top[d] - 1), sum = 1 + b + c, p = 1 / sum, o = (b + c) / sum;
        const double of_softmax[] = {p * o, -p * b / sum, -p * c / sum}, of_log[] = {o, -b / sum, -c / sum};
        grid x = grid_plain(1, 3, dtypes[d]), y = grid_plain(1, 3, dtypes[d]), g = grid_plain(1, 3, dtypes[d]);
        grid out = grid_plain(1, 3, dtypes[d] == NAPIER_F64 ? NAPIER_F64 : NAPIER_F32);
        grid_set_row(&x, 0, (const double[]){top[d], 0, -1});
        grid_set_row(&g, 0, (const double[]){1, 0, 0});
        works(napier_softmax, context, grid_input(&x), y.view, NULL);
        works(napier_softmax_backward, context, grid_input(&y), grid_input(&g), out.view, NULL);
        expect_near(&out, of_softmax, share[d], "softmax_backward");
        if (dtypes[d] == NAPIER_F32 || dtypes[d] == NAPIER_F64) { /* 16 bits round the log-probabilities */
            works(napier_log_softmax, context, grid_input(&x), y.view, NULL);
            works(napier_log_softmax_backward, context, grid_input(&y), grid_input(&g), out.view, NULL);
            expect_near(&out, of_log, share[d], "log_softmax_backward");
        }
    }
}

/* ---- Terms of derivatives ------------------------------------------------------------------------------------------- */

static napier_vector column_of(const grid *g) {
    return (napier_vector){g->view.data, g->view.rows, g->view.row_stride, g->view.dtype};
}

/* Against long double; where a is 0, b is NaN. The scalar kernels on one thread give the same bits, of any layout. */
static void check_dots(napier_context *context, int64_t cols, napier_dtype in, napier_dtype out, int seed) {
    enum { ROWS = 5 };
    rng r = rng_make((uint64_t)seed);
    const layout l = (layout)(seed % LAYOUTS);
    grid a = grid_make(l, ROWS, cols, in), b = grid_plain(ROWS, cols, in), plain = grid_plain(ROWS, cols, in);
    grid dots = grid_make(l, ROWS, 1, out), again = grid_plain(ROWS, 1, out);
    for (int64_t i = 0; i < ROWS * cols; i++) {
        const bool none = i % 7 == 3;
        grid_set(&a, i / cols, i % cols, none ? 0.0 : rng_normal(&r));
        grid_set(&plain, i / cols, i % cols, grid_get(&a, i / cols, i % cols));
        grid_set(&b, i / cols, i % cols, none ? (double)NAN : rng_normal(&r));
    }
    works(napier_dot_rows, context, grid_input(&a), grid_input(&b), column_of(&dots));
    works(napier_dot_rows, context_for_test(NAPIER_ISA_SCALAR, 1), grid_input(&plain), grid_input(&b),
          column_of(&again));
    expect(grid_damage(&dots) == 0, "%d columns: wrote beside dots", (int)cols);
    for (int64_t i = 0; i < ROWS; i++) {
        long double sum = 0, size = 0;
        for (int64_t j = 0; j < cols; j++) {
            const long double x = (long double)grid_get(&a, i, j);
            sum += x == 0 ? 0 : x * (long double)grid_get(&b, i, j);
            size += x == 0 ? 0 : fabsl(x * (long double)grid_get(&b, i, j));
        }
        const long double bound =
            ROUNDINGS * ldexpl(size, -dtype_precision(compute_dtype(in, out))) + dtype_ulp(out, sum);
        expect(oracle_within(grid_get(&dots, i, 0), sum, bound, out), "%d columns of %s: the dot is %.9g, not %.9Lg",
               (int)cols, napier_dtype_name(in), grid_get(&dots, i, 0), sum);
        expect(grid_get(&dots, i, 0) == grid_get(&again, i, 0), "%d columns: other bits", (int)cols);
    }
}

static void test_dots(napier_context *context) {
    static const int64_t cols[] = {0, 1, 33, 1024, 1025, 20000};
    static const napier_dtype dtypes[] = {NAPIER_F32, NAPIER_F16, NAPIER_BF16, NAPIER_F64};
    for (int i = 0; i < 24; i++) {
        check_dots(context, cols[i % 6], dtypes[i / 6], dtypes[i % 5 % 4], i);
    }
    float x[6] = {0};
    const napier_const_matrix m = napier_const_rows_f32(x, 2, 2);
    invalid(context, napier_dot_rows(context, m, m, napier_array_f32(x + 4, 1)), "dots", "1");
    invalid(context, napier_dot_rows(context, m, m, napier_array_f32(x + 3, 2)), "dots", "overlaps");
    invalid(context, napier_dot_rows(context, m, napier_const_rows_f32(x, 1, 2), napier_array_f32(x + 4, 2)), "b",
            "1 x 2");
}

/* The functions of core/math/f64.h (tests/unit/core/test_f64.c), rounded once, with strides and in place. */
static void test_exp_and_log(napier_context *context) {
    enum { N = 3000 };
    static double x[2 * N], y[N];
    static float narrow[N];
    rng r = rng_make(5);
    for (int i = 0; i < N; i++) {
        x[2 * i] = i == 0 ? -HUGE_VAL : i == 1 ? (double)NAN : i == 2 ? -0.0 : 400 * rng_normal(&r);
    }
    const napier_const_vector in = {x, N, 2, NAPIER_F64};
    works(napier_exp, context, in, napier_array(y, N, NAPIER_F64));
    works(napier_exp, context, in, napier_array_f32(narrow, N));
    for (int i = 0; i < N; i++) {
        const double wanted = napier_f64_exp(x[2 * i]);
        const float rounded = (float)wanted;
        expect(memcmp(&y[i], &wanted, sizeof wanted) == 0 && (isnan(rounded) || narrow[i] == rounded),
               "exp(%g) is %g and %g", x[2 * i], y[i], (double)narrow[i]);
    }
    works(napier_log, context, napier_const_array(y, N, NAPIER_F64), napier_array(y, N, NAPIER_F64));
    for (int i = 0; i < N; i++) {
        const double wanted = napier_f64_log(napier_f64_exp(x[2 * i]));
        expect(memcmp(&y[i], &wanted, sizeof wanted) == 0, "log(exp(%g)) is %g", x[2 * i], y[i]);
    }
    invalid(context, napier_exp(context, in, napier_array(y, N - 1, NAPIER_F64)), "y", "2999");
    invalid(context, napier_log(context, in, napier_array(x, N, NAPIER_F64)), "y", "overlaps");
}

int main(void) {
    return RUN_TESTS("gradients", TEST_EACH_ISA(1, test_certain), TEST_2(test_formulas), TEST_2(test_all_is_one_row),
                     TEST_1(test_finite_differences), TEST(test_gradient_bits), TEST_1(test_gradient_edges),
                     TEST_1(test_gradients_add_up_to_zero), TEST_2(test_callers_rounding_does_not_matter),
                     TEST_1(test_bad_gradient_arguments), TEST_EACH_ISA(3, test_dots), TEST_2(test_exp_and_log));
}
