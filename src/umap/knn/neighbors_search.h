/* umap/knn/neighbors_search.h - one search for neighbours, and the ways to do it.
 *
 *   neighbors.c           checks, chooses, hands the result out
 *   neighbors_exact.c     euclidean, exact: products bound the distances, boxes of a tree rule whole groups out
 *   neighbors_tree.c      the rows in order of that tree, in panels for the product
 *   neighbors_subspace.c  the few directions in which most of a distance shows
 *   neighbors_equal.c     equal rows beyond the first few are left out, for any metric
 *   neighbors_descent.c   any metric, approximate: neighbours of neighbours
 *   neighbors_plain.c     any metric, exact: all pairs; precomputed distances
 *
 * All measure with the same kernels on the same rows and order by (distance, index): where they find the same
 * neighbours, they give the same bits. */
#ifndef NAPIER_UMAP_KNN_NEIGHBORS_SEARCH_H
#define NAPIER_UMAP_KNN_NEIGHBORS_SEARCH_H

#include <stdbool.h>

#include "umap/metric/metric.h"
#include "umap/knn/neighbors_heap.h"

enum {
    NAPIER_MOST_FOR_DESCENT = 1000, /* neighbours */
    NAPIER_FEW_QUERIES = 64         /* are answered by going through all samples */
};

typedef struct napier_search {
    napier_context *context;
    const napier_neighbors_options *options;
    const napier_points *samples;
    const napier_points *queries; /* whose neighbours; samples itself: every row's among the others */
    int64_t wanted;               /* how many for each, a point not counting as its own; >= 1, fewer than samples */
    uint64_t *nearest;            /* [queries->n, wanted] heaps; the result */
    double told;                  /* progress before this search began: it is the rest of the way */
} napier_search;

static inline bool napier_search_is_self(const napier_search *s) { return s->queries == s->samples; }

/* The distance of query i from sample j. */
static inline float napier_search_distance(const napier_search *s, int64_t i, int64_t j) {
    const float distance = napier_points_distance(s->queries, i, s->samples, j);
    return distance > 0.0f ? distance : 0.0f;
}

/* The same of many samples, `which`: see napier_points_distances. */
static inline void napier_search_distances(const napier_search *s, int64_t i, const uint32_t *which, int64_t count,
                                           float *distances) {
    napier_points_distances(s->queries, i, s->samples, which, count, distances);
}

/* Pair `index` of round r > 0 of a tournament: *a, whose highest bit of r is 0, meets *a ^ r. In the rounds 1 to
 * teams - 1 (teams: a power of two), of teams / 2 pairs each, everybody meets everybody once, and in none twice. */
static inline void napier_tournament_pair(int64_t round, int64_t index, int64_t *a, int64_t *b) {
    int bit = 0;
    while (round >> (bit + 1) != 0) {
        bit++;
    }
    const int64_t below = index & (((int64_t)1 << bit) - 1);
    *a = (index - below) << 1 | below;
    *b = *a ^ round;
}

/* Reads the caller's options (NULL: defaults), whose n_neighbors is at least `least`. */
napier_status napier_search_read_options(napier_context *context, const napier_neighbors_options *options,
                                         int64_t least, napier_neighbors_options *o);
/* Outputs that are there, aligned and apart. */
napier_status napier_search_check_outputs(napier_context *context, const int32_t *indices, const float *distances,
                                          int64_t rows, int64_t n_neighbors);

/* Tells the caller how far we are: OK, or CANCELLED. */
napier_status napier_search_progress(const napier_search *s, double done);
napier_status napier_search_no_memory(const napier_search *s, const char *what);

typedef napier_status napier_search_way(const napier_search *s);

/* Dense rows: the way goes through those that can be anybody's neighbours; the others follow from them. */
napier_status napier_search_distinct(const napier_search *s, napier_search_way *way);
napier_status napier_search_full(const napier_search *s);    /* the exact way that fits the points */
napier_status napier_search_exact(const napier_search *s);   /* dense, kind not GENERAL */
napier_status napier_search_descent(const napier_search *s); /* self only */
napier_status napier_search_plain(const napier_search *s);
napier_status napier_search_stored(const napier_search *s); /* PRECOMPUTED */

#endif
