/* Log-probabilities of responses: logits[i] is about token i + 1; the same bits shared and not, in any order and
 * company, for every instruction set, thread count and memory limit, and by the way of all logits; what runs and what
 * it takes; results of any dtype; arguments, cancelling, and memory that runs out. */
#include "support/check.h"

#include <math.h>
#include <napier/model.h>
#include <stdlib.h>
#include <string.h>

#include "lm/decoder/kv.h"
#include "support/memory.h"
#include "unit/lm/lm_support.h"

/* ---- Batches ----------------------------------------------------------------------------------------------------- */

enum { MOST_LISTS = 64, MOST_IDS = 6000 };

typedef struct lists {
    int64_t count, ids[MOST_IDS], offsets[MOST_LISTS + 1];
} lists;

static void add_list(lists *l, const int64_t *ids, int64_t count) {
    memcpy(l->ids + l->offsets[l->count], ids, (size_t)count * sizeof *ids);
    l->offsets[l->count + 1] = l->offsets[l->count] + count;
    l->count++;
}

static int64_t size_of(const lists *l, int64_t i) { return l->offsets[i + 1] - l->offsets[i]; }

typedef struct batch {
    lists prompts, responses;
} batch;

static napier_score_batch view_of(const batch *b) {
    napier_score_batch view = NAPIER_SCORE_BATCH_INIT;
    view.prompt_ids = napier_indices_i64(b->prompts.ids, b->prompts.offsets[b->prompts.count]);
    view.prompt_offsets = napier_indices_i64(b->prompts.offsets, b->prompts.count + 1);
    view.response_ids = napier_indices_i64(b->responses.ids, b->responses.offsets[b->responses.count]);
    view.response_offsets = napier_indices_i64(b->responses.offsets, b->responses.count + 1);
    return view;
}

static int64_t tokens_of(const batch *b) { return b->responses.offsets[b->responses.count]; }

/* `groups` prompts with 1 to 16 responses of 0 to 9 tokens; some prompts begin like the one before. */
static void fill_batch(batch *b, int groups, uint64_t seed) {
    rng r = rng_make(seed);
    int64_t prompt[200], size = 0;
    memset(b, 0, sizeof *b);
    for (int g = 0; g < groups; g++) {
        const int64_t kept = g % 3 == 1 ? (size < 40 ? size : 40) : 0;
        size = kept + (g % 5 == 1 ? 0 : 1 + rng_below(&r, 50));
        size = size > 0 ? size : 1;
        random_ids(prompt + kept, size - kept, 83, &r);
        const int64_t count = 1 + rng_below(&r, 16);
        for (int64_t i = 0; i < count && b->prompts.count < MOST_LISTS; i++) {
            int64_t response[9];
            const int64_t tokens = rng_below(&r, 10);
            random_ids(response, tokens, 83, &r);
            add_list(&b->prompts, prompt, size);
            add_list(&b->responses, response, tokens);
        }
    }
}

/* ---- Scoring ----------------------------------------------------------------------------------------------------- */

typedef struct scores {
    float logprobs[MOST_IDS], entropy[MOST_IDS];
    int64_t argmax[MOST_IDS];
    uint8_t is_greedy[MOST_IDS];
} scores;

typedef struct setting {
    const tiny_model *m;
    napier_compute compute;
    napier_context *context;
    int unshared;
    int64_t memory;
    double temperature;
    int kvs; /* how many keep the beginnings of some prompts */
} setting;

enum { KVS = 3 };

/* All of a prompt, the first 30 tokens of another, and one token. */
static void make_kvs(napier_context *context, const napier_model *model, const batch *b, int count,
                     napier_kv *kvs[KVS]) {
    for (int i = 0; i < count; i++) {
        const int64_t p = (b->prompts.count - 1) * i / KVS, size = size_of(&b->prompts, p);
        const int64_t most[KVS] = {size, 30, 1}, tokens = size < most[i] ? size : most[i];
        const napier_indices ids = napier_indices_i64(b->prompts.ids + b->prompts.offsets[p], tokens);
        works(napier_kv_create, context, model, ids, NULL, NULL, &kvs[i]);
        expect(napier_kv_tokens(kvs[i]) == tokens && napier_kv_bytes(kvs[i]) > 0, "kv %d", i);
    }
}

static void run(const setting *s, const batch *b, scores *out, napier_score_plan *plan) {
    napier_context *const context = s->context;
    napier_model *model = model_load(context, s->m, s->compute, s->memory);
    napier_score_options options = NAPIER_SCORE_OPTIONS_INIT;
    napier_kv *kvs[KVS] = {NULL};
    make_kvs(context, model, b, s->kvs, kvs);
    options.kvs = (const napier_kv *const *)kvs;
    options.kv_count = s->kvs;
    napier_score_results results = NAPIER_SCORE_RESULTS_INIT;
    options.unshared = s->unshared;
    options.temperature = s->temperature;
    memset(out, 0, sizeof *out);
    results.logprobs = napier_array_f32(out->logprobs, tokens_of(b));
    results.entropy = napier_array_f32(out->entropy, tokens_of(b));
    results.argmax = out->argmax;
    results.is_greedy = out->is_greedy;
    const napier_score_batch view = view_of(b);
    succeeded(context, napier_model_batch_logprobs(context, model, &view, &options, &results), "score");
    if (plan) {
        *plan = (napier_score_plan)NAPIER_SCORE_PLAN_INIT;
        succeeded(context, napier_model_batch_plan(context, model, &view, &options, plan), "plan");
    }
    for (int i = 0; i < KVS; i++) {
        napier_kv_destroy(context, kvs[i]);
    }
    napier_model_destroy(context, model);
}

static bool same(const scores *a, const scores *b, int64_t tokens) {
    return memcmp(a->logprobs, b->logprobs, (size_t)tokens * sizeof(float)) == 0 &&
           memcmp(a->entropy, b->entropy, (size_t)tokens * sizeof(float)) == 0 &&
           memcmp(a->argmax, b->argmax, (size_t)tokens * sizeof(int64_t)) == 0 &&
           memcmp(a->is_greedy, b->is_greedy, (size_t)tokens) == 0;
}

/* ---- The way of all logits --------------------------------------------------------------------------------------- */

/* Forward over prompt and response, and then napier_token_logprobs of rows size - 1 .. on. */
static void score_by_logits(const setting *s, const batch *b, int64_t i, float *logprobs) {
    int64_t ids[256];
    const int64_t before = size_of(&b->prompts, i), after = size_of(&b->responses, i);
    static float logits[256 * 83];
    memcpy(ids, b->prompts.ids + b->prompts.offsets[i], (size_t)before * sizeof *ids);
    memcpy(ids + before, b->responses.ids + b->responses.offsets[i], (size_t)after * sizeof *ids);
    napier_context *const context = s->context;
    napier_model *model = model_load(context, s->m, s->compute, 0);
    napier_token_options options = NAPIER_TOKEN_OPTIONS_INIT;
    napier_token_results results = NAPIER_TOKEN_RESULTS_INIT;
    options.temperature = s->temperature;
    results.logprobs = napier_rows_f32(logprobs, after, 1);
    model_logits(context, model, s->m, ids, before + after, logits);
    succeeded(context,
              napier_token_logprobs(context, napier_const_rows_f32(logits + (before - 1) * 83, after, 83),
                                    napier_indices_i64(ids + before, after), &options, &results),
              "token_logprobs");
    napier_model_destroy(context, model);
}

static void check_routes(const setting *s, const batch *b, const scores *got) {
    for (int64_t i = 0; i < b->prompts.count; i += 5) {
        float logprobs[16];
        const int64_t at = b->responses.offsets[i], count = size_of(&b->responses, i);
        if (count == 0) {
            continue;
        }
        score_by_logits(s, b, i, logprobs);
        expect(memcmp(logprobs, got->logprobs + at, (size_t)count * sizeof(float)) == 0,
               "response %lld: other bits by the way of all logits", (long long)i);
    }
}

static void test_routes(void) {
    static batch b;
    static scores got;
    fill_batch(&b, 6, 1);
    for (int which = 0; which < 2 * TINY_FAMILIES; which++) {
        TINY_MODEL(m);
        const int compute = which % 2;
        m = tiny_model_of(which / 2);
        m.dtype = NAPIER_BF16;
        tiny_model_write(&m);
        for (double temperature = 1.0; temperature > 0.5; temperature -= 0.3) {
            const setting s = {&m, (napier_compute)compute, context_for_test(NAPIER_ISA_AUTO, 1), 0, 0, temperature, 0};
            run(&s, &b, &got, NULL);
            check_routes(&s, &b, &got);
        }
    }
}

/* ---- Sharing ----------------------------------------------------------------------------------------------------- */

/* The batch with its pairs in another order, and where each came from. */
static void shuffle(const batch *from, batch *to, int64_t *source, uint64_t seed) {
    rng r = rng_make(seed);
    memset(to, 0, sizeof *to);
    for (int64_t i = 0; i < from->prompts.count; i++) {
        source[i] = i;
    }
    for (int64_t i = from->prompts.count - 1; i > 0; i--) {
        const int64_t j = rng_below(&r, i + 1), kept = source[i];
        source[i] = source[j];
        source[j] = kept;
    }
    for (int64_t i = 0; i < from->prompts.count; i++) {
        const int64_t s = source[i];
        add_list(&to->prompts, from->prompts.ids + from->prompts.offsets[s], size_of(&from->prompts, s));
        add_list(&to->responses, from->responses.ids + from->responses.offsets[s], size_of(&from->responses, s));
    }
}

static void check_shuffled(const setting *s, const batch *b, const scores *wanted) {
    static batch other;
    static scores got;
    int64_t source[MOST_LISTS];
    shuffle(b, &other, source, 9);
    run(s, &other, &got, NULL);
    for (int64_t i = 0; i < b->prompts.count; i++) {
        const int64_t at = other.responses.offsets[i], was = b->responses.offsets[source[i]];
        expect(memcmp(got.logprobs + at, wanted->logprobs + was,
                      (size_t)size_of(&other.responses, i) * sizeof(float)) == 0,
               "pair %lld has other bits in another order", (long long)source[i]);
    }
}

static void check_sharing(const tiny_model *m, napier_compute compute, const batch *b) {
    static scores wanted, got;
    napier_score_plan plan, tight;
    const setting alone = {m, compute, context_of_run(0), 1, 0, 1.0, 0};
    setting s = {m, compute, context_for_test(NAPIER_ISA_AUTO, 2), 0, 0, 1.0, 0};
    run(&alone, b, &wanted, NULL);
    run(&s, b, &got, &plan);
    expect(same(&got, &wanted, tokens_of(b)), "shared: other bits than unshared");
    expect(plan.chunks == 1 && plan.tokens_run < plan.tokens_unshared && plan.tokens == tokens_of(b),
           "%lld chunks, %lld tokens run of %lld", (long long)plan.chunks, (long long)plan.tokens_run,
           (long long)plan.tokens_unshared);
    check_shuffled(&s, b, &wanted);
    s.kvs = KVS;
    run(&s, b, &got, &tight);
    expect(same(&got, &wanted, tokens_of(b)), "keys and values that live: other bits");
    expect(tight.tokens_run < plan.tokens_run, "%lld tokens run with them, %lld without", (long long)tight.tokens_run,
           (long long)plan.tokens_run);
    s.memory = tight.bytes - 1;
    run(&s, b, &got, &tight);
    expect(same(&got, &wanted, tokens_of(b)), "keys and values that live, %lld chunks: other bits",
           (long long)tight.chunks);
    s.kvs = 0;
    s.memory = plan.bytes - 1; /* not all, but more than any one */
    run(&s, b, &got, &tight);
    expect(same(&got, &wanted, tokens_of(b)), "memory %lld: other bits", (long long)s.memory);
    expect(tight.chunks > 1 && tight.bytes <= s.memory, "%lld chunks of at most %lld bytes, where %lld are allowed",
           (long long)tight.chunks, (long long)tight.bytes, (long long)s.memory);
    s.memory = 0;
    for (int i = 0; (s.context = context_of_run(i)) != NULL; i++) {
        run(&s, b, &got, NULL);
        expect(same(&got, &wanted, tokens_of(b)), "%s, %d threads: other bits",
               napier_isa_name(napier_context_isa(s.context)), napier_context_threads(s.context));
    }
}

static void test_sharing(void) {
    static batch b;
    for (int k = 0; k < 6; k++) { /* the last one with products that are split */
        TINY_MODEL(m);
        const int which = k == 5 ? 0 : k % 3;
        m = tiny_model_of(k < 3 ? k + 1 : TINY_FAMILIES - 1);
        m.dtype = which == 2 ? NAPIER_F32 : NAPIER_BF16;
        m.kv_heads = which == 1 ? 4 : 1;
        tiny_model_write(&m);
        fill_batch(&b, NAPIER_SANITIZED ? 3 : 6, (uint64_t)which + 20);
        check_sharing(&m, k == 5 ? NAPIER_COMPUTE_SPLIT : which == 1 ? NAPIER_COMPUTE_BF16 : NAPIER_COMPUTE_F32, &b);
    }
}

/* ---- What runs --------------------------------------------------------------------------------------------------- */

static napier_score_plan plan_of(const tiny_model *m, const batch *b) {
    static scores got;
    napier_score_plan plan;
    const setting s = {m, NAPIER_COMPUTE_F32, context_for_test(NAPIER_ISA_AUTO, 1), 0, 0, 1.0, 0};
    run(&s, b, &got, &plan);
    return plan;
}

static void test_plan(void) {
    TINY_MODEL(m);
    static batch b;
    int64_t ids[100];
    rng r = rng_make(4);
    tiny_model_write(&m);
    random_ids(ids, 100, 83, &r);
    memset(&b, 0, sizeof b);
    for (int i = 0; i < 8; i++) { /* one prompt, eight responses of 12 */
        add_list(&b.prompts, ids, 60);
        add_list(&b.responses, ids + i, 12);
    }
    napier_score_plan plan = plan_of(&m, &b);
    expect(plan.prompts == 1 && plan.tokens_run == 60 + 8 * 11 && plan.tokens_unshared == 8 * 71,
           "one prompt: %lld of %lld", (long long)plan.tokens_run, (long long)plan.tokens_unshared);
    memset(&b, 0, sizeof b);
    for (int i = 0; i < 4; i++) { /* four prompts with 50 tokens in common, one of them no longer */
        const int64_t kept = ids[50];
        ids[50] = i;
        add_list(&b.prompts, ids, i == 0 ? 50 : 60);
        add_list(&b.responses, ids, 1);
        ids[50] = kept;
    }
    plan = plan_of(&m, &b);
    expect(plan.prompts == 4 && plan.tokens_run == 50 + 3 * 10, "common beginnings: %lld", (long long)plan.tokens_run);
    memset(&b, 0, sizeof b);
    for (int i = 0; i < 3; i++) { /* too little in common; an empty response runs nothing */
        ids[10] = i;
        add_list(&b.prompts, ids, 20);
        add_list(&b.responses, ids, i < 2 ? 1 : 0);
    }
    plan = plan_of(&m, &b);
    expect(plan.prompts == 2 && plan.tokens_run == 40, "10 in common: %lld", (long long)plan.tokens_run);
}

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

static int stop_at_once(const char *stage, double done, void *user) {
    (void)stage;
    ++*(int *)user;
    return done > 0.4;
}

typedef struct call {
    napier_context *context;
    napier_model *model;
    batch b;
    napier_score_batch view;
    napier_score_options options;
    napier_score_results results;
    float logprobs[8];
} call;

static void call_make(call *c, const tiny_model *m) {
    const int64_t ids[] = {1, 2, 3, 4};
    memset(c, 0, sizeof *c);
    c->context = context_for_test(NAPIER_ISA_AUTO, 1);
    c->model = model_load(c->context, m, NAPIER_COMPUTE_F32, 0);
    add_list(&c->b.prompts, ids, 3);
    add_list(&c->b.prompts, ids, 0);
    add_list(&c->b.responses, ids, 4);
    add_list(&c->b.responses, ids + 1, 2);
    c->view = view_of(&c->b);
    c->options = (napier_score_options)NAPIER_SCORE_OPTIONS_INIT;
    c->options.prefix_token = 9;
    c->results = (napier_score_results)NAPIER_SCORE_RESULTS_INIT;
    c->results.logprobs = napier_array_f32(c->logprobs, 6);
}

static napier_status call_run(call *c) {
    return napier_model_batch_logprobs(c->context, c->model, &c->view, &c->options, &c->results);
}

static void expect_refusal(call *c, const char *word, const char *other) {
    memset(c->logprobs, 0x55, sizeof c->logprobs);
    const float before = c->logprobs[0];
    invalid(c->context, call_run(c), word, other);
    expect(memcmp(&before, c->logprobs, sizeof before) == 0, "%s: something was written", word);
    c->view = view_of(&c->b);
    c->options.temperature = 1.0;
    c->options.prefix_token = 9;
    c->results.logprobs = napier_array_f32(c->logprobs, 6);
}

/* Runs 70 tokens in one piece and, with the least memory that suffices, in several: the same keys and values. */
static void test_kv_in_pieces(napier_context *context) {
    TINY_MODEL(m);
    enum { TOKENS = 70 };
    int64_t ids[TOKENS], memory = INT64_C(1) << 30;
    rng r = rng_make(31);
    napier_kv *whole = NULL, *pieces = NULL;
    m.kv_heads = 1;
    tiny_model_write(&m);
    random_ids(ids, TOKENS, 83, &r);
    napier_model *const model = model_load(context, &m, NAPIER_COMPUTE_F32, memory);
    works(napier_kv_create, context, model, napier_indices_i64(ids, TOKENS), NULL, NULL, &whole);
    for (napier_status status = NAPIER_OK; !status; memory = memory / 8 * 7) {
        napier_model *const less = model_load(context, &m, NAPIER_COMPUTE_F32, memory);
        status = napier_kv_create(context, less, napier_indices_i64(ids, TOKENS), NULL, NULL, &pieces);
        for (int64_t row = 0; !status && row < m.layers * TOKENS; row++) {
            const int64_t at = row * (m.head_dim + 32);
            const size_t bytes = (size_t)m.head_dim * sizeof(float);
            expect(memcmp((float *)pieces->store.k + at, (float *)whole->store.k + at, bytes) == 0 &&
                       memcmp((float *)pieces->store.v + at, (float *)whole->store.v + at, bytes) == 0,
                   "memory %lld, row %lld: other bits", (long long)memory, (long long)row);
        }
        napier_kv_destroy(context, pieces);
        napier_model_destroy(context, less);
    }
    napier_kv_destroy(context, whole);
    napier_model_destroy(context, model);
}

/* napier_kv_create, and kvs that are not of the model. */
static void test_kv_arguments(napier_context *context) {
    TINY_MODEL(m);
    static call c;
    napier_kv *kv = NULL;
    tiny_model_write(&m);
    call_make(&c, &m);
    napier_model *const other = model_load(context, &m, NAPIER_COMPUTE_BF16, 0);
    napier_model *const small = model_load(context, &m, NAPIER_COMPUTE_F32, 1000);
    int64_t ids[] = {1, 2, 83};
    int calls = 0;
    invalid(context, napier_kv_create(context, NULL, napier_indices_i64(ids, 2), NULL, NULL, &kv), "model");
    invalid(context, napier_kv_create(context, other, napier_indices_i64(ids, 2), NULL, NULL, NULL), "out");
    invalid(context, napier_kv_create(context, other, napier_indices_i64(ids, 0), NULL, NULL, &kv), "ids: 0 tokens");
    invalid(context, napier_kv_create(context, other, napier_indices_i64(ids, 3), NULL, NULL, &kv), "ids[2] is 83");
    refused(context, napier_kv_create(context, small, napier_indices_i64(ids, 2), NULL, NULL, &kv),
            NAPIER_OUT_OF_MEMORY, "memory: 1000 bytes", NULL);
    refused(context, napier_kv_create(context, other, napier_indices_i64(ids, 2), stop_at_once, &calls, &kv),
            NAPIER_CANCELLED, "cancelled", NULL);
    invalid(context, napier_kv_extend(context, NULL, napier_indices_i64(ids, 2), NULL, NULL, &kv), "kv: NULL");
    expect(!kv, "a kv after an error");
    works(napier_kv_create, context, other, napier_indices_i64(ids, 2), NULL, NULL, &kv);
    c.options.kvs = (const napier_kv *const *)&kv;
    c.options.kv_count = 1;
    expect_refusal(&c, "kvs[0]", "not of this model");
    c.options.kv_count = -1;
    expect_refusal(&c, "kv_count is -1", "kvs");
    c.options.kvs = NULL;
    c.options.kv_count = 1;
    expect_refusal(&c, "kv_count is 1", "kvs");
    napier_kv_destroy(context, kv);
    napier_kv_destroy(context, NULL);
    expect(napier_kv_tokens(NULL) == 0 && napier_kv_bytes(NULL) == 0, "a NULL with tokens");
    napier_model_destroy(context, other);
    napier_model_destroy(context, small);
    napier_model_destroy(c.context, c.model);
}

static void test_arguments(void) {
    TINY_MODEL(m);
    static call c;
    napier_score_plan plan = NAPIER_SCORE_PLAN_INIT;
    int calls = 0;
    tiny_model_write(&m);
    call_make(&c, &m);
    succeeded(c.context, call_run(&c), "an empty prompt with a prefix token");
    c.options.prefix_token = -1;
    expect_refusal(&c, "prompt of response 1 is empty", "prefix_token");
    c.options.prefix_token = 83;
    expect_refusal(&c, "prefix_token 83", "83");
    c.options.temperature = 0.0; /* found with the other arguments, before anything is run */
    invalid(c.context, napier_model_batch_plan(c.context, c.model, &c.view, &c.options, &plan), "temperature 0");
    expect_refusal(&c, "temperature 0", "above 0");
    c.options.temperature = (double)INFINITY;
    expect_refusal(&c, "temperature inf", "finite");
    c.b.prompts.ids[1] = 83;
    expect_refusal(&c, "prompt_ids[1] is 83", "83");
    c.b.prompts.ids[1] = 2;
    c.b.responses.ids[5] = -1;
    expect_refusal(&c, "response_ids[5] is -1", "83");
    c.b.responses.ids[5] = 2;
    c.view.response_offsets.size--;
    expect_refusal(&c, "response_offsets[1] is 4", "6");
    const int64_t falling[] = {0, 5, 4, 6}, prompt_of[] = {0, 2};
    c.view.response_offsets = napier_indices_i64(falling, 4);
    expect_refusal(&c, "response_offsets[2] is 4", "5");
    c.view.prompt_of = napier_indices_i64(prompt_of, 2);
    expect_refusal(&c, "prompt_of[1] is 2", "2");
    c.results.logprobs.size = 5;
    expect_refusal(&c, "logprobs", "5");
    c.results.logprobs = napier_array_f32((float *)(void *)c.b.responses.ids, 6);
    expect_refusal(&c, "logprobs", "response_ids");
    c.options.progress = stop_at_once;
    c.options.user = &calls;
    refused(c.context, call_run(&c), NAPIER_CANCELLED, "cancelled", NULL);
    expect(calls >= 2, "%d calls of progress", calls);
    napier_model_destroy(c.context, c.model);
}

/* A pair by itself, prompts given once, results in bf16 two apart, i32 ids: all come to the same numbers. */
static void test_forms(void) {
    TINY_MODEL(m);
    static call c;
    const int32_t prompt[] = {1, 2, 3}, response[] = {2, 3};
    const int64_t of[] = {0, 0};
    float pair[2];
    uint16_t narrow[12];
    tiny_model_write(&m);
    call_make(&c, &m);
    c.view.prompt_of = napier_indices_i64(of, 2);
    succeeded(c.context, call_run(&c), "prompts given once");
    c.results.logprobs = napier_array_f32(pair, 2);
    succeeded(c.context,
              napier_model_logprobs_for(c.context, c.model, napier_indices_i32(prompt, 3),
                                        napier_indices_i32(response, 2), NULL, &c.results),
              "a pair");
    expect(memcmp(pair, c.logprobs + 4, sizeof pair) == 0, "a pair by itself: other bits");
    c.results.logprobs = (napier_vector){narrow, 6, 2, NAPIER_BF16};
    succeeded(c.context, call_run(&c), "bf16");
    for (int i = 0; i < 6; i++) {
        uint32_t bits;
        memcpy(&bits, c.logprobs + i, sizeof bits);
        const uint16_t rounded = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
        expect(narrow[2 * i] == rounded, "bf16 result %d: %04x, not %04x", i, narrow[2 * i], rounded);
    }
    napier_model_destroy(c.context, c.model);
}

/* ---- Judging ----------------------------------------------------------------------------------------------------- */

/* exp(a) / (exp(a) + exp(b)) */
static double share(double a, double b) { return 1 / (1 + exp(b - a)); }

static void test_judge(napier_context *context) {
    TINY_MODEL(m);
    const int64_t ids[] = {5, 6, 7, 8, 9, 10, 11, 12}, prompts[] = {0, 3, 4, 6, 8}, verdicts[] = {0, 1, 3};
    const double values[] = {2.0, -1.0};
    const float weights[] = {1.0f, 0.5f};
    float judged[4], rewards[2], logprobs[8], two[2];
    tiny_model_write(&m);
    napier_model *const model = model_load(context, &m, NAPIER_COMPUTE_F32, 0);
    napier_judge_batch asked = NAPIER_JUDGE_BATCH_INIT;
    asked.prompt_ids = napier_indices_i64(ids, 8);
    asked.prompt_offsets = napier_indices_i64(prompts, 5);
    asked.criteria = 2;
    asked.verdict_ids = napier_indices_i64(ids + 2, 3);
    asked.verdict_offsets = napier_indices_i64(verdicts, 3);
    asked.values = values;
    asked.weights = napier_const_array_f32(weights, 2);
    const napier_matrix all = napier_rows_f32(judged, 2, 2), sums = napier_rows_f32(logprobs, 4, 2);
    succeeded(context, napier_model_judge(context, model, &asked, NULL, all, napier_array_f32(rewards, 2), sums),
              "judge");
    napier_score_results results = NAPIER_SCORE_RESULTS_INIT;
    results.logprobs = napier_array_f32(two, 2);
    for (int p = 0; p < 4; p++) {
        const napier_indices prompt = napier_indices_i64(ids + prompts[p], prompts[p + 1] - prompts[p]);
        succeeded(context,
                  napier_model_logprobs_for(context, model, prompt, napier_indices_i64(ids + 3, 2), NULL, &results),
                  "a verdict");
        expect(logprobs[2 * p + 1] == (float)((double)two[0] + (double)two[1]), "prompt %d: another log-probability",
               p);
        const double yes = share((double)logprobs[2 * p], (double)logprobs[2 * p + 1]);
        const double wanted = (double)weights[p % 2] * (2 * yes - (1 - yes));
        expect(fabs((double)judged[p] - wanted) <= 1e-6, "prompt %d: %g, not %g", p, (double)judged[p], wanted);
    }
    expect(fabs((double)rewards[1] - ((double)judged[2] + (double)judged[3])) <= 1e-6, "reward %g", (double)rewards[1]);
    const napier_vector none = napier_array_f32(NULL, 0);
    invalid(context, napier_model_judge(context, model, &asked, NULL, all, napier_array_f32(judged + 2, 2), sums),
            "rewards", "overlaps scores");
    asked.criteria = 3;
    invalid(context, napier_model_judge(context, model, &asked, NULL, all, none, sums), "criteria: 3");
    asked.criteria = 2;
    const int64_t empty[] = {0, 3, 3};
    asked.verdict_offsets = napier_indices_i64(empty, 3);
    invalid(context, napier_model_judge(context, model, &asked, NULL, all, none, sums), "verdict 1 is empty");
    napier_model_destroy(context, model);
}

/* Prompt and response are encoded each by itself. */
static void test_texts(napier_context *context) {
    const napier_text texts[] = {{"hello", 5}, {"", 0}, {" world", 6}}, bad[] = {{"fine", 4}, {"\xff", 1}};
    napier_tokenizer *tokenizer = NULL;
    napier_token_buffer all = {0}, one = {0};
    int64_t offsets[4];
    succeeded(context, napier_tokenizer_load(context, "tests/support/tiny_tokenizer.json", &tokenizer), "load");
    succeeded(context, napier_model_encode_texts(context, tokenizer, texts, 3, NULL, &all, offsets), "encode");
    succeeded(context, napier_tokenizer_encode(context, tokenizer, " world", 6, NULL, &one), "encode one");
    expect(offsets[0] == 0 && offsets[1] > 0 && offsets[2] == offsets[1] && offsets[3] - offsets[2] == one.size &&
               memcmp(all.ids + offsets[2], one.ids, (size_t)one.size * sizeof *one.ids) == 0,
           "offsets %lld, %lld, %lld", (long long)offsets[1], (long long)offsets[2], (long long)offsets[3]);
    invalid(context, napier_model_encode_texts(context, tokenizer, bad, 2, NULL, &all, offsets), "texts[1]");
    invalid(context, napier_model_encode_texts(context, tokenizer, NULL, 2, NULL, &all, offsets), "texts");
    napier_token_buffer_free(context, &all);
    napier_token_buffer_free(context, &one);
    napier_tokenizer_destroy(context, tokenizer);
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

typedef struct memory_case {
    const napier_model *model;
    const batch *b;
} memory_case;

static napier_status score(napier_context *context, const napier_model *model, const batch *b) {
    static float logprobs[MOST_IDS];
    const napier_score_batch view = view_of(b);
    napier_score_results results = NAPIER_SCORE_RESULTS_INIT;
    results.logprobs = napier_array_f32(logprobs, tokens_of(b));
    return napier_model_batch_logprobs(context, model, &view, NULL, &results);
}

static napier_status score_again(napier_context *context, void *argument) {
    const memory_case *c = argument;
    return score(context, c->model, c->b);
}

static void test_memory(napier_context *context) {
    TINY_MODEL(m);
    static batch b;
    m.layers = 1;
    tiny_model_write(&m);
    fill_batch(&b, 2, 5);
    napier_model *const model = model_load(context, &m, NAPIER_COMPUTE_F32, 0);
    memory_case c = {model, &b};
    check_allocations("score", score_again, &c);
    napier_model_destroy(context, model);
}

/* ---- Memory that is too small ------------------------------------------------------------------------------------ */

static void score_pairs(napier_context *context, const napier_model *model, int pairs) {
    static batch b;
    rng r = rng_make((uint64_t)pairs);
    memset(&b, 0, sizeof b);
    for (int i = 0; i < pairs; i++) {
        int64_t prompt[10], response[12];
        random_ids(prompt, 10, 83, &r);
        random_ids(response, 12, 83, &r);
        add_list(&b.prompts, prompt, 10);
        add_list(&b.responses, response, 12);
    }
    succeeded(context, score(context, model, &b), "score");
}

static void check_bound(const tiny_model *m, napier_compute compute, const batch *b) {
    ledger l = LEDGER_INIT;
    l.guard = 1 << 12;
    napier_context *const context = ledger_context(&l, 2);
    napier_model *const model = model_load(context, m, compute, 0);
    const napier_score_batch view = view_of(b);
    napier_score_plan plan = NAPIER_SCORE_PLAN_INIT;
    succeeded(context, napier_model_batch_plan(context, model, &view, NULL, &plan), "plan");
    const size_t before = l.most = l.now;
    succeeded(context, score(context, model, b), "score");
    expect((int64_t)(l.most - before) <= plan.bytes, "%s: %zu bytes taken of %lld", m->family, l.most - before,
           (long long)plan.bytes);
    napier_model_destroy(context, model);
    napier_context_destroy(context);
}

/* What a call takes, besides the model, is within its plan. */
static void test_plan_is_a_bound(void) {
    static batch b;
    for (int k = 0; k < 2 * TINY_FAMILIES; k++) {
        TINY_MODEL(m);
        m = tiny_model_of(k / 2);
        m.dtype = NAPIER_BF16;
        tiny_model_write(&m);
        for (int pairs = 1; pairs < 6; pairs += 2) {
            fill_batch(&b, pairs, 5);
            check_bound(&m, (napier_compute)(k % 2), &b);
        }
    }
}

/* The last layer runs some of the rows only: 12 of each 22 here. Fewer rows are cut otherwise, and may want more: 48
 * more than 88, with this intermediate size and two threads. */
static void test_fewer_rows_want_more(void) {
    TINY_MODEL(m);
    ledger l = LEDGER_INIT;
    m.intermediate = 3072;
    tiny_model_write(&m);
    l.guard = 1 << 20;
    napier_context *const context = ledger_context(&l, 2);
    napier_model *const model = model_load(context, &m, NAPIER_COMPUTE_F32, 0);
    for (int pairs = 1; pairs <= 8; pairs++) {
        score_pairs(context, model, pairs);
    }
    napier_model_destroy(context, model);
    napier_context_destroy(context);
}

int main(void) {
    return RUN_TESTS("model_score", TEST(test_routes), TEST(test_sharing), TEST(test_plan), TEST(test_arguments),
                     TEST_1(test_kv_in_pieces), TEST_1(test_kv_arguments), TEST(test_forms), TEST_1(test_judge),
                     TEST_1(test_texts), TEST_1(test_memory), TEST(test_fewer_rows_want_more),
                     TEST(test_plan_is_a_bound));
}
