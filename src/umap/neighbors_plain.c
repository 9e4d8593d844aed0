/* umap/neighbors_plain.c - all pairs, one after the other, for any metric; and distances that the caller computed. */
#include "base/parallel.h"
#include "umap/neighbors_search.h"

enum {
    QUERIES_TOGETHER = 16, /* so that a sample's row is read from memory once for all of them */
    SLABS = 64             /* progress is told so often */
};

/* ---- All pairs --------------------------------------------------------------------------------------------------- */

typedef struct slab {
    const napier_search *search;
    int64_t first; /* query */
} slab;

static void plain_task(void *argument, int worker, int64_t begin, int64_t end) {
    const slab *t = argument;
    const napier_search *s = t->search;
    const bool self = napier_search_is_self(s);
    (void)worker;
    for (int64_t first = t->first + begin; first < t->first + end; first += QUERIES_TOGETHER) {
        const int64_t last = first + QUERIES_TOGETHER < t->first + end ? first + QUERIES_TOGETHER : t->first + end;
        for (int64_t i = first; i < last; i++) {
            napier_heap_clear(s->nearest + i * s->wanted, s->wanted);
        }
        for (int64_t j = 0; j < s->samples->n; j++) {
            for (int64_t i = first; i < last; i++) {
                if (!self || i != j) {
                    const float distance = napier_search_distance(s, i, j);
                    napier_heap_offer(s->nearest + i * s->wanted, s->wanted, napier_near_of(distance, (uint32_t)j));
                }
            }
        }
    }
}

/* Runs a task over all queries, slab by slab. */
static napier_status run_slabs(const napier_search *s, napier_task *task, int64_t chunk) {
    const int64_t queries = s->queries->n;
    const int64_t least = 4 * chunk * (int64_t)s->context->threads;
    const int64_t even = queries / SLABS + 1, size = (even > least ? even : least) / chunk * chunk;
    napier_status status = NAPIER_OK;
    for (int64_t first = 0; first < queries && !status; first += size) {
        const int64_t count = queries - first < size ? queries - first : size;
        slab t = {s, first};
        napier_parallel(s->context, count, chunk, task, &t);
        status = napier_search_progress(s, (double)(first + count) / (double)queries);
    }
    return status;
}

napier_status napier_search_plain(const napier_search *s) { return run_slabs(s, plain_task, QUERIES_TOGETHER); }

/* ---- Precomputed ------------------------------------------------------------------------------------------------- */

static void offer_stored(const napier_search *s, int64_t i, int64_t j, float distance) {
    if (!napier_search_is_self(s) || i != j) {
        napier_heap_offer(s->nearest + i * s->wanted, s->wanted,
                          napier_near_of(distance > 0.0f ? distance : 0.0f, (uint32_t)j));
    }
}

/* Row i of the queries holds the distances of i from all samples, or from those it can reach. */
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
