/* umap/options/params.c - checks of parameters and embeddings. */
#include "umap/options/params.h"

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "core/base/scope.h"
#include "core/base/struct_size.h"
#include "core/base/view.h"

/* The parameters that are numbers above (or not below) 0. */
static const struct {
    const char *name;
    size_t at; /* in the struct */
    int may_be_0;
} numbers[] = {{"a", offsetof(napier_umap_params, a), 0},
               {"b", offsetof(napier_umap_params, b), 0},
               {"learning_rate", offsetof(napier_umap_params, learning_rate), 0},
               {"repulsion_strength", offsetof(napier_umap_params, repulsion_strength), 1},
               {"epsilon", offsetof(napier_umap_params, epsilon), 0},
               {"clip", offsetof(napier_umap_params, clip), 1},
               {"max_norm", offsetof(napier_umap_params, max_norm), 1}};

napier_status napier_umap_check_params(napier_context *context, const napier_umap_params *params,
                                       napier_umap_params *checked, napier_forces *forces) {
    napier_umap_params p = NAPIER_UMAP_PARAMS_INIT; /* `checked` may be `params` */
    NAPIER_TRY(napier_read_options(context, "params", NAPIER_STRUCT(napier_umap_params, NAPIER_UMAP_PARAMS_INIT, clip),
                                   params, &p));
    *checked = p;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        float x;
        memcpy(&x, (const char *)&p + numbers[i].at, sizeof x);
        NAPIER_REFUSE_IF(context, !isfinite(x) || !(x > 0.0f || (numbers[i].may_be_0 && x == 0.0f)),
                         "params: %s %g is not a number %s 0", numbers[i].name, (double)x,
                         numbers[i].may_be_0 ? "of at least" : "above");
    }
    NAPIER_REFUSE_IF(context, p.negative_sample_rate < 0 || p.negative_sample_rate > 1000,
                     "params: negative_sample_rate %ld is not 0 to 1000", (long)p.negative_sample_rate);
    *forces = (napier_forces){.a = p.a,
                              .b = p.b,
                              .attraction = -2.0f * p.a * p.b,
                              .repulsion = 2.0f * p.repulsion_strength * p.b,
                              .epsilon = p.epsilon,
                              .clip = p.clip > 0.0f ? p.clip : FLT_MAX,
                              .max_norm = p.max_norm};
    return NAPIER_OK;
}

static napier_status check_shape(napier_context *context, const char *name, napier_const_matrix m) {
    NAPIER_TRY(napier_check_matrix(context, name, m));
    NAPIER_REFUSE_IF(context, m.dtype != NAPIER_F32, "%s: dtype %s is not f32", name, napier_dtype_name(m.dtype));
    NAPIER_REFUSE_IF(context, m.cols < 1 || m.cols > NAPIER_UMAP_MOST_COMPONENTS, "%s: %lld components are not 1 to %d",
                     name, (long long)m.cols, NAPIER_UMAP_MOST_COMPONENTS);
    const int contiguous =
        m.rows == 0 || ((m.col_stride == 1 || m.cols == 1) && (m.row_stride == m.cols || m.rows == 1));
    NAPIER_REFUSE_IF(context, !contiguous, "%s: strides %lld, %lld are not %lld, 1 (contiguous rows)", name,
                     (long long)m.row_stride, (long long)m.col_stride, (long long)m.cols);
    return NAPIER_OK;
}

napier_status napier_umap_check_shape(napier_context *context, const char *name, napier_const_matrix embedding) {
    NAPIER_TRY(check_shape(context, name, embedding));
    NAPIER_REFUSE_IF(context, embedding.rows * embedding.cols >= (int64_t)1 << 31,
                     "%s: %lld x %lld are 2^31 elements or more", name, (long long)embedding.rows,
                     (long long)embedding.cols);
    return NAPIER_OK;
}

int napier_umap_has_no_place(const float *row, int64_t components) {
    int64_t c = 0;
    while (c < components && isnan(row[c])) {
        c++;
    }
    return components > 0 && c == components;
}

static napier_status check_elements(napier_context *context, const char *name, napier_const_matrix embedding,
                                    int may_lack_places) {
    NAPIER_TRY(napier_umap_check_shape(context, name, embedding));
    const float *y = embedding.data;
    for (int64_t i = 0; i < embedding.rows * embedding.cols; i++) {
        const int64_t row = i / embedding.cols;
        if (!isfinite(y[i]) &&
            !(may_lack_places && napier_umap_has_no_place(y + row * embedding.cols, embedding.cols))) {
            return napier_fail(context, NAPIER_INVALID_ARGUMENT, "%s: element (%lld, %lld) is %g", name, (long long)row,
                               (long long)(i % embedding.cols), (double)y[i]);
        }
    }
    return NAPIER_OK;
}

napier_status napier_umap_check_embedding(napier_context *context, const char *name, napier_const_matrix embedding) {
    return check_elements(context, name, embedding, 0);
}

napier_status napier_umap_check_places(napier_context *context, const char *name, napier_const_matrix embedding) {
    return check_elements(context, name, embedding, 1);
}

napier_status napier_umap_check_result(napier_context *context, const char *name, napier_matrix result, int64_t rows,
                                       int64_t components) {
    NAPIER_TRY(check_shape(context, name, napier_read_only(result)));
    NAPIER_REFUSE_IF(context, result.rows != rows || result.cols != components,
                     "%s: shape %lld x %lld is not %lld x %lld", name, (long long)result.rows, (long long)result.cols,
                     (long long)rows, (long long)components);
    return NAPIER_OK;
}

napier_status napier_umap_check_apart(napier_context *context, const char *name, napier_matrix out, const char *in_name,
                                      napier_const_matrix in) {
    NAPIER_REFUSE_IF(context, out.data == in.data && out.data && in.rows > 0 && in.cols > 0 && out.rows > 0,
                     "%s: the same memory as %s", name, in_name);
    return napier_check_alias(context, name, out, in_name, in);
}

napier_const_matrix napier_umap_array(const void *data, int64_t count, napier_dtype dtype) {
    return napier_const_rows(data, 1, data ? count : 0, dtype);
}

napier_status napier_umap_check_apart_rows(napier_context *context, const char *name, napier_matrix out,
                                           const char *in_name, const int64_t *starts, int64_t n, const void *columns,
                                           const float *values) {
    const int64_t count = starts[n];
    const napier_const_matrix arrays[] = {napier_umap_array(starts, n + 1, NAPIER_F64),
                                          napier_umap_array(columns, count, NAPIER_F32),
                                          napier_umap_array(values, count, NAPIER_F32)};
    for (int i = 0; i < 3; i++) {
        NAPIER_TRY(napier_umap_check_apart(context, name, out, in_name, arrays[i]));
    }
    return NAPIER_OK;
}

napier_status napier_umap_check_apart_graph(napier_context *context, const char *name, napier_matrix out,
                                            const napier_umap_graph *graph) {
    return napier_umap_check_apart_rows(context, name, out, "graph", graph->starts, graph->n, graph->targets,
                                        graph->weights);
}

napier_status napier_umap_check_found(napier_context *context, const char *name, const int32_t *indices,
                                      const float *distances, int64_t n, int64_t k) {
    for (int64_t i = 0; i < n * k; i++) {
        NAPIER_REFUSE_IF(context, indices[i] >= 0 && isinf(distances[i]),
                         "%s: the distance of row %lld from row %ld is more than f32 holds; divide the data by a "
                         "power of two",
                         name, (long long)(i / k), (long)indices[i]);
    }
    return NAPIER_OK;
}

napier_status napier_umap_check_targets(napier_context *context, const uint32_t *targets, int64_t rate, int64_t n) {
    NAPIER_REFUSE_IF(context, rate < 0 || rate > 1000 || (n > 0 && rate > 0 && !targets),
                     "targets: %s, rate %lld (0 to 1000)", targets ? "given" : "NULL", (long long)rate);
    for (int64_t i = 0; i < n * rate; i++) {
        NAPIER_REFUSE_IF(context, targets[i] >= n, "targets: target %lld of vertex %lld is %lu, of %lld vertices",
                         (long long)(i % rate), (long long)(i / rate), (unsigned long)targets[i], (long long)n);
    }
    return NAPIER_OK;
}

napier_status napier_umap_check_draws(napier_context *context, int64_t epoch, int64_t n, int64_t rate,
                                      const uint32_t *targets) {
    NAPIER_REFUSE_IF(
        context, n < 0 || n >= (int64_t)1 << 31 || rate < 0 || rate > 1000 || epoch < 0 || epoch >= (int64_t)1 << 31,
        "n %lld, rate %lld, epoch %lld: not below 2^31, at most 1000, below 2^31", (long long)n, (long long)rate,
        (long long)epoch);
    NAPIER_REFUSE_IF(context, n > 0 && rate > 0 && !targets, "targets: NULL");
    return NAPIER_OK;
}
