/* Stop texts, and texts as they grow: compared with a search in the whole text of a run without stops, whose tokens are the
 * same; for every instruction set, threads, memory, order of sequences and kept keys. */
#include "support/check.h"

#include <napier/generate.h>
#include <stdlib.h>
#include <string.h>

#include "support/memory.h"
#include "support/tiny_tokenizer.h"
#include "unit/lm/lm_support.h"

/* The tokenizer has 285 tokens: single bytes, merges, and 7 added tokens, of which 278, 279 and 280 are special. */
enum { V = 290, SPECIAL = 280, PROMPTS = 4, SAMPLES = 5, SEQUENCES = PROMPTS * SAMPLES, MOST = 40, BYTES = 16 * MOST };

static const int64_t prompt_ids[] = {5, 60, 83, 83, 12, 256, 7, 83, 83, 12, 256, 9, 200},
                     prompt_offsets[] = {0, 2, 7, 12, 13};

/* ---- Runs -------------------------------------------------------------------------------------------------------- */

typedef struct output {
    int64_t ids[SEQUENCES * MOST], lengths[SEQUENCES], stop_text[SEQUENCES], text_offsets[SEQUENCES + 1];
    napier_finish finish[SEQUENCES];
    float logprobs[SEQUENCES * MOST], entropy[SEQUENCES * MOST];
    napier_text_buffer text;
} output;

/* What on_text got. */
typedef struct heard {
    char bytes[SEQUENCES][BYTES];
    size_t sizes[SEQUENCES];
    int ended[SEQUENCES];
    int64_t calls, most; /* the call that cancels */
} heard;

typedef struct setting {
    const tiny_model *m;
    const napier_tokenizer *tokenizer;
    napier_isa isa;
    int threads;
    int64_t memory, min_tokens, max_tokens, stop_id; /* max_tokens 0: MOST; stop_id -1: none */
    bool kept, alone;                                /* alone: prompts in calls of their own, the last first */
    const napier_text *stops;
    int64_t stop_count;
    napier_sample_options sampling;
} setting;

/* True if the first `size` bytes end inside a character of UTF-8. */
static bool is_cut(const char *bytes, size_t size) {
    for (size_t back = 1; back < 4 && back <= size; back++) {
        const unsigned char c = (unsigned char)bytes[size - back];
        if (c < 0x80 || c >= 0xc0) {
            return c >= 0xc0 && back < (c >= 0xf0 ? 4U : c >= 0xe0 ? 3U : 2U);
        }
    }
    return false;
}

static int on_text(int64_t sequence, const char *bytes, size_t size, int ended, void *user) {
    heard *const h = user;
    expect(!h->ended[sequence] && (size > 0 || ended), "sequence %d: a piece of %zu bytes", (int)sequence, size);
    expect(size == 0 || ((unsigned char)bytes[0] & 0xc0) != 0x80 || !is_cut(h->bytes[sequence], h->sizes[sequence]),
           "sequence %d: half a character", (int)sequence);
    memcpy(h->bytes[sequence] + h->sizes[sequence], bytes, size);
    h->sizes[sequence] += size;
    h->ended[sequence] = ended;
    return ++h->calls == h->most;
}

/* Generates for prompts begin .. begin + count - 1; rows of `out` and `heard` are those of the sequences. */
static napier_status call(const setting *s, napier_context *context, const napier_model *model, int64_t begin,
                          int64_t count, output *out, heard *h, const napier_kv *kv) {
    int64_t numbers[SEQUENCES], offsets[PROMPTS + 1];
    const int64_t first = begin * SAMPLES, all = count * SAMPLES, most = s->max_tokens > 0 ? s->max_tokens : MOST;
    napier_generate_batch batch = NAPIER_GENERATE_BATCH_INIT;
    napier_generate_options options = NAPIER_GENERATE_OPTIONS_INIT;
    napier_generate_results r = NAPIER_GENERATE_RESULTS_INIT;
    for (int64_t b = 0; b < all; b++) {
        numbers[b] = first + b;
    }
    for (int64_t p = 0; p <= count; p++) {
        offsets[p] = prompt_offsets[begin + p] - prompt_offsets[begin];
    }
    batch.prompt_ids = napier_indices_i64(prompt_ids + prompt_offsets[begin], offsets[count]);
    batch.prompt_offsets = napier_indices_i64(offsets, count + 1);
    batch.samples = SAMPLES;
    batch.numbers = napier_indices_i64(numbers, all);
    options.max_tokens = most;
    options.min_tokens = s->min_tokens;
    options.sampling = &s->sampling;
    options.stop = napier_indices_i64(&s->stop_id, s->stop_id >= 0);
    options.tokenizer = s->tokenizer;
    options.stop_texts = s->stops;
    options.stop_text_count = s->stop_count;
    options.on_text = h ? on_text : NULL;
    options.user = h;
    options.kvs = &kv;
    options.kv_count = kv ? 1 : 0;
    r.ids = out->ids + first * MOST;
    r.lengths = out->lengths + first;
    r.finish = out->finish + first;
    r.stop_text = out->stop_text + first;
    r.logprobs = napier_rows_f32(out->logprobs + first * MOST, all, most);
    r.entropy = napier_rows_f32(out->entropy + first * MOST, all, most);
    r.text = s->alone ? NULL : &out->text;
    r.text_offsets = s->alone ? NULL : out->text_offsets;
    return napier_generate(context, model, &batch, &options, &r);
}

static void generate(const setting *s, output *out, heard *h) {
    napier_context *context = context_for_test(s->isa, s->threads);
    napier_model *const model = model_load(context, s->m, NAPIER_COMPUTE_F32, s->memory);
    napier_kv *kv = NULL;
    out->text.size = 0;
    memset(h, 0, sizeof *h);
    if (s->kept) {
        works(napier_kv_create, context, model, napier_indices_i64(prompt_ids + 2, 4), NULL, NULL, &kv);
    }
    if (!s->alone) {
        succeeded(context, call(s, context, model, 0, PROMPTS, out, h, kv), "generate");
    }
    for (int64_t p = PROMPTS - 1; p >= 0 && s->alone; p--) {
        static heard one;
        memset(&one, 0, sizeof one);
        succeeded(context, call(s, context, model, p, 1, out, &one, kv), "generate, one prompt");
        memcpy(h->bytes + p * SAMPLES, one.bytes, SAMPLES * sizeof *one.bytes);
        memcpy(h->sizes + p * SAMPLES, one.sizes, SAMPLES * sizeof *one.sizes);
        memcpy(h->ended + p * SAMPLES, one.ended, SAMPLES * sizeof *one.ended);
    }
    napier_kv_destroy(context, kv);
    napier_model_destroy(context, model);
}

/* ---- The definition ---------------------------------------------------------------------------------------------- */

/* The whole text of a sequence with the bytes of special tokens; of each byte its token, and whether that is special. */
typedef struct whole {
    char bytes[BYTES];
    int64_t token[BYTES];
    bool special[BYTES];
    int64_t size;
} whole;

static void read_whole(const setting *s, const output *free_run, int64_t b, whole *w) {
    w->size = 0;
    for (int64_t t = 0; t < free_run->lengths[b]; t++) {
        const int64_t id = free_run->ids[b * MOST + t];
        size_t size = 0;
        const char *const bytes = napier_tokenizer_token(s->tokenizer, id, &size);
        for (size_t i = 0; i < size; i++, w->size++) {
            w->bytes[w->size] = bytes[i];
            w->token[w->size] = t;
            w->special[w->size] = napier_tokenizer_is_special(s->tokenizer, id) != 0;
        }
    }
}

/* The stop text that ends at byte `end`, the longest; -1: none. */
static int64_t stop_at(const setting *s, const whole *w, int64_t end) {
    int64_t found = -1;
    for (int64_t i = 0; i < s->stop_count; i++) {
        const int64_t size = (int64_t)s->stops[i].size;
        if (size <= end && memcmp(w->bytes + end - size, s->stops[i].bytes, (size_t)size) == 0 &&
            (found < 0 || s->stops[i].size > s->stops[found].size)) {
            found = i;
        }
    }
    return found;
}

/* Returns whether a stop text ended sequence b. */
static bool check_sequence(const setting *s, const output *free_run, const output *got, const heard *h, int64_t b) {
    static whole w;
    char text[BYTES];
    size_t size = 0;
    int64_t stop = -1, end = 0;
    read_whole(s, free_run, b, &w);
    for (int64_t e = 1; e <= w.size && stop < 0; e++) {
        stop = w.token[e - 1] >= s->min_tokens ? stop_at(s, &w, e) : -1;
        end = e;
    }
    const int64_t length = stop >= 0 ? w.token[end - 1] + 1 : free_run->lengths[b];
    const int64_t cut = stop >= 0 ? end - (int64_t)s->stops[stop].size : w.size;
    for (int64_t i = 0; i < cut; i++) {
        text[size] = w.bytes[i];
        size += w.special[i] ? 0 : 1;
    }
    const size_t ids = (size_t)length * sizeof *got->ids, floats = (size_t)length * sizeof *got->logprobs;
    expect(got->lengths[b] == length && got->stop_text[b] == stop &&
               got->finish[b] == (stop >= 0 ? NAPIER_FINISH_TEXT : free_run->finish[b]),
           "sequence %d: %d tokens and stop text %d, not %d and %d", (int)b, (int)got->lengths[b],
           (int)got->stop_text[b], (int)length, (int)stop);
    expect(memcmp(got->ids + b * MOST, free_run->ids + b * MOST, ids) == 0 &&
               memcmp(got->logprobs + b * MOST, free_run->logprobs + b * MOST, floats) == 0 &&
               memcmp(got->entropy + b * MOST, free_run->entropy + b * MOST, floats) == 0,
           "sequence %d: other tokens than without stop texts", (int)b);
    const int64_t begin = got->text_offsets[b];
    expect(s->alone ||
               (got->text_offsets[b + 1] - begin == (int64_t)size && memcmp(got->text.bytes + begin, text, size) == 0),
           "sequence %d: another text", (int)b);
    expect(h->ended[b] && h->sizes[b] == size && memcmp(h->bytes[b], text, size) == 0,
           "sequence %d: on_text got another text, of %zu bytes and not %zu", (int)b, h->sizes[b], size);
    return stop >= 0;
}

/* ---- Stop texts -------------------------------------------------------------------------------------------------- */

enum { STOPS = 9 };

/* Pieces of texts that occur, one that nearly occurs, one that never does, and one that has itself inside. */
static void choose_stops(const setting *s, const output *free_run, napier_text *stops, char memory[STOPS][8]) {
    static const int sizes[STOPS] = {1, 2, 3, 4, 5, 6, 7, 4, 6};
    static whole w;
    for (int i = 0; i < STOPS; i++) {
        read_whole(s, free_run, (2 * i) % SEQUENCES, &w);
        memcpy(memory[i], w.bytes + w.size / 3 + i, (size_t)sizes[i]);
        stops[i] = (napier_text){memory[i], (size_t)sizes[i]};
    }
    memory[4][4] = (char)(memory[4][4] ^ 1);
    memcpy(memory[7], "\xff\xfe\xff\xff", 4);
    memcpy(memory[8], "aabaab", 6);
}

static void check_schedules(setting s, const output *free_run) {
    static output got;
    static heard h;
    napier_isa isas[ISA_LIMIT];
    const int count = available_isas(isas);
    int64_t stopped = 0;
    for (int how = 0; how < 4 + count; how++) {
        setting other = s;
        other.memory = how == 1 ? 1050000 : how == 2 ? 1200000 : 0;
        other.kept = how == 2;
        other.alone = how == 3;
        other.threads = how == 3 ? 3 : 1;
        other.isa = how >= 4 ? isas[how - 4] : NAPIER_ISA_AUTO;
        generate(&other, &got, &h);
        for (int64_t b = 0; b < SEQUENCES; b++) {
            stopped += check_sequence(&other, free_run, &got, &h, b) ? 1 : 0;
        }
    }
    expect(s.stop_count == 0 || stopped > 0, "no stop text occurred");
    napier_context *context = context_for_test(NAPIER_ISA_AUTO, 1);
    napier_text_buffer_free(context, &got.text);
}

static napier_sample_options sampling_of(int which) {
    napier_sample_options sampling = NAPIER_SAMPLE_OPTIONS_INIT;
    sampling.temperature = 2; /* special tokens, parts of characters, and ids without a token occur */
    sampling.seed = which;
    if (which == 1) {
        sampling.top_k = 150;
        sampling.top_p = 0.95;
        sampling.min_p = 0.001;
        sampling.repetition_penalty = 1.1;
        sampling.presence_penalty = 0.2;
    }
    return sampling;
}

static void test_stop_texts(napier_context *context) {
    TINY_MODEL(m);
    m.vocabulary = V;
    tiny_model_write(&m);
    napier_tokenizer *tokenizer = NULL;
    succeeded(context, tiny_load(context, NULL, NULL, &tokenizer), "tokenizer");
    for (int which = 0; which < 2; which++) {
        static output free_run;
        static heard h;
        char memory[STOPS][8];
        napier_text stops[STOPS];
        setting s = {.m = &m, .tokenizer = tokenizer, .threads = 1, .stop_id = -1, .sampling = sampling_of(which)};
        s.stop_id = which == 1 ? 17 : -1;
        generate(&s, &free_run, &h);
        check_schedules(s, &free_run);
        choose_stops(&s, &free_run, stops, memory);
        s.stops = stops;
        for (s.stop_count = 1; s.stop_count <= STOPS; s.stop_count += NAPIER_SANITIZED ? 4 : 2) {
            check_schedules(s, &free_run);
        }
        s.stop_count = STOPS;
        if (which == 0) { /* with stop ids, min_tokens changes the tokens */
            s.min_tokens = 20;
            check_schedules(s, &free_run);
        }
        napier_text_buffer_free(context, &free_run.text);
    }
    napier_tokenizer_destroy(context, tokenizer);
}

/* A special token is no text, but may be a stop text, alone or with what is beside it. */
static void test_special(napier_context *context) {
    TINY_MODEL(m);
    m.vocabulary = V;
    tiny_model_write(&m);
    static output out;
    static heard h;
    uint8_t keep[V] = {[SPECIAL] = 1, [83] = 1};
    napier_tokenizer *tokenizer = NULL;
    const napier_text stops[] = {{"<|im_end|><|im_end|>", 20}, {"|", 1}};
    succeeded(context, tiny_load(context, NULL, NULL, &tokenizer), "tokenizer");
    setting s = {.m = &m, .tokenizer = tokenizer, .threads = 1, .stop_id = -1, .sampling = sampling_of(0)};
    s.sampling.keep = keep;
    generate(&s, &out, &h);
    for (size_t i = 0; i < h.sizes[0]; i++) {
        expect(h.bytes[0][i] == h.bytes[0][0], "a special token in the text");
    }
    s.stops = stops;
    for (s.stop_count = 1; s.stop_count <= 2; s.stop_count++) {
        generate(&s, &out, &h);
        for (int64_t b = 0; b < SEQUENCES; b++) {
            const int64_t *const ids = out.ids + b * MOST, length = out.lengths[b];
            expect(out.stop_text[b] == s.stop_count - 1 && ids[length - 1] == SPECIAL &&
                       (s.stop_count == 2 || ids[length - 2] == SPECIAL),
                   "sequence %d: stop text %d", (int)b, (int)out.stop_text[b]);
        }
    }
    napier_text_buffer_free(context, &out.text);
    napier_tokenizer_destroy(context, tokenizer);
}

/* A stop text before min_tokens ends nothing, and its end may be the beginning of one that does: "aa" in "aaa". */
static void test_min_tokens(napier_context *context) {
    TINY_MODEL(m);
    m.vocabulary = V;
    tiny_model_write(&m);
    static output free_run, out;
    static heard h;
    napier_tokenizer *tokenizer = NULL;
    succeeded(context, tiny_load(context, NULL, NULL, &tokenizer), "tokenizer");
    for (int letters = 1; letters <= 2; letters++) {
        uint8_t keep[V] = {[64] = 1, [65] = (uint8_t)(letters == 2)}; /* "a", "b" */
        setting s = {.m = &m, .tokenizer = tokenizer, .threads = 1, .stop_id = -1, .sampling = sampling_of(0)};
        s.sampling.keep = keep;
        generate(&s, &free_run, &h);
        for (size_t size = 1; size <= 3; size++) {
            const napier_text stops[] = {{"aaa", size}, {"aba", 3}};
            s.stops = stops;
            s.stop_count = letters;
            for (s.min_tokens = 0; s.min_tokens <= 5; s.min_tokens++) {
                int64_t stopped = 0;
                generate(&s, &out, &h);
                for (int64_t b = 0; b < SEQUENCES; b++) {
                    stopped += check_sequence(&s, &free_run, &out, &h, b) ? 1 : 0;
                }
                expect(stopped > 0, "no stop text occurred");
            }
        }
        napier_text_buffer_free(context, &free_run.text);
        napier_text_buffer_free(context, &out.text);
    }
    napier_tokenizer_destroy(context, tokenizer);
}

/* ---- The call ---------------------------------------------------------------------------------------------------- */

#define REFUSED(change, word)                                                                                          \
    do {                                                                                                               \
        setting bad = s;                                                                                               \
        change;                                                                                                        \
        refused(context, call(&bad, context, model, 0, PROMPTS, &out, &h, NULL), NAPIER_INVALID_ARGUMENT, word, NULL); \
    } while (0)

typedef struct many {
    setting s;
    const napier_model *model;
} many;

static napier_status call_again(napier_context *context, void *argument) {
    const many *const c = argument;
    static output out;
    static heard h;
    memset(&h, 0, sizeof h);
    out.text = (napier_text_buffer){0};
    const napier_status status = call(&c->s, context, c->model, 0, 1, &out, &h, NULL);
    expect(!status || out.text.size == 0, "text of a call that failed");
    napier_text_buffer_free(context, &out.text);
    return status;
}

static void test_call(napier_context *context) {
    TINY_MODEL(m);
    m.vocabulary = V;
    tiny_model_write(&m);
    static output out;
    static heard h;
    napier_tokenizer *tokenizer = NULL;
    const napier_text stops[] = {{"ab", 2}, {"", 0}, {NULL, 3}};
    succeeded(context, tiny_load(context, NULL, NULL, &tokenizer), "tokenizer");
    napier_model *const model = model_load(context, &m, NAPIER_COMPUTE_F32, 0);
    const setting s = {
        .tokenizer = tokenizer, .stop_id = -1, .stops = stops, .stop_count = 1, .sampling = sampling_of(0)};
    REFUSED(bad.stop_count = 2, "stop_texts[1] is empty");
    REFUSED((bad.stops = stops + 2), "stop_texts[0] is empty");
    REFUSED(bad.stop_count = -1, "stop_text_count is -1");
    REFUSED(bad.stops = NULL, "stop_text_count is 1, but stop_texts is NULL");
    REFUSED(bad.tokenizer = NULL, "tokenizer is NULL, but stop_texts needs it");
    REFUSED((bad.tokenizer = NULL, bad.stop_count = 0), "tokenizer is NULL, but on_text needs it");
    out.text.size = 1;
    REFUSED(bad.stop_count = 1, "text");
    out.text.size = 0;
    memset(&h, 0, sizeof h);
    h.most = 7;
    refused(context, call(&s, context, model, 0, PROMPTS, &out, &h, NULL), NAPIER_CANCELLED, "cancelled by on_text",
            NULL);
    expect(out.text.size == 0, "text of a call that was cancelled");
    many again = {.s = s, .model = model};
    again.s.max_tokens = 4;
    check_allocations("texts", call_again, &again);
    napier_model_destroy(context, model);
    napier_tokenizer_destroy(context, tokenizer);
}

int main(void) {
    return RUN_TESTS("generate, texts", TEST_1(test_stop_texts), TEST_1(test_special), TEST_1(test_min_tokens),
                     TEST_1(test_call));
}
