/* umap/layout/layout.c - the forces on all vertices, over threads. */
#include "umap/layout/layout.h"

#include <math.h>
#include <string.h>

#include "core/base/parallel.h"
#include "umap/layout/sampling.h"

enum {
    NAPIER_LAYOUT_CHUNK = 512 /* vertices: about 50 microseconds of work */
};

/* ---- Preparation ------------------------------------------------------------------------------------------------- */

static int64_t degree_of(const napier_umap_graph *graph, int64_t v) {
    return graph ? graph->starts[v + 1] - graph->starts[v] : 0;
}

static int64_t pieces_of(int64_t degree) { return (degree + NAPIER_PIECE_EDGES - 1) / NAPIER_PIECE_EDGES; }

static bool is_heavy(const napier_layout *l, int64_t v) {
    return degree_of(l->edges, v) > NAPIER_PIECE_EDGES || degree_of(l->pulls, v) > NAPIER_PIECE_EDGES;
}

static void cut(napier_layout *l, const napier_umap_graph *graph, uint32_t v, bool pull) {
    for (int64_t begin = 0, degree = degree_of(graph, v); begin < degree; begin += NAPIER_PIECE_EDGES) {
        l->pieces[l->piece_count++] =
            (napier_layout_piece){v, pull, graph->starts[v] + begin, napier_least(degree - begin, NAPIER_PIECE_EDGES)};
    }
}

napier_status napier_layout_prepare(napier_memory *memory, napier_layout *l) {
    int64_t heavy = 0, pieces = 0;
    for (int64_t v = 0; v < l->n; v++) {
        if (is_heavy(l, v)) {
            heavy++;
            pieces += pieces_of(degree_of(l->edges, v)) + pieces_of(degree_of(l->pulls, v));
        }
    }
    const bool weighted = l->rate_per_edge && !l->sampled && l->edges && l->n > 0;
    l->wanted = weighted ? napier_take(memory, l->n, sizeof *l->wanted) : NULL;
    if (heavy > 0) {
        l->heavy = napier_take(memory, heavy, sizeof *l->heavy);
        l->pieces = napier_take(memory, pieces, sizeof *l->pieces);
        l->sums = napier_take(memory, pieces, (size_t)l->components * sizeof *l->sums);
    }
    NAPIER_TRY(napier_taken(memory, "layout: no memory for %lld vertices", (long long)l->n));
    l->heavy_count = l->piece_count = 0;
    for (int64_t v = 0; v < l->n; v++) {
        if (weighted) {
            l->wanted[v] = napier_wanted_samples(l->edges->starts, l->edges->weights, v, l->highest, l->rate);
        }
        if (is_heavy(l, v)) {
            l->heavy[l->heavy_count++] = (uint32_t)v;
            cut(l, l->edges, (uint32_t)v, false);
            cut(l, l->pulls, (uint32_t)v, true);
        }
    }
    return NAPIER_OK;
}

/* ---- Strips ------------------------------------------------------------------------------------------------------ */

enum { BUNDLE_TARGETS = 2 * NAPIER_PIECE_EDGES };

/* A queue of strips, to process them together, and the targets drawn for them. */
typedef struct bundle {
    const napier_layout *layout;
    int64_t count, room, used;
    float sum[16 * NAPIER_MOST_COMPONENTS];
    napier_strip strips[NAPIER_MOST_STRIPS];
    uint32_t targets[BUNDLE_TARGETS];
} bundle;

static void bundle_open(bundle *b, const napier_layout *l) {
    b->layout = l;
    b->count = b->used = 0;
    const int64_t strips = napier_least(NAPIER_STRIP_VECTORS / l->components, NAPIER_MOST_STRIPS);
    b->room = strips > 0 ? strips : 1;
    memset(b->sum, 0, sizeof b->sum);
}

static void bundle_flush(bundle *b) {
    const napier_layout *l = b->layout;
    l->kernels->layout.strips(&l->forces, l->y, l->components, b->strips, b->count, b->sum);
    b->count = 0;
}

/* Returns memory for `count` <= NAPIER_PIECE_EDGES targets, which stay valid until their strips are done. */
static uint32_t *room_for_targets(bundle *b, int64_t count) {
    if (b->used + count > BUNDLE_TARGETS) {
        bundle_flush(b);
        b->used = 0;
    }
    b->used += count;
    return b->targets + b->used - count;
}

/* Adds the pairs of v with `count` targets to the queue, as strips. Their sum will be added to force. */
static void take(bundle *b, bool repels, uint32_t v, const uint32_t *targets, const float *weights, int64_t count,
                 float scale, float *force) {
    for (int64_t e = 0; e < count; e += 16) {
        if (b->count == b->room) {
            bundle_flush(b);
        }
        const int64_t left = count - e;
        b->strips[b->count++] = (napier_strip){v,
                                               repels,
                                               (int16_t)(left < 16 ? left : 16),
                                               scale,
                                               targets + e,
                                               weights ? weights + e : NULL,
                                               left <= 16 ? force : NULL};
    }
}

/* ---- Attraction -------------------------------------------------------------------------------------------------- */

/* Does an edge act in this epoch? It acts in a share of weight / highest of all epochs, evenly spread. */
static bool edge_acts(const napier_layout *l, uint32_t source, uint32_t target, float weight) {
    return napier_edge_acts(l->phase_key, l->highest, l->epoch, source, target, weight);
}

/* Adds one piece of edges, whose sum goes to `force`; returns how many of them act. */
static int64_t attract(bundle *b, const napier_umap_graph *graph, bool pull, uint32_t v, int64_t begin, int64_t count,
                       float *force) {
    const napier_layout *l = b->layout;
    const uint32_t *targets = graph->targets + begin;
    if (!l->sampled) {
        take(b, false, v, targets, graph->weights + begin, count, l->scale, force);
        return count;
    }
    uint32_t *acting = room_for_targets(b, count);
    int64_t found = 0;
    for (int64_t e = 0; e < count; e++) {
        const uint32_t other = targets[e];
        acting[found] = other;
        found += edge_acts(l, pull ? other : v, pull ? v : other, graph->weights[begin + e]);
    }
    take(b, false, v, acting, NULL, found, l->scale, force);
    return found;
}

/* Adds all pieces of a vertex in a graph. */
static int64_t attract_all(bundle *b, const napier_umap_graph *graph, bool pull, uint32_t v, float *force) {
    int64_t acting = 0;
    if (graph) {
        for (int64_t e = graph->starts[v]; e < graph->starts[v + 1]; e += NAPIER_PIECE_EDGES) {
            acting += attract(b, graph, pull, v, e, napier_least(graph->starts[v + 1] - e, NAPIER_PIECE_EDGES), force);
        }
    }
    return acting;
}

/* ---- Repulsion --------------------------------------------------------------------------------------------------- */

/* The samples of vertex v, of which `acting` edges act. A fractional rate is exact on average over the epochs. */
static napier_sampling sampling_of(const napier_layout *l, uint32_t v, int64_t acting) {
    if (l->wanted) {
        return napier_weighted_sampling(l->wanted[v]);
    }
    if (l->rate_per_edge && l->sampled) {
        return (napier_sampling){(int64_t)((double)acting * l->rate), 1.0f};
    }
    const double before = l->rate * (double)l->epoch, after = l->rate * (double)(l->epoch + 1);
    return (napier_sampling){(int64_t)after - (int64_t)before, 1.0f};
}

static void repel(bundle *b, uint32_t v, napier_sampling samples, float *force) {
    const napier_layout *l = b->layout;
    for (int64_t s = 0; s < samples.count; s += NAPIER_PIECE_EDGES) {
        const int64_t part = napier_least(samples.count - s, NAPIER_PIECE_EDGES);
        const uint32_t *targets = l->given ? l->given + (int64_t)v * samples.count + s : NULL;
        if (!targets) {
            uint32_t *drawn = room_for_targets(b, (part + 31) / 32 * 32);
            l->kernels->layout.draw(l->draw_key, v, (uint32_t)l->n, s, part, drawn);
            targets = drawn;
        }
        take(b, true, v, targets, NULL, part, samples.weight, force);
    }
}

/* ---- A pass over vertices or pieces -------------------------------------------------------------------------------- */

/* Adds item i of a pass to a bundle. */
typedef void pass_item(bundle *b, int64_t i, float *forces);

typedef struct pass {
    const napier_layout *layout;
    pass_item *add;
    float *forces;
} pass;

static void pass_task(void *argument, int worker, int64_t begin, int64_t end) {
    const pass *t = argument;
    bundle b;
    (void)worker;
    bundle_open(&b, t->layout);
    for (int64_t i = begin; i < end; i++) {
        t->add(&b, i, t->forces);
    }
    bundle_flush(&b);
}

/* The memory of the force on a vertex, or of the sum of a piece, set to 0. */
static float *force_of(const napier_layout *l, float *forces, int64_t i) {
    return memset(forces + i * l->components, 0, (size_t)l->components * sizeof *forces);
}

/* ---- Groups of light vertices, two components ------------------------------------------------------------------------ */

/* An embedding of more points is not in the nearest caches, so samples are fetched ahead. */
enum { FETCHED_POINTS = 1 << 15 };

/* Edges of vertices [v, v + count) of a graph. */
static int64_t edges_of(const napier_umap_graph *graph, int64_t v, int64_t count) {
    return graph ? graph->starts[v + count] - graph->starts[v] : 0;
}

/* Are all forces of the layout those of groups: two components, all edges, drawn samples? */
static bool has_groups(const napier_layout *l) { return l->components == 2 && !l->sampled && !l->given; }

/* Can a vertex with these samples be in a group? */
static bool fits_group(const napier_layout *l, int64_t v, napier_sampling samples) {
    return samples.count <= NAPIER_GROUP_PAIRS && edges_of(l->edges, v, 1) <= NAPIER_GROUP_PAIRS &&
           edges_of(l->pulls, v, 1) <= NAPIER_GROUP_PAIRS;
}

/* Draws the samples of vertex v, the next of a group, to targets + used, and fetches their points. The last vector is
 * filled with v itself. Returns their number, a multiple of 16. */
static int64_t draw_samples(const napier_layout *l, int64_t v, int64_t count, uint32_t *targets) {
    const int64_t whole = (count + 15) / 16 * 16;
    l->kernels->layout.draw(l->draw_key, (uint32_t)v, (uint32_t)l->n, 0, count, targets);
    for (int64_t s = count; s < whole; s++) {
        targets[s] = (uint32_t)v;
    }
    for (int64_t s = 0; s < whole && l->n > FETCHED_POINTS; s++) {
        __builtin_prefetch(l->y + 2 * (int64_t)targets[s]);
    }
    return whole;
}

/* Makes the group of the vertices from `first`, as many as fit; none if the first does not. */
static void make_group(const napier_layout *l, int64_t first, int64_t end, napier_group *group) {
    int64_t used = 0;
    group->first = first;
    group->count = 0;
    for (int64_t v = first; v < end && group->count < NAPIER_GROUP_VERTICES; v++) {
        const napier_sampling samples = sampling_of(l, (uint32_t)v, edges_of(l->edges, v, 1));
        if (!fits_group(l, v, samples) || used + samples.count > NAPIER_GROUP_PAIRS ||
            edges_of(l->edges, first, v + 1 - first) > NAPIER_GROUP_PAIRS ||
            edges_of(l->pulls, first, v + 1 - first) > NAPIER_GROUP_PAIRS) {
            return;
        }
        group->samples[group->count] = draw_samples(l, v, samples.count, group->targets + used);
        group->weights[group->count] = samples.weight;
        used += group->samples[group->count++];
    }
}

static void attract_group(const napier_layout *l, const napier_umap_graph *graph, const napier_group *group,
                          float *forces) {
    if (graph) {
        l->kernels->layout.group_attracts(&l->forces, l->y, group, graph->starts, graph->targets, graph->weights,
                                          l->scale, forces);
    }
}

/* The light vertices of [begin, end), group by group; those that fit into none by a bundle. */
static void groups_task(void *argument, int worker, int64_t begin, int64_t end) {
    const pass *t = argument;
    const napier_layout *l = t->layout;
    napier_group group;
    bundle b;
    (void)worker;
    bundle_open(&b, l);
    for (int64_t v = begin; v < end;) {
        make_group(l, v, end, &group);
        if (group.count == 0) {
            t->add(&b, v++, t->forces);
            continue;
        }
        memset(t->forces + 2 * v, 0, (size_t)(2 * group.count) * sizeof *t->forces);
        attract_group(l, l->edges, &group, t->forces);
        attract_group(l, l->pulls, &group, t->forces);
        l->kernels->layout.group_repels(&l->forces, l->y, &group, t->forces);
        v += group.count;
    }
    bundle_flush(&b);
}

/* ---- All vertices ------------------------------------------------------------------------------------------------ */

static void add_light(bundle *b, int64_t v, float *forces) {
    const napier_layout *l = b->layout;
    if (l->heavy_count > 0 && is_heavy(l, v)) {
        return;
    }
    float *force = force_of(l, forces, v);
    const int64_t acting = attract_all(b, l->edges, false, (uint32_t)v, force);
    attract_all(b, l->pulls, true, (uint32_t)v, force);
    repel(b, (uint32_t)v, sampling_of(l, (uint32_t)v, acting), force);
}

static void add_piece(bundle *b, int64_t i, float *forces) {
    const napier_layout *l = b->layout;
    const napier_layout_piece *p = &l->pieces[i];
    (void)forces;
    attract(b, p->pull ? l->pulls : l->edges, p->pull, p->v, p->begin, p->count, force_of(l, l->sums, i));
}

/* The number of edges of a vertex that act, if attract has not counted them. */
static int64_t acting_of(const napier_layout *l, uint32_t v) {
    int64_t acting = 0;
    if (l->sampled && l->rate_per_edge && l->edges) {
        for (int64_t e = l->edges->starts[v]; e < l->edges->starts[v + 1]; e++) {
            acting += edge_acts(l, v, l->edges->targets[e], l->edges->weights[e]);
        }
    }
    return acting;
}

static void add_heavy(bundle *b, int64_t h, float *forces) {
    const napier_layout *l = b->layout;
    const uint32_t v = l->heavy[h];
    float *force = force_of(l, forces, v);
    int64_t low = 0, high = l->piece_count; /* the first piece of v */
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        low = l->pieces[middle].v < v ? middle + 1 : low;
        high = l->pieces[middle].v < v ? high : middle;
    }
    for (int64_t i = low; i < l->piece_count && l->pieces[i].v == v; i++) {
        for (int64_t d = 0; d < l->components; d++) {
            force[d] += l->sums[i * l->components + d];
        }
    }
    repel(b, v, sampling_of(l, v, acting_of(l, v)), force);
}

void napier_layout_forces(const napier_layout *l, float *forces) {
    pass light = {l, add_light, forces}, pieces = {l, add_piece, forces}, heavy = {l, add_heavy, forces};
    napier_parallel(l->context, l->n, NAPIER_LAYOUT_CHUNK, has_groups(l) ? groups_task : pass_task, &light);
    napier_parallel(l->context, l->piece_count, 4, pass_task, &pieces);
    napier_parallel(l->context, l->heavy_count, 1, pass_task, &heavy);
}
