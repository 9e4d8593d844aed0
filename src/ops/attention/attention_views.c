/* ops/attention/attention_views.c - checks of views with three axes. */
#include "ops/attention/attention_views.h"

#include <inttypes.h>
#include <stdbool.h>

#include "core/base/view.h"

/* ---- One view ---------------------------------------------------------------------------------------------------- */

typedef struct axis {
    uint64_t most, step; /* the last index; bytes, without the sign */
    bool backwards;
} axis;

static axis axis_of(int64_t count, int64_t stride, size_t size) {
    const uint64_t most = count > 0 ? (uint64_t)count - 1 : 0;
    const uint64_t magnitude = stride < 0 ? 0 - (uint64_t)stride : (uint64_t)stride;
    const axis a = {most, magnitude > UINT64_MAX / size ? UINT64_MAX : magnitude * size, stride < 0};
    return a;
}

static void axes_of(napier_const_heads x, size_t size, axis axes[3]) {
    axes[0] = axis_of(x.tokens, x.token_stride, size);
    axes[1] = axis_of(x.heads, x.head_stride, size);
    axes[2] = axis_of(x.dim, x.dim_stride, size);
}

/* The first and the last byte. False if an offset does not fit a ptrdiff_t or an address overflows. */
static bool find_range(napier_const_heads x, size_t size, uintptr_t *first, uintptr_t *last) {
    const uint64_t limit = (uint64_t)PTRDIFF_MAX / 4;
    uint64_t below = 0, above = size - 1;
    axis axes[3];
    axes_of(x, size, axes);
    for (int i = 0; i < 3; i++) {
        if (axes[i].most != 0 && axes[i].step > limit / axes[i].most) {
            return false;
        }
        const uint64_t reach = axes[i].most == 0 ? 0 : axes[i].most * axes[i].step;
        *(axes[i].backwards ? &below : &above) += reach;
    }
    const uintptr_t at = (uintptr_t)x.data;
    *first = at - (uintptr_t)below;
    *last = at + (uintptr_t)above;
    return below <= at && above <= UINTPTR_MAX - at;
}

static bool is_empty(napier_const_heads x) { return x.tokens == 0 || x.heads == 0 || x.dim == 0; }

static napier_status check_shape(napier_context *context, const char *name, napier_const_heads x) {
    const int64_t shape[3] = {x.tokens, x.heads, x.dim};
    static const char *const words[3] = {"tokens", "heads", "dim"};
    for (int i = 0; i < 3; i++) {
        const int64_t least = i == 0 ? 0 : 1;
        if (shape[i] < least) {
            return napier_fail(context, NAPIER_INVALID_ARGUMENT, "%s: %s %" PRId64 " is less than %d", name, words[i],
                               shape[i], (int)least);
        }
    }
    return NAPIER_OK;
}

static napier_status check_memory(napier_context *context, const char *name, napier_const_heads x, size_t size) {
    uintptr_t first, last;
    if (is_empty(x)) {
        return NAPIER_OK;
    }
    if (!x.data) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "%s: data is NULL, but the view has elements", name);
    }
    if ((uintptr_t)x.data % size != 0) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "%s: data %p is not aligned to its elements", name,
                           x.data);
    }
    if (!find_range(x, size, &first, &last)) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT,
                           "%s: shape %" PRId64 " x %" PRId64 " x %" PRId64 " with strides %" PRId64 ", %" PRId64
                           ", %" PRId64 " leaves the address space",
                           name, x.tokens, x.heads, x.dim, x.token_stride, x.head_stride, x.dim_stride);
    }
    return NAPIER_OK;
}

napier_status napier_check_heads(napier_context *context, const char *name, napier_const_heads x) {
    if (x.dtype != NAPIER_F32 && x.dtype != NAPIER_F16 && x.dtype != NAPIER_BF16) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "%s: dtype %s is not f32, f16 or bf16", name,
                           napier_dtype_name(x.dtype));
    }
    const napier_status status = check_shape(context, name, x);
    return status ? status : check_memory(context, name, x, napier_dtype_size(x.dtype));
}

static bool meets_itself(napier_const_heads x) {
    axis axes[3];
    axes_of(x, 1, axes);
    for (int i = 1; i < 3; i++) { /* by steps, ascending */
        for (int j = i; j > 0 && axes[j].step < axes[j - 1].step; j--) {
            const axis swapped = axes[j];
            axes[j] = axes[j - 1], axes[j - 1] = swapped;
        }
    }
    uint64_t reach = 0;
    for (int i = 0; i < 3; i++) {
        if (axes[i].most > 0 && axes[i].step <= reach) {
            return true;
        }
        reach += axes[i].most * axes[i].step;
    }
    return false;
}

napier_status napier_check_heads_out(napier_context *context, const char *name, napier_heads view) {
    const napier_const_heads x = napier_read_only_heads(view);
    const napier_status status = napier_check_heads(context, name, x);
    if (!status && !is_empty(x) && meets_itself(x)) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT,
                           "%s: strides %" PRId64 ", %" PRId64 ", %" PRId64 " let elements of %" PRId64 " x %" PRId64
                           " x %" PRId64 " overlap",
                           name, x.token_stride, x.head_stride, x.dim_stride, x.tokens, x.heads, x.dim);
    }
    return status;
}

napier_status napier_check_mask(napier_context *context, napier_const_heads view, size_t size, const void **first,
                                size_t *bytes) {
    uintptr_t begin = 0, last = 0;
    const napier_status status = check_memory(context, "options: mask", view, size);
    *first = view.data;
    *bytes = 0;
    if (!status && !is_empty(view) && find_range(view, size, &begin, &last)) {
        *first = (const char *)view.data - ((uintptr_t)view.data - begin);
        *bytes = last - begin + 1;
    }
    return status;
}

/* ---- Two views --------------------------------------------------------------------------------------------------- */

static napier_status overlap(napier_context *context, const char *out_name, const void *out, const char *name,
                             const void *other) {
    return napier_fail(context, NAPIER_INVALID_ARGUMENT, "%s: data %p overlaps %s at %p", out_name, out, name, other);
}

/* Heads that are contiguous in each token are one row. */
static napier_const_heads joined(napier_const_heads x) {
    if (x.heads > 1 && (x.dim == 1 || x.head_stride == x.dim * x.dim_stride)) {
        x.dim_stride = x.dim == 1 ? x.head_stride : x.dim_stride;
        x.dim *= x.heads;
        x.heads = 1;
    }
    return x;
}

napier_status napier_check_heads_apart(napier_context *context, const char *out_name, napier_heads out,
                                       const char *name, napier_const_heads other) {
    const napier_const_heads x = joined(napier_read_only_heads(out)), y = joined(other);
    uintptr_t a, b, c, d;
    if (is_empty(x) || is_empty(y) || !find_range(x, napier_dtype_size(x.dtype), &a, &b) ||
        !find_range(y, napier_dtype_size(y.dtype), &c, &d) || b < c || d < a) {
        return NAPIER_OK;
    }
    for (int64_t i = 0; i < x.heads; i++) {
        const napier_const_matrix m = napier_head(&x, i);
        const napier_matrix writable = {out.data, m.rows, m.cols, m.row_stride, m.col_stride, m.dtype};
        napier_matrix slice = writable;
        slice.data = (char *)out.data + ((const char *)m.data - (const char *)out.data);
        for (int64_t j = 0; j < y.heads; j++) {
            const napier_const_matrix n = napier_head(&y, j);
            if (n.data == m.data || napier_check_alias(context, out_name, slice, name, n)) {
                return overlap(context, out_name, out.data, name, other.data);
            }
        }
    }
    return NAPIER_OK;
}

napier_status napier_check_heads_apart_from(napier_context *context, const char *out_name, napier_heads out,
                                            const char *name, const void *data, size_t size) {
    const napier_const_heads x = napier_read_only_heads(out);
    uintptr_t first, last;
    const uintptr_t at = (uintptr_t)data;
    if (size == 0 || is_empty(x) || !find_range(x, napier_dtype_size(x.dtype), &first, &last) || last < at ||
        at + size - 1 < first) {
        return NAPIER_OK;
    }
    return overlap(context, out_name, out.data, name, data);
}
