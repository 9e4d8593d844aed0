/* test_sample_bits - napier_sample against the definition in ops/sample/draw.h by sorting, for every instruction set, number
 * of threads, layout and kind of row; and its log-probabilities against napier_token_logprobs, bit for bit. */
#include <napier/rl.h>
#include <napier/sample.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/sample/draw.h"
#include "support/check.h"
#include "support/formats.h"
#include "support/sample_setting.h"

/* ---- Philox ------------------------------------------------------------------------------------------------------- */

/* Random123, tests/kat_vectors: philox4x32 with 10 rounds. */
static void philox_gives_the_known_answers(void) {
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint32_t out[4];
        napier_philox4(known[i].key, known[i].counter, out);
        expect(memcmp(out, known[i].out, sizeof out) == 0, "vector %zu: %08x %08x %08x %08x", i, out[0], out[1], out[2],
               out[3]);
    }
    /* The words of the key and the counter, and of the number. */
    const uint64_t u =
        napier_sample_number(UINT64_C(0x299f31d0a4093822), UINT64_C(0x0370734413198a2e), UINT64_C(0x85a308d3243f6a88));
    expect(u == UINT64_C(0x94fdccebd16cfe09), "number %016llx", (unsigned long long)u);
    no_problems();
}

/* ---- The definition, for one row ---------------------------------------------------------------------------------- */

typedef struct element {
    float z;
    int64_t id;
} element;

static int in_order(const void *a, const void *b) {
    const element *x = a, *y = b;
    return x->z != y->z ? (x->z < y->z) - (x->z > y->z) : (x->id > y->id) - (x->id < y->id);
}

static uint64_t weight_of_row(const float *z, int64_t n, float max, uint64_t *tiles) {
    uint64_t sum = 0;
    for (int64_t at = 0; at < n; at += NAPIER_TILE) {
        napier_tile_sum t;
        napier_tile_by_definition(z + at, (int)(n - at < NAPIER_TILE ? n - at : NAPIER_TILE), &t);
        const bool empty = t.max == -INFINITY;
        tiles[at / NAPIER_TILE] =
            empty ? 0 : napier_sample_tile_weight(t.max, (float)t.count, t.rest, max, napier_sample_bits(n));
        sum += tiles[at / NAPIER_TILE];
    }
    return sum;
}

/* Makes -inf of the elements that are not among the first `kept` of the order. */
static void cut_row(float *z, const element *order, int64_t finite, int64_t kept) {
    for (int64_t i = kept; i < finite; i++) {
        z[order[i].id] = -INFINITY;
    }
}

static void filter_row(float *z, int64_t n, const napier_sample_options *o) {
    element *const order = scratch(n, sizeof *order);
    uint64_t *const tiles = scratch(n / NAPIER_TILE + 1, sizeof *tiles);
    int64_t finite = 0;
    for (int64_t i = 0; i < n; i++) {
        if (z[i] > -INFINITY) {
            order[finite++] = (element){z[i], i};
        }
    }
    qsort(order, (size_t)finite, sizeof *order, in_order);
    const float max = order[0].z + 0.0f;
    int64_t kept = o->top_k > 0 && o->top_k < finite ? o->top_k : finite;
    cut_row(z, order, finite, kept);
    if (o->top_p < 1.0) {
        const uint64_t goal = napier_sample_goal(weight_of_row(z, n, max, tiles), o->top_p);
        uint64_t sum = 0;
        for (int64_t i = 0; i < kept; i++) {
            sum += napier_sample_weight(napier_sample_term(order[i].z, max), napier_sample_bits(n));
            kept = sum >= goal ? i + 1 : kept;
        }
    }
    while (o->min_p > 0.0 && (double)order[kept - 1].z - (double)max < napier_f64_log(o->min_p)) {
        kept--;
    }
    cut_row(z, order, finite, kept);
}

static int64_t draw_row(const float *z, int64_t n, uint64_t u) {
    uint64_t *const tiles = scratch(n / NAPIER_TILE + 1, sizeof *tiles);
    float max = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        max = z[i] > max ? z[i] : max;
    }
    uint64_t rest = napier_sample_part(weight_of_row(z, n, max + 0.0f, tiles), u), inside = 0, before = 0;
    int64_t tile = 0;
    for (; rest >= tiles[tile]; tile++) {
        rest -= tiles[tile];
    }
    const float *const t = z + tile * NAPIER_TILE;
    const int64_t size = n - tile * NAPIER_TILE < NAPIER_TILE ? n - tile * NAPIER_TILE : NAPIER_TILE;
    float top = -INFINITY;
    for (int64_t i = 0; i < size; i++) {
        top = t[i] > top ? t[i] : top;
    }
    for (int64_t i = 0; i < size; i++) {
        inside += napier_sample_weight(napier_sample_term(t[i], top), NAPIER_SAMPLE_TILE_BITS);
    }
    const uint64_t target = napier_sample_inside(rest, tiles[tile], inside);
    for (int64_t i = 0;; i++) {
        before += napier_sample_weight(napier_sample_term(t[i], top), NAPIER_SAMPLE_TILE_BITS);
        if (before > target) {
            return tile * NAPIER_TILE + i;
        }
    }
}

static int64_t first_of_largest(const float *z, int64_t n) {
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++) {
        best = z[i] > z[best] ? i : best;
    }
    return best;
}

/* ---- One row against the definition ------------------------------------------------------------------------------- */

typedef struct expected {
    bool fine;
    int64_t id;
    uint64_t logprob, plain; /* bits */
} expected;

static int64_t times_in(napier_indices ids, int64_t id) {
    int64_t times = 0;
    for (int64_t i = 0; i < ids.size; i++) {
        times += ((const int32_t *)ids.data)[i] == id ? 1 : 0;
    }
    return times;
}

static bool has_distribution(const float *z, int64_t n) {
    bool fine = true, any = false;
    for (int64_t i = 0; i < n; i++) {
        fine = fine && z[i] < INFINITY;
        any = any || z[i] > -INFINITY;
    }
    return fine && any;
}

static uint64_t logprob_of(napier_context *context, napier_const_matrix logits, int64_t id, double temperature,
                           const uint8_t *keep) {
    napier_token_options options = NAPIER_TOKEN_OPTIONS_INIT;
    napier_token_results results = NAPIER_TOKEN_RESULTS_INIT;
    float logprob = 0;
    options.temperature = temperature;
    options.keep = keep;
    results.logprobs = napier_rows_f32(&logprob, 1, 1);
    works(napier_token_logprobs, context, logits, napier_indices_i64(&id, 1), &options, &results);
    return f32_bits(logprob);
}

static expected expected_of(napier_context *context, const grid *x, const napier_sample_options *o) {
    const int64_t n = x->view.cols;
    const double temperature = o->temperature == 0.0 ? 1.0 : o->temperature;
    const float t = (float)temperature;
    float *const plain = scratch(n, sizeof *plain), *const late = scratch(n, sizeof *late),
                 *const z = scratch(n, sizeof *z);
    uint8_t *const keep = scratch(n, 1);
    for (int64_t i = 0; i < n; i++) {
        const float logit = (float)grid_get(x, 0, i);
        const int64_t count = times_in(o->output_ids, i);
        plain[i] = logit / t;
        late[i] = logit;
        if (count > 0 || times_in(o->prompt_ids, i) > 0) {
            late[i] = napier_sample_penalized(logit, (float)o->repetition_penalty, (float)o->frequency_penalty,
                                              (float)o->presence_penalty, (uint32_t)count);
        }
        z[i] = o->keep && !o->keep[i] ? -INFINITY : late[i] / t;
    }
    if (!has_distribution(plain, n) || !has_distribution(z, n)) {
        return (expected){.fine = false};
    }
    const uint64_t u = napier_sample_number((uint64_t)o->seed, (uint64_t)((const int64_t *)o->samples.data)[0],
                                            (uint64_t)((const int64_t *)o->positions.data)[0]);
    expected e = {.fine = true};
    if (o->temperature == 0.0) {
        e.id = first_of_largest(z, n);
    } else {
        filter_row(z, n, o);
        e.id = draw_row(z, n, u);
        for (int64_t i = 0; i < n; i++) {
            keep[i] = z[i] > -INFINITY;
        }
        e.logprob = logprob_of(context, napier_const_rows_f32(late, 1, n), e.id, temperature, keep);
    }
    e.plain = logprob_of(context, grid_input(x), e.id, temperature, NULL);
    return e;
}

static void check_row(napier_context *context, const grid *x, const napier_sample_options *o, expected e,
                      const char *what) {
    int64_t id = -7;
    float logprob = 7, plain = 7;
    napier_sample_results r = NAPIER_SAMPLE_RESULTS_INIT;
    r.ids = &id;
    r.logprobs = napier_array_f32(&logprob, 1);
    r.plain_logprobs = napier_array_f32(&plain, 1);
    const napier_status status = napier_sample(context, grid_input(x), o, &r);
    const bool good =
        e.fine ? status == NAPIER_OK && id == e.id && f32_bits(logprob) == e.logprob && f32_bits(plain) == e.plain
               : status == NAPIER_INVALID_ARGUMENT && id == -7 && logprob == 7 && plain == 7;
    expect(good, "%s, %lld columns of %s, %s, %d threads: %s; id %lld (%lld), logprob %a (%a), plain %a (%a) %s", what,
           (long long)x->view.cols, napier_dtype_name(x->view.dtype), napier_isa_name(napier_context_isa(context)),
           napier_context_threads(context), napier_status_string(status), (long long)id, (long long)e.id,
           (double)logprob, (double)f32_of_bits((uint32_t)e.logprob), (double)plain,
           (double)f32_of_bits((uint32_t)e.plain), napier_last_error(context));
}

/* ---- All combinations --------------------------------------------------------------------------------------------- */

static const sample_setting settings[] = {
    {1, 0, 1, 0, 1, 0, 0, false},
    {0.7, 0, 1, 0, 1, 0, 0, false},
    {0, 5, 0.5, 0.5, 1, 0, 0, false},
    {1, 1, 1, 0, 1, 0, 0, false},
    {1, 3, 1, 0, 1, 0, 0, false},
    {2, 50, 1, 0, 1, 0, 0, false},
    {1, 1500, 1, 0, 1, 0, 0, false},
    {1, 0, 0.9, 0, 1, 0, 0, false},
    {1.5, 0, 0.999, 0, 1, 0, 0, false},
    {1, 0, 1e-300, 0, 1, 0, 0, false},
    {1, 0, 0x1.fffffffffffffp-1, 0, 1, 0, 0, false},
    {1, 0, 1, 0.05, 1, 0, 0, false},
    {1, 0, 1, 1, 1, 0, 0, false},
    {0.6, 20, 0.95, 0, 1, 0, 0, false},
    {1, 40, 0.8, 0.1, 1, 0, 0, false},
    {1, 0, 1, 0, 1.3, 0, 0, false},
    {1, 0, 0.9, 0, 0.5, 1.5, 0.25, true},
    {0, 0, 1, 0, 1.2, -0.5, 2, true},
    {1, 0, 1, 0, 1, 0, 0, true},
    {0.9, 30, 0.9, 0.02, 1, 0.5, 0.125, false},
};

typedef struct history {
    int32_t prompt[24], output[40];
    int32_t prompt_offsets[2], output_offsets[2];
    uint8_t *keep;
    int64_t sample, position;
} history;

static void fill_history(history *h, int64_t n, rng *r) {
    for (int i = 0; i < 24; i++) {
        h->prompt[i] = (int32_t)rng_below(r, n);
    }
    for (int i = 0; i < 40; i++) {
        h->output[i] = i % 3 == 2 ? h->output[i - 1] : (int32_t)rng_below(r, n);
    }
    h->prompt_offsets[1] = 24;
    h->output_offsets[1] = 40;
    h->keep = scratch(n, 1);
    for (int64_t i = 0; i < n; i++) {
        h->keep[i] = (uint8_t)(rng_below(r, 4) > 0 ? 3 : 0);
    }
    h->sample = (int64_t)rng_bits(r);
    h->position = (int64_t)rng_bits(r);
}

static napier_sample_options options_for(const sample_setting *s, history *h) {
    napier_sample_options o = sample_setting_options(s, h->keep);
    o.prompt_ids = napier_indices_i32(h->prompt, 24);
    o.prompt_offsets = napier_indices_i32(h->prompt_offsets, 2);
    o.output_ids = napier_indices_i32(h->output, 40);
    o.output_offsets = napier_indices_i32(h->output_offsets, 2);
    o.seed = -12345;
    o.samples = napier_indices_i64(&h->sample, 1);
    o.positions = napier_indices_i64(&h->position, 1);
    return o;
}

/* The contexts of context_of_run, each once. */
enum { RUNS = 8 };
typedef struct contexts {
    napier_context *run[RUNS];
    int count;
} contexts;

static contexts contexts_make(void) {
    contexts c = {.count = 0};
    while (c.count < RUNS && (c.run[c.count] = context_of_run(c.count)) != NULL) {
        c.count++;
    }
    return c;
}

static void check_kind(const contexts *c, row_kind kind, int64_t n, uint64_t seed) {
    static const napier_dtype dtypes[] = {NAPIER_F32, NAPIER_BF16, NAPIER_F16};
    rng r = rng_make(seed);
    const napier_dtype dtype = dtypes[seed % 3];
    const int64_t mark = scratch_mark();
    grid x = grid_make((layout)(seed % LAYOUTS), 1, n, dtype);
    history h = {.sample = 0};
    grid_fill(&x, kind, seed);
    fill_history(&h, n, &r);
    for (size_t i = seed % 2; i < sizeof settings / sizeof *settings; i += 2) {
        const napier_sample_options o = options_for(&settings[i], &h);
        const expected e = expected_of(c->run[0], &x, &o);
        for (int run = 0; run < c->count; run++) {
            char what[80];
            (void)snprintf(what, sizeof what, "%s, setting %zu, seed %d", row_kind_name(kind), i, (int)seed);
            check_row(c->run[run], &x, &o, e, what);
        }
    }
    scratch_release(mark);
}

static void rows_follow_the_definition(void) {
    static const int64_t sizes[] = {1, 2, 15, 17, 255, 257, 1000, 1023, 1024, 1025, 2049, 5000};
    const contexts c = contexts_make();
    uint64_t seed = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (int kind = 0; kind < ROW_KINDS; kind++) {
            check_kind(&c, (row_kind)kind, sizes[i], seed++);
        }
    }
    no_problems();
}

static void long_rows_follow_the_definition(void) {
    static const row_kind kinds[] = {ROW_NORMAL, ROW_TIES, ROW_PEAKED, ROW_MASKED, ROW_POWERS, ROW_EQUAL};
    const contexts c = contexts_make();
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        check_kind(&c, kinds[i], NAPIER_SANITIZED ? 9001 : 70001, 1000 + i);
    }
    no_problems();
}

/* ---- Batches ------------------------------------------------------------------------------------------------------ */

enum { ROWS = 37, COLS = 3001 };

typedef struct batch {
    int64_t samples[ROWS], positions[ROWS], seeds[ROWS], ids[ROWS];
    float logprobs[ROWS], plain[ROWS];
} batch;

/* Rows `row`, row + step, ... of x, as a batch. */
static void draw_batch(napier_context *context, const grid *x, int64_t row, int64_t rows, batch *b) {
    napier_sample_options o = NAPIER_SAMPLE_OPTIONS_INIT;
    napier_sample_results r = NAPIER_SAMPLE_RESULTS_INIT;
    napier_const_matrix logits = grid_input(x);
    logits.data = (const float *)logits.data + row * logits.row_stride;
    logits.rows = rows;
    o.top_k = 200;
    o.top_p = 0.97;
    o.seeds = napier_indices_i64(b->seeds + row, rows);
    o.samples = napier_indices_i64(b->samples + row, rows);
    o.positions = napier_indices_i64(b->positions + row, rows);
    r.ids = b->ids + row;
    r.logprobs = napier_array_f32(b->logprobs + row, rows);
    r.plain_logprobs = napier_array_f32(b->plain + row, rows);
    works(napier_sample, context, logits, &o, &r);
}

/* The result of a row is its own, whatever the batch, the threads and the instruction set. */
static void batches_change_nothing(void) {
    static batch whole, parts;
    grid x = grid_plain(ROWS, COLS, NAPIER_F32);
    grid_fill(&x, ROW_NORMAL, 3);
    for (int64_t i = 0; i < ROWS; i++) {
        whole.samples[i] = i / 3;
        whole.positions[i] = 100 - i;
        whole.seeds[i] = i % 5;
    }
    parts = whole;
    const contexts c = contexts_make();
    draw_batch(c.run[0], &x, 0, ROWS, &whole);
    for (int run = 0; run < c.count; run++) {
        for (int64_t size = 1; size <= ROWS; size += 9) {
            for (int64_t row = 0; row < ROWS; row += size) {
                draw_batch(c.run[run], &x, row, row + size < ROWS ? size : ROWS - row, &parts);
            }
            expect(memcmp(&whole, &parts, sizeof whole) == 0, "batches of %lld, run %d", (long long)size, run);
        }
    }
    no_problems();
}

int main(void) {
    return RUN_TESTS("sample bits", TEST(philox_gives_the_known_answers), TEST(rows_follow_the_definition),
                     TEST(long_rows_follow_the_definition), TEST(batches_change_nothing));
}
