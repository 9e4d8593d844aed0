/* The mergeable state: any split of a row over updates and states, and any grouping and order of merges, gives the
 * bits of the one-shot call; what does not fit is an error that changes nothing; the byte form survives everything. */
#include "support/check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/formats.h"
#include "support/oracle.h"

enum { TILE = 1024, PARTS_LIMIT = 40 };

/* ---- States and rows --------------------------------------------------------------------------------------------- */

static napier_softmax_state *make_state(napier_context *context, napier_dtype compute, int64_t first,
                                        const napier_softmax_options *options) {
    napier_softmax_state *s = NULL;
    if (napier_softmax_state_create(context, compute, first, options, &s) != NAPIER_OK) {
        fail_msg("state at %lld: %s", (long long)first, napier_last_error(context));
    }
    return s;
}

/* The byte form of a state, in memory of the caller's. */
static unsigned char *saved_bytes(napier_context *context, const napier_softmax_state *s, size_t *size) {
    *size = napier_softmax_state_size(s);
    unsigned char *const bytes = scratch((int64_t)*size, 1);
    works(napier_softmax_state_to_bytes, context, s, bytes, *size);
    return bytes;
}

static bool same_state(napier_context *context, const napier_softmax_state *a, const napier_softmax_state *b) {
    size_t a_size, b_size;
    unsigned char *const a_bytes = saved_bytes(context, a, &a_size), *const b_bytes = saved_bytes(context, b, &b_size);
    const bool same = a_size == b_size && memcmp(a_bytes, b_bytes, a_size) == 0;
    return same;
}

/* A row, its one-shot results, and its name. */
typedef struct whole_row {
    grid logits, probs, logprobs, lse;
    napier_dtype compute;
    napier_softmax_options options;
    char name[120];
} whole_row;

static whole_row make_row(napier_context *context, row_kind kind, uint64_t seed, int64_t n, napier_dtype in,
                          napier_dtype out, double temperature) {
    whole_row w;
    w.logits = grid_plain(1, n, in);
    w.probs = grid_plain(1, n, out);
    w.logprobs = grid_plain(1, n, out);
    w.compute = compute_dtype(in, out);
    w.lse = grid_plain(1, 1, w.compute);
    w.options = options_of(temperature, NAPIER_ALGORITHM_AUTO, seed % 2 ? NAPIER_MASKED_ZERO : NAPIER_MASKED_NAN);
    snprintf(w.name, sizeof w.name, "%s, seed %llu, %lld columns, %s to %s, T = %g", row_kind_name(kind),
             (unsigned long long)seed, (long long)n, napier_dtype_name(in), napier_dtype_name(out), temperature);
    grid_fill(&w.logits, kind, seed);
    succeeded(context, operation_run(context, OP_SOFTMAX, grid_input(&w.logits), w.probs.view, &w.options), w.name);
    succeeded(context, operation_run(context, OP_LOG_SOFTMAX, grid_input(&w.logits), w.logprobs.view, &w.options),
              w.name);
    succeeded(context, operation_run(context, OP_LOGSUMEXP, grid_input(&w.logits), w.lse.view, &w.options), w.name);
    return w;
}

static napier_const_vector piece(const grid *g, int64_t first, int64_t size) {
    const napier_const_vector v = {(const unsigned char *)g->view.data +
                                       first * (int64_t)napier_dtype_size(g->view.dtype),
                                   size, 1, g->view.dtype};
    return v;
}

/* Elements [first, first + size) of the row in updates of random lengths, empty ones among them. */
static void update_in_blocks(napier_context *context, napier_softmax_state *s, const whole_row *w, int64_t first,
                             int64_t size, rng *r) {
    for (int64_t done = 0; done < size;) {
        int64_t block = rng_below(r, rng_below(r, 3) ? 1 + size : 40);
        block = block > size - done ? size - done : block;
        succeeded(context, napier_softmax_state_update(context, s, piece(&w->logits, first + done, block)), w->name);
        done += block;
    }
}

/* The finished state gives the logsumexp, and block by block the results, of the one-shot call. */
static void check_finished(napier_context *context, napier_softmax_state *s, const whole_row *w, rng *r,
                           const char *how) {
    double lse = -1;
    const int64_t n = w->logits.view.cols;
    expect(napier_softmax_state_count(s) == n, "%s, %s: holds %lld elements", w->name, how,
           (long long)napier_softmax_state_count(s));
    expect(napier_softmax_state_first_index(s) == 0, "%s, %s: starts at %lld", w->name, how,
           (long long)napier_softmax_state_first_index(s));
    if (!succeeded(context, napier_softmax_state_finish(context, s, &lse), w->name)) {
        return;
    }
    const uint64_t wanted = grid_bits(&w->lse, 0, 0), got = dtype_bits(w->compute, lse);
    expect(got == wanted && (isnan(lse) || dtype_round(w->compute, lse) == lse),
           "%s, %s: logsumexp %#llx, one-shot %#llx", w->name, how, (unsigned long long)got,
           (unsigned long long)wanted);
    const grid *const expected[2] = {&w->probs, &w->logprobs};
    for (row_kind kind = 0; kind < 2; kind++) {
        grid out = grid_plain(1, n, expected[kind]->view.dtype);
        for (int64_t first = 0; first < n;) {
            const int64_t size = 1 + rng_below(r, n - first);
            const napier_const_vector block = piece(&out, first, size);
            const napier_vector result = {(void *)(uintptr_t)block.data, size, 1, block.dtype};
            succeeded(context,
                      napier_softmax_state_apply(context, s, (napier_softmax_kind)kind, piece(&w->logits, first, size),
                                                 result),
                      w->name);
            first += size;
        }
        if (grid_differences(&out, expected[kind], kind ? "apply log_softmax" : "apply softmax")) {
            problem("    ... where %s, %s", w->name, how);
        }
    }
}

/* ---- Splits and merges ------------------------------------------------------------------------------------------- */

/* A row cut into parts at `cut`, each in a state of its own, merged in a random order of neighbours. */
static void merge_neighbours(napier_context *context, const whole_row *w, const int64_t *cut, int parts, rng *r) {
    napier_softmax_state *states[PARTS_LIMIT];
    for (int p = 0; p < parts; p++) {
        states[p] = make_state(context, w->compute, cut[p], &w->options);
        update_in_blocks(context, states[p], w, cut[p], cut[p + 1] - cut[p], r);
    }
    int left = parts;
    while (left > 1) {
        const int64_t at = rng_below(r, left - 1);
        const bool backwards = rng_bits(r) & 1; /* the later part takes the earlier one in */
        napier_softmax_state *const into = states[at + backwards], *const from = states[at + !backwards];
        succeeded(context, napier_softmax_state_merge(context, into, from), w->name);
        napier_softmax_state_destroy(from);
        states[at] = into;
        for (int64_t p = at + 1; p < left - 1; p++) {
            states[p] = states[p + 1];
        }
        left--;
    }
    check_finished(context, states[0], w, r, "neighbours merged");
    napier_softmax_state_destroy(states[0]);
}

/* Cuts at multiples of a tile: any order of any parts. */
static void merge_in_any_order(napier_context *context, const whole_row *w, rng *r) {
    const int64_t n = w->logits.view.cols, tiles = n / TILE;
    const int64_t part = 1 + rng_below(r, tiles / 3 + 1);
    napier_softmax_state *states[PARTS_LIMIT * 4];
    int count = 0;
    for (int64_t first = 0; first < n && count < PARTS_LIMIT * 4; first += part * TILE) {
        const int64_t size = n - first < part * TILE ? n - first : part * TILE;
        states[count] = make_state(context, w->compute, first, &w->options);
        update_in_blocks(context, states[count++], w, first, size, r);
    }
    if (n % TILE) { /* the last part ends inside a tile: it is merged last, when it has a neighbour */
        count--;
    }
    napier_softmax_state *const last = n % TILE ? states[count] : NULL;
    while (count > 1) {
        const int64_t i = rng_below(r, count), other = rng_below(r, count - 1), j = other >= i ? other + 1 : other;
        succeeded(context, napier_softmax_state_merge(context, states[i], states[j]), w->name);
        napier_softmax_state_destroy(states[j]);
        states[j] = states[--count];
    }
    if (last && count == 1) {
        succeeded(context, napier_softmax_state_merge(context, states[0], last), w->name);
        napier_softmax_state_destroy(last);
        check_finished(context, states[0], w, r, "aligned parts in any order, then the tail");
        napier_softmax_state_destroy(states[0]);
    } else {
        napier_softmax_state *const only = count == 1 ? states[0] : last;
        check_finished(context, only, w, r, "aligned parts in any order");
        napier_softmax_state_destroy(only);
    }
}

static int random_cuts(int64_t n, int64_t *cut, rng *r) {
    const int parts = 1 + (int)rng_below(r, n < 50 ? 4 : 12);
    cut[0] = 0;
    for (int p = 1; p < parts; p++) {
        int64_t at = rng_below(r, n + 1);
        if (rng_below(r, 4) == 0) {
            at -= at % TILE;
        }
        int64_t slot = p;
        for (; slot > 1 && cut[slot - 1] > at; slot--) {
            cut[slot] = cut[slot - 1];
        }
        cut[slot] = at;
    }
    cut[parts] = n;
    return parts;
}

static void check_splits(napier_context *context, row_kind kind, uint64_t seed, int64_t n, napier_dtype in,
                         napier_dtype out, double temperature, int repeats) {
    whole_row w = make_row(context, kind, seed, n, in, out, temperature);
    rng r = rng_make(seed + (uint64_t)n);
    for (int i = 0; i < repeats; i++) {
        int64_t cut[PARTS_LIMIT + 1];
        const int parts = random_cuts(n, cut, &r);
        merge_neighbours(context, &w, cut, parts, &r);
        merge_in_any_order(context, &w, &r);
    }
}

static const int64_t state_sizes[] = {1, 2, 17, 256, 1000, 1023, 1024, 1025, 2047, 2048, 2049, 3000, 4096, 7000};
enum { STATE_SIZES = sizeof state_sizes / sizeof *state_sizes };

static void test_splits_of_f32(napier_context *context) {
    for (row_kind kind = 0; kind < ROW_KINDS; kind++) {
        for (int s = 0; s < STATE_SIZES; s++) {
            check_splits(context, kind, (uint64_t)kind + (uint64_t)s, state_sizes[s], NAPIER_F32, NAPIER_F32, 1.0, 3);
        }
    }
}

static void test_splits_of_every_dtype(napier_context *context) {
    for (row_kind kind = 0; kind < ROW_KINDS; kind++) {
        for (int d = 0; d < DTYPE_COUNT * DTYPE_COUNT; d++) {
            const int64_t n = state_sizes[(d + (int)kind) % STATE_SIZES];
            check_splits(context, kind, (uint64_t)d, n, all_dtypes[d / DTYPE_COUNT], all_dtypes[d % DTYPE_COUNT],
                         d % 3 ? 1.0 : 0.7, 2);
        }
    }
}

/* A vocabulary in two shards of 75,968 columns, which is no multiple of a tile; and in eight. */
static void test_vocabulary_in_shards(napier_context *context) {
    static const int shards[] = {2, 8};
    for (size_t i = 0; i < 2; i++) {
        whole_row w =
            make_row(context, i ? ROW_MASKED : ROW_NORMAL, 4, 151936, i ? NAPIER_BF16 : NAPIER_F32, NAPIER_F32, 1.0);
        rng r = rng_make(i);
        int64_t cut[9];
        for (int p = 0; p <= shards[i]; p++) {
            cut[p] = 151936 / shards[i] * p;
        }
        merge_neighbours(context, &w, cut, shards[i], &r);
    }
}

/* Strided blocks: a row that is a column of a matrix, backwards too. */
static void test_strided_updates(napier_context *context) {
    enum { N = 3000 };
    static const int64_t strides[] = {-1, 2, 7, -3};
    whole_row w = make_row(context, ROW_NORMAL, 8, N, NAPIER_F32, NAPIER_F32, 1.0);
    for (size_t i = 0; i < sizeof strides / sizeof *strides; i++) {
        const int64_t stride = strides[i], span = stride < 0 ? -stride : stride;
        float *const room = scratch(N * span, sizeof *room), *const out = scratch(N * span, sizeof *out);
        float *const start = stride < 0 ? room + (N - 1) * span : room;
        float *const out_start = stride < 0 ? out + (N - 1) * span : out;
        for (int64_t j = 0; j < N; j++) {
            start[j * stride] = (float)grid_get(&w.logits, 0, j);
        }
        napier_softmax_state *const s = make_state(context, NAPIER_F32, 0, &w.options);
        const napier_const_vector all = {start, N, stride, NAPIER_F32};
        const napier_vector result = {out_start, N, stride, NAPIER_F32};
        works(napier_softmax_state_update, context, s, all);
        works(napier_softmax_state_finish, context, s, NULL);
        works(napier_softmax_state_apply, context, s, NAPIER_KIND_SOFTMAX, all, result);
        for (int64_t j = 0; j < N; j++) {
            if (!expect(f32_bits(out_start[j * stride]) == grid_bits(&w.probs, 0, j), "stride %lld: element %lld",
                        (long long)stride, (long long)j)) {
                break;
            }
        }
        napier_softmax_state_destroy(s);
    }
}

/* Finished, updated, finished again; finished, merged, finished again; applied in place. */
static void test_finish_again(napier_context *context) {
    enum { N = 2500 };
    whole_row w = make_row(context, ROW_NORMAL, 12, N, NAPIER_F32, NAPIER_F32, 1.0);
    rng r = rng_make(0);
    napier_softmax_state *const s = make_state(context, NAPIER_F32, 0, &w.options);
    napier_softmax_state *const tail = make_state(context, NAPIER_F32, 2000, &w.options);
    works(napier_softmax_state_update, context, tail, piece(&w.logits, 2000, N - 2000));
    double lse;
    for (int64_t i = 0; i < 2000; i += 250) {
        works(napier_softmax_state_update, context, s, piece(&w.logits, i, 250));
        works(napier_softmax_state_finish, context, s, &lse);
        float part = 0;
        works(napier_logsumexp, context, napier_const_rows_f32(w.logits.view.data, 1, i + 250),
              napier_array_f32(&part, 1), &w.options);
        expect((double)part == lse, "after %lld elements: %.9g, one-shot %.9g", (long long)i + 250, lse, (double)part);
        works(napier_softmax_state_finish, context, tail, NULL);
    }
    works(napier_softmax_state_merge, context, s, tail);
    float one = 0, result = 0;
    refused(context,
            napier_softmax_state_apply(context, s, NAPIER_KIND_SOFTMAX, napier_const_array_f32(&one, 1),
                                       napier_array_f32(&result, 1)),
            NAPIER_STATE_MISMATCH, "finish", NULL);
    check_finished(context, s, &w, &r, "after many finishes");
    napier_matrix view = w.logits.view;
    const napier_vector in_place = {view.data, N, 1, NAPIER_F32};
    works(napier_softmax_state_apply, context, s, NAPIER_KIND_SOFTMAX, piece(&w.logits, 0, N), in_place);
    expect(grid_differences(&w.logits, &w.probs, "apply in place") == 0, "apply in place");
    napier_softmax_state_destroy(s);
    napier_softmax_state_destroy(tail);
}

/* Nothing, and only -inf, anywhere in the row. */
static void test_empty_and_masked_parts(napier_context *context) {
    double lse = 0;
    napier_softmax_state *const empty = make_state(context, NAPIER_F32, 0, NULL);
    works(napier_softmax_state_update, context, empty, napier_const_array_f32(NULL, 0));
    works(napier_softmax_state_finish, context, empty, &lse);
    expect(isinf(lse) && lse < 0, "logsumexp of nothing is %g", lse);
    expect(napier_softmax_state_count(empty) == 0, "an empty state holds %lld",
           (long long)napier_softmax_state_count(empty));

    /* [5 ordinary, 2000 -inf, 5 ordinary], with empty states on both sides and from elsewhere. */
    float row[2010];
    for (int i = 0; i < 2010; i++) {
        row[i] = i < 5 || i >= 2005 ? (float)i * 1e-3f : -INFINITY;
    }
    float one_shot = 0;
    works(napier_logsumexp, context, napier_const_rows_f32(row, 1, 2010), napier_array_f32(&one_shot, 1), NULL);
    napier_softmax_state *const a = make_state(context, NAPIER_F32, 0, NULL),
                                *const b = make_state(context, NAPIER_F32, 5, NULL),
                                *const c = make_state(context, NAPIER_F32, 2005, NULL),
                                *const elsewhere = make_state(context, NAPIER_F32, 77777, NULL);
    works(napier_softmax_state_update, context, a, napier_const_array_f32(row, 5));
    works(napier_softmax_state_update, context, b, napier_const_array_f32(row + 5, 2000));
    works(napier_softmax_state_update, context, c, napier_const_array_f32(row + 2005, 5));
    works(napier_softmax_state_finish, context, b, &lse);
    expect(isinf(lse) && lse < 0, "logsumexp of only -inf is %g", lse);
    works(napier_softmax_state_merge, context, b, c);
    works(napier_softmax_state_merge, context, b, elsewhere);
    works(napier_softmax_state_merge, context, b, a);
    works(napier_softmax_state_merge, context, elsewhere, b);
    napier_softmax_state *const both[2] = {b, elsewhere};
    for (int i = 0; i < 2; i++) {
        expect(napier_softmax_state_first_index(both[i]) == 0 && napier_softmax_state_count(both[i]) == 2010,
               "starts at %lld, holds %lld", (long long)napier_softmax_state_first_index(both[i]),
               (long long)napier_softmax_state_count(both[i]));
        works(napier_softmax_state_finish, context, both[i], &lse);
        expect(lse == (double)one_shot, "logsumexp %.9g, one-shot %.9g", lse, (double)one_shot);
    }
    napier_softmax_state_destroy(a);
    napier_softmax_state_destroy(b);
    napier_softmax_state_destroy(c);
    napier_softmax_state_destroy(elsewhere);
    napier_softmax_state_destroy(empty);
    napier_softmax_state_destroy(NULL);
}

/* A part far from index 0 keeps to the row's tiles. */
static void test_far_indices(napier_context *context) {
    enum { N = 4000 };
    whole_row w = make_row(context, ROW_NORMAL, 3, N, NAPIER_F32, NAPIER_F32, 1.0);
    static const int64_t starts[] = {1024, 1024 * (INT64_C(1) << 30), 5 * 1024};
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        napier_softmax_state *const left = make_state(context, NAPIER_F32, starts[i], &w.options);
        napier_softmax_state *const right = make_state(context, NAPIER_F32, starts[i] + 777, &w.options);
        works(napier_softmax_state_update, context, right, piece(&w.logits, 777, N - 777));
        works(napier_softmax_state_update, context, left, piece(&w.logits, 0, 777));
        works(napier_softmax_state_merge, context, right, left);
        double lse = 0;
        works(napier_softmax_state_finish, context, right, &lse);
        expect(napier_softmax_state_first_index(right) == starts[i], "starts at %lld",
               (long long)napier_softmax_state_first_index(right));
        expect(dtype_bits(NAPIER_F32, lse) == grid_bits(&w.lse, 0, 0), "from index %lld: another logsumexp",
               (long long)starts[i]);
        napier_softmax_state_destroy(left);
        napier_softmax_state_destroy(right);
    }
}

/* ---- What does not fit ------------------------------------------------------------------------------------------- */

static void refused_merge(napier_context *context, napier_softmax_state *into, const napier_softmax_state *from,
                          const char *word) {
    size_t size;
    unsigned char *const before = saved_bytes(context, into, &size);
    refused(context, napier_softmax_state_merge(context, into, from), NAPIER_STATE_MISMATCH, word, NULL);
    size_t size_after;
    unsigned char *const after = saved_bytes(context, into, &size_after);
    expect(size == size_after && memcmp(before, after, size) == 0, "a refused merge (%s) changed the state", word);
}

static void test_mismatched_states(napier_context *context) {
    float x[3000];
    for (int i = 0; i < 3000; i++) {
        x[i] = (float)(i % 91) * 0.25f;
    }
    const napier_softmax_options plain = NAPIER_SOFTMAX_OPTIONS_INIT;
    const napier_softmax_options warm = options_of(2.0, NAPIER_ALGORITHM_AUTO, NAPIER_MASKED_NAN);
    const napier_softmax_options zero = options_of(1.0, NAPIER_ALGORITHM_AUTO, NAPIER_MASKED_ZERO);
    const napier_softmax_options online = options_of(1.0, NAPIER_ALGORITHM_ONLINE, NAPIER_MASKED_NAN);
    napier_softmax_state *const into = make_state(context, NAPIER_F32, 0, &plain);
    works(napier_softmax_state_update, context, into, napier_const_array_f32(x, 1500));
    const struct {
        napier_dtype compute;
        int64_t first, size;
        const napier_softmax_options *options;
        const char *word;
    } bad[] = {
        {NAPIER_F64, 1500, 100, &plain, "f64"},        {NAPIER_F32, 1500, 100, &warm, "temperature"},
        {NAPIER_F32, 1500, 100, &zero, "masked_rows"}, {NAPIER_F32, 1501, 100, &plain, "1501"},
        {NAPIER_F32, 0, 1500, &plain, "1500"},         {NAPIER_F32, 2048, 100, &plain, "2048"},
        {NAPIER_F32, 1400, 100, &plain, "1400"},       {NAPIER_F32, 3072, 1024, &plain, "3072"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        napier_softmax_state *const from = make_state(context, bad[i].compute, bad[i].first, bad[i].options);
        works(napier_softmax_state_update, context, from, napier_const_array_f32(x, bad[i].size));
        refused_merge(context, into, from, bad[i].word);
        refused_merge(context, from, into, bad[i].word);
        napier_softmax_state_destroy(from);
    }
    /* The algorithm is no part of a state. */
    napier_softmax_state *const other = make_state(context, NAPIER_F32, 1500, &online);
    works(napier_softmax_state_update, context, other, napier_const_array_f32(x + 1500, 1500));
    works(napier_softmax_state_merge, context, into, other);
    napier_softmax_state_destroy(other);
    napier_softmax_state_destroy(into);
}

/* An empty part may still be of another sort: that is a mismatch too. */
static void test_empty_part_of_another_sort(napier_context *context) {
    const napier_softmax_options warm = options_of(2.0, NAPIER_ALGORITHM_AUTO, NAPIER_MASKED_NAN);
    napier_softmax_state *const into = make_state(context, NAPIER_F32, 0, NULL);
    napier_softmax_state *const other = make_state(context, NAPIER_F32, 0, &warm);
    refused_merge(context, into, other, "temperature");
    napier_softmax_state_destroy(into);
    napier_softmax_state_destroy(other);
}

static void test_bad_state_arguments(napier_context *context) {
    napier_softmax_state *s = (napier_softmax_state *)(uintptr_t)1;
    invalid(context, napier_softmax_state_create(context, NAPIER_F16, 0, NULL, &s), "compute", "f16");
    expect(s == NULL, "*out is not NULL after a failure");
    invalid(context, napier_softmax_state_create(context, (napier_dtype)9, 0, NULL, &s), "compute");
    invalid(context, napier_softmax_state_create(context, NAPIER_F32, -3, NULL, &s), "first_index", "-3");
    invalid(context, napier_softmax_state_create(context, NAPIER_F32, 0, NULL, NULL), "out");
    napier_softmax_options options = options_of(-2.0, NAPIER_ALGORITHM_AUTO, NAPIER_MASKED_NAN);
    invalid(context, napier_softmax_state_create(context, NAPIER_F32, 0, &options, &s), "temperature", "-2");
    expect(napier_softmax_state_create(NULL, NAPIER_F32, 0, NULL, &s) == NAPIER_INVALID_ARGUMENT, "no context");

    s = make_state(context, NAPIER_F32, 0, NULL);
    double wide[4] = {0, 0, 0, 0};
    float x[4] = {0, 0, 0, 0};
    const napier_const_vector narrow = napier_const_array_f32(x, 4);
    invalid(context, napier_softmax_state_update(context, s, napier_const_array(wide, 4, NAPIER_F64)), "logits", "f64");
    invalid(context, napier_softmax_state_update(context, s, napier_const_array_f32(x, -4)), "logits", "-4");
    invalid(context, napier_softmax_state_update(context, s, napier_const_array_f32(NULL, 4)), "logits", "NULL");
    invalid(context, napier_softmax_state_update(context, NULL, narrow), "state");
    const napier_const_vector endless = {x, INT64_C(1) << 40, 0, NAPIER_F32};
    invalid(context, napier_softmax_state_update(context, s, endless), "1099511627776");
    expect(napier_softmax_state_count(s) == 0, "refused updates were counted");
    invalid(context, napier_softmax_state_merge(context, s, NULL), "from");
    invalid(context, napier_softmax_state_merge(context, NULL, s), "into");
    invalid(context, napier_softmax_state_finish(context, NULL, NULL), "state");
    refused(context, napier_softmax_state_apply(context, s, NAPIER_KIND_SOFTMAX, narrow, napier_array_f32(x, 4)),
            NAPIER_STATE_MISMATCH, "finish", NULL);
    works(napier_softmax_state_update, context, s, narrow);
    works(napier_softmax_state_finish, context, s, NULL);
    invalid(context, napier_softmax_state_apply(context, s, (napier_softmax_kind)5, narrow, napier_array_f32(x, 4)),
            "kind", "5");
    float y[4];
    invalid(context, napier_softmax_state_apply(context, s, NAPIER_KIND_SOFTMAX, narrow, napier_array_f32(y, 3)),
            "result", "3");
    invalid(context,
            napier_softmax_state_apply(context, s, NAPIER_KIND_SOFTMAX, narrow, napier_array(wide, 4, NAPIER_F64)),
            "result", "f64");
    invalid(context,
            napier_softmax_state_apply(context, s, NAPIER_KIND_SOFTMAX, napier_const_array(wide, 4, NAPIER_F64),
                                       napier_array_f32(y, 4)),
            "logits", "f64");
    invalid(context,
            napier_softmax_state_apply(context, s, NAPIER_KIND_SOFTMAX, napier_const_array_f32(x, 3),
                                       napier_array_f32(x + 1, 3)),
            "result", "logits");
    invalid(context, napier_softmax_state_apply(context, NULL, NAPIER_KIND_SOFTMAX, narrow, napier_array_f32(y, 4)),
            "state");
    unsigned char little[8];
    invalid(context, napier_softmax_state_to_bytes(context, s, little, sizeof little), "capacity", "8");
    invalid(context, napier_softmax_state_to_bytes(context, s, NULL, 100000), "bytes");
    invalid(context, napier_softmax_state_to_bytes(context, NULL, little, 8), "state");
    napier_softmax_state_destroy(s);
    s = (napier_softmax_state *)(uintptr_t)1;
    invalid(context, napier_softmax_state_from_bytes(context, NULL, 100, &s), "bytes");
    expect(s == NULL, "*out is not NULL after a failed load");
    invalid(context, napier_softmax_state_from_bytes(context, little, 8, NULL), "out");
}

/* ---- The byte form ----------------------------------------------------------------------------------------------- */

static void test_bytes_round_trip(napier_context *context) {
    rng r = rng_make(1);
    for (row_kind kind = 0; kind < ROW_KINDS; kind++) {
        for (int d = 0; d < DTYPE_COUNT; d++) {
            const int64_t n = 1200 + 600 * (kind % 5);
            whole_row w = make_row(context, kind, (uint64_t)d, n, all_dtypes[d], all_dtypes[d], 1.5);
            napier_softmax_state *halves[2];
            const int64_t cut[3] = {0, n / 3, n};
            for (int h = 0; h < 2; h++) {
                napier_softmax_state *const s = make_state(context, w.compute, cut[h], &w.options);
                update_in_blocks(context, s, &w, cut[h], cut[h + 1] - cut[h], &r);
                size_t size;
                unsigned char *const bytes = saved_bytes(context, s, &size);
                expect(size <= 20 * 1024, "%zu bytes", size);
                works(napier_softmax_state_from_bytes, context, bytes, size, &halves[h]);
                expect(same_state(context, s, halves[h]), "%s: other bytes after loading", w.name);
                napier_softmax_state_destroy(s);
            }
            works(napier_softmax_state_merge, context, halves[0], halves[1]);
            check_finished(context, halves[0], &w, &r, "saved, loaded and merged");
            napier_softmax_state_destroy(halves[0]);
            napier_softmax_state_destroy(halves[1]);
        }
    }
}

/* A loaded state is not finished; a state saved twice has the same bytes; how it came about does not show in them. */
static void test_bytes_are_canonical(napier_context *context) {
    enum { N = 5000 };
    whole_row w = make_row(context, ROW_RISING, 2, N, NAPIER_F32, NAPIER_F32, 1.0);
    napier_softmax_state *const at_once = make_state(context, NAPIER_F32, 0, &w.options);
    works(napier_softmax_state_update, context, at_once, piece(&w.logits, 0, N));
    size_t size;
    unsigned char *const bytes = saved_bytes(context, at_once, &size);
    rng r = rng_make(6);
    for (int turn = 0; turn < 20; turn++) {
        const int64_t cut = rng_below(&r, N);
        napier_softmax_state *const a = make_state(context, NAPIER_F32, 0, &w.options);
        napier_softmax_state *const b = make_state(context, NAPIER_F32, cut, &w.options);
        update_in_blocks(context, a, &w, 0, cut, &r);
        update_in_blocks(context, b, &w, cut, N - cut, &r);
        works(napier_softmax_state_merge, context, turn % 2 ? a : b, turn % 2 ? b : a);
        expect(same_state(context, at_once, turn % 2 ? a : b), "cut at %lld: other bytes", (long long)cut);
        napier_softmax_state_destroy(a);
        napier_softmax_state_destroy(b);
    }
    works(napier_softmax_state_finish, context, at_once, NULL);
    size_t size_again;
    unsigned char *const again = saved_bytes(context, at_once, &size_again);
    expect(size == size_again && memcmp(bytes, again, size) == 0, "finishing changed the bytes");
    napier_softmax_state *loaded = NULL;
    works(napier_softmax_state_from_bytes, context, again, size, &loaded);
    float x = 0, y = 0;
    refused(context,
            napier_softmax_state_apply(context, loaded, NAPIER_KIND_SOFTMAX, napier_const_array_f32(&x, 1),
                                       napier_array_f32(&y, 1)),
            NAPIER_STATE_MISMATCH, "finish", NULL);
    napier_softmax_state_destroy(loaded);
    napier_softmax_state_destroy(at_once);
}

static void must_not_load(napier_context *context, const unsigned char *bytes, size_t size, const char *what,
                          size_t at) {
    napier_softmax_state *s = (napier_softmax_state *)(uintptr_t)1;
    const napier_status status = napier_softmax_state_from_bytes(context, bytes, size, &s);
    if (!expect(status == NAPIER_CORRUPT_DATA || status == NAPIER_STATE_MISMATCH, "%s at %zu of the bytes: %s", what,
                at, napier_status_string(status))) {
        napier_softmax_state_destroy(status == NAPIER_OK ? s : NULL);
        return;
    }
    expect(s == NULL, "%s at %zu: *out is not NULL", what, at);
    expect(napier_last_error(context)[0] != '\0', "%s at %zu: no text", what, at);
}

static void test_hostile_bytes(napier_context *context) {
    for (int d = 0; d < 2; d++) {
        const napier_dtype compute = d ? NAPIER_F64 : NAPIER_F32;
        napier_softmax_state *const s = make_state(context, compute, 100, NULL);
        double values[1700];
        float x[1700];
        row_fill_f32(ROW_NORMAL, 1, x, values, 1700);
        works(napier_softmax_state_update, context, s, napier_const_array_f32(x, 1700));
        size_t size;
        unsigned char *const bytes = saved_bytes(context, s, &size);
        for (size_t length = 0; length < size;
             length++) { /* exact allocations, so that a sanitizer sees reads beyond */
            unsigned char *const copy = scratch((int64_t)length, 1);
            memcpy(copy, bytes, length);
            must_not_load(context, copy, length, "truncated", length);
        }
        for (size_t at = 0; at < size; at++) {
            const unsigned char kept = bytes[at];
            static const unsigned char flips[] = {0x01, 0x80, 0xff};
            for (int f = 0; f < 3; f++) {
                bytes[at] = kept ^ flips[f];
                must_not_load(context, bytes, size, "flipped", at);
            }
            bytes[at] = kept;
        }
        unsigned char *const longer = scratch((int64_t)size + 3, 1);
        memcpy(longer, bytes, size);
        memset(longer + size, 0, 3);
        must_not_load(context, longer, size + 3, "lengthened", size);
        rng r = rng_make(9);
        for (int turn = 0; turn < 2000; turn++) {
            unsigned char noise[300];
            const size_t length = (size_t)rng_below(&r, 300);
            for (size_t i = 0; i < length; i++) {
                noise[i] = turn % 2 && i < 40 ? bytes[i] : (unsigned char)rng_bits(&r);
            }
            must_not_load(context, noise, length, "noise", (size_t)turn);
        }
        napier_softmax_state_destroy(s);
    }
}

/* The state may outlive its context and be used with another. */
static void test_state_outlives_context(napier_context *second) {
    napier_context *const first = context_of(NAPIER_ISA_SCALAR, 1);
    napier_softmax_state *const s = make_state(first, NAPIER_F32, 0, NULL);
    napier_context_destroy(first);
    const float x[3] = {1, 2, 3};
    double lse = 0;
    works(napier_softmax_state_update, second, s, napier_const_array_f32(x, 3));
    works(napier_softmax_state_finish, second, s, &lse);
    expect(fabs(lse - 3.4076059644443806) < 3e-7, "logsumexp %.9g", lse);
    napier_softmax_state_destroy(s);
}

int main(void) {
    return RUN_TESTS("softmax_state", TEST_EACH_ISA(2, test_splits_of_f32), TEST_1(test_splits_of_every_dtype),
                     TEST_2(test_vocabulary_in_shards), TEST_1(test_strided_updates), TEST_1(test_finish_again),
                     TEST_1(test_empty_and_masked_parts), TEST_1(test_far_indices), TEST_1(test_mismatched_states),
                     TEST_1(test_empty_part_of_another_sort), TEST_1(test_bad_state_arguments),
                     TEST_1(test_bytes_round_trip), TEST_1(test_bytes_are_canonical), TEST_1(test_hostile_bytes),
                     TEST_1(test_state_outlives_context));
}
