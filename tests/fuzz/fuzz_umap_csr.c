/* fuzz_umap_csr - CSR matrices whose row starts, columns and values are whatever the input says: INVALID_ARGUMENT with a text,
 * or a map of finite numbers on which each row finds a place. Only the last row start is right, because the arrays' size is
 * known by nothing else. */
#include <math.h>

#include <napier/umap.h>

#include "fuzz.h"

enum { ROWS = 12, ELEMENTS = 48 };

typedef struct csr {
    int64_t starts[ROWS + 1];
    int32_t *columns;
    float *values;
    napier_csr_matrix matrix;
} csr;

static void fill(csr *m, input *in) {
    static const float odd[] = {0.0f, -0.0f, 1e-40f, 3e38f, -1e20f, INFINITY, NAN, 1e-20f};
    const int64_t rows = take_below(in, ROWS + 1), cols = 1 + take_below(in, 12), count = take_below(in, ELEMENTS + 1);
    const unsigned damage = take(in);
    m->columns = fuzz_allocate((size_t)count * sizeof *m->columns); /* not a byte more than count says */
    m->values = fuzz_allocate((size_t)count * sizeof *m->values);
    for (int64_t i = 0; i <= rows; i++) {
        m->starts[i] = rows ? i * count / rows : 0;
    }
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t i = m->starts[row]; i < m->starts[row + 1]; i++) {
            m->columns[i] = (int32_t)(i - m->starts[row]);
            m->values[i] = (float)take_within(in, 6);
        }
    }
    if (damage & 1 && rows > 0) {
        m->starts[take_below(in, rows)] = (int64_t)take_bytes(in, 8);
    }
    if (damage & 2 && count > 0) {
        m->columns[take_below(in, count)] = (int32_t)take_bytes(in, 4);
    }
    if (damage & 4 && count > 0) {
        m->values[take_below(in, count)] = odd[take(in) % 8];
    }
    m->matrix = (napier_csr_matrix){rows, cols, m->starts, m->columns, m->values};
}

static bool taken(const napier_context *context, napier_status status) {
    return MADE(context, status, status == NAPIER_OK, NAPIER_INVALID_ARGUMENT);
}

/* A row is finite. Only where points may be without neighbours, by the metric or as given, it may be all NaN. */
static void check_places(napier_metric metric, const float *y, int64_t rows) {
    const bool alone = metric == NAPIER_METRIC_PRECOMPUTED || isfinite(napier_metric_disconnection(metric));
    for (int64_t i = 0; i < rows; i++) {
        const float a = y[2 * i], b = y[2 * i + 1];
        REQUIRE((isfinite(a) && isfinite(b)) || (alone && isnan(a) && isnan(b)), "row %lld is %g %g", (long long)i,
                (double)a, (double)b);
    }
}

FUZZ(in) {
    napier_context *const context = fuzz_context(NAPIER_ISA_AUTO, 1);
    napier_umap_options options = NAPIER_UMAP_OPTIONS_INIT;
    napier_umap_model *model = NULL;
    float placed[ROWS * 2];
    csr m;
    options.neighbors.metric = (napier_metric)take_below(&in, NAPIER_METRIC_STRING + 1);
    options.neighbors.method = (napier_neighbors_method)take_below(&in, 3);
    options.neighbors.n_neighbors = 2 + take_below(&in, 4);
    options.init = (napier_umap_init)take_below(&in, 3);
    options.n_epochs = 3;
    fill(&m, &in);
    const napier_umap_samples samples = {{0}, &m.matrix};
    if (taken(context, napier_umap_fit(context, samples, &options, &model))) {
        check_places(options.neighbors.metric, napier_umap_model_embedding(model).data, m.matrix.rows);
        if (options.neighbors.metric != NAPIER_METRIC_PRECOMPUTED &&
            taken(context, napier_umap_transform(context, model, samples, napier_rows_f32(placed, m.matrix.rows, 2)))) {
            check_places(options.neighbors.metric, placed, m.matrix.rows);
        }
    }
    napier_umap_model_destroy(context, model);
    free(m.columns);
    free(m.values);
}
