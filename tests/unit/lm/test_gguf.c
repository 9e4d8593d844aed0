/* test_gguf - GGUF files, made here value by value: each type as the package gguf widens it, what is right read, and what is
 * not refused by name. tests/peers/test_rl_gguf.py compares a real file. */
#include <stdlib.h>
#include <math.h>
#include <string.h>

#include "core/base/bytes.h"
#include "lm/gguf/gguf.h"
#include "lm/text/buffer.h"
#include "support/memory.h"
#include "unit/lm/lm_support.h"

static napier_context *context;
static const char path[] = "/tmp/napier-test.gguf";

/* ---- Types ------------------------------------------------------------------------------------------------------- */

/* Of a block whose byte i is i * 167 + 13, with 0x2e66 and 0xb123 as its halves: the first and the last element, and the
 * checksum of all, from gguf.quants.dequantize of the package gguf 0.19. */
static const struct {
    const char *name;
    uint32_t number;
    int halves[2]; /* places; -1: none */
    float first, last;
    uint64_t checksum;
} golden[] = {
    {"Q4_0", 2, {0, -1}, 0.2999267578125f, -0.599853515625f, UINT64_C(0x31feb842ec7dc210)},
    {"Q4_1", 3, {0, 2}, 0.7392578125f, 0.539306640625f, UINT64_C(0x22a8b2ff035b7555)},
    {"Q5_0", 6, {0, -1}, 0.6998291015625f, -0.39990234375f, UINT64_C(0x899b411e720e207f)},
    {"Q5_1", 7, {0, 2}, 1.93896484375f, 1.4390869140625f, UINT64_C(0xbc6b75e5a3d9c045)},
    {"Q8_0", 8, {0, -1}, 9.0977783203125f, -10.79736328125f, UINT64_C(0xe5c613bead645af8)},
    {"Q4_K", 12, {0, 2}, 54.089599609375f, 21.0821533203125f, UINT64_C(0x80c9fbec97a41b13)},
    {"Q5_K", 13, {0, 2}, 119.673583984375f, 74.2691650390625f, UINT64_C(0xdc49de61b3460179)},
    {"Q6_K", 14, {208, -1}, -23.0943603515625f, 30.79248046875f, UINT64_C(0x2218dc7c18c75121)},
};

static void types(void) {
    static const unsigned halves[] = {0x2e66, 0xb123};
    for (size_t i = 0; i < sizeof golden / sizeof *golden; i++) {
        const napier_gguf_type *const t = napier_gguf_type_of(golden[i].number);
        uint8_t block[NAPIER_GGUF_MOST_BLOCK], bytes[4 * NAPIER_GGUF_MOST_BLOCK];
        float out[NAPIER_GGUF_MOST_BLOCK];
        assert_string_equal(t->name, golden[i].name);
        for (int64_t k = 0; k < t->bytes; k++) {
            block[k] = (uint8_t)(k * 167 + 13);
        }
        for (int h = 0; h < 2 && golden[i].halves[h] >= 0; h++) {
            block[golden[i].halves[h]] = (uint8_t)halves[h];
            block[golden[i].halves[h] + 1] = (uint8_t)(halves[h] >> 8);
        }
        t->widen(block, out);
        (void)napier_put_floats(bytes, out, t->block);
        expect(out[0] == golden[i].first && out[t->block - 1] == golden[i].last, "%s: %.9g .. %.9g", t->name,
               (double)out[0], (double)out[t->block - 1]);
        expect(napier_checksum(bytes, 4 * (size_t)t->block) == golden[i].checksum, "%s: another checksum", t->name);
    }
    expect(napier_gguf_type_of(23)->block == 0 && strcmp(napier_gguf_type_of(23)->name, "IQ4_XS") == 0, "IQ4_XS");
    expect(napier_gguf_type_of(4)->block == 0 && napier_gguf_type_of(UINT32_MAX)->block == 0, "numbers of no type");
}

/* ---- Files ------------------------------------------------------------------------------------------------------- */

/* A file as it is made: values, then tensors, then their data. */
typedef struct maker {
    uint8_t bytes[1 << 15], data[1 << 14];
    size_t size, data_size;
    uint64_t values, tensors;
} maker;

static void number(maker *m, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) {
        m->bytes[m->size++] = (uint8_t)(value >> 8 * i);
    }
}

static void text(maker *m, const char *value) {
    number(m, strlen(value), 8);
    memcpy(m->bytes + m->size, value, strlen(value));
    m->size += strlen(value);
}

static void key(maker *m, const char *name, napier_gguf_kind kind) {
    text(m, name);
    number(m, kind, 4);
    m->values++;
}

static void put_text(maker *m, const char *name, const char *value) {
    key(m, name, NAPIER_GGUF_TEXT);
    text(m, value);
}

static void put_u32(maker *m, const char *name, uint32_t value) {
    key(m, name, NAPIER_GGUF_U32);
    number(m, value, 4);
}

static void put_f32(maker *m, const char *name, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    key(m, name, NAPIER_GGUF_F32);
    number(m, bits, 4);
}

static void put_array(maker *m, const char *name, napier_gguf_kind kind, uint64_t count) {
    key(m, name, NAPIER_GGUF_ARRAY);
    number(m, kind, 4);
    number(m, count, 8);
}

/* A tensor [rows, cols], or [cols] if rows is 0, with data that continue 0, 1, 2, .. as elements or in blocks. */
static void put_tensor(maker *m, const char *name, int64_t rows, int64_t cols, uint32_t type) {
    const napier_gguf_type *const t = napier_gguf_type_of(type);
    text(m, name);
    number(m, rows > 0 ? 2 : 1, 4);
    number(m, (uint64_t)cols, 8);
    if (rows > 0) {
        number(m, (uint64_t)rows, 8);
    }
    number(m, type, 4);
    number(m, m->data_size, 8);
    m->tensors++;
    const int64_t blocks = t->block > 0 ? (rows > 0 ? rows : 1) * cols / t->block : 0;
    uint8_t *at = m->data + m->data_size;
    for (int64_t i = 0; i < blocks; i++) {
        if (t->dtype == NAPIER_F32) {
            at = napier_put_f32(at, (float)(i % 7) / 8);
        } else {
            memset(at, (int)(i % 50), (size_t)t->bytes); /* f16 and bf16 that are small */
            at[1] = 0x2c;                                /* the scale of a block */
            at += t->bytes;
        }
    }
    m->data_size = (size_t)(at - m->data + 31) / 32 * 32;
}

static void write_file(const maker *m) {
    static uint8_t file[sizeof m->bytes + sizeof m->data + 64];
    memset(file, 0, sizeof file);
    memcpy(file, "GGUF\3", 5);
    napier_put_u64(file + 8, m->tensors);
    napier_put_u64(file + 16, m->values);
    memcpy(file + 24, m->bytes, m->size);
    const size_t begin = (24 + m->size + 31) / 32 * 32;
    memcpy(file + begin, m->data, m->data_size);
    file_write(path, file, begin + m->data_size);
}

static const char *const tokens[] = {"<s>", "</s>", "a", "b", "ab", "<pad>"};
enum { TOKENS = 6, BOS = 0, EOS = 1, AB = 4 };

static void put_tokenizer(maker *m, const char *pre) {
    static const uint32_t kinds[TOKENS] = {3, 3, 1, 1, 1, 5};
    put_text(m, "tokenizer.ggml.model", "gpt2");
    put_text(m, "tokenizer.ggml.pre", pre);
    put_array(m, "tokenizer.ggml.tokens", NAPIER_GGUF_TEXT, TOKENS);
    for (int i = 0; i < TOKENS; i++) {
        text(m, tokens[i]);
    }
    put_array(m, "tokenizer.ggml.token_type", NAPIER_GGUF_I32, TOKENS);
    for (int i = 0; i < TOKENS; i++) {
        number(m, kinds[i], 4);
    }
    put_array(m, "tokenizer.ggml.merges", NAPIER_GGUF_TEXT, 1);
    text(m, "a b");
    put_u32(m, "tokenizer.ggml.bos_token_id", BOS);
    put_u32(m, "tokenizer.ggml.eos_token_id", EOS);
    put_text(m, "tokenizer.chat_template",
             "{{ bos_token }}'[INST] ' + message['content'] + ' [/INST]'"
             "{{ message['content'] + eos_token}}");
}

/* A model of one layer: hidden 32, 2 heads of 16, and one of keys. */
static void put_values(maker *m) {
    put_text(m, "general.architecture", "llama");
    put_u32(m, "llama.block_count", 1);
    put_u32(m, "llama.context_length", 64);
    put_u32(m, "llama.embedding_length", 32);
    put_u32(m, "llama.feed_forward_length", 32);
    put_u32(m, "llama.attention.head_count", 2);
    put_u32(m, "llama.attention.head_count_kv", 1);
    put_f32(m, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    put_f32(m, "llama.rope.freq_base", 200000);
}

enum { F32, F16, Q4_0, Q4_1, Q8_0 = 8, BF16 = 30 };

static void put_tensors(maker *m) {
    put_tensor(m, "token_embd.weight", TOKENS, 32, Q8_0);
    put_tensor(m, "output_norm.weight", 0, 32, F32);
    put_tensor(m, "blk.0.attn_norm.weight", 0, 32, F32);
    put_tensor(m, "blk.0.ffn_norm.weight", 0, 32, F32);
    put_tensor(m, "blk.0.attn_q.weight", 32, 32, Q4_0);
    put_tensor(m, "blk.0.attn_k.weight", 16, 32, F16);
    put_tensor(m, "blk.0.attn_v.weight", 16, 32, BF16);
    put_tensor(m, "blk.0.attn_output.weight", 32, 32, Q4_1);
    put_tensor(m, "blk.0.ffn_gate.weight", 32, 32, F16);
    put_tensor(m, "blk.0.ffn_up.weight", 32, 32, Q8_0);
    put_tensor(m, "blk.0.ffn_down.weight", 32, 32, Q8_0);
}

static maker *begin_file(void) {
    static maker m;
    memset(&m, 0, sizeof m);
    return &m;
}

static void write_model(void) {
    maker *const m = begin_file();
    put_values(m);
    put_tokenizer(m, "llama-bpe");
    put_tensors(m);
    write_file(m);
}

/* ---- What is right ----------------------------------------------------------------------------------------------- */

static napier_named_tensor tensor_of(const napier_model *model, const char *name) {
    napier_named_tensor t = {.name = NULL};
    for (int64_t i = 0; i < napier_model_tensor_count(model); i++) {
        succeeded(context, napier_model_tensor(context, model, i, &t), "tensor");
        if (strcmp(t.name, name) == 0) {
            return t;
        }
    }
    problem("%s: not there", name);
    return t;
}

/* Row r of each head is row 2 r of the file, or 2 (r - 8) + 1 in the second half. */
static void check_rows(const napier_model *model, bool wide) {
    const napier_named_tensor q = tensor_of(model, "model.layers.0.self_attn.q_proj.weight");
    const napier_named_tensor k = tensor_of(model, "model.layers.0.self_attn.k_proj.weight");
    expect(q.dtype == (wide ? NAPIER_F32 : NAPIER_BF16) && k.dtype == NAPIER_F16, "dtypes %d and %d", (int)q.dtype,
           (int)k.dtype);
    for (int64_t row = 0; row < 32; row++) {
        const int64_t from = row / 16 * 16 + (row % 8 * 2 + row % 16 / 8);
        uint8_t block[18];
        float wanted[32];
        memset(block, (int)from, sizeof block); /* one block a row, and its number is its bytes */
        block[1] = 0x2c;
        napier_gguf_type_of(Q4_0)->widen(block, wanted);
        const float got = wide ? ((const float *)q.data)[32 * row] : 0;
        expect(!wide || got == wanted[0], "q, row %d: %g, not %g", (int)row, (double)got, (double)wanted[0]);
        const unsigned first = ((const uint8_t *)k.data)[64 * (row % 16)];
        const int64_t place = 32 * (row % 16 % 8 * 2 + row % 16 / 8); /* the element's number in the file */
        expect(first == (unsigned)(place % 50), "k, row %d: %u", (int)row, first);
    }
}

/* A model of the tensors, which are widened when they are asked for, has the same logits, and its head the same
 * log-probabilities. Then the model's tensors are replaced by them. */
static void check_widened(napier_model *model, const napier_model_options *options, const float *logits) {
    enum { MOST = 16 };
    const int64_t ids[] = {2, 3, 4};
    napier_named_tensor tensors[MOST];
    napier_text_buffer json = {0};
    napier_model *wide = NULL;
    float again[3 * TOKENS];
    const int64_t count = napier_model_tensor_count(model);
    assert_true(count <= MOST);
    for (int64_t i = 0; i < count; i++) {
        succeeded(context, napier_model_tensor(context, model, i, &tensors[i]), "tensor");
    }
    succeeded(context, napier_gguf_document(context, path, "config.json", &json), "config.json");
    if (works(napier_model_from_tensors, context, json.bytes, json.size, tensors, count, options, &wide)) {
        const napier_const_matrix head = napier_model_head(model), other = napier_model_head(wide);
        works(napier_model_forward, context, wide, napier_indices_i64(ids, 3), napier_indices_i64(NULL, 0),
              napier_rows_f32(NULL, 0, 0), napier_rows_f32(again, 3, TOKENS), NULL, NULL);
        expect(memcmp(again, logits, sizeof again) == 0, "other logits");
        expect(head.dtype == other.dtype && head.rows == TOKENS && head.cols == 32 &&
                   memcmp(head.data, other.data, TOKENS * 32 * napier_dtype_size(head.dtype)) == 0,
               "another head");
        const int64_t offsets[] = {0, 1}, all[] = {0, 2}, responses[] = {3, 4};
        float logprobs[2][2];
        for (int i = 0; i < 2; i++) {
            napier_score_batch batch = NAPIER_SCORE_BATCH_INIT;
            napier_score_results results = NAPIER_SCORE_RESULTS_INIT;
            batch.prompt_ids = napier_indices_i64(ids, 1);
            batch.prompt_offsets = napier_indices_i64(offsets, 2);
            batch.response_ids = napier_indices_i64(responses, 2);
            batch.response_offsets = napier_indices_i64(all, 2);
            results.logprobs = napier_array_f32(logprobs[i], 2);
            works(napier_model_batch_logprobs, context, i ? wide : model, &batch, NULL, &results);
        }
        expect(memcmp(logprobs[0], logprobs[1], sizeof logprobs[0]) == 0, "other log-probabilities");
    }
    napier_model_destroy(context, wide);
    napier_text_buffer_free(context, &json);
}

static void model(void) {
    write_model();
    for (int mode = NAPIER_COMPUTE_F32; mode <= NAPIER_COMPUTE_BF16; mode++) {
        napier_model_options options = NAPIER_MODEL_OPTIONS_INIT;
        napier_model_info info = NAPIER_MODEL_INFO_INIT;
        napier_model *made = NULL;
        float logits[3 * TOKENS];
        const int64_t ids[] = {2, 3, 4};
        options.compute = (napier_compute)mode;
        if (!succeeded(context, napier_model_load(context, path, &options, &made), "load")) {
            continue;
        }
        check_rows(made, mode == NAPIER_COMPUTE_F32);
        succeeded(context, napier_model_get_info(context, made, &info), "info");
        expect(info.hidden == 32 && info.head_dim == 16 && info.positions == 64 && info.tied && info.eos == EOS,
               "hidden %d", (int)info.hidden);
        succeeded(context,
                  napier_model_forward(context, made, napier_indices_i64(ids, 3), napier_indices_i64(NULL, 0),
                                       napier_rows_f32(NULL, 0, 0), napier_rows_f32(logits, 3, TOKENS), NULL, NULL),
                  "forward");
        check_widened(made, &options, logits);
        succeeded(context, napier_model_update(context, made, NULL, 0), "its own tensors");
        check_widened(made, &options, logits);
        napier_model_destroy(context, made);
    }
    remove(path);
}

static void tokenizer(void) {
    napier_tokenizer *t = NULL;
    napier_token_buffer ids = {0};
    napier_text_buffer json = {0};
    napier_encode_options options = NAPIER_ENCODE_OPTIONS_INIT;
    int64_t format = -1;
    options.add_special = NAPIER_ADD_ONCE; /* llama-bpe adds a BOS where the file does not say it */
    write_model();
    if (succeeded(context, napier_tokenizer_load(context, path, &t), "load")) {
        succeeded(context, napier_tokenizer_encode(context, t, "ab</s>", 6, &options, &ids), "encode");
        expect(ids.size == 3 && ids.ids[0] == BOS && ids.ids[1] == AB && ids.ids[2] == EOS, "%d ids", (int)ids.size);
        expect(napier_tokenizer_token(t, 5, NULL) == NULL, "a token that is not used");
    }
    succeeded(context, napier_chat_format_load(context, path, t, &format), "its template");
    expect(format == NAPIER_CHAT_MISTRAL_V0_2, "format %d", (int)format);
    succeeded(context, napier_gguf_document(context, path, "tokenizer_config.json", &json), "tokenizer_config.json");
    expect(json.size > 20 && memcmp(json.bytes, "{\"bos_token\": \"<s>\",", 20) == 0, "another document");
    napier_tokenizer_destroy(context, t);
    napier_token_buffer_free(context, &ids);
    napier_text_buffer_free(context, &json);
    remove(path);
}

static void config(void) {
    static const char wanted[] = "\"rope_theta\": 2e+05, ", eps[] = "\"rms_norm_eps\": 1e-05}";
    napier_text_buffer json = {0};
    write_model();
    if (succeeded(context, napier_gguf_document(context, path, "config.json", &json), "config.json") &&
        succeeded(context, napier_text_buffer_append(context, &json, "", 1), "append")) {
        expect(strstr(json.bytes, wanted) && strstr(json.bytes, eps), "%s", json.bytes);
    }
    json.size = 0;
    invalid(context, napier_gguf_document(context, path, "vocab.txt", &json), "vocab.txt");
    invalid(context, napier_gguf_document(context, NULL, "config.json", &json), "path");
    napier_text_buffer_free(context, &json);
    remove(path);
}

/* Llama 3's scaling of the rope, as llama.cpp writes it: what divides each of the 8 frequencies. */
static void llama3(void) {
    static const float divisors[2][8] = {{1, 1, 1, 1, 1.4627318f, 8, 8, 8}, {1, 1, 1, 1, 3, 8, 8, 8}};
    for (int i = 0; i < 2; i++) {
        maker *const m = begin_file();
        napier_text_buffer json = {0};
        put_values(m);
        put_tensors(m);
        const size_t at = m->data_size;
        put_tensor(m, "rope_freqs.weight", 0, 8, F32);
        (void)napier_put_floats(m->data + at, divisors[i], 8);
        write_file(m);
        if (i == 0) {
            napier_model *made = NULL;
            succeeded(context, napier_model_load(context, path, NULL, &made), "load");
            napier_model_destroy(context, made);
        } else {
            refused(context, napier_gguf_document(context, path, "config.json", &json), NAPIER_UNSUPPORTED,
                    "rope_freqs.weight", "Llama 3", NULL);
        }
        napier_text_buffer_free(context, &json);
    }
    remove(path);
}

/* ---- What is not ------------------------------------------------------------------------------------------------- */

static void extra_u32(maker *m, const char *name, uint32_t value) {
    put_values(m);
    put_u32(m, name, value);
    put_tensors(m);
}

/* Each makes a file that is refused with the words below. */
static void of_other_family(maker *m) { put_text(m, "general.architecture", "gemma3"); }
static void with_unknown_key(maker *m) { extra_u32(m, "llama.logit_scale", 2); }
static void with_experts(maker *m) { extra_u32(m, "llama.expert_count", 8); }
static void of_parts(maker *m) { extra_u32(m, "split.count", 3); }
static void with_other_head(maker *m) { extra_u32(m, "llama.rope.dimension_count", 8); }
static void twice(maker *m) { extra_u32(m, "llama.block_count", 1); }
static void of_other_alignment(maker *m) { extra_u32(m, "general.alignment", 33); }
static void of_other_type(maker *m) {
    put_values(m);
    put_tensors(m);
    put_tensor(m, "blk.0.attn_k.bias", 0, 32, 23);
}
static void with_empty_rows(maker *m) {
    put_values(m);
    put_tensors(m);
    put_tensor(m, "blk.0.attn_sinks.weight", 4, 0, Q4_1);
}

static void with_other_tensor(maker *m) {
    put_values(m);
    put_tensors(m);
    put_tensor(m, "blk.0.attn_sinks.weight", 0, 32, F32);
}
static void with_other_rows(maker *m) {
    put_values(m);
    put_tensor(m, "token_embd.weight", 4, 31, Q8_0);
}
static void of_text_for_number(maker *m) {
    put_values(m);
    put_text(m, "llama.attention.key_length", "16");
    put_tensors(m);
}
static void of_nested_arrays(maker *m) { put_array(m, "a", NAPIER_GGUF_ARRAY, 1); }
static void of_long_array(maker *m) { put_array(m, "a", NAPIER_GGUF_U64, UINT64_MAX); }
static void of_long_text(maker *m) {
    key(m, "a", NAPIER_GGUF_TEXT);
    number(m, UINT64_MAX, 8);
}

static void refusals(void) {
    static const struct {
        void (*make)(maker *m);
        napier_status status;
        const char *words[2];
    } cases[] = {
        {of_other_family, NAPIER_UNSUPPORTED, {"general.architecture", "\"gemma3\""}},
        {with_unknown_key, NAPIER_UNSUPPORTED, {"llama.logit_scale", "not supported"}},
        {with_experts, NAPIER_UNSUPPORTED, {"expert_count: 8", "only 0"}},
        {of_parts, NAPIER_UNSUPPORTED, {"split.count:", "llama-gguf-split --merge"}},
        {with_other_head, NAPIER_UNSUPPORTED, {"rope.dimension_count: 8", "only 16"}},
        {twice, NAPIER_CORRUPT_DATA, {"llama.block_count", "twice"}},
        {of_other_alignment, NAPIER_CORRUPT_DATA, {"general.alignment", "33"}},
        {of_other_type, NAPIER_UNSUPPORTED, {"blk.0.attn_k.bias", "IQ4_XS"}},
        {with_other_tensor, NAPIER_CORRUPT_DATA, {"blk.0.attn_sinks.weight", "no such tensor"}},
        {with_other_rows, NAPIER_CORRUPT_DATA, {"token_embd.weight", "Q8_0's 32"}},
        {with_empty_rows, NAPIER_CORRUPT_DATA, {"blk.0.attn_sinks.weight", "no such tensor"}},
        {of_text_for_number, NAPIER_UNSUPPORTED, {"llama.attention.key_length", "integer"}},
        {of_nested_arrays, NAPIER_UNSUPPORTED, {"a:", "kind 9"}},
        {of_long_array, NAPIER_CORRUPT_DATA, {"ends at byte", "within a"}},
        {of_long_text, NAPIER_CORRUPT_DATA, {"ends at byte", "within a"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        maker *const m = begin_file();
        napier_model *made = NULL;
        cases[i].make(m);
        write_file(m);
        refused(context, napier_model_load(context, path, NULL, &made), cases[i].status, cases[i].words[0],
                cases[i].words[1], NULL);
        expect(made == NULL, "case %zu: a model all the same", i);
    }
    remove(path);
}

static void starts(void) {
    static const struct {
        const char *bytes;
        size_t size;
        napier_status status;
        const char *word;
    } cases[] = {
        {"GGUF", 4, NAPIER_CORRUPT_DATA, "4 bytes"},
        {"{\"a\": 1, \"b\": 2}", 16, NAPIER_CORRUPT_DATA, "no GGUF file"},
        {"GGUF\1\0\0\0", 8, NAPIER_UNSUPPORTED, "version 1,"},
        {"GGUF\0\0\0\3", 8, NAPIER_UNSUPPORTED, "high byte first"},
        {"GGUF\3\0\0\0", 8, NAPIER_CORRUPT_DATA, "ends at byte 8"},
        {"GGUF\3\0\0\0\xff\xff\xff\xff\0\0\0\0\1\0\0\0\0\0\0\0", 24, NAPIER_CORRUPT_DATA, "4294967295 tensors"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        napier_model *made = NULL;
        file_write(path, cases[i].bytes, cases[i].size);
        refused(context, napier_model_load(context, path, NULL, &made), cases[i].status, cases[i].word, NULL);
    }
    remove(path);
}

/* A text's tokenizer that is not known leaves the model usable. */
static void tokenizers(void) {
    maker *const m = begin_file();
    napier_tokenizer *t = NULL;
    napier_model *made = NULL;
    put_values(m);
    put_tokenizer(m, "chatglm-bpe");
    put_tensors(m);
    write_file(m);
    refused(context, napier_tokenizer_load(context, path, &t), NAPIER_UNSUPPORTED, "tokenizer.ggml.pre", "chatglm-bpe",
            NULL);
    succeeded(context, napier_model_load(context, path, NULL, &made), "load");
    napier_model_destroy(context, made);
    remove(path);
}

/* A vocabulary of SentencePiece: "ab" and "ca" share a letter, and the higher score joins first. */
enum { PIECES = 9, BYTE_A = 2 };
static void write_pieces(float of_ab, float of_ca, int scores, const char *long_piece) {
    static const char *const pieces[PIECES] = {"<unk>", "<s>", "<0x41>", "\xe2\x96\x81", "a", "b", "c", "ab", "ca"};
    static const uint32_t kinds[PIECES] = {2, 3, 6, 1, 1, 1, 1, 1, 1};
    maker *const m = begin_file();
    put_values(m);
    put_text(m, "tokenizer.ggml.model", "llama");
    put_array(m, "tokenizer.ggml.tokens", NAPIER_GGUF_TEXT, PIECES);
    for (int i = 0; i < PIECES; i++) {
        text(m, long_piece && i == PIECES - 1 ? long_piece : pieces[i]);
    }
    put_array(m, "tokenizer.ggml.token_type", NAPIER_GGUF_I32, PIECES);
    for (int i = 0; i < PIECES; i++) {
        number(m, kinds[i], 4);
    }
    put_array(m, "tokenizer.ggml.scores", NAPIER_GGUF_F32, (uint64_t)scores);
    for (int i = 0; i < scores; i++) {
        const float score = i == 7 ? of_ab : i == 8 ? of_ca : 0;
        uint32_t bits;
        memcpy(&bits, &score, sizeof bits);
        number(m, bits, 4);
    }
    put_u32(m, "tokenizer.ggml.bos_token_id", 1);
    put_u32(m, "tokenizer.ggml.unknown_token_id", 0);
    put_tensors(m);
    write_file(m);
}

static void expect_ids(const char *given, int64_t count, const int32_t *wanted) {
    napier_tokenizer *t = NULL;
    napier_token_buffer ids = {0};
    napier_encode_options options = NAPIER_ENCODE_OPTIONS_INIT;
    options.add_special = NAPIER_ADD_ONCE;
    if (succeeded(context, napier_tokenizer_load(context, path, &t), "load")) {
        succeeded(context, napier_tokenizer_encode(context, t, given, strlen(given), &options, &ids), "encode");
        expect(ids.size == count && memcmp(ids.ids, wanted, (size_t)count * sizeof *wanted) == 0, "%s: %d ids", given,
               (int)ids.size);
    }
    napier_token_buffer_free(context, &ids);
    napier_tokenizer_destroy(context, t);
}

static napier_status make_document(napier_context *c, void *unused) {
    napier_text_buffer json = {0};
    const napier_status status = napier_gguf_document(c, path, "tokenizer.json", &json);
    expect((status == NAPIER_OK) == (json.size > 0), "status %d, argument %p", (int)status, unused);
    napier_text_buffer_free(c, &json);
    return status;
}

static void pieces(void) {
    napier_text_buffer json = {0};
    char long_piece[200];
    write_pieces(-1, -2, PIECES, NULL);
    expect_ids("cabA", 5, (const int32_t[]){1, 3, 6, 7, BYTE_A});
    check_allocations("document", make_document, NULL);
    write_pieces(-2, -1, PIECES, NULL);
    expect_ids("cabz", 5, (const int32_t[]){1, 3, 8, 5, 0});
    write_pieces(-2, -1, PIECES - 1, NULL);
    refused(context, napier_gguf_document(context, path, "tokenizer.json", &json), NAPIER_CORRUPT_DATA,
            "tokenizer.ggml.scores", "not as many", NULL);
    write_pieces(NAN, -1, PIECES, NULL);
    refused(context, napier_gguf_document(context, path, "tokenizer.json", &json), NAPIER_UNSUPPORTED, "'ab'",
            "no score", NULL);
    memset(long_piece, 'a', sizeof long_piece);
    long_piece[sizeof long_piece - 1] = '\0';
    write_pieces(-2, -1, PIECES, long_piece);
    refused(context, napier_gguf_document(context, path, "tokenizer.json", &json), NAPIER_UNSUPPORTED, "more than 128",
            NULL);
    napier_text_buffer_free(context, &json);
    remove(path);
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

static napier_status load_and_write(napier_context *c, void *unused) {
    napier_model *made = NULL;
    napier_text_buffer json = {0};
    napier_status status = napier_model_load(c, path, NULL, &made);
    status = status ? status : napier_gguf_document(c, path, "tokenizer.json", &json);
    expect((status == NAPIER_OK) == (made != NULL && json.size > 0), "status %d, argument %p", (int)status, unused);
    napier_text_buffer_free(c, &json);
    napier_model_destroy(c, made);
    return status;
}

static void memory(void) {
    write_model();
    check_allocations("load", load_and_write, NULL);
    remove(path);
}

int main(void) {
    context = context_of(NAPIER_ISA_AUTO, 2);
    const int failed = RUN_TESTS("gguf", TEST(types), TEST(model), TEST(tokenizer), TEST(config), TEST(llama3),
                                 TEST(refusals), TEST(starts), TEST(tokenizers), TEST(pieces), TEST(memory));
    napier_context_destroy(context);
    return failed;
}
