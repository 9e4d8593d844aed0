/* ops/layers/rotary.c - rotates the pairs of heads, and back: checks, and heads cut into parts that fit a first-level
 * cache. */
#include <inttypes.h>
#include <napier/layers.h>

#include "core/base/parallel.h"
#include "core/base/scope.h"
#include "core/base/stop.h"
#include "ops/attention/attention_views.h"
#include "ops/layers/layer_rows.h"

typedef struct job {
    const napier_ops_kernels *kernels;
    napier_const_heads x;
    napier_const_matrix cosines, sines;
    napier_heads out;
    float sign;
} job;

/* ---- Work -------------------------------------------------------------------------------------------------------- */

/* Rotates pairs i .. i + n - 1 of a head. */
static void rotate_part(const job *j, int64_t token, int64_t head, int64_t i, int64_t n) {
    const napier_ops_kernels *k = j->kernels;
    const napier_const_matrix x = napier_head(&j->x, head);
    const napier_matrix out = napier_head_out(&j->out, head);
    const int64_t half = x.cols / 2;
    float rooms[6][NAPIER_LAYER_COLS];
    const napier_layer_place a = napier_layer_out(&out, token, i, rooms[4]);
    const napier_layer_place b = napier_layer_out(&out, token, half + i, rooms[5]);
    const napier_rotary_pairs pairs = {.a = napier_layer_in(k, &x, token, i, n, rooms[0]),
                                       .b = napier_layer_in(k, &x, token, half + i, n, rooms[1]),
                                       .cosines = napier_layer_in(k, &j->cosines, token, i, n, rooms[2]),
                                       .sines = napier_layer_in(k, &j->sines, token, i, n, rooms[3]),
                                       .sign = j->sign,
                                       .out_a = a.data,
                                       .out_b = b.data};
    k->layers->rotate_pairs(&pairs, n, a.dtype);
    napier_layer_put(k, out, token, i, n, &a, rooms[4]);
    napier_layer_put(k, out, token, half + i, n, &b, rooms[5]);
}

static void rotate_token(void *argument, int64_t token) {
    const job *j = argument;
    const int64_t half = j->x.dim / 2;
    for (int64_t head = 0; head < j->x.heads; head++) {
        for (int64_t i = 0; i < half; i += NAPIER_LAYER_COLS) {
            rotate_part(j, token, head, i, napier_least(half - i, NAPIER_LAYER_COLS));
        }
    }
}

/* ---- Calls ------------------------------------------------------------------------------------------------------- */

typedef struct names {
    const char *x, *out;
} names;

static napier_status check(napier_context *context, const job *j, names name) {
    const int64_t tokens = j->x.tokens, heads = j->x.heads, dim = j->x.dim;
    NAPIER_REFUSE_IF(context, dim % 2 != 0, "%s: dim %" PRId64 " is odd", name.x, dim);
    const napier_argument all[] = {
        napier_heads_argument(name.x, j->x, NAPIER_MAY_BE_OUT, tokens, heads, dim),
        NAPIER_ARGUMENT("cosines", j->cosines, NAPIER_IS_F32, tokens, dim / 2, NULL),
        NAPIER_ARGUMENT("sines", j->sines, NAPIER_IS_F32, tokens, dim / 2, "cosines"),
        napier_heads_argument(name.out, napier_read_only_heads(j->out), NAPIER_IS_OUT, tokens, heads, dim)};
    return napier_check_arguments(context, all, sizeof all / sizeof *all);
}

static napier_status rotate(napier_context *context, job *j, names name) {
    NAPIER_TRY(napier_begin(context));
    NAPIER_TRY(check(context, j, name));
    if (j->x.tokens == 0 || j->x.heads == 0 || j->x.dim == 0) {
        return NAPIER_OK;
    }
    j->kernels = napier_ops_kernels_of(context->isa);
    const int64_t elements = j->x.dim < NAPIER_LAYER_CHUNK / j->x.heads ? j->x.dim * j->x.heads : NAPIER_LAYER_CHUNK;
    NAPIER_MAY_STOP(context);
    napier_parallel_each(context, j->x.tokens, napier_layer_chunk(elements), rotate_token, j);
    return napier_stopped(context);
}

napier_status napier_rotary(napier_context *context, napier_const_heads x, napier_const_matrix cosines,
                            napier_const_matrix sines, napier_heads out) {
    job j = {.x = x, .cosines = cosines, .sines = sines, .out = out, .sign = 1.0f};
    return rotate(context, &j, (names){"x", "out"});
}

napier_status napier_rotary_backward(napier_context *context, napier_const_heads grad_out, napier_const_matrix cosines,
                                     napier_const_matrix sines, napier_heads grad_x) {
    job j = {.x = grad_out, .cosines = cosines, .sines = sines, .out = grad_x, .sign = -1.0f};
    return rotate(context, &j, (names){"grad_out", "grad_x"});
}
