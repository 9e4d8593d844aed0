/* umap/graph/gpu/graph_cuda.c - graphs in device memory: makes checked rows from the caller's graph (graph.cu). */
#include "umap/graph/gpu/graph_cuda.h"

NAPIER_CUDA_KERNEL_DECLARE(napier_umap_check_edges_kernel, napier_umap_check_rows_kernel, napier_umap_count_rows_kernel,
                           napier_umap_fill_rows_kernel, napier_umap_key_starts_kernel, napier_umap_scan_tiles_kernel,
                           napier_umap_scan_sums_kernel, napier_umap_scan_values_kernel,
                           napier_umap_count_digits_kernel, napier_umap_scatter_kernel);

enum {
    WAVES = 64, /* most blocks for each multiprocessor; with many blocks the last wave costs little */
    WARPS = NAPIER_GRAPH_THREADS / 32
};

/* ---- Calls ------------------------------------------------------------------------------------------------------- */

napier_status napier_device_put(const napier_cuda_call *call, napier_cuda_kernel kernel, int64_t count,
                                int64_t per_block, int threads, int64_t shared_bytes, const void *job,
                                size_t job_size) {
    napier_cuda_shape shape = napier_cuda_loop(call, count, per_block, WAVES, threads);
    shape.shared_bytes = shared_bytes;
    return napier_cuda_put(call, kernel, shape, job, job_size);
}

napier_status napier_device_check_array(napier_context *context, const char *name, const void *data, int64_t count,
                                        size_t alignment) {
    NAPIER_REFUSE_IF(context, count > 0 && data == NULL, "%s: NULL", name);
    NAPIER_REFUSE_IF(context, (uintptr_t)data % alignment != 0, "%s: %p is not aligned to %d bytes", name, data,
                     (int)alignment);
    return NAPIER_OK;
}

/* ---- Prefix sums ------------------------------------------------------------------------------------------------- */

napier_status napier_device_sum_before(const napier_cuda_call *call, int64_t *values, int64_t count, int64_t *sums) {
    const napier_scan_job job = {values, count, sums};
    const int64_t shared = WARPS * (int64_t)sizeof(uint64_t), tiles = napier_cuda_tiles(count, NAPIER_SCAN_TILE);
    NAPIER_TRY(NAPIER_DEVICE_PUT(call, napier_umap_scan_tiles_kernel, tiles, 1, NAPIER_GRAPH_THREADS, shared, &job));
    NAPIER_TRY(NAPIER_DEVICE_PUT(call, napier_umap_scan_sums_kernel, 1, 1, NAPIER_GRAPH_THREADS, shared, &job));
    return NAPIER_DEVICE_PUT(call, napier_umap_scan_values_kernel, tiles, 1, NAPIER_GRAPH_THREADS, shared, &job);
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

void napier_device_build_take(napier_cuda_room *room, napier_device_build *b) {
    const int64_t n = b->source.n, count = b->source.count;
    b->chunks = b->reversed ? napier_cuda_tiles(count, NAPIER_SORT_CHUNK) : 0;
    const int64_t digits = NAPIER_SORT_DIGITS * b->chunks, most = digits > n ? digits : n;
    b->edges.starts = napier_cuda_take(room, n + 1, sizeof *b->edges.starts);
    b->edges.targets = napier_cuda_take(room, count, sizeof *b->edges.targets);
    b->edges.weights = napier_cuda_take(room, count, sizeof *b->edges.weights);
    b->sums = napier_cuda_take(room, napier_cuda_tiles(most, NAPIER_SCAN_TILE), sizeof *b->sums);
    if (b->reversed) {
        b->pulls.starts = napier_cuda_take(room, n + 1, sizeof *b->pulls.starts);
        b->counts = napier_cuda_take(room, digits + 1, sizeof *b->counts);
        for (int i = 0; i < 2; i++) {
            b->keys[i] = napier_cuda_take(room, count, sizeof *b->keys[i]);
            b->sources[i] = napier_cuda_take(room, count, sizeof *b->sources[i]);
            b->weights[i] = napier_cuda_take(room, count, sizeof *b->weights[i]);
        }
    }
}

/* ---- The reversed graph ------------------------------------------------------------------------------------------ */

static napier_status sort_by_digit(const napier_cuda_call *call, const napier_device_build *b,
                                   const napier_sort_job *job) {
    const int threads = NAPIER_SORT_WARPS * 32;
    const int64_t counters = NAPIER_SORT_WARPS * NAPIER_SORT_DIGITS;
    NAPIER_TRY(NAPIER_DEVICE_PUT(call, napier_umap_count_digits_kernel, b->chunks, NAPIER_SORT_WARPS, threads,
                                 counters * (int64_t)sizeof(int32_t), job));
    NAPIER_TRY(napier_device_sum_before(call, b->counts, NAPIER_SORT_DIGITS * b->chunks, b->sums));
    return NAPIER_DEVICE_PUT(call, napier_umap_scatter_kernel, b->chunks, NAPIER_SORT_WARPS, threads,
                             counters * (int64_t)sizeof(int64_t), job);
}

/* Stable passes from the lowest digit up. The first reads the rows; the next ones alternate between two buffers. */
napier_status napier_device_build_reverse(const napier_cuda_call *call, napier_device_build *b) {
    const uint64_t last = (uint64_t)(b->source.n - 1);
    const int64_t *const edges = b->edges.starts + b->source.n;

    int to = 0;
    for (int pass = 0; (pass == 0 || last >> (NAPIER_SORT_BITS * pass) != 0); pass++) {
        to = pass % 2;
        const napier_sort_job job = {.keys = pass == 0 ? b->edges.targets : b->keys[1 - to],
                                     .sources = b->sources[1 - to],
                                     .weights = pass == 0 ? b->edges.weights : b->weights[1 - to],
                                     .sorted_keys = b->keys[to],
                                     .sorted_sources = b->sources[to],
                                     .sorted_weights = b->weights[to],
                                     .edges = edges,
                                     .chunks = b->chunks,
                                     .counts = b->counts,
                                     .shift = NAPIER_SORT_BITS * pass};
        NAPIER_TRY(sort_by_digit(call, b, &job));
    }
    b->pulls.targets = b->sources[to];
    b->pulls.weights = b->weights[to];
    const napier_starts_job job = {b->keys[to], edges, b->source.n, b->pulls.starts};
    return NAPIER_DEVICE_EACH(call, napier_umap_key_starts_kernel, b->source.n + 1, NAPIER_GRAPH_THREADS, &job);
}

napier_status napier_device_build_run(const napier_cuda_call *call, napier_device_build *b) {
    const int64_t n = b->source.n;
    b->faults = call->context->faults;
    if (b->source.edges != NULL) {
        NAPIER_TRY(NAPIER_DEVICE_EACH(call, napier_umap_check_edges_kernel, b->source.count, NAPIER_GRAPH_THREADS, b));
    } else {
        NAPIER_TRY(NAPIER_DEVICE_PUT(call, napier_umap_check_rows_kernel, n, WARPS, NAPIER_GRAPH_THREADS, 0, b));
    }
    NAPIER_TRY(NAPIER_DEVICE_PUT(call, napier_umap_count_rows_kernel, n, WARPS, NAPIER_GRAPH_THREADS, 0, b));
    NAPIER_TRY(napier_device_sum_before(call, b->edges.starts, n, b->sums));
    NAPIER_TRY(NAPIER_DEVICE_PUT(call, napier_umap_fill_rows_kernel, n, WARPS, NAPIER_GRAPH_THREADS, 0, b));
    return b->reversed ? napier_device_build_reverse(call, b) : NAPIER_OK;
}
