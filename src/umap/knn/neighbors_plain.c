/* umap/knn/neighbors_plain.c - all pairs for any metric; and distances that the caller computed. */
#include "core/base/parallel.h"
#include "umap/knn/neighbors_search.h"

enum {
    QUERIES_TOGETHER = 16, /* the rows of samples are read from memory once for all of them */
    SLABS = 64,            /* the number of progress reports */
    TEAMS_LEAST = 64,      /* teams of rows in a tournament, */
    TEAMS_PER_WORKER = 4,
    TEAM_ROWS = 4 /* with at least so many rows on average */
};

/* ---- Queries against all samples --------------------------------------------------------------------------------- */

typedef struct slab {
    const napier_search *search;
    int64_t first; /* query */
} slab;

static void number_from(int64_t first, uint32_t *which) {
    for (int64_t c = 0; c < NAPIER_DISTANCES; c++) {
        which[c] = (uint32_t)(first + c);
    }
}

void napier_search_rows(const napier_search *s, int64_t first, int64_t last, uint64_t *heaps) {
    uint32_t which[NAPIER_DISTANCES];
    float distances[NAPIER_DISTANCES];
    napier_heap_clear(heaps, (last - first) * s->wanted);
    for (int64_t j = 0; j < s->samples->n; j += NAPIER_DISTANCES) {
        const int64_t count = napier_least(s->samples->n - j, NAPIER_DISTANCES);
        number_from(j, which);
        for (int64_t i = first; i < last; i++) {
            napier_points_distances(s->queries, i, s->samples, which, count, distances);
            for (int64_t c = 0; c < count; c++) {
                if (which[c] != i || !napier_search_is_self(s)) {
                    napier_heap_offer(heaps + (i - first) * s->wanted, s->wanted,
                                      napier_near_of(distances[c], which[c]));
                }
            }
        }
    }
}

static void plain_task(void *argument, int worker, int64_t begin, int64_t end) {
    const slab *t = argument;
    const napier_search *s = t->search;
    (void)worker;
    for (int64_t first = t->first + begin; first < t->first + end; first += QUERIES_TOGETHER) {
        napier_search_rows(s, first, napier_least(first + QUERIES_TOGETHER, t->first + end),
                           s->nearest + first * s->wanted);
    }
}

/* ---- All pairs, each once ---------------------------------------------------------------------------------------- */

/* Teams of rows are paired as in a tournament (napier_tournament_pair), so in a round every heap has one writer. */
typedef struct pairing {
    const napier_search *search;
    float *farthest; /* [n] the distance on top of each heap */
    int64_t teams, round;
} pairing;

static int64_t team_start(const pairing *t, int64_t team) {
    return team * (t->search->samples->n / t->teams) + napier_least(team, t->search->samples->n % t->teams);
}

static void offer(const pairing *t, int64_t i, float distance, int64_t j) {
    const napier_search *s = t->search;
    uint64_t *heap = s->nearest + i * s->wanted;
    if (napier_heap_offer(heap, s->wanted, napier_near_of(distance, (uint32_t)j))) {
        t->farthest[i] = napier_near_distance(heap[0]);
    }
}

/* Measures row i and `count` rows from j on. */
static void pair_up(const pairing *t, int64_t i, int64_t j, int64_t count) {
    uint32_t which[NAPIER_DISTANCES];
    float distances[NAPIER_DISTANCES];
    number_from(j, which);
    napier_points_distances(t->search->samples, i, t->search->samples, which, count, distances);
    uint64_t near = t->search->samples->kernels->distance.within(distances, count, t->farthest[i], t->farthest + j);
    for (; near != 0; near &= near - 1) {
        const int64_t c = __builtin_ctzll(near);
        offer(t, i, distances[c], j + c);
        offer(t, j + c, distances[c], i);
    }
}

static void pairing_task(void *argument, int64_t index) {
    const pairing *t = argument;
    int64_t a = index, b = index;
    if (t->round > 0) {
        napier_tournament_pair(t->round, index, &a, &b);
    }
    const int64_t last = team_start(t, a + 1), other_last = team_start(t, b + 1);
    for (int64_t j = team_start(t, b); j < other_last; j += NAPIER_DISTANCES) {
        for (int64_t i = team_start(t, a); i < last; i++) {
            const int64_t end_j =
                a == b ? napier_least(i, other_last) : other_last; /* in its own team: only the rows before i */
            if (j < end_j) {
                pair_up(t, i, j, napier_least(end_j - j, NAPIER_DISTANCES));
            }
        }
    }
}

static napier_status search_pairs(const napier_search *s) {
    const int64_t n = s->samples->n, workers = s->context->threads;
    const int64_t most = workers * TEAMS_PER_WORKER > TEAMS_LEAST ? workers * TEAMS_PER_WORKER : TEAMS_LEAST;
    NAPIER_MEMORY(memory, s->context);
    pairing t = {s, napier_take(&memory, n, sizeof(float)), 1, 0};
    NAPIER_TRY(napier_search_memory(s, memory.missing, "distances"));
    while (t.teams < most && 2 * t.teams * TEAM_ROWS <= n) {
        t.teams *= 2;
    }
    napier_heap_clear(s->nearest, n * s->wanted);
    for (int64_t i = 0; i < n; i++) {
        t.farthest[i] = HUGE_VALF;
    }
    for (; t.round < t.teams; t.round++) {
        napier_parallel_each(s->context, t.round == 0 ? t.teams : t.teams / 2, 1, pairing_task, &t);
        NAPIER_TRY(napier_search_progress(s, (double)(t.round + 1) / (double)t.teams));
    }
    return NAPIER_OK;
}

/* ---- Slabs ------------------------------------------------------------------------------------------------------- */

/* Runs a task over all queries, slab by slab. */
static napier_status run_slabs(const napier_search *s, napier_task *task, int64_t chunk) {
    const int64_t queries = s->queries->n;
    const int64_t least = 4 * chunk * (int64_t)s->context->threads;
    const int64_t even = queries / SLABS + 1, size = (even > least ? even : least) / chunk * chunk;
    for (int64_t first = 0; first < queries; first += size) {
        const int64_t count = queries - first < size ? queries - first : size;
        slab t = {s, first};
        napier_parallel(s->context, count, chunk, task, &t);
        NAPIER_TRY(napier_search_progress(s, (double)(first + count) / (double)queries));
    }
    return NAPIER_OK;
}

napier_status napier_search_plain(const napier_search *s) {
    return napier_search_is_self(s) ? search_pairs(s) : run_slabs(s, plain_task, QUERIES_TOGETHER);
}

/* ---- Precomputed ------------------------------------------------------------------------------------------------- */

static void offer_stored(const napier_search *s, int64_t i, int64_t j, float distance) {
    if (!napier_search_is_self(s) || i != j) {
        napier_heap_offer(s->nearest + i * s->wanted, s->wanted,
                          napier_near_of(distance > 0.0f ? distance : 0.0f, (uint32_t)j));
    }
}

/* Row i of the queries holds the distances from i to all samples or, if sparse, to some of them. */
static void stored_task(void *argument, int worker, int64_t begin, int64_t end) {
    const slab *t = argument;
    const napier_search *s = t->search;
    const napier_points *q = s->queries;
    (void)worker;
    for (int64_t i = t->first + begin; i < t->first + end; i++) {
        napier_heap_clear(s->nearest + i * s->wanted, s->wanted);
        for (int64_t j = 0; q->rows && j < s->samples->n; j++) {
            offer_stored(s, i, j, q->rows[i * q->width + j]);
        }
        for (int64_t e = q->rows ? 0 : q->sparse.row_starts[i]; !q->rows && e < q->sparse.row_starts[i + 1]; e++) {
            offer_stored(s, i, q->sparse.columns[e], q->sparse.values[e]);
        }
    }
}

napier_status napier_search_stored(const napier_search *s) { return run_slabs(s, stored_task, QUERIES_TOGETHER); }
