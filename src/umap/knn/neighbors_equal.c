/* umap/knn/neighbors_equal.c - a search without the superfluous ones of many equal rows.
 *
 * Equal rows have the same distance from every row, and ties are broken by index. So of a group of equal rows only the
 * first `wanted` + 1 can be neighbours of any row, members of the group included. The neighbours of a later member are
 * those of the first member, and that member itself. The search leaves the later members out; otherwise it would
 * measure all pairs of the group.
 *
 * One pass over the rows in order finds the groups by hashing. A row with too many hash collisions (MOST_PROBES) counts
 * as different from all others. It stays in the search, which is always correct. */
#include <string.h>

#include "core/base/parallel.h"
#include "umap/knn/neighbors_search.h"

enum {
    MOST_PROBES = 64,
    LEAST_SHARE = 16, /* leaving rows out pays if at least one in so many can be */
    ROWS_CHUNK = 256,
    NOWHERE = -1
};

typedef struct grouping {
    const napier_search *search;
    int64_t n, slots; /* slots: size of the table, a power of two */
    uint64_t *hashes; /* [n] */
    int32_t *table;   /* [slots] the first row of each group, or NOWHERE */
    int32_t *first;   /* [n] the first equal row, possibly itself */
    int32_t *counts;  /* [n] for first rows: equal rows so far */
    int32_t *places;  /* [n] index among the rows that stay, or NOWHERE */
    int32_t *rows;    /* [kept] the rows that stay */
    int64_t kept;
    float *packed; /* [kept][width] */
    uint64_t *nearest;
} grouping;

/* ---- Groups ------------------------------------------------------------------------------------------------------ */

static uint64_t mixed(uint64_t h) {
    h = (h ^ h >> 32) * 0xd6e8feb86659fd93u;
    return h ^ h >> 32;
}

/* width is a multiple of 16. */
static uint64_t hash_row(const float *row, int64_t width) {
    uint64_t lanes[4] = {1, 2, 3, 4}, words[4];
    for (int64_t i = 0; i < width; i += 8) {
        memcpy(words, row + i, sizeof words);
        for (int l = 0; l < 4; l++) {
            lanes[l] = (lanes[l] ^ words[l]) * 0x9e3779b97f4a7c15u;
            lanes[l] ^= lanes[l] >> 29;
        }
    }
    return mixed(lanes[0] + mixed(lanes[1] + mixed(lanes[2] + mixed(lanes[3]))));
}

static void hash_task(void *argument, int64_t i) {
    const grouping *g = argument;
    const napier_points *points = g->search->samples;
    g->hashes[i] = hash_row(points->rows + i * points->width, points->width);
}

static bool is_equal(const grouping *g, int64_t i, int64_t j) {
    const napier_points *p = g->search->samples;
    return g->hashes[i] == g->hashes[j] &&
           memcmp(p->rows + i * p->width, p->rows + j * p->width, (size_t)p->width * sizeof *p->rows) == 0;
}

/* The first row equal to row i, which may be i. */
static int64_t first_like(const grouping *g, int64_t i) {
    uint64_t slot = g->hashes[i];
    for (int probe = 0; probe < MOST_PROBES; probe++, slot++) {
        int32_t *held = &g->table[slot & (uint64_t)(g->slots - 1)];
        if (*held == NOWHERE) {
            *held = (int32_t)i;
            return i;
        }
        if (is_equal(g, i, *held)) {
            return *held;
        }
    }
    return i;
}

/* Takes what is needed from now on from `memory`, and what is needed only to find the groups from `own`. */
static napier_status make_room(napier_memory *memory, napier_memory *own, grouping *g) {
    g->slots = 64;
    while (g->slots < 2 * g->n) {
        g->slots *= 2;
    }
    g->hashes = napier_take(own, g->n, sizeof *g->hashes);
    g->table = napier_take(own, g->slots, sizeof *g->table);
    g->counts = napier_take(own, g->n, sizeof *g->counts);
    g->first = napier_take(memory, g->n, sizeof *g->first);
    g->places = napier_take(memory, g->n, sizeof *g->places);
    g->rows = napier_take(memory, g->n, sizeof *g->rows);
    return napier_search_memory(g->search, own->missing || memory->missing, "groups");
}

static napier_status find_groups(napier_memory *memory, grouping *g) {
    NAPIER_MEMORY(own, memory->context);
    NAPIER_TRY(make_room(memory, &own, g));
    napier_parallel_each(g->search->context, g->n, ROWS_CHUNK, hash_task, g);
    for (int64_t i = 0; i < g->slots; i++) {
        g->table[i] = NOWHERE;
    }
    memset(g->counts, 0, (size_t)g->n * sizeof *g->counts);
    for (int64_t i = 0; i < g->n; i++) {
        const int64_t first = first_like(g, i);
        g->first[i] = (int32_t)first;
        const bool stays = g->counts[first] <= g->search->wanted;
        g->counts[first] += stays;
        g->places[i] = stays ? (int32_t)g->kept : NOWHERE;
        if (stays) {
            g->rows[g->kept++] = (int32_t)i;
        }
    }
    return NAPIER_OK;
}

/* ---- A search among the rows that stay --------------------------------------------------------------------------- */

static void pack_task(void *argument, int64_t i) {
    const grouping *g = argument;
    const napier_points *p = g->search->samples;
    memcpy(g->packed + i * p->width, p->rows + (int64_t)g->rows[i] * p->width, (size_t)p->width * sizeof *p->rows);
}

/* Converts the neighbours found to indices among all rows. The order is the same, so a heap stays a heap. */
static void rename_rows(const grouping *g, const uint64_t *found, uint64_t *nearest) {
    for (int64_t k = 0; k < g->search->wanted; k++) {
        const uint64_t near = found[k];
        nearest[k] = near == NAPIER_NEAR_NONE
                         ? near
                         : (near & ~(uint64_t)UINT32_MAX) | (uint32_t)g->rows[napier_near_index(near)];
    }
}

static void spread_task(void *argument, int64_t i) {
    const grouping *g = argument;
    const int64_t wanted = g->search->wanted;
    const bool self = napier_search_is_self(g->search);
    uint64_t *nearest = g->search->nearest + i * wanted;
    const int64_t from = !self ? i : g->places[i] != NOWHERE ? g->places[i] : g->places[g->first[i]];
    rename_rows(g, g->nearest + from * wanted, nearest);
    if (self && g->places[i] == NOWHERE) {
        napier_heap_offer(nearest, wanted, napier_near_of(0.0f, (uint32_t)g->first[i]));
    }
}

static napier_status search_kept(napier_memory *memory, grouping *g, napier_search_way *way) {
    const napier_search *s = g->search;
    const bool self = napier_search_is_self(s);
    g->packed = napier_take(memory, g->kept, (size_t)s->samples->width * sizeof *g->packed);
    g->nearest = napier_take(memory, self ? g->kept : s->queries->n, (size_t)s->wanted * sizeof *g->nearest);
    NAPIER_TRY(napier_search_memory(s, memory->missing, "copy"));
    napier_parallel_each(s->context, g->kept, ROWS_CHUNK, pack_task, g);
    napier_points kept = *s->samples;
    kept.n = g->kept;
    kept.rows = g->packed;
    napier_search among = *s;
    among.samples = &kept;
    among.queries = self ? &kept : s->queries;
    among.nearest = g->nearest;
    NAPIER_TRY(way(&among));
    napier_parallel_each(s->context, s->queries->n, ROWS_CHUNK, spread_task, g);
    return NAPIER_OK;
}

napier_status napier_search_distinct(const napier_search *s, napier_search_way *way) {
    grouping g = {.search = s, .n = s->samples->n};
    NAPIER_MEMORY(memory, s->context);
    NAPIER_TRY(find_groups(&memory, &g));
    if (g.n - g.kept >= g.n / LEAST_SHARE && g.kept < g.n) {
        return search_kept(&memory, &g, way);
    }
    napier_memory_free(&memory);
    return way(s);
}
