/* mpi/weighted_mpi.c - weighted logsumexp of rows of which each rank has some columns. The ranks exchange a state of each row,
 * which has the elements of shared tiles in it. So there is one message, and no rank owns a tile. */
#include <string.h>

#include "arguments_mpi.h"
#include "exchange.h"

/* The elements that the state of rank r keeps, because their tiles lie in other shards too. */
static int64_t open_elements(const exchange *x, int r) {
    const int64_t first = x->offsets[r], cols = x->offsets[r + 1] - first;
    const int64_t before = (NAPIER_SHARD_TILE - first % NAPIER_SHARD_TILE) % NAPIER_SHARD_TILE;
    return cols <= before ? cols : before + (cols - before) % NAPIER_SHARD_TILE;
}

/* Logits and weights of this rank, and the states of all. */
typedef struct weighted_rows {
    napier_const_matrix logits, weights;
    const napier_softmax_options *options;
    size_t empty, widest; /* bytes: of a state without elements, of a record */
    char *mine, *all;     /* [rows][widest], [ranks][rows][widest] */
    float *lse, *sign;
} weighted_rows;

static size_t state_bytes(const exchange *x, const weighted_rows *w, int r) {
    return w->empty + 2 * sizeof(float) * (size_t)open_elements(x, r);
}

static napier_const_vector row_of(napier_const_matrix m, int64_t row) {
    const int64_t at = row * m.row_stride * (int64_t)napier_dtype_size(m.dtype);
    return (napier_const_vector){m.cols > 0 ? (const char *)m.data + at : NULL, m.cols, m.col_stride, m.dtype};
}

static napier_status save_state(const exchange *x, const weighted_rows *w, int64_t row) {
    napier_softmax_state *state = NULL;
    TRY(napier_softmax_state_create_weighted(x->context, NAPIER_F32, exchange_first(x), w->options, &state));
    napier_status status =
        napier_softmax_state_update_weighted(x->context, state, row_of(w->logits, row), row_of(w->weights, row));
    status = status ? status
                    : napier_softmax_state_to_bytes(x->context, state, w->mine + (size_t)row * w->widest, w->widest);
    napier_softmax_state_destroy(state);
    return status;
}

/* Merges the states of all ranks. */
static napier_status finish_state(const exchange *x, const weighted_rows *w, int64_t row) {
    napier_softmax_state *whole = NULL;
    double lse = 0.0, sign = 0.0;
    TRY(napier_softmax_state_create_weighted(x->context, NAPIER_F32, 0, w->options, &whole));
    napier_status status = NAPIER_OK;
    for (int r = 0; !status && r < x->ranks; r++) {
        napier_softmax_state *theirs = NULL;
        const char *const record = w->all + (size_t)(r * x->rows + row) * w->widest;
        status = napier_softmax_state_from_bytes(x->context, record, state_bytes(x, w, r), &theirs);
        status = status ? status : napier_softmax_state_merge(x->context, whole, theirs);
        napier_softmax_state_destroy(theirs);
    }
    status = status ? status : napier_softmax_state_finish_weighted(x->context, whole, &lse, &sign);
    w->lse[row] = (float)lse;
    w->sign[row] = (float)sign;
    napier_softmax_state_destroy(whole);
    return status;
}

/* The size of a state without elements. This also checks the options. */
static napier_status measure_state(napier_context *context, weighted_rows *w) {
    napier_softmax_state *empty = NULL;
    TRY(napier_softmax_state_create_weighted(context, NAPIER_F32, 0, w->options, &empty));
    w->empty = napier_softmax_state_size(empty);
    napier_softmax_state_destroy(empty);
    return NAPIER_OK;
}

static void take_weighted(exchange *x, weighted_rows *w) {
    for (int r = 0; r < x->ranks; r++) {
        const size_t bytes = state_bytes(x, w, r);
        w->widest = bytes > w->widest ? bytes : w->widest;
    }
    w->mine = exchange_take(x, x->rows, w->widest);
    if (w->mine) { /* a state may be shorter than its record */
        memset(w->mine, 0, (size_t)x->rows * w->widest);
    }
    w->all = exchange_take(x, x->rows * x->ranks, w->widest);
    w->lse = exchange_take(x, x->rows, sizeof *w->lse);
    w->sign = exchange_take(x, x->rows, sizeof *w->sign);
}

napier_status napier_mpi_logsumexp_weighted(napier_context *context, MPI_Comm comm, napier_const_matrix logits,
                                            napier_const_matrix weights, napier_vector lse, napier_vector sign,
                                            const napier_softmax_options *options) {
    napier_softmax_options o = NAPIER_SOFTMAX_OPTIONS_INIT;
    napier_status status = read_options(context, "NAPIER_SOFTMAX_OPTIONS_INIT", options, &o);
    status = status ? status : check_matrix(context, "logits", logits);
    status = status ? status : check_matrix(context, "weights", weights);
    if (!status && (weights.rows != logits.rows || weights.cols != logits.cols)) {
        status = napier_set_error(context, NAPIER_INVALID_ARGUMENT, "weights: their shape is not that of the logits");
    }
    if (!status && (lse.dtype == NAPIER_F64 || (sign.data && sign.dtype == NAPIER_F64))) {
        status = napier_set_error(context, NAPIER_INVALID_ARGUMENT, "lse, sign: dtype f64 is not f32, f16 or bf16");
    }
    weighted_rows w = {.logits = logits, .weights = weights, .options = &o};
    status = status ? status : measure_state(context, &w);
    const fact facts[] = {{"rows", logits.rows},
                          {"dtype", (int64_t)logits.dtype * 8 + (int64_t)weights.dtype},
                          {"options", code_of_softmax(&o)}};
    exchange x;
    if (exchange_open(&x, context, comm, status, logits.rows, logits.cols, facts, 3)) {
        return exchange_close(&x);
    }
    take_weighted(&x, &w);
    for (int64_t row = 0; row < x.rows; row++) {
        STEP(&x, save_state(&x, &w, row));
    }
    exchange_gather(&x, w.mine, (size_t)x.rows * w.widest, w.all);
    for (int64_t row = 0; row < x.rows; row++) {
        STEP(&x, finish_state(&x, &w, row));
    }
    /* sign exp(lse) has this logsumexp and sign: they are rounded to the results' dtypes, which are checked */
    STEP(&x, napier_logsumexp_weighted(context, napier_const_rows_f32(w.lse, x.rows, 1),
                                       napier_const_rows_f32(w.sign, x.rows, 1), lse, sign, NULL));
    return exchange_close(&x);
}
