/* golden_layers - the bits of the steps of a layer and of their gradients, against a committed table
 * (support/golden_table.h). */
#include <napier/layers.h>

#include "bits/golden_numbers.h"

static const napier_dtype dtypes[] = {NAPIER_F32, NAPIER_F16, NAPIER_BF16};

static napier_const_matrix given(int64_t rows, int64_t cols, napier_dtype dtype, double middle, double scale) {
    return napier_const_rows(numbers(rows * cols, dtype, middle, scale), rows, cols, dtype);
}
static napier_matrix made(int64_t rows, int64_t cols, napier_dtype dtype) {
    return napier_rows(golden_room(rows * cols, napier_dtype_size(dtype)), rows, cols, dtype);
}
static uint64_t hash(uint64_t basis, napier_matrix m) { return hash_elements(basis, m.data, m.dtype, m.rows * m.cols); }

static void rms_norm(int64_t rows, int64_t cols, napier_dtype in, napier_dtype out) {
    state = 88172645463325252u + (uint64_t)(rows * 1000003 + cols);
    const napier_const_matrix x = given(rows, cols, in, 0.0, 2.0), grad = given(rows, cols, in, 0.0, 1.0);
    const napier_const_vector weight = napier_const_array(numbers(cols, in, 1.0, 0.5), cols, in);
    const napier_matrix y = made(rows, cols, out), to_x = made(rows, cols, out), to_weight = made(1, cols, out);
    golden_demand(napier_rms_norm(golden_context, x, weight, y, NULL));
    golden_demand(
        napier_rms_norm_backward(golden_context, grad, x, weight, to_x, napier_array(to_weight.data, cols, out), NULL));
    golden_line(hash(hash(hash(GOLDEN_BASIS, y), to_x), to_weight), "rms_norm:%s:%s:%dx%d", napier_dtype_name(in),
                napier_dtype_name(out), (int)rows, (int)cols);
}

static void swiglu(int64_t rows, int64_t cols, napier_dtype in, napier_dtype out) {
    state = 362436069u + (uint64_t)(rows * 1000003 + cols);
    const napier_const_matrix gate = given(rows, cols, in, 0.0, 20.0), up = given(rows, cols, in, 0.0, 2.0);
    const napier_const_matrix grad = given(rows, cols, in, 0.0, 1.0);
    const napier_matrix y = made(rows, cols, out), to_gate = made(rows, cols, out), to_up = made(rows, cols, out);
    golden_demand(napier_swiglu(golden_context, gate, up, y));
    golden_demand(napier_swiglu_backward(golden_context, grad, gate, up, to_gate, to_up));
    golden_line(hash(hash(hash(GOLDEN_BASIS, y), to_gate), to_up), "swiglu:%s:%s:%dx%d", napier_dtype_name(in),
                napier_dtype_name(out), (int)rows, (int)cols);
}

/* The rotation of heads by the angles of their positions, with each scaling of the frequencies. */
static void rotary(int64_t tokens, int64_t dim, napier_dtype in, napier_dtype out, int64_t scaling) {
    enum { HEADS = 3 };
    napier_rotary_options o = NAPIER_ROTARY_OPTIONS_INIT;
    o.theta = 5e5;
    o.scaling = scaling;
    o.factor = 8.0;
    o.original_max_position_embeddings = 256;
    double scale = 0.0;
    int64_t *const positions = golden_room(tokens, sizeof *positions);
    for (int64_t t = 0; t < tokens; t++) {
        positions[t] = t * t * 37;
    }
    state = 521288629u + (uint64_t)(tokens * 1000003 + dim);
    const napier_matrix inverse = made(1, dim / 2, NAPIER_F32), cosines = made(tokens, dim / 2, NAPIER_F32);
    const napier_matrix sines = made(tokens, dim / 2, NAPIER_F32), y = made(tokens, HEADS * dim, out);
    const napier_const_matrix x = given(tokens, HEADS * dim, in, 0.0, 2.0);
    const napier_const_heads from = {x.data, tokens, HEADS, dim, HEADS * dim, dim, 1, in};
    const napier_heads to = {y.data, tokens, HEADS, dim, HEADS * dim, dim, 1, out};
    golden_demand(napier_rotary_frequencies(golden_context, &o, napier_array_f32(inverse.data, dim / 2), &scale));
    golden_demand(napier_rotary_angles(golden_context, napier_const_array_f32(inverse.data, dim / 2), scale,
                                       napier_indices_i64(positions, tokens), cosines, sines));
    golden_demand(napier_rotary(golden_context, from, napier_read_only(cosines), napier_read_only(sines), to));
    const uint64_t forward = hash(hash(hash(hash(GOLDEN_BASIS, inverse), cosines), sines), y);
    golden_demand(napier_rotary_backward(golden_context, from, napier_read_only(cosines), napier_read_only(sines), to));
    golden_line(hash(forward, y), "rotary%d:%s:%s:%dx%d", (int)scaling, napier_dtype_name(in), napier_dtype_name(out),
                (int)tokens, (int)dim);
}

static void all_cases(int quick) {
    for (int d = 0; d < 9; d++) {
        rms_norm(3, 100, dtypes[d / 3], dtypes[d % 3]);
        swiglu(3, 100, dtypes[d / 3], dtypes[d % 3]);
        rotary(5, 36, dtypes[d / 3], dtypes[d % 3], d % 4);
    }
    for (int scaling = 0; scaling < 4; scaling++) {
        rotary(40, 128, NAPIER_F32, NAPIER_F32, scaling);
    }
    rms_norm(40, 1024, NAPIER_BF16, NAPIER_F32);
    swiglu(7, 3000, NAPIER_F32, NAPIER_BF16);
    if (!quick) {
        rms_norm(2000, 1025, NAPIER_F32, NAPIER_F32);
        swiglu(300, 1025, NAPIER_BF16, NAPIER_F32);
    }
}

int main(int count, char **words) { return golden_main("golden_layers", count, words, all_cases); }
