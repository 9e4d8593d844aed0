/* test_stop - the interrupt of a context (core/base/stop.h), asked at every chance: every public call (support/calls.h) and
 * some larger ones end at the question that is answered by a stop, with CANCELLED and a text, and ask no more. The same call
 * then gives its bits again, as it does where the interrupt lets it go on. Without sanitizers a wrong step on memory that was
 * not written may go unseen: run_all.sh runs this under AddressSanitizer, too. */
#include <fenv.h>
#include <napier/napier.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/parallel.h"
#include "core/base/stop.h"
#include "support/calls.h"
#include "support/check.h"

typedef struct asker {
    int64_t asked, stops_at; /* answers the question with this number by a stop; -1: none */
    const napier_context *context;
    int64_t loop, done, ended; /* at the last question, and questions with all items of a loop done */
} asker;

static void answer(asker *a, int64_t stops_at) { *a = (asker){.stops_at = stops_at, .context = a->context}; }

/* Within a call every loop is seen, in order, and its done items grow. */
static void check_progress(asker *a) {
    int64_t done = -1, items = -1;
    const int64_t loop = napier_context_progress(a->context, &done, &items);
    const bool same = loop == a->loop && done >= a->done, next = loop == a->loop + 1, new_call = loop <= 1;
    expect(same || next || new_call, "item %lld of loop %lld after item %lld of loop %lld", (long long)done,
           (long long)loop, (long long)a->done, (long long)a->loop);
    expect(done >= 0 && done <= items && (loop == 0) == (items == 0), "loop %lld: %lld of %lld items", (long long)loop,
           (long long)done, (long long)items);
    a->loop = loop;
    a->done = done;
    a->ended += done == items;
}

static int ask(void *user) {
    asker *const a = user;
    check_progress(a);
    return a->asked++ == a->stops_at;
}

static napier_context *asking_context(int threads, asker *a) {
    napier_context *const context = context_for_test(NAPIER_ISA_AUTO, threads);
    a->context = context;
    napier_context_set_interrupt(context, ask, a);
    napier_stop_set_interval(context, 0);
    return context;
}

/* ---- napier_parallel --------------------------------------------------------------------------------------------- */

enum { ITEMS = 1000 };

typedef struct counted {
    napier_context *context;
    int64_t chunk;
    int done[ITEMS];
} counted;

static void count(void *argument, int worker, int64_t begin, int64_t end) {
    counted *const c = argument;
    (void)worker;
    assert_int_equal(begin % c->chunk, 0);
    for (int64_t i = begin; i < end; i++) {
        c->done[i]++;
    }
}

static napier_status count_twice(counted *c) {
    NAPIER_MAY_STOP(c->context);
    napier_parallel(c->context, ITEMS, c->chunk, count, c);
    napier_parallel(c->context, ITEMS, c->chunk, count, c);
    return napier_stopped(c->context);
}

static napier_status count_nested(counted *c) {
    NAPIER_MAY_STOP(c->context);
    const napier_status inner = count_twice(c);
    napier_parallel(c->context, ITEMS, c->chunk, count, c);
    const napier_status outer = napier_stopped(c->context);
    assert_true(inner == NAPIER_OK || outer == inner);
    return outer;
}

static void test_loops(void) {
    static const int64_t chunks[] = {1, 7, ITEMS};
    for (int i = 0; i < 9; i++) {
        asker a = {.stops_at = -1};
        counted c = {asking_context(1 + i % 3, &a), chunks[i / 3], {0}};
        assert_int_equal(count_twice(&c), NAPIER_OK);
        const int64_t all = a.asked;
        assert_true(all >= 2 && a.loop == 2 && a.ended >= 2);
        for (int j = 0; j < ITEMS; j++) {
            assert_int_equal(c.done[j], 2);
        }
        for (int64_t at = 0; at < all; at++) {
            memset(c.done, 0, sizeof c.done);
            answer(&a, at);
            const napier_status status = at % 2 == 0 ? count_twice(&c) : count_nested(&c);
            if (status == NAPIER_CANCELLED) { /* how often there is a chance to ask depends on time */
                assert_int_equal(a.asked, at + 1);
                assert_string_equal(napier_last_error(c.context), "stopped by the interrupt");
            } else {
                assert_true(a.asked <= at);
            }
        }
        memset(c.done, 0, sizeof c.done);
        napier_parallel(c.context, ITEMS, c.chunk, count, &c); /* outside NAPIER_MAY_STOP nothing stops */
        assert_int_equal(c.done[ITEMS - 1], 1);
    }
}

/* A call within a call counts its loops with the outer one's; outside a call there are none. */
static void test_progress(void) {
    for (int threads = 1; threads <= 3; threads++) {
        asker a = {.stops_at = -1};
        counted c = {asking_context(threads, &a), 7, {0}};
        assert_int_equal(count_nested(&c), NAPIER_OK);
        assert_true(a.loop == 3 && a.done == ITEMS && a.ended >= 3); /* also those of the function within */
        int64_t done = -1, items = -1;
        assert_int_equal(napier_context_progress(c.context, &done, &items), 0);
        assert_true(done == 0 && items == 0);
        assert_int_equal(napier_context_progress(NULL, &done, &items), 0);
    }
}

static void test_settings(void) {
    asker a = {.stops_at = 0};
    counted c = {asking_context(2, &a), 1, {0}};
    napier_context_set_interrupt(NULL, ask, &a);
    napier_context_set_interrupt(c.context, NULL, NULL);
    assert_int_equal(count_twice(&c), NAPIER_OK);
    assert_int_equal(a.asked, 0);
    napier_context_set_interrupt(c.context, ask, &a);
    napier_stop_set_interval(c.context, UINT64_MAX); /* it is never time */
    assert_int_equal(count_twice(&c), NAPIER_OK);
    assert_int_equal(a.asked, 0);
}

/* An interrupt that leaves the processor with another rounding changes nothing. */
static int round_up(void *user) {
    (void)user;
    return fesetround(FE_UPWARD) != 0;
}

typedef struct thirds {
    double sums[ITEMS];
} thirds;

static void add_thirds(void *argument, int64_t i) {
    thirds *const t = argument;
    for (int k = 1; k <= 100; k++) {
        t->sums[i] += 1.0 / (double)(3 * k);
    }
}

static void test_rounding(void) {
    for (int threads = 1; threads <= 2; threads++) {
        static thirds wanted, got;
        memset(&wanted, 0, sizeof wanted);
        memset(&got, 0, sizeof got);
        napier_context *const context = context_for_test(NAPIER_ISA_AUTO, threads);
        napier_parallel_each(context, ITEMS, 1, add_thirds, &wanted);
        napier_context_set_interrupt(context, round_up, NULL);
        napier_stop_set_interval(context, 0);
        NAPIER_MAY_STOP(context);
        napier_parallel_each(context, ITEMS, 1, add_thirds, &got);
        assert_int_equal(napier_stopped(context), NAPIER_OK);
        assert_memory_equal(&wanted, &got, sizeof got);
    }
}

/* ---- Every call -------------------------------------------------------------------------------------------------- */

/* Runs the call, which is stopped at a question or, if it ends before, gives the wanted bytes. */
static bool stop_call(const public_call *call, napier_context *context, asker *a, int64_t at, const void *wanted) {
    answer(a, at);
    const napier_status status = call_run(call, context);
    if (status == NAPIER_OK) {
        return expect(a->asked <= at, "%s: went on after the stop at question %lld", call->name, (long long)at) &&
               expect(memcmp(call_result, wanted, CALL_RESULT_BYTES) == 0, "%s: other bytes", call->name);
    }
    return expect(status == NAPIER_CANCELLED && a->asked == at + 1,
                  "%s: stopped at question %lld: status %d after %lld", call->name, (long long)at, (int)status,
                  (long long)a->asked);
}

static int64_t check_call(const public_call *call, napier_context *context, asker *a) {
    enum { STOPS = 24 };
    static unsigned char wanted[CALL_RESULT_BYTES];
    answer(a, -1);
    bool right = succeeded(context, call_run(call, context), call->name);
    memcpy(wanted, call_result, sizeof wanted);
    const int64_t all = a->asked, step = all / STOPS + 1;
    for (int64_t at = 0; at < all && right; at += step) {
        right = stop_call(call, context, a, at, wanted) && stop_call(call, context, a, INT64_MAX, wanted);
    }
    return all;
}

/* These never ask: they are short, run on this thread only, or ask a progress callback. */
static const char never_ask[] =
    " apply batch_plan batch_plan_in_bf16 chat_format chat_template chat_text combine"
    " context_create"
    " edge_gradients encode_and_decode encode_texts find_ab_params fit fuzzy_simplicial_set gguf_document"
    " gradients graph_from_edges group_advantages join_categories join_distances join_numbers"
    " linear_workspace loss map_from_bytes map_load map_reads map_save map_to_bytes"
    " model_from_tensors model_load model_of model_reads nearest_neighbors nearest_neighbors_of"
    " negative_gradients negative_targets optimize_epochs optimize_layout pca_layout random_layout"
    " raster_lines raster_points reduce_segments rotary_frequencies segments smooth_knn_dist"
    " sort_edges spectral_layout state_use state_use_f64 state_use_weighted tokenizer_from_json"
    " tokenizer_load tokenizer_reads words ";

/* Whether a call asks does not depend on time or threads; how often it does may depend on both. */
static void check_asks(const char *name, int64_t asked) {
    char word[64];
    snprintf(word, sizeof word, " %s ", name);
    const bool never = strstr(never_ask, word) != NULL;
    expect(never == (asked == 0), "%s: asks %lld times, but is%s in never_ask", name, (long long)asked,
           never ? "" : " not");
}

static void test_every_call(void) {
    asker a[2] = {{.stops_at = -1}, {.stops_at = -1}};
    napier_context *const contexts[2] = {asking_context(1, &a[0]), asking_context(3, &a[1])};
    calls_open("test_stop.tmp");
    for (int i = 0; i < calls_count(); i++) {
        const public_call call = call_at(i);
        for (int c = 0; c < 2 && !(call.flags & CALL_LONG); c++) {
            check_asks(call.name, check_call(&call, contexts[c], &a[c]));
        }
    }
    calls_close();
}

/* ---- Larger calls ------------------------------------------------------------------------------------------------ */

enum { SIDE = 700, VOCABULARY = 5000, HIDDEN = 96, TOKENS = 300, HEADS = 4, DIM = 32, FLOATS = 5 << 20 };

static float *in, *out;

static napier_status run_matmul(napier_context *c) {
    return napier_matmul(c, napier_const_rows_f32(in, SIDE, SIDE), napier_const_rows_f32(in, SIDE, SIDE),
                         napier_rows_f32(out, SIDE, SIDE));
}
static napier_status run_softmax(napier_context *c) {
    return napier_softmax(c, napier_const_rows_f32(in, FLOATS / 4096, 4096), napier_rows_f32(out, FLOATS / 4096, 4096),
                          NULL);
}
static napier_status run_long_row(napier_context *c) {
    return napier_log_softmax(c, napier_const_rows_f32(in, 1, FLOATS), napier_rows_f32(out, 1, FLOATS), NULL);
}
static napier_status run_columns(napier_context *c) {
    return napier_softmax(c, napier_const_transposed(napier_const_rows_f32(in, 4096, FLOATS / 4096)),
                          napier_transposed(napier_rows_f32(out, 4096, FLOATS / 4096)), NULL);
}
static const int32_t *some_ids(void) {
    static int32_t ids[TOKENS];
    for (int i = 0; i < TOKENS; i++) {
        ids[i] = i * 13 % VOCABULARY;
    }
    return ids;
}
static napier_status run_head(napier_context *c) {
    napier_token_results results = NAPIER_TOKEN_RESULTS_INIT;
    results.logprobs = napier_rows_f32(out, TOKENS, 1);
    results.entropy = napier_array_f32(out + TOKENS, TOKENS);
    return napier_linear_token_logprobs(c, napier_const_rows_f32(in, TOKENS, HIDDEN),
                                        napier_const_rows_f32(in, VOCABULARY, HIDDEN),
                                        napier_indices_i32(some_ids(), TOKENS), NULL, &results);
}
static napier_status run_head_backward(napier_context *c) {
    napier_token_gradients gradients = NAPIER_TOKEN_GRADIENTS_INIT;
    gradients.logprobs = napier_const_rows_f32(in, TOKENS, 1);
    return napier_linear_token_logprobs_backward(
        c, napier_const_rows_f32(in, TOKENS, HIDDEN), napier_const_rows_f32(in, VOCABULARY, HIDDEN),
        napier_indices_i32(some_ids(), TOKENS), NULL, &gradients, napier_rows_f32(out, TOKENS, HIDDEN),
        napier_rows_f32(out + TOKENS * HIDDEN, VOCABULARY, HIDDEN));
}
static napier_status run_sample(napier_context *c) {
    static int64_t drawn[8];
    napier_sample_results results = NAPIER_SAMPLE_RESULTS_INIT;
    results.ids = drawn;
    const napier_status status = napier_sample(c, napier_const_rows_f32(in, 2, FLOATS / 8), NULL, &results);
    memcpy(out, drawn, sizeof drawn);
    return status;
}
static napier_const_heads heads(const float *data, int64_t tokens) {
    return (napier_const_heads){data, tokens, HEADS, DIM, HEADS * DIM, DIM, 1, NAPIER_F32};
}
static napier_heads heads_out(int place, int64_t tokens) {
    return (napier_heads){out + place * 2 * tokens * HEADS * DIM, tokens, HEADS, DIM, HEADS * DIM, DIM, 1, NAPIER_F32};
}
static napier_status run_attention_of(napier_context *c, int64_t tokens) {
    napier_attention_options options = NAPIER_ATTENTION_OPTIONS_INIT;
    options.causal = 1;
    const napier_const_heads x = heads(in, tokens);
    return napier_attention(c, x, x, x, heads_out(0, tokens), napier_rows_f32(NULL, 0, 0), &options);
}
static napier_status run_attention(napier_context *c) { return run_attention_of(c, TOKENS); }
static napier_status run_long_attention(napier_context *c) { return run_attention_of(c, 4 * TOKENS); }
static napier_status run_attention_backward(napier_context *c) {
    const napier_const_heads x = heads(in, TOKENS);
    napier_attention_options options = NAPIER_ATTENTION_OPTIONS_INIT;
    return napier_attention_backward(c, x, x, x, x, x, napier_const_rows_f32(in, TOKENS, HEADS), heads_out(0, TOKENS),
                                     heads_out(1, TOKENS), heads_out(2, TOKENS), &options);
}

static const public_call larger[] = {{"matmul", run_matmul, 0},
                                     {"softmax", run_softmax, 0},
                                     {"a long row", run_long_row, 0},
                                     {"columns", run_columns, 0},
                                     {"head", run_head, 0},
                                     {"the head's gradients", run_head_backward, 0},
                                     {"sample", run_sample, 0},
                                     {"attention", run_attention, 0},
                                     {"attention, all pack together", run_long_attention, 0},
                                     {"attention's gradients", run_attention_backward, 0}};

/* Stops the call at some of its questions, of which there may be fewer when the call runs again: each time it ends there,
 * and its next run has the bits. */
static void check_larger(const public_call *call, int threads, const float *wanted) {
    asker a = {.stops_at = -1};
    napier_context *const context = asking_context(threads, &a);
    succeeded(context, call->run(context), call->name);
    const int64_t all = a.asked, at[] = {0, 1, all / 2, all - 1};
    expect(all > 0, "%s: asks %lld times", call->name, (long long)all);
    for (int i = 0; i < 4; i++) {
        answer(&a, at[i]);
        const napier_status status = call->run(context);
        expect(status == NAPIER_CANCELLED || (i > 0 && a.asked <= at[i]), "%s: status %d", call->name, (int)status);
        answer(&a, -1);
        memset(out, 0, FLOATS * sizeof *out);
        succeeded(context, call->run(context), call->name);
        expect(memcmp(out, wanted, FLOATS * sizeof *out) == 0, "%s: other bits after a stop", call->name);
    }
}

static void test_larger_calls(void) {
    in = malloc(FLOATS * sizeof *in);
    out = malloc(FLOATS * sizeof *out);
    float *const wanted = malloc(FLOATS * sizeof *out);
    assert_true(in && out && wanted);
    for (int i = 0; i < FLOATS; i++) {
        in[i] = (float)(i * 37 % 1009) / 1009.0f;
    }
    napier_context *const plain = context_for_test(NAPIER_ISA_AUTO, 1);
    for (size_t i = 0; i < sizeof larger / sizeof *larger; i++) {
        memset(out, 0, FLOATS * sizeof *out);
        succeeded(plain, larger[i].run(plain), larger[i].name);
        memcpy(wanted, out, FLOATS * sizeof *out);
        for (int threads = 1; threads <= 3; threads++) {
            check_larger(&larger[i], threads, wanted);
        }
    }
    free(wanted);
    free(out);
    free(in);
}

int main(void) {
    return RUN_TESTS("stop", TEST(test_loops), TEST(test_progress), TEST(test_settings), TEST(test_rounding),
                     TEST(test_every_call), TEST(test_larger_calls));
}
