/* ops/layers/layer_rows.h - parts of rows as contiguous f32, which the kernels read and write. */
#ifndef NAPIER_OPS_LAYERS_LAYER_ROWS_H
#define NAPIER_OPS_LAYERS_LAYER_ROWS_H

#include "core/base/sizes.h"
#include "ops/isa/ops_kernels.h"

enum {
    NAPIER_LAYER_COLS = 1024, /* columns of a part, where a row is cut */
    NAPIER_LAYER_CHUNK = 8192 /* elements that a thread takes at a time */
};

/* How many items of so many elements a thread takes at a time. */
static inline int64_t napier_layer_chunk(int64_t elements) {
    return elements < NAPIER_LAYER_CHUNK ? NAPIER_LAYER_CHUNK / (elements > 0 ? elements : 1) : 1;
}

/* Floats of `cols` columns, filled up to whole vectors. */
static inline int64_t napier_layer_floats(int64_t cols) { return napier_round_up(cols, 16); }

/* Elements col .. col + cols - 1 of a row: where they lie, or in `room`. */
static inline const float *napier_layer_in(const napier_ops_kernels *kernels, const napier_const_matrix *m, int64_t row,
                                           int64_t col, int64_t cols, float *room) {
    if (m->dtype == NAPIER_F32 && m->col_stride == 1) {
        return (const float *)m->data + row * m->row_stride + col;
    }
    const int64_t floats = napier_layer_floats(cols);
    kernels->core->pack(m, row, 1, col, cols, false, room, floats, floats);
    return room;
}

/* Where a kernel writes such elements, and as which dtype. */
typedef struct napier_layer_place {
    void *data;
    napier_dtype dtype;
} napier_layer_place;

static inline napier_layer_place napier_layer_out(const napier_matrix *m, int64_t row, int64_t col, float *room) {
    const int64_t size = m->dtype == NAPIER_F32 ? 4 : 2;
    if (m->col_stride != 1) {
        return (napier_layer_place){room, NAPIER_F32};
    }
    return (napier_layer_place){(char *)m->data + (row * m->row_stride + col) * size, m->dtype};
}

/* Takes to the matrix what a kernel has written to room. */
static inline void napier_layer_put(const napier_ops_kernels *kernels, napier_matrix m, int64_t row, int64_t col,
                                    int64_t cols, const napier_layer_place *place, const float *room) {
    if (place->data == room) {
        kernels->core->unpack(room, napier_layer_floats(cols), 1, cols, m, row, col, false);
    }
}

#endif
