/* umap/knn/neighbors_subspace.h - rows projected on few directions.
 *
 * With orthonormal directions U, a centred row x has coordinates z = U x and a rest of length r:
 *     |x - y|^2 >= |z_x - z_y|^2 + (r_x - r_y)^2,
 * where r = |x - U'z|. This bound needs size + 1 numbers. It is tight if the directions are the data's principal
 * components. Any directions give a valid bound, so a quick estimate from a sample is enough. */
#ifndef NAPIER_UMAP_KNN_NEIGHBORS_SUBSPACE_H
#define NAPIER_UMAP_KNN_NEIGHBORS_SUBSPACE_H

#include "umap/knn/neighbors_search.h"

typedef struct napier_subspace {
    const napier_umap_kernels *kernels;
    int64_t cols, width; /* columns of the rows, and their stride, a multiple of 16 */
    int64_t size;        /* directions; 0: the columns themselves are the coordinates */
    int64_t fine;        /* directions of a second, tighter bound for few pairs; 0: none */
    int64_t fine_width;  /* floats of a row for that bound: directions and the rest, a multiple of 16 */
    int64_t outline;     /* directions only for boxes, where the columns are the coordinates; or 0 */
    int64_t panels;      /* panels of NAPIER_PANEL computed directions */
    int64_t back_panels; /* panels of columns */
    float scale;         /* a power of two that brings the data near 1 */
    float *mean;         /* [width] */
    float *basis;        /* [panels][width][NAPIER_PANEL] directions as columns */
    float *back;         /* [back_panels][size or fine][NAPIER_PANEL] directions as rows */
} napier_subspace;

/* The number of coordinates of a point: one for each direction, and the rest. */
static inline int64_t napier_subspace_coordinates(const napier_subspace *u) {
    return u->size > 0 ? u->size + 1 : u->cols;
}

/* Fits a subspace to the samples of a search; its arrays live in `memory`. */
napier_status napier_subspace_create(napier_memory *memory, const napier_search *s, napier_subspace *u);

/* (row - mean) * scale: [width]. */
void napier_subspace_centre(const napier_subspace *u, const float *row, float *out);

/* The number of scratch floats that napier_subspace_panel needs. */
int64_t napier_subspace_scratch(const napier_subspace *u);

/* Computes the coordinates of at most NAPIER_PANEL rows, given as their indices in points->rows, as a panel
 * [coordinates][NAPIER_PANEL], and the halves and slacks for near_pairs and pruning. halves[j] is half the
 * squared length minus slacks[j], the bound of its rounding error. A row too large to be measured has
 * coordinates 0 and a slack that makes it near to all rows. Missing rows have halves +inf. fine is
 * [NAPIER_PANEL][fine_width], where u->fine is not 0: half the squared distance of two such rows, less both slacks, is
 * another such bound; and so is that of two columns of outline [outline][NAPIER_PANEL], where u->outline is not 0. */
void napier_subspace_panel(const napier_subspace *u, const napier_points *points, const uint32_t *rows, int count,
                           float *scratch, float *panel, float *fine, float *outline, float *halves, float *slacks);

/* The cost of a pair, in steps of a product (one fma of 16 lanes): its bound in a product of panels, the tighter bound,
 * its measured distance. The last mostly waits for its rows. */
double napier_subspace_bound_steps(const napier_subspace *u);
double napier_subspace_look_steps(const napier_subspace *u);
double napier_subspace_pair_steps(const napier_subspace *u);

/* Minus half the largest squared distance between coordinates of a pair whose metric distance is at most `distance`. */
float napier_subspace_limit(const napier_subspace *u, napier_points_kind kind, float distance);

#endif
