/* napier/tokenizer.h - text to token ids and back, by a tokenizer.json: byte-level BPE, as Qwen2 and Qwen3 have it.
 *
 * The ids are those of Hugging Face `tokenizers`, for every text; tests/peers compares them. What a tokenizer.json may
 * ask for beyond byte-level BPE (other models, normalizers, pre-tokenizers) is UNSUPPORTED by name, never done by
 * halves; docs/tokenizer.md lists what is understood.
 *
 * Text is UTF-8 and may contain byte 0. Text that is not UTF-8 is INVALID_ARGUMENT, and the message names the offset of
 * the first byte that does not belong. A tokenizer is never changed once it is loaded: any number of threads may use it
 * at once, each with a context of its own. Any call may return OUT_OF_MEMORY.
 *
 * These functions are in builds with NAPIER_MODEL, which needs cJSON, PCRE2 and utf8proc. */
#ifndef NAPIER_TOKENIZER_H
#define NAPIER_TOKENIZER_H

#include <napier/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct napier_tokenizer napier_tokenizer;

/* Reads a tokenizer.json: a file, or its bytes. The caller destroys *out with the same context; NULL on an error. While
 * it is read, its JSON is in memory of malloc's (cJSON has no other), at most 1 GiB, for which the context's allocator
 * is asked first. Errors: IO_ERROR (the file cannot be read, is no regular file, or has more than 256 MiB),
 * CORRUPT_DATA (no JSON, or not consistent), UNSUPPORTED (named). */
NAPIER_API napier_status napier_tokenizer_load(napier_context *context, const char *path, napier_tokenizer **out);
NAPIER_API napier_status napier_tokenizer_from_json(napier_context *context, const char *json, size_t size,
                                                    napier_tokenizer **out);
/* NULL is allowed. */
NAPIER_API void napier_tokenizer_destroy(napier_context *context, napier_tokenizer *tokenizer);

/* ---- What grows ---------------------------------------------------------------------------------------------------
 * Calls append to these, so that one of them can gather many texts; all zero is empty. Set `size` to 0 to use the
 * memory again. After an error the elements before the call are as they were, and `size` is too. */
typedef struct napier_token_buffer {
    int32_t *ids;
    int64_t size, capacity;
} napier_token_buffer;

typedef struct napier_text_buffer {
    char *bytes; /* no 0 at the end */
    size_t size, capacity;
} napier_text_buffer;

/* With a context that has the same allocator as those that filled it. Leaves it empty. */
NAPIER_API void napier_token_buffer_free(napier_context *context, napier_token_buffer *buffer);
NAPIER_API void napier_text_buffer_free(napier_context *context, napier_text_buffer *buffer);

/* ---- Encode and decode --------------------------------------------------------------------------------------------*/

typedef struct napier_encode_options {
    size_t struct_size;
    int plain_special; /* not 0: "<|im_end|>" and other special tokens in the text are text like any other, so that
                          foreign text cannot end a turn; default 0: they become their ids, as everywhere */
} napier_encode_options;

#define NAPIER_ENCODE_OPTIONS_INIT \
    { sizeof(napier_encode_options), 0 }

/* Appends the ids of `size` bytes of text; `text` may be NULL where size is 0. `options` NULL: all defaults. Nothing is
 * added before or after: Qwen's models have no BOS. Time n log n for n bytes at most, whatever the
 * text. Errors: INVALID_ARGUMENT (no UTF-8), UNSUPPORTED (the file's expression takes too many steps). */
NAPIER_API napier_status napier_tokenizer_encode(napier_context *context, const napier_tokenizer *tokenizer,
                                                 const char *text, size_t size, const napier_encode_options *options,
                                                 napier_token_buffer *ids);

typedef struct napier_decode_options {
    size_t struct_size;
    int skip_special; /* not 0: special tokens give no text; default 0 */
} napier_decode_options;

#define NAPIER_DECODE_OPTIONS_INIT \
    { sizeof(napier_decode_options), 0 }

/* Appends the bytes of `count` ids. They need not be UTF-8 where a character's tokens are not all there.
 * Errors: INVALID_ARGUMENT for an id that has no token; the message names it and its place. */
NAPIER_API napier_status napier_tokenizer_decode(napier_context *context, const napier_tokenizer *tokenizer,
                                                 const int32_t *ids, int64_t count,
                                                 const napier_decode_options *options, napier_text_buffer *text);

/* ---- The vocabulary -----------------------------------------------------------------------------------------------*/

/* The highest id and one: ids lie below it, but not each need have a token. A model's vocab_size may be greater. */
NAPIER_API int64_t napier_tokenizer_vocab_size(const napier_tokenizer *tokenizer);

/* The bytes that a token stands for (" the", "<|im_end|>"), with *size of them; NULL where the id has no token. They
 * live as long as the tokenizer. */
NAPIER_API const char *napier_tokenizer_token(const napier_tokenizer *tokenizer, int64_t id, size_t *size);

/* 1 where the id is an added token that is marked special, else 0. */
NAPIER_API int napier_tokenizer_is_special(const napier_tokenizer *tokenizer, int64_t id);

/* The id of the token that stands for exactly these bytes, added tokens first; -1 where there is none. */
NAPIER_API int64_t napier_tokenizer_id(const napier_tokenizer *tokenizer, const char *bytes, size_t size);

/* ---- Chat ---------------------------------------------------------------------------------------------------------*/

/* A call that the assistant asked for. */
typedef struct napier_tool_call {
    const char *name;
    size_t name_size;
    const char *arguments; /* JSON, {"city": "Bern"}, written as it is */
    size_t arguments_size;
} napier_tool_call;

/* What is not given is 0. */
typedef struct napier_chat_message {
    const char *role; /* "system", "user", "assistant" or "tool", ended by 0 */
    const char *content;
    size_t size; /* bytes of content */
    /* Of an assistant's message only: */
    const char *reasoning; /* "reasoning_content"; NULL: not given, and thoughts are those that content has */
    size_t reasoning_size;
    const napier_tool_call *tool_calls;
    int64_t tool_call_count;
} napier_chat_message;

typedef struct napier_chat_options {
    size_t struct_size;
    int add_generation_prompt; /* not 0 (default): the text ends where the assistant's next turn begins */
    int disable_thinking;      /* not 0: and with an empty think block, so that the model answers at once; default 0 */
    const char *tools;         /* what may be called: the JSON of each tool, a line each, written as it is */
    size_t tools_size;         /* bytes, without a line feed at the end; 0 (default): no tools */
} napier_chat_options;

#define NAPIER_CHAT_OPTIONS_INIT \
    { sizeof(napier_chat_options), 1, 0, NULL, 0 }

/* Appends the text of a conversation in Qwen3's chat format (ChatML), as its template renders it: thoughts of turns
 * before the last question are left out, a "system" turn stands anywhere, "tool" results are gathered into a user's
 * turn, tools are described in the first system turn. `count` 0 gives the generation prompt alone. What the messages
 * say is copied as it is: encoded without plain_special, a "<|im_end|>" in foreign content ends the turn. JSON is
 * copied too: the template has what Python's json.dumps writes, with ensure_ascii=False. Errors: INVALID_ARGUMENT (a
 * role not listed above; reasoning or tool calls of another role than the assistant's). */
NAPIER_API napier_status napier_chat_text(napier_context *context, const napier_chat_message *messages, int64_t count,
                                          const napier_chat_options *options, napier_text_buffer *text);

#ifdef __cplusplus
}
#endif
#endif
