/* tests/cuda/through/through_umap.c - umap's calls through the device. What it does not take (other metrics,
 * NN-descent, sparse rows) goes to the CPU, as do the stages inside of a fit. */
#include "through.h"

#include <stdlib.h>
#include <string.h>

#include <napier/cuda/umap.h>

#include "core/base/context.h"
#include "umap/layout/optimizer.h"

napier_status through_nearest_neighbors(napier_context *context, napier_umap_samples samples,
                                        const napier_neighbors_options *options, int32_t *indices, float *distances) {
    const size_t elements = (size_t)(samples.dense.rows * options->n_neighbors);
    napier_status status = NAPIER_UNSUPPORTED;
    if (!samples.sparse && options->method == NAPIER_NEIGHBORS_EXACT) {
        const napier_umap_samples there = {through_matrix(samples.dense), NULL};
        int32_t *const found = through_array_out(indices, elements * sizeof *indices);
        float *const far = through_array_out(distances, elements * sizeof *distances);
        THROUGH_TWICE(status, workspace,
                      napier_cuda_nearest_neighbors(through_context(), NULL, workspace, there, options, found, far));
        status = through_end(context, status);
    }
    return status == NAPIER_UNSUPPORTED ? napier_nearest_neighbors(context, samples, options, indices, distances)
                                        : status;
}

/* The graph as the CPU makes one: from its edges. */
static napier_status graph_from_rows(napier_context *context, int64_t n, const int64_t *starts, const uint32_t *targets,
                                     const float *weights, napier_umap_graph **out) {
    napier_umap_edge *const edges = malloc((size_t)(starts[n] + 1) * sizeof *edges);
    if (edges == NULL) {
        return NAPIER_OUT_OF_MEMORY;
    }
    for (int64_t v = 0; v < n; v++) {
        for (int64_t e = starts[v]; e < starts[v + 1]; e++) {
            edges[e] = (napier_umap_edge){(uint32_t)v, targets[e], weights[e]};
        }
    }
    const napier_status status = napier_umap_graph_from_edges(context, edges, starts[n], n, out);
    free(edges);
    return status;
}

napier_status through_umap_fuzzy_simplicial_set(napier_context *context, const int32_t *indices, const float *distances,
                                                int64_t n, int64_t n_neighbors, double local_connectivity,
                                                double set_op_mix_ratio, napier_umap_graph **out) {
    const size_t elements = (size_t)(n * n_neighbors), room = 2 * elements + 1;
    int64_t *const starts = malloc((size_t)(n + 1) * sizeof *starts);
    uint32_t *const targets = malloc(room * sizeof *targets);
    float *const weights = malloc(room * sizeof *weights);
    napier_status status = NAPIER_OUT_OF_MEMORY;
    if (starts && targets && weights) {
        const int32_t *const i = through_array(indices, elements * sizeof *indices);
        const float *const d = through_array(distances, elements * sizeof *distances);
        int64_t *const s = through_array_out(starts, (size_t)(n + 1) * sizeof *starts);
        uint32_t *const t = through_array_out(targets, room * sizeof *targets);
        float *const g = through_array_out(weights, room * sizeof *weights);
        THROUGH_TWICE(status, workspace,
                      napier_cuda_umap_fuzzy_simplicial_set(through_context(), NULL, workspace, i, d, n, n_neighbors,
                                                            local_connectivity, set_op_mix_ratio, s, t, g));
        status = through_end(context, status);
    }
    if (!status)
        status = graph_from_rows(context, n, starts, targets, weights, out);
    free(starts), free(targets), free(weights);
    return status;
}

napier_status through_umap_optimize_epochs(napier_context *context, const napier_umap_params *params,
                                           const napier_umap_epochs *epochs, const napier_umap_edge *edges,
                                           int64_t count, const uint32_t *targets, napier_umap_optimizer *optimizer,
                                           napier_matrix embedding) {
    const size_t bytes = (size_t)(embedding.rows * embedding.cols) * sizeof(float);
    napier_cuda_umap_optimizer there = NAPIER_CUDA_UMAP_OPTIMIZER_INIT;
    there.options = optimizer->options;
    there.steps = optimizer->steps;
    there.first = through_array_out(optimizer->first, bytes);
    there.second = through_array_out(optimizer->second, bytes);
    const napier_matrix y = through_matrix_out(embedding);
    const napier_umap_edge *const e = through_array(edges, (size_t)count * sizeof *edges);
    const uint32_t *const t =
        through_array(targets, (size_t)(embedding.rows * params->negative_sample_rate) * sizeof *targets);
    napier_status status;
    THROUGH_TWICE(
        status, workspace,
        napier_cuda_umap_optimize_epochs(through_context(), NULL, workspace, params, epochs, e, count, t, &there, y));
    optimizer->steps = there.steps;
    return through_end(context, status);
}

napier_status through_umap_optimize_layout(napier_context *context, const napier_umap_graph *graph,
                                           const napier_umap_options *options, napier_matrix embedding) {
    const int64_t n = graph->n, count = graph->starts[n];
    const napier_cuda_umap_graph there = {n, count,
                                          through_array(graph->starts, (size_t)(n + 1) * sizeof *graph->starts),
                                          through_array(graph->targets, (size_t)count * sizeof *graph->targets),
                                          through_array(graph->weights, (size_t)count * sizeof *graph->weights)};
    const napier_matrix y = through_matrix_out(embedding);
    napier_status status;
    THROUGH_TWICE(status, workspace,
                  napier_cuda_umap_optimize_layout(through_context(), NULL, workspace, &there, options, y));
    return through_end(context, status);
}
