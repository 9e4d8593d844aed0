/* unit/umap/umap_support.h - what the umap tests share: random data, the same every time. */
#ifndef NAPIER_TESTS_UMAP_SUPPORT_H
#define NAPIER_TESTS_UMAP_SUPPORT_H

#include "support/check.h"
#include "umap/metric/metric.h"
#include "umap/metric/samples.h"

#include <math.h>
#include <napier/umap.h>
#include <stdlib.h>
#include <string.h>

static inline double umap_unit(uint64_t *state) {
    *state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

/* About normal: the sum of twelve. */
static inline double umap_normal(uint64_t *state) {
    double sum = -6.0;
    for (int i = 0; i < 12; i++) {
        sum += umap_unit(state);
    }
    return sum;
}

/* -1 to 1, from one sequence for the whole program. */
static inline float umap_float(void) {
    static uint64_t state = 88172645463325252u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (float)((int32_t)(state >> 40) - 8388608) / 8388608.0f;
}

/* A call that must succeed, or the test ends. */
#define must(call_)                                                 \
    do {                                                            \
        if (call_) {                                                \
            fail_msg("%s: %s", #call_, napier_last_error(context)); \
        }                                                           \
    } while (0)

/* Tests that share `context` use these. */
static inline int umap_run_tests(napier_context **context, const char *group, const named_test *tests, size_t count) {
    *context = context_of(NAPIER_ISA_AUTO, 0);
    const int failed = run_named_tests(group, tests, count);
    napier_context_destroy(*context);
    return failed;
}
#define RUN_UMAP_TESTS(group_, ...)                                     \
    umap_run_tests(&context, group_, (const named_test[]){__VA_ARGS__}, \
                   sizeof((const named_test[]){__VA_ARGS__}) / sizeof(named_test))

/* Rows of n points. */
static inline napier_umap_samples samples_of(const float *x, int64_t n, int64_t cols) {
    return (napier_umap_samples){napier_const_rows_f32(x, n, cols), NULL};
}

/* Makes the same rows as CSR, in scratch memory, that a test may damage. Without zeros, or with every seventh of them. */
typedef struct umap_csr {
    napier_csr_matrix matrix;
    int64_t *starts;
    int32_t *columns;
    float *values;
} umap_csr;

static inline umap_csr *csr_of(const float *x, int64_t rows, int64_t cols, bool some_zeros) {
    umap_csr *const m = scratch(1, sizeof *m);
    m->starts = scratch(rows + 1, sizeof *m->starts);
    m->columns = scratch(rows * cols, sizeof *m->columns);
    m->values = scratch(rows * cols, sizeof *m->values);
    int64_t count = 0;
    for (int64_t i = 0; i < rows; i++) {
        m->starts[i] = count;
        for (int64_t c = 0; c < cols; c++) {
            if (x[i * cols + c] != 0.0f || (some_zeros && (c + i) % 7 == 0)) {
                m->columns[count] = (int32_t)c;
                m->values[count++] = x[i * cols + c];
            }
        }
    }
    m->starts[rows] = count;
    m->matrix = (napier_csr_matrix){rows, cols, m->starts, m->columns, m->values};
    return m;
}

static inline napier_umap_samples sparse_of(const umap_csr *m) { return (napier_umap_samples){{0}, &m->matrix}; }

/* Writes a result of `bytes` bytes to `out`. */
typedef napier_status umap_work(napier_context *context, const void *argument, void *out);

/* Does the work with every instruction set and 1, 2 and 7 threads; the bits of the result must be the same. */
static inline void same_bits(const char *what, umap_work *work, const void *argument, size_t bytes) {
    static const int threads[] = {1, 2, 7};
    const int64_t mark = scratch_mark();
    char *const first = scratch((int64_t)bytes, 1), *const again = scratch((int64_t)bytes, 1);
    napier_isa isas[ISA_LIMIT];
    const int count = available_isas(isas);
    for (int turn = 0; turn < 3 * count; turn++) {
        napier_context *context = context_of(isas[turn / 3], threads[turn % 3]);
        char *const out = turn == 0 ? first : again;
        memset(out, 0, bytes);
        succeeded(context, work(context, argument, out), what);
        expect(memcmp(first, out, bytes) == 0, "%s: other bits on %s with %d threads", what,
               napier_isa_name(isas[turn / 3]), threads[turn % 3]);
        napier_context_destroy(context);
    }
    scratch_release(mark);
}

static inline napier_umap_model *umap_fitted(napier_context *context, napier_umap_samples samples,
                                             const napier_umap_options *options) {
    napier_umap_model *model = NULL;
    must(napier_umap_fit(context, samples, options, &model));
    assert_int_equal(napier_umap_model_embedding(model).rows, napier_samples_rows(samples));
    return model;
}

/* A fit, as such work: the map. */
typedef struct umap_fit_job {
    napier_umap_samples samples;
    const napier_umap_options *options;
} umap_fit_job;

static inline napier_status umap_fit_work(napier_context *context, const void *argument, void *out) {
    const umap_fit_job *const job = argument;
    napier_umap_model *model = umap_fitted(context, job->samples, job->options);
    const napier_const_matrix y = napier_umap_model_embedding(model);
    memcpy(out, y.data, (size_t)(y.rows * y.cols) * sizeof(float));
    napier_umap_model_destroy(context, model);
    return NAPIER_OK;
}

/* Runs epochs on an embedding [n, components] with an optimizer of its own. */
static inline void umap_run_epochs(napier_context *context, napier_umap_method method, const napier_umap_params *params,
                                   const napier_umap_epochs *epochs, const napier_umap_edge *edges, int64_t count,
                                   float *y, int64_t n, int64_t components) {
    napier_umap_optimizer_options options = NAPIER_UMAP_OPTIMIZER_OPTIONS_INIT;
    napier_umap_optimizer *optimizer = NULL;
    options.method = method;
    must(napier_umap_optimizer_create(context, &options, n, components, &optimizer));
    must(napier_umap_optimize_epochs(context, params, epochs, edges, count, NULL, optimizer,
                                     napier_rows_f32(y, n, components)));
    napier_umap_optimizer_destroy(context, optimizer);
}

/* Points of samples that may be wrong. */
static inline napier_status make_points(napier_memory *memory, const char *name, napier_umap_samples samples,
                                        const napier_neighbors_options *options, const napier_points *like,
                                        napier_points **out) {
    NAPIER_TRY(napier_samples_check(memory->context, name, samples));
    return napier_points_create(memory, name, samples, options, like, out);
}

#endif
