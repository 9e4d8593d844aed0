/* ops/attention/attention_plan.h - the checked arguments of a call on attention, for forward and backward. */
#ifndef NAPIER_OPS_ATTENTION_ATTENTION_PLAN_H
#define NAPIER_OPS_ATTENTION_ATTENTION_PLAN_H

#include <napier/attention.h>
#include <math.h>
#include <stdbool.h>

#include "ops/attention/attention_views.h"
#include "core/base/parallel.h"
#include "core/base/scope.h"
#include "core/base/sizes.h"
#include "ops/isa/ops_kernels.h"

/* The order of the products, and what multiplies. */
typedef enum napier_attention_route {
    NAPIER_ATTEND_CHAIN, /* one chain over k, f32 */
    NAPIER_ATTEND_PAIRS, /* the order of bf16_weights or bf16_gradient; panels of f32 */
    NAPIER_ATTEND_DOTS,  /* the same with vdpbf16ps; panels of bf16 (attention_engine.h) */
    NAPIER_ATTEND_TILES  /* the same on the matrix engine */
} napier_attention_route;

typedef struct napier_attention_plan {
    const napier_context *context;
    const napier_attention_kernels *kernels;
    const napier_product_kernels *products;
    const napier_core_kernels *core;
    napier_const_heads q, k, v;
    napier_attention_options options;
    int64_t sequences;
    int64_t group; /* heads of q for each of k */
    float scale;   /* of the scores */
    float factor;  /* scale * log2(e) */
    napier_attention_route route;
    bool prefixes;
    bool on_device; /* offsets, prefixes and mask are in a GPU's memory, where its kernels check them */
    const int64_t *query_offsets, *key_offsets; /* NULL: one sequence */
    const int64_t *key_end;                     /* NULL: key_offsets[i + 1] */
} napier_attention_plan;

/* Checks q, k, v and the options (NULL: defaults), and fills the plan. on_device: all arrays are in a GPU's memory. */
napier_status napier_attention_plan_make(napier_context *context, bool on_device, napier_const_heads q,
                                         napier_const_heads k, napier_const_heads v,
                                         const napier_attention_options *options, napier_attention_plan *plan);

/* Checks the outputs of the forward. */
napier_status napier_attention_check_outputs(napier_context *context, const napier_attention_plan *plan,
                                             napier_heads output, napier_matrix lse);

/* The arguments of the backward besides the plan. */
typedef struct napier_attention_back_views {
    napier_const_heads grad_output, output;
    napier_const_matrix lse;
    napier_heads grad_q, grad_k, grad_v; /* no data: not wanted */
} napier_attention_back_views;
napier_status napier_attention_check_back(napier_context *context, const napier_attention_plan *plan,
                                          const napier_attention_back_views *x);

/* The keys of a sequence have places 0 .. keys - 1: first the rows of the prefix, then its own. */
typedef struct napier_sequence {
    int64_t query_begin, queries;
    int64_t prefix_begin, prefix, own_begin, keys;
} napier_sequence;

napier_sequence napier_sequence_of(const napier_attention_plan *plan, int64_t index);

/* The row of k and v at a place. */
static inline int64_t napier_key_row(const napier_sequence *s, int64_t place) {
    return place < s->prefix ? s->prefix_begin + place : s->own_begin + (place - s->prefix);
}

/* Query i of a sequence attends to so many keys, the first ones, if there is no mask. */
static inline int64_t napier_keys_seen(const napier_attention_plan *plan, const napier_sequence *s, int64_t query) {
    if (!plan->options.causal) {
        return s->keys;
    }
    const int64_t seen = s->keys - s->queries + query + 1;
    return seen > 0 ? seen : 0;
}

/* The address of the mask's element for a query, a head and a place. There must be a mask. */
static inline const void *napier_mask_at(const napier_attention_plan *plan, int64_t token, int64_t head,
                                         int64_t place) {
    const napier_attention_options *const o = &plan->options;
    const int64_t at = token * o->mask_token_stride + head * o->mask_head_stride + place * o->mask_key_stride;
    return (const char *)o->mask + at * (o->mask_is_bytes ? 1 : 4);
}

/* Whether the mask hides a key. A hidden key must not affect the row, whatever its values. */
static inline bool napier_mask_hides(const napier_attention_plan *plan, int64_t token, int64_t head, int64_t place) {
    const void *const at = napier_mask_at(plan, token, head, place);
    return plan->options.mask_is_bytes ? *(const unsigned char *)at == 0 : *(const float *)at == -INFINITY;
}

/* True if dims and places are filled up to a multiple of 32. */
static inline bool napier_plan_narrow(const napier_attention_plan *plan) { return plan->route >= NAPIER_ATTEND_PAIRS; }
/* True if panels hold bf16. */
static inline bool napier_plan_engine(const napier_attention_plan *plan) { return plan->route >= NAPIER_ATTEND_DOTS; }

/* The length of a row of q or k that products go through. */
static inline int64_t napier_plan_dim(const napier_attention_plan *plan, int64_t dim) {
    return napier_plan_narrow(plan) ? napier_round_up(dim, NAPIER_PAIRS_BLOCK) : dim;
}

/* Packs n places from `first` on, as rows of `cols` elements of head `head`, f32, `step` floats apart, and 0 up to
 * `padded` columns. */
void napier_pack_places(const napier_attention_plan *plan, const napier_sequence *s, const napier_const_heads *x,
                        int64_t head, int64_t first, int64_t n, int64_t col, int64_t cols, float *out, int64_t step,
                        int64_t padded);
/* Packs n <= NAPIER_LANES places from `place` on as a panel, transposed: [napier_plan_dim][NAPIER_LANES]. Rows from two places in
 * memory are first copied together: gathered has space for NAPIER_LANES rows of dim, filled up to 16. */
void napier_pack_panel(const napier_attention_plan *plan, const napier_sequence *s, const napier_const_heads *x,
                       int64_t head, int64_t place, int64_t n, float *gathered, float *out);

#endif
