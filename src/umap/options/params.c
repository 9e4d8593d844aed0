/* umap/options/params.c - checks of parameters and embeddings. */
#include "umap/options/params.h"

#include <float.h>
#include <math.h>

#include "core/base/scope.h"
#include "core/base/struct_size.h"
#include "core/base/view.h"

/* Checks that a value is finite and above (or not below) a bound. */
static napier_status check_number(napier_context *context, const char *name, float value, float least, int may_equal) {
    const int fits = isfinite(value) && (value > least || (may_equal && value == least));
    NAPIER_REFUSE_IF(context, !fits, "params: %s %g is not a number %s %g", name, (double)value,
                     may_equal ? "of at least" : "above", (double)least);
    return NAPIER_OK;
}

napier_status napier_umap_check_params(napier_context *context, const napier_umap_params *params,
                                       napier_umap_params *checked, napier_forces *forces) {
    napier_umap_params read = NAPIER_UMAP_PARAMS_INIT; /* `checked` may be `params` */
    NAPIER_TRY(napier_read_options(context, "params", "NAPIER_UMAP_PARAMS_INIT", params, &read));
    *checked = read;
    const napier_umap_params *p = checked;
    NAPIER_TRY(check_number(context, "a", p->a, 0.0f, 0));
    NAPIER_TRY(check_number(context, "b", p->b, 0.0f, 0));
    NAPIER_TRY(check_number(context, "learning_rate", p->learning_rate, 0.0f, 0));
    NAPIER_TRY(check_number(context, "repulsion_strength", p->repulsion_strength, 0.0f, 1));
    NAPIER_TRY(check_number(context, "epsilon", p->epsilon, 0.0f, 0));
    NAPIER_TRY(check_number(context, "clip", p->clip, 0.0f, 1));
    NAPIER_TRY(check_number(context, "max_norm", p->max_norm, 0.0f, 1));
    NAPIER_REFUSE_IF(context, p->negative_sample_rate < 0 || p->negative_sample_rate > 1000,
                     "params: negative_sample_rate %ld is not 0 to 1000", (long)p->negative_sample_rate);
    *forces = (napier_forces){.a = p->a,
                              .b = p->b,
                              .attraction = -2.0f * p->a * p->b,
                              .repulsion = 2.0f * p->repulsion_strength * p->b,
                              .epsilon = p->epsilon,
                              .clip = p->clip > 0.0f ? p->clip : FLT_MAX,
                              .max_norm = p->max_norm};
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
    const napier_status status = check_shape(context, name, embedding);
    NAPIER_REFUSE_IF(context, !status && embedding.rows * embedding.cols >= (int64_t)1 << 31,
                     "%s: %lld x %lld are 2^31 elements or more", name, (long long)embedding.rows,
                     (long long)embedding.cols);
    return status;
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
    const int64_t elements = embedding.rows * embedding.cols;
    const float *y = embedding.data;
    for (int64_t i = 0; i < elements; i++) {
        NAPIER_REFUSE_IF(
            context,
            !isfinite(y[i]) &&
                !(may_lack_places && napier_umap_has_no_place(y + i / embedding.cols * embedding.cols, embedding.cols)),
            "%s: element (%lld, %lld) is %g", name, (long long)(i / embedding.cols), (long long)(i % embedding.cols),
            (double)y[i]);
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

napier_status napier_umap_check_apart_graph(napier_context *context, const char *name, napier_matrix out,
                                            const napier_umap_graph *graph) {
    const int64_t edges = graph->starts[graph->n];
    NAPIER_TRY(napier_umap_check_apart(context, name, out, "graph",
                                       napier_umap_array(graph->starts, graph->n + 1, NAPIER_F64)));
    NAPIER_TRY(
        napier_umap_check_apart(context, name, out, "graph", napier_umap_array(graph->targets, edges, NAPIER_F32)));
    return napier_umap_check_apart(context, name, out, "graph", napier_umap_array(graph->weights, edges, NAPIER_F32));
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
