/* umap/knn/neighbors_search.c - progress and errors of a search, for all of its algorithms. */
#include "umap/knn/neighbors_search.h"

napier_status napier_search_progress(const napier_search *s, double done) {
    const napier_neighbors_options *o = s->options;
    const double all = done < 1.0 ? s->told + (1.0 - s->told) * done : 1.0;
    if (o->progress && o->progress("neighbours", all, o->user) != 0) {
        return napier_fail(s->context, NAPIER_CANCELLED, "neighbours: cancelled at %.0f %%", 100 * all);
    }
    return NAPIER_OK;
}

napier_status napier_search_memory(const napier_search *s, bool missing, const char *what) {
    return !missing
               ? NAPIER_OK
               : napier_fail(s->context, NAPIER_OUT_OF_MEMORY, "neighbours: no memory for the %s of %lld rows of %lld",
                             what, (long long)s->samples->n, (long long)s->samples->cols);
}
