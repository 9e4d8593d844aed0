/* ops/layers/rms_norm.c - RMS normalisation and its gradient: checks, memory, division over threads.
 *
 * The gradient of the weight is a sum over rows. Each column is one chain over the rows in their order, in double.
 * Threads take columns, so the order does not depend on them. */
#include <math.h>
#include <napier/layers.h>

#include "core/base/parallel.h"
#include "core/base/scope.h"
#include "core/base/stop.h"
#include "core/base/struct_size.h"
#include "core/base/view.h"
#include "ops/layers/layer_rows.h"

enum { COLUMNS = 128, ROOMS = 3 };

typedef struct job {
    const napier_ops_kernels *kernels;
    napier_norm norm;
    napier_const_matrix x, grad;
    napier_matrix out;
    napier_matrix grad_weight; /* one row */
    float *rooms;              /* [workers][ROOMS][floats of a row] */
    float *factors;            /* [rows]; NULL: not wanted */
} job;

static float *room_of(const job *j, int worker, int which) {
    return j->rooms + ((int64_t)worker * ROOMS + which) * napier_layer_floats(j->norm.n);
}

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

static void forward_task(void *argument, int worker, int64_t begin, int64_t end) {
    const job *j = argument;
    float *const room = room_of(j, worker, 0), *const result = room_of(j, worker, 1);
    for (int64_t row = begin; row < end; row++) {
        const float *x = napier_layer_in(j->kernels, &j->x, row, 0, j->x.cols, room);
        const napier_layer_place place = napier_layer_out(&j->out, row, 0, result);
        j->kernels->layers->norm(&j->norm, (float *)x, NULL, place.data, place.dtype); /* without delta x stays */
        napier_layer_put(j->kernels, j->out, row, 0, j->x.cols, &place, result);
    }
}

static float gradient_row(const job *j, int worker, int64_t row) {
    const int64_t n = j->norm.n;
    const float *x = napier_layer_in(j->kernels, &j->x, row, 0, n, room_of(j, worker, 0));
    if (!j->out.data) {
        return j->kernels->layers->norm_factor(&j->norm, x);
    }
    const float *grad = napier_layer_in(j->kernels, &j->grad, row, 0, n, room_of(j, worker, 1));
    float *const result = room_of(j, worker, 2);
    const float factor = j->kernels->layers->norm_gradient(&j->norm, x, grad, result);
    j->kernels->core->unpack(result, napier_layer_floats(n), 1, n, j->out, row, 0, false);
    return factor;
}

static void gradient_task(void *argument, int worker, int64_t begin, int64_t end) {
    const job *j = argument;
    for (int64_t row = begin; row < end; row++) {
        const float factor = gradient_row(j, worker, row);
        if (j->factors) {
            j->factors[row] = factor;
        }
    }
}

/* ---- The weight's gradient: some columns ------------------------------------------------------------------------- */

static void weight_columns(void *argument, int64_t index) {
    const job *j = argument;
    const int64_t col = index * COLUMNS, cols = napier_least(j->norm.n - col, COLUMNS);
    float room[COLUMNS], grad_room[COLUMNS];
    double sums[COLUMNS] = {0.0};
    for (int64_t row = 0; row < j->x.rows; row++) {
        const float *x = napier_layer_in(j->kernels, &j->x, row, col, cols, room);
        const float *grad = napier_layer_in(j->kernels, &j->grad, row, col, cols, grad_room);
        j->kernels->layers->add_weight_gradient(x, grad, j->factors[row], cols, sums);
    }
    for (int64_t i = 0; i < COLUMNS; i++) {
        room[i] = (float)sums[i];
    }
    j->kernels->core->unpack(room, COLUMNS, 1, cols, j->grad_weight, 0, col, false);
}

/* ---- Calls ------------------------------------------------------------------------------------------------------- */

static napier_status read_epsilon(napier_context *context, const napier_rms_norm_options *options, float *epsilon) {
    napier_rms_norm_options o = NAPIER_RMS_NORM_OPTIONS_INIT;
    NAPIER_TRY(napier_read_options(context, "options",
                                   NAPIER_STRUCT(napier_rms_norm_options, NAPIER_RMS_NORM_OPTIONS_INIT, epsilon),
                                   options, &o));
    *epsilon = (float)o.epsilon;
    NAPIER_REFUSE_IF(context, !(o.epsilon >= 0.0 && isfinite(*epsilon)), "epsilon: %g is not finite and at least 0",
                     o.epsilon);
    return NAPIER_OK;
}

/* Memory for the workers' rows, and the weight as f32. */
static napier_status take(napier_memory *memory, napier_const_vector weight, job *j) {
    const napier_context *context = memory->context;
    const int64_t floats = napier_layer_floats(j->norm.n),
                  workers = napier_workers(context, j->x.rows, napier_layer_chunk(j->x.cols));
    float *const wide = napier_take(memory, floats, sizeof *wide);
    j->rooms = napier_take(memory, floats, ROOMS * (size_t)workers * sizeof *j->rooms);
    NAPIER_TRY(napier_taken(memory, "rms_norm: no memory for rows of %lld elements", (long long)j->norm.n));
    const napier_const_matrix row = napier_vector_row(weight);
    j->norm.weight = napier_layer_in(j->kernels, &row, 0, 0, j->norm.n, wide);
    return NAPIER_OK;
}

static job job_of(const napier_context *context, napier_const_matrix x, float epsilon) {
    return (job){.kernels = napier_ops_kernels_of(context->isa), .norm = {.n = x.cols, .epsilon = epsilon}, .x = x};
}

napier_status napier_rms_norm(napier_context *context, napier_const_matrix x, napier_const_vector weight,
                              napier_matrix out, const napier_rms_norm_options *options) {
    NAPIER_DEFAULT_FENV;
    NAPIER_TRY(napier_begin(context));
    float epsilon;
    NAPIER_TRY(read_epsilon(context, options, &epsilon));
    const napier_argument all[] = {
        NAPIER_ARGUMENT("x", x, NAPIER_IS_NARROW | NAPIER_MAY_BE_OUT, x.rows, x.cols, NULL),
        napier_row_argument("weight", weight, NAPIER_IS_NARROW, x.cols),
        NAPIER_ARGUMENT("out", napier_read_only(out), NAPIER_IS_NARROW | NAPIER_IS_OUT, x.rows, x.cols, "x")};
    NAPIER_TRY(napier_check_arguments(context, all, sizeof all / sizeof *all));
    if (x.rows == 0 || x.cols == 0) {
        return NAPIER_OK;
    }
    NAPIER_MEMORY(memory, context);
    job j = job_of(context, x, epsilon);
    j.out = out;
    NAPIER_TRY(take(&memory, weight, &j));
    NAPIER_MAY_STOP(context);
    napier_parallel(context, x.rows, napier_layer_chunk(x.cols), forward_task, &j);
    return napier_stopped(context);
}

static napier_status check_backward(napier_context *context, const job *j, napier_const_vector weight,
                                    napier_vector grad_weight) {
    const napier_const_matrix x = j->x;
    const unsigned out = NAPIER_IS_NARROW | NAPIER_IS_OUT | NAPIER_MAY_BE_ABSENT;
    const napier_argument all[] = {
        NAPIER_ARGUMENT("x", x, NAPIER_IS_NARROW, x.rows, x.cols, NULL),
        NAPIER_ARGUMENT("grad_out", j->grad, NAPIER_IS_NARROW, x.rows, x.cols, "x"),
        napier_row_argument("weight", weight, NAPIER_IS_NARROW, x.cols),
        NAPIER_ARGUMENT("grad_x", napier_read_only(j->out), out, x.rows, x.cols, "x"),
        napier_row_argument("grad_weight", napier_read_only_vector(grad_weight), out, x.cols)};
    return napier_check_arguments(context, all, sizeof all / sizeof *all);
}

static napier_status run_backward(napier_context *context, job *j, napier_const_vector weight) {
    NAPIER_MEMORY(memory, context);
    const bool wants_weight = j->grad_weight.data != NULL;
    j->factors = wants_weight ? napier_take(&memory, j->x.rows, sizeof *j->factors) : NULL;
    NAPIER_TRY(take(&memory, weight, j));
    NAPIER_MAY_STOP(context);
    napier_parallel(context, j->x.rows, napier_layer_chunk(j->x.cols), gradient_task, j);
    if (wants_weight) {
        napier_parallel_each(context, napier_round_up(j->norm.n, COLUMNS) / COLUMNS, 1, weight_columns, j);
    }
    return napier_stopped(context);
}

napier_status napier_rms_norm_backward(napier_context *context, napier_const_matrix grad_out, napier_const_matrix x,
                                       napier_const_vector weight, napier_matrix grad_x, napier_vector grad_weight,
                                       const napier_rms_norm_options *options) {
    NAPIER_DEFAULT_FENV;
    NAPIER_TRY(napier_begin(context));
    float epsilon;
    NAPIER_TRY(read_epsilon(context, options, &epsilon));
    job j = job_of(context, x, epsilon);
    j.grad = grad_out;
    j.out = grad_x;
    j.grad_weight = napier_vector_row_out(grad_weight);
    NAPIER_TRY(check_backward(context, &j, weight, grad_weight));
    if (x.cols == 0 || (!grad_weight.data && (x.rows == 0 || !grad_x.data))) {
        return NAPIER_OK;
    }
    return run_backward(context, &j, weight);
}
