/* mpi/arguments_mpi.c - see arguments_mpi.h. */
#include "arguments_mpi.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static napier_status refuse(napier_context *context, const char *format, ...) {
    char text[300];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return napier_set_error(context, NAPIER_INVALID_ARGUMENT, text);
}

/* ---- Structs ----------------------------------------------------------------------------------------------------------- */

/* No struct of any version is larger. */
enum { LARGEST = 4096 };

napier_status read_struct(napier_context *context, const char *name, const char *init, const void *given, void *copy) {
    size_t size, known;
    if (!given) {
        return refuse(context, "%s: NULL", name);
    }
    memcpy(&size, given, sizeof size);
    memcpy(&known, copy, sizeof known);
    if (size < sizeof size || size > LARGEST || size % _Alignof(size_t) != 0) {
        return refuse(context, "%s: struct_size is %zu, which no version has; initialise the struct with %s", name,
                      size, init);
    }
    for (size_t i = known; i < size; i++) {
        if (((const unsigned char *)given)[i] != 0) {
            return refuse(context, "%s: struct_size is %zu, and byte %zu is not 0, but this version knows only %zu",
                          name, size, i, known);
        }
    }
    memcpy((char *)copy + sizeof size, (const char *)given + sizeof size, (size < known ? size : known) - sizeof size);
    return NAPIER_OK;
}

napier_status read_options(napier_context *context, const char *init, const void *given, void *copy) {
    return given ? read_struct(context, "options", init, given, copy) : NAPIER_OK;
}

/* ---- Matrices ---------------------------------------------------------------------------------------------------------- */

napier_status check_matrix(napier_context *context, const char *name, napier_const_matrix m) {
    const bool narrow = m.dtype == NAPIER_F32 || m.dtype == NAPIER_F16 || m.dtype == NAPIER_BF16;
    const char *what = m.rows < 0 || m.cols < 0                        ? "its shape is negative"
                       : !narrow                                       ? "its dtype is not f32, f16 or bf16"
                       : !m.data && m.rows > 0 && m.cols > 0           ? "is NULL"
                       : m.rows > 0 && m.cols > INT64_MAX / 8 / m.rows ? "is too large"
                                                                       : NULL;
    return what ? refuse(context, "%s: %s", name, what) : NAPIER_OK;
}

napier_status check_shape(napier_context *context, named m, int64_t rows, int64_t cols) {
    if (m.m.rows == rows && m.m.cols == cols) {
        return NAPIER_OK;
    }
    return refuse(context, "%s: shape %" PRId64 " x %" PRId64 " is not %" PRId64 " x %" PRId64, m.name, m.m.rows,
                  m.m.cols, rows, cols);
}

/* The bytes first .. last of a view, and the distance of its rows and columns without the sign. */
typedef struct extent {
    uint64_t first, last, row, col;
} extent;

static uint64_t magnitude(int64_t x) { return x < 0 ? 0 - (uint64_t)x : (uint64_t)x; }

/* false if the view leaves the address space. */
static bool find_extent(napier_const_matrix m, extent *e) {
    const uint64_t size = napier_dtype_size(m.dtype), limit = (uint64_t)INT64_MAX;
    const int64_t strides[2] = {m.row_stride, m.col_stride}, counts[2] = {m.rows, m.cols};
    uint64_t steps[2] = {0, 0};
    e->first = e->last = (uintptr_t)m.data;
    for (int d = 0; d < 2; d++) {
        const uint64_t stride = magnitude(strides[d]), most = (uint64_t)counts[d] - 1;
        if (most == 0) {
            continue;
        }
        if (stride > limit / size || (stride > 0 && most > limit / (stride * size))) {
            return false;
        }
        steps[d] = stride * size;
        const uint64_t reach = most * steps[d];
        if (strides[d] < 0 ? reach > e->first : reach > UINT64_MAX - e->last) {
            return false;
        }
        *(strides[d] < 0 ? &e->first : &e->last) += strides[d] < 0 ? 0 - reach : reach;
    }
    e->row = steps[0];
    e->col = steps[1];
    e->last += size - 1;
    return e->last >= size - 1;
}

/* Whether b's columns lie between those of a, in every row of one array. */
static bool are_beside(napier_const_matrix a, const extent *ea, napier_const_matrix b, const extent *eb) {
    const uint64_t pitch = ea->row > 0 ? ea->row : eb->row;
    const uint64_t width_a = (uint64_t)(a.cols - 1) * ea->col + napier_dtype_size(a.dtype);
    const uint64_t width_b = (uint64_t)(b.cols - 1) * eb->col + napier_dtype_size(b.dtype);
    if (pitch == 0 || (eb->row > 0 && eb->row != pitch) || width_a > pitch || width_b > pitch) {
        return false;
    }
    const uint64_t ahead =
        eb->first >= ea->first ? (eb->first - ea->first) % pitch : (pitch - (ea->first - eb->first) % pitch) % pitch;
    return ahead >= width_a && ahead + width_b <= pitch;
}

static bool is_empty(napier_const_matrix m) { return !m.data || m.rows <= 0 || m.cols <= 0; }

static bool overlap(napier_const_matrix a, napier_const_matrix b) {
    extent ea, eb;
    if (is_empty(a) || is_empty(b) || !find_extent(a, &ea) || !find_extent(b, &eb)) {
        return false;
    }
    return ea.first <= eb.last && eb.first <= ea.last && !are_beside(a, &ea, b, &eb);
}

static uint64_t gcd(uint64_t a, uint64_t b) {
    while (b != 0) {
        const uint64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

/* Elements meet where a step of col / g rows and row / g columns stays in the view. */
static bool meets_itself(napier_const_matrix m) {
    const uint64_t row = magnitude(m.row_stride), col = magnitude(m.col_stride);
    if ((m.rows > 1 && row == 0) || (m.cols > 1 && col == 0)) {
        return true;
    }
    if (m.rows <= 1 || m.cols <= 1) {
        return false;
    }
    const uint64_t g = gcd(row, col);
    return col / g < (uint64_t)m.rows && row / g < (uint64_t)m.cols;
}

napier_status check_output(napier_context *context, named out, const named *others, int count) {
    const napier_const_matrix m = out.m;
    extent e;
    const napier_status status = check_matrix(context, out.name, m);
    if (status || is_empty(m)) {
        return status;
    }
    if ((uintptr_t)m.data % napier_dtype_size(m.dtype) != 0) {
        return refuse(context, "%s: data %p is not aligned to its %s elements", out.name, m.data,
                      napier_dtype_name(m.dtype));
    }
    if (!find_extent(m, &e)) {
        return refuse(context, "%s: row_stride %" PRId64 " and col_stride %" PRId64 " leave the address space",
                      out.name, m.row_stride, m.col_stride);
    }
    if (meets_itself(m)) {
        return refuse(context,
                      "%s: row_stride %" PRId64 " and col_stride %" PRId64 " put two elements of %" PRId64 " x %" PRId64
                      " in one place",
                      out.name, m.row_stride, m.col_stride, m.rows, m.cols);
    }
    for (int i = 0; i < count; i++) {
        if (overlap(m, others[i].m)) {
            return refuse(context, "%s: data %p overlaps %s at %p", out.name, m.data, others[i].name, others[i].m.data);
        }
    }
    return NAPIER_OK;
}
