/* core/base/view.h - checks the arguments of calls, for the CPU and for a GPU alike: views, whether two views overlap,
 * ids and offsets. Each check returns NAPIER_OK, or fails with a text that names the argument and its value. */
#ifndef NAPIER_CORE_BASE_VIEW_H
#define NAPIER_CORE_BASE_VIEW_H

#include <stdbool.h>

#include "core/base/context.h"

/* ---- Vectors as matrices, so that one kind of check and kernel serves both --------------------------------------- */

static inline napier_const_vector napier_read_only_vector(napier_vector v) {
    return (napier_const_vector){v.data, v.size, v.stride, v.dtype};
}
static inline napier_const_matrix napier_vector_row(napier_const_vector v) {
    return (napier_const_matrix){v.data, 1, v.size, 0, v.stride, v.dtype};
}
static inline napier_matrix napier_vector_row_out(napier_vector v) {
    return (napier_matrix){v.data, 1, v.size, 0, v.stride, v.dtype};
}
/* One element per row of a matrix. */
static inline napier_const_matrix napier_const_column(napier_const_vector v) {
    return (napier_const_matrix){v.data, v.size, 1, v.stride, 1, v.dtype};
}
static inline napier_matrix napier_column(napier_vector v) {
    return (napier_matrix){v.data, v.size, 1, v.stride, 1, v.dtype};
}

/* ---- The arguments of a call ------------------------------------------------------------------------------------- */

enum {
    NAPIER_IS_OUT = 1,         /* written: it shares no byte with another argument, nor its elements with each other */
    NAPIER_IS_VECTOR = 2,      /* messages name its size and stride, as those of a vector */
    NAPIER_IS_NARROW = 4,      /* f32, f16 or bf16 */
    NAPIER_IS_F32 = 8,         /* f32 */
    NAPIER_IS_HEADS = 16,      /* there is a third axis: [tokens, heads, dim] */
    NAPIER_MAY_BE_ABSENT = 32, /* with data NULL, and then nothing is checked */
    NAPIER_MAY_BE_OUT = 64     /* an output may be exactly this view (data, dtype and strides): in place */
};

typedef struct napier_argument {
    const char *name;
    napier_const_matrix view; /* a vector is one row or one column */
    unsigned is;              /* bits from above */
    int64_t rows, cols;       /* the shape that it must have */
    const char *like;         /* the argument that has this shape, for the message; or NULL */
    int64_t dim, dim_stride;  /* the third axis, ... */
    int64_t dims;             /* ... and the size that it must have */
    size_t element;           /* bytes of an element; 0: those of the dtype */
} napier_argument;

/* A matrix in a table of arguments. */
#define NAPIER_ARGUMENT(name_, view_, is_, rows_, cols_, like_) \
    { .name = name_, .view = view_, .is = is_, .rows = rows_, .cols = cols_, .like = like_ }

static inline napier_argument napier_row_argument(const char *name, napier_const_vector v, unsigned is, int64_t size) {
    return (napier_argument){
        .name = name, .view = napier_vector_row(v), .is = NAPIER_IS_VECTOR | is, .rows = 1, .cols = size};
}
static inline napier_argument napier_column_argument(const char *name, napier_const_vector v, unsigned is,
                                                     int64_t size) {
    return (napier_argument){
        .name = name, .view = napier_const_column(v), .is = NAPIER_IS_VECTOR | is, .rows = size, .cols = 1};
}

/* Checks each argument, then each output against all other arguments. The check is exact for any strides: two
 * interleaved halves of one array do not overlap. */
napier_status napier_check_arguments(napier_context *context, const napier_argument *all, size_t count);

/* ---- One or two arguments: the same checks ----------------------------------------------------------------------- */

/* The shape is not negative, the dtype is known, the data are not NULL and aligned, and every address
 * is representable. */
napier_status napier_check_matrix(napier_context *context, const char *name, napier_const_matrix view);
napier_status napier_check_vector(napier_context *context, const char *name, napier_const_vector view);

/* The same checks for an output. Also, no two of its elements may share memory. */
napier_status napier_check_matrix_out(napier_context *context, const char *name, napier_matrix view);
napier_status napier_check_vector_out(napier_context *context, const char *name, napier_vector view);

/* A vector of f32, f16 or bf16 with this size. Data NULL passes if `optional`. */
napier_status napier_check_tokens(napier_context *context, const char *name, napier_const_vector v, int64_t size,
                                  bool optional);

/* `out` must be exactly `in` or share no byte with it. Both have been checked. */
napier_status napier_check_alias(napier_context *context, const char *out_name, napier_matrix out, const char *in_name,
                                 napier_const_matrix in);

/* ---- Ids and offsets --------------------------------------------------------------------------------------------- */

/* Where ids and offsets lie. Only kernels can check those in a GPU's memory. */
typedef enum napier_place { NAPIER_ON_HOST, NAPIER_ON_DEVICE } napier_place;

static inline int64_t napier_index_at(napier_indices indices, int64_t i) {
    return indices.type == NAPIER_I32 ? ((const int32_t *)indices.data)[i] : ((const int64_t *)indices.data)[i];
}
/* The memory of integers as a vector whose elements are as wide, for the checks above. */
static inline napier_const_vector napier_indices_bytes(napier_indices indices) {
    return (napier_const_vector){indices.data, indices.size, 1, indices.type == NAPIER_I32 ? NAPIER_F32 : NAPIER_F64};
}

/* Integers in a table of arguments: a list that may be absent, and an array of `size` bytes an element. */
static inline napier_argument napier_indices_argument(const char *name, napier_indices indices) {
    return napier_row_argument(name, napier_indices_bytes(indices), NAPIER_MAY_BE_ABSENT, indices.size);
}
static inline napier_argument napier_integers_argument(const char *name, const void *data, int64_t count, size_t size,
                                                       unsigned is) {
    napier_argument argument = napier_row_argument(name, napier_const_array(data, count, NAPIER_F32), is, count);
    argument.element = size;
    return argument;
}

/* A failure's message names the index and the value. */
napier_status napier_check_indices(napier_context *context, const char *name, napier_indices indices);
/* `size` ids, each in 0 .. limit - 1. */
napier_status napier_check_ids_on(napier_context *context, napier_place place, const char *name, napier_indices ids,
                                  int64_t size, int64_t limit);
static inline napier_status napier_check_ids(napier_context *context, const char *name, napier_indices ids,
                                             int64_t size, int64_t limit) {
    return napier_check_ids_on(context, NAPIER_ON_HOST, name, ids, size, limit);
}
/* The offsets of responses with so many tokens together. */
napier_status napier_check_offsets_of(napier_context *context, const char *name, napier_indices offsets,
                                      int64_t tokens);
napier_status napier_check_offsets_on(napier_context *context, napier_place place, napier_indices offsets,
                                      int64_t tokens);
static inline napier_status napier_check_offsets(napier_context *context, napier_indices offsets, int64_t tokens) {
    return napier_check_offsets_of(context, "offsets", offsets, tokens);
}
/* The number of responses that offsets delimit; 0 for a size that cannot be, which the check below refuses. */
static inline int64_t napier_offset_lists(napier_indices offsets) { return offsets.size > 0 ? offsets.size - 1 : 0; }
/* There is at least one offset. Does not read the offsets. */
napier_status napier_check_offset_count(napier_context *context, const char *name, napier_indices offsets);

#endif
