/* ops/attention/attention_views.h - checks views with three axes, [tokens, heads, dim], and whether two of them
 * overlap. Like core/base/view.h, with one more axis. */
#ifndef NAPIER_OPS_ATTENTION_ATTENTION_VIEWS_H
#define NAPIER_OPS_ATTENTION_ATTENTION_VIEWS_H

#include <napier/attention.h>

#include "core/base/context.h"

/* The shape is not negative, the dtype is f32, f16 or bf16, the data are not NULL and
 * aligned, and every address is representable. */
napier_status napier_check_heads(napier_context *context, const char *name, napier_const_heads view);
/* The same for an output: no two of its elements may share memory either. Each axis must step over the whole extent of
 * all axes with shorter steps. */
napier_status napier_check_heads_out(napier_context *context, const char *name, napier_heads view);
/* `out` must share no byte with `other`. Both have been checked. */
napier_status napier_check_heads_apart(napier_context *context, const char *out_name, napier_heads out,
                                       const char *name, napier_const_heads other);
/* `out` must share no byte with `size` bytes at `data`. */
napier_status napier_check_heads_apart_from(napier_context *context, const char *out_name, napier_heads out,
                                            const char *name, const void *data, size_t size);
/* Finds the bytes of a mask, [tokens, heads, dim] of `size` each, as an address and a
 * count. Fails if they leave the address space. */
napier_status napier_check_mask(napier_context *context, napier_const_heads view, size_t size, const void **first,
                                size_t *bytes);

static inline napier_const_heads napier_read_only_heads(napier_heads h) {
    return (napier_const_heads){h.data, h.tokens, h.heads, h.dim, h.token_stride, h.head_stride, h.dim_stride, h.dtype};
}
/* [tokens, heads] as heads of dimension 1. */
static inline napier_heads napier_heads_of_matrix(napier_matrix m) {
    return (napier_heads){m.data, m.rows, m.cols, 1, m.row_stride, m.col_stride, 1, m.dtype};
}
/* One head, [tokens, dim]. */
static inline napier_const_matrix napier_head(const napier_const_heads *x, int64_t head) {
    const int64_t size = x->dtype == NAPIER_F32 ? 4 : 2;
    const char *const data = (const char *)x->data + head * x->head_stride * size;
    return (napier_const_matrix){data, x->tokens, x->dim, x->token_stride, x->dim_stride, x->dtype};
}
static inline napier_matrix napier_head_out(const napier_heads *x, int64_t head) {
    const int64_t size = x->dtype == NAPIER_F32 ? 4 : 2;
    char *const data = (char *)x->data + head * x->head_stride * size;
    return (napier_matrix){data, x->tokens, x->dim, x->token_stride, x->dim_stride, x->dtype};
}

#endif
