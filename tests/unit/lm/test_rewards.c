/* Rewards: the head of a reward model on the last token of prompt and response, with the bits of the last logits of one
 * pass over both; for every family, instruction set, thread count, order, memory limit and kept keys; arguments, and
 * which calls refuse which head. */
#include "support/check.h"

#include <math.h>
#include <napier/generate.h>
#include <napier/model.h>
#include <stdlib.h>
#include <string.h>

#include "support/memory.h"
#include "unit/lm/lm_support.h"

enum { PROMPTS = 5, PAIRS = 14, LABELS = 3, V = 83, MOST = 64 };

/* Prompts of which some begin alike, and responses of which some are empty. */
typedef struct pairs {
    int64_t prompts[PROMPTS * MOST], prompt_offsets[PROMPTS + 1];
    int64_t responses[PAIRS * MOST], response_offsets[PAIRS + 1], prompt_of[PAIRS];
} pairs;

static pairs make_pairs(void) {
    static const int64_t sizes[PROMPTS] = {40, 1, 30, 50, 20}, common[PROMPTS] = {0, 0, 30, 25, 20};
    static const int64_t lengths[PAIRS] = {9, 0, 1, 20, 0, 0, 3, 12, 2, 0, 7, 7, 1, 0};
    static const int64_t of[PAIRS] = {3, 0, 2, 0, 4, 0, 1, 2, 4, 1, 3, 3, 0, 2};
    pairs p;
    rng r = rng_make(11);
    p.prompt_offsets[0] = p.response_offsets[0] = 0;
    for (int i = 0; i < PROMPTS; i++) {
        random_ids(p.prompts + p.prompt_offsets[i], sizes[i], V, &r);
        memcpy(p.prompts + p.prompt_offsets[i], p.prompts, (size_t)common[i] * sizeof *p.prompts);
        p.prompt_offsets[i + 1] = p.prompt_offsets[i] + sizes[i];
    }
    for (int i = 0; i < PAIRS; i++) {
        random_ids(p.responses + p.response_offsets[i], lengths[i], V, &r);
        p.response_offsets[i + 1] = p.response_offsets[i] + lengths[i];
    }
    memcpy(p.prompt_of, of, sizeof of);
    return p;
}

static napier_score_batch view_of(const pairs *p) {
    napier_score_batch b = NAPIER_SCORE_BATCH_INIT;
    b.prompt_ids = napier_indices_i64(p->prompts, p->prompt_offsets[PROMPTS]);
    b.prompt_offsets = napier_indices_i64(p->prompt_offsets, PROMPTS + 1);
    b.response_ids = napier_indices_i64(p->responses, p->response_offsets[PAIRS]);
    b.response_offsets = napier_indices_i64(p->response_offsets, PAIRS + 1);
    b.prompt_of = napier_indices_i64(p->prompt_of, PAIRS);
    return b;
}

static tiny_model reward_model(int family) {
    tiny_model m = tiny_model_of(family);
    m.labels = LABELS;
    return m;
}

/* ---- The definition ---------------------------------------------------------------------------------------------- */

/* The last logits of a pass over prompt and response, on the scalar kernels. */
static void last_logits(const tiny_model *m, napier_compute compute, const pairs *p, float wanted[PAIRS][LABELS]) {
    napier_context *context = context_of_run(0);
    napier_model *const model = model_load(context, m, compute, 0);
    for (int i = 0; i < PAIRS; i++) {
        int64_t ids[2 * MOST];
        float logits[2 * MOST * LABELS];
        const int64_t from = p->prompt_offsets[p->prompt_of[i]], first = p->prompt_offsets[p->prompt_of[i] + 1] - from;
        const int64_t second = p->response_offsets[i + 1] - p->response_offsets[i], all = first + second;
        memcpy(ids, p->prompts + from, (size_t)first * sizeof *ids);
        memcpy(ids + first, p->responses + p->response_offsets[i], (size_t)second * sizeof *ids);
        works(napier_model_forward, context, model, napier_indices_i64(ids, all), napier_indices_i64(NULL, 0),
              napier_rows_f32(NULL, 0, 0), napier_rows_f32(logits, all, LABELS), NULL, NULL);
        memcpy(wanted[i], logits + (all - 1) * LABELS, sizeof wanted[i]);
    }
    napier_model_destroy(context, model);
}

/* ---- Any way to run ---------------------------------------------------------------------------------------------- */

static void check_run(const tiny_model *m, napier_compute compute, napier_context *context,
                      napier_score_options options, int64_t memory, const pairs *p, float wanted[PAIRS][LABELS],
                      const char *what) {
    float got[PAIRS][LABELS];
    napier_model *const model = model_load(context, m, compute, memory);
    const napier_score_batch batch = view_of(p);
    napier_kv *kvs[2] = {NULL};
    for (int i = 0; i < options.kv_count; i++) { /* a part of one prompt, and all of another */
        const napier_indices ids = napier_indices_i64(p->prompts + p->prompt_offsets[2 * i], 25 + 5 * i);
        works(napier_kv_create, context, model, ids, NULL, NULL, &kvs[i]);
    }
    options.kvs = (const napier_kv *const *)kvs;
    memset(got, 0x55, sizeof got);
    works(napier_model_rewards, context, model, &batch, &options, napier_rows_f32(got[0], PAIRS, LABELS));
    for (int i = 0; i < PAIRS; i++) {
        expect(memcmp(got[i], wanted[i], sizeof got[i]) == 0, "%s, %s, %s: pair %d has other bits", m->family,
               napier_isa_name(napier_context_isa(context)), what, i);
    }
    for (int i = 0; i < options.kv_count; i++) {
        napier_kv_destroy(context, kvs[i]);
    }
    napier_model_destroy(context, model);
}

/* The least memory that suffices, from the refusals. */
static int64_t least_memory(const tiny_model *m, napier_compute compute, const pairs *p) {
    napier_context *context = context_for_test(NAPIER_ISA_AUTO, 2);
    float got[PAIRS][LABELS];
    const napier_score_batch batch = view_of(p);
    int64_t memory = 1000;
    for (napier_status status = NAPIER_OUT_OF_MEMORY; status;) {
        napier_model *const model = model_load(context, m, compute, memory);
        status = napier_model_rewards(context, model, &batch, NULL, napier_rows_f32(got[0], PAIRS, LABELS));
        const char *const need = status ? strstr(napier_last_error(context), "which need ") : NULL;
        expect(!status || need, "memory %lld: %s", (long long)memory, napier_last_error(context));
        memory = need ? strtoll(need + strlen("which need "), NULL, 10) : memory;
        napier_model_destroy(context, model);
        if (status && !need) {
            return 0;
        }
    }
    return memory;
}

/* What a call takes, besides the model, is within its memory. */
static void check_memory(const tiny_model *m, napier_compute compute, int64_t memory, const pairs *p) {
    ledger l = LEDGER_INIT;
    float got[PAIRS][LABELS];
    napier_context *context = ledger_context(&l, 2);
    napier_model *const model = model_load(context, m, compute, memory);
    const napier_score_batch batch = view_of(p);
    enum { LISTS = 4096 }; /* of the batch, which are not counted */
    const size_t before = l.most = l.now;
    works(napier_model_rewards, context, model, &batch, NULL, napier_rows_f32(got[0], PAIRS, LABELS));
    expect((int64_t)(l.most - before) <= memory + LISTS, "%lld bytes taken of %lld", (long long)(l.most - before),
           (long long)memory);
    napier_model_destroy(context, model);
    napier_context_destroy(context);
}

static void test_bits(void) {
    const pairs p = make_pairs();
    for (int which = 0; which < 2 * TINY_FAMILIES; which++) {
        TINY_MODEL(m);
        m = reward_model(which / 2);
        m.dtype = which % 3 == 0 ? NAPIER_F32 : NAPIER_BF16;
        tiny_model_write(&m);
        const napier_compute compute = (napier_compute)(which % 2);
        float wanted[PAIRS][LABELS];
        napier_score_options options = NAPIER_SCORE_OPTIONS_INIT;
        last_logits(&m, compute, &p, wanted);
        napier_context *context = context_for_test(NAPIER_ISA_AUTO, 2);
        check_run(&m, compute, context, options, 0, &p, wanted, "together");
        const int64_t least = least_memory(&m, compute, &p);
        check_run(&m, compute, context, options, least, &p, wanted, "little memory");
        check_memory(&m, compute, least, &p);
        check_memory(&m, compute, 1 << 30, &p);
        options.kv_count = 2;
        check_run(&m, compute, context, options, 0, &p, wanted, "kept keys");
        options = (napier_score_options)NAPIER_SCORE_OPTIONS_INIT;
        options.unshared = 1;
        check_run(&m, compute, context, options, 0, &p, wanted, "unshared");
        options.unshared = 0;
        for (int i = 0; (context = context_of_run(i)) != NULL; i++) {
            check_run(&m, compute, context, options, 0, &p, wanted, "every machine");
        }
    }
}

/* ---- The call ---------------------------------------------------------------------------------------------------- */

static int stop_at_once(const char *stage, double done, void *user) {
    (void)stage;
    (void)user;
    return done > 0.4;
}

static void test_arguments(napier_context *context) {
    TINY_MODEL(m);
    TINY_MODEL(plain);
    pairs p = make_pairs();
    float got[PAIRS * LABELS], wide[PAIRS * LABELS];
    uint16_t narrow[PAIRS * LABELS];
    m = reward_model(1);
    tiny_model_write(&m);
    tiny_model_write(&plain);
    napier_model *const model = model_load(context, &m, NAPIER_COMPUTE_F32, 0);
    napier_model *const language = model_load(context, &plain, NAPIER_COMPUTE_F32, 0);
    const napier_score_batch batch = view_of(&p);
    const napier_matrix out = napier_rows_f32(got, PAIRS, LABELS);
    napier_score_options options = NAPIER_SCORE_OPTIONS_INIT;
    invalid(context, napier_model_rewards(context, NULL, &batch, NULL, out), "model: NULL");
    invalid(context, napier_model_rewards(context, language, &batch, NULL, out), "gives no rewards");
    invalid(context, napier_model_rewards(context, model, NULL, NULL, out), "batch");
    invalid(context, napier_model_rewards(context, model, &batch, NULL, napier_rows_f32(got, PAIRS, 2)), "14 x 3");
    invalid(context, napier_model_rewards(context, model, &batch, NULL, napier_rows_f32(NULL, PAIRS, LABELS)),
            "rewards");
    invalid(context,
            napier_model_rewards(context, model, &batch, NULL,
                                 napier_rows_f32((float *)(void *)p.responses, PAIRS, LABELS)),
            "rewards", "response_ids");
    options.prefix_token = V;
    invalid(context, napier_model_rewards(context, model, &batch, &options, out), "prefix_token 83");
    options.prefix_token = -1;
    options.progress = stop_at_once;
    refused(context, napier_model_rewards(context, model, &batch, &options, out), NAPIER_CANCELLED, "cancelled", NULL);
    works(napier_model_rewards, context, model, &batch, NULL, out);
    works(napier_model_rewards, context, model, &batch, NULL,
          (napier_matrix){narrow, PAIRS, LABELS, 1, PAIRS, NAPIER_BF16});
    for (int i = 0; i < PAIRS * LABELS; i++) {
        const uint16_t bits = narrow[i % LABELS * PAIRS + i / LABELS];
        const uint32_t up = (uint32_t)bits << 16;
        memcpy(&wide[i], &up, sizeof up);
        expect(fabs((double)wide[i] - (double)got[i]) <= 0x1p-8 * fabs((double)got[i]), "bf16 reward %d: %g, not %g", i,
               (double)wide[i], (double)got[i]);
    }
    napier_model_destroy(context, model);
    napier_model_destroy(context, language);
}

/* What asks for probabilities of tokens. */
static void test_other_calls(napier_context *context) {
    TINY_MODEL(m);
    pairs p = make_pairs();
    m = reward_model(2);
    tiny_model_write(&m);
    napier_model *const model = model_load(context, &m, NAPIER_COMPUTE_F32, 0);
    const napier_score_batch batch = view_of(&p);
    const napier_score_results results = NAPIER_SCORE_RESULTS_INIT;
    napier_score_plan plan = NAPIER_SCORE_PLAN_INIT;
    napier_generate_batch prompts = NAPIER_GENERATE_BATCH_INIT;
    napier_generate_results made = NAPIER_GENERATE_RESULTS_INIT;
    int64_t ids[16 * PROMPTS], lengths[PROMPTS];
    const char *const word = "a reward model (ForSequenceClassification, 3 labels) has no probabilities of tokens";
    prompts.prompt_ids = batch.prompt_ids;
    prompts.prompt_offsets = batch.prompt_offsets;
    made.ids = ids;
    made.lengths = lengths;
    invalid(context, napier_model_batch_logprobs(context, model, &batch, NULL, &results), word);
    invalid(context, napier_model_batch_plan(context, model, &batch, NULL, &plan), word);
    invalid(context, napier_generate(context, model, &prompts, NULL, &made), word);
    napier_model_info info = NAPIER_MODEL_INFO_INIT;
    works(napier_model_get_info, context, model, &info);
    expect(info.labels == LABELS && strcmp(info.family, "llama") == 0 && !info.tied, "info: %lld labels of %s",
           (long long)info.labels, info.family);
    napier_model_destroy(context, model);
}

/* A window is a limit: a sequence that fits in it has the bits of a model without one. */
static void test_window(napier_context *context) {
    int64_t ids[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    float logits[2][9 * V];
    for (int i = 0; i < 2; i++) {
        TINY_MODEL(m);
        m = tiny_model_of(3);
        m.more = i == 0 ? m.more : ", \"sliding_window\": 8";
        tiny_model_write(&m);
        napier_model *const model = model_load(context, &m, NAPIER_COMPUTE_F32, 0);
        model_logits(context, model, &m, ids, 8, logits[i]);
        if (i == 1) {
            napier_kv *kv = NULL;
            const napier_indices all = napier_indices_i64(ids, 9), none = napier_indices_i64(NULL, 0);
            const napier_score_results results = NAPIER_SCORE_RESULTS_INIT;
            const char *const word = "sequence of 9 tokens is longer than the model's sliding_window of 8";
            refused(context,
                    napier_model_forward(context, model, all, none, napier_rows_f32(NULL, 0, 0),
                                         napier_rows_f32(logits[1], 9, V), NULL, NULL),
                    NAPIER_UNSUPPORTED, word, NULL);
            refused(context, napier_kv_create(context, model, all, NULL, NULL, &kv), NAPIER_UNSUPPORTED, word, NULL);
            refused(context, napier_model_logprobs_for(context, model, all, napier_indices_i64(ids, 1), NULL, &results),
                    NAPIER_UNSUPPORTED, word, NULL);
        }
        napier_model_destroy(context, model);
    }
    expect(memcmp(logits[0], logits[1], 8 * V * sizeof **logits) == 0, "a window has changed the bits");
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

static napier_status run_rewards(napier_context *context, void *argument) {
    const pairs p = make_pairs();
    float got[PAIRS * LABELS];
    const napier_score_batch batch = view_of(&p);
    return napier_model_rewards(context, argument, &batch, NULL, napier_rows_f32(got, PAIRS, LABELS));
}

static void test_memory(napier_context *context) {
    TINY_MODEL(m);
    m = reward_model(1);
    m.layers = 1;
    tiny_model_write(&m);
    napier_model *const model = model_load(context, &m, NAPIER_COMPUTE_F32, 0);
    check_allocations("rewards", run_rewards, model);
    napier_model_destroy(context, model);
}

int main(void) {
    return RUN_TESTS("rewards", TEST(test_bits), TEST_1(test_arguments), TEST_1(test_other_calls), TEST_1(test_window),
                     TEST_1(test_memory));
}
