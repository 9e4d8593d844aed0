/* umap/knn/neighbors_tree.c - sorting points into a tree, level by level, and packing them.
 *
 * A node's rows are cut at the median of the coordinate that varies most among a few of them. This puts near points
 * into the same panel or adjacent ones. A search that starts there soon has small limits. */
#include "umap/knn/neighbors_tree.h"

#include <math.h>
#include <string.h>

#include "core/base/parallel.h"

enum {
    LOOKED_AT = 128,      /* rows of a node whose variances choose the coordinate to cut */
    BOX_COORDINATES = 32, /* of a subspace; all columns if they are few: */
    BOX_COLUMNS = 64,
    PROJECTED_ROWS = NAPIER_PANEL
};

/* ---- Order ------------------------------------------------------------------------------------------------------- */

/* The rows while they are sorted. A key has the bits of the coordinate by which the node is cut, made to compare like
 * its value, above the row's index. */
typedef struct sorting {
    const float *coordinates; /* [n][stride], of which `dims` */
    int64_t n, stride, dims;
    int level;
    uint64_t *keys; /* [n] */
    double *sums;   /* per worker: 2 * dims */
} sorting;

static uint32_t ordered_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

static void swap_keys(uint64_t *a, uint64_t *b) {
    const uint64_t kept = *a;
    *a = *b;
    *b = kept;
}

static uint64_t middle_of(uint64_t a, uint64_t b, uint64_t c) {
    return a < b ? (b < c ? b : a < c ? c : a) : (a < c ? a : b < c ? c : b);
}

/* Puts the `count` smallest keys first (Hoare's selection; keys are distinct). Pivots are random, so that no order of
 * the input is slow. */
static void select_keys(uint64_t *keys, int64_t n, int64_t count) {
    int64_t low = 0, high = n - 1;
    uint64_t draw = 0x9e3779b97f4a7c15u;
    while (low < high) {
        uint64_t at[3];
        for (int i = 0; i < 3; i++) {
            draw = draw * 6364136223846793005u + 1442695040888963407u;
            at[i] = keys[low + (int64_t)((draw >> 33) % (uint64_t)(high - low + 1))];
        }
        const uint64_t pivot = middle_of(at[0], at[1], at[2]);
        int64_t i = low, j = high;
        while (i <= j) {
            while (keys[i] < pivot) {
                i++;
            }
            while (keys[j] > pivot) {
                j--;
            }
            if (i <= j) {
                swap_keys(&keys[i++], &keys[j--]);
            }
        }
        if (count <= j) {
            high = j;
        } else if (count >= i) {
            low = i;
        } else {
            return;
        }
    }
}

/* The coordinate of the largest variance among some of the rows. */
static int64_t widest_coordinate(const sorting *t, const uint64_t *keys, int64_t n, double *sums) {
    const int64_t looked = n < LOOKED_AT ? n : LOOKED_AT;
    double *squares = sums + t->dims;
    memset(sums, 0, (size_t)(2 * t->dims) * sizeof *sums);
    const float *origin = t->coordinates + (int64_t)(uint32_t)keys[0] * t->stride;
    for (int64_t r = 0; r < looked; r++) {
        const float *row = t->coordinates + (int64_t)(uint32_t)keys[r * n / looked] * t->stride;
        for (int64_t i = 0; i < t->dims; i++) {
            const double x = (double)row[i] - (double)origin[i];
            sums[i] += x;
            squares[i] += x * x;
        }
    }
    int64_t widest = 0;
    double most = -1;
    for (int64_t i = 0; i < t->dims; i++) {
        const double variance = squares[i] - sums[i] * sums[i] / (double)looked;
        if (variance > most) {
            most = variance;
            widest = i;
        }
    }
    return widest;
}

static int64_t panels_of(int64_t n) { return (n + NAPIER_PANEL - 1) / NAPIER_PANEL; }

static int depth_of(int64_t panels) {
    int depth = 0;
    while ((int64_t)1 << depth < panels) {
        depth++;
    }
    return depth;
}

/* Cuts nodes begin .. end - 1 of a level. */
static void cut_task(void *argument, int worker, int64_t begin, int64_t end) {
    const sorting *t = argument;
    for (int64_t index = begin; index < end; index++) {
        napier_node node = {1, 0, panels_of(t->n)};
        for (int bit = t->level - 1; bit >= 0 && !napier_node_is_leaf(node); bit--) {
            node = napier_node_child(node, (int)(index >> bit & 1));
        }
        if (napier_node_is_leaf(node) || node.id >> t->level != 1) { /* a leaf of an earlier level */
            continue;
        }
        const int64_t first = node.begin * NAPIER_PANEL, last = napier_least(node.end * NAPIER_PANEL, t->n);
        uint64_t *keys = t->keys + first;
        const int64_t i = widest_coordinate(t, keys, last - first, t->sums + (int64_t)worker * 2 * t->dims);
        for (int64_t r = 0; r < last - first; r++) {
            const uint32_t row = (uint32_t)keys[r];
            keys[r] = (uint64_t)ordered_bits(t->coordinates[(int64_t)row * t->stride + i]) << 32 | row;
        }
        select_keys(keys, last - first, napier_node_child(node, 1).begin * NAPIER_PANEL - first);
    }
}

napier_status napier_tree_sort(const napier_search *s, const float *coordinates, int64_t n, int64_t stride,
                               int64_t dims, uint64_t *keys) {
    const int depth = depth_of(panels_of(n));
    const int workers = napier_workers(s->context, (int64_t)1 << depth, 1);
    sorting t = {coordinates, n, stride, dims, 0, keys, NULL};
    NAPIER_MEMORY(memory, s->context);
    t.sums = napier_take(&memory, workers, (size_t)(2 * dims) * sizeof *t.sums);
    NAPIER_TRY(napier_search_memory(s, memory.missing, "order"));
    for (int64_t i = 0; i < n; i++) {
        keys[i] = (uint64_t)i;
    }
    for (t.level = 0; t.level < depth; t.level++) {
        napier_parallel(s->context, (int64_t)1 << t.level, 1, cut_task, &t);
    }
    return NAPIER_OK;
}

/* Only the first panel of directions is used for sorting. */
typedef struct projecting {
    const napier_subspace *u;
    const napier_points *points;
    float *scratch; /* per worker: PROJECTED_ROWS rows */
    float *out;     /* [n][NAPIER_PANEL] */
} projecting;

static void project_task(void *argument, int worker, int64_t begin, int64_t end) {
    const projecting *t = argument;
    const int64_t width = t->u->width;
    float *centred = t->scratch + (int64_t)worker * PROJECTED_ROWS * width;
    for (int64_t first = begin; first < end; first += PROJECTED_ROWS) {
        const int64_t rows = napier_least(end - first, PROJECTED_ROWS);
        for (int64_t r = 0; r < rows; r++) {
            napier_subspace_centre(t->u, t->points->rows + (first + r) * width, centred + r * width);
        }
        t->u->kernels->linear->product(centred, width, rows, t->u->basis, width, t->out + first * NAPIER_PANEL,
                                       NAPIER_PANEL);
    }
}

static napier_status project_rows(const napier_search *s, const napier_points *points, const napier_subspace *u,
                                  float *out) {
    const int workers = napier_workers(s->context, points->n, PROJECTED_ROWS);
    projecting t = {u, points, NULL, out};
    NAPIER_MEMORY(memory, s->context);
    t.scratch = napier_take(&memory, workers, (size_t)(PROJECTED_ROWS * u->width) * sizeof(float));
    NAPIER_TRY(napier_search_memory(s, memory.missing, "coordinates"));
    napier_parallel(s->context, points->n, PROJECTED_ROWS, project_task, &t);
    return NAPIER_OK;
}

static napier_status order_rows(const napier_search *s, const napier_points *points, const napier_subspace *u,
                                napier_tree *tree) {
    NAPIER_MEMORY(memory, s->context);
    float *projected = u->basis ? napier_take(&memory, tree->n, NAPIER_PANEL * sizeof(float)) : NULL;
    uint64_t *keys = napier_take(&memory, tree->n, sizeof *keys);
    NAPIER_TRY(napier_search_memory(s, memory.missing, "order"));
    if (projected) {
        NAPIER_TRY(project_rows(s, points, u, projected));
        NAPIER_TRY(napier_tree_sort(s, projected, tree->n, NAPIER_PANEL, NAPIER_PANEL, keys));
    } else {
        NAPIER_TRY(napier_tree_sort(s, points->rows, tree->n, points->width, points->cols, keys));
    }
    for (int64_t i = 0; i < tree->n; i++) {
        tree->order[i] = (uint32_t)keys[i];
    }
    return NAPIER_OK;
}

/* ---- Panels and boxes -------------------------------------------------------------------------------------------- */

typedef struct packing {
    const napier_subspace *u;
    const napier_points *points;
    napier_tree *tree;
    float *scratch; /* per worker */
} packing;

/* The id of the leaf of a panel, found from the root down. */
static int64_t leaf_of(const napier_tree *tree, int64_t panel) {
    napier_node node = napier_tree_root(tree);
    while (!napier_node_is_leaf(node)) {
        const napier_node right = napier_node_child(node, 1);
        node = panel >= right.begin ? right : napier_node_child(node, 0);
    }
    return node.id;
}

static void box_of_panel(const napier_tree *tree, const float *panel, int count, float *low, float *high) {
    for (int64_t i = 0; i < tree->box; i++) {
        low[i] = high[i] = 0;
        for (int j = 0; j < count && i < tree->coordinates; j++) {
            const float x = panel[i * NAPIER_PANEL + j];
            low[i] = j == 0 || x < low[i] ? x : low[i];
            high[i] = j == 0 || x > high[i] ? x : high[i];
        }
    }
}

static void pack_task(void *argument, int worker, int64_t begin, int64_t end) {
    const packing *t = argument;
    napier_tree *tree = t->tree;
    for (int64_t p = begin; p < end; p++) {
        const int count = (int)napier_least(tree->n - p * NAPIER_PANEL, NAPIER_PANEL);
        float *panel = tree->points + p * tree->coordinates * NAPIER_PANEL;
        float slacks[NAPIER_PANEL], outline[BOX_COORDINATES * NAPIER_PANEL];
        float *fine = tree->fine ? tree->fine + p * NAPIER_PANEL * t->u->fine_width : NULL;
        napier_subspace_panel(t->u, t->points, tree->order + p * NAPIER_PANEL, count,
                              t->scratch + (int64_t)worker * napier_subspace_scratch(t->u), panel, fine, outline,
                              tree->halves + p * NAPIER_PANEL, slacks);
        const int64_t leaf = leaf_of(tree, p);
        float slack = 0;
        if (tree->box > 0) {
            float *box = tree->boxes + 2 * leaf * tree->box;
            box_of_panel(tree, t->u->outline > 0 ? outline : panel, count, box, box + tree->box);
        }
        for (int j = 0; j < count; j++) {
            slack = slacks[j] > slack ? slacks[j] : slack;
        }
        tree->slacks[leaf] = slack;
    }
}

/* Boxes of inner nodes, from the leaves up. */
static void join_boxes(napier_tree *tree, napier_node node) {
    if (napier_node_is_leaf(node)) {
        return;
    }
    const napier_node left = napier_node_child(node, 0), right = napier_node_child(node, 1);
    join_boxes(tree, left);
    join_boxes(tree, right);
    for (int64_t i = 0; i < 2 * tree->box; i++) { /* lows, then highs */
        const float a = tree->boxes[2 * left.id * tree->box + i], b = tree->boxes[2 * right.id * tree->box + i];
        const bool take_a = i < tree->box ? a < b : a > b;
        tree->boxes[2 * node.id * tree->box + i] = take_a ? a : b;
    }
    const float slack = tree->slacks[left.id], other = tree->slacks[right.id];
    tree->slacks[node.id] = slack > other ? slack : other;
}

static int64_t box_size(const napier_subspace *u) {
    const int64_t coordinates = napier_subspace_coordinates(u);
    if (u->outline > 0) {
        return u->outline;
    }
    if (u->size > 0) {
        return u->size < BOX_COORDINATES ? u->size : BOX_COORDINATES;
    }
    return coordinates > BOX_COLUMNS ? 0 : napier_round_up(coordinates, 16);
}

static napier_status pack_rows(const napier_search *s, const napier_points *points, const napier_subspace *u,
                               napier_tree *tree) {
    NAPIER_MEMORY(memory, s->context);
    packing t = {u, points, tree, NULL};
    t.scratch = napier_take(&memory, napier_workers(s->context, tree->panels, 1),
                            (size_t)napier_subspace_scratch(u) * sizeof(float));
    NAPIER_TRY(napier_search_memory(s, memory.missing, "panels"));
    napier_parallel(s->context, tree->panels, 1, pack_task, &t);
    join_boxes(tree, napier_tree_root(tree));
    return NAPIER_OK;
}

/* ---- Creation ---------------------------------------------------------------------------------------------------- */

napier_status napier_tree_create(napier_memory *memory, const napier_search *s, const napier_points *points,
                                 const napier_subspace *u, napier_tree *tree) {
    *tree = (napier_tree){.n = points->n,
                          .panels = panels_of(points->n),
                          .coordinates = napier_subspace_coordinates(u),
                          .box = box_size(u)};
    tree->nodes = (int64_t)2 << depth_of(tree->panels);
    const int64_t places = tree->panels * NAPIER_PANEL;
    tree->order = napier_take(memory, places, sizeof *tree->order);
    tree->points = napier_take(memory, places, (size_t)tree->coordinates * sizeof(float));
    tree->fine = u->fine > 0 ? napier_take(memory, places, (size_t)u->fine_width * sizeof(float)) : NULL;
    tree->halves = napier_take(memory, places, sizeof(float));
    tree->slacks = napier_take(memory, tree->nodes, sizeof(float));
    tree->boxes = tree->box > 0 ? napier_take(memory, tree->nodes, (size_t)(2 * tree->box) * sizeof(float)) : NULL;
    NAPIER_TRY(napier_search_memory(s, memory->missing, "tree"));
    NAPIER_TRY(order_rows(s, points, u, tree));
    return pack_rows(s, points, u, tree);
}
