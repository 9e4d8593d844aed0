/* umap/layout/layout_kernels.h - the kernels of the layout, as each instruction set compiles them (layout.inc.h).
 *
 * Order of a vertex's sum. Its edges (or samples) are cut into pieces of NAPIER_PIECE_EDGES. In a piece, lane l of 16
 * adds elements l, l + 16, ... ascending; then the lanes are folded by halves. The sums of the pieces are added
 * ascending. Attraction by its own edges, attraction by edges that end in it, and repulsion are three such sums, added
 * in this order. */
#ifndef NAPIER_UMAP_LAYOUT_LAYOUT_KERNELS_H
#define NAPIER_UMAP_LAYOUT_LAYOUT_KERNELS_H

#include <stdbool.h>

#include "umap/options/force.h"

enum { NAPIER_PIECE_EDGES = 1024 };

/* Up to 16 pairs of one vertex with others, all attracting or all repelling. */
typedef struct napier_strip {
    uint32_t v;
    bool repels; /* pairs with samples; else with neighbours, which attract */
    int16_t count;
    float scale; /* multiplies the weights */
    const uint32_t *targets;
    const float *weights; /* NULL: all 1 */
    float *force;         /* [components] the sum ends and is added here; NULL: it continues in the next strip */
} napier_strip;

/* Strips of many vertices are processed together, step by step, because each step of one strip waits for the step
 * before. */
enum {
    NAPIER_MOST_STRIPS = 32,
    NAPIER_MOST_COMPONENTS = 256,
    NAPIER_STRIP_VECTORS = 128 /* strips times components in one call, unless it is a single strip */
};

/* Vertices of a map of two components, one after the other, each with at most one piece of edges and of samples. Their
 * pairs are packed: a vector holds pairs of several vertices. */
enum {
    NAPIER_GROUP_VERTICES = 8,
    NAPIER_GROUP_PAIRS = NAPIER_PIECE_EDGES /* edges of a group; and samples */
};

typedef struct napier_group {
    int64_t first, count;                      /* vertices */
    int64_t samples[NAPIER_GROUP_VERTICES];    /* a multiple of 16 */
    float weights[NAPIER_GROUP_VERTICES];      /* of each sample */
    uint32_t targets[NAPIER_GROUP_PAIRS + 32]; /* the samples, vertex after vertex */
} napier_group;

typedef struct napier_layout_kernels {
    /* Adds the attraction by the edges starts[v] .. starts[v + 1] - 1 of a group's vertices to forces [n, 2]. `scale`
     * multiplies the weights. */
    void (*group_attracts)(const napier_forces *f, const float *y, const napier_group *group, const int64_t *starts,
                           const uint32_t *targets, const float *weights, float scale, float *forces);
    /* Adds the repulsion by a group's samples. A sample that is the vertex itself has no force. */
    void (*group_repels)(const napier_forces *f, const float *y, const napier_group *group, float *forces);
    /* Forces of `count` strips <= NAPIER_MOST_STRIPS, count * components <= NAPIER_STRIP_VECTORS. sum:
     * [components, 16], the unfinished sum of the previous call's last strip; the call leaves its own there. */
    void (*strips)(const napier_forces *f, const float *y, int64_t components, const napier_strip *strips,
                   int64_t count, float *sum);
    /* Draws [begin, begin + count) of vertex v, below n: draw s is word (s / 16) % 2 of counter (s / 32) * 16 + s % 16.
     * begin is a multiple of 32; targets has space for count rounded up to 32. */
    void (*draw)(uint32_t key, uint32_t v, uint32_t n, int64_t begin, int64_t count, uint32_t *targets);
    /* Adds the sum of `count` rows [count, components], count <= NAPIER_PIECE_EDGES, to sum [components], in the order
     * above. */
    void (*add_rows)(const float *rows, int64_t count, int64_t components, float *sum);

    /* Elementwise over n floats. */
    void (*sgd)(float *y, const float *g, float rate, int64_t n);
    void (*momentum)(float *y, const float *g, float *velocity, float beta, float rate, int64_t n);
    /* correction1, 2: 1 - beta^t. */
    void (*adam)(float *y, const float *g, float *m, float *v, float beta1, float beta2, float eps, float correction1,
                 float correction2, float rate, int64_t n);
} napier_layout_kernels;

#endif
