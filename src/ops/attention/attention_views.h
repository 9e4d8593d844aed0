/* ops/attention/attention_views.h - views with three axes, [tokens, heads, dim]: their heads, and their checks. */
#ifndef NAPIER_OPS_ATTENTION_ATTENTION_VIEWS_H
#define NAPIER_OPS_ATTENTION_ATTENTION_VIEWS_H

#include <napier/attention.h>

#include "core/base/view.h"

static inline napier_const_heads napier_read_only_heads(napier_heads h) {
    return (napier_const_heads){h.data, h.tokens, h.heads, h.dim, h.token_stride, h.head_stride, h.dim_stride, h.dtype};
}
/* For napier_check_arguments: it must have f32, f16 or bf16 and this shape. */
static inline napier_argument napier_heads_argument(const char *name, napier_const_heads x, unsigned is, int64_t tokens,
                                                    int64_t heads, int64_t dim) {
    return (napier_argument){.name = name,
                             .view = {x.data, x.tokens, x.heads, x.token_stride, x.head_stride, x.dtype},
                             .is = NAPIER_IS_HEADS | NAPIER_IS_NARROW | is,
                             .rows = tokens,
                             .cols = heads,
                             .dim = x.dim,
                             .dim_stride = x.dim_stride,
                             .dims = dim};
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
