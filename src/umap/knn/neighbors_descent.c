/* umap/knn/neighbors_descent.c - approximate nearest neighbours for any metric: neighbours of neighbours.
 *
 * NN-descent (Dong, Charikar and Li, "Efficient k-nearest neighbor graph construction for generic similarity measures",
 * 2011), in bulk-synchronous rounds. Each point keeps a list of the nearest points found so far. In a round it measures
 * the neighbours of its neighbours. Neighbours are taken in both directions: the points in its list, and some of the
 * points whose lists it is in. All points read the lists from before the round and write only to their own, so results
 * do not depend on threads. A candidate reached through two old links was measured before and is skipped. Rounds end
 * when few lists change.
 *
 * The start is a few trees (neighbors_tree.h) over random projections: all pairs in a leaf are measured. Without dense
 * rows the start is random. Lists are longer than the result, because the additional neighbours lead to nearer ones.
 *
 * The length that lists need depends on the data: where 50 directions matter equally, few links lead to the nearest
 * points. So the true neighbours of some rows are found first by a full search, and compared with the lists after every
 * round. A descent that does not reach RECALL_LEAST starts again with longer lists or, if those would cost more than
 * all pairs, is replaced by a full search. */
#include <string.h>

#include "core/base/parallel.h"
#include "core/base/scope.h"
#include "core/math/random.h"
#include "umap/knn/neighbors_tree.h"

enum {
    TREES = 8,
    MOST_BACK = 32,
    MOST_ROUNDS = 20,
    CHECKED = 256,                /* rows, spread evenly over all, whose true neighbours are found */
    STREAM_PROJECTION = 0x4e0000, /* streams of random numbers; the tree or the round is added */
    STREAM_START = 0x4e1000,
    STREAM_REVERSE = 0x4e2000,
    ROWS_CHUNK = 256,
    FULL_PAIRS = 8, /* pairs of the full search cost as much as one pair of a descent; */
    FULL_BOUNDS = 32,
    TOGETHER = 32 /* rows measured together, while the next are fetched */
};
/* Rounds end at this recall among the checked rows, or when a round changes less than this share of all list
 * entries. */
#define RECALL_AIMED_AT 0.995
#define ENOUGH 0.002
/* A descent fails if it ends with less recall or is heading for less. */
#define RECALL_LEAST 0.992

#define NEW_THERE 0x80000000u /* no index is that large */

/* The age of a list entry. */
enum { OLD, NEW, JUST_MET };

/* The state of a descent. The points that a point knows in a round are those of its list and some of those whose lists
 * it is in, new ones first. */
typedef struct descent {
    const napier_search *search;
    uint64_t *lists; /* [n][size] ascending */
    uint8_t *ages;   /* [n][size] */
    int64_t n, size, most;
    int round;
    uint32_t lots_key;    /* key of this round's random numbers */
    uint32_t *known;      /* [n][most], new ones first */
    uint16_t *counts;     /* [n][2]: number of all, number of new ones */
    int64_t *back_starts; /* [n + 1] into back */
    uint32_t *back;       /* [n * size]: the points that have a point in their lists; NEW_THERE where it is new */
    int64_t *changes;     /* per worker */
    uint32_t *seen;       /* per worker: a hash table of seen_size entries, */
    uint32_t *candidates; /* and most * most candidates */
    int64_t seen_size;
    float *reaches;   /* [CHECKED] the true distance of the last neighbour of a checked row */
    uint64_t *order;  /* [n] of a tree */
    float *projected; /* [n][NAPIER_PANEL] */
    float *directions;
} descent;

/* ---- Lists ------------------------------------------------------------------------------------------------------- */

/* Inserts a neighbour into a sorted list if it is near enough and not in it. */
static bool insert(const descent *d, int64_t point, uint64_t near, uint8_t age) {
    uint64_t *list = d->lists + point * d->size;
    uint8_t *ages = d->ages + point * d->size;
    int64_t at = d->size;
    if (near >= list[at - 1]) {
        return false;
    }
    while (at > 0 && list[at - 1] > near) {
        at--;
    }
    if (at > 0 && list[at - 1] == near) {
        return false;
    }
    const size_t moved = (size_t)(d->size - 1 - at);
    memmove(list + at + 1, list + at, moved * sizeof *list);
    memmove(ages + at + 1, ages + at, moved * sizeof *ages);
    list[at] = near;
    ages[at] = age;
    return true;
}

static bool meet(const descent *d, int64_t a, int64_t b, uint8_t age) {
    const float distance = napier_points_distance(d->search->samples, a, d->search->samples, b);
    return insert(d, a, napier_near_of(distance > 0.0f ? distance : 0.0f, (uint32_t)b), age);
}

/* ---- Start ------------------------------------------------------------------------------------------------------- */

static void project_task(void *argument, int worker, int64_t begin, int64_t end) {
    const descent *d = argument;
    const napier_points *points = d->search->samples;
    (void)worker;
    points->kernels->linear->product(points->rows + begin * points->width, points->width, end - begin, d->directions,
                                     points->width, d->projected + begin * NAPIER_PANEL, NAPIER_PANEL);
}

static void draw_directions(const descent *d, uint32_t tree) {
    const int64_t width = d->search->samples->width;
    const uint32_t key = napier_random_key(d->search->options->seed, STREAM_PROJECTION + tree);
    for (int64_t i = 0; i < width * NAPIER_PANEL; i++) {
        uint32_t draw[2];
        napier_philox(key, (uint32_t)(i / NAPIER_PANEL), (uint32_t)(i % NAPIER_PANEL), draw);
        d->directions[i] = (float)(napier_random_unit(draw[0]) - 0.5);
    }
}

/* Measures all pairs in each leaf. */
static void leaf_task(void *argument, int64_t leaf) {
    const descent *d = argument;
    const int64_t first = leaf * NAPIER_PANEL;
    const int64_t last = napier_least(first + NAPIER_PANEL, d->n);
    uint32_t rows[NAPIER_PANEL] = {0};
    float distances[NAPIER_DISTANCES];
    for (int64_t i = first; i < last; i++) {
        rows[i - first] = (uint32_t)d->order[i];
    }
    for (int64_t i = 1; i < last - first; i++) {
        napier_points_distances(d->search->samples, rows[i], d->search->samples, rows, i, distances);
        for (int64_t j = 0; j < i; j++) {
            insert(d, rows[i], napier_near_of(distances[j], rows[j]), NEW);
            insert(d, rows[j], napier_near_of(distances[j], rows[i]), NEW);
        }
    }
}

static napier_status plant_trees(descent *d) {
    const napier_search *s = d->search;
    NAPIER_MEMORY(memory, s->context);
    d->projected = napier_take(&memory, d->n, NAPIER_PANEL * sizeof *d->projected);
    d->directions = napier_take(&memory, s->samples->width, NAPIER_PANEL * sizeof *d->directions);
    NAPIER_TRY(napier_search_memory(s, memory.missing, "trees"));
    for (uint32_t tree = 0; tree < TREES; tree++) {
        draw_directions(d, tree);
        napier_parallel(s->context, d->n, ROWS_CHUNK, project_task, d);
        NAPIER_TRY(napier_tree_sort(s, d->projected, d->n, NAPIER_PANEL, NAPIER_PANEL, d->order));
        napier_parallel_each(s->context, (d->n + NAPIER_PANEL - 1) / NAPIER_PANEL, 8, leaf_task, d);
        NAPIER_TRY(napier_search_progress(s, 0.1 * (tree + 1) / TREES));
    }
    return NAPIER_OK;
}

/* Fills empty entries with random points or, if draws repeat too often, with the points that follow. */
static void fill_task(void *argument, int64_t i) {
    const descent *d = argument;
    const uint32_t key = napier_random_key(d->search->options->seed, STREAM_START);
    const uint64_t *last = d->lists + (i + 1) * d->size - 1;
    for (uint32_t draw = 0; draw < 4 * d->size && *last == NAPIER_NEAR_NONE; draw++) {
        uint32_t random[2];
        napier_philox(key, (uint32_t)i, draw, random);
        const int64_t j = napier_random_below(random[0], (uint32_t)d->n);
        if (j != i) {
            meet(d, i, j, NEW);
        }
    }
    for (int64_t step = 1; step < d->n && *last == NAPIER_NEAR_NONE; step++) {
        meet(d, i, (i + step) % d->n, NEW);
    }
}

/* ---- Which points know which ------------------------------------------------------------------------------------- */

/* Fills back[back_starts[v] ...] with the points whose lists hold v, ascending. */
static void turn_lists(const descent *d) {
    int64_t *starts = d->back_starts;
    memset(starts, 0, (size_t)(d->n + 1) * sizeof *starts);
    for (int64_t e = 0; e < d->n * d->size; e++) {
        starts[napier_near_index(d->lists[e]) + 1]++;
    }
    for (int64_t v = 0; v < d->n; v++) {
        starts[v + 1] += starts[v];
    }
    for (int64_t i = 0; i < d->n; i++) {
        for (int64_t e = i * d->size; e < (i + 1) * d->size; e++) {
            const uint32_t v = napier_near_index(d->lists[e]);
            d->back[starts[v]++] = (d->ages[e] == NEW ? NEW_THERE : 0u) | (uint32_t)i;
        }
    }
    for (int64_t v = d->n; v > 0; v--) {
        starts[v] = starts[v - 1];
    }
    starts[0] = 0;
}

/* Chooses from the points whose lists hold v: all if they are few, else at random, new ones first. */
static int64_t choose_back(const descent *d, int64_t v, int64_t most, uint64_t *chosen) {
    const uint32_t *back = d->back + d->back_starts[v];
    const int64_t count = d->back_starts[v + 1] - d->back_starts[v], kept = count < most ? count : most;
    napier_heap_clear(chosen, kept);
    for (int64_t i = 0; i < count && kept > 0; i++) {
        const uint32_t index = back[i] & ~NEW_THERE;
        uint32_t lot[2];
        napier_philox(d->lots_key, (uint32_t)v, index, lot);
        const uint64_t rank = (uint64_t)(back[i] & NEW_THERE ? 0 : 1) << 63 | (uint64_t)(lot[0] >> 1) << 32;
        napier_heap_offer(chosen, kept, rank | index);
    }
    return kept;
}

/* Collects the points that each point knows, new ones first. */
static void know_task(void *argument, int64_t v) {
    const descent *d = argument;
    uint64_t chosen[MOST_BACK];
    const uint64_t *list = d->lists + v * d->size;
    const uint8_t *ages = d->ages + v * d->size;
    uint32_t *known = d->known + v * d->most;
    const int64_t backs = choose_back(d, v, d->most - d->size, chosen);
    int64_t count = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < d->size; i++) {
            if ((ages[i] == NEW) == (pass == 0)) {
                known[count++] = napier_near_index(list[i]);
            }
        }
        for (int64_t i = 0; i < backs; i++) {
            if ((chosen[i] >> 63 == 0) == (pass == 0)) {
                known[count++] = napier_near_index(chosen[i]);
            }
        }
        d->counts[2 * v + (pass == 0 ? 1 : 0)] = (uint16_t)count;
    }
}

/* ---- A round ----------------------------------------------------------------------------------------------------- */

/* The candidates of a row, without most of those that come again. `seen` holds the last index of each slot; where another
 * index takes a slot, the former may come twice, which costs time but changes nothing: a list takes no index twice. There
 * are no branches, because no processor could predict them. */
typedef struct gathering {
    uint32_t *seen, *candidates, v;
    int64_t size, count; /* size of seen, a power of two */
} gathering;

static inline uint32_t *slot_of(const gathering *g, uint32_t index) {
    return &g->seen[index * 0x9e3779b1u >> 7 & (uint32_t)(g->size - 1)];
}

static inline void offer(gathering *g, uint32_t index) {
    uint32_t *slot = slot_of(g, index);
    g->candidates[g->count] = index;
    g->count += (*slot != index) & (index != g->v);
    *slot = index;
}

/* Collects the candidates of v: neighbours of neighbours that are reached through at least one new link. */
static int64_t gather(const descent *d, int64_t v, uint32_t *seen, uint32_t *candidates) {
    const uint32_t *known = d->known + v * d->most;
    const int64_t all = d->counts[2 * v], fresh = d->counts[2 * v + 1];
    gathering g = {seen, candidates, (uint32_t)v, d->seen_size, 0};
    memset(seen, 0xff, (size_t)d->seen_size * sizeof *seen);
    for (int64_t i = 0; i < d->size; i++) {
        const uint32_t index = napier_near_index(d->lists[v * d->size + i]);
        *slot_of(&g, index) = index;
    }
    for (int64_t i = 0; i < all; i++) {
        const uint32_t u = known[i];
        const uint32_t *theirs = d->known + (int64_t)u * d->most;
        const int64_t looked = i < fresh ? d->counts[2 * (int64_t)u] : d->counts[2 * (int64_t)u + 1];
        if (i < fresh) {
            offer(&g, u);
        }
        for (int64_t j = 0; j < looked; j++) {
            offer(&g, theirs[j]);
        }
    }
    return g.count;
}

/* Measures row v and its candidates, and prefetches the rows of the next ones. */
static int64_t meet_all(const descent *d, int64_t v, const uint32_t *candidates, int64_t count) {
    float distances[NAPIER_DISTANCES];
    int64_t changes = 0;
    for (int64_t c = 0; c < napier_least(count, TOGETHER); c++) {
        napier_search_fetch(d->search->samples, candidates[c]);
    }
    for (int64_t first = 0; first < count; first += TOGETHER) {
        const int64_t some = napier_least(count - first, TOGETHER), end = napier_least(count, first + 2 * TOGETHER);
        for (int64_t c = first + TOGETHER; c < end; c++) {
            napier_search_fetch(d->search->samples, candidates[c]);
        }
        napier_points_distances(d->search->samples, v, d->search->samples, candidates + first, some, distances);
        for (int64_t c = 0; c < some; c++) {
            changes += insert(d, v, napier_near_of(distances[c], candidates[first + c]), JUST_MET);
        }
    }
    return changes;
}

static void round_task(void *argument, int worker, int64_t begin, int64_t end) {
    const descent *d = argument;
    uint32_t *seen = d->seen + (int64_t)worker * d->seen_size;
    uint32_t *candidates = d->candidates + (int64_t)worker * d->most * (d->most + 1);
    int64_t changes = 0;
    for (int64_t i = begin; i < end; i++) {
        const int64_t v =
            d->order ? (int64_t)(uint32_t)d->order[i] : i; /* near rows together, because they read the same rows */
        const int64_t count = gather(d, v, seen, candidates);
        changes += meet_all(d, v, candidates, count);
    }
    d->changes[worker] += changes;
}

static void age_task(void *argument, int worker, int64_t begin, int64_t end) {
    const descent *d = argument;
    (void)worker;
    for (int64_t e = begin * d->size; e < end * d->size; e++) {
        d->ages[e] = d->ages[e] == JUST_MET ? NEW : OLD;
    }
}

/* ---- Recall ------------------------------------------------------------------------------------------------------ */

static int64_t checked_row(const descent *d, int64_t c) { return (int64_t)((double)c * (double)d->n / CHECKED); }

/* Measures a checked row against all others. */
static void reach_task(void *argument, int64_t c) {
    const descent *d = argument;
    uint64_t heap[NAPIER_MOST_FOR_DESCENT];
    const int64_t row = checked_row(d, c);
    napier_search_rows(d->search, row, row + 1, heap);
    d->reaches[c] = napier_near_distance(heap[0]);
}

/* The share of the checked rows' list entries that are no farther than the true last neighbour. */
static double recall_of(const descent *d) {
    const int64_t wanted = d->search->wanted;
    int64_t found = 0;
    for (int64_t c = 0; c < CHECKED; c++) {
        const uint64_t *list = d->lists + checked_row(d, c) * d->size;
        for (int64_t k = 0; k < wanted; k++) {
            found += napier_near_distance(list[k]) <= d->reaches[c];
        }
    }
    return (double)found / (double)(CHECKED * wanted);
}

/* The limit of the recall if its gains keep shrinking at the latest rate. */
static double forecast(double before, double last, double now) {
    const double gain = now - last, shrinks = gain / (last - before);
    return shrinks < 0.9 && last > before ? now + gain * shrinks / (1 - shrinks) : 1.0;
}

/* ---- Rounds ------------------------------------------------------------------------------------------------------ */

static int64_t play_round(descent *d, int workers) {
    const napier_search *s = d->search;
    memset(d->changes, 0, (size_t)workers * sizeof *d->changes);
    d->lots_key = napier_random_key(s->options->seed, STREAM_REVERSE + (uint32_t)d->round);
    turn_lists(d);
    napier_parallel_each(s->context, d->n, ROWS_CHUNK, know_task, d);
    napier_parallel(s->context, d->n, ROWS_CHUNK, round_task, d);
    napier_parallel(s->context, d->n, ROWS_CHUNK, age_task, d);
    int64_t changes = 0;
    for (int w = 0; w < workers; w++) {
        changes += d->changes[w];
    }
    return changes;
}

/* *recall is that of the final lists. */
static napier_status run_rounds(descent *d, int workers, double *recall) {
    const napier_search *s = d->search;
    napier_parallel_each(s->context, CHECKED, 1, reach_task, d);
    double before = 0.0, last = 0.0;
    bool done = false;
    *recall = recall_of(d);
    for (d->round = 0; d->round < MOST_ROUNDS && !done; d->round++) {
        const int64_t changes = play_round(d, workers);
        before = last;
        last = *recall;
        *recall = recall_of(d);
        done = *recall >= RECALL_AIMED_AT || (double)changes <= ENOUGH * (double)d->n * (double)d->size ||
               (d->round >= 2 && forecast(before, last, *recall) < RECALL_LEAST);
        NAPIER_TRY(napier_search_progress(
            s, *recall >= RECALL_LEAST && done ? 1.0 : 0.1 + 0.4 * (d->round + 1) / MOST_ROUNDS));
    }
    return NAPIER_OK;
}

/* ---- The search -------------------------------------------------------------------------------------------------- */

static napier_status make_lists(napier_memory *memory, descent *d) {
    d->lists = napier_take(memory, d->n * d->size, sizeof *d->lists);
    d->ages = napier_take(memory, d->n * d->size, sizeof *d->ages);
    d->order = d->search->samples->rows ? napier_take(memory, d->n, sizeof *d->order) : NULL;
    return napier_search_memory(d->search, memory->missing, "lists");
}

/* What the rounds need besides the lists. */
static napier_status make_room(napier_memory *memory, descent *d, int workers) {
    const int64_t n = d->n;
    d->known = napier_take(memory, n, (size_t)d->most * sizeof *d->known);
    d->counts = napier_take(memory, n, 2 * sizeof *d->counts);
    d->back_starts = napier_take(memory, n + 1, sizeof *d->back_starts);
    d->back = napier_take(memory, n * d->size, sizeof *d->back);
    d->changes = napier_take(memory, workers, sizeof *d->changes);
    d->reaches = napier_take(memory, CHECKED, sizeof *d->reaches);
    d->seen = napier_take(memory, workers, (size_t)d->seen_size * sizeof *d->seen);
    d->candidates = napier_take(memory, workers, (size_t)(d->most * (d->most + 1)) * sizeof *d->candidates);
    return napier_search_memory(d->search, memory->missing, "rounds");
}

/* The length of the lists: `wanted` and an addition that `longer` multiplies. */
static int64_t size_of(const napier_search *s, int64_t longer) {
    return napier_least(s->wanted + longer * (s->wanted / 4 + 18), s->samples->n - 1);
}

/* The number of points that a point knows, at most. */
static int64_t most_of(int64_t size) { return size + napier_least(size / 3, MOST_BACK); }

static void set_sizes(descent *d, int64_t longer) {
    d->size = size_of(d->search, longer);
    d->most = most_of(d->size);
    d->seen_size = 1024;
    while (d->seen_size < d->most * (d->most + 1)) {
        d->seen_size *= 2;
    }
}

static napier_status start(descent *d) {
    napier_heap_clear(d->lists, d->n * d->size);
    memset(d->ages, NEW, (size_t)(d->n * d->size));
    NAPIER_TRY(d->order ? plant_trees(d) : NAPIER_OK);
    napier_parallel_each(d->search->context, d->n, ROWS_CHUNK, fill_task, d);
    return NAPIER_OK;
}

/* One descent with lists of one length. */
static napier_status descend(const napier_search *s, int64_t longer, double *recall, int64_t *pairs) {
    descent d = {.search = s, .n = s->samples->n};
    const int workers = napier_workers(s->context, d.n, ROWS_CHUNK);
    NAPIER_MEMORY(memory, s->context);
    set_sizes(&d, longer);
    *pairs = d.most * d.most;
    NAPIER_TRY(make_lists(&memory, &d));
    NAPIER_TRY(start(&d));
    NAPIER_TRY(make_room(&memory, &d, workers));
    NAPIER_TRY(run_rounds(&d, workers, recall));
    for (int64_t i = 0; i < d.n; i++) {
        for (int64_t k = 0; k < s->wanted; k++) { /* descending order is a heap */
            s->nearest[i * s->wanted + k] = d.lists[i * d.size + s->wanted - 1 - k];
        }
    }
    return NAPIER_OK;
}

/* For each point. A descent measures about one and a half times the pairs of its first round, and each as the exact
 * search measures a pair (neighbors_subspace.h). */
static double steps_of(const napier_search *s, int64_t pairs) {
    return 1.5 * (double)pairs * (100 + (double)s->samples->width / 4);
}

double napier_search_descent_steps(const napier_search *s) {
    const int64_t most = most_of(size_of(s, 1));
    return steps_of(s, most * most);
}

/* Would lists of twice the length, with four times as many pairs, cost more than the full search? That reads rows in
 * the order of memory and, if there are bounds, measures few of its pairs. */
static bool is_dearer(const napier_search *s, int64_t pairs, double exact) {
    const int64_t each = s->samples->kind == NAPIER_POINTS_GENERAL ? FULL_PAIRS : FULL_BOUNDS;
    return exact > 0 ? steps_of(s, 4 * pairs) >= exact : 4 * pairs >= s->samples->n / each;
}

napier_status napier_search_descent(const napier_search *s, double exact) {
    napier_search rest = *s;
    for (int64_t longer = 1;; longer *= 2) {
        double recall = 0.0;
        int64_t pairs = 0;
        const napier_status status = descend(&rest, longer, &recall, &pairs);
        if (status || recall >= RECALL_LEAST) {
            return status;
        }
        rest.told += 0.5 * (1.0 - rest.told);
        if (is_dearer(s, pairs, exact)) {
            return napier_search_full(&rest);
        }
    }
}
