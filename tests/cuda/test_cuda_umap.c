/* tests/cuda/test_cuda_umap.c - the layout on a device against the CPU's calls, bit for bit: primitives, epochs of all
 * optimizers and schemes, heavy vertices, several orders of threads; and what is bad on the device. */
#include "support/check.h"

#include <math.h>
#include <napier/cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_test.h"
#include "umap_cuda.h"

/* ---- Data -------------------------------------------------------------------------------------------------------- */

static uint64_t state;

static uint32_t next_below(uint32_t n) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)((state >> 32) * n >> 32);
}
static float next_unit(void) { return (float)next_below(1 << 24) * 0x1p-24f; }

typedef struct map_case {
    int64_t n, components, count, rate;
    float *y;
    napier_umap_edge *edges;
    uint32_t *targets; /* [n, rate] */
} map_case;

/* Edges from anywhere to anywhere; `hub` of them at vertex n / 2, some twice, some of no weight, some points equal. */
static map_case make_problem(int64_t n, int64_t components, int64_t count, int64_t hub, int64_t rate) {
    map_case p = {n, components, count, rate, NULL, NULL, NULL};
    p.y = malloc((size_t)(n * components) * sizeof *p.y + 1);
    p.edges = malloc((size_t)count * sizeof *p.edges + 1);
    p.targets = malloc((size_t)(n * rate) * sizeof *p.targets + 1);
    assert_true(p.y && p.edges && p.targets);
    state = 88172645463325252u + (uint64_t)(n * 1000 + components * 10 + count);
    for (int64_t i = 0; i < n * components; i++) {
        p.y[i] = i >= components && next_below(20) == 0 ? p.y[i - components] : 20.0f * (next_unit() - 0.5f);
    }
    for (int64_t e = 0; e < count; e++) {
        const uint32_t a = e < hub ? (uint32_t)n / 2 : next_below((uint32_t)n), b = next_below((uint32_t)n);
        const float weight = next_below(12) == 0 ? 0.0f : next_unit();
        p.edges[e] = (napier_umap_edge){e % 3 && e < hub ? b : a, e % 3 && e < hub ? a : b, weight};
    }
    assert_int_equal(napier_umap_sort_edges(host, p.edges, count), NAPIER_OK);
    for (int64_t i = 0; i < n * rate; i++) {
        p.targets[i] = next_below((uint32_t)n);
    }
    return p;
}

static void free_problem(map_case *p) {
    free(p->y);
    free(p->edges);
    free(p->targets);
}

typedef struct on_device {
    float *y;
    napier_umap_edge *edges;
    uint32_t *targets;
} on_device;

static on_device copy_problem(const map_case *p) {
    return (on_device){device_copy(p->y, (size_t)(p->n * p->components) * sizeof *p->y),
                       device_copy(p->edges, (size_t)p->count * sizeof *p->edges),
                       device_copy(p->targets, (size_t)(p->n * p->rate) * sizeof *p->targets)};
}

static void free_copy(on_device *d) {
    device_free(d->y);
    device_free(d->edges);
    device_free(d->targets);
}

static napier_matrix rows_of(void *data, const map_case *p) { return napier_rows_f32(data, p->n, p->components); }
static napier_const_matrix const_rows_of(const void *data, const map_case *p) {
    return napier_const_rows_f32(data, p->n, p->components);
}

/* ---- Primitives -------------------------------------------------------------------------------------------------- */

static const napier_umap_params kinds[] = {
    NAPIER_UMAP_PARAMS_INIT,
    {sizeof(napier_umap_params), 1.2f, 0.7f, 0.5f, 7, 2.0f, 0.01f, 0.0f, 0.0f},
    {sizeof(napier_umap_params), 0.6f, 1.3f, 0.25f, 3, 0.5f, 0.001f, 0.3f, 0.2f},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static void check_edges(const map_case *p, const on_device *d, const napier_umap_params *params) {
    const int64_t elements = p->count * p->components, points = p->n * p->components;
    const size_t edge_bytes = (size_t)elements * sizeof(float), point_bytes = (size_t)points * sizeof(float);
    const size_t row_bytes = (size_t)p->n * sizeof(int64_t);
    napier_status status;
    float *const source = malloc(edge_bytes + 1), *const target = malloc(edge_bytes + 1);
    float *const sums = malloc(point_bytes + 1);
    int64_t *const starts = malloc(row_bytes + 1), *const counts = malloc(row_bytes + 1);
    float *const s = device_new(edge_bytes), *const t = device_new(edge_bytes), *const g = device_new(point_bytes);
    int64_t *const at = device_new(row_bytes), *const so_many = device_new(row_bytes);
    assert_true(source && target && sums && starts && counts);
    const napier_matrix none = napier_rows_f32(NULL, 0, 0);

    assert_int_equal(napier_umap_edge_gradients(host, params, const_rows_of(p->y, p), p->edges, p->count,
                                                napier_rows_f32(source, p->count, p->components),
                                                napier_rows_f32(target, p->count, p->components)),
                     NAPIER_OK);
    CALL(status, napier_cuda_umap_edge_gradients(cuda, NULL, &w, params, const_rows_of(d->y, p), d->edges, p->count,
                                                 napier_rows_f32(s, p->count, p->components), none));
    expect_ok(status);
    CALL(status, napier_cuda_umap_edge_gradients(cuda, NULL, &w, params, const_rows_of(d->y, p), d->edges, p->count,
                                                 none, napier_rows_f32(t, p->count, p->components)));
    expect_ok(status);
    expect_floats("source_gradients", s, source, elements);
    expect_floats("target_gradients", t, target, elements);

    assert_int_equal(napier_umap_segments(host, p->edges, p->count, p->n, starts, counts), NAPIER_OK);
    CALL(status, napier_cuda_umap_segments(cuda, NULL, &w, d->edges, p->count, p->n, at, so_many));
    expect_ok(status);
    expect_bytes(at, starts, row_bytes);
    expect_bytes(so_many, counts, row_bytes);

    assert_int_equal(napier_umap_reduce_segments(host, napier_const_rows_f32(source, p->count, p->components), starts,
                                                 counts, rows_of(sums, p)),
                     NAPIER_OK);
    CALL(status, napier_cuda_umap_reduce_segments(cuda, NULL, &w, napier_const_rows_f32(s, p->count, p->components), at,
                                                  so_many, rows_of(g, p)));
    expect_ok(status);
    expect_floats("reduce_segments", g, sums, points);
    free(source), free(target), free(sums), free(starts), free(counts);
    device_free(s), device_free(t), device_free(g), device_free(at), device_free(so_many);
}

static void check_forces(const map_case *p, const on_device *d, const napier_umap_params *params) {
    const int64_t points = p->n * p->components;
    const size_t bytes = (size_t)points * sizeof(float);
    napier_status status;
    float *const expected = malloc(bytes + 1), *const g = device_new(bytes);
    assert_non_null(expected);
    for (int move = 0; move < 2; move++) {
        assert_int_equal(
            napier_umap_gradients(host, params, const_rows_of(p->y, p), p->edges, p->count, move, rows_of(expected, p)),
            NAPIER_OK);
        CALL(status, napier_cuda_umap_gradients(cuda, NULL, &w, params, const_rows_of(d->y, p), d->edges, p->count,
                                                move, rows_of(g, p)));
        expect_ok(status);
        expect_floats(move ? "gradients, both ways" : "gradients", g, expected, points);
    }
    assert_int_equal(
        napier_umap_negative_gradients(host, params, const_rows_of(p->y, p), p->targets, p->rate, rows_of(expected, p)),
        NAPIER_OK);
    CALL(status, napier_cuda_umap_negative_gradients(cuda, NULL, &w, params, const_rows_of(d->y, p), d->targets,
                                                     p->rate, rows_of(g, p)));
    expect_ok(status);
    expect_floats("negative_gradients", g, expected, points);

    float *const y = malloc(bytes + 1), *const moved = device_copy(p->y, bytes);
    assert_non_null(y);
    memcpy(y, p->y, bytes);
    assert_int_equal(napier_umap_apply(host, 0.3f, napier_const_rows_f32(expected, p->n, p->components), rows_of(y, p)),
                     NAPIER_OK);
    CALL(status, napier_cuda_umap_apply(cuda, NULL, &w, 0.3f, napier_const_rows_f32(g, p->n, p->components),
                                        rows_of(moved, p)));
    expect_ok(status);
    expect_floats("apply", moved, y, points);
    free(expected), free(y);
    device_free(g), device_free(moved);
}

static void test_primitives(void **unused) {
    static const int64_t shapes[][5] = {/* n, components, edges, of a hub, rate */
                                        {1, 2, 1, 0, 5},     {1, 1, 0, 0, 0},      {2, 3, 5, 0, 33},
                                        {33, 2, 700, 90, 5}, {70, 2, 600, 70, 40}, {19, 17, 300, 60, 18},
                                        {9, 50, 99, 40, 35}};
    (void)unused;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        map_case p = make_problem(shapes[s][0], shapes[s][1], shapes[s][2], shapes[s][3], shapes[s][4]);
        on_device d = copy_problem(&p);
        for (int k = 0; k < KINDS; k++) {
            device_order((uint64_t)k);
            check_edges(&p, &d, &kinds[k]);
            check_forces(&p, &d, &kinds[k]);
        }
        free_copy(&d);
        free_problem(&p);
    }
}

/* Rows of more than one piece, in two components and in more. */
static void test_heavy(void **unused) {
    (void)unused;
    for (int64_t components = 2; components < 6; components += 3) {
        map_case p = make_problem(40, components, 4000, 3700, 5);
        on_device d = copy_problem(&p);
        device_order(7);
        check_edges(&p, &d, &kinds[0]);
        check_forces(&p, &d, &kinds[2]);
        free_copy(&d);
        free_problem(&p);
    }
}

/* More than 256 vertices need two passes of the sort, more than 2048 two tiles of the sums. */
static void test_many_vertices(void **unused) {
    (void)unused;
    map_case p = make_problem(2500, 2, 5000, 0, 1);
    on_device d = copy_problem(&p);
    const int64_t points = p.n * p.components;
    float *const expected = malloc((size_t)points * sizeof(float)), *const g = device_new((size_t)points * 4);
    assert_non_null(expected);
    napier_status status;
    assert_int_equal(
        napier_umap_gradients(host, NULL, const_rows_of(p.y, &p), p.edges, p.count, 1, rows_of(expected, &p)),
        NAPIER_OK);
    CALL(status,
         napier_cuda_umap_gradients(cuda, NULL, &w, NULL, const_rows_of(d.y, &p), d.edges, p.count, 1, rows_of(g, &p)));
    expect_ok(status);
    expect_floats("gradients of many", g, expected, points);
    float *const odd = device_new((size_t)(points + 1) * sizeof *odd); /* a map that does not lie on 8 bytes */
    device_write(odd + 1, p.y, (size_t)points * sizeof *odd);
    CALL(status, napier_cuda_umap_gradients(cuda, NULL, &w, NULL, const_rows_of(odd + 1, &p), d.edges, p.count, 1,
                                            rows_of(g, &p)));
    expect_ok(status);
    expect_floats("gradients of a map on 4 bytes", g, expected, points);
    device_free(odd);
    free(expected);
    device_free(g);
    free_copy(&d);
    free_problem(&p);
}

static void test_draws(void **unused) {
    static const int64_t shapes[][2] = {{1, 1}, {7, 5}, {100, 33}, {3, 1000}, {5, 0}};
    (void)unused;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        const int64_t n = shapes[s][0], rate = shapes[s][1];
        const size_t bytes = (size_t)(n * rate) * sizeof(uint32_t);
        uint32_t *const expected = malloc(bytes + 1), *const got = device_new(bytes);
        napier_status status;
        assert_non_null(expected);
        assert_int_equal(napier_umap_negative_targets(host, 12345678901234, 77, n, rate, expected), NAPIER_OK);
        CALL(status, napier_cuda_umap_negative_targets(cuda, NULL, &w, 12345678901234, 77, n, rate, got));
        expect_ok(status);
        expect_bytes(got, expected, bytes);
        free(expected);
        device_free(got);
    }
}

/* ---- Epochs ------------------------------------------------------------------------------------------------------ */

typedef struct scheme {
    napier_umap_method method;
    napier_umap_edge_use edge_use;
    napier_umap_rate_per rate_per;
    int move_targets, given;
} scheme;

static void check_epochs(const map_case *p, const on_device *d, const napier_umap_params *params, scheme s) {
    const int64_t points = p->n * p->components;
    const size_t bytes = (size_t)points * sizeof(float);
    napier_umap_optimizer_options options = NAPIER_UMAP_OPTIMIZER_OPTIONS_INIT;
    options.method = s.method;
    napier_umap_epochs epochs = NAPIER_UMAP_EPOCHS_INIT;
    epochs.total = 9;
    epochs.edge_use = s.edge_use;
    epochs.rate_per = s.rate_per;
    epochs.move_targets = s.move_targets;
    napier_umap_optimizer *optimizer = NULL;
    assert_int_equal(napier_umap_optimizer_create(host, &options, p->n, p->components, &optimizer), NAPIER_OK);
    float *const y = malloc(bytes + 1), *const moved = device_copy(p->y, bytes), *const zeros = calloc(1, bytes + 1);
    assert_true(y && zeros);
    memcpy(y, p->y, bytes);
    napier_cuda_umap_optimizer mine = NAPIER_CUDA_UMAP_OPTIMIZER_INIT;
    mine.options = options;
    mine.first = s.method != NAPIER_UMAP_SGD ? device_copy(zeros, bytes) : NULL;
    mine.second = s.method == NAPIER_UMAP_ADAM ? device_copy(zeros, bytes) : NULL;
    for (int call = 0; call < 2; call++) { /* two calls on end: the optimizer goes on */
        napier_status status;
        epochs.first = call ? 3 : 0;
        epochs.count = call ? 1 : 3;
        assert_int_equal(napier_umap_optimize_epochs(host, params, &epochs, p->edges, p->count,
                                                     s.given ? p->targets : NULL, optimizer, rows_of(y, p)),
                         NAPIER_OK);
        CALL(status, napier_cuda_umap_optimize_epochs(cuda, NULL, &w, params, &epochs, d->edges, p->count,
                                                      s.given ? d->targets : NULL, &mine, rows_of(moved, p)));
        expect_ok(status);
        assert_int_equal(mine.steps, call ? 4 : 3);
        expect_floats("optimize_epochs", moved, y, points);
    }
    napier_umap_optimizer_destroy(host, optimizer);
    free(y), free(zeros);
    device_free(moved), device_free(mine.first), device_free(mine.second);
}

static void test_epochs(void **unused) {
    static const scheme schemes[] = {
        {NAPIER_UMAP_SGD, NAPIER_UMAP_EDGES_WEIGHTED, NAPIER_UMAP_RATE_PER_EDGE, 0, 0},
        {NAPIER_UMAP_MOMENTUM, NAPIER_UMAP_EDGES_WEIGHTED, NAPIER_UMAP_RATE_PER_VERTEX, 1, 0},
        {NAPIER_UMAP_ADAM, NAPIER_UMAP_EDGES_WEIGHTED, NAPIER_UMAP_RATE_PER_VERTEX, 1, 1},
        {NAPIER_UMAP_ADAM, NAPIER_UMAP_EDGES_SAMPLED, NAPIER_UMAP_RATE_PER_EDGE, 0, 0},
        {NAPIER_UMAP_SGD, NAPIER_UMAP_EDGES_SAMPLED, NAPIER_UMAP_RATE_PER_EDGE, 1, 0},
        {NAPIER_UMAP_ADAM, NAPIER_UMAP_EDGES_SAMPLED, NAPIER_UMAP_RATE_PER_VERTEX, 1, 1},
    };
    (void)unused;
    for (int64_t components = 2; components < 4; components++) {
        map_case p = make_problem(37, components, 500, 120, 7);
        on_device d = copy_problem(&p);
        for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
            device_order(i);
            check_epochs(&p, &d, &kinds[1], schemes[i]); /* its rate is 7 */
        }
        free_copy(&d);
        free_problem(&p);
    }
    map_case p = make_problem(40, 2, 3600, 3500, 7);
    on_device d = copy_problem(&p);
    check_epochs(&p, &d, &kinds[1], schemes[0]);
    check_epochs(&p, &d, &kinds[1], schemes[4]);
    free_copy(&d);
    free_problem(&p);
}

static napier_cuda_umap_graph copy_graph(const napier_umap_graph *g) {
    const int64_t count = g->starts[g->n];
    return (napier_cuda_umap_graph){g->n, count, device_copy(g->starts, (size_t)(g->n + 1) * sizeof *g->starts),
                                    device_copy(g->targets, (size_t)count * sizeof *g->targets),
                                    device_copy(g->weights, (size_t)count * sizeof *g->weights)};
}
static void free_graph_copy(napier_cuda_umap_graph *g) {
    device_free((void *)(uintptr_t)g->starts);
    device_free((void *)(uintptr_t)g->targets);
    device_free((void *)(uintptr_t)g->weights);
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
    assert_int_equal(napier_umap_graph_from_edges(host, p->edges, kept, p->n, &graph), NAPIER_OK);
    return graph;
}

static void test_layout(void **unused) {
    (void)unused;
    for (int64_t components = 2; components < 8; components += 5) {
        map_case p = make_problem(50, components, 600, 0, 1);
        napier_umap_graph *graph = graph_of(&p);
        napier_cuda_umap_graph copy = copy_graph(graph);
        const size_t bytes = (size_t)(p.n * components) * sizeof(float);
        float *const moved = device_copy(p.y, bytes);
        napier_umap_options options = NAPIER_UMAP_OPTIONS_INIT;
        options.n_components = components;
        options.n_epochs = 5; /* some edges weigh less than a fifth */
        options.negative_sample_rate = 4.5;
        napier_status status;
        CALL(status, napier_cuda_umap_optimize_layout(cuda, NULL, &w, &copy, &options, rows_of(moved, &p)));
        expect_ok(status);
        assert_int_equal(napier_umap_optimize_layout(host, graph, &options, rows_of(p.y, &p)), NAPIER_OK);
        expect_floats("optimize_layout", moved, p.y, p.n * components);
        device_free(moved);
        free_graph_copy(&copy);
        napier_umap_graph_destroy(host, graph);
        free_problem(&p);
    }
}

/* ---- What is bad ------------------------------------------------------------------------------------------------- */

static void check_bad_edge(const map_case *p, int64_t at, napier_umap_edge edge) {
    on_device d = copy_problem(p);
    napier_umap_edge *const edges = malloc((size_t)p->count * sizeof *edges);
    assert_non_null(edges);
    memcpy(edges, p->edges, (size_t)p->count * sizeof *edges);
    edges[at] = edge;
    device_write(d.edges, edges, (size_t)p->count * sizeof *edges);
    const size_t bytes = (size_t)(p->n * p->components) * sizeof(float), rows = (size_t)p->n * sizeof(int64_t);
    float *const g = device_new(bytes), *const s = device_new((size_t)(p->count * p->components) * sizeof(float));
    int64_t *const starts = device_new(rows), *const counts = device_new(rows);
    napier_cuda_umap_optimizer sgd = NAPIER_CUDA_UMAP_OPTIMIZER_INIT;
    sgd.options.method = NAPIER_UMAP_SGD;
    char text[64];
    snprintf(text, sizeof text, "edges: the edge at index %lld", (long long)at);
    napier_status status;
    CALL(status,
         napier_cuda_umap_gradients(cuda, NULL, &w, NULL, const_rows_of(d.y, p), d.edges, p->count, 1, rows_of(g, p)));
    expect_bad(status, text);
    expect_nans(g, p->n * p->components);
    CALL(status,
         napier_cuda_umap_edge_gradients(cuda, NULL, &w, NULL, const_rows_of(d.y, p), d.edges, p->count,
                                         napier_rows_f32(s, p->count, p->components), napier_rows_f32(NULL, 0, 0)));
    expect_bad(status, text);
    expect_nans(s + at * p->components, p->components);
    CALL(status, napier_cuda_umap_segments(cuda, NULL, &w, d.edges, p->count, p->n, starts, counts));
    expect_bad(status, text);
    CALL(status,
         napier_cuda_umap_optimize_epochs(cuda, NULL, &w, NULL, NULL, d.edges, p->count, NULL, &sgd, rows_of(d.y, p)));
    expect_bad(status, text);
    expect_nans(d.y, p->n * p->components);
    free(edges);
    device_free(g), device_free(s), device_free(starts), device_free(counts);
    free_copy(&d);
}

static void test_bad_edges(void **unused) {
    (void)unused;
    map_case p = make_problem(20, 2, 200, 0, 3);
    const napier_umap_edge *const e = &p.edges[77];
    check_bad_edge(&p, 77, (napier_umap_edge){e->source, 20, 0.5f});
    check_bad_edge(&p, 77, (napier_umap_edge){e->source, UINT32_MAX, 0.5f});
    check_bad_edge(&p, 199, (napier_umap_edge){20, 0, 0.5f});
    check_bad_edge(&p, 77, (napier_umap_edge){e->source, e->target, -0.5f});
    check_bad_edge(&p, 77, (napier_umap_edge){e->source, e->target, NAN});
    check_bad_edge(&p, 77, (napier_umap_edge){0, 0, 0.5f}); /* out of order */
    free_problem(&p);
}

static void test_bad_values(void **unused) {
    (void)unused;
    map_case p = make_problem(20, 3, 100, 0, 4);
    on_device d = copy_problem(&p);
    const int64_t points = p.n * p.components;
    float *const g = device_new((size_t)points * sizeof *g);
    napier_cuda_umap_optimizer sgd = NAPIER_CUDA_UMAP_OPTIMIZER_INIT;
    sgd.options.method = NAPIER_UMAP_SGD;
    napier_status status;
    const uint32_t beyond = 20;
    device_write(d.targets + 13, &beyond, sizeof beyond);
    CALL(status, napier_cuda_umap_negative_gradients(cuda, NULL, &w, NULL, const_rows_of(d.y, &p), d.targets, p.rate,
                                                     rows_of(g, &p)));
    expect_bad(status, "targets: the target at index 13 ");
    expect_nans(g, points);
    napier_umap_epochs epochs = NAPIER_UMAP_EPOCHS_INIT;
    epochs.rate_per = NAPIER_UMAP_RATE_PER_VERTEX;
    napier_umap_params params = NAPIER_UMAP_PARAMS_INIT;
    params.negative_sample_rate = 4;
    CALL(status, napier_cuda_umap_optimize_epochs(cuda, NULL, &w, &params, &epochs, d.edges, p.count, d.targets, &sgd,
                                                  rows_of(d.y, &p)));
    expect_bad(status, "targets: the target at index 13 ");
    expect_nans(d.y, points);
    CALL(status,
         napier_cuda_umap_gradients(cuda, NULL, &w, NULL, const_rows_of(d.y, &p), d.edges, p.count, 0, rows_of(g, &p)));
    expect_bad(status, "values: the element at index 0 ");
    expect_nans(g, points);
    CALL(status, napier_cuda_umap_apply(cuda, NULL, &w, 1.0f, const_rows_of(g, &p), rows_of(d.y, &p)));
    expect_bad(status, "values: the element at index 0 ");

    const int64_t starts[2] = {0, 99}, counts[2] = {5, 2};
    int64_t *const at = device_copy(starts, sizeof starts), *const so_many = device_copy(counts, sizeof counts);
    float *const rows = device_copy(p.y, (size_t)points * sizeof *rows);
    CALL(status, napier_cuda_umap_reduce_segments(cuda, NULL, &w, napier_const_rows_f32(rows, p.n, 3), at, so_many,
                                                  napier_rows_f32(g, 2, 3)));
    expect_bad(status, "offsets: the offset at index 1 ");
    expect_nans(g + 3, 3);
    device_free(g), device_free(at), device_free(so_many), device_free(rows);
    free_copy(&d);
    free_problem(&p);
}

static void check_bad_graph(const map_case *p, const napier_umap_graph *graph, napier_cuda_umap_graph *copy,
                            int64_t row) {
    const size_t bytes = (size_t)(p->n * p->components) * sizeof(float);
    float *const y = device_copy(p->y, bytes);
    napier_umap_options options = NAPIER_UMAP_OPTIONS_INIT;
    options.n_epochs = 2;
    char text[64];
    snprintf(text, sizeof text, "edges: the edge at index %lld ", (long long)row);
    napier_status status;
    CALL(status, napier_cuda_umap_optimize_layout(cuda, NULL, &w, copy, &options, rows_of(y, p)));
    expect_bad(status, text);
    expect_nans(y, p->n * p->components);
    device_free(y);
    free_graph_copy(copy);
    *copy = copy_graph(graph);
}

static void test_bad_graphs(void **unused) {
    (void)unused;
    map_case p = make_problem(20, 2, 150, 0, 1);
    napier_umap_graph *graph = graph_of(&p);
    napier_cuda_umap_graph copy = copy_graph(graph);
    const int64_t at = graph->starts[7], hostile[] = {-1, INT64_MIN, INT64_MAX, 1000};
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        device_write((void *)(uintptr_t)(copy.starts + 8), &hostile[i], sizeof *hostile);
        check_bad_graph(&p, graph, &copy, hostile[i] < 0 ? 7 : 7);
    }
    const uint32_t beyond = 20;
    device_write((void *)(uintptr_t)(copy.targets + at), &beyond, sizeof beyond);
    check_bad_graph(&p, graph, &copy, 7);
    const float none = 0.0f;
    device_write((void *)(uintptr_t)(copy.weights + at), &none, sizeof none);
    check_bad_graph(&p, graph, &copy, 7);
    copy.count -= 1; /* the last row goes past the end */
    check_bad_graph(&p, graph, &copy, graph->starts[19] < graph->starts[20] ? 19 : 18);
    free_graph_copy(&copy);
    napier_umap_graph_destroy(host, graph);
    free_problem(&p);
}

/* What the host can see. */
static void test_arguments(void **unused) {
    (void)unused;
    map_case p = make_problem(10, 2, 30, 0, 2);
    on_device d = copy_problem(&p);
    const napier_matrix y = rows_of(d.y, &p), other = {d.y, 10, 2, 2, 1, NAPIER_F16};
    const napier_const_matrix in = const_rows_of(d.y, &p);
    float *const g = device_new(20 * sizeof *g);
    napier_cuda_umap_optimizer sgd = NAPIER_CUDA_UMAP_OPTIMIZER_INIT;
    napier_cuda_workspace w = {NULL, 0};
    assert_int_equal(napier_cuda_umap_gradients(NULL, NULL, &w, NULL, in, d.edges, 30, 0, y), NAPIER_INVALID_ARGUMENT);
    expect_bad(napier_cuda_umap_gradients(cuda, NULL, &w, NULL, in, d.edges, 30, 0, y), "gradients: the same memory");
    expect_bad(napier_cuda_umap_gradients(cuda, NULL, &w, NULL, in, NULL, 30, 0, rows_of(g, &p)), "edges: NULL");
    expect_bad(napier_cuda_umap_gradients(cuda, NULL, &w, NULL, in, d.edges, 30, 0, other), "gradients: dtype f16");
    expect_bad(napier_cuda_umap_optimize_epochs(cuda, NULL, &w, NULL, NULL, d.edges, 30, NULL, NULL, y),
               "optimizer: NULL");
    expect_bad(napier_cuda_umap_optimize_epochs(cuda, NULL, &w, NULL, NULL, d.edges, 30, NULL, &sgd, y),
               "optimizer: first: NULL");
    expect_bad(napier_cuda_umap_optimize_epochs(cuda, NULL, &w, NULL, NULL, d.edges, 30, d.targets, &sgd, y),
               "targets: given");
    sgd.struct_size = 0;
    expect_bad(napier_cuda_umap_optimize_epochs(cuda, NULL, &w, NULL, NULL, d.edges, 30, NULL, &sgd, y),
               "optimizer: struct_size is 0");
    sgd.struct_size = sizeof sgd;
    sgd.options.struct_size -= 8;
    expect_bad(napier_cuda_umap_optimize_epochs(cuda, NULL, &w, NULL, NULL, d.edges, 30, NULL, &sgd, y),
               "optimizer: options: struct_size is");
    sgd.options.struct_size += 8;
    sgd.struct_size = offsetof(napier_cuda_umap_optimizer, second); /* an older struct, in which this was NULL */
    sgd.second = (float *)&sgd;
    expect_bad(napier_cuda_umap_optimize_epochs(cuda, NULL, &w, NULL, NULL, d.edges, 30, NULL, &sgd, y),
               "optimizer: first: NULL");
    sgd.first = g;
    expect_bad(napier_cuda_umap_optimize_epochs(cuda, NULL, &w, NULL, NULL, d.edges, 30, NULL, &sgd, y),
               "optimizer: second: NULL");
    sgd.options.method = NAPIER_UMAP_SGD;
    assert_int_equal(napier_cuda_umap_optimize_epochs(cuda, NULL, &w, NULL, NULL, d.edges, 30, NULL, &sgd, y),
                     NAPIER_OK);
    assert_true(w.size > 0);
    assert_int_equal(sgd.steps, 0);
    assert_true(sgd.struct_size < sizeof sgd && sgd.second == (float *)&sgd);
    w.data = device_new(w.size);
    w.size -= 1;
    expect_bad(napier_cuda_umap_optimize_epochs(cuda, NULL, &w, NULL, NULL, d.edges, 30, NULL, &sgd, y),
               "workspace: size");
    expect_floats("untouched", d.y, p.y, 20);
    expect_bad(napier_cuda_umap_optimize_layout(cuda, NULL, &w, NULL, NULL, y), "graph: NULL");
    expect_bad(napier_cuda_umap_negative_targets(cuda, NULL, NULL, 1, -1, 10, 2, d.targets), "epoch -1");
    device_free(w.data);
    device_free(g);
    free_copy(&d);
    free_problem(&p);
}

int main(void) {
    device_wanted();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_primitives), cmocka_unit_test(test_heavy),      cmocka_unit_test(test_many_vertices),
        cmocka_unit_test(test_draws),      cmocka_unit_test(test_epochs),     cmocka_unit_test(test_layout),
        cmocka_unit_test(test_bad_edges),  cmocka_unit_test(test_bad_values), cmocka_unit_test(test_bad_graphs),
        cmocka_unit_test(test_arguments),
    };
    if (napier_context_create(&host, NULL) || napier_cuda_context_create(&cuda, 0)) {
        return 1;
    }
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    napier_cuda_context_destroy(cuda);
    napier_context_destroy(host);
    return failed;
}
