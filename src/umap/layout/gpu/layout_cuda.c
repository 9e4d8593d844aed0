/* umap/layout/gpu/layout_cuda.c - forces on all vertices and epochs of optimisation on a device: checks, memory,
 * launches (layout.cu). */
#include <napier/cuda/umap.h>

#include "core/base/struct_size.h"
#include "core/base/view.h"
#include "umap/graph/gpu/graph_cuda.h"
#include "umap/layout/epochs.h"
#include "umap/graph/graph.h"
#include "umap/layout/gpu/layout_cuda.h"
#include "umap/layout/sampling.h"

NAPIER_CUDA_KERNEL_DECLARE(napier_umap_forces_kernel, napier_umap_forces_2_kernel, napier_umap_sampled_kernel,
                           napier_umap_sampled_2_kernel, napier_umap_heavy_kernel, napier_umap_heavy_2_kernel,
                           napier_umap_prepare_kernel, napier_umap_check_values_kernel, napier_umap_step_kernel,
                           napier_umap_poison_kernel);

/* ---- Results of the checks on the device ------------------------------------------------------------------------- */

/* Sets state->bad if values are not finite or targets are not below n. */
static napier_status check_values(const napier_cuda_call *call, const float *values, const uint32_t *targets,
                                  int64_t count, int64_t n, napier_device_state *state) {
    const napier_values_job job = {values, targets, count, n, state, call->context->faults};
    return NAPIER_DEVICE_EACH(call, napier_umap_check_values_kernel, count, NAPIER_STEP_THREADS, &job);
}

/* Fills the output with NaN if state->bad is set. */
static napier_status poison(const napier_cuda_call *call, float *out, int64_t count, const napier_device_state *state) {
    const napier_poison_job job = {out, count, state};
    return NAPIER_DEVICE_EACH(call, napier_umap_poison_kernel, count, NAPIER_STEP_THREADS, &job);
}

/* ---- Forces ------------------------------------------------------------------------------------------------------ */

/* Takes memory for the lists of heavy vertices and their pieces, as many as graphs of `count` edges can have; and for
 * `wanted` if all edges act and the rate counts per edge. */
static void take_lists(napier_cuda_room *room, napier_force_job *job, int64_t count, int graphs) {
    const int64_t heavy = count / NAPIER_PIECE_EDGES * graphs, pieces = 3 * heavy;
    const bool weighted = job->rate_per_edge && !job->sampled;
    job->wanted = weighted ? napier_cuda_take(room, job->n, sizeof *job->wanted) : NULL;
    job->heavy = napier_cuda_take(room, heavy, sizeof *job->heavy);
    job->pieces = napier_cuda_take(room, pieces, sizeof *job->pieces);
    job->acting = napier_cuda_take(room, pieces, sizeof *job->acting);
    job->sums = napier_cuda_take(room, pieces, (size_t)job->components * sizeof *job->sums);
}

static napier_cuda_kernel forces_kernel(bool two, bool sampled) {
    return two ? (sampled ? NAPIER_CUDA_KERNEL(napier_umap_sampled_2_kernel)
                          : NAPIER_CUDA_KERNEL(napier_umap_forces_2_kernel))
               : (sampled ? NAPIER_CUDA_KERNEL(napier_umap_sampled_kernel)
                          : NAPIER_CUDA_KERNEL(napier_umap_forces_kernel));
}

/* has_heavy: can there be a row of more than one piece? */
static napier_status put_forces(const napier_cuda_call *call, const napier_force_job *job, bool has_heavy) {
    const bool two = job->components == 2 && (uintptr_t)job->y % 8 == 0; /* for loads of whole points */
    const int64_t lanes = (int64_t)job->components * NAPIER_LANE_STRIDE + NAPIER_ACTING_EDGES;
    const int64_t shared = NAPIER_FORCE_WARPS * lanes * (int64_t)sizeof(float);
    NAPIER_TRY(napier_device_put(call, forces_kernel(two, job->sampled != 0), job->n, NAPIER_FORCE_WARPS,
                                 NAPIER_FORCE_THREADS, shared, job, sizeof *job));
    if (has_heavy) {
        NAPIER_TRY(napier_device_put(
            call, two ? NAPIER_CUDA_KERNEL(napier_umap_heavy_2_kernel) : NAPIER_CUDA_KERNEL(napier_umap_heavy_kernel),
            job->n, NAPIER_FORCE_WARPS * 64, NAPIER_FORCE_THREADS, shared, job, sizeof *job));
    }
    return NAPIER_OK;
}

static napier_force_job force_job(const napier_forces *forces, napier_const_matrix embedding) {
    return (napier_force_job){.forces = *forces,
                              .y = embedding.data,
                              .n = embedding.rows,
                              .components = (int32_t)embedding.cols,
                              .times = 1.0f};
}

/* ---- Forces once ------------------------------------------------------------------------------------------------- */

/* A thread of a warp has at most two components. */
enum { MOST_COMPONENTS = 50 };

static napier_status check_components(napier_context *context, int64_t components) {
    return components <= MOST_COMPONENTS
               ? NAPIER_OK
               : napier_fail(context, NAPIER_UNSUPPORTED, "embedding: %lld components are more than the device's %d",
                             (long long)components, MOST_COMPONENTS);
}

static napier_status check_gradients(napier_context *context, const napier_umap_params *params,
                                     napier_const_matrix embedding, napier_matrix gradients, napier_forces *forces) {
    napier_umap_params p;
    NAPIER_TRY(napier_umap_check_params(context, params, &p, forces));
    NAPIER_TRY(napier_umap_check_shape(context, "embedding", embedding));
    NAPIER_TRY(check_components(context, embedding.cols));
    NAPIER_TRY(napier_umap_check_result(context, "gradients", gradients, embedding.rows, embedding.cols));
    return napier_umap_check_apart(context, "gradients", gradients, "embedding", embedding);
}

napier_status napier_cuda_umap_gradients(napier_cuda_context *context, struct CUstream_st *stream,
                                         napier_cuda_workspace *workspace, const napier_umap_params *params,
                                         napier_const_matrix embedding, const napier_umap_edge *edges, int64_t count,
                                         int move_targets, napier_matrix gradients) {
    napier_forces forces;
    NAPIER_TRY(napier_cuda_begin(context));
    NAPIER_TRY(check_gradients(context->host, params, embedding, gradients, &forces));
    NAPIER_TRY(napier_umap_check_counts(context->host, edges, count, embedding.rows));
    NAPIER_TRY(napier_device_check_array(context->host, "edges", edges, count, sizeof(uint32_t)));
    static const napier_umap_edge none;
    napier_cuda_room room = napier_cuda_room_of(workspace);
    napier_force_job job = force_job(&forces, embedding);
    napier_device_build build = {.source = {.edges = edges ? edges : &none, .n = embedding.rows, .count = count},
                                 .reversed = move_targets != 0,
                                 .state = napier_cuda_take(&room, 1, sizeof(napier_device_state))};
    napier_device_build_take(&room, &build);
    take_lists(&room, &job, count, build.reversed ? 2 : 1);
    NAPIER_CUDA_READY(context, room);
    if (embedding.rows == 0) {
        return NAPIER_OK;
    }
    const napier_cuda_call call = {context, stream, "umap_gradients"};
    const int64_t elements = embedding.rows * embedding.cols;
    NAPIER_TRY(napier_cuda_clear(&call, build.state, sizeof *build.state));
    NAPIER_TRY(check_values(&call, embedding.data, NULL, elements, 0, build.state));
    NAPIER_TRY(napier_device_build_run(&call, &build));
    job.state = build.state;
    job.edges = build.edges;
    job.pulls = build.pulls;
    job.out = gradients.data;
    NAPIER_TRY(NAPIER_DEVICE_EACH(&call, napier_umap_prepare_kernel, job.n, NAPIER_FORCE_THREADS, &job));
    NAPIER_TRY(put_forces(&call, &job, count > NAPIER_PIECE_EDGES));
    return poison(&call, gradients.data, elements, build.state);
}

static napier_status check_targets(napier_context *context, const uint32_t *targets, int64_t rate, int64_t n) {
    NAPIER_REFUSE_IF(context, rate < 0 || rate > 1000 || (n > 0 && rate > 0 && targets == NULL),
                     "targets: %s, rate %lld (0 to 1000)", targets ? "given" : "NULL", (long long)rate);
    return napier_device_check_array(context, "targets", targets, n * rate, sizeof *targets);
}

napier_status napier_cuda_umap_negative_gradients(napier_cuda_context *context, struct CUstream_st *stream,
                                                  napier_cuda_workspace *workspace, const napier_umap_params *params,
                                                  napier_const_matrix embedding, const uint32_t *targets, int64_t rate,
                                                  napier_matrix gradients) {
    napier_forces forces;
    NAPIER_TRY(napier_cuda_begin(context));
    NAPIER_TRY(check_gradients(context->host, params, embedding, gradients, &forces));
    NAPIER_TRY(check_targets(context->host, targets, rate, embedding.rows));
    napier_cuda_room room = napier_cuda_room_of(workspace);
    napier_force_job job = force_job(&forces, embedding);
    job.state = napier_cuda_take(&room, 1, sizeof *job.state);
    NAPIER_CUDA_READY(context, room);
    if (embedding.rows == 0) {
        return NAPIER_OK;
    }
    const napier_cuda_call call = {context, stream, "umap_negative_gradients"};
    const int64_t elements = embedding.rows * embedding.cols;
    job.given = targets;
    job.samples = rate;
    job.out = gradients.data;
    NAPIER_TRY(napier_cuda_clear(&call, job.state, sizeof *job.state));
    NAPIER_TRY(check_values(&call, embedding.data, NULL, elements, 0, job.state));
    NAPIER_TRY(check_values(&call, NULL, targets, embedding.rows * rate, embedding.rows, job.state));
    NAPIER_TRY(put_forces(&call, &job, false));
    return poison(&call, gradients.data, elements, job.state);
}

/* ---- Epochs ------------------------------------------------------------------------------------------------------ */

/* Checked epochs over a graph that the call makes first. */
typedef struct run {
    const napier_umap_epochs *epochs;
    double learning_rate;
    napier_device_build build;
    napier_force_job job;
    int64_t steps; /* steps taken before */
    napier_step_job step;
} run;

/* Takes all memory except the optimizer's. */
static void take_run(napier_cuda_room *room, run *r) {
    r->build.state = napier_cuda_take(room, 1, sizeof *r->build.state);
    napier_device_build_take(room, &r->build);
    take_lists(room, &r->job, r->build.source.count, r->build.reversed ? 2 : 1);
    r->job.out = napier_cuda_take(room, r->step.count, sizeof *r->job.out);
}

static napier_status put_epoch(const napier_cuda_call *call, run *r, int64_t epoch) {
    const napier_umap_epochs *const e = r->epochs;
    r->job.epoch = epoch;
    r->job.draw_key = napier_random_key(e->seed, (uint32_t)epoch);
    r->job.samples = (int64_t)(r->job.rate * (double)(epoch + 1)) - (int64_t)(r->job.rate * (double)epoch);
    NAPIER_TRY(put_forces(call, &r->job, r->build.source.count > NAPIER_PIECE_EDGES));
    const int64_t steps = ++r->steps;
    r->step.correction1 = napier_umap_correction(r->step.options.beta1, steps);
    r->step.correction2 = napier_umap_correction(r->step.options.beta2, steps);
    const double left = 1.0 - (double)epoch / (double)e->total;
    r->step.rate = (float)(r->learning_rate * left);
    return NAPIER_DEVICE_EACH(call, napier_umap_step_kernel, r->step.count, NAPIER_STEP_THREADS, &r->step);
}

/* Runs the epochs. The state has been cleared, and the other arguments have been checked. */
static napier_status run_epochs(const napier_cuda_call *call, run *r) {
    const int64_t elements = r->step.count;
    NAPIER_TRY(check_values(call, r->step.y, NULL, elements, 0, r->build.state));
    NAPIER_TRY(napier_device_build_run(call, &r->build));
    r->job.state = r->build.state;
    r->job.edges = r->build.edges;
    r->job.pulls = r->build.pulls;
    r->step.g = r->job.out;
    NAPIER_TRY(NAPIER_DEVICE_EACH(call, napier_umap_prepare_kernel, r->job.n, NAPIER_FORCE_THREADS, &r->job));
    for (int64_t i = 0; i < r->epochs->count; i++) {
        NAPIER_TRY(put_epoch(call, r, r->epochs->first + i));
    }
    return poison(call, r->step.y, elements, r->build.state);
}

/* As napier_umap_layout_of. */
static run run_of(const napier_forces *forces, float times, double learning_rate, double rate,
                  const napier_umap_epochs *epochs, napier_matrix embedding) {
    run r = {.epochs = epochs,
             .learning_rate = learning_rate,
             .job = force_job(forces, napier_read_only(embedding)),
             .step = {.y = embedding.data, .count = embedding.rows * embedding.cols}};
    r.job.times = times;
    r.job.sampled = epochs->edge_use == NAPIER_UMAP_EDGES_SAMPLED;
    r.job.by_highest = !r.job.sampled;
    r.job.phase_key = napier_random_key(epochs->seed, (uint32_t)NAPIER_PHASE_STREAM);
    r.job.rate = rate;
    r.job.rate_per_edge = epochs->rate_per == NAPIER_UMAP_RATE_PER_EDGE;
    return r;
}

static napier_status read_optimizer(napier_context *context, const napier_cuda_umap_optimizer *optimizer,
                                    int64_t elements, napier_cuda_umap_optimizer *o) {
    *o = (napier_cuda_umap_optimizer)NAPIER_CUDA_UMAP_OPTIMIZER_INIT;
    NAPIER_TRY(napier_read_struct(context, "optimizer",
                                  NAPIER_STRUCT(napier_cuda_umap_optimizer, NAPIER_CUDA_UMAP_OPTIMIZER_INIT, second),
                                  optimizer, o));
    NAPIER_TRY(napier_check_inner_struct(context, "optimizer: options", "NAPIER_UMAP_OPTIMIZER_OPTIONS_INIT",
                                         &o->options, sizeof o->options));
    NAPIER_TRY(napier_umap_check_optimizer_options(context, &o->options));
    NAPIER_REFUSE_IF(context, (o->steps < 0 || o->steps > INT64_MAX / 2), "optimizer: %lld steps cannot be",
                     (long long)o->steps);
    if (o->options.method != NAPIER_UMAP_SGD) {
        NAPIER_TRY(napier_device_check_array(context, "optimizer: first", o->first, elements, sizeof(float)));
    }
    if (o->options.method == NAPIER_UMAP_ADAM) {
        NAPIER_TRY(napier_device_check_array(context, "optimizer: second", o->second, elements, sizeof(float)));
    }
    return NAPIER_OK;
}

static napier_status read_epochs(napier_context *context, const napier_umap_epochs *epochs, const uint32_t *targets,
                                 int64_t rate, int64_t n, napier_umap_epochs *e) {
    NAPIER_TRY(napier_umap_read_epochs(context, epochs, e));
    NAPIER_REFUSE_IF(context, e->progress, "epochs: progress is not NULL, but nothing is waited for");
    NAPIER_REFUSE_IF(context, targets != NULL && e->rate_per != NAPIER_UMAP_RATE_PER_VERTEX,
                     "targets: given, but rate_per is per edge");
    if (targets != NULL) {
        NAPIER_TRY(check_targets(context, targets, rate, n));
    }
    return NAPIER_OK;
}

static napier_status check_in_place(napier_context *context, napier_matrix embedding) {
    NAPIER_TRY(napier_check_matrix_out(context, "embedding", embedding));
    NAPIER_TRY(napier_umap_check_shape(context, "embedding", napier_read_only(embedding)));
    return check_components(context, embedding.cols);
}

napier_status napier_cuda_umap_optimize_epochs(napier_cuda_context *context, struct CUstream_st *stream,
                                               napier_cuda_workspace *workspace, const napier_umap_params *params,
                                               const napier_umap_epochs *epochs, const napier_umap_edge *edges,
                                               int64_t count, const uint32_t *targets,
                                               napier_cuda_umap_optimizer *optimizer, napier_matrix embedding) {
    const int64_t n = embedding.rows;
    napier_umap_epochs e;
    napier_cuda_umap_optimizer o;
    napier_umap_params p;
    napier_forces forces;
    NAPIER_TRY(napier_cuda_begin(context));
    napier_context *const host = context->host;
    NAPIER_TRY(napier_umap_check_params(host, params, &p, &forces));
    NAPIER_TRY(check_in_place(host, embedding));
    NAPIER_TRY(read_epochs(host, epochs, targets, p.negative_sample_rate, n, &e));
    NAPIER_TRY(read_optimizer(host, optimizer, n * embedding.cols, &o));
    NAPIER_TRY(napier_umap_check_counts(host, edges, count, n));
    NAPIER_TRY(napier_device_check_array(host, "edges", edges, count, sizeof(uint32_t)));
    static const napier_umap_edge none;
    napier_cuda_room room = napier_cuda_room_of(workspace);
    run r = run_of(&forces, 1.0f, (double)p.learning_rate, (double)p.negative_sample_rate, &e, embedding);
    r.build.source = (napier_device_source){.edges = edges ? edges : &none, .n = n, .count = count};
    r.build.reversed = e.move_targets != 0;
    r.job.given = targets;
    r.step.options = o.options;
    r.steps = o.steps;
    r.step.first = o.first;
    r.step.second = o.second;
    take_run(&room, &r);
    NAPIER_CUDA_READY(context, room);
    if (n == 0) {
        return NAPIER_OK;
    }
    const napier_cuda_call call = {context, stream, "umap_optimize_epochs"};
    NAPIER_TRY(napier_cuda_clear(&call, r.build.state, sizeof *r.build.state));
    if (targets != NULL) {
        NAPIER_TRY(check_values(&call, NULL, targets, n * p.negative_sample_rate, n, r.build.state));
    }
    const napier_status status = run_epochs(&call, &r);
    o.steps = r.steps; /* also if a launch has failed: those before it run */
    napier_write_struct(&o, optimizer);
    return status;
}

/* ---- The layout -------------------------------------------------------------------------------------------------- */

static napier_status check_graph(napier_context *context, const napier_cuda_umap_graph *graph) {
    NAPIER_REFUSE_IF(context, graph == NULL || graph->n < 0 || graph->n >= (int64_t)1 << 31 || graph->count < 0,
                     "graph: NULL, or %lld vertices and %lld edges", (long long)(graph ? graph->n : 0),
                     (long long)(graph ? graph->count : 0));
    NAPIER_TRY(napier_device_check_array(context, "graph: starts", graph->starts, graph->n + 1, sizeof *graph->starts));
    NAPIER_TRY(
        napier_device_check_array(context, "graph: targets", graph->targets, graph->count, sizeof *graph->targets));
    return napier_device_check_array(context, "graph: weights", graph->weights, graph->count, sizeof *graph->weights);
}

static napier_status check_layout(napier_context *context, const napier_cuda_umap_graph *graph,
                                  const napier_umap_options *options, napier_matrix embedding, napier_umap_options *o) {
    NAPIER_TRY(check_graph(context, graph));
    NAPIER_TRY(napier_umap_check_options(context, options, graph->n, o));
    NAPIER_REFUSE_IF(context, o->progress, "options: progress is not NULL, but nothing is waited for");
    NAPIER_TRY(check_in_place(context, embedding));
    return napier_umap_check_result(context, "embedding", embedding, graph->n, embedding.cols);
}

napier_status napier_cuda_umap_optimize_layout(napier_cuda_context *context, struct CUstream_st *stream,
                                               napier_cuda_workspace *workspace, const napier_cuda_umap_graph *graph,
                                               const napier_umap_options *options, napier_matrix embedding) {
    napier_umap_options o;
    napier_umap_params params;
    napier_forces forces;
    NAPIER_TRY(napier_cuda_begin(context));
    NAPIER_TRY(check_layout(context->host, graph, options, embedding, &o));
    NAPIER_TRY(napier_umap_params_of(context->host, &o, &params, &forces));
    const int64_t elements = embedding.rows * embedding.cols;
    const napier_umap_optimizer_options adam = NAPIER_UMAP_OPTIMIZER_OPTIONS_INIT;
    napier_umap_epochs epochs = NAPIER_UMAP_EPOCHS_INIT;
    epochs.count = epochs.total = o.n_epochs;
    epochs.seed = o.seed;
    napier_cuda_room room = napier_cuda_room_of(workspace);
    run r = run_of(&forces, 2.0f, (double)params.learning_rate, o.negative_sample_rate, &epochs, embedding);
    r.build.source =
        (napier_device_source){NULL, graph->starts, graph->targets, graph->weights, graph->n, graph->count};
    r.build.epochs = (float)o.n_epochs;
    r.step.options = adam;
    take_run(&room, &r);
    r.step.first = napier_cuda_take(&room, 2 * elements, sizeof(float));
    NAPIER_CUDA_READY(context, room);
    if (elements == 0) {
        return NAPIER_OK;
    }
    r.step.second = r.step.first + elements;
    const napier_cuda_call call = {context, stream, "umap_optimize_layout"};
    NAPIER_TRY(napier_cuda_clear(&call, r.build.state, sizeof *r.build.state));
    NAPIER_TRY(napier_cuda_clear(&call, r.step.first, 2 * (size_t)elements * sizeof(float)));
    return run_epochs(&call, &r);
}
