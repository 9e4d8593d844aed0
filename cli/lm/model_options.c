/* cli/lm/model_options.c - what generate, judge and logprobs share. */
#include "model_options.h"

#include "program/message.h"
#include "program/system.h"

#include <float.h>
#include <inttypes.h>
#include <string.h>

const option_word compute_modes[] = {
    {"f32", NAPIER_COMPUTE_F32}, {"bf16", NAPIER_COMPUTE_BF16}, {"split", NAPIER_COMPUTE_SPLIT}, {NULL, 0}};

const option_word chat_formats[] = {{"qwen3", NAPIER_CHAT_QWEN3},
                                    {"qwen2.5", NAPIER_CHAT_QWEN2_5},
                                    {"llama3", NAPIER_CHAT_LLAMA3},
                                    {"llama3.1", NAPIER_CHAT_LLAMA3_1},
                                    {"llama2", NAPIER_CHAT_LLAMA2},
                                    {"mistral-v0.1", NAPIER_CHAT_MISTRAL_V0_1},
                                    {"mistral-v0.2", NAPIER_CHAT_MISTRAL_V0_2},
                                    {NULL, 0}};

/* Reads a number of decimal digits up to `end`. */
static bool shard_number(const char **at, char end, int64_t *value) {
    enum { MOST = 1 << 30 };
    const char *const begin = *at;
    for (*value = 0; **at >= '0' && **at <= '9' && *value < MOST; ++*at) {
        *value = *value * 10 + (**at - '0');
    }
    return *at > begin && *(*at)++ == end && *value <= MOST;
}

static const char *set_shard(void *request, const char *text) {
    line_shard *const shard = &((model_request *)request)->shard;
    const bool is_read = shard_number(&text, '/', &shard->index) && shard_number(&text, '\0', &shard->count);
    return is_read && shard->index < shard->count ? NULL : "I/N, two numbers with I below N";
}

#define AT(member) offsetof(model_request, member)
const option model_options[] = {
    {"model", 'm', OPTION_READ, "DIR", AT(folder),
     .help = "the model: a folder with config.json, model.safetensors or shards of it, and for texts tokenizer.json; "
             "or a GGUF file"},
    {"output", 'o', OPTION_WRITE, "OUT", AT(shared.out_path),
     .help = "where the result goes (default or -: standard output)"},
    {"compute", 0, OPTION_WORD, "MODE", AT(compute), .words = compute_modes,
     .help = "f32 (default), bf16: activations rounded to bf16 before each product, or split: f32's accuracy by "
             "three products of bf16, for weights of bf16"},
    {"memory", 0, OPTION_SIZE, "SIZE", AT(memory), OPTION_ABOVE_0(0x1p63),
     .help = "what may be taken beside the weights, as 512M or 4G (default: 1G)"},
    {"shard", 0, OPTION_OTHER, "I/N", 0, .set = set_shard,
     .help = "only prompts I, I + N, I + 2 N ... of IN, counted from 0, so that N processes share the work (default: "
             "0/1, all)"},
    {"resume", 0, OPTION_FLAG, NULL, AT(resume),
     .help =
         "write into OUT as results are done, behind those that the same command left there when it was interrupted"},
    {.name = NULL},
};
const option scoring_options[] = {
    {"temperature", 't', OPTION_NUMBER, "T", AT(temperature), OPTION_ABOVE_0(DBL_MAX),
     .help = "logits are divided by T first (default: 1)"},
    {.name = NULL},
};
const option chat_options[] = {
    {"chat-format", 0, OPTION_WORD, "FORMAT", AT(chat_format), .words = chat_formats,
     .help = "of conversations: qwen3, qwen2.5, llama3, llama3.1 (also 3.2 and 3.3), llama2, mistral-v0.1 or "
             "mistral-v0.2 (default: what the model's chat template writes)"},
    {"chat-date", 0, OPTION_TEXT, "DAY", AT(chat_date),
     .help = "the day in llama3.1's system message (default: 26 Jul 2024, as in its template)"},
    {.name = NULL},
};
const option prompt_options[] = {
    {"no-bos", 0, OPTION_FLAG, NULL, AT(no_bos),
     .help = "prompts that are texts begin without the tokens that the tokenizer adds, such as Llama's BOS"},
    {.name = NULL},
};
const option conversation_options[] = {
    {"no-thinking", 0, OPTION_FLAG, NULL, AT(no_thinking), .help = "conversations end with an empty think block"},
    {.name = NULL},
};

int model_check(void *request) {
    const model_request *const q = request;
    const char *const out = q->shared.out_path;
    return q->folder == NULL ? misuse("--model is missing: a folder with a model, or a GGUF file")
           : q->resume && (out == NULL || is_standard(out))
               ? misuse("--resume wants --output: a file that keeps what is done")
               : STATUS_OK;
}

#ifdef NAPIER_MODEL

/* OWNER/NAME is a name of the hub, and so may NAME be. */
static int complain_of_folder(const char *path) {
    const char *const slash = strchr(path, '/'), *const name = napier_path_name(path);
    const bool is_hub_name = slash != NULL && slash > path && *path != '.' && slash + 1 == name && *name != '\0';
    return complain("%s: no such folder, and napier downloads nothing. A model of the Hugging Face hub comes with: "
                    "pip install huggingface_hub; hf download %s%s --local-dir %s",
                    path, is_hub_name ? "" : "OWNER/", is_hub_name ? path : name, name);
}

int model_open(const model_request *q, napier_context *context, napier_model **model, int64_t *vocabulary) {
    napier_model_options options = NAPIER_MODEL_OPTIONS_INIT;
    napier_model_info info = NAPIER_MODEL_INFO_INIT;
    if (access(q->folder, F_OK) != 0) {
        return complain_of_folder(q->folder);
    }
    options.compute = q->compute;
    options.memory = q->memory;
    if (library_status(context, napier_model_load(context, q->folder, &options, model), NULL)) {
        return STATUS_FAILED;
    }
    *vocabulary = napier_model_get_info(context, *model, &info) == NAPIER_OK ? info.vocabulary : 0;
    return STATUS_OK;
}

bool model_note_length(napier_context *context, const napier_model *model, int64_t tokens) {
    napier_model_info info = NAPIER_MODEL_INFO_INIT;
    const bool is_long =
        napier_model_get_info(context, model, &info) == NAPIER_OK && info.positions > 0 && tokens > info.positions;
    if (is_long) {
        warn("a sequence of %" PRId64 " tokens is longer than the %" PRId64
             " positions that the model was trained for (max_position_embeddings)",
             tokens, info.positions);
    }
    return is_long;
}

text_encoder model_text_encoder(const model_request *q, napier_context *context, int64_t vocabulary) {
    return (text_encoder){.context = context,
                          .model = q->folder,
                          .no_thinking = q->no_thinking,
                          .no_bos = q->no_bos,
                          .chat = {.format = q->chat_format},
                          .chat_date = q->chat_date,
                          .vocabulary = vocabulary};
}

napier_score_options model_score_options(const model_request *q) {
    napier_score_options options = NAPIER_SCORE_OPTIONS_INIT;
    options.temperature = q->temperature;
    return options;
}

#else

int model_missing(void *request, napier_context *context) {
    (void)request, (void)context;
    return complain("this build has no models, which need cJSON, PCRE2 and utf8proc");
}

#endif
