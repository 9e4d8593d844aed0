/* lm/gguf/gguf.h - a GGUF file of llama.cpp, mapped into memory: values by key, tensors, and the JSON documents that a
 * folder of the same model would hold.
 *
 * Every offset, length and count is checked against the file before it is used. A mapped file can still change, so texts
 * are checked again each time they are walked. What safetensors.h says of truncated files holds here too.
 *
 * Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (versions 2 and 3, little-endian). */
#ifndef NAPIER_LM_GGUF_GGUF_H
#define NAPIER_LM_GGUF_GGUF_H

#include <napier/model.h>
#include <stdbool.h>

#include "core/base/context.h"
#include "core/math/blocks.h"

enum { NAPIER_GGUF_DIMS = 4, NAPIER_GGUF_MOST_BLOCK = NAPIER_BLOCK_MOST };

/* ---- Types of tensors (gguf_types.c) ----------------------------------------------------------------------------- */

typedef struct napier_gguf_type {
    const char *name;
    int64_t block, bytes; /* the elements of a block, and its bytes; 0: a type that Napier does not read */
    napier_dtype dtype;   /* of elements that are stored as they are; 0: quantised */
    void (*widen)(const uint8_t *block, float *out); /* of a quantised type: one block as f32 */
    napier_block_kind kind;
} napier_gguf_type;

/* The type of this number; one without a name if the number is unknown. */
const napier_gguf_type *napier_gguf_type_of(uint32_t number);

/* ---- The file (gguf.c) ------------------------------------------------------------------------------------------- */

/* The kinds of values, as the format numbers them. */
typedef enum napier_gguf_kind {
    NAPIER_GGUF_U8,
    NAPIER_GGUF_I8,
    NAPIER_GGUF_U16,
    NAPIER_GGUF_I16,
    NAPIER_GGUF_U32,
    NAPIER_GGUF_I32,
    NAPIER_GGUF_F32,
    NAPIER_GGUF_BOOL,
    NAPIER_GGUF_TEXT,
    NAPIER_GGUF_ARRAY,
    NAPIER_GGUF_U64,
    NAPIER_GGUF_I64,
    NAPIER_GGUF_F64,
    NAPIER_GGUF_KINDS
} napier_gguf_kind;

typedef struct napier_gguf_value {
    napier_text key;
    napier_gguf_kind kind; /* of an array: that of its elements */
    bool is_array;
    uint64_t count; /* elements; 1 if it is no array */
    const uint8_t *at;
} napier_gguf_value;

typedef struct napier_gguf_tensor {
    const char *name;
    const napier_gguf_type *type;
    int ndim;
    int64_t shape[NAPIER_GGUF_DIMS]; /* row-major, the reverse of the order in the file */
    int64_t elements;
    const uint8_t *data; /* aligned to 4 bytes; whole in the file if the type is one that Napier reads */
    int64_t size;        /* bytes; 0 if the type is none that Napier reads */
} napier_gguf_tensor;

typedef struct napier_gguf {
    napier_context *context;
    const char *path;     /* in messages; the caller's */
    napier_status status; /* of the first failure; the functions below then do nothing */
    const uint8_t *map;
    size_t size;
    napier_gguf_value *values; /* sorted by key */
    int64_t value_count;
    napier_gguf_tensor *tensors; /* sorted by name */
    int64_t tensor_count;
    char *names; /* of the tensors, one after another */
} napier_gguf;

/* True if the path is a file that begins as a GGUF file does. */
bool napier_gguf_is(const char *path);

/* Call napier_gguf_close afterwards, also after a failure. Errors: IO_ERROR, CORRUPT_DATA, UNSUPPORTED, OUT_OF_MEMORY. */
napier_status napier_gguf_open(napier_context *context, const char *path, napier_gguf *file);
void napier_gguf_close(napier_gguf *file);

/* Fails with a message that begins with the file's path. Returns the status of the first failure. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
napier_status
napier_gguf_fail(napier_gguf *file, napier_status status, const char *format, ...);

const napier_gguf_tensor *napier_gguf_tensor_of(const napier_gguf *file, const char *name);

/* The value of a key, or NULL. A key that begins with a dot follows the file's architecture: ".block_count". */
const napier_gguf_value *napier_gguf_find(const napier_gguf *file, const char *key);
/* Each returns `absent` if there is no such key, and fails if it has another kind. */
int64_t napier_gguf_integer(napier_gguf *file, const char *key, int64_t absent);
double napier_gguf_number(napier_gguf *file, const char *key, double absent);
bool napier_gguf_bool(napier_gguf *file, const char *key, bool absent);
napier_text napier_gguf_text(napier_gguf *file, const char *key, const char *absent);

/* Walks an array of texts or numbers. One that is absent, or has other elements, has none. */
typedef struct napier_gguf_walk {
    const napier_gguf *file;
    const uint8_t *at;
    uint64_t left;
    napier_gguf_kind kind;
} napier_gguf_walk;
napier_gguf_walk napier_gguf_texts(napier_gguf *file, const char *key);
napier_gguf_walk napier_gguf_numbers(napier_gguf *file, const char *key);
bool napier_gguf_next_text(napier_gguf_walk *walk, napier_text *text);
bool napier_gguf_next_number(napier_gguf_walk *walk, double *number);

bool napier_gguf_same(napier_text text, const char *word);

/* ---- JSON (gguf_json.c) ------------------------------------------------------------------------------------------ */

/* Appends to a text; after a failure nothing. */
typedef struct napier_gguf_writer {
    napier_gguf *file; /* with the status */
    napier_text_buffer *out;
} napier_gguf_writer;

void napier_gguf_put(napier_gguf_writer *w, const char *json);
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
void napier_gguf_putf(napier_gguf_writer *w, const char *format, ...);
/* A text in quotes. */
void napier_gguf_put_text(napier_gguf_writer *w, napier_text text);
/* "name": number, with the fewest digits that give the same f32. */
void napier_gguf_put_number(napier_gguf_writer *w, const char *name, double number);

/* "merges" of a SentencePiece vocabulary (gguf_merges.c). */
void napier_gguf_put_scored_merges(napier_gguf_writer *w);

/* The documents: config.json (gguf_config.c), tokenizer.json and tokenizer_config.json (gguf_tokenizer.c). Errors: as
 * napier_gguf_open; UNSUPPORTED: the message names the key. */
napier_status napier_gguf_config(napier_gguf *file, napier_text_buffer *json);
napier_status napier_gguf_tokenizer(napier_gguf *file, napier_text_buffer *json);
napier_status napier_gguf_tokenizer_config(napier_gguf *file, napier_text_buffer *json);

/* The tensor in which llama.cpp writes Llama 3's scaling of the rope. napier_gguf_config reads it. */
#define NAPIER_GGUF_FREQUENCIES "rope_freqs.weight"

/* What the architecture of a file says about its tensors. */
typedef struct napier_gguf_family {
    const char *architecture, *model_type;
    bool interleaved; /* the rows of q and k are in the order of llama.cpp: both halves of a head alternate */
} napier_gguf_family;
/* Fails with UNSUPPORTED, and returns NULL, if the architecture is another. */
const napier_gguf_family *napier_gguf_family_of(napier_gguf *file);

#endif
