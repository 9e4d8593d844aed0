/* bench/cuda/map.c - UMAP's stages on a device (docs/cuda-umap.md): checked against the CPU on a small map, then timed.
 *
 *     cuda_map [POINTS] [ROUNDS]      default 1000000 and 5
 *
 * The graph joins each point with 22 others from anywhere, which is what gathers from a map of that size cost at worst.
 * A line for each: the median of ROUNDS, in ms, by events; for the layout also what one epoch takes, from 200 against
 * 100 epochs, and its floor by the instructions counted in docs/cuda-umap.md. Status 1: no CUDA device, or bits that
 * are not the CPU's. */
#include "device.h"

#include <napier/cuda/umap.h>
#include <string.h>

enum { OFFSETS = 11, DEGREE = 2 * OFFSETS, MOST_ROUNDS = 100, SMALL = 4000, NEIGHBORS = 15 };

static napier_context *host;
static napier_cuda_context *cuda;

/* ---- A device that may fail -------------------------------------------------------------------------------------- */

static void must_be_ok(napier_status status, const char *text) {
    if (status != NAPIER_OK) {
        fprintf(stderr, "status %d: %s\n", (int)status, text);
        exit(1);
    }
}

static void *device_copy(const void *from, size_t bytes) {
    void *const memory = device_new(bytes);
    must(cudaMemcpy(memory, from, bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
    return memory;
}

/* ---- Data -------------------------------------------------------------------------------------------------------- */

static uint32_t mixed(uint64_t x) {
    x = (x ^ x >> 31) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
    return (uint32_t)(x >> 32);
}

static float *even_floats(int64_t count, float size) {
    float *const x = host_new((size_t)count * sizeof *x);
    for (int64_t i = 0; i < count; i++) {
        x[i] = size * ((float)(mixed((uint64_t)i + 12345) >> 8) * 0x1p-23f - 1.0f);
    }
    return x;
}

static int ascending(const void *a, const void *b) {
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Symmetric: v is joined with v +- each of OFFSETS distances. */
static napier_umap_graph make_graph(int64_t n) {
    napier_umap_graph g = {n, host_new((size_t)(n + 1) * sizeof(int64_t)),
                           host_new((size_t)(n * DEGREE) * sizeof(uint32_t)),
                           host_new((size_t)(n * DEGREE) * sizeof(float))};
    for (int64_t v = 0; v < n; v++) {
        uint32_t *const targets = g.targets + v * DEGREE;
        for (int64_t k = 0; k < OFFSETS; k++) {
            /* different for each k, as long as n is large */
            const int64_t away = 1 + k * (n / 2 / OFFSETS) + mixed((uint64_t)k) % (n / 2 / OFFSETS - 1);
            targets[2 * k] = (uint32_t)((v + away) % n);
            targets[2 * k + 1] = (uint32_t)((v + n - away) % n);
        }
        qsort(targets, DEGREE, sizeof *targets, ascending);
        for (int64_t e = 0; e < DEGREE; e++) {
            const uint64_t low = targets[e] < v ? targets[e] : (uint64_t)v;
            g.weights[v * DEGREE + e] = (float)(1 + mixed(low + targets[e] + (uint64_t)v) % 1000) / 1000.0f;
        }
        g.starts[v] = v * DEGREE;
    }
    g.starts[n] = n * DEGREE;
    return g;
}

static napier_cuda_umap_graph copy_graph(const napier_umap_graph *g) {
    const int64_t count = g->starts[g->n];
    return (napier_cuda_umap_graph){g->n, count, device_copy(g->starts, (size_t)(g->n + 1) * sizeof *g->starts),
                                    device_copy(g->targets, (size_t)count * sizeof *g->targets),
                                    device_copy(g->weights, (size_t)count * sizeof *g->weights)};
}

/* ---- Calls, timed ------------------------------------------------------------------------------------------------ */

typedef struct task {
    napier_cuda_umap_graph graph; /* of a layout */
    napier_umap_options options;
    napier_matrix map;
    napier_umap_samples samples; /* of neighbours */
    int32_t *indices;
    float *distances;
    napier_cuda_workspace workspace;
} task;

static void call(task *t) {
    const napier_status status =
        t->indices ? napier_cuda_nearest_neighbors(cuda, NULL, &t->workspace, t->samples, &t->options.neighbors,
                                                   t->indices, t->distances)
                   : napier_cuda_umap_optimize_layout(cuda, NULL, &t->workspace, &t->graph, &t->options, t->map);
    must_be_ok(status, napier_cuda_last_error(cuda));
}

/* The median of `rounds`, after one that is not counted. */
static float time_of(task *t, int rounds) {
    float ms[MOST_ROUNDS];
    const stopwatch watch = stopwatch_new();
    t->workspace = (napier_cuda_workspace){NULL, 0};
    call(t);
    t->workspace.data = device_new(t->workspace.size);
    call(t);
    for (int i = 0; i < rounds; i++) {
        stopwatch_start(&watch);
        call(t);
        ms[i] = stopwatch_stop(&watch);
    }
    must_be_ok(napier_cuda_synchronize(cuda, NULL), napier_cuda_last_error(cuda));
    must(cudaFree(t->workspace.data), "cudaFree");
    stopwatch_free(&watch);
    return median_of(ms, rounds);
}

/* ---- Layout ------------------------------------------------------------------------------------------------------ */

static void check_bits(const char *what, const void *device, const void *expected, size_t bytes) {
    void *const got = host_new(bytes);
    must(cudaMemcpy(got, device, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
    if (memcmp(got, expected, bytes) != 0) {
        fprintf(stderr, "%s: not the CPU's bits\n", what);
        exit(1);
    }
    free(got);
}

static task layout_task(const napier_umap_graph *g, const float *start, int64_t epochs) {
    task t = {.graph = copy_graph(g), .options = NAPIER_UMAP_OPTIONS_INIT};
    t.options.n_epochs = epochs;
    t.map = napier_rows_f32(device_copy(start, (size_t)g->n * 2 * sizeof *start), g->n, 2);
    return t;
}

static void free_task(task *t) {
    void *const all[] = {(void *)(uintptr_t)t->graph.starts,
                         (void *)(uintptr_t)t->graph.targets,
                         (void *)(uintptr_t)t->graph.weights,
                         t->map.data,
                         (void *)(uintptr_t)t->samples.dense.data,
                         t->indices,
                         t->distances};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        must(cudaFree(all[i]), "cudaFree");
    }
}

static void free_graph(napier_umap_graph *g) {
    free(g->starts);
    free(g->targets);
    free(g->weights);
}

static void check_layout(void) {
    napier_umap_graph g = make_graph(SMALL);
    float *const y = even_floats(SMALL * 2, 10.0f);
    task t = layout_task(&g, y, 20);
    call(&t);
    t.workspace.data = device_new(t.workspace.size);
    call(&t);
    must_be_ok(napier_umap_optimize_layout(host, &g, &t.options, napier_rows_f32(y, SMALL, 2)),
               napier_last_error(host));
    check_bits("layout", t.map.data, y, SMALL * 2 * sizeof *y);
    must(cudaFree(t.workspace.data), "cudaFree");
    free_task(&t);
    free_graph(&g);
    free(y);
}

static void time_layout(int64_t n, int rounds) {
    napier_umap_graph g = make_graph(n);
    float *const start = even_floats(n * 2, 10.0f);
    task t = layout_task(&g, start, 100);
    const float half = time_of(&t, rounds);
    t.options.n_epochs = 200;
    const float whole = time_of(&t, rounds);
    const double epoch = (double)(whole - half) / 100.0;
    /* 500 instructions a vertex, 4 a clock on each of 132 multiprocessors at 1.7 GHz */
    const double floor_ms = (double)n * 500.0 / (4.0 * 132.0 * 1.7e9) * 1e3;
    printf("layout, %lld points, 200 epochs: %.1f ms; an epoch %.3f ms, %.2f of its floor %.3f\n", (long long)n,
           (double)whole, epoch, epoch / floor_ms, floor_ms);
    free_task(&t);
    free_graph(&g);
    free(start);
}

/* ---- Neighbours -------------------------------------------------------------------------------------------------- */

static task neighbors_task(const float *x, int64_t n, int64_t cols) {
    task t = {.options = NAPIER_UMAP_OPTIONS_INIT};
    t.samples.dense = napier_const_rows_f32(device_copy(x, (size_t)(n * cols) * sizeof *x), n, cols);
    t.indices = device_new((size_t)(n * NEIGHBORS) * sizeof *t.indices);
    t.distances = device_new((size_t)(n * NEIGHBORS) * sizeof *t.distances);
    return t;
}

static void check_neighbors(void) {
    enum { COLS = 50 };
    float *const x = even_floats(SMALL * COLS, 1.0f);
    int32_t *const indices = host_new(SMALL * NEIGHBORS * sizeof *indices);
    float *const distances = host_new(SMALL * NEIGHBORS * sizeof *distances);
    task t = neighbors_task(x, SMALL, COLS);
    (void)time_of(&t, 1);
    const napier_umap_samples rows = {napier_const_rows_f32(x, SMALL, COLS), NULL};
    must_be_ok(napier_nearest_neighbors(host, rows, &t.options.neighbors, indices, distances), napier_last_error(host));
    check_bits("indices", t.indices, indices, SMALL * NEIGHBORS * sizeof *indices);
    check_bits("distances", t.distances, distances, SMALL * NEIGHBORS * sizeof *distances);
    free_task(&t);
    free(x);
    free(indices);
    free(distances);
}

static void time_neighbors(int64_t n, int64_t cols, int rounds) {
    float *const x = even_floats(n * cols, 1.0f);
    task t = neighbors_task(x, n, cols);
    const float ms = time_of(&t, rounds);
    const double operations = (double)n * (double)n * (2.0 * (double)cols + 63.0);
    printf("neighbours, %lld x %lld: %.1f ms, %.1f T operations/s\n", (long long)n, (long long)cols, (double)ms,
           operations / (double)ms * 1e-9);
    free_task(&t);
    free(x);
}

int main(int argc, char **argv) {
    static const int64_t shapes[][2] = {{100000, 2}, {60000, 50}, {20000, 128}, {70000, 784}};
    const int64_t points = argc > 1 ? strtoll(argv[1], NULL, 10) : 1000000;
    const long rounds = argc > 2 ? strtol(argv[2], NULL, 10) : 5;
    if (points < 1000 || points > 50000000 || rounds < 1 || rounds > MOST_ROUNDS) {
        fputs("cuda_map [POINTS: 1000 to 50000000] [ROUNDS: 1 to 100]\n", stderr);
        return 1;
    }
    if (napier_context_create(&host, NULL) || napier_cuda_context_create(&cuda, -1)) {
        fputs("no CUDA device\n", stderr);
        return 77;
    }
    check_layout();
    check_neighbors();
    puts("bits: the CPU's");
    time_layout(points, (int)rounds);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        time_neighbors(shapes[i][0], shapes[i][1], (int)rounds);
    }
    napier_cuda_context_destroy(cuda);
    napier_context_destroy(host);
    return 0;
}
