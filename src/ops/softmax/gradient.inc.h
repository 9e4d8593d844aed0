/* ops/softmax/gradient.inc.h - the kernels of the gradients. Compiled once per instruction set.
 *
 * A gradient needs the sum of a row, whose terms have both signs, so the exact sum of sum.h cannot be used. A tile of
 * 1024 is added in 256 lanes (fma for products), which are folded by halves. The tiles' sums are added in double in
 * order of their index, and a row stays on one thread. */
#ifndef NAPIER_OPS_SOFTMAX_GRADIENT_INC_H
#define NAPIER_OPS_SOFTMAX_GRADIENT_INC_H

#include "ops/softmax/columns.inc.h"
#include "ops/softmax/long_rows.inc.h"
#include "ops/softmax/weighted.inc.h"

/* Element i of row `row` of a matrix that is f32, f16 or bf16. */
NAPIER_KERNEL const void *element_in(napier_const_matrix m, int64_t row, int64_t i) {
    return napier_at(m.data, m.dtype, row * m.row_stride + i * m.col_stride);
}

/* n <= 1024 elements as contiguous floats: the memory itself if it is contiguous f32, otherwise `room`. */
NAPIER_KERNEL const float *floats_of(napier_const_matrix m, int64_t row, int64_t i, int n, float *room) {
    return napier_look(element_in(m, row, i), m.dtype, m.col_stride, 1.0f, n, room).z;
}

/* The sum of a * b, or of a if b is NULL. Where a is 0 (a masked position), b is ignored, whatever it is. *most becomes the
 * largest of it and of a, by lanes. */
NAPIER_KERNEL float dot_tile_and_max(const float *a, const float *b, int n, vf *most) {
    vf lane[16];
    for (int v = 0; v < 16; v++) {
        vf sum = vf_zero();
        for (int i = v * 16; i < n; i += NAPIER_TILE_LANES) {
            const bool whole = i + 16 <= n;
            const vf x = whole ? vf_load(a + i) : vf_load_part(a + i, n - i, vf_zero());
            if (b) {
                const vf y = whole ? vf_load(b + i) : vf_load_part(b + i, n - i, vf_zero());
                sum = vf_fma(x, vf_select(vf_eq(x, vf_zero()), vf_zero(), y), sum);
                *most = vf_max(x, *most);
            } else {
                sum = vf_add(sum, x);
            }
        }
        lane[v] = sum;
    }
    return vf_hadd(napier_fold_lanes(lane, 16));
}

NAPIER_KERNEL float napier_dot_tile(const float *a, const float *b, int n) {
    vf most = vf_zero();
    return dot_tile_and_max(a, b, n, &most);
}

/* The sums of a tile of probabilities p and their gradients g, with certain elements apart. */
static napier_certain_sums certain_tile(const float *p, const float *g, int n) {
    float rest[NAPIER_TILE] = {0}, certain[NAPIER_TILE] = {0};
    for (int i = 0; i < n; i++) {
        *(p[i] > NAPIER_CERTAIN ? certain + i : rest + i) = p[i];
    }
    return (napier_certain_sums){(double)napier_dot_tile(certain, g, n), (double)napier_dot_tile(rest, g, n),
                                 (double)napier_dot_tile(rest, NULL, n)};
}

static napier_certain_sums sums_with_certain(napier_const_matrix p, napier_const_matrix g, int64_t row, int64_t begin,
                                             int64_t end, float *scratch) {
    napier_certain_sums sums = {0, 0, 0};
    for (int64_t i = begin; i < end; i += NAPIER_TILE) {
        const int n = napier_tile_at(i, end);
        const napier_certain_sums tile =
            certain_tile(floats_of(p, row, i, n, scratch), floats_of(g, row, i, n, scratch + NAPIER_TILE), n);
        napier_certain_sums_add(&sums, &tile);
    }
    return sums;
}

NAPIER_SLOT napier_certain_sums gradient_sums(bool log, bool parts, napier_const_matrix values,
                                              napier_const_matrix gradients, int64_t row, int64_t begin, int64_t end,
                                              float *scratch) {
    napier_certain_sums sums = {0, 0, 0};
    vf most = vf_zero();
    for (int64_t i = begin; i < end; i += NAPIER_TILE) {
        const int n = napier_tile_at(i, end);
        const float *g = floats_of(gradients, row, i, n, scratch);
        sums.rest += (double)(log ? napier_dot_tile(g, NULL, n)
                                  : dot_tile_and_max(floats_of(values, row, i, n, scratch + NAPIER_TILE), g, n, &most));
    }
    const bool certain = !log && (parts || vm_any(vf_lt(vf_set(NAPIER_CERTAIN), most)));
    return certain ? sums_with_certain(values, gradients, row, begin, end, scratch) : sums;
}

NAPIER_KERNEL vf gradient16(bool log, vf value, vf gradient, vf sum) {
    if (log) {
        return vf_fnma(vf_exp(value), sum, gradient);
    }
    const vm masked = vf_eq(value, vf_zero());
    return vf_select(masked, vf_zero(), vf_mul(value, vf_sub(gradient, sum)));
}

/* n <= 1024 contiguous elements; made may be either input. Returns the largest value of each lane. */
NAPIER_KERNEL vf gradient_tile(bool log, const float *x, const float *g, int n, float sum, float temperature,
                               float *made) {
    const vf s = vf_set(sum), t = vf_set(temperature), fill = vf_set(log ? -1.0f : 0.0f);
    vf most = fill;
    for (int j = 0; j < n; j += 16) {
        const bool whole = j + 16 <= n;
        const vf u = whole ? vf_load(x + j) : vf_load_part(x + j, n - j, fill);
        const vf w = whole ? vf_load(g + j) : vf_load_part(g + j, n - j, vf_zero());
        vf v = gradient16(log, u, w, s);
        v = temperature != 1.0f ? vf_div(v, t) : v;
        v = vf_select(vf_unordered(v, v), vf_canonical_nan(), v);
        most = log ? vf_max(u, most) : most;
        if (whole) {
            vf_store(made + j, v);
        } else {
            vf_store_part(made + j, n - j, v);
        }
    }
    return most;
}

/* Writes the certain elements of a tile. */
static void gradient_certain(bool log, const float *x, const float *g, int n, const napier_certain_sums *sums,
                             float temperature, float *made) {
    const double sum = (double)napier_certain_sum(sums);
    for (int i = 0; i < n; i++) {
        const double value = (double)x[i], grad = (double)g[i];
        if (log ? napier_is_certain_log(value) : x[i] > NAPIER_CERTAIN) {
            const double v =
                log ? napier_certain_log_gradient(value, grad, sum) : napier_certain_gradient(value, grad, sums);
            made[i] = (float)v / temperature;
            made[i] = made[i] == made[i] ? made[i] : napier_nan();
        }
    }
}

NAPIER_KERNEL void gradient_row(bool log, napier_const_matrix values, napier_const_matrix gradients, napier_matrix out,
                                int64_t row, const napier_certain_sums *sums, float temperature, float *scratch) {
    float *room_a = scratch, *room_b = scratch + NAPIER_TILE, *result = scratch + 2 * NAPIER_TILE;
    const bool in_place = out.dtype == NAPIER_F32 && out.col_stride == 1;
    for (int64_t i = 0; i < values.cols; i += NAPIER_TILE) {
        const int n = napier_tile_at(i, values.cols);
        const float *x = floats_of(values, row, i, n, room_a), *g = floats_of(gradients, row, i, n, room_b);
        void *const place = napier_at_out(out.data, out.dtype, row * out.row_stride + i * out.col_stride);
        float *const made = in_place ? place : result;
        const bool may = log || sums->prob != 0 || sums->certain != 0; /* can there be a certain element? */
        float kept[NAPIER_TILE], copy[NAPIER_TILE];
        if (may && (made == x || made == g)) {
            memcpy(kept, x, (size_t)n * sizeof *x);
            memcpy(copy, g, (size_t)n * sizeof *g);
            x = kept;
            g = copy;
        }
        const vf most = gradient_tile(log, x, g, n, napier_certain_sum(sums), temperature, made);
        if (may && (!log || vm_any(vf_lt(vf_set(NAPIER_CERTAIN_LOG), most)))) {
            gradient_certain(log, x, g, n, sums, temperature, made);
        }
        if (!in_place) {
            napier_scatter(result, n, place, out.dtype, out.col_stride, false);
        }
    }
}

NAPIER_SLOT void softmax_gradient(bool log, napier_const_matrix values, napier_const_matrix gradients,
                                  napier_matrix out, int64_t row, const napier_certain_sums *sums, float temperature,
                                  float *scratch) {
    if (log) {
        gradient_row(true, values, gradients, out, row, sums, temperature, scratch);
    } else {
        gradient_row(false, values, gradients, out, row, sums, temperature, scratch);
    }
}

#endif
