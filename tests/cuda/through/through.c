/* tests/cuda/through/through.c - see through.h. */
#include "through.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/context.h"

enum { MOST = 64 };

typedef struct visitor {
    unsigned char *host;
    size_t bytes;
    unsigned char *device;
    bool result;
} visitor;

static visitor visitors[MOST];
static int count;
static bool failed;
static napier_status found;

napier_cuda_context *through_context(void) {
    static napier_cuda_context *context;
    if (context == NULL) {
        device_wanted();
        if (napier_cuda_context_create(&context, -1) != NAPIER_OK) {
            fputs("tests: no context on the device\n", stderr);
            exit(2);
        }
    }
    return context;
}

static void *visit(const void *host, size_t bytes, bool result) {
    (void)through_context(); /* no device: the program ends here */
    unsigned char *const at = (unsigned char *)(uintptr_t)host;
    if (host == NULL || bytes == 0) {
        return (void *)(uintptr_t)host;
    }
    for (int i = 0; i < count; i++) {
        visitor *const v = &visitors[i];
        if (at < v->host + v->bytes && v->host < at + bytes) {
            if (at < v->host || at + bytes > v->host + v->bytes) {
                fputs("tests: two arrays of a call overlap in part\n", stderr);
                exit(2);
            }
            v->result |= result;
            return v->device + (at - v->host);
        }
    }
    if (count == MOST) {
        fputs("tests: a call with too many arrays\n", stderr);
        exit(2);
    }
    visitors[count] = (visitor){at, bytes, device_copy(host, bytes), result};
    return visitors[count++].device;
}

/* The bytes from a view's lowest element to the end of its highest, and how far the first element lies from the lowest. */
static void *visit_view(const void *data, int64_t rows, int64_t cols, int64_t row_stride, int64_t col_stride,
                        napier_dtype dtype, bool result) {
    const int64_t size = (int64_t)napier_dtype_size(dtype);
    if (data == NULL || rows <= 0 || cols <= 0 || size == 0) {
        return (void *)(uintptr_t)data;
    }
    const int64_t down = (rows - 1) * row_stride, across = (cols - 1) * col_stride;
    const int64_t low = (down < 0 ? down : 0) + (across < 0 ? across : 0);
    const int64_t high = (down > 0 ? down : 0) + (across > 0 ? across : 0);
    unsigned char *const first = visit((const char *)data + low * size, (size_t)((high - low + 1) * size), result);
    return first - low * size;
}

napier_const_matrix through_matrix(napier_const_matrix v) {
    v.data = visit_view(v.data, v.rows, v.cols, v.row_stride, v.col_stride, v.dtype, false);
    return v;
}
napier_matrix through_matrix_out(napier_matrix v) {
    v.data = visit_view(v.data, v.rows, v.cols, v.row_stride, v.col_stride, v.dtype, true);
    return v;
}
napier_const_vector through_vector(napier_const_vector v) {
    v.data = visit_view(v.data, 1, v.size, 0, v.stride, v.dtype, false);
    return v;
}
napier_vector through_vector_out(napier_vector v) {
    v.data = visit_view(v.data, 1, v.size, 0, v.stride, v.dtype, true);
    return v;
}
const void *through_array(const void *host, size_t bytes) { return visit(host, bytes, false); }
void *through_array_out(void *host, size_t bytes) { return visit(host, bytes, true); }

napier_indices through_indices(napier_indices ids) {
    ids.data = through_array(ids.data, (size_t)ids.size * (ids.type == NAPIER_I32 ? 4 : 8));
    return ids;
}

void through_wait(void) {
    found = napier_cuda_synchronize(through_context(), NULL);
    failed = found != NAPIER_OK;
}

napier_status through_end(napier_context *context, napier_status status) {
    if (status == NAPIER_OK && failed) {
        status = found;
    }
    failed = false;
    for (int i = 0; i < count; i++) {
        if (visitors[i].result) {
            device_read(visitors[i].host, visitors[i].device, visitors[i].bytes);
        }
        device_free(visitors[i].device);
    }
    count = 0;
    return status ? napier_fail(context, status, "%s", napier_cuda_last_error(through_context())) : status;
}
