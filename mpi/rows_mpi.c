/* mpi/rows_mpi.c - rows of logits of which each rank has some columns: logsumexp, softmax, log_softmax, log-probabilities of
 * tokens, and their gradients. */
#include <limits.h>
#include <math.h>
#include <napier/linear.h>
#include <string.h>

#include "arguments_mpi.h"
#include "exchange.h"

enum { SUM = NAPIER_SHARD_SUM_WORDS, FINAL = NAPIER_SHARD_FINAL_WORDS };

/* ---- Arguments ------------------------------------------------------------------------------------------------------ */

static int64_t code_of_token(const napier_token_options *o) {
    const double values[5] = {o->temperature, o->softcap, (double)o->ignore_index, o->label_smoothing, o->z_loss};
    return code_of(values, sizeof values);
}

/* Columns begin .. end - 1 of a matrix whose first column is `first`. */
static napier_const_matrix columns_of(napier_const_matrix m, int64_t first, int64_t begin, int64_t end) {
    m.data =
        m.data ? (const char *)m.data + (begin - first) * m.col_stride * (int64_t)napier_dtype_size(m.dtype) : NULL;
    m.cols = end - begin;
    return m;
}

typedef struct shard {
    napier_const_matrix m;
    int64_t first;
} shard;

static napier_status copy_columns(void *argument, int64_t begin, int64_t end, void *to, int64_t step) {
    const shard *s = argument;
    const size_t size = napier_dtype_size(s->m.dtype);
    for (int64_t row = 0; row < s->m.rows; row++) {
        for (int64_t col = begin; col < end; col++) {
            const int64_t at = row * s->m.row_stride + (col - s->first) * s->m.col_stride;
            memcpy((char *)to + (size_t)(row * step + col - begin) * size, (const char *)s->m.data + at * (int64_t)size,
                   size);
        }
    }
    return NAPIER_OK;
}

/* ---- Finals ----------------------------------------------------------------------------------------------------------- */

/* What a row's results are computed from. */
typedef struct reduced {
    int64_t *finals; /* [rows][FINAL] */
    float *chosen;   /* [rows][K] */
    int64_t each;    /* K */
} reduced;

/* The view in which the floats of the tiles from column `first` on are. */
static napier_matrix own_view(const exchange *x, float *own, int values, int64_t first, int64_t cols) {
    const int64_t begin = first / NAPIER_SHARD_TILE - x->tiles[x->rank];
    const int64_t tiles = (cols + NAPIER_SHARD_TILE - 1) / NAPIER_SHARD_TILE;
    return (napier_matrix){own + begin * values,           x->rows, tiles * values,
                           exchange_own_tiles(x) * values, 1,       NAPIER_F32};
}

/* The least of the ranks' z; a NaN is less than any number. */
static void settle_chosen(const exchange *x, const float *all, reduced *r) {
    const int64_t count = x->rows * r->each;
    for (int64_t i = 0; i < count; i++) {
        float z = INFINITY;
        for (int64_t k = 0; k < x->ranks; k++) {
            const float theirs = all[k * count + i];
            z = theirs != theirs || theirs < z ? theirs : z;
            if (z != z) {
                break;
            }
        }
        r->chosen[i] = z;
    }
}

/* The ranks exchange one sum of each row. */
static void finish_by_sums(exchange *x, const float *own, reduced *r) {
    const size_t sum_bytes = (size_t)x->rows * SUM * sizeof(int64_t);
    const size_t chosen_bytes = (size_t)(x->rows * r->each) * sizeof(float), each = sum_bytes + chosen_bytes;
    int64_t *const mine = exchange_take(x, (int64_t)each, 1);
    char *const got = exchange_take(x, x->ranks, each + 1);
    int64_t *const sums = exchange_take(x, x->ranks, sum_bytes + 1);
    float *const chosen = exchange_take(x, x->ranks, chosen_bytes + 1);
    const int64_t floats = exchange_own_tiles(x) * NAPIER_SHARD_LSE;
    STEP(x, napier_shard_sums(x->context, napier_const_rows_f32(own, x->rows, floats), NAPIER_SHARD_LSE, mine));
    if (mine && r->chosen && chosen_bytes > 0) {
        memcpy((char *)mine + sum_bytes, r->chosen, chosen_bytes);
    }
    exchange_gather(x, mine, each, got);
    for (int k = 0; !x->status && k < x->ranks; k++) {
        memcpy((char *)sums + (size_t)k * sum_bytes, got + (size_t)k * each, sum_bytes);
        memcpy((char *)chosen + (size_t)k * chosen_bytes, got + (size_t)k * each + sum_bytes, chosen_bytes);
    }
    STEP(x, napier_shard_finish_sums(x->context, sums, x->ranks, x->rows, r->finals));
    if (!x->status) {
        settle_chosen(x, chosen, r);
    }
}

/* The ranks exchange the floats of all tiles. */
static void finish_by_tiles(exchange *x, int values, const float *own, reduced *r) {
    const int64_t floats = exchange_all_tiles(x) * values;
    float *const tiles = exchange_take(x, x->rows * floats, sizeof *tiles);
    float *const chosen = exchange_take(x, x->ranks * x->rows * r->each, sizeof *chosen);
    exchange_gather_tiles(x, values, own, r->chosen, r->each, tiles, chosen);
    STEP(x, napier_shard_finish_tiles(x->context, napier_const_rows_f32(tiles, x->rows, floats),
                                      (napier_shard_values)values, r->finals));
    if (!x->status) {
        settle_chosen(x, chosen, r);
    }
}

/* What the tiles are reduced from: logits, or hidden states and weights. */
typedef struct source {
    shard logits;
    bool linear;
    napier_const_matrix hidden, weights;
    napier_indices ids;
    const napier_token_options *options;
    int values;
} source;

static napier_const_matrix some_weights(const source *s, int64_t begin, int64_t end) {
    napier_const_matrix w = s->weights;
    w.data = (const char *)w.data + (begin - s->logits.first) * w.row_stride * (int64_t)napier_dtype_size(w.dtype);
    w.rows = end - begin;
    return w;
}

static napier_status linear_columns(void *argument, int64_t begin, int64_t end, void *to, int64_t step) {
    void *const *both = argument;
    const source *s = both[0];
    const napier_matrix out = {to, s->hidden.rows, end - begin, step, 1, NAPIER_F32};
    return napier_matmul(both[1], s->hidden, napier_const_transposed(some_weights(s, begin, end)), out);
}

static void reduce(exchange *x, source *s, reduced *r) {
    whole_tiles tiles = {.count = 0};
    void *both[2] = {s, x->context};
    r->each = x->rows > 0 ? s->ids.size / x->rows : 0;
    r->finals = exchange_take(x, x->rows, FINAL * sizeof *r->finals);
    r->chosen = exchange_take(x, x->rows * r->each, sizeof *r->chosen);
    float *const own = exchange_take(x, x->rows * exchange_own_tiles(x) * s->values, sizeof *own);
    for (int64_t i = 0; r->chosen && i < x->rows * r->each; i++) {
        r->chosen[i] = INFINITY;
    }
    exchange_tiles(x, s->linear ? NAPIER_F32 : s->logits.m.dtype, s->linear ? linear_columns : copy_columns,
                   s->linear ? (void *)both : &s->logits, &tiles);
    const napier_shard_values values = (napier_shard_values)s->values;
    for (int i = 0; i < tiles.count; i++) {
        const edge *e = &tiles.edges[i];
        STEP(x, napier_shard_tiles(x->context, e->x, e->first, x->vocabulary, s->ids, s->options, values,
                                   own_view(x, own, s->values, e->first, e->x.cols), r->chosen));
    }
    const int64_t begin = tiles.begin, end = tiles.end;
    if (begin < end && s->linear) {
        STEP(x,
             napier_shard_linear_tiles(x->context, s->hidden, some_weights(s, begin, end), begin, x->vocabulary, s->ids,
                                       s->options, values, own_view(x, own, s->values, begin, end - begin), r->chosen));
    } else if (begin < end) {
        STEP(x, napier_shard_tiles(x->context, columns_of(s->logits.m, s->logits.first, begin, end), begin,
                                   x->vocabulary, s->ids, s->options, values,
                                   own_view(x, own, s->values, begin, end - begin), r->chosen));
    }
    if (s->values == NAPIER_SHARD_LSE) {
        finish_by_sums(x, own, r);
    } else {
        finish_by_tiles(x, s->values, own, r);
    }
}

/* ---- softmax, log_softmax, logsumexp ------------------------------------------------------------------------------------- */

/* The options of a call, and those of tokens that give the same rows. */
typedef struct softmax_call {
    napier_softmax_options options;
    napier_token_options token;
} softmax_call;

/* Reads the options, opens the call and reduces the rows. */
static void reduce_logits(exchange *x, napier_context *context, MPI_Comm comm, napier_const_matrix logits,
                          const napier_softmax_options *options, softmax_call *call, reduced *r) {
    *call = (softmax_call){NAPIER_SOFTMAX_OPTIONS_INIT, NAPIER_TOKEN_OPTIONS_INIT};
    napier_status status = read_options(context, "NAPIER_SOFTMAX_OPTIONS_INIT", options, &call->options);
    status = status ? status : check_matrix(context, "logits", logits);
    call->token.temperature = call->options.temperature;
    const fact facts[] = {
        {"rows", logits.rows}, {"dtype", (int64_t)logits.dtype}, {"options", code_of_softmax(&call->options)}};
    memset(r, 0, sizeof *r);
    if (!exchange_open(x, context, comm, status, logits.rows, logits.cols, facts, 3)) {
        source s = {.logits = {logits, exchange_first(x)},
                    .options = &call->token,
                    .values = NAPIER_SHARD_LSE,
                    .ids = napier_indices_i64(NULL, 0)};
        reduce(x, &s, r);
    }
}

napier_status napier_mpi_logsumexp(napier_context *context, MPI_Comm comm, napier_const_matrix logits,
                                   napier_vector lse, const napier_softmax_options *options) {
    softmax_call call;
    napier_token_results results = NAPIER_TOKEN_RESULTS_INIT;
    exchange x;
    reduced r;
    results.lse = lse;
    reduce_logits(&x, context, comm, logits, options, &call, &r);
    STEP(&x, napier_shard_token_results(context, x.rows, r.finals, NULL, x.vocabulary, napier_indices_i64(NULL, 0),
                                        &call.token, &results));
    return exchange_close(&x);
}

static napier_status map(napier_context *context, MPI_Comm comm, napier_softmax_kind kind, napier_const_matrix logits,
                         napier_matrix result, const napier_softmax_options *options) {
    softmax_call call;
    exchange x;
    reduced r;
    reduce_logits(&x, context, comm, logits, options, &call, &r);
    STEP(&x, napier_shard_softmax(context, r.finals, kind, logits, result, &call.options));
    return exchange_close(&x);
}

napier_status napier_mpi_softmax(napier_context *context, MPI_Comm comm, napier_const_matrix logits,
                                 napier_matrix probs, const napier_softmax_options *options) {
    return map(context, comm, NAPIER_KIND_SOFTMAX, logits, probs, options);
}

napier_status napier_mpi_log_softmax(napier_context *context, MPI_Comm comm, napier_const_matrix logits,
                                     napier_matrix logprobs, const napier_softmax_options *options) {
    return map(context, comm, NAPIER_KIND_LOG_SOFTMAX, logits, logprobs, options);
}

napier_status napier_mpi_logsumexp_backward(napier_context *context, MPI_Comm comm, napier_const_matrix logits,
                                            napier_const_vector grad_lse, napier_matrix grad_logits,
                                            const napier_softmax_options *options) {
    softmax_call call;
    exchange x;
    reduced r;
    reduce_logits(&x, context, comm, logits, options, &call, &r);
    STEP(&x, napier_shard_logsumexp_backward(context, r.finals, logits, grad_lse, grad_logits, &call.options));
    return exchange_close(&x);
}

/* The sums of all tiles of each row, for gradients (napier_shard_dots): [rows][all tiles][NAPIER_SHARD_DOTS]. */
static float *gather_dots(exchange *x, bool product, napier_const_matrix probs, napier_const_matrix gradients) {
    whole_tiles of_gradients = {.count = 0}, of_probs = {.count = 0};
    shard g = {gradients, exchange_first(x)}, p = {probs, exchange_first(x)};
    float *const own = exchange_take(x, x->rows * exchange_own_tiles(x) * NAPIER_SHARD_DOTS, sizeof *own);
    float *const dots = exchange_take(x, x->rows * exchange_all_tiles(x) * NAPIER_SHARD_DOTS, sizeof *dots);
    exchange_tiles(x, gradients.dtype, copy_columns, &g, &of_gradients);
    if (product) {
        exchange_tiles(x, probs.dtype, copy_columns, &p, &of_probs);
    }
    const napier_const_matrix none = {NULL, 0, 0, 0, 0, NAPIER_F32};
    for (int i = 0; i < of_gradients.count; i++) {
        const edge *e = &of_gradients.edges[i];
        STEP(x, napier_shard_dots(x->context, product ? of_probs.edges[i].x : none, e->x,
                                  own_view(x, own, NAPIER_SHARD_DOTS, e->first, e->x.cols)));
    }
    const int64_t begin = of_gradients.begin, end = of_gradients.end;
    if (begin < end) {
        STEP(x, napier_shard_dots(x->context, product ? columns_of(probs, p.first, begin, end) : none,
                                  columns_of(gradients, g.first, begin, end),
                                  own_view(x, own, NAPIER_SHARD_DOTS, begin, end - begin)));
    }
    exchange_gather_tiles(x, NAPIER_SHARD_DOTS, own, NULL, 0, dots, NULL);
    return dots;
}

static napier_status map_backward(napier_context *context, MPI_Comm comm, napier_softmax_kind kind,
                                  napier_const_matrix result, napier_const_matrix gradients, napier_matrix grad_logits,
                                  const napier_softmax_options *options) {
    napier_softmax_options o = NAPIER_SOFTMAX_OPTIONS_INIT;
    napier_status status = read_options(context, "NAPIER_SOFTMAX_OPTIONS_INIT", options, &o);
    status = status ? status : check_matrix(context, "result", result);
    status = status ? status : check_matrix(context, "gradients", gradients);
    if (!status && (gradients.rows != result.rows || gradients.cols != result.cols)) {
        status = napier_set_error(context, NAPIER_INVALID_ARGUMENT, "gradients: its shape is not that of the result");
    }
    const fact facts[] = {{"rows", result.rows},
                          {"dtype", (int64_t)result.dtype * 8 + (int64_t)gradients.dtype},
                          {"options", code_of_softmax(&o)}};
    exchange x;
    if (!exchange_open(&x, context, comm, status, result.rows, result.cols, facts, 3)) {
        const float *const dots = gather_dots(&x, kind == NAPIER_KIND_SOFTMAX, result, gradients);
        const int64_t sums = exchange_all_tiles(&x) * NAPIER_SHARD_DOTS;
        STEP(&x, napier_shard_softmax_backward(context, kind, result, gradients,
                                               napier_const_rows_f32(dots, x.rows, sums), grad_logits, &o));
    }
    return exchange_close(&x);
}

napier_status napier_mpi_softmax_backward(napier_context *context, MPI_Comm comm, napier_const_matrix probs,
                                          napier_const_matrix grad_probs, napier_matrix grad_logits,
                                          const napier_softmax_options *options) {
    return map_backward(context, comm, NAPIER_KIND_SOFTMAX, probs, grad_probs, grad_logits, options);
}

napier_status napier_mpi_log_softmax_backward(napier_context *context, MPI_Comm comm, napier_const_matrix logprobs,
                                              napier_const_matrix grad_logprobs, napier_matrix grad_logits,
                                              const napier_softmax_options *options) {
    return map_backward(context, comm, NAPIER_KIND_LOG_SOFTMAX, logprobs, grad_logprobs, grad_logits, options);
}

/* ---- Tokens --------------------------------------------------------------------------------------------------------------- */

/* How much of a tile the results or gradients need. */
static int values_of(const napier_token_options *o, bool entropy, bool loss) {
    return loss && o->label_smoothing > 0.0 ? NAPIER_SHARD_TOTAL : entropy ? NAPIER_SHARD_ENTROPY : NAPIER_SHARD_LSE;
}

static napier_status check_source(napier_context *context, const source *s) {
    const napier_const_matrix first = s->linear ? s->hidden : s->logits.m;
    TRY(check_matrix(context, s->linear ? "hidden" : "logits", first));
    TRY(s->linear ? check_matrix(context, "weights", s->weights) : NAPIER_OK);
    if (s->ids.size < 0 || (first.rows > 0 ? s->ids.size % first.rows != 0 : s->ids.size != 0)) {
        return napier_set_error(context, NAPIER_INVALID_ARGUMENT, "ids: their size is no multiple of the rows");
    }
    if (s->linear && s->hidden.cols != s->weights.cols) {
        return napier_set_error(context, NAPIER_INVALID_ARGUMENT, "weights: cols are not those of hidden");
    }
    return NAPIER_OK;
}

/* Opens the call and reduces the rows of s. `status` is that of what the caller has read. */
static void reduce_tokens(exchange *x, napier_context *context, MPI_Comm comm, napier_status status, source *s,
                          reduced *r, int64_t more) {
    const napier_const_matrix first = s->linear ? s->hidden : s->logits.m;
    status = status ? status : check_source(context, s);
    const fact facts[] = {{"rows", first.rows},
                          {"dtype", (int64_t)first.dtype * 8 + (s->linear ? (int64_t)s->weights.dtype : 0)},
                          {"options", code_of_token(s->options)},
                          {"ids", s->ids.size},
                          {"cols of hidden", s->linear ? s->hidden.cols : 0},
                          {"results", s->values * 8 + more}};
    memset(r, 0, sizeof *r);
    if (!exchange_open(x, context, comm, status, first.rows, s->linear ? s->weights.rows : first.cols, facts, 6)) {
        s->logits.first = exchange_first(x);
        reduce(x, s, r);
    }
}

static napier_status results_of(napier_context *context, MPI_Comm comm, source *s, const napier_token_options *options,
                                const napier_token_results *results) {
    napier_token_options o = NAPIER_TOKEN_OPTIONS_INIT;
    napier_token_results wanted = NAPIER_TOKEN_RESULTS_INIT;
    exchange x;
    reduced r;
    napier_status status = read_options(context, "NAPIER_TOKEN_OPTIONS_INIT", options, &o);
    status = status ? status : read_struct(context, "results", "NAPIER_TOKEN_RESULTS_INIT", results, &wanted);
    s->options = &o;
    s->values = values_of(&o, wanted.entropy.data, wanted.loss.data);
    reduce_tokens(&x, context, comm, status, s, &r, 0);
    STEP(&x, napier_shard_token_results(context, x.rows, r.finals, r.chosen, x.vocabulary, s->ids, &o, &wanted));
    return exchange_close(&x);
}

napier_status napier_mpi_token_logprobs(napier_context *context, MPI_Comm comm, napier_const_matrix logits,
                                        napier_indices ids, const napier_token_options *options,
                                        const napier_token_results *results) {
    source s = {.logits = {logits, 0}, .ids = ids};
    return results_of(context, comm, &s, options, results);
}

napier_status napier_mpi_linear_token_logprobs(napier_context *context, MPI_Comm comm, napier_const_matrix hidden,
                                               napier_const_matrix weights, napier_indices ids,
                                               const napier_token_options *options,
                                               const napier_token_results *results) {
    source s = {.linear = true, .hidden = hidden, .weights = weights, .ids = ids};
    return results_of(context, comm, &s, options, results);
}

/* The options and gradients of a backward call. */
typedef struct back_call {
    napier_token_options options;
    napier_token_gradients gradients;
} back_call;

static napier_status read_back(napier_context *context, const napier_token_options *options,
                               const napier_token_gradients *gradients, back_call *call, source *s) {
    *call = (back_call){NAPIER_TOKEN_OPTIONS_INIT, NAPIER_TOKEN_GRADIENTS_INIT};
    napier_status status = read_options(context, "NAPIER_TOKEN_OPTIONS_INIT", options, &call->options);
    status =
        status ? status : read_struct(context, "gradients", "NAPIER_TOKEN_GRADIENTS_INIT", gradients, &call->gradients);
    s->options = &call->options;
    s->values = values_of(&call->options, call->gradients.entropy.data, false);
    return status;
}

napier_status napier_mpi_token_logprobs_backward(napier_context *context, MPI_Comm comm, napier_const_matrix logits,
                                                 napier_indices ids, const napier_token_options *options,
                                                 const napier_token_gradients *gradients, napier_matrix grad_logits) {
    source s = {.logits = {logits, 0}, .ids = ids};
    back_call call;
    exchange x;
    reduced r;
    const napier_status status = read_back(context, options, gradients, &call, &s);
    reduce_tokens(&x, context, comm, status, &s, &r, 0);
    STEP(&x, napier_shard_token_backward(context, r.finals, r.chosen, logits, s.logits.first, x.vocabulary, ids,
                                         &call.options, &call.gradients, grad_logits));
    return exchange_close(&x);
}

/* ---- The gradient of hidden states: one chain over the vocabulary, from rank to rank ------------------------------------------ */

/* Rows begin .. end - 1 of the gradients. */
static napier_token_gradients some_gradients(const napier_token_gradients *g, int64_t begin, int64_t end) {
    napier_token_gradients some = *g;
    napier_const_vector *const vectors[3] = {&some.lse, &some.entropy, &some.loss};
    some.struct_size = sizeof some;
    if (some.logprobs.data) {
        some.logprobs.data = (const char *)some.logprobs.data +
                             begin * some.logprobs.row_stride * (int64_t)napier_dtype_size(some.logprobs.dtype);
        some.logprobs.rows = end - begin;
    }
    for (int i = 0; i < 3; i++) {
        if (vectors[i]->data) {
            vectors[i]->data = (const char *)vectors[i]->data +
                               begin * vectors[i]->stride * (int64_t)napier_dtype_size(vectors[i]->dtype);
            vectors[i]->size = end - begin;
        }
    }
    return some;
}

static napier_indices some_ids(napier_indices ids, int64_t begin, int64_t end) {
    ids.data = ids.data ? (const char *)ids.data + begin * (ids.type == NAPIER_I32 ? 4 : 8) : NULL;
    ids.size = end - begin;
    return ids;
}

/* A rank continues the sums of the rank before it; while it does, that rank computes the next rows. */
static void chain(exchange *x, const source *s, const reduced *r, const napier_token_gradients *gradients,
                  float *sums) {
    const int64_t width = s->hidden.cols, all = 4 * (int64_t)x->ranks;
    const int64_t step = x->rows / all + 1 > 16 ? x->rows / all + 1 : 16;
    MPI_Request sent = MPI_REQUEST_NULL;
    for (int64_t row = 0; row < x->rows; row += step) {
        const int64_t end = row + step < x->rows ? row + step : x->rows;
        float *const some = sums ? sums + row * width : NULL;
        const int count = (int)((end - row) * width);
        if (x->rank > 0) {
            exchange_check(x, MPI_Recv(some, count, MPI_FLOAT, x->rank - 1, 2, x->comm, MPI_STATUS_IGNORE),
                           "the chain of grad_hidden");
        }
        napier_const_matrix hidden = s->hidden;
        hidden.data = (const char *)hidden.data + row * hidden.row_stride * (int64_t)napier_dtype_size(hidden.dtype);
        hidden.rows = end - row;
        const napier_token_gradients g = some_gradients(gradients, row, end);
        const napier_matrix none = {NULL, 0, 0, 0, 0, NAPIER_F32};
        STEP(x, napier_shard_linear_backward(x->context, r->finals + row * FINAL, r->chosen + row * r->each, hidden,
                                             s->weights, s->logits.first, x->vocabulary,
                                             some_ids(s->ids, row * r->each, end * r->each), s->options, &g,
                                             x->rank > 0, napier_rows_f32(some, end - row, width), none));
        exchange_check(x, MPI_Wait(&sent, MPI_STATUS_IGNORE), "the chain of grad_hidden");
        if (x->rank + 1 < x->ranks) {
            exchange_check(x, MPI_Isend(some, count, MPI_FLOAT, x->rank + 1, 2, x->comm, &sent),
                           "the chain of grad_hidden");
        }
    }
    exchange_check(x, MPI_Wait(&sent, MPI_STATUS_IGNORE), "the chain of grad_hidden");
}

/* Rounds the sums to the result: a gather of the only element of each "row" is a copy that rounds once. */
static napier_status write_sums(exchange *x, const float *sums, napier_matrix out) {
    int32_t *const zeros = exchange_take(x, out.cols, sizeof *zeros);
    if (!zeros) {
        return x->status;
    }
    memset(zeros, 0, (size_t)out.cols * sizeof *zeros);
    napier_status status = NAPIER_OK;
    for (int64_t row = 0; !status && row < out.rows; row++) {
        char *const to = (char *)out.data + row * out.row_stride * (int64_t)napier_dtype_size(out.dtype);
        const napier_vector vector = {to, out.cols, out.col_stride, out.dtype};
        status = napier_gather_logprobs(x->context, napier_const_rows_f32(sums + row * out.cols, out.cols, 1),
                                        napier_indices_i32(zeros, out.cols), vector);
    }
    return status;
}

napier_status napier_mpi_linear_token_logprobs_backward(napier_context *context, MPI_Comm comm,
                                                        napier_const_matrix hidden, napier_const_matrix weights,
                                                        napier_indices ids, const napier_token_options *options,
                                                        const napier_token_gradients *gradients,
                                                        napier_matrix grad_hidden, napier_matrix grad_weights) {
    source s = {.linear = true, .hidden = hidden, .weights = weights, .ids = ids};
    const napier_matrix none = {NULL, 0, 0, 0, 0, NAPIER_F32};
    back_call call;
    exchange x;
    reduced r;
    napier_status status = read_back(context, options, gradients, &call, &s);
    status = status ? status : check_source(context, &s);
    status = status ? status
                    : napier_shard_linear_backward_check(context, hidden, weights, INT64_MAX, ids, &call.options,
                                                         &call.gradients, grad_hidden, grad_weights);
    if (!status && hidden.cols > 0 && hidden.rows > INT_MAX / hidden.cols) {
        status = napier_set_error(context, NAPIER_INVALID_ARGUMENT,
                                  "hidden: too many elements for one message; pass some rows at a time");
    }
    reduce_tokens(&x, context, comm, status, &s, &r, grad_hidden.data != NULL);
    if (!x.open) {
        return exchange_close(&x);
    }
    if (grad_hidden.data) {
        float *const sums = exchange_take(&x, x.rows * hidden.cols, sizeof *sums);
        exchange_gather(&x, NULL, 0, NULL); /* the chain begins only if no rank has failed */
        if (!x.status) {
            chain(&x, &s, &r, &call.gradients, sums);
            exchange_check(&x, MPI_Bcast(sums, (int)(x.rows * hidden.cols), MPI_FLOAT, x.ranks - 1, comm),
                           "the broadcast of grad_hidden");
            STEP(&x, write_sums(&x, sums, grad_hidden));
        }
    }
    if (grad_weights.data) {
        STEP(&x,
             napier_shard_linear_backward(context, r.finals, r.chosen, hidden, weights, s.logits.first, x.vocabulary,
                                          ids, &call.options, &call.gradients, 0, none, grad_weights));
    }
    return exchange_close(&x);
}
