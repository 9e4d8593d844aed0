/* fuzz_gguf - bytes that claim to be a GGUF file. What is taken lies in the file: every value and every byte of every tensor
 * is read, the documents are written, and the model and the tokenizer are loaded if they can be. */
#include "fuzz_file.h"

#include "lm/gguf/gguf.h"

static unsigned sum_of(napier_gguf *file) {
    unsigned sum = 0;
    for (int64_t i = 0; i < file->value_count; i++) {
        char key[64];
        napier_text text;
        double number;
        (void)snprintf(key, sizeof key, "%.*s", (int)file->values[i].key.size, file->values[i].key.bytes);
        napier_gguf_walk texts = {file, file->values[i].at, file->values[i].count, file->values[i].kind};
        while (file->values[i].kind == NAPIER_GGUF_TEXT && napier_gguf_next_text(&texts, &text)) {
            sum += text.size > 0 ? (unsigned)text.bytes[text.size - 1] : 0;
        }
        while (file->values[i].kind != NAPIER_GGUF_TEXT && napier_gguf_next_number(&texts, &number)) {
            sum += number > 0;
        }
        sum += napier_gguf_find(file, key) != NULL;
    }
    for (int64_t i = 0; i < file->tensor_count; i++) {
        const napier_gguf_tensor *const t = &file->tensors[i];
        REQUIRE(napier_gguf_tensor_of(file, t->name) == t, "tensor %lld is not found by its name", (long long)i);
        for (int64_t k = 0; k < t->size; k++) {
            sum += t->data[k];
        }
    }
    return sum;
}

static void check_documents(napier_context *context, const char *path) {
    static const char *const names[] = {"config.json", "tokenizer.json", "tokenizer_config.json"};
    for (int i = 0; i < 3; i++) {
        napier_text_buffer json = {NULL, 0, 0};
        const napier_status status = napier_gguf_document(context, path, names[i], &json);
        (void)MADE(context, status, json.size > 0, NAPIER_CORRUPT_DATA, NAPIER_UNSUPPORTED);
        napier_text_buffer_free(context, &json);
    }
}

static void check_objects(napier_context *context, const char *path) {
    napier_model *model = NULL;
    napier_tokenizer *tokenizer = NULL;
    napier_status status = napier_model_load(context, path, NULL, &model);
    (void)MADE(context, status, model != NULL, NAPIER_CORRUPT_DATA, NAPIER_UNSUPPORTED, NAPIER_INVALID_ARGUMENT);
    napier_model_destroy(context, model);
    status = napier_tokenizer_load(context, path, &tokenizer);
    (void)MADE(context, status, tokenizer != NULL, NAPIER_CORRUPT_DATA, NAPIER_UNSUPPORTED);
    napier_tokenizer_destroy(context, tokenizer);
}

FUZZ(in) {
    napier_context *const context = fuzz_context(NAPIER_ISA_AUTO, 1);
    const char *const path = fuzz_file(in.at, in.left);
    napier_gguf file;
    const napier_status status = napier_gguf_open(context, path, &file);
    const bool made = MADE(context, status, status == NAPIER_OK, NAPIER_CORRUPT_DATA, NAPIER_UNSUPPORTED);
    REQUIRE(!made || sum_of(&file) < UINT32_MAX, "a sum that is used");
    napier_gguf_close(&file);
    if (made) {
        check_documents(context, path);
        check_objects(context, path);
    }
    fuzz_file_remove(path);
}
