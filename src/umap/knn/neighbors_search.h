/* umap/knn/neighbors_search.h - one search for neighbours, and its algorithms.
 *
 *   neighbors.c           checks, chooses the algorithm, writes the result
 *   neighbors_exact.c     euclidean, exact: matrix products bound distances, boxes of a tree exclude whole groups
 *   neighbors_tree.c      the rows in order of that tree, in panels for the product
 *   neighbors_subspace.c  the few directions that hold most of the variance
 *   neighbors_equal.c     any metric: leaves out equal rows beyond the first few
 *   neighbors_descent.c   any metric, approximate: neighbours of neighbours
 *   neighbors_plain.c     any metric, exact: all pairs; precomputed distances
 *   neighbors_search.c    progress and errors
 *
 * All use the same distance kernels on the same rows and order by (distance, index). So where they find the same
 * neighbours they give the same bits. */
#ifndef NAPIER_UMAP_KNN_NEIGHBORS_SEARCH_H
#define NAPIER_UMAP_KNN_NEIGHBORS_SEARCH_H

#include <stdbool.h>

#include "umap/metric/metric.h"
#include "umap/knn/neighbors_heap.h"

enum {
    NAPIER_MOST_FOR_DESCENT = 1000, /* neighbours */
    NAPIER_FEW_QUERIES = 64         /* so few queries are compared with all samples */
};

typedef struct napier_search {
    napier_context *context;
    const napier_neighbors_options *options;
    const napier_points *samples;
    const napier_points *queries; /* rows to find neighbours of; samples itself: a row is not its own */
    int64_t wanted;               /* neighbours for each, without the point itself; >= 1 */
    uint64_t *nearest;            /* [queries->n, wanted] heaps; the result */
    double told;                  /* progress reported before this search, which reports the rest */
} napier_search;

static inline bool napier_search_is_self(const napier_search *s) { return s->queries == s->samples; }

/* Pair `index` of round r > 0 of a round-robin tournament: *a and *b = *a ^ r, where *a has 0 at the highest bit of r.
 * For a power of two of teams, rounds 1 to teams - 1 hold every pair exactly once, and each team is in one pair a
 * round. So the pairs of a round can run in parallel. */
static inline void napier_tournament_pair(int64_t round, int64_t index, int64_t *a, int64_t *b) {
    int bit = 0;
    while (round >> (bit + 1) != 0) {
        bit++;
    }
    const int64_t below = index & (((int64_t)1 << bit) - 1);
    *a = (index - below) << 1 | below;
    *b = *a ^ round;
}

/* The neighbours of each query among the samples, as napier_nearest_neighbors_of; without queries those of the samples,
 * as napier_nearest_neighbors. Their shapes, the outputs and that n_neighbors is at most the number of samples have been
 * checked; the other options and the values are checked here. */
napier_status napier_find_neighbors(napier_context *context, napier_umap_samples samples,
                                    const napier_umap_samples *queries, const napier_neighbors_options *options,
                                    int32_t *indices, float *distances);

/* Reads the caller's options (NULL: defaults). n_neighbors must be at least `least`. */
napier_status napier_search_read_options(napier_context *context, const napier_neighbors_options *options,
                                         int64_t least, napier_neighbors_options *o);
/* Checks that outputs are not NULL, are aligned and do not overlap. */
napier_status napier_search_check_outputs(napier_context *context, const int32_t *indices, const float *distances,
                                          int64_t rows, int64_t n_neighbors);

/* Reports progress to the caller. Returns OK or CANCELLED. */
napier_status napier_search_progress(const napier_search *s, double done);
/* Fails with OUT_OF_MEMORY if memory for `what` is missing. */
napier_status napier_search_memory(const napier_search *s, bool missing, const char *what);

/* Fills the heaps of queries first .. last - 1 by measuring all samples. */
void napier_search_rows(const napier_search *s, int64_t first, int64_t last, uint64_t *heaps);

/* Reads ahead the first cache lines of a row. */
static inline void napier_search_fetch(const napier_points *points, int64_t row) {
    for (int64_t i = 0; points->rows && i < 64 && i < points->width; i += 16) {
        __builtin_prefetch(points->rows + row * points->width + i);
    }
}

typedef napier_status napier_search_way(const napier_search *s);

/* For dense rows: runs `way` on the rows that can be a neighbour of any row. The results of the other rows, which are
 * equal to some of these, follow from theirs. */
napier_status napier_search_distinct(const napier_search *s, napier_search_way *way);
napier_status napier_search_full(const napier_search *s); /* exact, with the algorithm that suits the points */
/* Dense, kind not GENERAL. most > 0, in a search of all samples for all: *cost becomes what the search would cost for
 * each point, in steps (neighbors_subspace.h); if that is more than `most`, there is no search. */
napier_status napier_search_exact(const napier_search *s, double most, double *cost);
/* Self only. exact: what an exact search would cost for each point; 0: unknown. */
napier_status napier_search_descent(const napier_search *s, double exact);
/* What a descent usually costs for each point, in the same steps. */
double napier_search_descent_steps(const napier_search *s);
napier_status napier_search_plain(const napier_search *s);
napier_status napier_search_stored(const napier_search *s); /* PRECOMPUTED */

#endif
