/* napier/tokenizer.h - text to token ids and back, from a tokenizer.json: BPE over bytes, as in Qwen, Llama 3, GPT-2 and
 * Mistral Nemo, or over characters, as in Llama 2 and Mistral 7B.
 *
 * The ids are those of Hugging Face `tokenizers`, for every text; tests/peers compares them. A tokenizer.json that asks
 * for more (other models, normalizers, pre-tokenizers) is UNSUPPORTED, and the message names what is unsupported.
 * docs/tokenizer.md lists what is supported.
 *
 * Text is UTF-8 and may contain byte 0. Text that is not UTF-8 is INVALID_ARGUMENT, and the message names the offset of
 * the first invalid byte. No call changes a loaded tokenizer, so any number of threads may use it at once, each with
 * its own context. Any call may return OUT_OF_MEMORY.
 *
 * These functions are in builds with NAPIER_MODEL, which needs cJSON, PCRE2 and utf8proc. */
#ifndef NAPIER_TOKENIZER_H
#define NAPIER_TOKENIZER_H

#include <napier/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct napier_tokenizer napier_tokenizer;

/* Reads a tokenizer.json from a file or from memory, or the tokenizer of a GGUF file. The caller destroys *out with the same context. On an error *out is
 * NULL. While the call runs, the parsed JSON takes at most 1 GiB. It comes from malloc, because cJSON cannot use another
 * allocator for one document. Before that the call asks the context's allocator for as many bytes, so that an allocator with
 * a limit can refuse.
 * Errors: IO_ERROR (the file cannot be read, is not a regular file, or is larger than 256 MiB), CORRUPT_DATA (not JSON,
 * or not consistent), UNSUPPORTED (the message names what is unsupported). */
NAPIER_API napier_status napier_tokenizer_load(napier_context *context, const char *path, napier_tokenizer **out);
NAPIER_API napier_status napier_tokenizer_from_json(napier_context *context, const char *json, size_t size,
                                                    napier_tokenizer **out);
/* Frees a tokenizer. NULL is allowed. */
NAPIER_API void napier_tokenizer_destroy(napier_context *context, napier_tokenizer *tokenizer);

/* ---- Growing buffers ----------------------------------------------------------------------------------------------
 * Calls append to these buffers, so one buffer can collect many texts. A buffer of zeros is empty. Set `size` to 0 to
 * reuse the memory. A call that fails changes neither `size` nor the earlier elements. */
typedef struct napier_token_buffer {
    int32_t *ids;
    int64_t size, capacity;
} napier_token_buffer;

typedef struct napier_text_buffer {
    char *bytes; /* no 0 at the end */
    size_t size, capacity;
} napier_text_buffer;

/* Frees the memory and leaves the buffer empty. The context must have the same allocator as those that filled it. */
NAPIER_API void napier_token_buffer_free(napier_context *context, napier_token_buffer *buffer);
NAPIER_API void napier_text_buffer_free(napier_context *context, napier_text_buffer *buffer);

/* ---- Encode and decode --------------------------------------------------------------------------------------------*/

/* Whether the file's post_processor adds its tokens. Those of Llama and Mistral add a BOS before the text; Qwen's adds
 * nothing. */
typedef enum napier_add_special {
    NAPIER_ADD_NONE = 0,
    NAPIER_ADD_ALWAYS = 1, /* as `tokenizers` and transformers add them */
    NAPIER_ADD_ONCE = 2    /* the same, unless the text has them already, as a prompt made by a chat template does */
} napier_add_special;

typedef struct napier_encode_options {
    size_t struct_size;
    int plain_special;   /* not 0: encode "<|im_end|>" and other special tokens in the text as plain text, so that
                          untrusted text cannot end a turn; 0 (default): they become their ids, as in `tokenizers` */
    int64_t add_special; /* napier_add_special; default NAPIER_ADD_NONE */
    int64_t continues;   /* not 0: the text continues another, as a response continues its prompt, so no space is put
                            before it where the file asks for one (Llama 2); default 0. Only with NAPIER_ADD_NONE */
} napier_encode_options;

#define NAPIER_ENCODE_OPTIONS_INIT \
    { sizeof(napier_encode_options), 0, NAPIER_ADD_NONE, 0 }

/* Appends the ids of `size` bytes of text. `text` may be NULL if size is 0. `options` NULL: all defaults. The time is at
 * most n log n for n bytes, whatever the text.
 * Errors: INVALID_ARGUMENT (not UTF-8; options that contradict each other), UNSUPPORTED (the file's regular expression
 * takes too many steps, or its normalizer makes the text more than 16 times as long). */
NAPIER_API napier_status napier_tokenizer_encode(napier_context *context, const napier_tokenizer *tokenizer,
                                                 const char *text, size_t size, const napier_encode_options *options,
                                                 napier_token_buffer *ids);

typedef struct napier_decode_options {
    size_t struct_size;
    int skip_special;        /* not 0: leave out special tokens; default 0 */
    int64_t replace_invalid; /* not 0: the text is UTF-8, with U+FFFD where it would not be, exactly as in `tokenizers`;
                                0 (default): bytes as they are */
} napier_decode_options;

#define NAPIER_DECODE_OPTIONS_INIT \
    { sizeof(napier_decode_options), 0, 0 }

/* Appends the text of `count` ids: the bytes of each token, without the first space if the file's decoder removes it, as
 * Llama 2's does. If some tokens of a character are missing, the result is not UTF-8, unless replace_invalid is set. As in
 * `tokenizers`, an id without a token has no text: a model's vocab_size may be greater than the tokenizer's, so a sequence
 * that it generated may have such ids.
 * Errors: INVALID_ARGUMENT for an id below 0; the message names the id and its index. */
NAPIER_API napier_status napier_tokenizer_decode(napier_context *context, const napier_tokenizer *tokenizer,
                                                 const int32_t *ids, int64_t count,
                                                 const napier_decode_options *options, napier_text_buffer *text);

/* ---- The vocabulary -----------------------------------------------------------------------------------------------*/

/* The highest id plus one. Some ids below it may have no token. A model's vocab_size may be greater. */
NAPIER_API int64_t napier_tokenizer_vocab_size(const napier_tokenizer *tokenizer);

/* The bytes that a token decodes to (" the", "<|im_end|>"), within a text: Llama 2's U+2581 is a space, and its
 * "<0x0A>" a line feed. *size receives their number. NULL if the id has no token. The bytes are valid as long as the
 * tokenizer. */
NAPIER_API const char *napier_tokenizer_token(const napier_tokenizer *tokenizer, int64_t id, size_t *size);

/* 1 if the id is an added token that is marked special, else 0. */
NAPIER_API int napier_tokenizer_is_special(const napier_tokenizer *tokenizer, int64_t id);

/* The id of the token with exactly these bytes; added tokens take precedence. Where tokens decode to other bytes than
 * the file has (Llama 2), the file's take precedence ("\xe2\x96\x81the" before " the"). -1 if there is none. */
NAPIER_API int64_t napier_tokenizer_id(const napier_tokenizer *tokenizer, const char *bytes, size_t size);

/* ---- Chat ---------------------------------------------------------------------------------------------------------*/

/* A tool call by the assistant. */
typedef struct napier_tool_call {
    const char *name;
    size_t name_size;
    const char *arguments; /* JSON, such as {"city": "Bern"}; copied unchanged */
    size_t arguments_size;
} napier_tool_call;

/* Set unused members to 0. */
typedef struct napier_chat_message {
    const char *role; /* "system", "user", "assistant" or "tool", ended by 0 */
    const char *content;
    size_t size; /* bytes of content */
    /* Only for messages of the assistant: */
    const char *reasoning; /* "reasoning_content"; NULL: take the thoughts from a <think> block in content, if any */
    size_t reasoning_size;
    const napier_tool_call *tool_calls;
    int64_t tool_call_count;
} napier_chat_message;

/* The formats. Each is the text that the published templates of these models write. */
typedef enum napier_chat_format {
    NAPIER_CHAT_QWEN3 = 0,        /* ChatML with thoughts */
    NAPIER_CHAT_QWEN2_5 = 1,      /* ChatML; without a system's message it writes Qwen2.5's own */
    NAPIER_CHAT_LLAMA3 = 2,       /* Llama 3, of April 2024 */
    NAPIER_CHAT_LLAMA3_1 = 3,     /* Llama 3.1 to 3.3: a system's message with a date */
    NAPIER_CHAT_LLAMA2 = 4,       /* [INST] and <<SYS>> */
    NAPIER_CHAT_MISTRAL_V0_1 = 5, /* [INST], with a space after each answer */
    NAPIER_CHAT_MISTRAL_V0_2 = 6  /* the same without it; also Mixtral 8x7B */
} napier_chat_format;

/* A model's own chat template, a program in Jinja, with the texts of its special tokens (bos_token and others). */
typedef struct napier_chat_template napier_chat_template;

/* Copies a template. bos and eos are the texts of these tokens, ended by 0; NULL: the template does not see them.
 * Errors: OUT_OF_MEMORY. */
NAPIER_API napier_status napier_chat_template_create(napier_context *context, const char *text, size_t size,
                                                     const char *bos, const char *eos, napier_chat_template **out);

/* The template of a model's directory or GGUF file: its chat_template.jinja, else the chat_template in its tokenizer_config.json (in
 * a list, the one called "default"). *out is NULL if there is none. Special tokens come from tokenizer_config.json and
 * special_tokens_map.json. Errors: IO_ERROR, CORRUPT_DATA, OUT_OF_MEMORY. */
NAPIER_API napier_status napier_chat_template_load(napier_context *context, const char *directory,
                                                   napier_chat_template **out);

/* Not 0 if a variable of that name may have a meaning to the template: "enable_thinking", "tools". */
NAPIER_API int napier_chat_template_mentions(const napier_chat_template *chat_template, const char *name);

NAPIER_API void napier_chat_template_destroy(napier_context *context, napier_chat_template *chat_template);

typedef struct napier_chat_options {
    size_t struct_size;
    int add_generation_prompt; /* not 0 (default): end the text with the start of the assistant's next turn */
    int disable_thinking;      /* not 0: add an empty think block to it, so that the model answers at once; default 0 */
    const char *tools;         /* the JSON of each available tool, one per line; copied unchanged */
    size_t tools_size;         /* bytes, without a line feed at the end; 0 (default): no tools */
    int64_t format;            /* napier_chat_format; default NAPIER_CHAT_QWEN3 */
    const char *date;          /* "26 Jul 2024" in NAPIER_CHAT_LLAMA3_1, ended by 0. NULL (default): that day, which the
                                  templates have; Llama 3.2's template writes the day on which it runs, if it can. Of
                                  other formats it must be NULL */
    const napier_chat_template *chat_template; /* NULL (default): `format` counts, else this. The template is run: it
                                  sees messages, tools, add_generation_prompt, enable_thinking if disable_thinking is
                                  set, and date_string and strftime_now if date is */
    const char *variables; /* an object in JSON: more variables of the template, such as {"reasoning_effort": "low"}.
                                  They replace those above, so `messages` may be here with all that JSON has; NULL
                                  (default): none */
    size_t variables_size; /* bytes; default 0 */
    int64_t now;           /* the clock of strftime_now, in seconds since 1970 of local time; 0 (default): none */
} napier_chat_options;

#define NAPIER_CHAT_OPTIONS_INIT \
    { sizeof(napier_chat_options), 1, 0, NULL, 0, NAPIER_CHAT_QWEN3, NULL, NULL, NULL, 0, 0 }

/* Appends the text of a conversation in a model's chat format, exactly as the model's template renders it, with its BOS
 * where the template writes one: so encode the text with NAPIER_ADD_NONE. Qwen3's format leaves out the thoughts of
 * turns before the last question, allows a "system" turn anywhere, joins consecutive "tool" results into one user turn,
 * and describes the tools in the first system turn. `count` 0 gives only what does not depend on messages.
 * Contents are copied unchanged. So if you encode the text without plain_special, a "<|im_end|>" in untrusted content
 * ends the turn. JSON is copied unchanged too; to match the template, write it as Python's json.dumps does with
 * ensure_ascii=False.
 *
 * A template comes from a stranger. It sees the conversation and nothing else: no file, no clock, no memory. Its steps,
 * its memory and the depth of its nesting have limits that no published template comes near. Its text is the one that
 * jinja2 makes in transformers. What it asks for and Napier does not have is refused by name.
 * Errors: UNSUPPORTED (a part of Jinja, or a limit; the message has the line of the template), OUT_OF_MEMORY,
 * INVALID_ARGUMENT (what a template refuses, in its own words; a role not listed above; reasoning or tool calls in a message of another role than the
 * assistant; what the format has no place for, such as two questions in a row in Llama 2's; the message names it). */
NAPIER_API napier_status napier_chat_text(napier_context *context, const napier_chat_message *messages, int64_t count,
                                          const napier_chat_options *options, napier_text_buffer *text);

/* *format receives the napier_chat_format that a model's chat template (a text in Jinja) writes. The template is not
 * run: it is recognised by characteristic parts of the published templates.
 * Errors: UNSUPPORTED (none of these formats; the message says what is in it). */
NAPIER_API napier_status napier_chat_format_of(napier_context *context, const char *chat_template, size_t size,
                                               int64_t *format);

/* The same for a model's directory or GGUF file: its chat_template.jinja, else the chat_template in its tokenizer_config.json (in a
 * list, the one called "default"). Without either it is NAPIER_CHAT_QWEN3, if the tokenizer has <|im_start|> or is NULL.
 * Errors: UNSUPPORTED, IO_ERROR, CORRUPT_DATA (tokenizer_config.json is not JSON), OUT_OF_MEMORY. */
NAPIER_API napier_status napier_chat_format_load(napier_context *context, const char *directory,
                                                 const napier_tokenizer *tokenizer, int64_t *format);

#ifdef __cplusplus
}
#endif
#endif
