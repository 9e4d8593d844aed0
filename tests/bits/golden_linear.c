/* golden_linear - the bits of matrix products and of log-probabilities from hidden states, against a committed table
 * (support/golden_table.h). */
#include <stdio.h>

#include <napier/linear.h>
#include <napier/rl.h>

#include "golden_numbers.h"

/* ---- Numbers ----------------------------------------------------------------------------------------------------- */

/* Every third element is moved by up to 2^(+-range): sums that cancel, and subnormal products. */
static void spread(void *x, napier_dtype dtype, int64_t count, int range) {
    for (int64_t i = 0; i < count; i += 3) {
        double value = element_get(x, dtype, i);
        for (int e = (int)(next_bits() % (unsigned)(2 * range)) - range; e != 0; e += e < 0 ? 1 : -1) {
            value *= e < 0 ? 0.5 : 2.0;
        }
        element_set(x, dtype, i, value);
    }
}

/* ---- Cases ------------------------------------------------------------------------------------------------------- */

/* range: of exponents; 0: ordinary numbers. turned: b is stored as [n, k]. */
static void product(int64_t m, int64_t k, int64_t n, napier_dtype a_type, napier_dtype b_type, int range, int turned) {
    state = 88172645463325252u + (uint64_t)(m * 1000003 + k * 1009 + n);
    void *a = numbers(m * k, a_type, 0.0, 1.0), *b = numbers(k * n, b_type, 0.0, 1.0);
    float *c = golden_room(m * n, sizeof *c);
    if (range > 0) {
        spread(a, a_type, m * k, range);
        spread(b, b_type, k * n, range);
    }
    const napier_const_matrix stored =
        turned ? napier_const_transposed(napier_const_rows(b, n, k, b_type)) : napier_const_rows(b, k, n, b_type);
    golden_demand(napier_matmul(golden_context, napier_const_rows(a, m, k, a_type), stored, napier_rows_f32(c, m, n)));
    golden_line(hash_elements(GOLDEN_BASIS, c, NAPIER_F32, m * n), "product:%s:%s:%dx%dx%d:%d%s",
                napier_dtype_name(a_type), napier_dtype_name(b_type), (int)m, (int)k, (int)n, range, turned ? "t" : "");
}

/* Multiplies activations [m, k] of `type` with weights [n, k] of bf16; first: the weights are the first operand. */
static void split(int64_t m, int64_t k, int64_t n, napier_dtype type, int range, int first) {
    state = 2463534242u + (uint64_t)(m * 1000003 + k * 1009 + n);
    void *a = numbers(m * k, type, 0.0, 1.0), *b = numbers(n * k, NAPIER_BF16, 0.0, 1.0);
    float *c = golden_room(m * n, sizeof *c);
    if (range > 0) {
        spread(a, type, m * k, range);
        spread(b, NAPIER_BF16, n * k, range);
    }
    const napier_const_matrix x = napier_const_rows(a, m, k, type), w = napier_const_rows(b, n, k, NAPIER_BF16);
    golden_demand(first ? napier_matmul_split(golden_context, w, napier_const_transposed(x), napier_rows_f32(c, n, m))
                        : napier_matmul_split(golden_context, x, napier_const_transposed(w), napier_rows_f32(c, m, n)));
    golden_line(hash_elements(GOLDEN_BASIS, c, NAPIER_F32, m * n), "split:%s:%dx%dx%d:%d%s", napier_dtype_name(type),
                (int)m, (int)k, (int)n, range, first ? "w" : "");
}

static void head_of(int64_t rows, int64_t hidden, int64_t vocabulary, napier_dtype dtype, napier_dtype weights_dtype) {
    const char *const name = dtype == weights_dtype ? napier_dtype_name(dtype) : "split";
    napier_token_options options = NAPIER_TOKEN_OPTIONS_INIT;
    options.split = dtype != weights_dtype;
    state = 362436069 + (uint64_t)(rows + hidden * 1000 + vocabulary);
    void *x = numbers(rows * hidden, dtype, 0.0, 1.0), *w = numbers(vocabulary * hidden, weights_dtype, 0.0, 0.5);
    int64_t *ids = golden_room(rows, sizeof *ids), *ranks = golden_room(rows, sizeof *ranks);
    float *results = golden_room(3 * rows, sizeof *results), *grad_x = golden_room(rows * hidden, sizeof *grad_x);
    float *grad_w = golden_room(vocabulary * hidden, sizeof *grad_w);
    for (int64_t i = 0; i < rows; i++) {
        ids[i] = (int64_t)(next_bits() % (uint64_t)vocabulary);
    }
    napier_token_results r = NAPIER_TOKEN_RESULTS_INIT;
    r.logprobs = napier_rows_f32(results, rows, 1);
    r.lse = napier_array_f32(results + rows, rows);
    r.entropy = napier_array_f32(results + 2 * rows, rows);
    r.rank = ranks;
    const napier_const_matrix states = napier_const_rows(x, rows, hidden, dtype);
    const napier_const_matrix weights = napier_const_rows(w, vocabulary, hidden, weights_dtype);
    const napier_indices chosen = napier_indices_i64(ids, rows);
    golden_demand(napier_linear_token_logprobs(golden_context, states, weights, chosen, &options, &r));
    napier_token_gradients g = NAPIER_TOKEN_GRADIENTS_INIT;
    g.logprobs = napier_const_rows_f32(results, rows, 1);
    g.entropy = napier_const_array_f32(results + rows, rows);
    golden_demand(napier_linear_token_logprobs_backward(golden_context, states, weights, chosen, &options, &g,
                                                        napier_rows_f32(grad_x, rows, hidden),
                                                        napier_rows_f32(grad_w, vocabulary, hidden)));
    golden_line(hash_integers(hash_elements(GOLDEN_BASIS, results, NAPIER_F32, 3 * rows), ranks, rows),
                "head:%s:%dx%dx%d", name, (int)rows, (int)hidden, (int)vocabulary);
    golden_line(hash_elements(hash_elements(GOLDEN_BASIS, grad_x, NAPIER_F32, rows * hidden), grad_w, NAPIER_F32,
                              vocabulary * hidden),
                "head_backward:%s:%dx%dx%d", name, (int)rows, (int)hidden, (int)vocabulary);
}

static void head(int64_t rows, int64_t hidden, int64_t vocabulary, napier_dtype dtype) {
    head_of(rows, hidden, vocabulary, dtype, dtype);
}

static void all_cases(int quick) {
    static const napier_dtype dtypes[] = {NAPIER_F32, NAPIER_F16, NAPIER_BF16};
    for (int d = 0; d < 9; d++) {
        product(5, 70, 33, dtypes[d % 3], dtypes[d / 3], 0, d % 2);
    }
    for (int range = 8; range <= 75; range += 67) {
        product(3, 200, 50, NAPIER_BF16, NAPIER_BF16, range, 1);
        product(20, 100, 40, NAPIER_BF16, NAPIER_BF16, range, 1);
        product(20, 100, 40, NAPIER_F32, NAPIER_F32, range, 0);
    }
    for (int d = 0; d < 3; d++) {
        head(3, 40, 1100, dtypes[d]);
        head(20, 9, 300, dtypes[d]);
    }
    for (int d = 0; d < 3 && !quick; d++) {
        product(300, 700, 150, dtypes[d], dtypes[d], 0, 1);
        head(270, 33, 2100, dtypes[d]);
    }
    for (int range = 0; range <= 75; range += 25) {
        split(1, 200, 50, NAPIER_F32, range, 0);
        split(2, 100, 40, NAPIER_F32, range, 1);
        split(20, 100, 40, range == 0 ? NAPIER_F16 : NAPIER_F32, range == 0 ? 0 : range, range % 2);
        split(70, 90, 33, NAPIER_F32, range, 0);
    }
    head_of(3, 40, 1100, NAPIER_F32, NAPIER_BF16);
    head_of(70, 33, 300, NAPIER_F32, NAPIER_BF16);
    if (!quick) {
        split(300, 700, 150, NAPIER_F32, 0, 0);
    }
}

int main(int count, char **words) { return golden_main("golden_linear", count, words, all_cases); }
