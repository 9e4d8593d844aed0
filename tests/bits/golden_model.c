/* Golden bits of models: states and logits, scores of shared prompts, verdicts, samples, rewards; every family and scaling of
 * positions, weights of all dtypes, both compute modes. golden_table.h says how it is run; the models are random and written to TMPDIR. */
#include "support/golden_table.h"

#include <napier/generate.h>
#include <stdio.h>
#include <string.h>

#include "support/rows.h"
#include "support/tiny_model.h"

static uint64_t hash_floats(uint64_t hash, const float *x, int64_t n) { return hash_elements(hash, x, NAPIER_F32, n); }

typedef struct model_case {
    const char *name;
    const tiny_model *m;
    napier_model *model;
    int64_t ids[200];
} model_case;

static void line(const model_case *c, const char *what, uint64_t hash) { golden_line(hash, "%s:%s", what, c->name); }

static void forward(const model_case *c) {
    enum { TOKENS = 60 };
    float *hidden = golden_room(TOKENS * c->m->hidden, sizeof *hidden);
    const int64_t wide = c->m->labels > 0 ? c->m->labels : c->m->vocabulary;
    float *logits = golden_room(TOKENS * wide, sizeof *logits);
    golden_demand(napier_model_forward(golden_context, c->model, napier_indices_i64(c->ids, TOKENS),
                                       napier_indices_i64(NULL, 0), napier_rows_f32(hidden, TOKENS, c->m->hidden),
                                       napier_rows_f32(logits, TOKENS, wide), NULL, NULL));
    line(c, "forward", hash_floats(hash_floats(GOLDEN_BASIS, hidden, TOKENS * c->m->hidden), logits, TOKENS * wide));
}

/* Two prompts with 40 tokens in common, seven responses of 0 to 9 tokens. */
static void score(const model_case *c) {
    const int64_t prompts[] = {0, 50, 110}, responses[] = {0, 9, 9, 13, 20, 29, 30, 36}, of[] = {1, 0, 0, 1, 1, 0, 1};
    int64_t ids[110];
    float logprobs[36], entropy[36];
    int64_t argmax[36];
    napier_score_batch batch = NAPIER_SCORE_BATCH_INIT;
    napier_score_options options = NAPIER_SCORE_OPTIONS_INIT;
    napier_score_results results = NAPIER_SCORE_RESULTS_INIT;
    memcpy(ids, c->ids, sizeof ids);
    memcpy(ids + 50, c->ids, 40 * sizeof *ids);
    batch.prompt_ids = napier_indices_i64(ids, 110);
    batch.prompt_offsets = napier_indices_i64(prompts, 3);
    batch.response_ids = napier_indices_i64(c->ids + 110, 36);
    batch.response_offsets = napier_indices_i64(responses, 8);
    batch.prompt_of = napier_indices_i64(of, 7);
    options.temperature = 0.8;
    results.logprobs = napier_array_f32(logprobs, 36);
    results.entropy = napier_array_f32(entropy, 36);
    results.argmax = argmax;
    golden_demand(napier_model_batch_logprobs(golden_context, c->model, &batch, &options, &results));
    const uint64_t hash = hash_floats(hash_floats(GOLDEN_BASIS, logprobs, 36), entropy, 36);
    line(c, "score", hash_integers(hash, argmax, 36));
}

static void judge(const model_case *c) {
    const int64_t prompts[] = {0, 30, 60, 90, 120}, verdicts[] = {0, 1, 3};
    const double values[] = {1.0, -0.5};
    float scores[4], rewards[2];
    napier_judge_batch batch = NAPIER_JUDGE_BATCH_INIT;
    batch.prompt_ids = napier_indices_i64(c->ids, 120);
    batch.prompt_offsets = napier_indices_i64(prompts, 5);
    batch.criteria = 2;
    batch.verdict_ids = napier_indices_i64(c->ids + 120, 3);
    batch.verdict_offsets = napier_indices_i64(verdicts, 3);
    batch.values = values;
    golden_demand(napier_model_judge(golden_context, c->model, &batch, NULL, napier_rows_f32(scores, 2, 2),
                                     napier_array_f32(rewards, 2), napier_rows_f32(NULL, 0, 0)));
    line(c, "judge", hash_floats(hash_floats(GOLDEN_BASIS, scores, 4), rewards, 2));
}

/* Two prompts with 40 tokens in common, four samples each. */
static void generate(const model_case *c) {
    enum { SEQUENCES = 8, MOST = 15 };
    const int64_t prompts[] = {0, 50, 110}, stop = 9;
    int64_t ids[110], made[SEQUENCES * MOST], lengths[SEQUENCES];
    float logprobs[SEQUENCES * MOST], plain[SEQUENCES * MOST];
    napier_generate_batch batch = NAPIER_GENERATE_BATCH_INIT;
    napier_generate_options options = NAPIER_GENERATE_OPTIONS_INIT;
    napier_generate_results results = NAPIER_GENERATE_RESULTS_INIT;
    napier_sample_options sampling = NAPIER_SAMPLE_OPTIONS_INIT;
    memcpy(ids, c->ids, sizeof ids);
    memcpy(ids + 50, c->ids, 40 * sizeof *ids);
    batch.prompt_ids = napier_indices_i64(ids, 110);
    batch.prompt_offsets = napier_indices_i64(prompts, 3);
    batch.samples = SEQUENCES / 2;
    sampling.temperature = 0.8;
    sampling.top_p = 0.95;
    sampling.seed = 2026;
    options.max_tokens = MOST;
    options.stop = napier_indices_i64(&stop, 1);
    options.sampling = &sampling;
    results.ids = made;
    results.lengths = lengths;
    results.logprobs = napier_rows_f32(logprobs, SEQUENCES, MOST);
    results.plain_logprobs = napier_rows_f32(plain, SEQUENCES, MOST);
    golden_demand(napier_generate(golden_context, c->model, &batch, &options, &results));
    uint64_t hash = hash_floats(hash_floats(GOLDEN_BASIS, logprobs, SEQUENCES * MOST), plain, SEQUENCES * MOST);
    for (int i = 0; i < SEQUENCES * MOST; i++) {
        hash = golden_hash(hash, (uint64_t)made[i], sizeof *made);
    }
    line(c, "generate", hash);
}

/* Two prompts with 30 tokens in common, four responses of 0 to 9 tokens. */
static void rewards(const model_case *c) {
    const int64_t prompts[] = {0, 30, 80}, responses[] = {0, 9, 9, 14, 15}, of[] = {1, 0, 0, 1};
    int64_t ids[80];
    float made[4 * 8];
    napier_score_batch batch = NAPIER_SCORE_BATCH_INIT;
    memcpy(ids, c->ids, sizeof ids);
    memcpy(ids + 30, c->ids, 30 * sizeof *ids);
    batch.prompt_ids = napier_indices_i64(ids, 80);
    batch.prompt_offsets = napier_indices_i64(prompts, 3);
    batch.response_ids = napier_indices_i64(c->ids + 80, 15);
    batch.response_offsets = napier_indices_i64(responses, 5);
    batch.prompt_of = napier_indices_i64(of, 4);
    golden_demand(napier_model_rewards(golden_context, c->model, &batch, NULL, napier_rows_f32(made, 4, c->m->labels)));
    line(c, "rewards", hash_floats(GOLDEN_BASIS, made, 4 * c->m->labels));
}

static void model_lines(const char *name, tiny_model m, napier_compute compute) {
    napier_model_options options = NAPIER_MODEL_OPTIONS_INIT;
    model_case c = {.name = name, .m = &m};
    rng r = rng_make(m.seed);
    for (int i = 0; i < 200; i++) {
        c.ids[i] = rng_below(&r, m.vocabulary);
    }
    options.compute = compute;
    tiny_model_write(&m);
    if (m.directory[0] == '\0') {
        golden_give_up(name, "cannot be written to TMPDIR");
    }
    golden_demand(napier_model_load(golden_context, m.directory, &options, &c.model));
    forward(&c);
    if (m.labels > 0) {
        rewards(&c);
    } else {
        score(&c);
        judge(&c);
        generate(&c);
    }
    napier_model_destroy(golden_context, c.model);
    tiny_model_remove(&m);
}

/* Mixtures of experts: of all layers, and of every second one with shares that are not divided by their sum. */
static void expert_cases(void) {
    tiny_model m = tiny_model_of(TINY_FAMILIES - 1);
    model_lines("experts", m, NAPIER_COMPUTE_F32);
    m.dtype = NAPIER_BF16;
    m.sparse_step = 2;
    m.chosen = 3;
    m.shares = false;
    model_lines("experts-bf16", m, NAPIER_COMPUTE_BF16);
}

static void all_cases(int quick) {
    static const tiny_model tied = TINY_MODEL_INIT;
    tiny_model m = tied;
    model_lines("f32", m, NAPIER_COMPUTE_F32);
    m.dtype = NAPIER_BF16;
    model_lines("bf16-f32", m, NAPIER_COMPUTE_F32);
    model_lines("bf16", m, NAPIER_COMPUTE_BF16);
    m.dtype = NAPIER_F16;
    m.tied = false;
    m.kv_heads = 1;
    model_lines("f16", m, NAPIER_COMPUTE_F32);
    m = tied;
    m.dtype = NAPIER_BF16;
    m.hidden = 50;
    m.intermediate = 77;
    m.head_dim = 26;
    m.theta = 1e6;
    if (!quick) {
        model_lines("odd", m, NAPIER_COMPUTE_BF16);
    }
    for (int which = 1; which < TINY_FAMILIES - 1; which++) { /* but the mixture of experts */
        m = tiny_model_of(which);
        m.dtype = NAPIER_BF16;
        model_lines(m.family, m, which == 2 ? NAPIER_COMPUTE_F32 : NAPIER_COMPUTE_BF16);
        char name[32];
        snprintf(name, sizeof name, "%s-rewards", m.family);
        m.labels = which;
        model_lines(name, m, which == 2 ? NAPIER_COMPUTE_BF16 : NAPIER_COMPUTE_F32);
    }
    expert_cases();
    m = tied;
    m.dtype = NAPIER_BF16;
    model_lines("split", m, NAPIER_COMPUTE_SPLIT);
    m = tiny_model_of(TINY_FAMILIES - 1);
    m.dtype = NAPIER_BF16;
    model_lines("experts-split", m, NAPIER_COMPUTE_SPLIT);
}

int main(int count, char **words) { return golden_main("golden_model", count, words, all_cases); }
