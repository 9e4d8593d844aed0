/* bench/umap/document_rows.c - the three rows of the gradient document: n points in 15 components, 15 edges each, 200 epochs
 * of SGD on all edges with 5 samples a vertex. Prints a line of JSON for each: seconds (median of 5), workspace in bytes, and
 * the seconds that the document says.
 *
 *     document_rows [THREADS] */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <napier/umap.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* What the library holds at a time, beside edges and embedding. */
typedef struct ledger {
    size_t held, most;
} ledger;

static void *count_up(size_t size, size_t alignment, void *user) {
    ledger *l = user;
    size_t *memory = aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment + alignment);
    if (!memory) {
        return NULL;
    }
    memory[0] = size;
    l->held += size;
    l->most = l->held > l->most ? l->held : l->most;
    return (char *)memory + alignment;
}

static void count_down(void *memory, void *user) {
    ledger *l = user;
    size_t *start = (size_t *)(void *)((char *)memory - 64); /* every block is on a cache line */
    l->held -= start[0];
    free(start);
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static uint64_t state = 88172645463325252u;
static uint64_t next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static int run(napier_context *context, ledger *l, uint32_t n, double said) {
    enum { DEGREE = 15, COMPONENTS = 15, EPOCHS = 200, ROUNDS = 5 };
    napier_umap_edge *edges = malloc((size_t)n * DEGREE * sizeof *edges);
    float *y = malloc((size_t)n * COMPONENTS * sizeof *y);
    double seconds[ROUNDS];
    if (!edges || !y) {
        return 1;
    }
    for (uint32_t v = 0, e = 0; v < n; v++) {
        for (int i = 0; i < DEGREE; i++, e++) {
            edges[e] =
                (napier_umap_edge){v, (v + 1 + (uint32_t)(next() % (n - 1))) % n, (float)(1 + next() % 100) / 100.0f};
        }
    }
    if (napier_umap_sort_edges(context, edges, (int64_t)n * DEGREE)) {
        return 1;
    }
    l->most = l->held;
    for (int round = 0; round < ROUNDS; round++) {
        napier_umap_optimizer_options how = NAPIER_UMAP_OPTIMIZER_OPTIONS_INIT;
        napier_umap_params params = NAPIER_UMAP_PARAMS_INIT;
        napier_umap_epochs epochs = NAPIER_UMAP_EPOCHS_INIT;
        napier_umap_optimizer *optimizer = NULL;
        how.method = NAPIER_UMAP_SGD;
        params.learning_rate = 0.1f;
        epochs.count = epochs.total = EPOCHS;
        epochs.rate_per = NAPIER_UMAP_RATE_PER_VERTEX;
        for (uint32_t i = 0; i < n * COMPONENTS; i++) {
            y[i] = (float)(next() % 2000) / 100.0f - 10.0f;
        }
        const double begin = now();
        if (napier_umap_optimizer_create(context, &how, n, COMPONENTS, &optimizer) ||
            napier_umap_optimize_epochs(context, &params, &epochs, edges, (int64_t)n * DEGREE, NULL, optimizer,
                                        napier_rows_f32(y, n, COMPONENTS))) {
            fprintf(stderr, "document_rows: %s\n", napier_last_error(context));
            return 1;
        }
        seconds[round] = now() - begin;
        napier_umap_optimizer_destroy(context, optimizer);
    }
    qsort(seconds, ROUNDS, sizeof *seconds, ascending);
    printf("{\"points\": %u, \"edges\": %u, \"components\": %d, \"epochs\": %d, \"seconds\": %.4f, \"document\": %.0f, "
           "\"workspace\": %lu}\n",
           n, n * DEGREE, COMPONENTS, EPOCHS, seconds[ROUNDS / 2], said, (unsigned long)l->most);
    free(edges);
    free(y);
    return 0;
}

int main(int argc, char **argv) {
    ledger l = {0, 0};
    napier_context_options options = NAPIER_CONTEXT_OPTIONS_INIT;
    options.threads = argc > 1 ? atoi(argv[1]) : 2;
    options.allocator = (napier_allocator){count_up, count_down, &l};
    napier_context *context = NULL;
    if (napier_context_create(&context, &options)) {
        return 1;
    }
    const int failed = run(context, &l, 1000, 3.0) || run(context, &l, 5000, 15.0) || run(context, &l, 10000, 30.0);
    napier_context_destroy(context);
    return failed;
}
