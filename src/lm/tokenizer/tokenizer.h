/* lm/tokenizer/tokenizer.h - a loaded tokenizer, which does not change any more, and how it is loaded. */
#ifndef NAPIER_LM_TOKENIZER_TOKENIZER_H
#define NAPIER_LM_TOKENIZER_TOKENIZER_H

#include <napier/tokenizer.h>

#include "lm/text/json.h"
#include "lm/tokenizer/added.h"
#include "lm/tokenizer/merges.h"
#include "lm/tokenizer/steps.h"
#include "lm/tokenizer/vocabulary.h"
#include "lm/tokenizer/words.h"

enum { NAPIER_MOST_REPLACEMENTS = 4 };

/* How tokens become text. */
typedef struct napier_decoder {
    bool joins_bytes;                              /* ByteLevel: tokens are bytes */
    napier_step replace[NAPIER_MOST_REPLACEMENTS]; /* in each token */
    int replace_count;
    bool byte_fallback; /* "<0x0A>" is a byte */
    bool bare_start;    /* the first token loses its marks: all that replace[0] replaces */
    size_t strip;       /* removes up to this many `strip_byte` from the beginning of the text */
    char strip_byte;
} napier_decoder;

/* The ids that the post-processor puts around a text. */
typedef struct napier_around {
    int32_t *ids; /* [before + after] */
    size_t before, after;
} napier_around;

struct napier_tokenizer {
    napier_allocator allocator;
    uint8_t *table; /* from napier_unicode_table */
    napier_steps steps;
    napier_words words;
    napier_vocabulary vocabulary;
    napier_merges merges;
    napier_added_set added;            /* searched for in the text as given */
    napier_added_set added_normalized; /* searched for after the steps; their own texts went through the steps too */
    napier_around around;
    napier_decoder decoder;
};

/* The token of an id, or NULL. */
const napier_token *napier_token_of(const napier_tokenizer *tokenizer, int64_t id);

/* ---- Loading (folder load) --------------------------------------------------------------------------------------- */

/* The members that hold tokens. */
typedef struct napier_token_lists {
    const struct cJSON *vocab, *merges, *added, *post_processor;
    const char *unk_token; /* NULL: none */
    bool ignore_merges;
} napier_token_lists;

/* UNSUPPORTED if a file is in another format of tokenizers. The message names it, and the command that converts it. */
napier_status napier_load_check_format(napier_context *context, const char *path);

/* Checks the type of an object, such as {"type": "NFC"}, and returns true if it is `only`. */
bool napier_load_type(napier_json *json, const struct cJSON *object, const char *where, const char *only);
/* True if the object has this type. Fails with UNSUPPORTED if it has none. */
bool napier_load_is(napier_json *json, const struct cJSON *object, const char *where, const char *type);
/* Reads a text of at most NAPIER_MOST_STEP_BYTES bytes. */
void napier_load_short(napier_json *json, const struct cJSON *object, const char *where, const char *key,
                       napier_short_text *out);
/* Reads {"pattern": {"String": from}, "content": to} of a Replace. */
void napier_load_replace(napier_json *json, const struct cJSON *object, const char *where, napier_step *step);
/* Reads the mark and the prepend_scheme of a Metaspace, which is a pre-tokenizer or a decoder. */
napier_prefix napier_load_metaspace(napier_json *json, const struct cJSON *item, const char *at,
                                    napier_short_text *mark);

/* Each reads one member of the file. The functions return nothing: `json` has the first failure. */
void napier_load_normalizer(napier_json *json, napier_tokenizer *t);
void napier_load_pre_tokenizer(napier_json *json, napier_tokenizer *t);
void napier_load_decoder(napier_json *json, napier_tokenizer *t);

/* Reads the vocabulary and the merges, then the added tokens, then what the post-processor puts around a text. */
napier_status napier_load_tokens(napier_json *json, napier_tokenizer *t, const napier_token_lists *lists);
napier_status napier_load_added(napier_json *json, napier_tokenizer *t, const struct cJSON *added, size_t count);
napier_status napier_load_around(napier_json *json, napier_tokenizer *t, const struct cJSON *post_processor);

/* What the sizes of the vocabulary follow from. */
typedef struct napier_load_sizes {
    int64_t ids;  /* the highest id plus one */
    size_t count; /* tokens of the model */
    size_t bytes; /* of all tokens' texts */
} napier_load_sizes;

/* True if the text is UTF-8. cJSON accepts any bytes in a string, but a token must be UTF-8. */
bool napier_load_is_text(const char *text);
napier_status napier_load_id(napier_json *json, const char *where, const char *text, const struct cJSON *id,
                             napier_load_sizes *sizes);
/* Counts the added tokens and their bytes. */
napier_status napier_load_measure_added(napier_json *json, const struct cJSON *added, napier_load_sizes *sizes,
                                        size_t *count);

#endif
