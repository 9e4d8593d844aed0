/* ops/tokens/gather.c - reads one log-probability of each row, and its gradient. */
#include <napier/rl.h>
#include <string.h>

#include "core/base/parallel.h"
#include "core/base/scope.h"
#include "core/base/stop.h"
#include "ops/isa/ops_kernels.h"
#include "core/math/f64.h"
#include "ops/tokens/gather.h"
#include "ops/softmax/softmax_split.h"

/* The least number of rows for a second thread: reading an element of each costs as much as starting a thread. */
enum { GATHER_ROWS = 16384, GATHER_BATCH = 256 };

typedef struct gathering {
    const napier_softmax_kernels *kernels;
    napier_const_matrix x; /* logprobs */
    napier_indices ids;
    napier_vector y; /* gathered */
} gathering;

napier_status napier_gather_check(napier_context *context, napier_place place, napier_const_matrix logprobs,
                                  napier_indices ids, napier_const_vector gathered, bool backward) {
    const int64_t rows = logprobs.rows, cols = logprobs.cols;
    const unsigned in = NAPIER_IS_NARROW | NAPIER_MAY_BE_OUT, out = NAPIER_IS_NARROW | NAPIER_IS_OUT;
    const napier_argument all[] = {
        NAPIER_ARGUMENT(backward ? "grad_logprobs" : "logprobs", logprobs, backward ? out : in, rows, cols, NULL),
        napier_row_argument(backward ? "grad_gathered" : "gathered", gathered, backward ? in : out, rows),
        napier_row_argument("ids", napier_indices_bytes(ids), 0, ids.size)};
    NAPIER_TRY(napier_begin(context));
    NAPIER_TRY(napier_check_arguments(context, all, sizeof all / sizeof *all));
    return napier_check_ids_on(context, place, "ids", ids, rows, cols);
}

/* Collects the chosen elements, then converts them together to the result's dtype. */
static void gather_task(void *argument, int worker, int64_t begin, int64_t end) {
    const gathering *g = argument;
    const size_t size = napier_dtype_size(g->x.dtype);
    (void)worker;
    for (int64_t row = begin; row < end; row += GATHER_BATCH) {
        const int64_t n = napier_least(end - row, GATHER_BATCH);
        char chosen[GATHER_BATCH * sizeof(float)];
        float wide[GATHER_BATCH + 16];
        for (int64_t i = 0; i < n; i++) {
            const int64_t at = (row + i) * g->x.row_stride + napier_index_at(g->ids, row + i) * g->x.col_stride;
            memcpy(chosen + (size_t)i * size, (const char *)g->x.data + at * (int64_t)size, size);
        }
        g->kernels->pack(chosen, g->x.dtype, 1, n, 1.0f, wide);
        for (int64_t i = 0; i < n; i++) {
            napier_f64_store(g->y.data, g->y.dtype, (row + i) * g->y.stride, (double)wide[i]);
        }
    }
}

napier_status napier_gather_logprobs(napier_context *context, napier_const_matrix logprobs, napier_indices ids,
                                     napier_vector gathered) {
    NAPIER_TRY(napier_gather_check(context, NAPIER_ON_HOST, logprobs, ids, napier_read_only_vector(gathered), false));
    gathering g = {napier_ops_kernels_of(context->isa)->softmax, logprobs, ids, gathered};
    NAPIER_MAY_STOP(context);
    napier_parallel(context, logprobs.rows, GATHER_ROWS, gather_task, &g);
    return napier_stopped(context);
}

/* ---- Backward ---------------------------------------------------------------------------------------------------- */

typedef struct scattering {
    napier_const_vector g; /* grad_gathered */
    napier_indices ids;
    napier_matrix y; /* grad_logprobs */
} scattering;

static void scatter_zeros(napier_matrix y, int64_t row) {
    const size_t size = napier_dtype_size(y.dtype);
    char *at = (char *)y.data + row * y.row_stride * (int64_t)size;
    if (y.col_stride == 1) {
        memset(at, 0, (size_t)y.cols * size);
        return;
    }
    for (int64_t j = 0; j < y.cols; j++) {
        memset(at + j * y.col_stride * (int64_t)size, 0, size);
    }
}

static void scatter_task(void *argument, int worker, int64_t begin, int64_t end) {
    const scattering *s = argument;
    (void)worker;
    for (int64_t row = begin; row < end; row++) {
        const double g = napier_f64_load(s->g.data, s->g.dtype, row * s->g.stride);
        const int64_t id = napier_index_at(s->ids, row);
        scatter_zeros(s->y, row);
        napier_f64_store(s->y.data, s->y.dtype, row * s->y.row_stride + id * s->y.col_stride, g);
    }
}

napier_status napier_gather_logprobs_backward(napier_context *context, napier_const_vector grad_gathered,
                                              napier_indices ids, napier_matrix grad_logprobs) {
    NAPIER_TRY(napier_gather_check(context, NAPIER_ON_HOST, napier_read_only(grad_logprobs), ids, grad_gathered, true));
    scattering s = {grad_gathered, ids, grad_logprobs};
    const int64_t chunk = napier_row_chunk(context, grad_logprobs.rows, grad_logprobs.cols, 1);
    NAPIER_MAY_STOP(context);
    napier_parallel(context, grad_logprobs.rows, chunk, scatter_task, &s);
    return napier_stopped(context);
}
