/* Weighted mergeable states: any split of a row over updates and states, and any order of merges, gives the bits of
 * napier_logsumexp_weighted and the same bytes; what does not fit is refused; the byte form survives hostile changes. */
#include "support/check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/formats.h"
#include "support/oracle.h"

enum { TILE = 1024, PARTS = 8 };

/* ---- Rows ---------------------------------------------------------------------------------------------------------- */

typedef enum weight_kind {
    WEIGHTS_ONE,
    WEIGHTS_SIGNED,
    WEIGHTS_CANCEL, /* 1 and -1 in turn */
    WEIGHTS_WIDE,   /* over the dtype's range */
    WEIGHTS_FEW,    /* most are 0 */
    WEIGHTS_SPECIAL /* some are inf or NaN */,
    WEIGHT_KINDS
} weight_kind;

static double weight_of(weight_kind kind, napier_dtype dtype, int64_t i, rng *r) {
    const double u = rng_uniform(r), reach = dtype == NAPIER_F64 ? 1000 : dtype == NAPIER_F16 ? 14 : 120;
    switch (kind) {
    case WEIGHTS_ONE: return 1;
    case WEIGHTS_SIGNED: return dtype_round(dtype, rng_normal(r));
    case WEIGHTS_CANCEL: return i % 2 ? -1 : 1;
    case WEIGHTS_WIDE: return dtype_round(dtype, (rng_bits(r) & 1 ? 1 : -1) * exp2(reach * (2 * u - 1)));
    case WEIGHTS_FEW: return u < 0.99 ? 0 : dtype_round(dtype, u);
    default: return u < 0.0002 ? HUGE_VAL : u < 0.0004 ? -HUGE_VAL : u < 0.0005 ? (double)NAN : dtype_round(dtype, u);
    }
}

/* A row, its weights, its one-shot results, and its name. */
typedef struct whole_row {
    grid x, b;
    double lse, sign, alone; /* alone: the logsumexp without a sign */
    napier_dtype compute;
    napier_softmax_options options;
    char name[120];
} whole_row;

static whole_row make_row(napier_context *c, row_kind rows, weight_kind weights, uint64_t seed, int64_t n,
                          napier_dtype x, napier_dtype b) {
    whole_row w = {.x = grid_plain(1, n, x), .b = grid_plain(1, n, b), .compute = compute_dtype(x, b)};
    rng r = rng_make(seed);
    double out[3] = {0, 0, 0};
    w.options = options_of(seed % 3 ? 1.0 : 0.7, NAPIER_ALGORITHM_AUTO, NAPIER_MASKED_NAN);
    snprintf(w.name, sizeof w.name, "%s, weights %d, seed %llu, %lld columns, %s and %s", row_kind_name(rows),
             (int)weights, (unsigned long long)seed, (long long)n, napier_dtype_name(x), napier_dtype_name(b));
    grid_fill(&w.x, rows, seed);
    for (int64_t i = 0; i < n; i++) {
        grid_set(&w.b, 0, i, weight_of(weights, b, i, &r));
    }
    const napier_vector none = {0};
    float narrow[3] = {0, 0, 0};
    void *const to = w.compute == NAPIER_F64 ? (void *)out : (void *)narrow;
    const size_t size = napier_dtype_size(w.compute);
    succeeded(c,
              napier_logsumexp_weighted(c, grid_input(&w.x), grid_input(&w.b), napier_array(to, 1, w.compute),
                                        napier_array((char *)to + size, 1, w.compute), &w.options),
              w.name);
    succeeded(c,
              napier_logsumexp_weighted(c, grid_input(&w.x), grid_input(&w.b),
                                        napier_array((char *)to + 2 * size, 1, w.compute), none, &w.options),
              w.name);
    w.lse = element_get(to, w.compute, 0);
    w.sign = element_get(to, w.compute, 1);
    w.alone = element_get(to, w.compute, 2);
    return w;
}

static napier_const_vector piece(const grid *g, int64_t first, int64_t size) {
    const napier_const_vector v = {(const unsigned char *)g->view.data +
                                       first * (int64_t)napier_dtype_size(g->view.dtype),
                                   size, 1, g->view.dtype};
    return v;
}

static napier_softmax_state *make_state(napier_context *c, const whole_row *w, int64_t first) {
    napier_softmax_state *s = NULL;
    succeeded(c, napier_softmax_state_create_weighted(c, w->compute, first, &w->options, &s), w->name);
    return s;
}

/* Elements [begin, end) of the row in updates of random lengths. */
static napier_softmax_state *part_of(napier_context *c, const whole_row *w, int64_t begin, int64_t end, rng *r) {
    napier_softmax_state *const s = make_state(c, w, begin);
    while (begin < end) {
        const int64_t n = 1 + rng_below(r, end - begin);
        succeeded(c, napier_softmax_state_update_weighted(c, s, piece(&w->x, begin, n), piece(&w->b, begin, n)),
                  w->name);
        begin += n;
    }
    return s;
}

static bool same_double(double a, double b) {
    uint64_t x, y;
    memcpy(&x, &a, sizeof x);
    memcpy(&y, &b, sizeof y);
    return x == y;
}

static void check_finished(napier_context *c, napier_softmax_state *s, const whole_row *w, const char *how) {
    double lse = -1, sign = -1, alone = -1, again = -1;
    succeeded(c, napier_softmax_state_finish_weighted(c, s, &lse, &sign), w->name);
    succeeded(c, napier_softmax_state_finish(c, s, &alone), w->name);
    succeeded(c, napier_softmax_state_finish_weighted(c, s, &again, NULL), w->name);
    expect(same_double(lse, w->lse) && same_double(sign, w->sign) && same_double(alone, w->alone) &&
               same_double(again, w->alone) && napier_softmax_state_count(s) == w->x.view.cols,
           "%s, %s: %.17g sign %g alone %g, one call %.17g sign %g alone %g", w->name, how, lse, sign, alone, w->lse,
           w->sign, w->alone);
}

static unsigned char *saved_bytes(napier_context *c, const napier_softmax_state *s, size_t *size) {
    *size = napier_softmax_state_size(s);
    unsigned char *const bytes = scratch((int64_t)*size, 1);
    works(napier_softmax_state_to_bytes, c, s, bytes, *size);
    return bytes;
}

/* ---- Splits -------------------------------------------------------------------------------------------------------- */

static int random_cuts(int64_t n, int64_t *cut, rng *r) {
    const int parts = 1 + (int)rng_below(r, PARTS);
    cut[0] = 0;
    cut[parts] = n;
    for (int p = 1; p < parts; p++) { /* sorted by insertion */
        const int64_t at = rng_below(r, n + 1), place = rng_below(r, 3) ? at : at - at % TILE;
        int slot = p;
        for (; slot > 1 && cut[slot - 1] > place; slot--) {
            cut[slot] = cut[slot - 1];
        }
        cut[slot] = place;
    }
    return parts;
}

/* Neighbours merge in a random order, some of them saved and loaded before. */
static void check_split(napier_context *c, const whole_row *w, rng *r) {
    int64_t cut[PARTS + 1];
    napier_softmax_state *s[PARTS];
    int left = random_cuts(w->x.view.cols, cut, r);
    for (int p = 0; p < left; p++) {
        s[p] = part_of(c, w, cut[p], cut[p + 1], r);
        if (rng_bits(r) & 1) {
            size_t size;
            unsigned char *const bytes = saved_bytes(c, s[p], &size);
            expect(size <= (w->compute == NAPIER_F64 ? 36u : 20u) * 1024u, "%s: %zu bytes", w->name, size);
            napier_softmax_state_destroy(s[p]);
            succeeded(c, napier_softmax_state_from_bytes(c, bytes, size, &s[p]), w->name);
        }
    }
    for (; left > 1; left--) {
        const int64_t at = rng_below(r, left - 1);
        const bool backwards = rng_bits(r) & 1;
        succeeded(c, napier_softmax_state_merge(c, s[at + backwards], s[at + !backwards]), w->name);
        napier_softmax_state_destroy(s[at + !backwards]);
        s[at] = s[at + backwards];
        memmove(s + at + 1, s + at + 2, (size_t)(left - 2 - at) * sizeof *s);
    }
    check_finished(c, s[0], w, "parts merged");
    napier_softmax_state *const whole = part_of(c, w, 0, w->x.view.cols, r);
    size_t a_size, b_size;
    unsigned char *const a = saved_bytes(c, s[0], &a_size), *const b = saved_bytes(c, whole, &b_size);
    expect(a_size == b_size && memcmp(a, b, a_size) == 0, "%s: other bytes than in one part", w->name);
    napier_softmax_state_destroy(whole);
    napier_softmax_state_destroy(s[0]);
}

static void splits(napier_context *c) {
    static const int64_t sizes[] = {1, 3, 300, 1023, 1024, 1025, 2048, 2500, 6000};
    for (uint64_t seed = 0; seed < ROW_KINDS * WEIGHT_KINDS * 3; seed++) {
        const napier_dtype x = all_dtypes[seed % 4], b = seed % 5 ? x : all_dtypes[seed / 5 % 4];
        const whole_row w = make_row(c, (row_kind)(seed % ROW_KINDS), (weight_kind)(seed / ROW_KINDS % WEIGHT_KINDS),
                                     seed, sizes[seed % 9], x, b);
        rng r = rng_make(seed);
        for (int turn = 0; turn < 2; turn++) {
            check_split(c, &w, &r);
        }
    }
}

/* A vocabulary over 1, 2, 3, 4 and 8 ranks, evenly and not. */
static void ranks(napier_context *c) {
    static const int counts[] = {1, 2, 3, 4, 8};
    const int64_t v = 151936;
    for (int k = 0; k < 10; k++) {
        const napier_dtype dtype = all_dtypes[k % 4];
        const whole_row w = make_row(c, k % 2 ? ROW_RISING : ROW_NORMAL, k % 3 ? WEIGHTS_SIGNED : WEIGHTS_WIDE,
                                     (uint64_t)k, v, dtype, dtype);
        const int n = counts[k % 5];
        rng r = rng_make((uint64_t)k);
        napier_softmax_state *all = make_state(c, &w, 0);
        for (int rank = 0; rank < n; rank++) {
            const int64_t begin = k < 5 ? v * rank / n : v * rank * rank / (n * n);
            const int64_t end = k < 5 ? v * (rank + 1) / n : v * (rank + 1) * (rank + 1) / (n * n);
            napier_softmax_state *const s = part_of(c, &w, begin, end, &r);
            succeeded(c, napier_softmax_state_merge(c, all, s), w.name);
            napier_softmax_state_destroy(s);
        }
        check_finished(c, all, &w, "ranks");
        napier_softmax_state_destroy(all);
    }
}

/* Whole tiles merge in any order, whichever of them has the largest logit or the largest term. */
static void any_order(napier_context *c) {
    enum { TILES = 6 };
    for (uint64_t seed = 0; seed < 60; seed++) {
        const napier_dtype dtype = seed % 4 == 3 ? NAPIER_F64 : NAPIER_F32;
        const whole_row w = make_row(c, (row_kind)(seed % ROW_KINDS), (weight_kind)(seed % WEIGHT_KINDS), seed,
                                     TILES * TILE, dtype, dtype);
        rng r = rng_make(seed);
        napier_softmax_state *s[TILES];
        for (int t = 0; t < TILES; t++) {
            s[t] = part_of(c, &w, t * TILE, (t + 1) * TILE, &r);
        }
        for (int left = TILES; left > 1; left--) {
            const int64_t i = rng_below(&r, left), other = rng_below(&r, left - 1), j = other >= i ? other + 1 : other;
            succeeded(c, napier_softmax_state_merge(c, s[i], s[j]), w.name);
            napier_softmax_state_destroy(s[j]);
            s[j] = s[left - 1];
        }
        check_finished(c, s[0], &w, "tiles in any order");
        napier_softmax_state_destroy(s[0]);
    }
}

/* ---- What is refused ----------------------------------------------------------------------------------------------- */

static void refusals(napier_context *c) {
    float x[4] = {1, 2, 3, 4}, y[4];
    double wide[4] = {1, 1, 1, 1};
    const napier_const_vector v = napier_const_array_f32(x, 4);
    napier_softmax_state *s = NULL, *plain = NULL, *none = (napier_softmax_state *)(uintptr_t)1;
    works(napier_softmax_state_create_weighted, c, NAPIER_F32, 0, NULL, &s);
    works(napier_softmax_state_create, c, NAPIER_F32, 4, NULL, &plain);
    invalid(c, napier_softmax_state_create_weighted(c, NAPIER_BF16, 0, NULL, &none), "compute", "bf16");
    expect(none == NULL, "*out is not NULL after a failure");
    invalid(c, napier_softmax_state_create_weighted(c, NAPIER_F32, 0, NULL, NULL), "out");
    invalid(c, napier_softmax_state_update(c, s, v), "state", "weights");
    invalid(c, napier_softmax_state_update_weighted(c, plain, v, v), "state", "not weighted");
    invalid(c, napier_softmax_state_update_weighted(c, NULL, v, v), "state");
    invalid(c, napier_softmax_state_update_weighted(c, s, v, napier_const_array_f32(x, 3)), "weights", "3");
    invalid(c, napier_softmax_state_update_weighted(c, s, v, napier_const_array_f32(NULL, 4)), "weights", "NULL");
    invalid(c, napier_softmax_state_update_weighted(c, s, v, napier_const_array(wide, 4, NAPIER_F64)), "weights",
            "f64");
    invalid(c, napier_softmax_state_update_weighted(c, s, napier_const_array(wide, 4, NAPIER_F64), v), "logits", "f64");
    const napier_const_vector endless = {x, INT64_C(1) << 38, 0, NAPIER_F32};
    invalid(c, napier_softmax_state_update_weighted(c, s, endless, endless), "2^38");
    expect(napier_softmax_state_count(s) == 0, "refused updates were counted");
    works(napier_softmax_state_update_weighted, c, s, v, v);
    works(napier_softmax_state_update, c, plain, v);
    refused(c, napier_softmax_state_merge(c, s, plain), NAPIER_STATE_MISMATCH, "weighted", NULL);
    refused(c, napier_softmax_state_merge(c, plain, s), NAPIER_STATE_MISMATCH, "weighted", NULL);
    works(napier_softmax_state_finish, c, s, NULL);
    invalid(c, napier_softmax_state_apply(c, s, NAPIER_KIND_SOFTMAX, v, napier_array_f32(y, 4)), "state", "weighted");
    invalid(c, napier_softmax_state_finish_weighted(c, NULL, wide, wide), "state");
    double sign = -1;
    works(napier_softmax_state_finish_weighted, c, plain, NULL, &sign);
    expect(sign == 1, "the sign of a sum without weights is %g", sign);
    napier_softmax_state_destroy(s);
    napier_softmax_state_destroy(plain);
}

/* A repeated weight: a stride of 0. */
static void repeated_weight(napier_context *c) {
    float x[3000], half = 0.5f, want = 0;
    double values[3000], lse = 0;
    row_fill_f32(ROW_NORMAL, 1, x, values, 3000);
    const napier_const_matrix one = {&half, 1, 3000, 0, 0, NAPIER_F32};
    const napier_vector none = {0};
    works(napier_logsumexp_weighted, c, napier_const_rows_f32(x, 1, 3000), one, napier_array_f32(&want, 1), none, NULL);
    napier_softmax_state *s = NULL;
    works(napier_softmax_state_create_weighted, c, NAPIER_F32, 0, NULL, &s);
    const napier_const_vector b = {&half, 3000, 0, NAPIER_F32};
    works(napier_softmax_state_update_weighted, c, s, napier_const_array_f32(x, 3000), b);
    works(napier_softmax_state_finish, c, s, &lse);
    expect(lse == (double)want, "%g, one call %g", lse, (double)want);
    napier_softmax_state_destroy(s);
}

/* ---- Hostile bytes ------------------------------------------------------------------------------------------------- */

static uint64_t checksum(const unsigned char *bytes, size_t size) {
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < size; i++) {
        h = (h ^ bytes[i]) * UINT64_C(0x100000001b3);
    }
    return h;
}

static void use(napier_context *c, napier_softmax_state *s) {
    static const float x[4] = {1, -2, 3e38f, 4}, b[4] = {1, -1, 1e-40f, 3e38f};
    double lse, sign;
    const napier_const_vector v = napier_const_array_f32(x, 4), w = napier_const_array_f32(b, 4);
    works(napier_softmax_state_finish_weighted, c, s, &lse, &sign);
    if (napier_softmax_state_update_weighted(c, s, v, w) == NAPIER_OK) {
        works(napier_softmax_state_finish_weighted, c, s, &lse, &sign);
    }
    napier_softmax_state_destroy(s);
}

/* Bytes are changed, and the checksum is made right. What is taken saves as the same bytes, and can be used. */
static void hostile_bytes(napier_context *c) {
    for (int k = 0; k < 4; k++) {
        const napier_dtype dtype = k % 2 ? NAPIER_F64 : NAPIER_F32;
        const whole_row w = make_row(c, k < 2 ? ROW_NORMAL : ROW_MASKED, WEIGHTS_SIGNED, 3, 2500, dtype, dtype);
        rng r = rng_make(9);
        napier_softmax_state *const s = part_of(c, &w, 0, 2500, &r);
        size_t size;
        unsigned char *const good = saved_bytes(c, s, &size), *const bytes = scratch((int64_t)size, 1);
        napier_softmax_state_destroy(s);
        for (int turn = 0; turn < 4000; turn++) {
            memcpy(bytes, good, size);
            for (int64_t patches = 1 + rng_below(&r, 3); patches > 0; patches--) {
                const int64_t reach = rng_below(&r, 2) ? 100 : (int64_t)(dtype == NAPIER_F64 ? 1664 : 392);
                const uint64_t flips = rng_bits(&r);
                bytes[rng_below(&r, reach)] ^= (unsigned char)(flips & 256 ? 1u << (flips & 7) : flips);
            }
            const uint64_t sum = checksum(bytes, size - 8);
            for (int i = 0; i < 8; i++) {
                bytes[size - 8 + (size_t)i] = (unsigned char)(sum >> (8 * i));
            }
            napier_softmax_state *taken = NULL;
            const napier_status status = napier_softmax_state_from_bytes(c, bytes, size, &taken);
            expect(status == NAPIER_OK || status == NAPIER_CORRUPT_DATA || status == NAPIER_STATE_MISMATCH, "%s",
                   napier_status_string(status));
            if (status == NAPIER_OK) {
                size_t again_size;
                unsigned char *const again = saved_bytes(c, taken, &again_size);
                expect(again_size == size && memcmp(again, bytes, size) == 0, "%s, turn %d: loaded, saved: other bytes",
                       w.name, turn);
                use(c, taken);
            }
        }
        for (size_t length = 0; length < size; length += 1 + length / 50) {
            unsigned char *const copy = scratch((int64_t)length, 1);
            napier_softmax_state *taken = NULL;
            memcpy(copy, good, length);
            expect(napier_softmax_state_from_bytes(c, copy, length, &taken) == NAPIER_CORRUPT_DATA, "%zu bytes",
                   length);
        }
    }
}

int main(void) {
    return RUN_TESTS("weighted_state", TEST_EACH_ISA(2, splits), TEST_2(ranks), TEST_EACH_ISA(1, any_order),
                     TEST_1(refusals), TEST_1(repeated_weight), TEST_1(hostile_bytes));
}
