/* umap/knn/neighbors_search.c - shared by all searches: progress, errors, checks of arguments. */
#include "umap/knn/neighbors_search.h"

#include <math.h>

#include "core/base/scope.h"
#include "core/base/struct_size.h"

napier_status napier_search_progress(const napier_search *s, double done) {
    const napier_neighbors_options *o = s->options;
    const double all = done < 1.0 ? s->told + (1.0 - s->told) * done : 1.0;
    if (o->progress && o->progress("neighbours", all, o->user) != 0) {
        return napier_fail(s->context, NAPIER_CANCELLED, "neighbours: cancelled at %.0f %%", 100 * all);
    }
    return NAPIER_OK;
}

napier_status napier_search_no_memory(const napier_search *s, const char *what) {
    return napier_fail(s->context, NAPIER_OUT_OF_MEMORY, "neighbours: no memory for the %s of %lld rows of %lld", what,
                       (long long)s->samples->n, (long long)s->samples->cols);
}

napier_status napier_search_read_options(napier_context *context, const napier_neighbors_options *options,
                                         int64_t least, napier_neighbors_options *o) {
    *o = (napier_neighbors_options)NAPIER_NEIGHBORS_OPTIONS_INIT;
    NAPIER_TRY(napier_read_options(context, "options", "NAPIER_NEIGHBORS_OPTIONS_INIT", options, o));
    NAPIER_REFUSE_IF(context, o->n_neighbors < least, "options: n_neighbors %lld is less than %lld",
                     (long long)o->n_neighbors, (long long)least);
    NAPIER_REFUSE_IF(context, !napier_metric_name(o->metric), "options: metric %d is none", (int)o->metric);
    NAPIER_REFUSE_IF(context, (int)o->method < NAPIER_NEIGHBORS_AUTO || (int)o->method > NAPIER_NEIGHBORS_NN_DESCENT,
                     "options: method %d is none", (int)o->method);
    return NAPIER_OK;
}

static bool overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes) {
    const uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return x < y ? y - x < a_bytes : x - y < b_bytes;
}

/* Checks that the outputs are not NULL, are aligned and do not overlap. */
napier_status napier_search_check_outputs(napier_context *context, const int32_t *indices, const float *distances,
                                          int64_t rows, int64_t n_neighbors) {
    if (rows == 0) {
        return NAPIER_OK;
    }
    NAPIER_REFUSE_IF(context, !indices || !distances, "%s: NULL", indices ? "distances" : "indices");
    NAPIER_REFUSE_IF(context,
                     (uintptr_t)indices % sizeof *indices != 0 || (uintptr_t)distances % sizeof *distances != 0,
                     "%s: not aligned to 4 bytes", (uintptr_t)indices % sizeof *indices != 0 ? "indices" : "distances");
    const size_t bytes = (size_t)rows * (size_t)n_neighbors * sizeof *indices;
    NAPIER_REFUSE_IF(context, overlap(indices, bytes, distances, bytes), "distances: overlaps indices");
    return NAPIER_OK;
}
