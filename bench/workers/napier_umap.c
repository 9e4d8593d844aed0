/* bench/workers/napier_umap.c - whole fits, stage by stage, and layouts alone. */
#define _POSIX_C_SOURCE 200809L
#include "napier_cases.h"

#include <napier/umap.h>
#include <stdlib.h>
#include <string.h>

/* ---- A fit ------------------------------------------------------------------------------------------------------- */

static const char *set_up_fit(const bench_case *const self) {
    (void)self;
    return bench_input("data") ? NULL : "no data";
}

/* Seconds since `user` go to the stage that the library names. */
static int note(const char *const stage, const double done, void *const user) {
    static const char *last;
    static double before;
    double *const begin = user;
    if (*begin > 0) { /* the first call of a fit */
        last = NULL;
        before = *begin;
        *begin = 0;
    }
    (void)done;
    if (last && strcmp(last, stage) != 0) {
        before = bench_now();
    }
    last = stage;
    bench_figure(stage, bench_now() - before);
    return 0;
}

static unsigned fit(const int variant) {
    const int64_t rows = bench_number("rows"), cols = bench_number("cols");
    napier_umap_options options = NAPIER_UMAP_OPTIONS_INIT;
    napier_umap_model *model = NULL;
    (void)variant;
    double begin = bench_now();
    options.progress = note;
    options.user = &begin;
    options.neighbors.n_neighbors = bench_number("n_neighbors");
    options.n_epochs = bench_number("n_epochs");
    const napier_umap_samples samples = {napier_const_rows_f32(bench_input("data"), rows, cols), NULL};
    const napier_status status = napier_umap_fit(context, samples, &options, &model);
    if (status != NAPIER_OK) {
        return (unsigned)status;
    }
    const napier_const_matrix map = napier_umap_model_embedding(model);
    const size_t bytes = (size_t)(map.rows * map.cols) * sizeof(float);
    memcpy(bench_result("map", bytes), map.data, bytes);
    napier_umap_model_destroy(context, model);
    return 0;
}

/* ---- Layouts alone --------------------------------------------------------------------------------------------- */

enum { DEGREE = 15, COMPONENTS = 15, EPOCHS = 200 };

/* What the library holds at a time, beside edges and embedding. */
typedef struct ledger {
    size_t held, most;
} ledger;

static ledger layout_ledger;
static napier_context *counted; /* a context whose memory is counted */
static napier_umap_edge *edges;
static int64_t points;

static void *count_up(const size_t size, const size_t alignment, void *const user) {
    ledger *const l = user;
    size_t *const memory = aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment + alignment);
    if (!memory) {
        return NULL;
    }
    memory[0] = size;
    l->held += size;
    l->most = l->held > l->most ? l->held : l->most;
    return (char *)memory + alignment;
}

static void count_down(void *const memory, void *const user) {
    ledger *const l = user;
    size_t *const start = (size_t *)(void *)((char *)memory - 64); /* every block is on a cache line */
    l->held -= start[0];
    free(start);
}

static uint64_t next(void) {
    static uint64_t state = 88172645463325252u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static const char *set_up_layout(const bench_case *const self) {
    napier_context_options options = NAPIER_CONTEXT_OPTIONS_INIT;
    options.threads = context_threads;
    options.allocator = (napier_allocator){count_up, count_down, &layout_ledger};
    (void)self;
    if (!counted && napier_context_create(&counted, &options)) {
        return "no context";
    }
    points = bench_number("rows");
    free(edges);
    edges = malloc((size_t)points * DEGREE * sizeof *edges);
    if (!edges) {
        return "no memory";
    }
    for (int64_t e = 0; e < points * DEGREE; e++) {
        const uint32_t v = (uint32_t)(e / DEGREE), n = (uint32_t)points;
        edges[e] =
            (napier_umap_edge){v, (v + 1 + (uint32_t)(next() % (n - 1))) % n, (float)(1 + next() % 100) / 100.0f};
    }
    return refusal_of(napier_umap_sort_edges(counted, edges, points * DEGREE));
}

static unsigned layout(const int variant) {
    napier_umap_optimizer_options how = NAPIER_UMAP_OPTIMIZER_OPTIONS_INIT;
    napier_umap_params params = NAPIER_UMAP_PARAMS_INIT;
    napier_umap_epochs epochs = NAPIER_UMAP_EPOCHS_INIT;
    napier_umap_optimizer *optimizer = NULL;
    float *const y = bench_result("map", (size_t)points * COMPONENTS * sizeof *y);
    (void)variant;
    how.method = NAPIER_UMAP_SGD;
    params.learning_rate = 0.1f;
    epochs.count = epochs.total = EPOCHS;
    epochs.rate_per = NAPIER_UMAP_RATE_PER_VERTEX;
    for (int64_t i = 0; i < points * COMPONENTS; i++) {
        y[i] = (float)(next() % 2000) / 100.0f - 10.0f;
    }
    layout_ledger.most = layout_ledger.held;
    napier_status status = napier_umap_optimizer_create(counted, &how, points, COMPONENTS, &optimizer);
    if (status == NAPIER_OK) {
        status = napier_umap_optimize_epochs(counted, &params, &epochs, edges, points * DEGREE, NULL, optimizer,
                                             napier_rows_f32(y, points, COMPONENTS));
    }
    napier_umap_optimizer_destroy(counted, optimizer);
    bench_figure("workspace", (double)layout_ledger.most);
    return (unsigned)status;
}

const bench_case umap_cases[] = {
    {"fit", set_up_fit, fit, {"napier"}},
    {"layout", set_up_layout, layout, {"napier"}},
    {.name = NULL},
};
