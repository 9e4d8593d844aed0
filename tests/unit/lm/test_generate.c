/* Sampling from a model: every token is the one that napier_sample draws from the logits of one pass over the prompt and
 * the tokens before; the same bits for any batch, order, memory, kept keys, threads and instruction set; log-probabilities
 * are those of scoring; stops, the callback, arguments, and memory that runs out. */
#include "support/check.h"

#include <napier/generate.h>
#include <stdlib.h>
#include <string.h>

#include "support/memory.h"
#include "unit/lm/lm_support.h"

enum { V = 83, PROMPTS = 7, SAMPLES = 3, SEQUENCES = PROMPTS * SAMPLES, MOST = 12, LONGEST = 90, ALL_IDS = 296 };

/* ---- Prompts ----------------------------------------------------------------------------------------------------- */

typedef struct prompts {
    int64_t ids[PROMPTS * LONGEST], offsets[PROMPTS + 1];
} prompts;

/* Some begin like the one before; one is as it; one is a single token. */
static prompts make_prompts(void) {
    static const int64_t sizes[PROMPTS] = {40, 90, 90, 1, 17, 33, 25}, kept[PROMPTS] = {0, 40, 90, 0, 0, 17, 9};
    prompts p;
    rng r = rng_make(5);
    p.offsets[0] = 0;
    for (int i = 0; i < PROMPTS; i++) {
        int64_t *const ids = p.ids + p.offsets[i];
        random_ids(ids, sizes[i], V, &r);
        if (i > 0) {
            memcpy(ids, p.ids + p.offsets[i - 1], (size_t)kept[i] * sizeof *ids);
        }
        p.offsets[i + 1] = p.offsets[i] + sizes[i];
    }
    return p;
}

static int64_t size_of(const prompts *p, int64_t i) { return p->offsets[i + 1] - p->offsets[i]; }

static napier_generate_batch view_of(const prompts *p) {
    napier_generate_batch batch = NAPIER_GENERATE_BATCH_INIT;
    batch.prompt_ids = napier_indices_i64(p->ids, ALL_IDS);
    batch.prompt_offsets = napier_indices_i64(p->offsets, PROMPTS + 1);
    batch.samples = SAMPLES;
    return batch;
}

/* ---- Results ----------------------------------------------------------------------------------------------------- */

typedef struct output {
    int64_t ids[SEQUENCES * MOST], lengths[SEQUENCES];
    napier_finish finish[SEQUENCES];
    float logprobs[SEQUENCES * MOST], plain[SEQUENCES * MOST], entropy[SEQUENCES * MOST];
    int64_t argmax[SEQUENCES * MOST];
} output;

static napier_generate_results results_of(output *o, int64_t sequences, int64_t most) {
    memset(o, 0x55, sizeof *o);
    napier_generate_results r = NAPIER_GENERATE_RESULTS_INIT;
    r.ids = o->ids;
    r.lengths = o->lengths;
    r.finish = o->finish;
    r.logprobs = napier_rows_f32(o->logprobs, sequences, most);
    r.plain_logprobs = napier_rows_f32(o->plain, sequences, most);
    r.entropy = napier_rows_f32(o->entropy, sequences, most);
    r.argmax = o->argmax;
    return r;
}

/* Row `of_b` of b is row `of_a` of a. */
static bool same_row(const output *a, int64_t of_a, const output *b, int64_t of_b) {
    const size_t wide = MOST * sizeof(int64_t), narrow = MOST * sizeof(float);
    return memcmp(a->ids + of_a * MOST, b->ids + of_b * MOST, wide) == 0 && a->lengths[of_a] == b->lengths[of_b] &&
           a->finish[of_a] == b->finish[of_b] &&
           memcmp(a->logprobs + of_a * MOST, b->logprobs + of_b * MOST, narrow) == 0 &&
           memcmp(a->plain + of_a * MOST, b->plain + of_b * MOST, narrow) == 0 &&
           memcmp(a->entropy + of_a * MOST, b->entropy + of_b * MOST, narrow) == 0 &&
           memcmp(a->argmax + of_a * MOST, b->argmax + of_b * MOST, wide) == 0;
}

static void expect_same(const output *a, const output *b, const char *what) {
    for (int64_t i = 0; i < SEQUENCES; i++) {
        expect(same_row(a, i, b, i), "%s: sequence %d differs", what, (int)i);
    }
}

/* ---- A model and its options ------------------------------------------------------------------------------------- */

typedef struct setting {
    const tiny_model *m;
    napier_compute compute;
    napier_isa isa;
    int threads, kvs;
    int64_t period; /* of steps, after each of which a prompt arrives; 0: all are there */
    int64_t memory, min_tokens;
    napier_sample_options sampling;
} setting;

static const int64_t stops[] = {3, 50};

static napier_generate_options run_options(const setting *s) {
    napier_generate_options options = NAPIER_GENERATE_OPTIONS_INIT;
    options.max_tokens = MOST;
    options.min_tokens = s->min_tokens;
    options.stop = napier_indices_i64(stops, 2);
    options.sampling = &s->sampling;
    return options;
}

/* Prompts that arrive, and sequences that have ended. */
typedef struct arrivals {
    napier_context *context;
    const prompts *from;
    const output *out;
    prompts there;
    int64_t period, calls, count, ended;
} arrivals;

/* Adds a prompt after each period, and when all that are there have ended. */
static int64_t on_arrival(void *user) {
    arrivals *const a = user;
    if (a->count < PROMPTS && (++a->calls % a->period == 0 || a->ended == a->count * SAMPLES)) {
        const int64_t begin = a->from->offsets[a->count], size = size_of(a->from, a->count);
        memcpy(a->there.ids + begin, a->from->ids + begin, (size_t)size * sizeof *a->there.ids);
        a->there.offsets[a->count] = begin;
        a->there.offsets[++a->count] = begin + size;
    }
    return a->count;
}

static int count_kv(int64_t sequence, napier_kv *kv, void *user) {
    arrivals *const a = user;
    a->ended++;
    expect(napier_kv_tokens(kv) == size_of(a->from, sequence / SAMPLES) + a->out->lengths[sequence] - 1,
           "the kv of sequence %d has %d tokens", (int)sequence, (int)napier_kv_tokens(kv));
    napier_kv_destroy(a->context, kv);
    return 0;
}

static void generate(const setting *s, const prompts *p, output *out) {
    napier_context *context = context_for_test(s->isa, s->threads);
    napier_model *const model = model_load(context, s->m, s->compute, s->memory);
    static arrivals a;
    a = (arrivals){.context = context, .from = p, .out = out, .period = s->period};
    memset(&a.there, 0x55, sizeof a.there);
    const napier_generate_batch batch = view_of(s->period > 0 ? &a.there : p);
    const napier_generate_results results = results_of(out, SEQUENCES, MOST);
    napier_generate_options options = run_options(s);
    options.on_kv = count_kv;
    options.on_arrival = s->period > 0 ? on_arrival : NULL;
    options.longest_prompt = LONGEST;
    options.user = &a;
    napier_kv *kvs[2] = {NULL};
    for (int i = 0; i < s->kvs; i++) { /* all of one prompt, a part of another */
        const napier_indices ids = napier_indices_i64(p->ids + p->offsets[2 * i + 1], i == 0 ? size_of(p, 1) : 1);
        works(napier_kv_create, context, model, ids, NULL, NULL, &kvs[i]);
    }
    options.kvs = (const napier_kv *const *)kvs;
    options.kv_count = s->kvs;
    works(napier_generate, context, model, &batch, &options, &results);
    expect(a.ended == SEQUENCES, "on_kv had %d sequences", (int)a.ended);
    for (int i = 0; i < s->kvs; i++) {
        napier_kv_destroy(context, kvs[i]);
    }
    napier_model_destroy(context, model);
}

/* Samplings: plain, with every filter, greedy, with penalties and forbidden ids. */
enum { SAMPLINGS = 4 };
static napier_sample_options sampling_of(int which) {
    static uint8_t keep[V];
    memset(keep, 1, sizeof keep);
    keep[7] = keep[60] = 0;
    napier_sample_options s = NAPIER_SAMPLE_OPTIONS_INIT;
    s.seed = 12345;
    s.temperature = which == 2 ? 0.0 : which == 1 ? 0.7 : 1.0;
    if (which == 1) {
        s.top_k = 40;
        s.top_p = 0.9;
        s.min_p = 0.01;
    }
    if (which == 3) {
        s.repetition_penalty = 1.3;
        s.frequency_penalty = 0.2;
        s.presence_penalty = 0.1;
        s.keep = keep;
    }
    return s;
}

/* ---- The definition ---------------------------------------------------------------------------------------------- */

/* keep, without the stops for tokens before min_tokens. */
static const uint8_t *keep_of(const setting *s, int64_t t) {
    static uint8_t early[V];
    for (int64_t id = 0; id < V; id++) {
        early[id] = (!s->sampling.keep || s->sampling.keep[id]) && id != stops[0] && id != stops[1];
    }
    return t < s->min_tokens ? early : s->sampling.keep;
}

/* Draws token t of sequence b from the logits of a pass over all tokens before it. */
static void check_token(const setting *s, napier_context *context, const float *logits, const prompts *p, int64_t b,
                        int64_t t, const output *got) {
    const int64_t prompt = b / SAMPLES, size = size_of(p, prompt), begins[] = {0, size}, outputs[] = {0, t};
    int64_t id = -1;
    float logprob = 0, plain = 0;
    napier_sample_options options = s->sampling;
    napier_sample_results results = NAPIER_SAMPLE_RESULTS_INIT;
    options.keep = keep_of(s, t);
    options.prompt_ids = napier_indices_i64(p->ids + p->offsets[prompt], size);
    options.prompt_offsets = napier_indices_i64(begins, 2);
    options.output_ids = napier_indices_i64(got->ids + b * MOST, t);
    options.output_offsets = napier_indices_i64(outputs, 2);
    options.samples = napier_indices_i64(&b, 1);
    options.positions = napier_indices_i64(&t, 1);
    results.ids = &id;
    results.logprobs = napier_array_f32(&logprob, 1);
    results.plain_logprobs = napier_array_f32(&plain, 1);
    const napier_const_matrix row = napier_const_rows_f32(logits + (size - 1 + t) * V, 1, V);
    works(napier_sample, context, row, &options, &results);
    expect(id == got->ids[b * MOST + t] && memcmp(&logprob, &got->logprobs[b * MOST + t], sizeof logprob) == 0 &&
               memcmp(&plain, &got->plain[b * MOST + t], sizeof plain) == 0,
           "sequence %d, token %d: %d (%g, %g), not %d (%g, %g)", (int)b, (int)t, (int)got->ids[b * MOST + t],
           (double)got->logprobs[b * MOST + t], (double)got->plain[b * MOST + t], (int)id, (double)logprob,
           (double)plain);
}

/* The plain log-probabilities, entropies and largest logits are those of scoring, for greedy ids at temperature 1. */
static void check_scores(const setting *s, napier_context *context, const napier_model *model, const prompts *p,
                         int64_t b, const output *got) {
    const int64_t prompt = b / SAMPLES, length = got->lengths[b];
    float scores[MOST], entropy[MOST];
    int64_t argmax[MOST];
    napier_score_options options = NAPIER_SCORE_OPTIONS_INIT;
    napier_score_results results = NAPIER_SCORE_RESULTS_INIT;
    options.temperature = s->sampling.temperature > 0 ? s->sampling.temperature : 1.0;
    results.logprobs = napier_array_f32(scores, length);
    results.entropy = napier_array_f32(entropy, length);
    results.argmax = argmax;
    works(napier_model_logprobs_for, context, model,
          napier_indices_i64(p->ids + p->offsets[prompt], size_of(p, prompt)),
          napier_indices_i64(got->ids + b * MOST, length), &options, &results);
    expect(memcmp(scores, got->plain + b * MOST, (size_t)length * sizeof *scores) == 0 &&
               memcmp(entropy, got->entropy + b * MOST, (size_t)length * sizeof *entropy) == 0 &&
               memcmp(argmax, got->argmax + b * MOST, (size_t)length * sizeof *argmax) == 0,
           "sequence %d: sampled with other log-probabilities than scored", (int)b);
}

static void check_definition(const setting *s, const prompts *p, const output *got) {
    static float logits[(LONGEST + MOST) * V];
    napier_context *context = context_for_test(NAPIER_ISA_AUTO, 1);
    napier_model *const model = model_load(context, s->m, s->compute, 0);
    for (int64_t b = 0; b < SEQUENCES; b++) {
        int64_t ids[LONGEST + MOST];
        const int64_t prompt = b / SAMPLES, size = size_of(p, prompt), length = got->lengths[b];
        const bool stopped = got->ids[b * MOST + length - 1] == 3 || got->ids[b * MOST + length - 1] == 50;
        memcpy(ids, p->ids + p->offsets[prompt], (size_t)size * sizeof *ids);
        memcpy(ids + size, got->ids + b * MOST, (size_t)length * sizeof *ids);
        model_logits(context, model, s->m, ids, size + length, logits);
        for (int64_t t = 0; t < length; t++) {
            check_token(s, context, logits, p, b, t, got);
            expect(t == length - 1 || (ids[size + t] != 3 && ids[size + t] != 50), "sequence %d did not stop", (int)b);
        }
        expect(stopped == (got->finish[b] == NAPIER_FINISH_STOP) && (stopped || length == MOST) &&
                   length >= s->min_tokens,
               "sequence %d has %d tokens", (int)b, (int)length);
        for (int64_t t = length; t < MOST; t++) {
            expect(got->ids[b * MOST + t] == -1 && got->logprobs[b * MOST + t] == 0 && got->plain[b * MOST + t] == 0 &&
                       got->entropy[b * MOST + t] == 0 && got->argmax[b * MOST + t] == -1,
                   "sequence %d goes on", (int)b);
        }
        check_scores(s, context, model, p, b, got);
    }
    napier_model_destroy(context, model);
}

/* ---- Any schedule ------------------------------------------------------------------------------------------------ */

/* The least memory in which the longest prompt can run, from the refusal. */
static int64_t least_memory(const setting *s, const prompts *p) {
    napier_context *context = context_for_test(s->isa, s->threads);
    napier_model *const model = model_load(context, s->m, s->compute, 1000);
    static output out;
    const napier_generate_batch batch = view_of(p);
    const napier_generate_options options = run_options(s);
    const napier_generate_results results = results_of(&out, SEQUENCES, MOST);
    refused(context, napier_generate(context, model, &batch, &options, &results), NAPIER_OUT_OF_MEMORY,
            "memory: 1000 bytes are too few for a prompt of 90 tokens", NULL);
    const char *const need = strstr(napier_last_error(context), "need ");
    const int64_t bytes = need ? strtoll(need + 5, NULL, 10) : 0;
    napier_model_destroy(context, model);
    return bytes;
}

/* What a call takes, besides the model, is within its memory. */
static void check_memory(const setting *s, const prompts *p, int64_t memory) {
    static output out;
    ledger l = LEDGER_INIT;
    napier_context *context = ledger_context(&l, s->threads);
    napier_model *const model = model_load(context, s->m, s->compute, memory);
    const napier_generate_batch batch = view_of(p);
    const napier_generate_options options = run_options(s);
    const napier_generate_results results = results_of(&out, SEQUENCES, MOST);
    const size_t before = l.most = l.now;
    works(napier_generate, context, model, &batch, &options, &results);
    expect((int64_t)(l.most - before) <= memory, "%lld bytes taken of %lld", (long long)(l.most - before),
           (long long)memory);
    napier_model_destroy(context, model);
    napier_context_destroy(context);
}

/* The prompts one by one, the last first, with their numbers. */
static void check_alone(const setting *s, const prompts *p, const output *wanted) {
    napier_context *context = context_for_test(s->isa, 2);
    napier_model *const model = model_load(context, s->m, s->compute, 0);
    for (int64_t b = SEQUENCES - 1; b >= 0; b -= 2) {
        static output got;
        const int64_t prompt = b / SAMPLES, offsets[] = {0, size_of(p, prompt)};
        napier_generate_batch batch = NAPIER_GENERATE_BATCH_INIT;
        const napier_generate_options options = run_options(s);
        const napier_generate_results results = results_of(&got, 1, MOST);
        batch.prompt_ids = napier_indices_i64(p->ids + p->offsets[prompt], offsets[1]);
        batch.prompt_offsets = napier_indices_i64(offsets, 2);
        batch.numbers = napier_indices_i64(&b, 1);
        works(napier_generate, context, model, &batch, &options, &results);
        expect(same_row(&got, 0, wanted, b), "sequence %d by itself differs", (int)b);
    }
    napier_model_destroy(context, model);
}

static void check_schedules(setting s, const prompts *p, const output *wanted) {
    static output got;
    const int64_t least = least_memory(&s, p);
    for (int more = 0; more < 4; more++) {
        s.memory = least + (int64_t)more * (more == 3 ? 1 << 20 : 1 << 14);
        s.kvs = more % 3;
        s.period = more % 4;
        check_memory(&s, p, s.memory);
        generate(&s, p, &got);
        expect_same(&got, wanted, "little memory");
    }
    s.memory = 0;
    for (s.period = 1; s.period < 8; s.period += 3) {
        generate(&s, p, &got);
        expect_same(&got, wanted, "arrivals");
    }
    s.period = 0;
    s.threads = 3;
    generate(&s, p, &got);
    expect_same(&got, wanted, "three threads");
    napier_isa isas[ISA_LIMIT];
    for (int i = available_isas(isas) - 1; i >= 0; i--) {
        s.isa = isas[i];
        generate(&s, p, &got);
        expect_same(&got, wanted, napier_isa_name(isas[i]));
    }
}

/* ---- Turns ------------------------------------------------------------------------------------------------------- */

enum { TURNS = 4, NEW_IDS = 3 };

typedef struct turn {
    int64_t ids[MOST], length;
    float logprobs[MOST], plain[MOST], entropy[MOST];
    int64_t argmax[MOST];
    napier_finish finish;
} turn;

static int keep(int64_t sequence, napier_kv *kv, void *user) {
    napier_kv **const to = user;
    expect(sequence == 0 && !*to, "a second kv, of sequence %d", (int)sequence);
    *to = kv;
    return 0;
}

static void run_turn(const setting *s, napier_context *context, const napier_model *model, napier_indices prompt,
                     napier_kv **kv, int64_t most, turn *out) {
    const bool keeps = kv != NULL;
    const int64_t offsets[] = {0, prompt.size};
    napier_generate_batch batch = NAPIER_GENERATE_BATCH_INIT;
    napier_generate_results r = NAPIER_GENERATE_RESULTS_INIT;
    napier_generate_options options = run_options(s);
    napier_kv *next = NULL;
    batch.prompt_ids = prompt;
    batch.prompt_offsets = napier_indices_i64(offsets, 2);
    options.max_tokens = most;
    options.kvs = (const napier_kv *const *)kv;
    options.kv_count = keeps && *kv != NULL;
    r.ids = out->ids;
    r.lengths = &out->length;
    r.finish = &out->finish;
    r.logprobs = napier_rows_f32(out->logprobs, 1, most);
    r.plain_logprobs = napier_rows_f32(out->plain, 1, most);
    r.entropy = napier_rows_f32(out->entropy, 1, most);
    r.argmax = out->argmax;
    options.on_kv = keeps ? keep : NULL;
    options.user = &next;
    memset(out->ids, 0, sizeof out->ids);
    works(napier_generate, context, model, &batch, &options, &r);
    expect((next != NULL) == keeps && (!keeps || napier_kv_tokens(next) == prompt.size + out->length - 1),
           "the kv of a turn of %d and %d tokens has %d", (int)prompt.size, (int)out->length,
           (int)napier_kv_tokens(next));
    if (keeps) {
        napier_kv_destroy(context, *kv);
        *kv = next;
    }
}

/* A conversation: each prompt is the last one, its answer and some new ids. The turns that go on with keys and values of
 * the last have the bits of those that run the whole prompt. */
static void check_turns(const setting *s, const prompts *p) {
    napier_context *context = context_for_test(s->isa, s->threads);
    napier_model *const model = model_load(context, s->m, s->compute, s->memory);
    int64_t ids[128], size = size_of(p, 0);
    static turn whole, reused; /* static: memcmp sees their padding */
    napier_kv *kept = NULL;
    memcpy(ids, p->ids, (size_t)size * sizeof *ids);
    for (int t = 0; t < TURNS; t++) {
        const int64_t most = t == 1 ? 1 : MOST;
        run_turn(s, context, model, napier_indices_i64(ids, size), NULL, most, &whole);
        run_turn(s, context, model, napier_indices_i64(ids, size), &kept, most, &reused);
        expect(memcmp(&whole, &reused, sizeof whole) == 0, "turn %d differs", t);
        memcpy(ids + size, whole.ids, (size_t)whole.length * sizeof *ids);
        size += whole.length;
        for (int i = 0; i < NEW_IDS; i++) {
            ids[size++] = (7 * t + 13 * i) % V;
        }
        if (t == TURNS - 2) { /* the last goes on with an extended one, and not with its last token */
            const napier_kv *const before = kept;
            works(napier_kv_extend, context, before, napier_indices_i64(ids + napier_kv_tokens(before), 2), NULL, NULL,
                  &kept);
            napier_kv_destroy(context, (napier_kv *)before);
        }
    }
    napier_kv_destroy(context, kept);
    napier_model_destroy(context, model);
}

static void test_turns(void) {
    const prompts p = make_prompts();
    static const napier_compute computes[] = {NAPIER_COMPUTE_F32, NAPIER_COMPUTE_BF16, NAPIER_COMPUTE_SPLIT};
    static const napier_dtype dtypes[] = {NAPIER_F32, NAPIER_F16, NAPIER_BF16};
    napier_isa isas[ISA_LIMIT];
    const int count = available_isas(isas);
    for (int k = 0; k < 9; k++) {
        TINY_MODEL(m);
        m = tiny_model_of(k % TINY_FAMILIES);
        m.dtype = dtypes[k % 3];
        const napier_compute compute = computes[k / 3];
        if (compute == NAPIER_COMPUTE_SPLIT && m.dtype != NAPIER_BF16) {
            continue; /* only of bf16 */
        }
        tiny_model_write(&m);
        for (int i = 0; i < count; i++) {
            setting s = {
                .m = &m, .compute = compute, .isa = isas[i], .threads = 1 + i % 2, .sampling = sampling_of(k % 4)};
            check_turns(&s, &p);
        }
    }
}

static void test_sequences(void) {
    const prompts p = make_prompts();
    static output wanted;
    for (int k = 0; k < SAMPLINGS + 2; k++) {
        TINY_MODEL(m);
        const int which = k % SAMPLINGS;
        m = tiny_model_of(k < SAMPLINGS ? k : TINY_FAMILIES - 1); /* each with another family */
        m.dtype = which == 1 ? NAPIER_F32 : NAPIER_BF16;
        m.kv_heads = which == 2 ? 4 : 1;
        tiny_model_write(&m);
        const setting s = {.m = &m,
                           .compute = k == 2 || k == SAMPLINGS ? NAPIER_COMPUTE_SPLIT
                                      : which % 2 == 0         ? NAPIER_COMPUTE_F32
                                                               : NAPIER_COMPUTE_BF16,
                           .threads = 1,
                           .min_tokens = which == 3   ? 7
                                         : which == 1 ? 1
                                                      : 0,
                           .sampling = sampling_of(which)};
        generate(&s, &p, &wanted);
        check_definition(&s, &p, &wanted);
        if (!NAPIER_SANITIZED || which == 1) {
            check_schedules(s, &p, &wanted);
            check_alone(&s, &p, &wanted);
        }
    }
}

/* ---- The call ---------------------------------------------------------------------------------------------------- */

typedef struct told {
    int64_t calls, most, lengths[SEQUENCES];
    const output *out;
} told;

static int on_token(int64_t sequence, int64_t index, int64_t id, float logprob, void *user) {
    told *const t = user;
    expect(index == t->lengths[sequence]++, "sequence %d: token %d out of turn", (int)sequence, (int)index);
    expect(id == t->out->ids[sequence * MOST + index] && logprob == t->out->logprobs[sequence * MOST + index],
           "sequence %d, token %d is another", (int)sequence, (int)index);
    return ++t->calls == t->most;
}

/* Sequence b ends with token b % 4. */
static int end_early(int64_t sequence, int64_t index, int64_t id, float logprob, void *user) {
    (void)id, (void)logprob, (void)user;
    return index == sequence % 4 ? NAPIER_END_SEQUENCE : 0;
}

typedef struct call {
    napier_context *context;
    napier_model *model;
    prompts p;
    napier_generate_batch batch;
    napier_generate_options options;
    napier_sample_options sampling;
    napier_generate_results results;
    output out;
} call;

static void call_reset(call *c) {
    c->batch = view_of(&c->p);
    c->sampling = (napier_sample_options)NAPIER_SAMPLE_OPTIONS_INIT;
    c->options = (napier_generate_options)NAPIER_GENERATE_OPTIONS_INIT;
    c->options.max_tokens = MOST;
    c->options.sampling = &c->sampling;
    c->results = results_of(&c->out, SEQUENCES, MOST);
}

static napier_status call_run(const call *c) {
    return napier_generate(c->context, c->model, &c->batch, &c->options, &c->results);
}

#define REFUSED(change, ...)                                                                         \
    do {                                                                                             \
        call_reset(c);                                                                               \
        change;                                                                                      \
        refused(c->context, call_run(c), NAPIER_INVALID_ARGUMENT, __VA_ARGS__, (char *)NULL);        \
        expect(c->out.ids[0] == 0x5555555555555555 && c->out.logprobs[0] > 1e12f, "it has written"); \
    } while (0)

static void check_refusals(call *c) {
    static const int64_t falling[] = {0, 5, 4, 9, 9, 9, 9, 296}, bad[] = {83}, numbers[2] = {0, 0};
    static const int64_t empty[] = {0, 40, 40, 90, 91, 120, 150, 296};
    const napier_kv *none = NULL;
    napier_model *const model = c->model;
    REFUSED(c->model = NULL, "model: NULL");
    c->model = model;
    REFUSED(c->batch.struct_size = 3, "struct_size is 3");
    REFUSED(c->batch.prompt_offsets = napier_indices_i64(falling, 8), "prompt_offsets[2] is 4");
    REFUSED(c->batch.prompt_offsets = napier_indices_i64(empty, 8), "prompt 1 is empty");
    REFUSED(c->batch.samples = 0, "samples is 0");
    REFUSED(c->batch.samples = INT64_MAX, "samples is 9223372036854775807");
    REFUSED(c->batch.numbers = napier_indices_i64(numbers, 2), "numbers: 2 for 21");
    REFUSED(c->options.max_tokens = 0, "max_tokens is 0");
    REFUSED(c->options.max_tokens = INT64_MAX, "max_tokens is 9223372036854775807");
    REFUSED(c->options.min_tokens = -1, "min_tokens is -1");
    REFUSED(c->options.min_tokens = MOST + 1, "min_tokens is 13, not in 0 .. max_tokens, 12");
    REFUSED(c->options.stop = napier_indices_i64(bad, 1), "stop[0] is 83");
    REFUSED(c->options.kv_count = -1, "kv_count is -1");
    REFUSED((c->options.kvs = &none, c->options.kv_count = 1), "kvs[0]", "not of this model");
    REFUSED((c->options.on_arrival = on_arrival, c->options.longest_prompt = 0), "longest_prompt is 0");
    REFUSED(c->sampling.positions = napier_indices_i64(numbers, 2), "sampling: a list is not empty");
    REFUSED((c->sampling.keep = (const uint8_t *)numbers, c->sampling.keep_stride = 83), "keep_stride is 83");
    REFUSED(c->results.ids = NULL, "ids", "NULL");
    REFUSED(c->results.lengths = c->out.ids + 4, "lengths", "overlaps ids");
    REFUSED(c->results.logprobs.cols = 11, "logprobs", "21 x 11");
    REFUSED(c->results.argmax = c->out.ids, "argmax", "overlaps ids");
    REFUSED(c->results.entropy = c->results.logprobs, "entropy", "overlaps logprobs");
    REFUSED(c->sampling.keep = (const uint8_t *)c->out.ids + 11, "ids", "overlaps keep");
    REFUSED(c->results.plain_logprobs.dtype = NAPIER_F64, "plain_logprobs", "f64");
}

/* Prompts that arrive and are wrong. */
static int64_t arrives(void *user) { return *(const int64_t *)user; }

static void check_wrong_arrivals(call *c) {
    static const struct {
        int64_t count, offsets[3], id;
        const char *said[2];
    } wrong[] = {{8, {0, 1, 2}, 5, {"on_arrival: 8 prompts", "not in 0 .. 7"}},
                 {1, {0, 0, 2}, 5, {"prompt 0 has ids 0 .. 0", "1 to 90 of 296"}},
                 {2, {0, 1, 0}, 5, {"prompt 1 has ids 1 .. 0", ""}},
                 {1, {0, 91, 92}, 5, {"prompt 0 has ids 0 .. 91", ""}},
                 {1, {-1, 1, 2}, 5, {"prompt 0 has ids -1 .. 1", ""}},
                 {1, {0, 297, 298}, 5, {"prompt 0 has ids 0 .. 297", ""}},
                 {1, {0, 1, 2}, 83, {"prompt_ids[0] is 83", "not in 0 .. 82"}},
                 {1, {0, 1, 2}, -1, {"prompt_ids[0] is -1", ""}}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        int64_t ids[ALL_IDS] = {wrong[i].id}, offsets[PROMPTS + 1] = {0}, count = wrong[i].count;
        call_reset(c);
        memcpy(offsets, wrong[i].offsets, sizeof wrong[i].offsets);
        c->batch.prompt_ids = napier_indices_i64(ids, ALL_IDS);
        c->batch.prompt_offsets = napier_indices_i64(offsets, PROMPTS + 1);
        c->options.on_arrival = arrives;
        c->options.longest_prompt = i == 5 ? 400 : LONGEST;
        c->options.user = &count;
        refused(c->context, call_run(c), NAPIER_INVALID_ARGUMENT, wrong[i].said[0], wrong[i].said[1], (char *)NULL);
        count = -1;
        refused(c->context, call_run(c), NAPIER_CANCELLED, "cancelled by on_arrival", (char *)NULL);
        count = 0; /* none comes */
        succeeded(c->context, call_run(c), "no arrival");
        expect(c->out.lengths[0] == 0 && c->out.lengths[SEQUENCES - 1] == 0, "lengths without prompts");
    }
    call_reset(c);
}

static void test_call(napier_context *context) {
    TINY_MODEL(m);
    static call c;
    static output first;
    tiny_model_write(&m);
    c.context = context;
    c.model = model_load(context, &m, NAPIER_COMPUTE_F32, 0);
    c.p = make_prompts();
    check_refusals(&c);
    check_wrong_arrivals(&c);
    told t = {.out = &c.out};
    c.options.on_token = on_token;
    c.options.user = &t;
    succeeded(context, call_run(&c), "generate");
    expect(t.calls == SEQUENCES * MOST, "%d calls of on_token", (int)t.calls);
    first = c.out;
    t = (told){.out = &c.out, .most = 30};
    refused(context, call_run(&c), NAPIER_CANCELLED, "cancelled", NULL);
    call_reset(&c);
    c.sampling.keep = (const uint8_t[V]){[3] = 1, [50] = 1};
    c.options.stop = napier_indices_i64(stops, 2);
    c.options.min_tokens = 1;
    invalid(context, call_run(&c), "has no id left");
    call_reset(&c); /* one token each: the first of twelve */
    c.options.max_tokens = 1;
    c.results = results_of(&c.out, SEQUENCES, 1);
    succeeded(context, call_run(&c), "one token");
    for (int64_t b = 0; b < SEQUENCES; b++) {
        expect(c.out.ids[b] == first.ids[b * MOST] && c.out.lengths[b] == 1, "sequence %d, one token", (int)b);
    }
    call_reset(&c);
    c.options.on_token = end_early;
    succeeded(context, call_run(&c), "ends early");
    for (int64_t b = 0; b < SEQUENCES; b++) {
        const size_t bytes = (size_t)(b % 4 + 1) * sizeof *c.out.ids;
        expect(c.out.lengths[b] == b % 4 + 1 && c.out.finish[b] == NAPIER_FINISH_CALLER &&
                   memcmp(c.out.ids + b * MOST, first.ids + b * MOST, bytes) == 0,
               "sequence %d does not end early", (int)b);
    }
    call_reset(&c);
    c.sampling.temperature = -1;
    invalid(context, call_run(&c), "temperature");
    call_reset(&c);
    c.batch.prompt_ids.size = 0, c.batch.prompt_offsets.size = 1;
    c.results = results_of(&c.out, 0, MOST);
    succeeded(context, call_run(&c), "no prompts");
    napier_model_destroy(context, c.model);
}

int main(void) { return RUN_TESTS("generate", TEST(test_sequences), TEST(test_turns), TEST_1(test_call)); }
