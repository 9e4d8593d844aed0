/* ops/attention/attention_plan.c - checks arguments and options of both calls. */
#include "ops/attention/attention_plan.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/base/fenv.h"
#include "core/base/struct_size.h"

/* Larger sizes are refused, so that the sizes below cannot overflow. */
#define NAPIER_TOKENS_MOST (INT64_C(1) << 40)
#define NAPIER_DIM_MOST (INT64_C(1) << 20)

/* ---- Scale ------------------------------------------------------------------------------------------------------- */

/* In the default floating-point state. volatile: the compiler must not move the arithmetic out of the two calls. */
static bool read_scale(double scale, int64_t dim, napier_attention_plan *plan) {
    const napier_fenv caller = napier_fenv_enter();
    const volatile double exact = scale, width = (double)dim;
    const volatile double used = exact == 0 ? 1.0 / sqrt(width) : exact;
    const volatile float single = (float)used;
    const volatile float factor = (float)(used * 0x1.71547652b82fep+0);
    const volatile bool fits = fabsf(factor) <= FLT_MAX;
    plan->scale = single;
    plan->factor = factor;
    napier_fenv_leave(caller);
    return fits;
}

/* ---- Offsets ----------------------------------------------------------------------------------------------------- */

static napier_status check_offsets(napier_context *context, bool on_device, const char *name, const int64_t *offsets,
                                   int64_t count, int64_t most) {
    NAPIER_REFUSE_IF(context, !offsets || (uintptr_t)offsets % sizeof *offsets != 0,
                     "options: %s %p is not an array of %" PRId64 " offsets", name, (const void *)offsets, count + 1);
    int64_t before = 0;
    for (int64_t i = 0; i <= count && !on_device; i++) {
        NAPIER_REFUSE_IF(context, offsets[i] < before || offsets[i] > most,
                         "options: %s[%" PRId64 "] is %" PRId64 ", not in %" PRId64 " .. %" PRId64, name, i, offsets[i],
                         before, most);
        before = offsets[i];
    }
    return NAPIER_OK;
}

static napier_status check_query_offsets(napier_context *context, bool on_device, const int64_t *offsets, int64_t count,
                                         int64_t tokens) {
    const napier_status status = check_offsets(context, on_device, "query_offsets", offsets, count, tokens);
    if (status || on_device) {
        return status;
    }
    NAPIER_REFUSE_IF(context, offsets[0] != 0, "options: query_offsets[0] is %" PRId64 ", not 0", offsets[0]);
    NAPIER_REFUSE_IF(context, offsets[count] != tokens,
                     "options: query_offsets[%" PRId64 "] is %" PRId64 ", not the tokens %" PRId64 " of q", count,
                     offsets[count], tokens);
    return status;
}

/* Ranges of rows of k: [count] first rows, and [count] rows after the last. */
typedef struct ranges {
    const char *begin_name, *end_name;
    const int64_t *begin, *end;
} ranges;

static napier_status check_ranges(napier_context *context, const napier_attention_plan *plan, ranges r) {
    const int64_t count = plan->options.sequences, tokens = plan->k.tokens;
    NAPIER_REFUSE_IF(context,
                     !r.begin || !r.end || (uintptr_t)r.begin % sizeof(int64_t) != 0 ||
                         (uintptr_t)r.end % sizeof(int64_t) != 0,
                     "options: %s %p and %s %p are not arrays of %" PRId64 " rows", r.begin_name, (const void *)r.begin,
                     r.end_name, (const void *)r.end, count);
    for (int64_t i = 0; i < count && !plan->on_device; i++) {
        NAPIER_REFUSE_IF(context, r.begin[i] < 0 || r.begin[i] > r.end[i] || r.end[i] > tokens,
                         "options: %s[%" PRId64 "] %" PRId64 " and %s[%" PRId64 "] %" PRId64
                         " are not a range within the tokens %" PRId64 " of k",
                         r.begin_name, i, r.begin[i], r.end_name, i, r.end[i], tokens);
    }
    return NAPIER_OK;
}

static napier_status check_keys(napier_context *context, const napier_attention_plan *plan) {
    const napier_attention_options *const o = &plan->options;
    const ranges own = {"key_offsets", "key_end", o->key_offsets, o->key_end};
    const ranges prefixes = {"prefix_begin", "prefix_end", o->prefix_begin, o->prefix_end};
    const napier_status status = o->key_end ? check_ranges(context, plan, own)
                                            : check_offsets(context, plan->on_device, "key_offsets", o->key_offsets,
                                                            o->sequences, plan->k.tokens);
    const bool prefixed = o->prefix_begin || o->prefix_end || o->key_end;
    return status || !prefixed ? status : check_ranges(context, plan, prefixes);
}

static napier_status check_sequences(napier_context *context, napier_attention_plan *plan) {
    const napier_attention_options *const o = &plan->options;
    NAPIER_REFUSE_IF(context, o->sequences < 0, "options: sequences %" PRId64 " is negative", o->sequences);
    plan->sequences = 1;
    if (o->sequences == 0) {
        return NAPIER_OK;
    }
    NAPIER_REFUSE_IF(context, o->sequences > NAPIER_TOKENS_MOST, "options: sequences %" PRId64 " are too many",
                     o->sequences);
    plan->sequences = o->sequences;
    plan->query_offsets = o->query_offsets;
    plan->key_offsets = o->key_offsets;
    plan->key_end = o->key_end;
    plan->prefixes = o->prefix_begin != NULL;
    NAPIER_TRY(check_query_offsets(context, plan->on_device, o->query_offsets, o->sequences, plan->q.tokens));
    return check_keys(context, plan);
}

/* ---- Mask and the other options ---------------------------------------------------------------------------------- */

static napier_argument mask_argument(const napier_attention_plan *plan) {
    const napier_attention_options *const o = &plan->options;
    const napier_const_heads mask = {o->mask,
                                     plan->q.tokens,
                                     plan->q.heads,
                                     o->mask_keys,
                                     o->mask_token_stride,
                                     o->mask_head_stride,
                                     o->mask_key_stride,
                                     NAPIER_F32};
    napier_argument argument =
        napier_heads_argument("options: mask", mask, NAPIER_MAY_BE_ABSENT, mask.tokens, mask.heads, mask.dim);
    argument.element = o->mask_is_bytes ? 1 : sizeof(float);
    return argument;
}

static napier_status check_mask(napier_context *context, const napier_attention_plan *plan) {
    const napier_attention_options *const o = &plan->options;
    if (!o->mask) {
        return NAPIER_OK;
    }
    NAPIER_REFUSE_IF(context, o->mask_keys < 0, "options: mask_keys %" PRId64 " is negative", o->mask_keys);
    for (int64_t i = 0; i < plan->sequences && !plan->on_device; i++) {
        const napier_sequence s = napier_sequence_of(plan, i);
        NAPIER_REFUSE_IF(context, s.queries > 0 && s.keys > o->mask_keys,
                         "options: mask_keys %" PRId64 " is less than the %" PRId64 " keys of sequence %" PRId64,
                         o->mask_keys, s.keys, i);
    }
    const napier_argument mask = mask_argument(plan);
    return napier_check_arguments(context, &mask, 1);
}

static napier_status check_bf16(napier_context *context, const char *name, napier_dtype dtype, const char *option) {
    NAPIER_REFUSE_IF(context, dtype != NAPIER_BF16, "%s: dtype %s, but with the option %s it is bf16", name,
                     napier_dtype_name(dtype), option);
    return NAPIER_OK;
}

static napier_status check_dtypes(napier_context *context, const napier_attention_plan *plan) {
    const napier_attention_options *const o = &plan->options;
    const char *const option = o->bf16_weights ? "bf16_weights" : "bf16_gradient";
    if (!o->bf16_weights && !o->bf16_gradient) {
        return NAPIER_OK;
    }
    NAPIER_TRY(check_bf16(context, "q", plan->q.dtype, option));
    NAPIER_TRY(check_bf16(context, "k", plan->k.dtype, option));
    return check_bf16(context, "v", plan->v.dtype, option);
}

static napier_status read_options(napier_context *context, const napier_attention_options *options,
                                  napier_attention_plan *plan) {
    plan->options = (napier_attention_options)NAPIER_ATTENTION_OPTIONS_INIT;
    NAPIER_TRY(napier_read_options(
        context, "options", NAPIER_STRUCT(napier_attention_options, NAPIER_ATTENTION_OPTIONS_INIT, bf16_gradient),
        options, &plan->options));
    NAPIER_REFUSE_IF(context, !read_scale(plan->options.scale, plan->q.dim, plan),
                     "options: scale %g is not finite in f32", plan->options.scale);
    NAPIER_REFUSE_IF(context, (unsigned)plan->options.masked_rows > NAPIER_MASKED_ZERO,
                     "options: masked_rows %d is unknown", (int)plan->options.masked_rows);
    NAPIER_TRY(check_dtypes(context, plan));
    NAPIER_TRY(check_sequences(context, plan));
    return check_mask(context, plan);
}

/* ---- The plan ---------------------------------------------------------------------------------------------------- */

static napier_status check_sizes(napier_context *context, const napier_attention_plan *plan) {
    const napier_const_heads *const q = &plan->q, *const k = &plan->k;
    const struct {
        const char *name;
        int64_t size;
    } positive[] = {{"q: heads", q->heads}, {"q: dim", q->dim},          {"k: heads", k->heads},
                    {"k: dim", k->dim},     {"v: heads", plan->v.heads}, {"v: dim", plan->v.dim}};
    for (size_t i = 0; i < sizeof positive / sizeof *positive; i++) {
        NAPIER_REFUSE_IF(context, positive[i].size < 1, "%s %" PRId64 " is less than 1", positive[i].name,
                         positive[i].size);
    }
    NAPIER_REFUSE_IF(context, q->heads % k->heads != 0,
                     "q: heads %" PRId64 " is no multiple of the heads %" PRId64 " of k", q->heads, k->heads);
    NAPIER_REFUSE_IF(context, k->dim != q->dim, "k: dim %" PRId64 " is not the dim %" PRId64 " of q", k->dim, q->dim);
    NAPIER_REFUSE_IF(context, plan->v.tokens != k->tokens || plan->v.heads != k->heads,
                     "v: shape %" PRId64 " x %" PRId64 " x %" PRId64 " is not %" PRId64 " x %" PRId64 " x any dim",
                     plan->v.tokens, plan->v.heads, plan->v.dim, k->tokens, k->heads);
    if (k->tokens > NAPIER_TOKENS_MOST || q->heads > NAPIER_DIM_MOST || q->tokens > NAPIER_TOKENS_MOST / q->heads ||
        q->dim > NAPIER_DIM_MOST || plan->v.dim > NAPIER_DIM_MOST) {
        return napier_fail(context, NAPIER_OUT_OF_MEMORY,
                           "q: %" PRId64 " tokens of %" PRId64 " heads of dim %" PRId64 ", or %" PRId64
                           " tokens of k, are too many to pack",
                           q->tokens, q->heads, q->dim, k->tokens);
    }
    return NAPIER_OK;
}

static napier_argument as_it_is(const char *name, napier_const_heads x) {
    return napier_heads_argument(name, x, 0, x.tokens, x.heads, x.dim);
}

napier_status napier_attention_plan_make(napier_context *context, bool on_device, napier_const_heads q,
                                         napier_const_heads k, napier_const_heads v,
                                         const napier_attention_options *options, napier_attention_plan *plan) {
    const napier_argument all[] = {as_it_is("q", q), as_it_is("k", k), as_it_is("v", v)};
    *plan = (napier_attention_plan){.context = context, .q = q, .k = k, .v = v, .on_device = on_device};
    NAPIER_TRY(napier_begin(context));
    NAPIER_TRY(napier_check_arguments(context, all, sizeof all / sizeof *all));
    NAPIER_TRY(check_sizes(context, plan));
    NAPIER_TRY(read_options(context, options, plan));
    plan->group = q.heads / k.heads;
    plan->kernels = napier_ops_kernels_of(context->isa)->attention;
    plan->products = &napier_ops_kernels_of(context->isa)->linear->matmul;
    plan->core = napier_ops_kernels_of(context->isa)->core;
    return NAPIER_OK;
}

static napier_argument integers(const char *name, const int64_t *data, int64_t count) {
    return napier_row_argument(name, napier_const_array(data, count, NAPIER_F64), NAPIER_MAY_BE_ABSENT, count);
}

/* Checks the call's other arguments. Outputs may overlap nothing that is read. */
static napier_status check_others(napier_context *context, const napier_attention_plan *plan,
                                  const napier_argument *others, size_t count) {
    enum { INPUTS = 9, OTHERS_MOST = 7 };
    const napier_attention_options *const o = &plan->options;
    const int64_t sequences = plan->sequences;
    napier_argument all[INPUTS + OTHERS_MOST] = {
        as_it_is("q", plan->q),
        as_it_is("k", plan->k),
        as_it_is("v", plan->v),
        integers("options: query_offsets", plan->query_offsets, sequences + 1),
        integers("options: key_offsets", plan->key_offsets, sequences + (plan->key_end ? 0 : 1)),
        integers("options: key_end", plan->key_end, sequences),
        integers("options: prefix_begin", plan->prefixes ? o->prefix_begin : NULL, sequences),
        integers("options: prefix_end", plan->prefixes ? o->prefix_end : NULL, sequences),
        mask_argument(plan),
    };
    for (size_t i = 0; i < count; i++) {
        all[INPUTS + i] = others[i];
    }
    return napier_check_arguments(context, all, INPUTS + count);
}

napier_status napier_attention_check_outputs(napier_context *context, const napier_attention_plan *plan,
                                             napier_heads output, napier_matrix lse) {
    const int64_t tokens = plan->q.tokens, heads = plan->q.heads;
    const napier_argument others[] = {
        napier_heads_argument("output", napier_read_only_heads(output), NAPIER_IS_OUT, tokens, heads, plan->v.dim),
        NAPIER_ARGUMENT("lse", napier_read_only(lse), NAPIER_IS_OUT | NAPIER_IS_F32 | NAPIER_MAY_BE_ABSENT, tokens,
                        heads, NULL)};
    return check_others(context, plan, others, sizeof others / sizeof *others);
}

napier_status napier_attention_check_back(napier_context *context, const napier_attention_plan *plan,
                                          const napier_attention_back_views *x) {
    const napier_const_heads *const q = &plan->q, *const k = &plan->k, *const v = &plan->v;
    const unsigned out = NAPIER_IS_OUT | NAPIER_MAY_BE_ABSENT;
    const napier_argument others[] = {
        napier_heads_argument("grad_output", x->grad_output, 0, q->tokens, q->heads, v->dim),
        napier_heads_argument("output", x->output, 0, q->tokens, q->heads, v->dim),
        NAPIER_ARGUMENT("lse", x->lse, NAPIER_IS_F32, q->tokens, q->heads, NULL),
        NAPIER_ARGUMENT("options: grad_lse", plan->options.grad_lse, NAPIER_IS_F32 | NAPIER_MAY_BE_ABSENT, q->tokens,
                        q->heads, NULL),
        napier_heads_argument("grad_q", napier_read_only_heads(x->grad_q), out, q->tokens, q->heads, q->dim),
        napier_heads_argument("grad_k", napier_read_only_heads(x->grad_k), out, k->tokens, k->heads, k->dim),
        napier_heads_argument("grad_v", napier_read_only_heads(x->grad_v), out, v->tokens, v->heads, v->dim)};
    if (plan->options.bf16_gradient) {
        NAPIER_TRY(check_bf16(context, "grad_output", x->grad_output.dtype, "bf16_gradient"));
    }
    return check_others(context, plan, others, sizeof others / sizeof *others);
}

/* ---- Sequences --------------------------------------------------------------------------------------------------- */

napier_sequence napier_sequence_of(const napier_attention_plan *plan, int64_t i) {
    if (!plan->query_offsets) {
        return (napier_sequence){0, plan->q.tokens, 0, 0, 0, plan->k.tokens};
    }
    const int64_t key_end = plan->key_end ? plan->key_end[i] : plan->key_offsets[i + 1];
    napier_sequence s = {
        plan->query_offsets[i],        plan->query_offsets[i + 1] - plan->query_offsets[i], 0, 0, plan->key_offsets[i],
        key_end - plan->key_offsets[i]};
    if (plan->prefixes) {
        s.prefix_begin = plan->options.prefix_begin[i];
        s.prefix = plan->options.prefix_end[i] - s.prefix_begin;
        s.keys += s.prefix;
    }
    return s;
}

void napier_pack_places(const napier_attention_plan *plan, const napier_sequence *s, const napier_const_heads *x,
                        int64_t head, int64_t first, int64_t n, int64_t col, int64_t cols, float *out, int64_t step,
                        int64_t padded) {
    const napier_const_matrix m = napier_head(x, head);
    const int64_t shared = napier_least(s->prefix > first ? s->prefix - first : 0, n);
    if (shared > 0) {
        plan->core->pack(&m, napier_key_row(s, first), shared, col, cols, napier_plan_narrow(plan), out, step, padded);
    }
    if (n > shared) {
        plan->core->pack(&m, napier_key_row(s, first + shared), n - shared, col, cols, napier_plan_narrow(plan),
                         out + shared * step, step, padded);
    }
}

void napier_pack_panel(const napier_attention_plan *plan, const napier_sequence *s, const napier_const_heads *x,
                       int64_t head, int64_t place, int64_t n, float *gathered, float *out) {
    napier_const_matrix m = napier_const_transposed(napier_head(x, head));
    int64_t row = napier_key_row(s, place);
    if (place < s->prefix && s->prefix < place + n) {
        const int64_t step = napier_round_up(x->dim, 16);
        napier_pack_places(plan, s, x, head, place, n, 0, x->dim, gathered, step, step);
        m = (napier_const_matrix){gathered, x->dim, n, 1, step, NAPIER_F32};
        row = 0;
    }
    plan->core->pack(&m, 0, x->dim, row, n, napier_plan_narrow(plan), out, NAPIER_LANES, NAPIER_LANES);
    const int64_t more = napier_plan_dim(plan, x->dim) - x->dim;
    memset(out + x->dim * NAPIER_LANES, 0, (size_t)(more * NAPIER_LANES) * sizeof *out);
}
