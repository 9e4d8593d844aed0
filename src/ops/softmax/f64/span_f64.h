/* ops/softmax/f64/span_f64.h - consecutive elements of a view as doubles, and the division of lines over threads.
 *
 * A line is what one reduction runs over: a row of a matrix, or all its elements in row-major order. Its elements are
 * numbered from 0, and a tile is 1024 of them. */
#ifndef NAPIER_OPS_SOFTMAX_F64_SPAN_F64_H
#define NAPIER_OPS_SOFTMAX_F64_SPAN_F64_H

#include "core/base/parallel.h"
#include "core/base/view.h"
#include "core/math/f64.h"
#include "ops/softmax/f64/sum_f64.h"

enum {
    NAPIER_F64_SPLIT_TILES = 16, /* a line of so many tiles is worth splitting if there are fewer lines than threads */
    NAPIER_F64_CHUNK_TILES = 4   /* tiles in one chunk of work */
};

static inline void *napier_f64_row_data(const void *data, napier_dtype dtype, int64_t row, int64_t row_stride) {
    return (void *)((uintptr_t)data + (uintptr_t)(row * row_stride * (int64_t)napier_dtype_size(dtype)));
}

/* Row i of a matrix as a line. */
static inline napier_const_matrix napier_f64_row_of(napier_const_matrix m, int64_t i) {
    return (napier_const_matrix){
        napier_f64_row_data(m.data, m.dtype, i, m.row_stride), 1, m.cols, 0, m.col_stride, m.dtype};
}

static inline napier_matrix napier_f64_row_of_out(napier_matrix m, int64_t i) {
    return (napier_matrix){napier_f64_row_data(m.data, m.dtype, i, m.row_stride), 1, m.cols, 0, m.col_stride, m.dtype};
}

/* Elements first .. first + n - 1 of a line, each divided by the temperature. */
static inline void napier_f64_load_span(napier_const_matrix line, double temperature, int64_t first, int n, double *z) {
    int64_t row = first / line.cols, col = first % line.cols;
    for (int k = 0; k < n; row++, col = 0) {
        const void *data = napier_f64_row_data(line.data, line.dtype, row, line.row_stride);
        const int64_t left = line.cols - col, count = left < n - k ? left : n - k;
        if (line.dtype == NAPIER_F64 && line.col_stride == 1) {
            memcpy(z + k, (const double *)data + col, (size_t)count * sizeof *z);
        }
        for (int64_t i = 0; i < count && !(line.dtype == NAPIER_F64 && line.col_stride == 1); i++) {
            z[k + i] = napier_f64_load(data, line.dtype, (col + i) * line.col_stride);
        }
        k += (int)count;
    }
    for (int k = 0; k < n && temperature != 1; k++) {
        z[k] /= temperature;
    }
}

/* Contiguous doubles, as napier_f64_store. */
static inline void napier_f64_store_run(double *y, int n, const double *z) {
    for (int i = 0; i < n; i++) {
        y[i] = z[i] == z[i] ? z[i] : napier_f64_nan();
    }
}

static inline void napier_f64_store_span(napier_matrix line, int64_t first, int n, const double *z) {
    int64_t row = first / line.cols, col = first % line.cols;
    for (int k = 0; k < n; row++, col = 0) {
        void *data = napier_f64_row_data(line.data, line.dtype, row, line.row_stride);
        if (line.dtype == NAPIER_F64 && line.col_stride == 1) {
            const int64_t left = line.cols - col;
            const int count = left < n - k ? (int)left : n - k;
            napier_f64_store_run((double *)data + col, count, z + k);
            k += count;
            continue;
        }
        for (; k < n && col < line.cols; k++, col++) {
            napier_f64_store(data, line.dtype, col * line.col_stride, z[k]);
        }
    }
}

static inline int64_t napier_f64_tiles(int64_t size) { return size / NAPIER_F64_TILE + (size % NAPIER_F64_TILE != 0); }

/* The number of elements in tile `tile` of a line of `size`. */
static inline int napier_f64_tile_size(int64_t size, int64_t tile) {
    const int64_t left = size - tile * NAPIER_F64_TILE;
    return left < NAPIER_F64_TILE ? (int)left : NAPIER_F64_TILE;
}

/* Is it better to use the threads inside each line than on different lines? The bits are the same either way. */
static inline bool napier_f64_split(const napier_context *context, int64_t lines, int64_t size,
                                    napier_algorithm algorithm) {
    const int64_t tiles = napier_f64_tiles(size);
    return context->threads > 1 &&
           (algorithm == NAPIER_ALGORITHM_PARALLEL ? tiles > 1
                                                   : lines < context->threads && tiles >= NAPIER_F64_SPLIT_TILES);
}

/* Lines in one chunk of work: about four tiles' elements. */
static inline int64_t napier_f64_lines_chunk(int64_t size) {
    const int64_t elements = NAPIER_F64_CHUNK_TILES * NAPIER_F64_TILE;
    return size >= elements ? 1 : size > 0 ? elements / size : elements;
}

#endif
