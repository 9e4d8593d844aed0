/* test_umap_primitives - the steps of an epoch one by one: segments of four edges, gradients against double precision, a
 * loss that falls for every optimizer, on sparse and dense graphs, and its edge cases. */
#include "unit/umap/umap_support.h"

static napier_context *context;

static void fill(float *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        y[i] = 3.0f * umap_float();
    }
}

/* Each vertex joined with `degree` random others. */
static int64_t make_edges(napier_umap_edge *edges, uint32_t n, uint32_t degree) {
    int64_t count = 0;
    for (uint32_t v = 0; v < n; v++) {
        for (uint32_t e = 0; e < degree; e++) {
            const uint32_t step = 1 + (uint32_t)(fabsf(umap_float()) * (float)(n - 2));
            edges[count++] = (napier_umap_edge){v, (v + step) % n, 0.1f + 0.9f * fabsf(umap_float())};
        }
    }
    must(napier_umap_sort_edges(context, edges, count));
    return count;
}

static void test_segments(void) {
    const struct {
        napier_umap_edge edges[4];
        int64_t count, n, starts[6], counts[6];
    } cases[] = {{{{0, 1, 1}, {0, 2, 1}, {1, 0, 1}, {2, 0, 1}}, 4, 3, {0, 2, 3}, {2, 1, 1}},
                 {{{1, 4, 1}, {4, 1, 1}}, 2, 6, {0, 0, 1, 1, 1, 2}, {0, 1, 0, 0, 1, 0}}}; /* some without edges */
    for (int i = 0; i < 2; i++) {
        int64_t starts[6], counts[6];
        must(napier_umap_segments(context, cases[i].edges, cases[i].count, cases[i].n, starts, counts));
        assert_memory_equal(starts, cases[i].starts, (size_t)cases[i].n * sizeof *starts);
        assert_memory_equal(counts, cases[i].counts, (size_t)cases[i].n * sizeof *counts);
    }
}

static void test_unsorted_edges(void) {
    const napier_umap_edge edges[] = {{1, 0, 1.0f}, {0, 1, 1.0f}};
    int64_t starts[2], counts[2];
    invalid(context, napier_umap_segments(context, edges, 2, 2, starts, counts), "edge 1", "not sorted");
}

/* ---- Gradients ----------------------------------------------------------------------------------------------------- */

/* The attraction of a vertex in double, clipped, by the formulas. */
static void reference_gradients(const float *y, int64_t n, int64_t components, const napier_umap_edge *edges,
                                int64_t count, int move_targets, double *gradients) {
    const double a = (double)1.57694346f, b = (double)0.895060879f;
    for (int64_t i = 0; i < n * components; i++) {
        gradients[i] = 0.0;
    }
    for (int64_t e = 0; e < count; e++) {
        const float *i = y + (int64_t)edges[e].source * components, *j = y + (int64_t)edges[e].target * components;
        double d2 = 0.0;
        for (int64_t d = 0; d < components; d++) {
            d2 += ((double)i[d] - (double)j[d]) * ((double)i[d] - (double)j[d]);
        }
        if (d2 == 0.0) {
            continue;
        }
        const double factor = -2.0 * a * b * pow(d2, b - 1.0) / (1.0 + a * pow(d2, b));
        for (int64_t d = 0; d < components; d++) {
            double f = factor * ((double)i[d] - (double)j[d]);
            f = f > 4.0 ? 4.0 : f < -4.0 ? -4.0 : f;
            gradients[(int64_t)edges[e].source * components + d] += f * (double)edges[e].weight;
            if (move_targets) {
                gradients[(int64_t)edges[e].target * components + d] -= f * (double)edges[e].weight;
            }
        }
    }
}

static void check_gradients(uint32_t n, uint32_t degree, int64_t components) {
    napier_umap_edge *edges = scratch(n * degree, sizeof *edges);
    const int64_t count = make_edges(edges, n, degree), elements = (int64_t)n * components;
    float *y = scratch(elements, sizeof *y), *fused = scratch(elements, sizeof *fused);
    float *stored = scratch(elements, sizeof *stored);
    float *source = scratch(count * components, sizeof *source);
    float *target = scratch(count * components, sizeof *target);
    double *wanted = scratch(elements, sizeof *wanted);
    int64_t *starts = scratch(n, sizeof *starts), *counts = scratch(n, sizeof *counts);
    fill(y, elements);
    const napier_const_matrix embedding = napier_const_rows_f32(y, n, components);
    for (int move = 0; move < 2; move++) {
        reference_gradients(y, n, components, edges, count, move, wanted);
        must(
            napier_umap_gradients(context, NULL, embedding, edges, count, move, napier_rows_f32(fused, n, components)));
        for (int64_t i = 0; i < elements; i++) {
            assert_true(fabs((double)fused[i] - wanted[i]) <= 1e-4 * (1.0 + fabs(wanted[i])));
        }
    }
    /* edge by edge, then reduced: the same bits as without storing them */
    must(napier_umap_gradients(context, NULL, embedding, edges, count, 0, napier_rows_f32(fused, n, components)));
    must(napier_umap_edge_gradients(context, NULL, embedding, edges, count, napier_rows_f32(source, count, components),
                                    napier_rows_f32(target, count, components)));
    for (int64_t i = 0; i < count * components; i++) {
        assert_true(source[i] == -target[i]);
    }
    must(napier_umap_segments(context, edges, count, n, starts, counts));
    must(napier_umap_reduce_segments(context, napier_const_rows_f32(source, count, components), starts, counts,
                                     napier_rows_f32(stored, n, components)));
    assert_memory_equal(fused, stored, (size_t)elements * sizeof *fused);
}

static void test_gradients(void) {
    check_gradients(50, 3, 2);
    check_gradients(300, 15, 15);
    check_gradients(40, 39, 2);   /* dense */
    check_gradients(20, 2500, 3); /* several edges a pair, more than a piece a vertex */
    check_gradients(100, 16, 1);
    check_gradients(60, 33, 50);
}

/* Vertices of any degree, side by side: the fused sums have the bits of the stored ones. */
static void test_any_degree(void) {
    enum { N = 400, DEGREES = 12 };
    static const int64_t degrees[DEGREES] = {0, 1, 15, 16, 17, 31, 33, 100, 1023, 1024, 1025, 0};
    napier_umap_edge *edges = scratch(N * 400, sizeof *edges);
    float *y = scratch(N * 2, sizeof *y), *fused = scratch(N * 2, sizeof *fused);
    float *stored = scratch(N * 2, sizeof *stored);
    int64_t *starts = scratch(N, sizeof *starts), *counts = scratch(N, sizeof *counts), count = 0;
    fill(y, N * 2);
    for (uint32_t v = 0; v < N; v++) {
        const int64_t degree = v % 3 == 0 ? degrees[v / 3 % DEGREES] : v % 23;
        for (int64_t e = 0; e < degree; e++) {
            const uint32_t target = (v + 1 + (uint32_t)e * 7) % N;
            edges[count++] = (napier_umap_edge){v, target, (float)(1 + (e + v) % 9) / 9.0f};
        }
    }
    float *source = scratch(count * 2, sizeof *source);
    must(napier_umap_sort_edges(context, edges, count));
    must(napier_umap_gradients(context, NULL, napier_const_rows_f32(y, N, 2), edges, count, 0,
                               napier_rows_f32(fused, N, 2)));
    must(napier_umap_edge_gradients(context, NULL, napier_const_rows_f32(y, N, 2), edges, count,
                                    napier_rows_f32(source, count, 2), napier_rows_f32(NULL, 0, 0)));
    must(napier_umap_segments(context, edges, count, N, starts, counts));
    must(napier_umap_reduce_segments(context, napier_const_rows_f32(source, count, 2), starts, counts,
                                     napier_rows_f32(stored, N, 2)));
    assert_memory_equal(fused, stored, N * 2 * sizeof *fused);
}

/* An epoch with samples that it draws itself has the bits of one with the same samples given. */
static void test_drawn_samples(void) {
    enum { N = 500, DEGREE = 7 };
    static const int32_t rates[] = {1, 5, 16, 17, 40, 1000};
    napier_umap_edge *edges = scratch(N * DEGREE, sizeof *edges);
    const int64_t count = make_edges(edges, N, DEGREE);
    float *start = scratch(N * 2, sizeof *start);
    float *y[2] = {scratch(N * 2, sizeof *start), scratch(N * 2, sizeof *start)};
    fill(start, N * 2);
    for (size_t r = 0; r < sizeof rates / sizeof *rates; r++) {
        napier_umap_params params = NAPIER_UMAP_PARAMS_INIT;
        uint32_t *targets = scratch((int64_t)N * rates[r], sizeof *targets);
        params.negative_sample_rate = rates[r];
        must(napier_umap_negative_targets(context, 42, 0, N, rates[r], targets));
        for (int given = 0; given < 2; given++) {
            napier_umap_epochs epochs = NAPIER_UMAP_EPOCHS_INIT;
            napier_umap_optimizer *optimizer = NULL;
            epochs.count = epochs.total = 1;
            epochs.seed = 42;
            epochs.rate_per = NAPIER_UMAP_RATE_PER_VERTEX;
            memcpy(y[given], start, N * 2 * sizeof *start);
            must(napier_umap_optimizer_create(context, NULL, N, 2, &optimizer));
            must(napier_umap_optimize_epochs(context, &params, &epochs, edges, count, given ? targets : NULL, optimizer,
                                             napier_rows_f32(y[given], N, 2)));
            napier_umap_optimizer_destroy(context, optimizer);
        }
        assert_memory_equal(y[0], y[1], N * 2 * sizeof(float));
    }
}

/* Forces are minus the slope of the loss (repulsion: the loss uses d^2 + epsilon in one place more). */
static void test_slope_of_the_loss(void) {
    enum { N = 12, COMPONENTS = 3, RATE = 4 };
    napier_umap_params params = NAPIER_UMAP_PARAMS_INIT;
    params.clip = 0.0f;
    params.epsilon = 1e-6f;
    napier_umap_edge edges[N * 3];
    const int64_t count = make_edges(edges, N, 3);
    uint32_t targets[N * RATE];
    for (int i = 0; i < N * RATE; i++) {
        targets[i] = (uint32_t)(i * 7 + 3) % N;
    }
    float y[N * COMPONENTS], attraction[N * COMPONENTS], repulsion[N * COMPONENTS];
    fill(y, N * COMPONENTS);
    const napier_const_matrix embedding = napier_const_rows_f32(y, N, COMPONENTS);
    must(napier_umap_gradients(context, &params, embedding, edges, count, 1,
                               napier_rows_f32(attraction, N, COMPONENTS)));
    must(napier_umap_negative_gradients(context, &params, embedding, targets, RATE,
                                        napier_rows_f32(repulsion, N, COMPONENTS)));
    for (int i = 0; i < N * COMPONENTS; i++) {
        const float h = 1.0f / 256.0f, kept = y[i];
        double loss[2], of_samples;
        for (int down = 0; down < 2; down++) {
            y[i] = down ? kept - h : kept + h;
            must(napier_umap_loss(context, &params, embedding, edges, count, NULL, 0, &loss[down]));
            must(napier_umap_loss(context, &params, embedding, NULL, 0, targets, RATE, &of_samples));
        }
        y[i] = kept;
        const double slope = (loss[0] - loss[1]) / (2.0 * (double)h);
        assert_true(fabs(slope + (double)attraction[i]) <= 2e-3 * (1.0 + fabs(slope)));
    }
    /* the repulsion of a sample moves the vertex only: the slope of its own terms */
    for (int v = 0; v < N; v++) {
        for (int d = 0; d < COMPONENTS; d++) {
            double sum = 0.0;
            for (int s = 0; s < RATE; s++) {
                const uint32_t j = targets[v * RATE + s];
                double d2 = 0.0;
                for (int c = 0; c < COMPONENTS; c++) {
                    const double gap = (double)y[v * COMPONENTS + c] - (double)y[(int)j * COMPONENTS + c];
                    d2 += gap * gap;
                }
                if (j != (uint32_t)v) {
                    const double curve = 1.0 + (double)params.a * pow(d2, (double)params.b);
                    sum += 2.0 * (double)params.b / ((1e-6 + d2) * curve) *
                           ((double)y[v * COMPONENTS + d] - (double)y[(int)j * COMPONENTS + d]);
                }
            }
            assert_true(fabs(sum - (double)repulsion[v * COMPONENTS + d]) <= 1e-4 * (1.0 + fabs(sum)));
        }
    }
}

/* ---- Epochs -------------------------------------------------------------------------------------------------------- */

static void check_loss_falls(uint32_t n, uint32_t degree, int64_t components, napier_umap_method method,
                             napier_umap_edge_use use) {
    napier_umap_edge *edges = scratch(n * degree, sizeof *edges);
    const int64_t count = make_edges(edges, n, degree);
    float *y = scratch(n * components, sizeof *y);
    fill(y, n * components);
    const napier_const_matrix embedding = napier_const_rows_f32(y, n, components);
    double before, after;
    napier_umap_epochs epochs = NAPIER_UMAP_EPOCHS_INIT;
    epochs.count = 10;
    epochs.total = 20;
    epochs.edge_use = use;
    napier_umap_params params = NAPIER_UMAP_PARAMS_INIT;
    params.learning_rate = method == NAPIER_UMAP_ADAM ? 0.3f : 0.05f;
    params.negative_sample_rate = 0;
    must(napier_umap_loss(context, NULL, embedding, edges, count, NULL, 0, &before));
    umap_run_epochs(context, method, &params, &epochs, edges, count, y, n, components);
    must(napier_umap_loss(context, NULL, embedding, edges, count, NULL, 0, &after));
    assert_true(after < before);
}

static void test_loss_falls(void) {
    for (int method = NAPIER_UMAP_SGD; method <= NAPIER_UMAP_ADAM; method++) {
        for (int use = NAPIER_UMAP_EDGES_WEIGHTED; use <= NAPIER_UMAP_EDGES_SAMPLED; use++) {
            check_loss_falls(200, 3, 2, (napier_umap_method)method, (napier_umap_edge_use)use);
            check_loss_falls(60, 40, 2, (napier_umap_method)method, (napier_umap_edge_use)use);
            check_loss_falls(100, 15, 15, (napier_umap_method)method, (napier_umap_edge_use)use);
        }
    }
}

/* ---- Its edge cases ------------------------------------------------------------------------------------------------ */

static void test_single_point(void) {
    const float y[2] = {1.0f, 2.0f};
    const napier_umap_edge edges[] = {{0, 0, 1.0f}};
    for (int count = 0; count < 2; count++) {
        float gradients[2] = {9.0f, 9.0f};
        must(napier_umap_gradients(context, NULL, napier_const_rows_f32(y, 1, 2), count ? edges : NULL, count, 1,
                                   napier_rows_f32(gradients, 1, 2)));
        assert_true(gradients[0] == 0.0f && gradients[1] == 0.0f);
    }
}

/* With the samples off, what happens to a component does not depend on the others. */
static void test_components(void) {
    enum { N = 40, ALONE = 20 };
    napier_umap_edge both[2 * N * 3];
    int64_t count = make_edges(both, ALONE, 3);
    const int64_t alone = count;
    for (int64_t e = 0; e < alone; e++) {
        const napier_umap_edge *edge = &both[e];
        both[count++] = (napier_umap_edge){edge->source + ALONE, (edge->target * 7) % ALONE + ALONE, edge->weight};
    }
    must(napier_umap_sort_edges(context, both, count));
    both[0].weight = 1.0f; /* the largest weight is the first component's own */
    float y[N * 2], first[ALONE * 2];
    fill(y, N * 2);
    memcpy(first, y, sizeof first);
    napier_umap_params params = NAPIER_UMAP_PARAMS_INIT;
    params.negative_sample_rate = 0;
    napier_umap_epochs epochs = NAPIER_UMAP_EPOCHS_INIT;
    epochs.count = epochs.total = 10;
    umap_run_epochs(context, NAPIER_UMAP_ADAM, &params, &epochs, both, count, y, N, 2);
    umap_run_epochs(context, NAPIER_UMAP_ADAM, &params, &epochs, both, alone, first, ALONE, 2);
    assert_memory_equal(y, first, sizeof first);
}

static void test_zero_weights(void) {
    enum { N = 50 };
    napier_umap_edge edges[N * 6], kept[N * 6];
    const int64_t count = make_edges(edges, N, 6);
    int64_t left = 0;
    for (int64_t e = 0; e < count; e++) {
        if (e % 3 == 1) {
            edges[e].weight = 0.0f;
        }
    }
    must(napier_umap_sort_edges(context, edges, count));
    for (int64_t e = 0; e < count; e++) {
        if (edges[e].weight > 0.0f) {
            kept[left++] = edges[e];
        }
    }
    for (int use = 0; use < 2; use++) {
        float y[2][N * 2];
        fill(y[0], N * 2);
        memcpy(y[1], y[0], sizeof y[0]);
        napier_umap_epochs epochs = NAPIER_UMAP_EPOCHS_INIT;
        epochs.count = epochs.total = 10;
        epochs.edge_use = (napier_umap_edge_use)use;
        umap_run_epochs(context, NAPIER_UMAP_ADAM, NULL, &epochs, edges, count, y[0], N, 2);
        umap_run_epochs(context, NAPIER_UMAP_ADAM, NULL, &epochs, kept, left, y[1], N, 2);
        assert_memory_equal(y[0], y[1], sizeof y[0]);
    }
}

/* All edges end in one vertex: large forces, but finite positions. */
static void test_star(void) {
    enum { N = 5000 };
    napier_umap_edge *edges = scratch(N, sizeof *edges);
    float *y = scratch(N * 2, sizeof *y);
    for (uint32_t v = 1; v < N; v++) {
        edges[v - 1] = (napier_umap_edge){v, 0, 1.0f};
    }
    for (int method = NAPIER_UMAP_SGD; method <= NAPIER_UMAP_ADAM; method++) {
        napier_umap_epochs epochs = NAPIER_UMAP_EPOCHS_INIT;
        epochs.count = epochs.total = 50;
        fill(y, N * 2);
        umap_run_epochs(context, (napier_umap_method)method, NULL, &epochs, edges, N - 1, y, N, 2);
        assert_int_equal(napier_first_not_finite(y, N * 2), -1);
    }
}

int main(void) {
    return RUN_UMAP_TESTS("umap primitives", TEST(test_segments), TEST(test_unsorted_edges), TEST(test_gradients),
                          TEST(test_any_degree), TEST(test_drawn_samples), TEST(test_slope_of_the_loss),
                          TEST(test_loss_falls), TEST(test_single_point), TEST(test_components),
                          TEST(test_zero_weights), TEST(test_star));
}
