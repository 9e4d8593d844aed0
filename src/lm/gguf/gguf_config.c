/* lm/gguf/gguf_config.c - the config.json of the file's model, from its values. A value that would change what the model
 * computes, and that Napier does not know, is refused by its key. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/base/bytes.h"
#include "lm/gguf/gguf.h"
#include "lm/text/json.h"

enum { LLAMA3_LENGTH = 8192, LLAMA3_LOW = 1, LLAMA3_HIGH = 4 };

/* Mistral's models are written as llama. */
const napier_gguf_family *napier_gguf_family_of(napier_gguf *file) {
    static const napier_gguf_family families[] = {
        {"llama", "llama", true}, {"qwen2", "qwen2", false}, {"qwen3", "qwen3", false}};
    const napier_text name = napier_gguf_text(file, "general.architecture", "");
    for (size_t i = 0; i < sizeof families / sizeof *families && !file->status; i++) {
        if (napier_gguf_same(name, families[i].architecture)) {
            return &families[i];
        }
    }
    napier_gguf_fail(file, NAPIER_UNSUPPORTED,
                     "general.architecture: \"%s\", but only llama (also Mistral's), qwen2 and qwen3 are supported; "
                     "mixtures of experts are read from the model's own folder of safetensors",
                     napier_show(name.bytes, name.size).text);
    return NULL;
}

/* ---- Keys -------------------------------------------------------------------------------------------------------- */

/* Keys behind the architecture that are read below, or say nothing that a computation needs. */
static const char *const known[] = {"block_count",
                                    "context_length",
                                    "embedding_length",
                                    "feed_forward_length",
                                    "vocab_size",
                                    "attention.head_count",
                                    "attention.head_count_kv",
                                    "attention.key_length",
                                    "attention.value_length",
                                    "attention.layer_norm_rms_epsilon",
                                    "attention.causal",
                                    "attention.sliding_window",
                                    "rope.dimension_count",
                                    "rope.freq_base",
                                    "rope.scale_linear",
                                    "rope.scaling.type",
                                    "rope.scaling.factor",
                                    "rope.scaling.original_context_length",
                                    "rope.scaling.finetuned",
                                    "expert_count",
                                    "expert_used_count",
                                    "tensor_data_layout"};

static bool is_known(napier_text key) {
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (napier_gguf_same(key, known[i])) {
            return true;
        }
    }
    return false;
}

static void check_keys(napier_gguf *file, const char *architecture) {
    const size_t size = strlen(architecture);
    for (int64_t i = 0; i < file->value_count && !file->status; i++) {
        const napier_text key = file->values[i].key;
        const bool is_its = key.size > size && memcmp(key.bytes, architecture, size) == 0 && key.bytes[size] == '.';
        if (is_its && !is_known((napier_text){key.bytes + size + 1, key.size - size - 1})) {
            napier_gguf_fail(file, NAPIER_UNSUPPORTED, "%s: not supported", napier_show(key.bytes, key.size).text);
        }
    }
}

static void only(napier_gguf *file, const char *key, double only) {
    const double value = napier_gguf_number(file, key, only);
    if (value != only) {
        napier_gguf_fail(file, NAPIER_UNSUPPORTED, "%s: %g, but only %g is supported", key, value, only);
    }
}

static int64_t required(napier_gguf *file, const char *key) {
    const int64_t value = napier_gguf_integer(file, key, 0);
    if (value <= 0) {
        napier_gguf_fail(file, NAPIER_CORRUPT_DATA, "%s: missing, or no number above 0", key);
    }
    return value;
}

/* ---- The document ------------------------------------------------------------------------------------------------ */

static void put_integer(napier_gguf_writer *w, const char *name, int64_t value) {
    napier_gguf_putf(w, "\"%s\": %" PRId64 ", ", name, value);
}

static void put_bool(napier_gguf_writer *w, const char *name, bool value) {
    napier_gguf_putf(w, "\"%s\": %s, ", name, value ? "true" : "false");
}

static void put_heads(napier_gguf_writer *w, int64_t hidden) {
    napier_gguf *const file = w->file;
    const int64_t heads = required(file, ".attention.head_count");
    const int64_t each = napier_gguf_integer(file, ".attention.key_length", heads > 0 ? hidden / heads : 0);
    put_integer(w, "num_attention_heads", heads);
    put_integer(w, "num_key_value_heads", napier_gguf_integer(file, ".attention.head_count_kv", heads));
    put_integer(w, "head_dim", each);
    only(file, ".attention.value_length", (double)each);
    only(file, ".rope.dimension_count", (double)each);
}

static void put_sizes(napier_gguf_writer *w) {
    napier_gguf *const file = w->file;
    const napier_gguf_tensor *const embedding = napier_gguf_tensor_of(file, "token_embd.weight");
    const int64_t hidden = required(file, ".embedding_length");
    if (embedding == NULL || embedding->ndim != 2) {
        napier_gguf_fail(file, NAPIER_CORRUPT_DATA, "token_embd.weight: no such matrix");
        return;
    }
    put_integer(w, "hidden_size", hidden);
    put_integer(w, "num_hidden_layers", required(file, ".block_count"));
    put_integer(w, "intermediate_size", required(file, ".feed_forward_length"));
    put_integer(w, "max_position_embeddings", required(file, ".context_length"));
    put_integer(w, "vocab_size", embedding->shape[0]);
    put_heads(w, hidden);
}

/* What divides a frequency of the rope in Llama 3's scaling (rope_type llama3 in transformers). */
static double llama3_divisor(double frequency, double factor) {
    const double turns = LLAMA3_LENGTH * frequency / 6.283185307179586; /* of the angle in that length */
    const double share = (turns - LLAMA3_LOW) / (LLAMA3_HIGH - LLAMA3_LOW);
    return share >= 1 ? 1 : share <= 0 ? factor : 1 / ((1 - share) / factor + share);
}

/* llama.cpp writes what divides each frequency. The options that it follows from are the same in all of Llama 3.1 to 3.3
 * but for the factor, which is the last divisor. */
static void put_llama3(napier_gguf_writer *w, const napier_gguf_tensor *t) {
    const double theta = napier_gguf_number(w->file, ".rope.freq_base", 10000);
    const int64_t count = t->elements;
    bool is_same = t->type->dtype == NAPIER_F32 && count > 0;
    const double factor = is_same ? (double)napier_get_f32(t->data + 4 * (count - 1)) : 1;
    for (int64_t i = 0; i < count && is_same; i++) {
        const double wanted = llama3_divisor(pow(theta, -(double)i / (double)count), factor);
        is_same = fabs((double)napier_get_f32(t->data + 4 * i) - wanted) <= 1e-4 * wanted;
    }
    if (!is_same) {
        napier_gguf_fail(w->file, NAPIER_UNSUPPORTED, "%s: not the scaling of Llama 3", t->name);
        return;
    }
    napier_gguf_putf(w,
                     "\"rope_scaling\": {\"rope_type\": \"llama3\", \"low_freq_factor\": %d, \"high_freq_factor\": %d, "
                     "\"original_max_position_embeddings\": %d, ",
                     LLAMA3_LOW, LLAMA3_HIGH, LLAMA3_LENGTH);
    napier_gguf_put_number(w, "factor", factor);
    napier_gguf_put(w, "}, ");
}

static void put_rope(napier_gguf_writer *w) {
    napier_gguf *const file = w->file;
    const napier_gguf_tensor *const divisors = napier_gguf_tensor_of(file, NAPIER_GGUF_FREQUENCIES);
    const napier_text kind = napier_gguf_text(file, ".rope.scaling.type", "none");
    if (napier_gguf_find(file, ".rope.freq_base") != NULL) {
        napier_gguf_put_number(w, "rope_theta", napier_gguf_number(file, ".rope.freq_base", 0));
        napier_gguf_put(w, ", ");
    }
    if (divisors != NULL) {
        put_llama3(w, divisors);
    }
    if (napier_gguf_same(kind, "none")) {
        return;
    }
    if (divisors != NULL) {
        napier_gguf_fail(file, NAPIER_UNSUPPORTED, "%s, and .rope.scaling.type too", divisors->name);
    }
    napier_gguf_put(w, "\"rope_scaling\": {\"rope_type\": ");
    napier_gguf_put_text(w, kind);
    napier_gguf_put(w, ", ");
    const int64_t length = napier_gguf_integer(file, ".rope.scaling.original_context_length", 0);
    if (length > 0) {
        put_integer(w, "original_max_position_embeddings", length);
    }
    napier_gguf_put_number(w, "factor", napier_gguf_number(file, ".rope.scaling.factor", 1));
    napier_gguf_put(w, "}, ");
}

/* The ids that end a text: eos, and the end of a turn or of a message where that is another. */
static void put_ids(napier_gguf_writer *w) {
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    int64_t ids[3];
    int count = 0;
    for (int i = 0; i < 3; i++) {
        const int64_t id = napier_gguf_integer(w->file, keys[i], -1);
        const bool is_new = id >= 0 && (count < 1 || ids[0] != id) && (count < 2 || ids[1] != id);
        ids[count] = id;
        count += is_new;
    }
    const int64_t bos = napier_gguf_integer(w->file, "tokenizer.ggml.bos_token_id", -1);
    if (bos >= 0) {
        put_integer(w, "bos_token_id", bos);
    } else {
        napier_gguf_put(w, "\"bos_token_id\": null, ");
    }
    napier_gguf_put(w, "\"eos_token_id\": [");
    for (int i = 0; i < count; i++) {
        napier_gguf_putf(w, "%s%" PRId64, i > 0 ? ", " : "", ids[i]);
    }
    napier_gguf_put(w, "], ");
}

static void check_computation(napier_gguf *file, const char *architecture) {
    check_keys(file, architecture);
    if (napier_gguf_integer(file, "split.count", 1) != 1) {
        napier_gguf_fail(file, NAPIER_UNSUPPORTED,
                         "split.count: a part of a model; `llama-gguf-split --merge` joins them");
    }
    only(file, ".rope.scale_linear", 1);
    only(file, ".expert_count", 0);
    only(file, ".expert_used_count", 0);
    only(file, ".attention.sliding_window", 0);
    if (!napier_gguf_bool(file, ".attention.causal", true)) {
        napier_gguf_fail(file, NAPIER_UNSUPPORTED, ".attention.causal: false, but only true is supported");
    }
    if (napier_gguf_find(file, ".tensor_data_layout") != NULL) {
        napier_gguf_fail(file, NAPIER_UNSUPPORTED, ".tensor_data_layout: not supported");
    }
}

napier_status napier_gguf_config(napier_gguf *file, napier_text_buffer *json) {
    napier_gguf_writer w = {file, json};
    const napier_gguf_family *const family = napier_gguf_family_of(file);
    if (family == NULL) {
        return file->status;
    }
    check_computation(file, family->architecture);
    napier_gguf_putf(&w, "{\"model_type\": \"%s\", ", family->model_type);
    put_sizes(&w);
    put_rope(&w);
    put_ids(&w);
    put_bool(&w, "attention_bias", napier_gguf_tensor_of(file, "blk.0.attn_q.bias") != NULL);
    put_bool(&w, "mlp_bias", napier_gguf_tensor_of(file, "blk.0.ffn_gate.bias") != NULL);
    put_bool(&w, "tie_word_embeddings", napier_gguf_tensor_of(file, "output.weight") == NULL);
    napier_gguf_put_number(&w, "rms_norm_eps", napier_gguf_number(file, ".attention.layer_norm_rms_epsilon", 1e-6));
    napier_gguf_put(&w, "}\n");
    return file->status;
}
