/* fuzz_state_ops - a row cut into parts at any index, the parts filled block by block with any instruction set and
 * stride, saved, loaded, finished too early, merged in any order and in ways that must be refused: in the end the bits of
 * the one-shot call. A second game takes whole tiles apart and puts them together out of order. */
#include <math.h>

#include "fuzz.h"
#include "support/formats.h"

enum { MOST_ELEMENTS = 6200, MOST_PARTS = 8, TILE = 1024 };

typedef struct part {
    napier_softmax_state *state;
    int64_t begin, end;
} part;

typedef struct game {
    input in;
    napier_dtype dtype, compute;
    int64_t n;
    char *row; /* n elements, then room for a spread copy */
    part parts[MOST_PARTS];
    int count;
} game;

static napier_context *some_context(game *g) {
    for (;;) {
        const int isa = (int)take_below(&g->in, FUZZ_ISAS);
        napier_context *const context = fuzz_context(isa, 1 + (int)take_below(&g->in, 3));
        if (context) {
            return context;
        }
    }
}

static const char *element(const game *g, int64_t i) { return g->row + (size_t)i * napier_dtype_size(g->dtype); }

/* A state's bytes, to see that a refused merge changed nothing. */
static unsigned char *bytes_of(napier_context *context, const napier_softmax_state *state, size_t *size) {
    *size = napier_softmax_state_size(state);
    unsigned char *const bytes = fuzz_allocate(*size);
    REQUIRE_OK(context, napier_softmax_state_to_bytes(context, state, bytes, *size));
    return bytes;
}

static void append(game *g, part *p, int64_t upto) {
    while (p->end < upto) {
        napier_context *const context = some_context(g);
        const int64_t left = upto - p->end;
        int64_t step = take(&g->in) & 1 ? left : 1 + take_below(&g->in, 1500);
        step = step > left ? left : step;
        const size_t size = napier_dtype_size(g->dtype);
        const int64_t stride = 1 + take_below(&g->in, 3);
        char *const spread = fuzz_allocate((size_t)(step * stride) * size);
        for (int64_t i = 0; i < step; i++) {
            memcpy(spread + (size_t)(i * stride) * size, element(g, p->end + i), size);
        }
        const napier_const_vector block = {spread, step, stride, g->dtype};
        REQUIRE_OK(context, napier_softmax_state_update(context, p->state, block));
        free(spread);
        p->end += step;
        if (take(&g->in) % 8 == 7) { /* finishing early must not disturb what comes after */
            double lse;
            REQUIRE_OK(context, napier_softmax_state_finish(context, p->state, &lse));
        }
    }
}

static void reload(game *g, part *p) {
    napier_context *const context = some_context(g);
    size_t size, again;
    unsigned char *const bytes = bytes_of(context, p->state, &size);
    napier_softmax_state *loaded = NULL;
    REQUIRE_OK(context, napier_softmax_state_from_bytes(context, bytes, size, &loaded));
    REQUIRE(napier_softmax_state_first_index(loaded) == p->begin &&
                napier_softmax_state_count(loaded) == p->end - p->begin,
            "a loaded state lies elsewhere");
    unsigned char *const second = bytes_of(context, loaded, &again);
    REQUIRE(size == again && memcmp(bytes, second, size) == 0, "save, load, save: other bytes");
    free(bytes);
    free(second);
    napier_softmax_state_destroy(p->state);
    p->state = loaded;
}

static void make_parts(game *g, bool whole_tiles) {
    int64_t begin = 0;
    g->count = 1 + (int)take_below(&g->in, MOST_PARTS);
    for (int i = 0; i < g->count; i++) {
        int64_t end = i == g->count - 1 ? g->n : begin + take_below(&g->in, g->n - begin + 1);
        end = whole_tiles ? end / TILE * TILE : end;
        part *const p = &g->parts[i];
        p->begin = p->end = begin;
        napier_context *const context = some_context(g);
        REQUIRE_OK(context, napier_softmax_state_create(context, g->compute, begin, NULL, &p->state));
        append(g, p, end);
        if (take(&g->in) & 1) {
            reload(g, p);
        }
        begin = end;
    }
}

static bool on_tiles(const part *p) { return p->begin % TILE == 0 && p->end % TILE == 0; }

static bool may_merge(const part *a, const part *b) {
    const bool empty = a->begin == a->end || b->begin == b->end;
    return empty || a->end == b->begin || b->end == a->begin || (on_tiles(a) && on_tiles(b));
}

static void check_refused_merge(game *g, part *a, const part *b) {
    napier_context *const context = some_context(g);
    size_t size, again;
    unsigned char *const before = bytes_of(context, a->state, &size);
    REQUIRE(napier_softmax_state_merge(context, a->state, b->state) == NAPIER_STATE_MISMATCH,
            "[%lld, %lld) and [%lld, %lld) were merged", (long long)a->begin, (long long)a->end, (long long)b->begin,
            (long long)b->end);
    unsigned char *const after = bytes_of(context, a->state, &again);
    REQUIRE(size == again && memcmp(before, after, size) == 0, "a refused merge changed the state");
    free(before);
    free(after);
}

static void drop(game *g, int i) {
    napier_softmax_state_destroy(g->parts[i].state);
    for (int j = i; j < g->count - 1; j++) {
        g->parts[j] = g->parts[j + 1];
    }
    g->count--;
}

/* Merges two parts that are next to each other in the list (parts in between would be missing). */
static void merge_neighbours(game *g) {
    const int i = (int)take_below(&g->in, g->count - 1);
    const bool forward = take(&g->in) & 1;
    part *const a = &g->parts[i], *const b = &g->parts[i + 1];
    napier_context *const context = some_context(g);
    REQUIRE(napier_softmax_state_merge(context, forward ? a->state : b->state, forward ? b->state : a->state) ==
                NAPIER_OK,
            "%s", napier_last_error(context));
    const part joined = {forward ? a->state : b->state, a->begin, b->end};
    part *const kept = forward ? a : b;
    *kept = joined;
    drop(g, forward ? i + 1 : i);
}

static void merge_all(game *g) {
    while (g->count > 1) {
        if (g->count > 2 && take(&g->in) % 4 == 3) {
            part *const a = &g->parts[take_below(&g->in, g->count)], *const b = &g->parts[take_below(&g->in, g->count)];
            if (a != b && !may_merge(a, b)) {
                check_refused_merge(g, a, b);
            }
        }
        merge_neighbours(g);
    }
}

static void check_lse(game *g, double lse, const char *row) {
    uint64_t want = 0;
    napier_context *const context = fuzz_context(NAPIER_ISA_SCALAR, 1);
    REQUIRE_OK(context, napier_logsumexp(context, napier_const_rows(row, 1, g->n, g->dtype),
                                         napier_array(&want, 1, g->compute), NULL));
    uint64_t got = 0;
    element_set(&got, g->compute, 0, lse);
    REQUIRE(got == want, "logsumexp %a, not %a, of %lld elements", lse, element_get(&want, g->compute, 0),
            (long long)g->n);
}

static void check_apply(game *g, const napier_softmax_state *state) {
    const size_t size = napier_dtype_size(g->compute);
    char *const want = fuzz_allocate((size_t)g->n * size), *const got = fuzz_allocate((size_t)g->n * size);
    for (int kind = 0; kind < 2; kind++) {
        napier_context *const context = some_context(g);
        const napier_const_matrix in = napier_const_rows(g->row, 1, g->n, g->dtype);
        const napier_matrix out = napier_rows(want, 1, g->n, g->compute);
        REQUIRE_OK(context, (kind ? napier_log_softmax : napier_softmax)(context, in, out, NULL));
        const int64_t cut = take_below(&g->in, g->n + 1);
        for (int half = 0; half < 2; half++) {
            const int64_t first = half ? cut : 0, count = half ? g->n - cut : cut;
            const napier_const_vector logits = napier_const_array(element(g, first), count, g->dtype);
            const napier_vector result = napier_array(got + (size_t)first * size, count, g->compute);
            REQUIRE_OK(context, napier_softmax_state_apply(context, state, (napier_softmax_kind)kind, logits, result));
        }
        REQUIRE(memcmp(want, got, (size_t)g->n * size) == 0, "apply, kind %d: other bits than the one-shot call", kind);
    }
    free(want);
    free(got);
}

/* Tiles out of order: the part that is merged first need not be first in the row. Only the logsumexp can be asked for, and
 * it is that of the tiles in any order. */
static void merge_out_of_order(game *g) {
    while (g->count > 1) {
        napier_context *const context = some_context(g);
        const int i = 1 + (int)take_below(&g->in, g->count - 1);
        REQUIRE_OK(context, napier_softmax_state_merge(context, g->parts[0].state, g->parts[i].state));
        drop(g, i);
    }
}

FUZZ(in) {
    static const napier_dtype dtypes[] = {NAPIER_F32, NAPIER_F64, NAPIER_BF16, NAPIER_F16};
    game g;
    memset(&g, 0, sizeof g);
    g.in = in;
    g.dtype = dtypes[take(&g.in) % 4];
    g.compute = g.dtype == NAPIER_F64 || take(&g.in) % 4 == 3 ? NAPIER_F64 : NAPIER_F32;
    const bool whole_tiles = take(&g.in) % 4 == 3;
    g.n = take_below(&g.in, MOST_ELEMENTS);
    g.n = whole_tiles ? g.n / TILE * TILE : g.n;
    g.row = fuzz_allocate((size_t)g.n * napier_dtype_size(g.dtype));
    input elements = {g.in.at, g.in.left};
    fuzz_elements(&elements, g.dtype, g.row, g.n);
    make_parts(&g, whole_tiles);
    if (whole_tiles) {
        merge_out_of_order(&g);
    } else {
        merge_all(&g);
    }
    double lse = 0;
    napier_context *const context = some_context(&g);
    REQUIRE_OK(context, napier_softmax_state_finish(context, g.parts[0].state, &lse));
    REQUIRE(napier_softmax_state_count(g.parts[0].state) == g.n, "count");
    check_lse(&g, lse, g.row);
    check_apply(&g, g.parts[0].state);
    napier_softmax_state_destroy(g.parts[0].state);
    free(g.row);
}
