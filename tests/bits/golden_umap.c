/* golden_umap - the bits of a map, stage by stage, held against a committed table.
 *
 *   golden_umap [--isa NAME] [--threads N] [--quick] --check FILE | --write FILE
 *
 * A line of the table is `stage hash`: the 64-bit FNV-1a hash of the bits of what the stage gave for points made here. Every
 * machine, instruction set, compiler and thread count must come to the same hashes. --quick: small data only, for emulators.
 * Exit status: 0 all lines match, 1 some do not, 2 the table or the arguments are wrong, 77 the instruction set is not here.
 * Needs the library and a C compiler; nothing else. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <napier/umap.h>

static napier_context *context;
static FILE *table;
static int writes, lines, wrong;

static _Noreturn void give_up(const char *what, const char *detail) {
    fprintf(stderr, "golden_umap: %s %s\n", what, detail);
    exit(2);
}

static void *room_for(size_t count, size_t size) {
    void *const memory = malloc(count * size);
    if (!memory) {
        give_up("out of memory", "");
    }
    return memory;
}

static void demand(napier_status status) {
    if (status) {
        give_up(napier_status_string(status), napier_last_error(context));
    }
}

/* ---- The table ----------------------------------------------------------------------------------------------------- */

static uint64_t hash_words(uint64_t hash, const void *words, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        uint32_t word;
        memcpy(&word, (const char *)words + 4 * i, 4);
        for (int byte = 0; byte < 4; byte++) {
            hash = (hash ^ (word >> 8 * byte & 0xff)) * UINT64_C(0x100000001b3);
        }
    }
    return hash;
}

static const uint64_t basis = UINT64_C(0xcbf29ce484222325);

static void line(const char *data, const char *stage, uint64_t hash) {
    char name[64], wanted_name[64];
    uint64_t wanted;
    snprintf(name, sizeof name, "%s:%s", data, stage);
    lines++;
    if (writes) {
        fprintf(table, "%s %016" PRIx64 "\n", name, hash);
        return;
    }
    do {
        if (fscanf(table, "%63s %" SCNx64, wanted_name, &wanted) != 2) {
            give_up("the table has no line for", name);
        }
    } while (strcmp(wanted_name, name) != 0);
    if (wanted != hash) {
        printf("golden_umap: %s is %016" PRIx64 ", the table has %016" PRIx64 "\n", name, hash, wanted);
        wrong++;
    }
}

/* ---- Points -------------------------------------------------------------------------------------------------------- */

static uint64_t state;

static float next_float(void) { /* -1 to 1, a multiple of 2^-23 */
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (float)((int32_t)(state >> 40) - 8388608) / 8388608.0f;
}

static float *clusters(int64_t n, int64_t cols, int32_t *labels) {
    float *x = room_for((size_t)(n * cols), sizeof *x);
    state = 88172645463325252u + (uint64_t)(n * cols);
    for (int64_t i = 0; i < n; i++) {
        labels[i] = (int32_t)(i % 5);
        for (int64_t j = 0; j < cols; j++) {
            const float centre = (float)((labels[i] * 7 + (int32_t)j * 3) % 11) - 5.0f;
            x[i * cols + j] = centre + next_float() + next_float();
        }
    }
    return x;
}

/* ---- Stages -------------------------------------------------------------------------------------------------------- */

static uint64_t hash_graph(const napier_umap_graph *graph) {
    uint64_t hash = basis;
    for (int64_t v = 0; v <= graph->n; v++) {
        const uint32_t start = (uint32_t)graph->starts[v];
        hash = hash_words(hash, &start, 1);
    }
    hash = hash_words(hash, graph->targets, graph->starts[graph->n]);
    return hash_words(hash, graph->weights, graph->starts[graph->n]);
}

static void neighbours(const char *data, napier_umap_samples samples, int64_t n, napier_metric metric,
                       napier_neighbors_method method, const char *stage) {
    napier_neighbors_options options = NAPIER_NEIGHBORS_OPTIONS_INIT;
    options.n_neighbors = 12;
    options.metric = metric;
    options.method = method;
    int32_t *indices = room_for((size_t)n * 12, sizeof *indices);
    float *distances = room_for((size_t)n * 12, sizeof *distances);
    demand(napier_nearest_neighbors(context, samples, &options, indices, distances));
    line(data, stage, hash_words(hash_words(basis, indices, n * 12), distances, n * 12));
    if (metric == NAPIER_METRIC_EUCLIDEAN && method == NAPIER_NEIGHBORS_EXACT) {
        napier_umap_graph *graph = NULL;
        demand(napier_umap_fuzzy_simplicial_set(context, indices, distances, n, 12, 1.0, 1.0, &graph));
        line(data, "fuzzy_set", hash_graph(graph));
        float *y = room_for((size_t)n * 3, sizeof *y);
        demand(napier_umap_spectral_layout(context, graph, samples, 7, napier_rows_f32(y, n, 3)));
        line(data, "spectral", hash_words(basis, y, n * 3));
        free(y);
        napier_umap_graph_destroy(context, graph);
    }
    free(indices);
    free(distances);
}

static void fit(const char *data, napier_umap_samples samples, const napier_umap_options *options, int64_t n,
                int64_t new_rows, const char *stage) {
    napier_umap_model *model = NULL;
    char name[32];
    demand(napier_umap_fit(context, samples, options, &model));
    const napier_const_matrix y = napier_umap_model_embedding(model);
    line(data, stage, hash_words(basis, y.data, n * y.cols));
    float *placed = room_for((size_t)(new_rows * y.cols), sizeof *placed);
    napier_umap_samples some = samples;
    some.dense.rows = new_rows;
    demand(napier_umap_transform(context, model, some, napier_rows_f32(placed, new_rows, y.cols)));
    snprintf(name, sizeof name, "%s/transform", stage);
    line(data, name, hash_words(basis, placed, new_rows * y.cols));
    free(placed);
    napier_umap_model_destroy(context, model);
}

static void sampled_epochs(const char *data, int64_t n) {
    napier_umap_edge *edges = room_for((size_t)n * 4, sizeof *edges);
    float *y = room_for((size_t)n * 2, sizeof *y);
    int64_t count = 0;
    for (int64_t v = 0; v < n; v++) {
        for (int64_t e = 1; e <= 4; e++) {
            const int64_t target = e == 4 ? 0 : (v * 5 + e * e) % n; /* 0 is a hub */
            edges[count++] = (napier_umap_edge){(uint32_t)v, (uint32_t)target, 1.0f / (float)e};
        }
    }
    demand(napier_umap_sort_edges(context, edges, count));
    for (int method = NAPIER_UMAP_SGD; method <= NAPIER_UMAP_ADAM; method++) {
        napier_umap_optimizer_options options = NAPIER_UMAP_OPTIMIZER_OPTIONS_INIT;
        options.method = (napier_umap_method)method;
        napier_umap_optimizer *optimizer = NULL;
        napier_umap_epochs epochs = NAPIER_UMAP_EPOCHS_INIT;
        napier_umap_params params = NAPIER_UMAP_PARAMS_INIT;
        params.learning_rate = 0.1f;
        params.max_norm = 3.0f;
        epochs.count = epochs.total = 15;
        epochs.edge_use = NAPIER_UMAP_EDGES_SAMPLED;
        state = 7 + (uint64_t)method;
        for (int64_t i = 0; i < 2 * n; i++) {
            y[i] = 5.0f * next_float();
        }
        demand(napier_umap_optimizer_create(context, &options, n, 2, &optimizer));
        demand(napier_umap_optimize_epochs(context, &params, &epochs, edges, count, NULL, optimizer,
                                           napier_rows_f32(y, n, 2)));
        char stage[32];
        snprintf(stage, sizeof stage, "epochs/%d", method);
        line(data, stage, hash_words(basis, y, 2 * n));
        napier_umap_optimizer_destroy(context, optimizer);
    }
    free(edges);
    free(y);
}

static void all_stages(const char *data, int64_t n, int64_t cols) {
    int32_t *labels = room_for((size_t)n, sizeof *labels);
    float *x = clusters(n, cols, labels);
    const napier_umap_samples samples = {napier_const_rows_f32(x, n, cols), NULL};
    neighbours(data, samples, n, NAPIER_METRIC_EUCLIDEAN, NAPIER_NEIGHBORS_EXACT, "exact");
    neighbours(data, samples, n, NAPIER_METRIC_COSINE, NAPIER_NEIGHBORS_EXACT, "cosine");
    neighbours(data, samples, n, NAPIER_METRIC_MANHATTAN, NAPIER_NEIGHBORS_EXACT, "manhattan");
    neighbours(data, samples, n, NAPIER_METRIC_EUCLIDEAN, NAPIER_NEIGHBORS_NN_DESCENT, "descent");
    napier_umap_options options = NAPIER_UMAP_OPTIONS_INIT;
    options.n_epochs = 30;
    fit(data, samples, &options, n, 20, "fit");
    options.n_components = 5;
    options.init = NAPIER_UMAP_INIT_PCA;
    fit(data, samples, &options, n, 5, "fit5");
    options.n_components = 2;
    options.densmap = 1;
    options.target_categories = labels;
    fit(data, samples, &options, n, 5, "supervised");
    sampled_epochs(data, n);
    free(x);
    free(labels);
}

/* ---- The program --------------------------------------------------------------------------------------------------- */

static napier_isa isa_named(const char *name) {
    for (int isa = NAPIER_ISA_AUTO; isa <= NAPIER_ISA_AVX512; isa++) {
        if (strcmp(name, napier_isa_name((napier_isa)isa)) == 0) {
            return (napier_isa)isa;
        }
    }
    give_up("no instruction set is called", name);
}

int main(int count, char **words) {
    napier_context_options options = NAPIER_CONTEXT_OPTIONS_INIT;
    options.threads = 1;
    const char *path = NULL;
    int quick = 0;
    for (int i = 1; i < count; i++) {
        const int more = i + 1 < count;
        if (strcmp(words[i], "--quick") == 0) {
            quick = 1;
        } else if (strcmp(words[i], "--isa") == 0 && more) {
            options.highest_isa = isa_named(words[++i]);
        } else if (strcmp(words[i], "--threads") == 0 && more) {
            options.threads = atoi(words[++i]);
        } else if ((strcmp(words[i], "--check") == 0 || strcmp(words[i], "--write") == 0) && more) {
            writes = words[i][2] == 'w';
            path = words[++i];
        } else {
            give_up("unknown or incomplete argument", words[i]);
        }
    }
    table = path ? fopen(path, writes ? "w" : "r") : NULL;
    if (!table) {
        give_up("say --check FILE or --write FILE that can be opened;", path ? path : "none given");
    }
    const napier_status status = napier_context_create(&context, &options);
    if (status == NAPIER_UNSUPPORTED) {
        printf("golden_umap: skipped, this machine cannot run %s\n", napier_isa_name(options.highest_isa));
        return 77;
    }
    demand(status);
    all_stages("small", 150, 20);
    if (!quick) {
        all_stages("wide", 700, 130);
        all_stages("large", 4000, 12);
    }
    napier_context_destroy(context);
    if (fclose(table) != 0) {
        give_up("cannot write", path);
    }
    printf("golden_umap: %d lines, %d differ\n", lines, wrong);
    return wrong ? 1 : 0;
}
