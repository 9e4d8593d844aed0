/* tests/cuda/test_cuda_umap.c - the layout on a device against the CPU's calls, bit for bit: primitives, epochs of all
 * optimizers and schemes, heavy vertices, several orders of threads; and what is bad on the device. */
#include "both.h"

#include <stdio.h>

/* ---- Data -------------------------------------------------------------------------------------------------------- */

typedef struct map_case {
    int64_t n, components, count, rate;
    napier_matrix y, g; /* g: for gradients */
    napier_umap_edge *edges;
    uint32_t *targets; /* [n, rate] */
} map_case;

static float unit(rng *r) { return (float)rng_uniform(r); }

static napier_matrix new_rows(int64_t n, int64_t cols) {
    return napier_rows_f32(array_new((size_t)(n * cols) * sizeof(float)), n, cols);
}

/* Edges from anywhere to anywhere; `hub` of them at vertex n / 2, some twice, some of no weight, some points equal. */
static map_case make_problem(int64_t n, int64_t components, int64_t count, int64_t hub, int64_t rate) {
    map_case p = {n, components, count, rate, new_rows(n, components), new_rows(n, components), NULL, NULL};
    rng r = rng_make((uint64_t)(n * 1000 + components * 10 + count));
    float *const y = p.y.data;
    p.edges = array_new((size_t)count * sizeof *p.edges);
    p.targets = array_new((size_t)(n * rate) * sizeof *p.targets);
    for (int64_t i = 0; i < n * components; i++) {
        y[i] = i >= components && rng_below(&r, 20) == 0 ? y[i - components] : 20.0f * (unit(&r) - 0.5f);
    }
    for (int64_t e = 0; e < count; e++) {
        const uint32_t a = (uint32_t)(e < hub ? n / 2 : rng_below(&r, n)), b = (uint32_t)rng_below(&r, n);
        const float weight = rng_below(&r, 12) == 0 ? 0.0f : unit(&r);
        p.edges[e] = (napier_umap_edge){e % 3 && e < hub ? b : a, e % 3 && e < hub ? a : b, weight};
    }
    fine(napier_umap_sort_edges(cpu, p.edges, count));
    for (int64_t i = 0; i < n * rate; i++) {
        p.targets[i] = (uint32_t)rng_below(&r, n);
    }
    both_case("%d points in %d components, %d edges", (int)n, (int)components, (int)count);
    return p;
}

/* ---- Primitives -------------------------------------------------------------------------------------------------- */

static const napier_umap_params kinds[] = {
    NAPIER_UMAP_PARAMS_INIT,
    {sizeof(napier_umap_params), 1.2f, 0.7f, 0.5f, 7, 2.0f, 0.01f, 0.0f, 0.0f},
    {sizeof(napier_umap_params), 0.6f, 1.3f, 0.25f, 3, 0.5f, 0.001f, 0.3f, 0.2f},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static const napier_matrix none;

/* Each side of the edges by itself. */
static napier_status edge_gradients(const napier_umap_params *params, const map_case *p, napier_matrix source,
                                    napier_matrix target) {
    const napier_const_matrix y = napier_read_only(p->y);
    fine(through_umap_edge_gradients(cpu, params, y, p->edges, p->count, source, none));
    return through_umap_edge_gradients(cpu, params, y, p->edges, p->count, none, target);
}

static void check_primitives(const map_case *p, const napier_umap_params *params) {
    const napier_const_matrix y = napier_read_only(p->y), g = napier_read_only(p->g);
    const napier_matrix source = new_rows(p->count, p->components), target = new_rows(p->count, p->components);
    const size_t row_bytes = (size_t)p->n * sizeof(int64_t);
    int64_t *const starts = array_new(row_bytes), *const counts = array_new(row_bytes);
    BOTH(napier_umap_edge_gradients(cpu, params, y, p->edges, p->count, source, target),
         edge_gradients(params, p, source, target));
    SAME(umap_segments, p->edges, p->count, p->n, starts, counts);
    SAME(umap_reduce_segments, napier_read_only(source), starts, counts, p->g);
    SAME(umap_gradients, params, y, p->edges, p->count, 0, p->g);
    SAME(umap_gradients, params, y, p->edges, p->count, 1, p->g);
    SAME(umap_negative_gradients, params, y, p->targets, p->rate, p->g);
    SAME(umap_apply, 0.3f, g, p->y);
    arrays_free();
}

static void test_primitives(void) {
    static const int64_t shapes[][5] = {/* n, components, edges, of a hub, rate */
                                        {1, 2, 1, 0, 5},     {1, 1, 0, 0, 0},      {2, 3, 5, 0, 33},
                                        {33, 2, 700, 90, 5}, {70, 2, 600, 70, 40}, {19, 17, 300, 60, 18},
                                        {9, 50, 99, 40, 35}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        for (int k = 0; k < KINDS; k++) {
            const map_case p = make_problem(shapes[s][0], shapes[s][1], shapes[s][2], shapes[s][3], shapes[s][4]);
            device_order((uint64_t)k);
            check_primitives(&p, &kinds[k]);
        }
    }
    for (int64_t components = 2; components < 6; components += 3) { /* rows of more than one piece */
        for (int k = 0; k < KINDS; k += 2) {
            const map_case p = make_problem(40, components, 4000, 3700, 5);
            device_order(7);
            check_primitives(&p, &kinds[k]);
        }
    }
}

/* More than 256 vertices need two passes of the sort, more than 2048 two tiles of the sums. */
static void test_many_vertices(void) {
    const map_case p = make_problem(2500, 2, 5000, 0, 1);
    SAME(umap_gradients, NULL, napier_read_only(p.y), p.edges, p.count, 1, p.g);
    float *const odd = array_new((size_t)(p.n * 2 + 1) * sizeof *odd); /* a map that does not lie on 8 bytes */
    memcpy(odd + 1, p.y.data, (size_t)(p.n * 2) * sizeof *odd);
    SAME(umap_gradients, NULL, napier_const_rows_f32(odd + 1, p.n, 2), p.edges, p.count, 1, p.g);
}

static void test_draws(void) {
    static const int64_t shapes[][2] = {{1, 1}, {7, 5}, {100, 33}, {3, 1000}, {5, 0}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        uint32_t *const targets = array_new((size_t)(shapes[s][0] * shapes[s][1]) * sizeof *targets);
        SAME(umap_negative_targets, 12345678901234, 77, shapes[s][0], shapes[s][1], targets);
        arrays_free();
    }
}

/* ---- Epochs ------------------------------------------------------------------------------------------------------ */

typedef struct scheme {
    napier_umap_method method;
    napier_umap_edge_use edge_use;
    napier_umap_rate_per rate_per;
    int move_targets, given;
} scheme;

/* Two calls on end: the optimizer goes on. */
static void check_epochs(const map_case *p, const napier_umap_params *params, scheme s) {
    const size_t bytes = (size_t)(p->n * p->components) * sizeof(float);
    const uint32_t *const targets = s.given ? p->targets : NULL;
    napier_umap_epochs epochs = NAPIER_UMAP_EPOCHS_INIT;
    epochs.total = 9;
    epochs.edge_use = s.edge_use;
    epochs.rate_per = s.rate_per;
    epochs.move_targets = s.move_targets;
    napier_cuda_umap_optimizer mine = NAPIER_CUDA_UMAP_OPTIMIZER_INIT;
    mine.options.method = s.method;
    mine.first = s.method != NAPIER_UMAP_SGD ? calloc(1, bytes + 1) : NULL;
    mine.second = s.method == NAPIER_UMAP_ADAM ? calloc(1, bytes + 1) : NULL;
    napier_umap_optimizer *optimizer = NULL;
    fine(napier_umap_optimizer_create(cpu, &mine.options, p->n, p->components, &optimizer));
    for (int call = 0; call < 2; call++) {
        epochs.first = call ? 3 : 0;
        epochs.count = call ? 1 : 3;
        BOTH(napier_umap_optimize_epochs(cpu, params, &epochs, p->edges, p->count, targets, optimizer, p->y),
             through_umap_optimize_epochs(cpu, params, &epochs, p->edges, p->count, targets, &mine, p->y));
        assert_int_equal(mine.steps, call ? 4 : 3);
    }
    napier_umap_optimizer_destroy(cpu, optimizer);
    free(mine.first), free(mine.second);
}

static void test_epochs(void) {
    static const scheme schemes[] = {
        {NAPIER_UMAP_SGD, NAPIER_UMAP_EDGES_WEIGHTED, NAPIER_UMAP_RATE_PER_EDGE, 0, 0},
        {NAPIER_UMAP_MOMENTUM, NAPIER_UMAP_EDGES_WEIGHTED, NAPIER_UMAP_RATE_PER_VERTEX, 1, 0},
        {NAPIER_UMAP_ADAM, NAPIER_UMAP_EDGES_WEIGHTED, NAPIER_UMAP_RATE_PER_VERTEX, 1, 1},
        {NAPIER_UMAP_ADAM, NAPIER_UMAP_EDGES_SAMPLED, NAPIER_UMAP_RATE_PER_EDGE, 0, 0},
        {NAPIER_UMAP_SGD, NAPIER_UMAP_EDGES_SAMPLED, NAPIER_UMAP_RATE_PER_EDGE, 1, 0},
        {NAPIER_UMAP_ADAM, NAPIER_UMAP_EDGES_SAMPLED, NAPIER_UMAP_RATE_PER_VERTEX, 1, 1},
    };
    for (int64_t components = 2; components < 4; components++) {
        const map_case p = make_problem(37, components, 500, 120, 7);
        for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
            device_order(i);
            check_epochs(&p, &kinds[1], schemes[i]); /* its rate is 7 */
        }
        arrays_free();
    }
    const map_case p = make_problem(40, 2, 3600, 3500, 7);
    check_epochs(&p, &kinds[1], schemes[0]);
    check_epochs(&p, &kinds[1], schemes[4]);
}

/* Each pair once: what a caller may hand in. */
static napier_umap_graph *graph_of(map_case *p) {
    int64_t kept = 0;
    for (int64_t e = 0; e < p->count; e++) {
        const bool again = kept > 0 && p->edges[e].source == p->edges[kept - 1].source &&
                           p->edges[e].target == p->edges[kept - 1].target;
        if (!again && p->edges[e].weight > 0.0f) {
            p->edges[kept++] = p->edges[e];
        }
    }
    p->count = kept;
    napier_umap_graph *graph = NULL;
    fine(napier_umap_graph_from_edges(cpu, p->edges, kept, p->n, &graph));
    return graph;
}

static napier_cuda_umap_graph copy_graph(const napier_umap_graph *g) {
    const size_t count = (size_t)g->starts[g->n];
    return (napier_cuda_umap_graph){g->n, g->starts[g->n], array_of(g->starts, (size_t)(g->n + 1) * sizeof *g->starts),
                                    array_of(g->targets, count * sizeof *g->targets),
                                    array_of(g->weights, count * sizeof *g->weights)};
}

static void test_layout(void) {
    for (int64_t components = 2; components < 8; components += 5) {
        map_case p = make_problem(50, components, 600, 0, 1);
        napier_umap_graph *const graph = graph_of(&p);
        const napier_cuda_umap_graph copy = copy_graph(graph);
        napier_umap_options options = NAPIER_UMAP_OPTIONS_INIT;
        options.n_components = components;
        options.n_epochs = 5; /* some edges weigh less than a fifth */
        options.negative_sample_rate = 4.5;
        BOTH(napier_umap_optimize_layout(cpu, graph, &options, p.y),
             through_umap_optimize_layout(cpu, &copy, &options, p.y));
        napier_umap_graph_destroy(cpu, graph);
        arrays_free();
    }
}

/* ---- What is bad ------------------------------------------------------------------------------------------------- */

static void no_map(napier_matrix m) { all_nan(m.data, NAPIER_F32, m.rows * m.cols); }

static void test_bad_edges(void) {
    static const struct {
        int64_t at;
        int64_t source, target; /* -1: as they are */
        float weight;
    } cases[] = {{77, -1, 20, 0.5f},  {77, -1, UINT32_MAX, 0.5f}, {199, 20, 0, 0.5f},
                 {77, -1, -1, -0.5f}, {77, -1, -1, NAN},          {77, 0, 0, 0.5f} /* out of order */};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const map_case p = make_problem(20, 2, 200, 0, 3);
        const napier_const_matrix y = napier_read_only(p.y);
        const napier_matrix source = new_rows(p.count, 2);
        const int64_t at = cases[i].at;
        int64_t *const rows = array_new((size_t)p.n * 16);
        napier_umap_edge *const e = &p.edges[at];
        *e = (napier_umap_edge){cases[i].source < 0 ? e->source : (uint32_t)cases[i].source,
                                cases[i].target < 0 ? e->target : (uint32_t)cases[i].target, cases[i].weight};
        napier_cuda_umap_optimizer sgd = NAPIER_CUDA_UMAP_OPTIMIZER_INIT;
        sgd.options.method = NAPIER_UMAP_SGD;
        char text[64];
        (void)snprintf(text, sizeof text, "edges: the edge at index %lld", (long long)at);
        bad(through_umap_gradients(cpu, NULL, y, p.edges, p.count, 1, p.g), text);
        no_map(p.g);
        bad(through_umap_edge_gradients(cpu, NULL, y, p.edges, p.count, source, none), text);
        all_nan((float *)source.data + at * 2, NAPIER_F32, 2);
        bad(through_umap_segments(cpu, p.edges, p.count, p.n, rows, rows + p.n), text);
        bad(through_umap_optimize_epochs(cpu, NULL, NULL, p.edges, p.count, NULL, &sgd, p.y), text);
        no_map(p.y);
        arrays_free();
    }
}

static void test_bad_values(void) {
    const map_case p = make_problem(20, 3, 100, 0, 4);
    const napier_const_matrix y = napier_read_only(p.y), rows = napier_const_rows_f32(array_of(p.y.data, 240), 20, 3);
    napier_cuda_umap_optimizer sgd = NAPIER_CUDA_UMAP_OPTIMIZER_INIT;
    napier_umap_epochs epochs = NAPIER_UMAP_EPOCHS_INIT;
    napier_umap_params params = NAPIER_UMAP_PARAMS_INIT;
    sgd.options.method = NAPIER_UMAP_SGD;
    epochs.rate_per = NAPIER_UMAP_RATE_PER_VERTEX;
    params.negative_sample_rate = 4;
    p.targets[13] = 20;
    bad(through_umap_negative_gradients(cpu, NULL, y, p.targets, p.rate, p.g), "targets: the target at index 13 ");
    no_map(p.g);
    bad(through_umap_optimize_epochs(cpu, &params, &epochs, p.edges, p.count, p.targets, &sgd, p.y),
        "targets: the target at index 13 ");
    no_map(p.y);
    bad(through_umap_gradients(cpu, NULL, y, p.edges, p.count, 0, p.g), "values: the element at index 0 ");
    no_map(p.g);
    bad(through_umap_apply(cpu, 1.0f, napier_read_only(p.g), p.y), "values: the element at index 0 ");

    const int64_t starts[2] = {0, 99}, counts[2] = {5, 2};
    const napier_matrix sums = new_rows(2, 3);
    bad(through_umap_reduce_segments(cpu, rows, array_of(starts, sizeof starts), array_of(counts, sizeof counts), sums),
        "offsets: the offset at index 1 ");
    all_nan((float *)sums.data + 3, NAPIER_F32, 3);
}

/* Rows 7 that end before they begin or past the end, an edge to no vertex, one of no weight; a last row that goes past
 * the end. */
static void test_bad_graphs(void) {
    enum { TARGET, WEIGHT, COUNT, STARTS, CASES = STARTS + 4 };
    static const int64_t hostile[] = {-1, INT64_MIN, INT64_MAX, 1000};
    for (int i = 0; i < CASES; i++) {
        map_case p = make_problem(20, 2, 150, 0, 1);
        napier_umap_graph *const graph = graph_of(&p);
        const int64_t at = graph->starts[7], last = graph->starts[19] < graph->starts[20] ? 19 : 18;
        if (i == TARGET) {
            graph->targets[at] = 20;
        } else if (i == WEIGHT) {
            graph->weights[at] = 0.0f;
        }
        napier_cuda_umap_graph copy = copy_graph(graph);
        if (i >= STARTS) {
            ((int64_t *)(uintptr_t)copy.starts)[8] = hostile[i - STARTS];
        }
        copy.count -= i == COUNT;
        napier_umap_options options = NAPIER_UMAP_OPTIONS_INIT;
        options.n_epochs = 2;
        char text[64];
        (void)snprintf(text, sizeof text, "edges: the edge at index %lld ", (long long)(i == COUNT ? last : 7));
        bad(through_umap_optimize_layout(cpu, &copy, &options, p.y), text);
        no_map(p.y);
        napier_umap_graph_destroy(cpu, graph);
        arrays_free();
    }
}

/* What the host can see. */
static void test_arguments(void) {
    const map_case p = make_problem(10, 2, 30, 0, 2);
    const napier_matrix y = p.y, other = {p.y.data, 10, 2, 2, 1, NAPIER_F16};
    const napier_const_matrix in = napier_read_only(y);
    const napier_umap_edge *const edges = p.edges;
    void *const before = array_of(y.data, 80);
    napier_cuda_umap_optimizer sgd = NAPIER_CUDA_UMAP_OPTIMIZER_INIT, wrong = sgd;
    bad(through_umap_gradients(cpu, NULL, in, edges, 30, 0, y), "gradients: the same memory");
    bad(through_umap_gradients(cpu, NULL, in, NULL, 30, 0, p.g), "edges: NULL");
    bad(through_umap_gradients(cpu, NULL, in, edges, 30, 0, other), "gradients: dtype f16");
    bad(through_umap_optimize_epochs(cpu, NULL, NULL, edges, 30, NULL, NULL, y), "optimizer: NULL");
    bad(through_umap_optimize_epochs(cpu, NULL, NULL, edges, 30, NULL, &sgd, y), "optimizer: first: NULL");
    bad(through_umap_optimize_epochs(cpu, NULL, NULL, edges, 30, p.targets, &sgd, y), "targets: given");
    wrong.struct_size = 0;
    bad(through_umap_optimize_epochs(cpu, NULL, NULL, edges, 30, NULL, &wrong, y), "optimizer: struct_size is 0");
    wrong = sgd;
    wrong.options.struct_size -= 8;
    bad(through_umap_optimize_epochs(cpu, NULL, NULL, edges, 30, NULL, &wrong, y),
        "optimizer: options: struct_size is");
    bad(through_umap_optimize_layout(cpu, NULL, NULL, y), "graph: NULL");
    bad(through_umap_negative_targets(cpu, 1, -1, 10, 2, p.targets), "epoch -1");

    napier_cuda_umap_optimizer older = sgd;
    older.struct_size = offsetof(napier_cuda_umap_optimizer, second); /* an older struct, in which this was NULL */
    older.second = p.g.data;
    bad(through_umap_optimize_epochs(cpu, NULL, NULL, edges, 30, NULL, &older, y), "optimizer: first: NULL");
    older.first = p.g.data;
    bad(through_umap_optimize_epochs(cpu, NULL, NULL, edges, 30, NULL, &older, y), "optimizer: second: NULL");
    older.options.method = NAPIER_UMAP_SGD;
    napier_cuda_workspace ask = {NULL, 0};
    assert_int_equal(
        napier_cuda_umap_optimize_epochs(through_context(), NULL, &ask, NULL, NULL, edges, 30, NULL, &older, y),
        NAPIER_OK);
    assert_true(ask.size > 0 && older.steps == 0);
    assert_true(older.struct_size < sizeof older && older.second == p.g.data);
    assert_memory_equal(y.data, before, 80); /* untouched */
}

int main(void) {
    return BOTH_TESTS("cuda_umap", TEST(test_primitives), TEST(test_many_vertices), TEST(test_draws), TEST(test_epochs),
                      TEST(test_layout), TEST(test_bad_edges), TEST(test_bad_values), TEST(test_bad_graphs),
                      TEST(test_arguments));
}
