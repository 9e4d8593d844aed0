/* umap/knn/neighbors_subspace.h - rows seen from few directions.
 *
 * With orthonormal directions U, a row x (its mean taken off) has coordinates z = U x and a rest of length r:
 *     |x - y|^2 >= |z_x - z_y|^2 + (r_x - r_y)^2,
 * where r = |x - U'z|: a bound from size + 1 numbers, close where the directions are the data's principal ones.
 * Any directions give a bound, so they are found quickly, from a sample. */
#ifndef NAPIER_UMAP_KNN_NEIGHBORS_SUBSPACE_H
#define NAPIER_UMAP_KNN_NEIGHBORS_SUBSPACE_H

#include "umap/knn/neighbors_search.h"

typedef struct napier_subspace {
    const napier_umap_kernels *kernels;
    int64_t cols, width; /* of the rows; width is the rows' stride, a multiple of 16 */
    int64_t size;        /* directions; 0: the columns themselves are the coordinates */
    int64_t fine;        /* directions of a second, closer look at few pairs; 0: there is none */
    int64_t fine_width;  /* floats of a row for it: its directions and the rest, a multiple of 16 */
    int64_t outline;     /* directions that only serve to draw boxes, where the columns are the coordinates; or 0 */
    int64_t panels;      /* of directions that are computed: NAPIER_PANEL in each */
    int64_t back_panels; /* of columns */
    float scale;         /* a power of two that brings the data near 1 */
    float *mean;         /* [width] */
    float *basis;        /* [panels][width][NAPIER_PANEL] directions as columns */
    float *back;         /* [back_panels][size or fine][NAPIER_PANEL] directions as rows */
} napier_subspace;

/* Coordinates of a point: its directions' and the rest. */
static inline int64_t napier_subspace_coordinates(const napier_subspace *u) {
    return u->size > 0 ? u->size + 1 : u->cols;
}

/* Fitted to the samples of a search. */
napier_status napier_subspace_create(const napier_search *s, napier_subspace **out);
void napier_subspace_destroy(napier_context *context, napier_subspace *u);

/* (row - mean) * scale: [width]. */
void napier_subspace_centre(const napier_subspace *u, const float *row, float *out);

/* Floats of scratch for the next: rows of `width`, of panels and of doubles. */
int64_t napier_subspace_scratch(const napier_subspace *u);

/* The coordinates of at most NAPIER_PANEL rows, given as their places in points->rows, as a panel
 * [coordinates][NAPIER_PANEL], and the halves and slacks that near_pairs and pruning want: halves[j] is half the
 * squared length less slacks[j], which is what rounding may have changed. A row too far out to be measured has
 * coordinates 0 and a slack that makes it near to all. Missing rows: halves +inf. fine: [NAPIER_PANEL][fine_width],
 * where u->fine is not 0: half the squared distance of two such rows, less both slacks, is another such bound; and so
 * is that of two columns of outline [outline][NAPIER_PANEL], where u->outline is not 0. */
void napier_subspace_panel(const napier_subspace *u, const napier_points *points, const uint32_t *rows, int count,
                           float *scratch, float *panel, float *fine, float *outline, float *halves, float *slacks);

/* Minus half the largest squared distance of coordinates that a pair no farther than `distance` (of the metric) can
 * have. */
float napier_subspace_limit(const napier_subspace *u, napier_points_kind kind, float distance);

#endif
