/* umap/layout/layout.h - the forces on all vertices at once: every vertex sums its own, in a fixed order, from one
 * embedding that nobody writes.
 *
 *   force on v = attraction by its own edges + attraction by edges that end in it (pulls) + repulsion by samples
 *
 * Each is taken in pieces of NAPIER_PIECE_EDGES, whose sums are added one after the other (layout_kernels.h). A vertex of many
 * pieces is cut into them, so that threads stay balanced; the bits are the same. */
#ifndef NAPIER_UMAP_LAYOUT_LAYOUT_H
#define NAPIER_UMAP_LAYOUT_LAYOUT_H

#include <stdbool.h>

#include "core/base/context.h"
#include "umap/isa/umap_kernels.h"
#include "umap/graph/graph.h"
#include "umap/options/params.h"

/* A piece of a heavy vertex. */
typedef struct napier_layout_piece {
    uint32_t v;
    bool pull; /* of `pulls`, else of `edges` */
    int64_t begin, count;
} napier_layout_piece;

typedef struct napier_layout {
    napier_context *context;
    const napier_umap_kernels *kernels;
    napier_forces forces;
    const float *y;
    int64_t n, components;
    const napier_umap_graph *edges; /* by source; NULL: no attraction */
    const napier_umap_graph *pulls; /* the same edges by target, or NULL */
    float scale;                    /* of all weights */

    bool sampled;       /* only the edges that act in this epoch, at weight `scale` */
    float highest;      /* the largest weight */
    uint32_t phase_key; /* of the edges' phases */
    int64_t epoch;

    const uint32_t *given; /* samples [n, rate]; NULL: drawn */
    double rate;           /* samples per vertex, or per edge that acts (its share, where all act) */
    bool rate_per_edge;
    uint32_t draw_key; /* of this epoch */

    napier_layout_piece *pieces; /* of heavy vertices, ascending by vertex, own edges first */
    int64_t piece_count;
    uint32_t *heavy; /* those vertices */
    int64_t heavy_count;
    float *sums;   /* [piece_count, components] */
    float *wanted; /* [n] samples that the rate asks for, where all edges act and it counts per edge; else NULL */
} napier_layout;

/* Fills the last part of a layout whose first is set, or fails for want of memory. */
napier_status napier_layout_prepare(napier_layout *layout);
void napier_layout_release(napier_layout *layout);

/* forces [n, components]; overwritten. */
void napier_layout_forces(const napier_layout *layout, float *forces);

/* Does an edge act in an epoch? In a share of weight / highest of all epochs, evenly spread. */
bool napier_layout_edge_acts(const napier_layout *layout, uint32_t source, uint32_t target, float weight);

#endif
