/* umap/knn/neighbors_tree.h - points in the order of a k-d tree (Bentley, 1975), in panels of NAPIER_PANEL.
 *
 * A leaf is a panel. Node 1 is the root; the children of i are 2 i and 2 i + 1. A node of panels [begin, end) is cut at
 * begin + (end - begin) / 2, so the shape depends only on the number of panels. */
#ifndef NAPIER_UMAP_KNN_NEIGHBORS_TREE_H
#define NAPIER_UMAP_KNN_NEIGHBORS_TREE_H

#include "umap/knn/neighbors_subspace.h"

typedef struct napier_node {
    int64_t id, begin, end; /* panels */
} napier_node;

typedef struct napier_tree {
    int64_t n, panels, nodes; /* nodes: more than the largest id */
    int64_t coordinates, box; /* of a point, and how many of the first a box has: a multiple of 16, may be 0 */
    uint32_t *order;          /* [panels * NAPIER_PANEL] rows in the order of the tree */
    float *points;            /* [panels][coordinates][NAPIER_PANEL] */
    float *fine;              /* [panels * NAPIER_PANEL][fine_width] for the tighter bound; NULL: none */
    float *halves;            /* [panels * NAPIER_PANEL] for near_pairs; +inf for missing rows */
    float *slacks;            /* [nodes] the largest slack in a node */
    float *boxes;             /* [nodes][2][box] low, high */
} napier_tree;

static inline napier_node napier_tree_root(const napier_tree *tree) { return (napier_node){1, 0, tree->panels}; }
static inline bool napier_node_is_leaf(napier_node node) { return node.end - node.begin == 1; }
static inline napier_node napier_node_child(napier_node node, int right) {
    const int64_t middle = node.begin + (node.end - node.begin) / 2;
    return right ? (napier_node){2 * node.id + 1, middle, node.end} : (napier_node){2 * node.id, node.begin, middle};
}
/* Node `index` (0 .. 2^level - 1) of a level in which all nodes have panels. */
static inline napier_node napier_tree_node(const napier_tree *tree, int level, int64_t index) {
    napier_node node = napier_tree_root(tree);
    for (int bit = level - 1; bit >= 0; bit--) {
        node = napier_node_child(node, (int)(index >> bit & 1));
    }
    return node;
}

/* Makes a tree of points; its arrays live in `memory`. */
napier_status napier_tree_create(napier_memory *memory, const napier_search *s, const napier_points *points,
                                 const napier_subspace *u, napier_tree *tree);

/* Sorts rows in the order of a tree by the first `dims` of any coordinates [n][stride]. The lower half of keys[i] is
 * the row at position i. */
napier_status napier_tree_sort(const napier_search *s, const float *coordinates, int64_t n, int64_t stride,
                               int64_t dims, uint64_t *keys);

#endif
