/* tokenizer - text to token ids and back, and chats: the functions of napier/tokenizer.h. Runs in the root of the sources,
 * because it reads a small tokenizer of the tests. */
#include "example.h"

static const char directory[] = "tests/support", file[] = "tests/support/tiny_tokenizer.json";

/* Text becomes ids, and ids become the same text. A buffer of zeros is empty; calls append to it. */
static void encode_and_decode(napier_context *context) {
    napier_tokenizer *tokenizer = NULL;
    napier_token_buffer ids = {0};
    napier_text_buffer text = {0};
    EXPECT(napier_tokenizer_load(context, file, &tokenizer) == NAPIER_OK);
    EXPECT(napier_tokenizer_encode(context, tokenizer, "Hello, world", 12, NULL, &ids) == NAPIER_OK);
    EXPECT(napier_tokenizer_decode(context, tokenizer, ids.ids, ids.size, NULL, &text) == NAPIER_OK);
    EXPECT(text.size == 12 && memcmp(text.bytes, "Hello, world", 12) == 0);
    napier_text_buffer_free(context, &text);
    napier_token_buffer_free(context, &ids);
    napier_tokenizer_destroy(context, tokenizer);
}

/* In untrusted text a special token has to stay text, else it could end a turn of the chat. */
static void encode_untrusted_text(napier_context *context) {
    napier_tokenizer *tokenizer = NULL;
    napier_token_buffer ids = {0};
    napier_encode_options options = NAPIER_ENCODE_OPTIONS_INIT;
    EXPECT(napier_tokenizer_load(context, file, &tokenizer) == NAPIER_OK);
    EXPECT(napier_tokenizer_encode(context, tokenizer, "<|im_end|>", 10, NULL, &ids) == NAPIER_OK);
    EXPECT(ids.size == 1 && napier_tokenizer_is_special(tokenizer, ids.ids[0]));
    options.plain_special = 1;
    ids.size = 0;
    EXPECT(napier_tokenizer_encode(context, tokenizer, "<|im_end|>", 10, &options, &ids) == NAPIER_OK);
    EXPECT(ids.size > 1 && !napier_tokenizer_is_special(tokenizer, ids.ids[0]));
    napier_token_buffer_free(context, &ids);
    napier_tokenizer_destroy(context, tokenizer);
}

/* A tokenizer from memory, and its vocabulary: from bytes to an id and back. */
static void look_up_tokens(napier_context *context) {
    static char json[1 << 16];
    FILE *const stream = fopen(file, "rb");
    EXPECT(stream != NULL);
    const size_t length = fread(json, 1, sizeof json, stream);
    fclose(stream);
    napier_tokenizer *tokenizer = NULL;
    size_t size;
    EXPECT(napier_tokenizer_from_json(context, json, length, &tokenizer) == NAPIER_OK);
    const int64_t id = napier_tokenizer_id(tokenizer, "<think>", 7);
    EXPECT(id >= 0 && id < napier_tokenizer_vocab_size(tokenizer));
    const char *const bytes = napier_tokenizer_token(tokenizer, id, &size);
    EXPECT(size == 7 && memcmp(bytes, "<think>", size) == 0);
    napier_tokenizer_destroy(context, tokenizer);
}

/* A conversation in the format of the model's chat template, which its directory names. */
static void text_of_a_chat(napier_context *context) {
    const napier_chat_message messages[] = {{.role = "system", .content = "Be brief.", .size = 9},
                                            {.role = "user", .content = "2 + 2?", .size = 6}};
    static const char expected[] = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n2 + 2?<|im_end|>\n"
                                   "<|im_start|>assistant\n";
    napier_text_buffer text = {0};
    napier_chat_options options = NAPIER_CHAT_OPTIONS_INIT;
    EXPECT(napier_chat_format_load(context, directory, NULL, &options.format) == NAPIER_OK);
    EXPECT(napier_chat_text(context, messages, 2, &options, &text) == NAPIER_OK);
    EXPECT(text.size == sizeof expected - 1 && memcmp(text.bytes, expected, text.size) == 0);
    napier_text_buffer_free(context, &text);
}

/* A template that is no known format is refused, and the text says what was found in it. */
static void format_of_a_template(napier_context *context) {
    static const char unknown[] = "{% for message in messages %}<s>{{ message.content }}{% endfor %}";
    int64_t format;
    EXPECT(napier_chat_format_of(context, unknown, sizeof unknown - 1, &format) == NAPIER_UNSUPPORTED);
    puts(napier_last_error(context));
}

/* A model's own template is run. That of a folder comes with the texts of its special tokens; this folder has none. */
static void run_a_template(napier_context *context) {
    static const char source[] =
        "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content | trim }}\n{% endfor %}";
    const napier_chat_message messages[] = {{.role = "user", .content = " 2 + 2? ", .size = 8}};
    napier_chat_options options = NAPIER_CHAT_OPTIONS_INIT;
    napier_chat_template *of_folder = NULL, *made = NULL;
    napier_text_buffer text = {0};
    EXPECT(napier_chat_template_load(context, directory, &of_folder) == NAPIER_OK && of_folder == NULL);
    EXPECT(napier_chat_template_create(context, source, sizeof source - 1, "<s>", NULL, &made) == NAPIER_OK);
    EXPECT(!napier_chat_template_mentions(made, "tools"));
    options.chat_template = made;
    EXPECT(napier_chat_text(context, messages, 1, &options, &text) == NAPIER_OK);
    EXPECT(text.size == 16 && memcmp(text.bytes, "<s>user: 2 + 2?\n", 16) == 0);
    napier_text_buffer_free(context, &text);
    napier_chat_template_destroy(context, made);
}

int main(void) {
    return run_examples((example *const[]){encode_and_decode, encode_untrusted_text, look_up_tokens, text_of_a_chat,
                                           format_of_a_template, run_a_template, NULL});
}
