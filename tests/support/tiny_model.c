/* support/tiny_model.c - see tiny_model.h. A weight is a hash of the seed, its tensor's name and its index. */
#define _POSIX_C_SOURCE 200809L
#define _DEFAULT_SOURCE /* mkdtemp */

#include "support/tiny_model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/math/f64.h"
#include "support/rows.h"

enum { NAME = 96, MOST_TENSORS = 128 };

typedef struct tensor {
    char name[NAME];
    int64_t rows, cols; /* cols 0: one dimension */
} tensor;

/* ---- Tensors ----------------------------------------------------------------------------------------------------- */

static void add(tensor *all, int *count, const char *name, const char *kind, int64_t rows, int64_t cols) {
    if (*count < MOST_TENSORS) {
        tensor *t = &all[(*count)++];
        snprintf(t->name, sizeof t->name, "%s.%s", name, kind);
        t->rows = rows;
        t->cols = cols;
    }
}

bool tiny_model_qkv_bias(const tiny_model *m) { return m->attention_bias || strcmp(m->family, "qwen2") == 0; }
bool tiny_model_head_norms(const tiny_model *m) { return strncmp(m->family, "qwen3", 5) == 0; }
bool tiny_model_is_sparse(const tiny_model *m, int64_t layer) {
    return m->experts > 0 && (layer + 1) % m->sparse_step == 0;
}

tiny_model tiny_model_of(int which) {
    tiny_model m = TINY_MODEL_INIT;
    static const char *const names[TINY_FAMILIES] = {"qwen3", "qwen2", "llama", "mistral", "qwen3_moe"};
    static const char *const ropes[TINY_FAMILIES] = {
        "", ", \"rope_type\": \"yarn\", \"factor\": 4, \"original_max_position_embeddings\": 32",
        ", \"rope_type\": \"llama3\", \"factor\": 8, \"original_max_position_embeddings\": 64",
        ", \"rope_type\": \"linear\", \"factor\": 2", ""};
    m.family = names[which];
    m.rope = ropes[which];
    m.attention_bias = m.mlp_bias = strcmp(m.family, "llama") == 0;
    if (strcmp(m.family, "qwen3_moe") == 0) {
        m.experts = 5, m.chosen = 2, m.expert_width = 20, m.shares = true;
    }
    m.more = strcmp(m.family, "mistral") == 0 ? ", \"sliding_window\": null" : "";
    return m;
}

static void add_expert(const tiny_model *m, int64_t layer, int64_t expert, tensor *all, int *count) {
    static const char *const parts[] = {"gate_proj", "up_proj", "down_proj"};
    for (int i = 0; i < 3; i++) {
        char name[NAME / 2];
        snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%d.%s", (int)layer, (int)expert, parts[i]);
        add(all, count, name, "weight", i < 2 ? m->expert_width : m->hidden, i < 2 ? m->hidden : m->expert_width);
    }
}

static void add_layer(const tiny_model *m, int64_t layer, tensor *all, int *count) {
    const int64_t q = m->heads * m->head_dim, kv = m->kv_heads * m->head_dim;
    const bool qkv = tiny_model_qkv_bias(m), norms = tiny_model_head_norms(m), sparse = tiny_model_is_sparse(m, layer);
    const int64_t middle = sparse ? 0 : m->intermediate;
    const struct {
        const char *name;
        int64_t rows, cols; /* rows 0: not in this family */
        bool biased;
    } parts[] = {{"input_layernorm", m->hidden, 0, false},
                 {"self_attn.q_proj", q, m->hidden, qkv},
                 {"self_attn.k_proj", kv, m->hidden, qkv},
                 {"self_attn.v_proj", kv, m->hidden, qkv},
                 {"self_attn.o_proj", m->hidden, q, m->attention_bias},
                 {"self_attn.q_norm", norms ? m->head_dim : 0, 0, false},
                 {"self_attn.k_norm", norms ? m->head_dim : 0, 0, false},
                 {"post_attention_layernorm", m->hidden, 0, false},
                 {"mlp.gate_proj", middle, m->hidden, m->mlp_bias},
                 {"mlp.up_proj", middle, m->hidden, m->mlp_bias},
                 {"mlp.down_proj", sparse ? 0 : m->hidden, m->intermediate, m->mlp_bias},
                 {"mlp.gate", sparse ? m->experts : 0, m->hidden, false}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char name[NAME / 2];
        snprintf(name, sizeof name, "model.layers.%d.%s", (int)layer, parts[i].name);
        if (parts[i].rows > 0) {
            add(all, count, name, "weight", parts[i].rows, parts[i].cols);
        }
        if (parts[i].biased) {
            add(all, count, name, "bias", parts[i].rows, 0);
        }
    }
    for (int64_t e = 0; sparse && e < m->experts; e++) {
        add_expert(m, layer, e, all, count);
    }
}

static int list_tensors(const tiny_model *m, tensor *all) {
    int count = 0;
    add(all, &count, "model.embed_tokens", "weight", m->vocabulary, m->hidden);
    for (int64_t layer = 0; layer < m->layers; layer++) {
        add_layer(m, layer, all, &count);
    }
    add(all, &count, "model.norm", "weight", m->hidden, 0);
    if (m->labels > 0) {
        add(all, &count, "score", "weight", m->labels, m->hidden);
    } else if (!m->tied) {
        add(all, &count, "lm_head", "weight", m->vocabulary, m->hidden);
    }
    return count;
}

double tiny_model_weight(const tiny_model *m, const char *name, int64_t i) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325) ^ m->seed;
    for (const char *c = name; *c != '\0'; c++) {
        hash = (hash ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
    }
    rng r = rng_make(hash + (uint64_t)i * UINT64_C(0x9e3779b97f4a7c15));
    const bool norm = strstr(name, "norm") != NULL;
    double value = norm ? 1.0 + 0.25 * rng_normal(&r) : 0.2 * rng_normal(&r), stored = 0;
    napier_f64_store(&stored, m->dtype, 0, value);
    return napier_f64_load(&stored, m->dtype, 0);
}

/* ---- Files ------------------------------------------------------------------------------------------------------- */

static void write_config(const tiny_model *m, FILE *file) {
    const char *const name = m->experts > 0 ? "qwen3Moe" : m->family;
    fprintf(file, "{\"architectures\": [\"%c%sFor%s\"], \"model_type\": \"%s\", \"hidden_act\": \"silu\",\n",
            name[0] - 'a' + 'A', name + 1, m->labels > 0 ? "SequenceClassification" : "CausalLM", m->family);
    fprintf(file,
            " \"hidden_size\": %d, \"num_hidden_layers\": %d, \"num_attention_heads\": %d,\n"
            " \"num_key_value_heads\": %d, \"head_dim\": %d, \"intermediate_size\": %d, \"vocab_size\": %d,\n"
            " \"rms_norm_eps\": 1e-06, \"tie_word_embeddings\": %s, \"attention_bias\": %s, \"mlp_bias\": %s",
            (int)m->hidden, (int)m->layers, (int)m->heads, (int)m->kv_heads, (int)m->head_dim, (int)m->intermediate,
            (int)m->vocabulary, m->tied ? "true" : "false", m->attention_bias ? "true" : "false",
            m->mlp_bias ? "true" : "false");
    if (m->labels > 0) {
        fprintf(file, ", \"num_labels\": %d", (int)m->labels);
    }
    if (m->experts > 0) {
        fprintf(file,
                ", \"num_experts\": %d, \"num_experts_per_tok\": %d, \"moe_intermediate_size\": %d,\n"
                " \"decoder_sparse_step\": %d, \"norm_topk_prob\": %s",
                (int)m->experts, (int)m->chosen, (int)m->expert_width, (int)m->sparse_step,
                m->shares ? "true" : "false");
    }
    fprintf(file, "%s,\n", m->more);
    if (m->old_config) {
        fprintf(file, " \"rope_theta\": %g}\n", m->theta);
    } else {
        fprintf(file, " \"rope_parameters\": {\"rope_theta\": %g%s}}\n", m->theta, m->rope);
    }
}

static int64_t elements(const tensor *t) { return t->rows * (t->cols > 0 ? t->cols : 1); }

static void write_header(const tiny_model *m, const tensor *all, int count, FILE *file) {
    static const char *const names[] = {"", "F32", "F16", "BF16", "F64"};
    char text[1 << 15];
    size_t size = 0;
    int64_t at = 0;
    for (int i = 0; i < count; i++) {
        const int64_t bytes = elements(&all[i]) * (int64_t)napier_dtype_size(m->dtype);
        char shape[48];
        snprintf(shape, sizeof shape, all[i].cols > 0 ? "%" PRId64 ", %" PRId64 : "%" PRId64, all[i].rows, all[i].cols);
        size += (size_t)snprintf(text + size, sizeof text - size,
                                 "%s\"%s\": {\"dtype\": \"%s\", \"shape\": [%s], \"data_offsets\": [%" PRId64
                                 ", %" PRId64 "]}",
                                 i > 0 ? ", " : "{", all[i].name, names[m->dtype], shape, at, at + bytes);
        at += bytes;
    }
    size += (size_t)snprintf(text + size, sizeof text - size, "}");
    while (size % 8 != 0) {
        text[size++] = ' ';
    }
    for (int i = 0; i < 8; i++) {
        fputc((int)(size >> 8 * i & 255), file);
    }
    fwrite(text, 1, size, file);
}

static void write_tensors(const tiny_model *m, FILE *file) {
    static tensor all[MOST_TENSORS];
    const int count = list_tensors(m, all);
    write_header(m, all, count, file);
    for (int t = 0; t < count; t++) {
        for (int64_t i = 0; i < elements(&all[t]); i++) {
            double stored = 0;
            napier_f64_store(&stored, m->dtype, 0, tiny_model_weight(m, all[t].name, i));
            fwrite(&stored, 1, napier_dtype_size(m->dtype), file);
        }
    }
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

/* Everything is allocated at once, each for itself, so that AddressSanitizer sees every read outside. */
tiny_tensors tiny_model_tensors(const tiny_model *m) {
    enum { CONFIG = 2048 };
    tensor *const all = calloc(MOST_TENSORS, sizeof *all);
    tiny_tensors t = {.list = calloc(MOST_TENSORS, sizeof *t.list), .config = malloc(CONFIG)};
    int64_t(*const shapes)[2] = calloc(MOST_TENSORS, sizeof *shapes);
    t.memory[0] = all, t.memory[1] = t.list, t.memory[2] = t.config, t.memory[3] = shapes;
    FILE *const file = all && t.list && t.config && shapes ? fmemopen(t.config, CONFIG, "w") : NULL;
    if (!file) {
        return t;
    }
    write_config(m, file);
    fclose(file);
    t.config_size = strlen(t.config);
    t.count = list_tensors(m, all);
    for (int64_t k = 0; k < t.count; k++) {
        void *const data = malloc((size_t)elements(&all[k]) * napier_dtype_size(m->dtype));
        for (int64_t i = 0; data && i < elements(&all[k]); i++) {
            napier_f64_store(data, m->dtype, i, tiny_model_weight(m, all[k].name, i));
        }
        shapes[k][0] = all[k].rows, shapes[k][1] = all[k].cols;
        t.list[k] = (napier_named_tensor){all[k].name, data, shapes[k], all[k].cols > 0 ? 2 : 1, m->dtype};
    }
    return t;
}

void tiny_tensors_free(tiny_tensors *t) {
    for (int64_t k = 0; k < t->count; k++) {
        free((void *)(uintptr_t)t->list[k].data);
    }
    for (size_t i = 0; i < sizeof t->memory / sizeof *t->memory; i++) {
        free(t->memory[i]);
    }
    *t = (tiny_tensors){0};
}

napier_named_tensor *tiny_tensors_find(const tiny_tensors *t, const char *name) {
    for (int64_t k = 0; k < t->count; k++) {
        if (strcmp(t->list[k].name, name) == 0) {
            return &t->list[k];
        }
    }
    return NULL;
}

/* ---- A directory ------------------------------------------------------------------------------------------------- */

static FILE *create(const tiny_model *m, const char *name) {
    char path[192];
    snprintf(path, sizeof path, "%s/%s", m->directory, name);
    return fopen(path, "wb");
}

void tiny_model_write(tiny_model *m) {
    const char *temporary = getenv("TMPDIR");
    snprintf(m->directory, sizeof m->directory, "%s/napier-model-XXXXXX", temporary ? temporary : "/tmp");
    FILE *const config = mkdtemp(m->directory) ? create(m, "config.json") : NULL;
    FILE *const tensors = config ? create(m, "model.safetensors") : NULL;
    if (!tensors) {
        m->directory[0] = '\0';
        return;
    }
    write_config(m, config);
    write_tensors(m, tensors);
    fclose(config);
    fclose(tensors);
}

void tiny_model_remove(tiny_model *m) {
    char path[192];
    snprintf(path, sizeof path, "%s/config.json", m->directory);
    unlink(path);
    snprintf(path, sizeof path, "%s/model.safetensors", m->directory);
    unlink(path);
    rmdir(m->directory);
}
