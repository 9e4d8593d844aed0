/* cli/lm/check_model.c - `napier check-model`: whether a model's files are whole and work together, and what identifies them. */
#include "commands.h"
#include "io/output.h"
#include "program/message.h"
#include "program/progress.h"
#include "model_options.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifdef NAPIER_MODEL
#ifdef NAPIER_ZLIB
#include <zlib.h>
#endif

/* What is scored: a model that was trained on text finds it far more likely than chance. */
#define SENTENCE                                                                                                 \
    "John Napier published the first table of logarithms in 1614. The logarithm of a product is the sum of the " \
    "logarithms of its factors."
/* What the tokenizer must give back unchanged: scripts, spaces, digits, an emoji and code. */
static const char round_trip[] =
    SENTENCE " \xe4\xbd\xa0\xe5\xa5\xbd, \xd0\xbc\xd0\xb8\xd1\x80! caf\xc3\xa9 \xf0\x9f\x98\x80\n"
             "int main(void) {\n\tfor (int i = 0;  i < 100; i++) { puts(\"1,234.5\"); }\n}\n";

typedef struct session {
    const model_request *q;
    napier_context *context;
    napier_model *model;
    napier_model_info info;
    napier_tokenizer *tokenizer;
    napier_token_buffer ids;
    napier_text_buffer text;
    float *logprobs;
    progress_line progress;
    bool is_wrong; /* a finding was printed that makes the model unfit */
} session;

/* ---- Weights ----------------------------------------------------------------------------------------------------- */

static int64_t elements_of(const napier_named_tensor *t) {
    int64_t elements = 1;
    for (int64_t i = 0; i < t->ndim; i++) {
        elements *= t->shape[i];
    }
    return elements;
}

/* Elements that are inf or NaN: those whose exponent has all bits set. */
static int64_t not_finite(const napier_named_tensor *t, int64_t elements) {
    const unsigned char *const bytes = t->data;
    const size_t size = napier_dtype_size(t->dtype);
    const unsigned exponent = t->dtype == NAPIER_F16   ? 0x7c00
                              : t->dtype == NAPIER_F64 ? 0x7ff0
                                                       : 0x7f80; /* of the upper two bytes */
    int64_t count = 0;
    for (int64_t i = 0; i < elements; i++) {
        const unsigned char *const upper = bytes + (size_t)i * size + size - 2;
        count += ((upper[0] | (unsigned)upper[1] << 8) & exponent) == exponent;
    }
    return count;
}

/* The CRC-32 of a tensor's bytes, as Python's zlib.crc32 gives it. */
static void print_checksum(FILE *out, const napier_named_tensor *t, int64_t elements) {
#ifdef NAPIER_ZLIB
    fprintf(out, "  %08lx", crc32_z(0, t->data, (size_t)elements * napier_dtype_size(t->dtype)));
#else
    (void)t, (void)elements;
    fputs("         -", out); /* this build has no zlib */
#endif
}

static void print_tensor(session *s, FILE *out, const napier_named_tensor *t) {
    const bool is_known = napier_dtype_size(t->dtype) > 0;
    const int64_t elements = elements_of(t);
    if (is_known) {
        print_checksum(out, t, elements);
    } else {
        fputs("         -", out);
    }
    fprintf(out, "  %-4s [", is_known ? napier_dtype_name(t->dtype) : "?");
    for (int64_t i = 0; i < t->ndim; i++) {
        fprintf(out, "%s%" PRId64, i > 0 ? ", " : "", t->shape[i]);
    }
    fprintf(out, "] %s", t->name);
    const int64_t bad = is_known ? not_finite(t, elements) : 0;
    if (bad > 0) {
        fprintf(out, ": elements that are inf or NaN: %" PRId64, bad);
        s->is_wrong = true;
    }
    fputc('\n', out);
    progress_add(&s->progress, elements);
}

static int print_tensors(session *s, FILE *out) {
    const int64_t count = napier_model_tensor_count(s->model);
    fprintf(out, "tensors      %" PRId64 ": CRC-32 of the bytes, dtype, shape, name\n", count);
    progress_start(&s->progress, s->info.parameters);
    for (int64_t i = 0; i < count; i++) {
        napier_named_tensor t;
        if (library_status(s->context, napier_model_tensor(s->context, s->model, i, &t), s->q->folder)) {
            return STATUS_FAILED;
        }
        print_tensor(s, out, &t);
    }
    progress_end(&s->progress);
    return STATUS_OK;
}

/* ---- Config and tokenizer ---------------------------------------------------------------------------------------- */

static void print_config(const session *s, FILE *out) {
    const napier_model_info *const m = &s->info;
    fprintf(out,
            "model        %s, %" PRId64 " layers, hidden %" PRId64 ", %" PRId64 " heads of %" PRId64 " (%" PRId64
            " of keys), vocabulary %" PRId64 "\n",
            m->family, m->layers, m->hidden, m->heads, m->head_dim, m->kv_heads, m->vocabulary);
    if (m->experts > 0) {
        fprintf(out, "experts      %" PRId64 ", of which a token uses %" PRId64 "\n", m->experts, m->experts_per_token);
    }
    fprintf(out, "weights      %s, %" PRId64 " parameters, %" PRId64 " bytes; %s\n", napier_dtype_name(m->weights),
            m->parameters, m->weight_bytes,
            m->labels > 0 ? "a reward model"
            : m->tied     ? "the head is the embedding"
                          : "the head has its own");
    fprintf(out, "positions    %" PRId64 "; bos %" PRId64 ", eos", m->positions, m->bos);
    for (int64_t i = 0; i < m->eos_count; i++) {
        fprintf(out, " %" PRId64, m->eos_ids[i]);
    }
    fputs(m->eos_count > 0 ? "\n" : " none\n", out);
}

/* Encodes a text into s->ids. */
static int encode(session *s, const char *text, int64_t add_special) {
    napier_encode_options options = NAPIER_ENCODE_OPTIONS_INIT;
    options.add_special = add_special;
    s->ids.size = 0;
    return library_status(s->context,
                          napier_tokenizer_encode(s->context, s->tokenizer, text, strlen(text), &options, &s->ids),
                          s->q->folder);
}

/* The format of the model's conversations, or whether its own template can be run. */
static int print_chat_format(session *s, FILE *out) {
    const napier_chat_message message = {.role = "user", .content = "Hi", .size = 2};
    napier_chat_options options = NAPIER_CHAT_OPTIONS_INIT;
    chat_form form = {.format = 0};
    if (napier_chat_format_load(s->context, s->q->folder, s->tokenizer, &form.format) == NAPIER_OK) {
        for (const option_word *word = chat_formats; word->name != NULL; word++) {
            if (word->value == form.format) {
                fprintf(out, "chat format  %s\n", word->name);
            }
        }
        return STATUS_OK;
    }
    s->text.size = 0;
    napier_status status = napier_chat_template_load(s->context, s->q->folder, &form.chat_template);
    if (status == NAPIER_OK && form.chat_template != NULL) {
        options.chat_template = form.chat_template;
        status = napier_chat_text(s->context, &message, 1, &options, &s->text);
        napier_chat_template_destroy(s->context, form.chat_template);
    } else if (status == NAPIER_OK) {
        status = napier_chat_format_load(s->context, s->q->folder, s->tokenizer, &form.format);
    }
    fprintf(out, "chat format  %s%s\n", status == NAPIER_OK ? "the model's own template" : "none: ",
            status == NAPIER_OK ? "" : napier_last_error(s->context));
    return STATUS_OK;
}

static int print_tokenizer(session *s, FILE *out) {
    const int64_t tokens = napier_tokenizer_vocab_size(s->tokenizer);
    fprintf(out, "tokenizer    %" PRId64 " ids", tokens);
    if (tokens > s->info.vocabulary) {
        fprintf(out, ", more than the model's vocabulary");
        s->is_wrong = true;
    }
    if (encode(s, round_trip, NAPIER_ADD_NONE) ||
        library_status(s->context,
                       napier_tokenizer_decode(s->context, s->tokenizer, s->ids.ids, s->ids.size, NULL, &s->text),
                       s->q->folder)) {
        return STATUS_FAILED;
    }
    const bool is_same = s->text.size == sizeof round_trip - 1 && memcmp(s->text.bytes, round_trip, s->text.size) == 0;
    fprintf(out, "; a text of %zu bytes is %" PRId64 " tokens, and %s\n", sizeof round_trip - 1, s->ids.size,
            is_same ? "the same text again" : "another text when they are decoded");
    s->is_wrong |= !is_same;
    return print_chat_format(s, out);
}

/* ---- Log-probabilities ------------------------------------------------------------------------------------------- */

static int score(session *s) {
    napier_score_options options = NAPIER_SCORE_OPTIONS_INIT;
    napier_score_results results = NAPIER_SCORE_RESULTS_INIT;
    const int64_t count = s->ids.size - 1;
    s->logprobs = malloc((size_t)count * sizeof *s->logprobs);
    if (s->logprobs == NULL) {
        return out_of_memory(s->q->folder);
    }
    results.logprobs = napier_array_f32(s->logprobs, count);
    return library_status(s->context,
                          napier_model_logprobs_for(s->context, s->model, napier_indices_i32(s->ids.ids, 1),
                                                    napier_indices_i32(s->ids.ids + 1, count), &options, &results),
                          s->q->folder);
}

static int print_logprobs(session *s, FILE *out) {
    if (encode(s, SENTENCE, NAPIER_ADD_ONCE)) {
        return STATUS_FAILED;
    }
    if (s->ids.size < 2) {
        s->is_wrong = true;
        fputs("text         \"" SENTENCE "\" is not two tokens\n", out);
        return STATUS_OK;
    }
    if (score(s)) {
        return STATUS_FAILED;
    }
    double sum = 0;
    fputs("text         \"" SENTENCE "\"\nids         ", out);
    for (int64_t i = 0; i < s->ids.size; i++) {
        fprintf(out, " %d", s->ids.ids[i]);
    }
    fputs("\nlogprobs    ", out);
    for (int64_t i = 0; i + 1 < s->ids.size; i++) {
        fputc(' ', out);
        json_number(out, NAPIER_F32, &s->logprobs[i]);
        sum += (double)s->logprobs[i];
    }
    const double mean = sum / (double)(s->ids.size - 1), chance = -log((double)s->info.vocabulary);
    fprintf(out, "\nmean         %.4f; %.4f if all tokens were equally likely\n", mean, chance);
    s->is_wrong |= !isfinite(mean);
    if (isfinite(mean) && mean < chance / 2) {
        fputs("warning      a model that was trained on English finds this text more likely\n", out);
    }
    return STATUS_OK;
}

/* ------------------------------------------------------------------------------------------------------------------ */

static int print_report(session *s, FILE *out) {
    print_config(s, out);
    if (s->tokenizer == NULL) {
        fputs("tokenizer    none that can be read; the model takes ids\n", out);
        return print_tensors(s, out);
    }
    return print_tokenizer(s, out) || (s->info.labels == 0 && print_logprobs(s, out)) || print_tensors(s, out);
}

static int run(void *request, napier_context *context) {
    model_request *const q = request;
    q->folder = q->shared.in_path;
    session s = {.q = q, .context = context, .info = NAPIER_MODEL_INFO_INIT};
    int64_t vocabulary = 0;
    int status = model_open(q, context, &s.model, &vocabulary) ||
                 library_status(context, napier_model_get_info(context, s.model, &s.info), q->folder) ||
                 (tokenizer_open(context, q->folder, &s.tokenizer) && !is_gguf(q->folder)) ||
                 print_report(&s, stdout) || finish_standard_output();
    if (status == STATUS_OK && s.is_wrong) {
        status = complain("%s: this model is not fit for use: see the report", q->folder);
    }
    free(s.logprobs);
    napier_token_buffer_free(context, &s.ids);
    napier_text_buffer_free(context, &s.text);
    napier_tokenizer_destroy(context, s.tokenizer);
    napier_model_destroy(context, s.model);
    return status;
}

#else

static int run(void *request, napier_context *context) { return model_missing(request, context); }

#endif

static const option options[] = {
    {"compute", 0, OPTION_WORD, "MODE", offsetof(model_request, compute), .words = compute_modes,
     .help = "of the log-probabilities: f32 (default), bf16 or split, as in napier help logprobs"},
    {.name = NULL},
};
static int check(void *request) {
    const model_request *const q = request;
    return q->shared.in_path == NULL ? misuse("DIR is missing: a folder with a model, or a GGUF file") : STATUS_OK;
}

static const option_group groups[] = {{NULL, options}, MACHINE_GROUP};
static const model_request defaults = MODEL_DEFAULTS;

const command check_model_command = {
    .name = "check-model",
    .summary = "whether a model's files are whole and work together, and what identifies them",
    .usage = "DIR [OPTIONS]",
    .about =
        "Loads a model (a folder with config.json, model.safetensors or its shards, and tokenizer.json; or a GGUF "
        "file) and\n"
        "prints what it is, whether its tokenizer gives a text back, the log-probabilities of a fixed sentence, and a\n"
        "checksum of each tensor. The report is the same on every machine, so two of them tell whether two copies are "
        "the\n"
        "same model. docs/model.md says what to expect. Exit status 1: a file is missing or wrong, a weight is inf or "
        "NaN,\n"
        "or the tokenizer does not fit the model.",
    .example = "napier check-model Qwen3-0.6B > report.txt",
    .groups = groups,
    .input = INPUT_OPTIONAL,
    .size = sizeof defaults,
    .defaults = &defaults,
    .check = check,
    .run = run,
};
