/* umap/layout/epochs.c - epochs of optimisation: each computes all forces, then takes one step of the optimizer. */
#include "umap/layout/epochs.h"

#include <math.h>
#include <string.h>

#include "core/base/scope.h"
#include "core/base/struct_size.h"
#include "core/base/view.h"
#include "umap/layout/sampling.h"

napier_layout napier_umap_layout_of(napier_context *context, const napier_forces *forces, float times,
                                    const napier_umap_params *params, const napier_umap_epochs *epochs,
                                    const napier_umap_graph *edges, const napier_umap_graph *pulls, int64_t n,
                                    int64_t components, const float *y) {
    napier_layout l = {.context = context,
                       .kernels = napier_umap_kernels_of(context->isa),
                       .forces = *forces,
                       .y = y,
                       .n = n,
                       .components = components,
                       .edges = edges,
                       .pulls = pulls};
    l.highest = napier_umap_highest_weight(edges);
    l.sampled = epochs->edge_use == NAPIER_UMAP_EDGES_SAMPLED;
    l.scale = l.sampled || !(l.highest > 0.0f) ? times : times / l.highest;
    l.rate = (double)params->negative_sample_rate;
    l.rate_per_edge = epochs->rate_per == NAPIER_UMAP_RATE_PER_EDGE;
    l.phase_key = napier_random_key(epochs->seed, (uint32_t)NAPIER_PHASE_STREAM);
    return l;
}

napier_status napier_umap_run_epochs(napier_context *context, const napier_epochs_run *run) {
    napier_layout *l = run->layout;
    const napier_umap_epochs *epochs = run->epochs;
    NAPIER_MEMORY(memory, context);
    float *forces = napier_take(&memory, l->n * l->components, sizeof *forces);
    NAPIER_TRY(napier_taken(&memory, "layout: no memory for the forces on %lld points", (long long)l->n));
    NAPIER_TRY(napier_layout_prepare(&memory, l));
    for (int64_t i = 0; i < epochs->count; i++) {
        l->epoch = epochs->first + i;
        l->draw_key = napier_random_key(epochs->seed, (uint32_t)l->epoch);
        napier_layout_forces(l, forces);
        if (run->densmap) {
            napier_densmap_forces(run->densmap, l->epoch, run->y, forces);
        }
        const double left = 1.0 - (double)l->epoch / (double)epochs->total;
        const float rate = (float)((double)run->params->learning_rate * left);
        napier_umap_optimizer_step(context, run->optimizer, forces, rate, run->y);
        const double done = (double)(i + 1) / (double)epochs->count;
        if (epochs->progress && epochs->progress("layout", done, epochs->user)) {
            return napier_fail(context, NAPIER_CANCELLED, "layout: cancelled after epoch %lld", (long long)l->epoch);
        }
    }
    return NAPIER_OK;
}

/* ---- The public call --------------------------------------------------------------------------------------------- */

napier_status napier_umap_read_epochs(napier_context *context, const napier_umap_epochs *epochs,
                                      napier_umap_epochs *e) {
    *e = (napier_umap_epochs)NAPIER_UMAP_EPOCHS_INIT;
    NAPIER_TRY(napier_read_options(context, "epochs",
                                   NAPIER_STRUCT(napier_umap_epochs, NAPIER_UMAP_EPOCHS_INIT, edge_use), epochs, e));
    NAPIER_REFUSE_IF(context,
                     e->first < 0 || e->count < 0 || e->total < 1 || e->total >= (int64_t)1 << 22 ||
                         e->first > e->total - e->count,
                     "epochs: first %lld, count %lld do not lie in total %lld (1 to 2^22 - 1)", (long long)e->first,
                     (long long)e->count, (long long)e->total);
    NAPIER_REFUSE_IF(context,
                     (int)e->edge_use < 0 || (int)e->edge_use > NAPIER_UMAP_EDGES_SAMPLED || (int)e->rate_per < 0 ||
                         (int)e->rate_per > NAPIER_UMAP_RATE_PER_VERTEX,
                     "epochs: edge_use %d or rate_per %d is none", (int)e->edge_use, (int)e->rate_per);
    return NAPIER_OK;
}

static napier_status check_optimizer(napier_context *context, const napier_umap_optimizer *optimizer,
                                     napier_matrix embedding) {
    NAPIER_REFUSE_IF(context, !optimizer, "optimizer: NULL");
    NAPIER_REFUSE_IF(context, optimizer->n != embedding.rows || optimizer->components != embedding.cols,
                     "optimizer: made for %lld x %lld, the embedding is %lld x %lld", (long long)optimizer->n,
                     (long long)optimizer->components, (long long)embedding.rows, (long long)embedding.cols);
    return NAPIER_OK;
}

static napier_status check_given(napier_context *context, const napier_umap_epochs *e, const uint32_t *targets,
                                 int64_t rate, int64_t n) {
    if (!targets) {
        return NAPIER_OK;
    }
    NAPIER_REFUSE_IF(context, e->rate_per != NAPIER_UMAP_RATE_PER_VERTEX, "targets: given, but rate_per is per edge");
    return napier_umap_check_targets(context, targets, rate, n);
}

napier_status napier_umap_optimize_epochs(napier_context *context, const napier_umap_params *params,
                                          const napier_umap_epochs *epochs, const napier_umap_edge *edges,
                                          int64_t count, const uint32_t *targets, napier_umap_optimizer *optimizer,
                                          napier_matrix embedding) {
    NAPIER_DEFAULT_FENV;
    napier_umap_epochs e;
    napier_umap_params p;
    napier_forces forces;
    napier_umap_graph *graph = NULL, *pulls = NULL;
    NAPIER_TRY(napier_begin(context));
    NAPIER_TRY(napier_umap_check_params(context, params, &p, &forces));
    NAPIER_TRY(napier_umap_read_epochs(context, epochs, &e));
    NAPIER_TRY(napier_check_matrix_out(context, "embedding", embedding));
    NAPIER_TRY(napier_umap_check_embedding(context, "embedding", napier_read_only(embedding)));
    NAPIER_TRY(check_optimizer(context, optimizer, embedding));
    NAPIER_TRY(check_given(context, &e, targets, p.negative_sample_rate, embedding.rows));
    NAPIER_TRY(
        napier_umap_check_apart(context, "embedding", embedding, "targets",
                                napier_umap_array(targets, embedding.rows * p.negative_sample_rate, NAPIER_F32)));
    NAPIER_MEMORY(memory, context);
    NAPIER_TRY(napier_umap_graph_from_edges(context, edges, count, embedding.rows, &graph));
    napier_keep(&memory, graph);
    NAPIER_TRY(napier_umap_check_apart(context, "embedding", embedding, "edges", napier_umap_edge_words(edges, count)));
    if (e.move_targets) {
        NAPIER_TRY(napier_umap_graph_reversed(context, graph, &pulls));
        napier_keep(&memory, pulls);
    }
    napier_layout layout = napier_umap_layout_of(context, &forces, 1.0f, &p, &e, graph, pulls, embedding.rows,
                                                 embedding.cols, embedding.data);
    layout.given = targets;
    const napier_epochs_run run = {&p, &e, &layout, optimizer, NULL, embedding.data};
    return napier_umap_run_epochs(context, &run);
}
