/* umap/layout/layout.h - the forces on all vertices. Every vertex sums its own forces in a fixed order from one
 * embedding, which no thread writes meanwhile.
 *
 *   force on v = attraction by its own edges + attraction by edges that end in it (pulls) + repulsion by samples
 *
 * Each of the three is computed in pieces of NAPIER_PIECE_EDGES, whose sums are added one after the other
 * (layout_kernels.h). A vertex with many pieces is cut into them, so that threads share its work. The bits are the
 * same. */
#ifndef NAPIER_UMAP_LAYOUT_LAYOUT_H
#define NAPIER_UMAP_LAYOUT_LAYOUT_H

#include <stdbool.h>

#include "core/base/context.h"
#include "umap/isa/umap_kernels.h"
#include "umap/graph/graph.h"
#include "umap/options/params.h"

/* A piece of a heavy vertex: one with many pieces. */
typedef struct napier_layout_piece {
    uint32_t v;
    bool pull; /* edges of `pulls`, else of `edges` */
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
    float scale;                    /* multiplies all weights */

    bool sampled;       /* use only the edges that act in this epoch, with weight `scale` */
    float highest;      /* the largest weight */
    uint32_t phase_key; /* key of the edges' phases */
    int64_t epoch;

    const uint32_t *given; /* samples [n, rate]; NULL: draw them */
    double rate;           /* samples per vertex, or per edge that acts (times its share if all act) */
    bool rate_per_edge;
    uint32_t draw_key; /* key of this epoch's draws */

    napier_layout_piece *pieces; /* pieces of heavy vertices, ascending by vertex, own edges first */
    int64_t piece_count;
    uint32_t *heavy; /* the heavy vertices */
    int64_t heavy_count;
    float *sums;   /* [piece_count, components] */
    float *wanted; /* [n] samples that the rate asks for, if all edges act and it counts per edge; else NULL */
} napier_layout;

/* Computes the last fields of a layout from the first ones; their arrays live in `memory`. May return OUT_OF_MEMORY. */
napier_status napier_layout_prepare(napier_memory *memory, napier_layout *layout);

/* Writes the forces [n, components]. */
void napier_layout_forces(const napier_layout *layout, float *forces);

#endif
