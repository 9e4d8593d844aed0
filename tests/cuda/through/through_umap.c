/* tests/cuda/through/through_umap.c - see through_device.h. */
#define NAPIER_THROUGH_DEVICE_ITSELF
#include "through_device.h"

#include <stdlib.h>

#include "umap/layout/optimizer.h"

napier_status through_any_neighbors(napier_context *context, napier_umap_samples samples,
                                    const napier_neighbors_options *options, int32_t *indices, float *distances) {
    napier_status status = NAPIER_UNSUPPORTED;
    if (!samples.sparse && options->method == NAPIER_NEIGHBORS_EXACT) {
        status = through_nearest_neighbors(context, samples, options, indices, distances);
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

napier_status through_fuzzy_graph(napier_context *context, const int32_t *indices, const float *distances, int64_t n,
                                  int64_t n_neighbors, double local_connectivity, double set_op_mix_ratio,
                                  napier_umap_graph **out) {
    const size_t most = 2 * (size_t)(n * n_neighbors) + 1;
    int64_t *const starts = malloc((size_t)(n + 1) * sizeof *starts);
    uint32_t *const targets = malloc(most * sizeof *targets);
    float *const weights = malloc(most * sizeof *weights);
    napier_status status = NAPIER_OUT_OF_MEMORY;
    if (starts && targets && weights) {
        status = through_umap_fuzzy_simplicial_set(context, indices, distances, n, n_neighbors, local_connectivity,
                                                   set_op_mix_ratio, starts, targets, weights);
    }
    if (!status) {
        status = graph_from_rows(context, n, starts, targets, weights, out);
    }
    free(starts), free(targets), free(weights);
    return status;
}

napier_status through_epochs(napier_context *context, const napier_umap_params *params,
                             const napier_umap_epochs *epochs, const napier_umap_edge *edges, int64_t count,
                             const uint32_t *targets, napier_umap_optimizer *optimizer, napier_matrix embedding) {
    napier_cuda_umap_optimizer o = NAPIER_CUDA_UMAP_OPTIMIZER_INIT;
    o.options = optimizer->options;
    o.steps = optimizer->steps;
    o.first = optimizer->first;
    o.second = optimizer->second;
    const napier_status status =
        through_umap_optimize_epochs(context, params, epochs, edges, count, targets, &o, embedding);
    optimizer->steps = o.steps;
    return status;
}

napier_status through_layout(napier_context *context, const napier_umap_graph *graph,
                             const napier_umap_options *options, napier_matrix embedding) {
    const napier_cuda_umap_graph there = {graph->n, graph->starts[graph->n], graph->starts, graph->targets,
                                          graph->weights};
    return through_umap_optimize_layout(context, &there, options, embedding);
}
