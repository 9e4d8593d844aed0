/* umap/knn/neighbors_exact.c - exact nearest neighbours where the metric is a euclidean distance of the rows.
 *
 * Two bounds save most of the work. Neither affects the result:
 *   - Points are in the order of a tree (neighbors_tree.h). Two nodes are skipped, with all below them, if their boxes
 *   are
 *     farther apart than the farthest current neighbour of any of their points.
 *   - One product of panels bounds the squared distances of all pairs of two leaves from below. The pairs that may be
 *   near
 *     are measured with squared_distance, as everywhere, and offered to both points' heaps.
 * A heap orders by (distance, index) and is offered every pair that it could hold, so its final contents do not depend
 * on the order.
 *
 * Threads. The nodes of one level of the tree, a power of two of them, are paired in rounds like the teams of a
 * tournament: round r pairs node i with node i ^ r. No node occurs twice in a round, so each heap has one writer. The
 * first rounds pair nodes that are near in the tree, so distances shrink early. Queries against samples need no rounds,
 * because each node of queries has its own heaps.
 *
 * What a search costs depends on the data: on how many leaves the boxes exclude. So a few leaves, spread evenly over the
 * tree, search first, by themselves, and count what they do. The counts do not depend on the machine or on threads, so
 * a choice by them does not either. */
#include <math.h>
#include <string.h>

#include "core/base/parallel.h"
#include "core/base/scope.h"
#include "umap/knn/neighbors_tree.h"

enum {
    TEAMS_LEAST = 64,     /* nodes in a tournament, if there are enough panels, */
    TEAMS_PER_WORKER = 4, /* or so many for each worker, */
    TEAM_PANELS = 2,      /* but with at least so many panels on average */
    AHEAD = 2,            /* pairs whose rows are fetched before they are measured */
    PROBES = 64           /* leaves that search by themselves */
};

/* What a leaf did. */
typedef struct work {
    int64_t met, looked_at, measured; /* leaves; pairs with the tighter bound; pairs */
} work;

/* One side of a search: its points and the current limit of each. */
typedef struct side {
    const napier_points *points;
    const napier_tree *tree;
    float *limits;  /* [panels * NAPIER_PANEL] for near_pairs */
    float *reaches; /* [nodes] the largest -limit in a node, half a squared distance; NULL: needs no neighbours */
} side;

typedef struct exact {
    const napier_search *search;
    const napier_linear_kernels *kernels;
    const napier_subspace *subspace;
    side own, other; /* queries and samples; the same twice for a self search */
    bool both;       /* both sides need neighbours: a self search */
    int level;       /* level of the tournament's nodes */
    int64_t round;
    work *probe; /* what a leaf does that searches by itself; else NULL */
} exact;

/* ---- Pairs ------------------------------------------------------------------------------------------------------- */

static void offer(const exact *e, const side *s, int64_t place, float distance, uint32_t index) {
    const int64_t size = e->search->wanted;
    uint64_t *heap = e->search->nearest + (int64_t)s->tree->order[place] * size;
    if (napier_heap_offer(heap, size, napier_near_of(distance, index))) {
        s->limits[place] = napier_subspace_limit(e->subspace, s->points->kind, napier_near_distance(heap[0]));
    }
}

/* Would the heap take this point at distance 0? Among many equal points only small indices are taken after a while. */
static bool takes(const exact *e, const side *s, int64_t place, uint32_t index) {
    return e->search->nearest[(int64_t)s->tree->order[place] * e->search->wanted] > napier_near_of(0.0f, index);
}

static bool is_wanted(const exact *e, int64_t a, int64_t b) {
    if (e->probe && a == b) {
        return false;
    }
    return takes(e, &e->own, a, e->other.tree->order[b]) || (e->both && takes(e, &e->other, b, e->own.tree->order[a]));
}

static const float *row_at(const side *s, int64_t place) {
    return s->points->rows + (int64_t)s->tree->order[place] * s->points->width;
}

static void measure(const exact *e, int64_t a, int64_t b) {
    const float squared = e->kernels->squared_distance(row_at(&e->own, a), row_at(&e->other, b), e->own.points->width);
    const float distance = napier_from_squared(e->own.points->kind, squared);
    offer(e, &e->own, a, distance, e->other.tree->order[b]);
    if (e->both) {
        offer(e, &e->other, b, distance, e->own.tree->order[a]);
    }
}

static float reach_of_leaf(const side *s, int64_t panel) {
    const float *limits = s->limits + panel * NAPIER_PANEL;
    float reach = -HUGE_VALF;
    for (int i = 0; i < NAPIER_PANEL; i++) {
        reach = -limits[i] > reach ? -limits[i] : reach;
    }
    return reach;
}

static napier_near_side near_side(const side *s, int64_t panel) {
    return (napier_near_side){s->tree->points + panel * s->tree->coordinates * NAPIER_PANEL,
                              s->tree->halves + panel * NAPIER_PANEL, s->limits + panel * NAPIER_PANEL};
}

/* The tighter bound: may this pair be near, by a bound from more directions? */
static bool is_near(const exact *e, int64_t a, int64_t b, double slack) {
    const int64_t width = e->subspace->fine_width;
    const float squared =
        e->kernels->squared_distance(e->own.tree->fine + a * width, e->other.tree->fine + b * width, width);
    const float limit_a = e->own.limits[a], limit_b = e->other.limits[b];
    return slack - 0.5 * (1.0 - 0x1p-18) * (double)squared > (double)(limit_a < limit_b ? limit_a : limit_b);
}

/* Compares two leaves; in a leaf with itself, each pair once. */
static void meet_leaves(const exact *e, napier_node a, napier_node b) {
    const bool same = e->both && a.id == b.id;
    const int64_t first_a = a.begin * NAPIER_PANEL, first_b = b.begin * NAPIER_PANEL;
    uint32_t hits[NAPIER_PANEL];
    if (e->probe) {
        e->probe->met++;
    }
    uint32_t rows = e->kernels->near_pairs(near_side(&e->own, a.begin), near_side(&e->other, b.begin),
                                           e->own.tree->coordinates, hits);
    if (rows == 0) {
        return;
    }
    uint16_t pairs[NAPIER_PANEL * NAPIER_PANEL];
    int count = 0;
    for (; rows != 0; rows &= rows - 1) {
        const int r = __builtin_ctz(rows);
        for (uint32_t bits = same ? hits[r] & ~(UINT32_MAX >> (31 - r)) : hits[r]; bits != 0; bits &= bits - 1) {
            pairs[count++] = (uint16_t)(r * NAPIER_PANEL + __builtin_ctz(bits));
        }
    }
    if (e->subspace->fine > 0) {
        if (e->probe) {
            e->probe->looked_at += count;
        }
        const double slack = (double)e->own.tree->slacks[a.id] + (double)e->other.tree->slacks[b.id];
        int kept = 0;
        for (int i = 0; i < count; i++) {
            pairs[kept] = pairs[i];
            kept += is_near(e, first_a + pairs[i] / NAPIER_PANEL, first_b + pairs[i] % NAPIER_PANEL, slack);
        }
        count = kept;
    }
    if (e->probe) {
        e->probe->measured += count;
    }
    for (int i = 0; i < count; i++) {
        if (i + AHEAD < count) {
            napier_search_fetch(e->other.points, e->other.tree->order[first_b + pairs[i + AHEAD] % NAPIER_PANEL]);
        }
        const int64_t at_a = first_a + pairs[i] / NAPIER_PANEL, at_b = first_b + pairs[i] % NAPIER_PANEL;
        if (is_wanted(e, at_a, at_b)) {
            measure(e, at_a, at_b);
        }
    }
    if (count > 0) {
        e->own.reaches[a.id] = reach_of_leaf(&e->own, a.begin);
        if (e->both) {
            e->other.reaches[b.id] = reach_of_leaf(&e->other, b.begin);
        }
    }
}

/* ---- Nodes ------------------------------------------------------------------------------------------------------- */

/* A lower bound of the squared distance between any points of the two nodes. */
static float gap_of(const exact *e, napier_node a, napier_node b) {
    const int64_t n = e->own.tree->box;
    const float *low_a = e->own.tree->boxes + 2 * a.id * n, *low_b = e->other.tree->boxes + 2 * b.id * n;
    return n > 0 ? e->kernels->box_gap(low_a, low_a + n, low_b, low_b + n, n) * (1.0f - 0x1p-14f) : 0.0f;
}

static void update_reach(const side *s, napier_node node) {
    if (!napier_node_is_leaf(node)) {
        const float left = s->reaches[2 * node.id], right = s->reaches[2 * node.id + 1];
        s->reaches[node.id] = left > right ? left : right;
    }
}

/* Can no pair of the two nodes be near? The gap is a squared distance; the slacks are subtracted from its half. */
static bool is_far(const exact *e, napier_node a, napier_node b, float gap) {
    float reach = e->own.reaches[a.id];
    if (e->both && e->other.reaches[b.id] > reach) {
        reach = e->other.reaches[b.id];
    }
    return (double)gap * 0.5 - (double)e->own.tree->slacks[a.id] - (double)e->other.tree->slacks[b.id] > (double)reach;
}

/* Compares all pairs of two nodes, neither of which contains the other. Nearer children come first. */
static void meet(const exact *e, napier_node a, napier_node b, float gap) {
    if (is_far(e, a, b, gap)) {
        return;
    }
    if (napier_node_is_leaf(a) && napier_node_is_leaf(b)) {
        meet_leaves(e, a, b);
        return;
    }
    napier_node of_a[4], of_b[4];
    float gaps[4];
    int count = 0;
    for (int i = 0; i < 4; i++) {
        const bool leaf_a = napier_node_is_leaf(a), leaf_b = napier_node_is_leaf(b);
        if ((leaf_a && i > 1) || (leaf_b && (i & 1))) {
            continue;
        }
        const napier_node x = leaf_a ? a : napier_node_child(a, i >> 1);
        const napier_node y = leaf_b ? b : napier_node_child(b, i & 1);
        const float here = gap_of(e, x, y);
        int at = count++;
        for (; at > 0 && gaps[at - 1] > here; at--) {
            gaps[at] = gaps[at - 1];
            of_a[at] = of_a[at - 1];
            of_b[at] = of_b[at - 1];
        }
        gaps[at] = here;
        of_a[at] = x;
        of_b[at] = y;
    }
    for (int i = 0; i < count; i++) {
        meet(e, of_a[i], of_b[i], gaps[i]);
    }
    update_reach(&e->own, a);
    if (e->both) {
        update_reach(&e->other, b);
    }
}

/* Compares all pairs within a node. */
static void meet_self(const exact *e, napier_node node) {
    if (napier_node_is_leaf(node)) {
        meet_leaves(e, node, node);
        return;
    }
    const napier_node left = napier_node_child(node, 0), right = napier_node_child(node, 1);
    meet_self(e, left);
    meet_self(e, right);
    meet(e, left, right, gap_of(e, left, right));
    update_reach(&e->own, node);
}

/* ---- Threads ----------------------------------------------------------------------------------------------------- */

static void round_task(void *argument, int64_t index) {
    const exact *e = argument;
    if (e->round == 0) {
        meet_self(e, napier_tree_node(e->own.tree, e->level, index));
        return;
    }
    int64_t i, j;
    napier_tournament_pair(e->round, index, &i, &j);
    const napier_node a = napier_tree_node(e->own.tree, e->level, i);
    const napier_node b = napier_tree_node(e->own.tree, e->level, j);
    meet(e, a, b, gap_of(e, a, b));
}

static void query_task(void *argument, int64_t index) {
    const exact *e = argument;
    const napier_node a = napier_tree_node(e->own.tree, e->level, index), b = napier_tree_root(e->other.tree);
    meet(e, a, b, gap_of(e, a, b));
}

/* The level with enough nodes to keep the workers busy, of at least TEAM_PANELS panels on average. */
static int tournament_level(const napier_search *s, int64_t panels) {
    int64_t teams = (int64_t)s->context->threads * TEAMS_PER_WORKER;
    teams = teams < TEAMS_LEAST ? TEAMS_LEAST : teams;
    int level = 0;
    while ((int64_t)1 << level < teams && (int64_t)TEAM_PANELS << (level + 1) <= panels) {
        level++;
    }
    return level;
}

static napier_status play(exact *e) {
    const napier_search *s = e->search;
    const int64_t teams = (int64_t)1 << e->level;
    for (e->round = 0; e->round < teams; e->round++) {
        napier_parallel_each(s->context, e->round == 0 ? teams : teams / 2, 1, round_task, e);
        NAPIER_TRY(napier_search_progress(s, (double)(e->round + 1) / (double)teams));
    }
    return NAPIER_OK;
}

/* ---- Sides ------------------------------------------------------------------------------------------------------- */

static napier_status make_side(napier_memory *memory, const exact *e, const napier_points *points, bool looks,
                               napier_tree *tree, side *out) {
    const napier_search *s = e->search;
    *out = (side){.points = points, .tree = tree};
    NAPIER_TRY(napier_tree_create(memory, s, points, e->subspace, tree));
    const int64_t places = tree->panels * NAPIER_PANEL;
    out->limits = napier_take(memory, places, sizeof(float));
    out->reaches = looks ? napier_take(memory, tree->nodes, sizeof(float)) : NULL;
    NAPIER_TRY(napier_search_memory(s, memory->missing, "limits"));
    for (int64_t i = 0; i < places; i++) {
        out->limits[i] = looks && i < points->n ? -HUGE_VALF : HUGE_VALF;
    }
    for (int64_t i = 0; looks && i < tree->nodes; i++) {
        out->reaches[i] = HUGE_VALF;
    }
    return NAPIER_OK;
}

/* ---- The cost of a search ---------------------------------------------------------------------------------------- */

typedef struct probing {
    const exact *search;
    int64_t count;
    work found[PROBES];
} probing;

/* The leaf of a panel. */
static napier_node leaf_at(const napier_tree *tree, int64_t panel) {
    napier_node node = napier_tree_root(tree);
    while (!napier_node_is_leaf(node)) {
        const napier_node right = napier_node_child(node, 1);
        node = panel >= right.begin ? right : napier_node_child(node, 0);
    }
    return node;
}

/* One leaf searches by itself among all, then forgets what it found. */
static void probe_task(void *argument, int64_t index) {
    probing *t = argument;
    exact e = *t->search;
    const napier_node a = leaf_at(e.own.tree, index * e.own.tree->panels / t->count),
                      b = napier_tree_root(e.other.tree);
    const int64_t first = a.begin * NAPIER_PANEL, size = e.search->wanted;
    e.both = false;
    e.probe = &t->found[index];
    meet(&e, a, b, gap_of(&e, a, b));
    for (int64_t place = first; place < napier_least(first + NAPIER_PANEL, e.own.points->n); place++) {
        napier_heap_clear(e.search->nearest + (int64_t)e.own.tree->order[place] * size, size);
        e.own.limits[place] = -HUGE_VALF;
    }
    e.own.reaches[a.id] = HUGE_VALF;
}

/* The cost of the search, for each point, in steps (neighbors_subspace.h). A search compares two leaves once for both,
 * but when the limits of only one of them are small: about two thirds of the comparisons of all leaves by themselves. */
static napier_status cost_of_search(const exact *e, double *cost) {
    const napier_search *s = e->search;
    const int64_t places = e->own.tree->panels * NAPIER_PANEL;
    exact alone = *e;
    probing t = {.search = &alone, .count = napier_least(e->own.tree->panels, PROBES)};
    work all = {0, 0, 0};
    NAPIER_MEMORY(memory, s->context);
    alone.other.limits = napier_take(&memory, places, sizeof(float));
    NAPIER_TRY(napier_search_memory(s, memory.missing, "limits"));
    for (int64_t i = 0; i < places; i++) {
        alone.other.limits[i] = HUGE_VALF; /* the other leaves need no neighbours */
    }
    napier_parallel_each(s->context, t.count, 1, probe_task, &t);
    for (int64_t i = 0; i < t.count; i++) {
        all.met += t.found[i].met;
        all.looked_at += t.found[i].looked_at;
        all.measured += t.found[i].measured;
    }
    const napier_subspace *u = e->subspace;
    const double steps = (double)all.met * NAPIER_PANEL * NAPIER_PANEL * napier_subspace_bound_steps(u) +
                         (double)all.looked_at * napier_subspace_look_steps(u) +
                         (double)all.measured * napier_subspace_pair_steps(u);
    *cost = steps * (2.0 / 3.0) / (double)(t.count * NAPIER_PANEL);
    return NAPIER_OK;
}

/* ---- The search -------------------------------------------------------------------------------------------------- */

napier_status napier_search_exact(const napier_search *s, double most, double *cost) {
    napier_subspace subspace;
    napier_tree trees[2];
    exact e = {
        .search = s, .kernels = s->samples->kernels->linear, .subspace = &subspace, .both = napier_search_is_self(s)};
    NAPIER_MEMORY(memory, s->context);
    NAPIER_TRY(napier_subspace_create(&memory, s, &subspace));
    NAPIER_TRY(make_side(&memory, &e, s->queries, true, &trees[0], &e.own));
    e.other = e.own;
    if (!e.both) {
        NAPIER_TRY(make_side(&memory, &e, s->samples, false, &trees[1], &e.other));
    }
    e.level = tournament_level(s, trees[0].panels);
    napier_heap_clear(s->nearest, s->queries->n * s->wanted);
    if (e.both && most > 0) {
        NAPIER_TRY(cost_of_search(&e, cost));
        if (*cost > most) {
            return NAPIER_OK;
        }
    }
    if (e.both) {
        return play(&e);
    }
    napier_parallel_each(s->context, (int64_t)1 << e.level, 1, query_task, &e);
    return napier_search_progress(s, 1.0);
}

/* ---- Full search ----------------------------------------------------------------------------------------------- */

napier_status napier_search_full(const napier_search *s) {
    const napier_points *points = s->samples;
    if (points->kind == NAPIER_POINTS_GENERAL || !points->rows || s->queries->n < NAPIER_FEW_QUERIES) {
        return napier_search_plain(s);
    }
    return napier_search_exact(s, 0.0, NULL);
}
