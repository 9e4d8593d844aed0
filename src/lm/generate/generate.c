/* lm/generate/generate.c - see <napier/generate.h>: steps of the layers, the head and the sampler until all sequences
 * have ended. */
#include <inttypes.h>
#include <napier/generate.h>
#include <stdio.h>
#include <string.h>

#include "core/base/struct_size.h"
#include "core/base/view.h"
#include "core/math/f64.h"
#include "lm/decoder/project.h"
#include "ops/layers/rotary_angles.h"
#include "lm/generate/generate_parts.h"
#include "ops/linear/engine.h"

enum {
    STEP_TOKENS = 512, /* at most, of a step: enough that products run at full speed */
    LOGIT_ROWS = 64    /* rows of logits at a time */
};

typedef struct generate {
    napier_context *context;
    const napier_model *model;
    napier_generate_batch batch;
    napier_generate_options options;
    napier_sample_options sampling;
    napier_generate_results results;
    int64_t prompts, sequences, longest; /* of the batch; longest: tokens of a prompt */
    bool penalized;
    napier_schedule schedule;
    napier_layers_plan plan;
    napier_layers layers;
    int64_t logit_rows, head_floats;
    float *logits, *memory; /* [logit_rows, V], and [head_floats] of the head's product */
    unsigned char *ended;   /* [B] 1: it has ended, 2: and on_kv has its keys and values */
    uint8_t *early_keep;    /* [V] keep, without stops: for tokens before min_tokens */
    bool has_texts;
    napier_generated_texts texts;

    /* Of the rows that are sampled together. */
    int64_t *sequence_of, *numbers, *positions, *ids, *argmax; /* [logit_rows] */
    float *logprobs, *plain, *entropy;                         /* [logit_rows] */
    int64_t *prompt_offsets, *output_offsets;                  /* [logit_rows + 1] */
    int64_t *prompt_ids, *output_ids;                          /* [logit_rows, longest], [logit_rows, max_tokens] */
} generate;

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

/* All prompts. */
static napier_status check_prompts(generate *g) {
    const napier_generate_batch *b = &g->batch;
    NAPIER_TRY(
        napier_check_ids(g->context, "prompt_ids", b->prompt_ids, b->prompt_ids.size, g->model->config.vocab_size));
    NAPIER_TRY(napier_check_offsets_of(g->context, "prompt_offsets", b->prompt_offsets, b->prompt_ids.size));
    for (int64_t p = 0; p < g->prompts; p++) {
        const int64_t size = napier_index_at(b->prompt_offsets, p + 1) - napier_index_at(b->prompt_offsets, p);
        NAPIER_REFUSE_IF(g->context, size == 0, "prompt_ids: prompt %" PRId64 " is empty", p);
        g->longest = size > g->longest ? size : g->longest;
    }
    return NAPIER_OK;
}

/* Prompts that arrive later are checked then. */
static napier_status check_batch(generate *g) {
    const napier_generate_batch *b = &g->batch;
    NAPIER_TRY(napier_check_indices(g->context, "prompt_ids", b->prompt_ids));
    NAPIER_TRY(napier_check_indices(g->context, "prompt_offsets", b->prompt_offsets));
    NAPIER_REFUSE_IF(g->context, b->prompt_offsets.size < 1, "prompt_offsets: none");
    g->prompts = b->prompt_offsets.size - 1;
    g->longest = g->options.on_arrival ? g->options.longest_prompt : 0;
    NAPIER_REFUSE_IF(g->context, g->options.on_arrival && (g->longest < 1 || g->longest > NAPIER_ROPE_POSITIONS),
                     "options: longest_prompt is %" PRId64 ", not in 1 .. %" PRId64, g->longest, NAPIER_ROPE_POSITIONS);
    NAPIER_TRY(g->options.on_arrival ? NAPIER_OK : check_prompts(g));
    NAPIER_REFUSE_IF(g->context, b->samples < 1 || b->samples > INT64_MAX / 8 / (g->prompts + 1),
                     "batch: samples is %" PRId64 ", not in 1 .. %" PRId64, b->samples,
                     INT64_MAX / 8 / (g->prompts + 1));
    g->sequences = g->prompts * b->samples;
    if (b->numbers.size != 0) {
        NAPIER_TRY(napier_check_indices(g->context, "numbers", b->numbers));
        NAPIER_REFUSE_IF(g->context, b->numbers.size != g->sequences, "numbers: %" PRId64 " for %" PRId64 " sequences",
                         b->numbers.size, g->sequences);
    }
    return NAPIER_OK;
}

static napier_status check_options(generate *g) {
    const napier_generate_options *o = &g->options;
    const int64_t most = NAPIER_ROPE_POSITIONS - g->longest;
    NAPIER_REFUSE_IF(g->context, o->max_tokens < 1 || o->max_tokens > most,
                     "options: max_tokens is %" PRId64 ", not in 1 .. %" PRId64, o->max_tokens, most);
    NAPIER_TRY(napier_model_check_length(g->context, g->model, "max_tokens", g->longest + o->max_tokens - 1));
    if (o->stop.size != 0) {
        NAPIER_TRY(napier_check_ids(g->context, "stop", o->stop, o->stop.size, g->model->config.vocab_size));
    }
    NAPIER_TRY(napier_read_options(g->context, "sampling",
                                   NAPIER_STRUCT(napier_sample_options, NAPIER_SAMPLE_OPTIONS_INIT, positions),
                                   o->sampling, &g->sampling));
    NAPIER_REFUSE_IF(g->context, o->min_tokens < 0 || o->min_tokens > o->max_tokens,
                     "options: min_tokens is %" PRId64 ", not in 0 .. max_tokens, %" PRId64, o->min_tokens,
                     o->max_tokens);
    NAPIER_TRY(napier_texts_check(g->context, o, g->results.text != NULL));
    const napier_sample_options *s = &g->sampling;
    NAPIER_REFUSE_IF(g->context,
                     s->prompt_ids.size || s->prompt_offsets.size || s->output_ids.size || s->output_offsets.size ||
                         s->seeds.size || s->samples.size || s->positions.size,
                     "sampling: a list is not empty, but napier_generate fills them");
    NAPIER_REFUSE_IF(g->context, s->keep && s->keep_stride != 0,
                     "sampling: keep_stride is %" PRId64 ", but all rows share keep", s->keep_stride);
    g->penalized = s->repetition_penalty != 1 || s->presence_penalty != 0 || s->frequency_penalty != 0;
    return napier_kv_check(g->context, g->model, o->kvs, o->kv_count);
}

static napier_status check_results(const generate *g) {
    enum { ARRAY = NAPIER_IS_OUT | NAPIER_MAY_BE_ABSENT, OUT = ARRAY | NAPIER_IS_NARROW };
    const napier_generate_results *r = &g->results;
    const int64_t count = g->sequences, most = g->options.max_tokens;
    NAPIER_REFUSE_IF(g->context, count > INT64_MAX / 8 / most,
                     "options: max_tokens %" PRId64 " for %" PRId64 " sequences are too many", most, count);
    NAPIER_REFUSE_IF(g->context, r->text && !r->text_offsets, "text_offsets: NULL, but there is text");
    NAPIER_TRY(r->text ? napier_check_text_buffer(g->context, "text", r->text) : NAPIER_OK);
    const napier_argument all[] = {
        napier_integers_argument("ids", r->ids, count * most, sizeof *r->ids, NAPIER_IS_OUT),
        napier_integers_argument("lengths", r->lengths, count, sizeof *r->lengths, NAPIER_IS_OUT),
        napier_integers_argument("finish", r->finish, count, sizeof *r->finish, ARRAY),
        NAPIER_ARGUMENT("logprobs", napier_read_only(r->logprobs), OUT, count, most, NULL),
        NAPIER_ARGUMENT("plain_logprobs", napier_read_only(r->plain_logprobs), OUT, count, most, NULL),
        NAPIER_ARGUMENT("entropy", napier_read_only(r->entropy), OUT, count, most, NULL),
        napier_integers_argument("argmax", r->argmax, count * most, sizeof *r->argmax, ARRAY),
        napier_integers_argument("stop_text", r->stop_text, count, sizeof *r->stop_text, ARRAY),
        napier_integers_argument("text_offsets", r->text_offsets, count + 1, sizeof *r->text_offsets, ARRAY),
        napier_integers_argument("keep", g->sampling.keep, g->model->config.vocab_size, 1, NAPIER_MAY_BE_ABSENT),
        napier_indices_argument("prompt_ids", g->batch.prompt_ids),
        napier_indices_argument("prompt_offsets", g->batch.prompt_offsets),
        napier_indices_argument("numbers", g->batch.numbers),
        napier_indices_argument("stop", g->options.stop)};
    return napier_check_arguments(g->context, all, sizeof all / sizeof *all);
}

static napier_status read_arguments(generate *g, const napier_generate_batch *batch,
                                    const napier_generate_options *options, const napier_generate_results *results) {
    g->batch = (napier_generate_batch)NAPIER_GENERATE_BATCH_INIT;
    g->options = (napier_generate_options)NAPIER_GENERATE_OPTIONS_INIT;
    g->sampling = (napier_sample_options)NAPIER_SAMPLE_OPTIONS_INIT;
    g->results = (napier_generate_results)NAPIER_GENERATE_RESULTS_INIT;
    NAPIER_TRY(napier_read_struct(g->context, "batch",
                                  NAPIER_STRUCT(napier_generate_batch, NAPIER_GENERATE_BATCH_INIT, numbers), batch,
                                  &g->batch));
    NAPIER_TRY(napier_read_options(g->context, "options",
                                   NAPIER_STRUCT(napier_generate_options, NAPIER_GENERATE_OPTIONS_INIT, on_text),
                                   options, &g->options));
    NAPIER_TRY(napier_read_struct(g->context, "results",
                                  NAPIER_STRUCT(napier_generate_results, NAPIER_GENERATE_RESULTS_INIT, text_offsets),
                                  results, &g->results));
    NAPIER_TRY(check_batch(g));
    NAPIER_TRY(check_options(g));
    return check_results(g);
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

static napier_ragged_size size_of(const generate *g, int64_t tokens) {
    const int64_t positions = g->longest + g->options.max_tokens;
    return (napier_ragged_size){.tokens = tokens,
                                .sequences = tokens,
                                .copies = 2 * tokens,
                                .positions = positions,
                                .keys = tokens * positions};
}

static int64_t plus(int64_t a, int64_t b) { return a > INT64_MAX - b ? INT64_MAX : a + b; }
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Plans a step of up to so many tokens. Returns its bytes, besides the store. */
static int64_t plan_step(generate *g, int64_t tokens) {
    const napier_model *m = g->model;
    const int64_t lists = g->penalized ? g->longest + g->options.max_tokens : 0;
    const int64_t row = (m->config.vocab_size + 2) * (int64_t)sizeof(float) + (lists + 9) * (int64_t)sizeof(int64_t);
    g->logit_rows = least(tokens, LOGIT_ROWS);
    g->head_floats = (int64_t)napier_project_most_floats(
        g->context, napier_const_rows(NULL, g->logit_rows, m->head.cols, napier_model_activations(m)), m->head,
        napier_model_splits(m));
    napier_layers_plan_for(g->context, m, size_of(g, tokens), &g->plan);
    return plus(plus(g->plan.bytes, g->logit_rows * row + g->head_floats * (int64_t)sizeof(float)),
                napier_schedule_bytes(tokens));
}

/* Chooses the size of a step, and gives the rest of the memory to the store. Smaller steps leave more. */
static napier_status plan(generate *g) {
    const int64_t own = napier_own_rows(g->options.max_tokens), enough = g->longest + own;
    const int64_t row = napier_kv_store_bytes(g->model, 1), work = g->batch.prompt_ids.size + g->sequences * own;
    int64_t tokens = STEP_TOKENS, needed = INT64_MAX;
    for (; tokens > 0; tokens /= 2) {
        const int64_t bytes = plan_step(g, tokens);
        const int64_t left = g->model->memory > bytes ? (g->model->memory - bytes) / row : 0;
        needed = plus(bytes, napier_kv_store_bytes(g->model, enough));
        g->schedule.store.rows = least(left, work);
        const bool is_plenty = left >= least(work, 4 * enough) || bytes <= g->model->memory / 8;
        if (left >= enough && (is_plenty || tokens <= 64)) {
            g->schedule.most = g->schedule.step_tokens = tokens;
            return NAPIER_OK;
        }
    }
    return napier_fail(g->context, NAPIER_OUT_OF_MEMORY,
                       "memory: %" PRId64 " bytes are too few for a prompt of %" PRId64
                       " tokens and its sequence, which need %" PRId64,
                       g->model->memory, g->longest, needed);
}

static void forbid_stops(const generate *g) {
    for (int64_t id = 0; id < g->model->config.vocab_size && g->options.min_tokens > 0; id++) {
        g->early_keep[id] = !g->sampling.keep || g->sampling.keep[id];
    }
    for (int64_t i = 0; i < g->options.stop.size && g->options.min_tokens > 0; i++) {
        g->early_keep[napier_index_at(g->options.stop, i)] = 0;
    }
}

static napier_status allocate(generate *g, napier_memory *memory) {
    const int64_t rows = g->logit_rows, vocabulary = g->model->config.vocab_size;
    g->ended = napier_take(memory, g->sequences, 1);
    g->logits = napier_take(memory, rows * vocabulary, sizeof *g->logits);
    g->memory = napier_take(memory, g->head_floats, sizeof *g->memory);
    g->sequence_of = napier_take(memory, 5 * rows, sizeof *g->sequence_of);
    g->logprobs = napier_take(memory, 3 * rows, sizeof *g->logprobs);
    g->early_keep = napier_take(memory, g->options.min_tokens > 0 ? vocabulary : 0, 1);
    if (g->penalized) {
        g->prompt_offsets = napier_take(memory, rows + 1, sizeof *g->prompt_offsets);
        g->output_offsets = napier_take(memory, rows + 1, sizeof *g->output_offsets);
        g->prompt_ids = napier_take(memory, rows * g->longest, sizeof *g->prompt_ids);
        g->output_ids = napier_take(memory, rows * g->options.max_tokens, sizeof *g->output_ids);
    }
    NAPIER_TRY(napier_taken(memory, "generate: no memory for %" PRId64 " rows of logits", rows));
    g->numbers = g->sequence_of + rows;
    g->positions = g->numbers + rows;
    g->ids = g->positions + rows;
    g->argmax = g->ids + rows;
    g->plain = g->logprobs + rows;
    g->entropy = g->plain + rows;
    memset(g->ended, 0, (size_t)g->sequences);
    forbid_stops(g);
    NAPIER_TRY(napier_kv_store_allocate(memory, g->model, g->schedule.store.rows, &g->schedule.store));
    NAPIER_TRY(napier_schedule_allocate(memory, &g->schedule));
    NAPIER_TRY(napier_layers_allocate(memory, &g->plan, &g->layers));
    g->layers.store = &g->schedule.store;
    return NAPIER_OK;
}

/* ---- New tokens -------------------------------------------------------------------------------------------------- */

static void store(napier_matrix m, int64_t row, int64_t col, float x) {
    if (m.data) {
        napier_f64_store(m.data, m.dtype, row * m.row_stride + col * m.col_stride, (double)x);
    }
}

static void clear_results(const generate *g) {
    for (int64_t b = 0; b < g->sequences; b++) {
        g->results.lengths[b] = 0;
        for (int64_t t = 0; t < g->options.max_tokens; t++) {
            g->results.ids[b * g->options.max_tokens + t] = -1;
            store(g->results.logprobs, b, t, 0.0f);
            store(g->results.plain_logprobs, b, t, 0.0f);
            store(g->results.entropy, b, t, 0.0f);
            if (g->results.argmax) {
                g->results.argmax[b * g->options.max_tokens + t] = -1;
            }
        }
        if (g->results.stop_text) {
            g->results.stop_text[b] = -1;
        }
    }
}

static bool is_stop(const generate *g, int64_t id) {
    for (int64_t i = 0; i < g->options.stop.size; i++) {
        if (napier_index_at(g->options.stop, i) == id) {
            return true;
        }
    }
    return false;
}

static void store_token(const generate *g, int64_t i, int64_t b, int64_t t) {
    const int64_t at = b * g->options.max_tokens + t;
    g->results.ids[at] = g->ids[i];
    store(g->results.logprobs, b, t, g->logprobs[i]);
    store(g->results.plain_logprobs, b, t, g->plain[i]);
    store(g->results.entropy, b, t, g->entropy[i]);
    if (g->results.argmax) {
        g->results.argmax[at] = g->argmax[i];
    }
}

/* Ends a sequence if its token t is its last, and tells the caller about it. */
static napier_status end_or_go_on(generate *g, int64_t b, int64_t t, int64_t id, float logprob) {
    const bool stop = is_stop(g, id);
    const int told = g->options.on_token ? g->options.on_token(b, t, id, logprob, g->options.user) : 0;
    bool ended = stop || t + 1 == g->options.max_tokens || told == NAPIER_END_SEQUENCE;
    if (told && told != NAPIER_END_SEQUENCE) {
        return napier_fail(g->context, NAPIER_CANCELLED, "cancelled by on_token");
    }
    if (g->has_texts) {
        NAPIER_TRY(napier_texts_add(&g->texts, b, t, id, &ended));
    }
    const int64_t text = g->has_texts ? g->texts.stopped[b] : -1;
    g->ended[b] = ended;
    if (g->results.finish) {
        g->results.finish[b] = text >= 0 ? NAPIER_FINISH_TEXT
                               : stop    ? NAPIER_FINISH_STOP
                               : told    ? NAPIER_FINISH_CALLER
                                         : NAPIER_FINISH_LENGTH;
    }
    if (g->results.stop_text) {
        g->results.stop_text[b] = text;
    }
    return NAPIER_OK;
}

/* Appends row i of what has been sampled to its sequence. */
static napier_status append(generate *g, int64_t i) {
    const int64_t b = g->sequence_of[i], t = g->results.lengths[b]++;
    store_token(g, i, b, t);
    return end_or_go_on(g, b, t, g->ids[i], g->logprobs[i]);
}

/* The texts of all sequences. */
static napier_status write_texts(const generate *g) {
    const size_t before = g->results.text->size;
    napier_status status = NAPIER_OK;
    g->results.text_offsets[0] = 0;
    for (int64_t b = 0; b < g->sequences && !status; b++) {
        status = napier_texts_append(&g->texts, b, g->results.ids + b * g->options.max_tokens, g->results.lengths[b],
                                     g->results.text);
        g->results.text_offsets[b + 1] = (int64_t)(g->results.text->size - before);
    }
    g->results.text->size = status ? before : g->results.text->size;
    return status;
}

/* ---- Sampling ---------------------------------------------------------------------------------------------------- */

/* The lists that penalties refer to: the prompts and outputs of the rows. */
static void fill_lists(generate *g, int64_t first, int64_t rows, napier_sample_options *sampling) {
    int64_t prompts = 0, outputs = 0;
    for (int64_t i = 0; i < rows; i++) {
        const int64_t b = g->sequence_of[first + i], p = b / g->batch.samples;
        g->prompt_offsets[i] = prompts;
        g->output_offsets[i] = outputs;
        for (int64_t t = napier_index_at(g->batch.prompt_offsets, p),
                     end = napier_index_at(g->batch.prompt_offsets, p + 1);
             t < end; t++) {
            g->prompt_ids[prompts++] = napier_index_at(g->batch.prompt_ids, t);
        }
        for (int64_t t = 0; t < g->results.lengths[b]; t++) {
            g->output_ids[outputs++] = g->results.ids[b * g->options.max_tokens + t];
        }
    }
    g->prompt_offsets[rows] = prompts;
    g->output_offsets[rows] = outputs;
    sampling->prompt_ids = napier_indices_i64(g->prompt_ids, prompts);
    sampling->prompt_offsets = napier_indices_i64(g->prompt_offsets, rows + 1);
    sampling->output_ids = napier_indices_i64(g->output_ids, outputs);
    sampling->output_offsets = napier_indices_i64(g->output_offsets, rows + 1);
}

/* The sampler names a row; this says which sequence is row 0. */
static napier_status name_sequence(const generate *g, int64_t first, napier_status status) {
    const int64_t b = g->sequence_of[first];
    char text[NAPIER_ERROR_TEXT];
    snprintf(text, sizeof text, "%s", napier_last_error(g->context));
    return napier_fail(g->context, status, "token %" PRId64 " of sequence %" PRId64 " and those that run with it: %s",
                       g->results.lengths[b], b, text);
}

/* Entropies and the largest logits. If all rows are one row, it is read once. */
static napier_status measure(generate *g, napier_const_matrix logits) {
    const int64_t rows = logits.rows;
    napier_token_options options = NAPIER_TOKEN_OPTIONS_INIT;
    napier_token_results results = NAPIER_TOKEN_RESULTS_INIT;
    options.temperature = g->sampling.temperature > 0 ? g->sampling.temperature : 1.0;
    logits.rows = logits.row_stride == 0 ? 1 : rows;
    results.entropy = napier_array_f32(g->entropy, logits.rows);
    results.argmax = g->argmax;
    NAPIER_TRY(napier_token_logprobs(g->context, logits, napier_indices_i64(NULL, 0), &options, &results));
    for (int64_t i = logits.rows; i < rows; i++) {
        g->entropy[i] = g->entropy[0];
        g->argmax[i] = g->argmax[0];
    }
    return NAPIER_OK;
}

static bool is_early(const generate *g, int64_t i) {
    return g->results.lengths[g->sequence_of[i]] < g->options.min_tokens;
}

/* Draws a token for each of rows first .. first + logits.rows - 1 of sequence_of. Either all or none of them are early. */
static napier_status draw(generate *g, int64_t first, napier_const_matrix logits) {
    const int64_t rows = logits.rows;
    napier_sample_results results = NAPIER_SAMPLE_RESULTS_INIT;
    napier_sample_options sampling = g->sampling;
    for (int64_t i = first; i < first + rows; i++) {
        const int64_t b = g->sequence_of[i];
        g->numbers[i] = g->batch.numbers.size > 0 ? napier_index_at(g->batch.numbers, b) : b;
        g->positions[i] = g->results.lengths[b];
    }
    sampling.samples = napier_indices_i64(g->numbers + first, rows);
    sampling.positions = napier_indices_i64(g->positions + first, rows);
    sampling.keep = is_early(g, first) ? g->early_keep : sampling.keep;
    if (g->penalized) {
        fill_lists(g, first, rows, &sampling);
    }
    results.ids = g->ids + first;
    results.logprobs = napier_array_f32(g->logprobs + first, rows);
    if (g->results.plain_logprobs.data) {
        results.plain_logprobs = napier_array_f32(g->plain + first, rows);
    }
    const napier_status status = napier_sample(g->context, logits, &sampling, &results);
    return status ? name_sequence(g, first, status) : NAPIER_OK;
}

/* Samples a token for each of the first rows of sequence_of, and appends it. */
static napier_status sample(generate *g, napier_const_matrix logits) {
    int64_t end = 0;
    for (int64_t first = 0; first < logits.rows; first = end) {
        while (end < logits.rows && is_early(g, end) == is_early(g, first)) {
            end++;
        }
        napier_const_matrix part = logits;
        part.data = (const float *)logits.data + first * logits.row_stride;
        part.rows = end - first;
        NAPIER_TRY(draw(g, first, part));
    }
    if (g->results.entropy.data || g->results.argmax) {
        NAPIER_TRY(measure(g, logits));
    }
    for (int64_t i = 0; i < logits.rows; i++) {
        NAPIER_TRY(append(g, i));
    }
    return NAPIER_OK;
}

/* The first token of all samples of a prompt, from one row of logits. */
static napier_status sample_prompt(generate *g, const napier_live_prompt *p, napier_const_matrix row) {
    const int64_t samples = g->batch.samples;
    row.row_stride = 0;
    for (int64_t first = 0; first < samples; first += row.rows) {
        row.rows = least(samples - first, g->logit_rows);
        for (int64_t i = 0; i < row.rows; i++) {
            g->sequence_of[i] = p->prompt * samples + first + i;
        }
        NAPIER_TRY(sample(g, row));
    }
    return NAPIER_OK;
}

/* Samples from rows of logits, of which the first is wanted row `first`. Those of running sequences come first. */
static napier_status sample_rows(generate *g, int64_t first, int64_t rows) {
    const napier_schedule *s = &g->schedule;
    const int64_t vocabulary = g->model->config.vocab_size;
    int64_t running = 0;
    for (; running < rows && s->wanted[first + running] >= 0; running++) {
        g->sequence_of[running] = s->running[s->wanted[first + running]].sequence;
    }
    if (running > 0) {
        NAPIER_TRY(sample(g, napier_const_rows_f32(g->logits, running, vocabulary)));
    }
    for (int64_t i = running; i < rows; i++) {
        const napier_const_matrix row = napier_const_rows_f32(g->logits + i * vocabulary, 1, vocabulary);
        NAPIER_TRY(sample_prompt(g, &s->live[-1 - s->wanted[first + i]], row));
    }
    return NAPIER_OK;
}

/* ---- Keys and values that outlive the call ----------------------------------------------------------------------- */

static napier_status give_kv(generate *g, int64_t b) {
    napier_key_rows prompt, own;
    napier_schedule_rows(&g->schedule, b, &prompt, &own);
    const int64_t size = prompt.end - prompt.begin, tokens = size + own.end - own.begin;
    const int64_t begin = napier_index_at(g->batch.prompt_offsets, b / g->batch.samples);
    napier_kv *kv = NULL;
    NAPIER_TRY(napier_kv_allocate(g->context, g->model, tokens, &kv));
    for (int64_t i = 0; i < tokens; i++) {
        kv->ids[i] = i < size ? napier_index_at(g->batch.prompt_ids, begin + i)
                              : g->results.ids[b * g->options.max_tokens + i - size];
    }
    napier_kv_copy(kv, 0, &g->schedule.store, prompt);
    napier_kv_copy(kv, size, &g->schedule.store, own);
    g->ended[b] = 2;
    return g->options.on_kv(b, kv, g->options.user) ? napier_fail(g->context, NAPIER_CANCELLED, "cancelled by on_kv")
                                                    : NAPIER_OK;
}

/* Those of the sequences that have ended in this step. */
static napier_status give_kvs(generate *g) {
    for (int64_t b = 0; g->options.on_kv && b < g->schedule.prompts * g->batch.samples; b++) {
        if (g->ended[b] == 1) {
            NAPIER_TRY(give_kv(g, b));
        }
    }
    return NAPIER_OK;
}

/* ---- Prompts that arrive ----------------------------------------------------------------------------------------- */

static napier_status check_arrival(const generate *g, int64_t p) {
    const int64_t begin = napier_index_at(g->batch.prompt_offsets, p), vocabulary = g->model->config.vocab_size;
    const int64_t end = napier_index_at(g->batch.prompt_offsets, p + 1);
    NAPIER_REFUSE_IF(g->context,
                     begin < 0 || end <= begin || end > g->batch.prompt_ids.size || end - begin > g->longest,
                     "prompt_offsets: prompt %" PRId64 " has ids %" PRId64 " .. %" PRId64 ", where 1 to %" PRId64
                     " of %" PRId64 " are expected",
                     p, begin, end, g->longest, g->batch.prompt_ids.size);
    for (int64_t i = begin; i < end; i++) {
        const int64_t id = napier_index_at(g->batch.prompt_ids, i);
        NAPIER_REFUSE_IF(g->context, id < 0 || id >= vocabulary,
                         "prompt_ids[%" PRId64 "] is %" PRId64 ", not in 0 .. %" PRId64, i, id, vocabulary - 1);
    }
    return NAPIER_OK;
}

static napier_status take_arrivals(generate *g) {
    const int64_t before = g->schedule.prompts;
    const int64_t now = g->options.on_arrival ? g->options.on_arrival(g->options.user) : before;
    if (now < 0) {
        return napier_fail(g->context, NAPIER_CANCELLED, "cancelled by on_arrival");
    }
    NAPIER_REFUSE_IF(g->context, now < before || now > g->prompts,
                     "on_arrival: %" PRId64 " prompts, not in %" PRId64 " .. %" PRId64, now, before, g->prompts);
    for (int64_t p = before; p < now; p++) {
        NAPIER_TRY(check_arrival(g, p));
    }
    g->schedule.prompts = now;
    return NAPIER_OK;
}

/* *some: there is something to run. */
static napier_status next_step(generate *g, bool *some) {
    NAPIER_TRY(take_arrivals(g));
    *some = napier_schedule_step(&g->schedule, &g->layers.batch);
    return NAPIER_OK;
}

/* ---- Steps ------------------------------------------------------------------------------------------------------- */

static napier_status run_step(generate *g) {
    const napier_ragged *b = &g->layers.batch;
    NAPIER_TRY(napier_layers_run(g->context, &g->layers));
    const int64_t rows = b->wanted_offsets[b->sequences];
    napier_const_matrix states = napier_layers_states(&g->layers, rows);
    const char *const data = states.data;
    const int64_t bytes = states.row_stride * (int64_t)napier_dtype_size(states.dtype);
    for (int64_t first = 0; first < rows; first += g->logit_rows) {
        states.rows = least(rows - first, g->logit_rows);
        states.data = data + first * bytes;
        const napier_projection head = {g->model->head,
                                        napier_rows_f32(g->logits, states.rows, g->model->config.vocab_size)};
        napier_project(g->context, states, &head, 1, napier_model_splits(g->model), g->memory);
        NAPIER_TRY(sample_rows(g, first, states.rows));
    }
    NAPIER_TRY(give_kvs(g));
    napier_schedule_finish_step(&g->schedule);
    return NAPIER_OK;
}

static napier_schedule schedule_of(const generate *g) {
    return (napier_schedule){.prompt_ids = g->batch.prompt_ids,
                             .prompt_offsets = g->batch.prompt_offsets,
                             .prompts = g->options.on_arrival ? 0 : g->prompts,
                             .samples = g->batch.samples,
                             .max_tokens = g->options.max_tokens,
                             .kvs = g->options.kvs,
                             .kv_count = g->options.kv_count,
                             .ids = g->results.ids,
                             .lengths = g->results.lengths};
}

static napier_status generate_all(generate *g) {
    NAPIER_MEMORY(memory, g->context);
    NAPIER_MEMORY(of_texts, g->context);
    NAPIER_TRY(g->has_texts ? napier_texts_start(&of_texts, &g->texts, &g->options, g->sequences) : NAPIER_OK);
    g->schedule = schedule_of(g);
    NAPIER_TRY(plan(g));
    NAPIER_TRY(allocate(g, &memory));
    g->schedule.ended = g->ended;
    clear_results(g);
    bool some = false;
    NAPIER_TRY(next_step(g, &some));
    while (some) {
        NAPIER_TRY(run_step(g));
        NAPIER_TRY(next_step(g, &some));
    }
    return g->results.text ? write_texts(g) : NAPIER_OK;
}

napier_status napier_generate(napier_context *context, const napier_model *model, const napier_generate_batch *batch,
                              const napier_generate_options *options, const napier_generate_results *results) {
    NAPIER_DEFAULT_FENV;
    NAPIER_TRY(napier_begin(context));
    NAPIER_REFUSE_IF(context, !model, "model: NULL");
    NAPIER_TRY(napier_model_check_head(context, model, false));
    generate g = {.context = context, .model = model};
    NAPIER_TRY(read_arguments(&g, batch, options, results));
    if (g.sequences == 0) {
        if (g.results.text_offsets) {
            g.results.text_offsets[0] = 0;
        }
        return NAPIER_OK;
    }
    if (model->compute != NAPIER_COMPUTE_F32) {
        napier_matrix_engine_decide(context);
    }
    g.has_texts = g.options.stop_text_count > 0 || g.options.on_text || g.results.text;
    const napier_status status = generate_all(&g);
    napier_texts_end(&g.texts);
    return status;
}
