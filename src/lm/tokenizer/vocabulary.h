/* lm/tokenizer/vocabulary.h - the tokens, by id and by their bytes. */
#ifndef NAPIER_LM_TOKENIZER_VOCABULARY_H
#define NAPIER_LM_TOKENIZER_VOCABULARY_H

#include <stdbool.h>
#include <string.h>

#include "core/base/context.h"

enum {
    NAPIER_MOST_TOKENS = 1 << 22, /* upper limit of ids, 27 times Qwen3's */

    NAPIER_TOKEN_PRESENT = 1,
    NAPIER_TOKEN_MODEL = 2, /* in the model's vocabulary, not only an added token */
    NAPIER_TOKEN_WHOLE = 4, /* merging its bytes gives this token, so a word with these bytes needs no merging */
    NAPIER_TOKEN_ADDED = 8,
    NAPIER_TOKEN_SPECIAL = 16,
    NAPIER_TOKEN_BYTE = 32 /* "<0x0A>": it decodes to a byte, which may be a part of a character */
};

typedef struct napier_token {
    uint32_t start, size; /* in bytes */
    uint8_t flags;
} napier_token;

/* The result of adding an element to a hash table (open addressing, half empty). CROWDED means that the element would
 * lie more than NAPIER_MOST_PROBES places from its hash. No trained tokenizer has such elements (the probability is 1
 * in 10^40), but a hostile file may, to make searches slow. */
typedef enum napier_put { NAPIER_PUT_DONE, NAPIER_PUT_TWICE, NAPIER_PUT_CROWDED } napier_put;
enum { NAPIER_MOST_PROBES = 512 };

/* The size of a table: a power of two, so that at most half of it is used. */
static inline uint32_t napier_slots_for(size_t count) {
    uint32_t slots = 16;
    while (slots < 2 * count) {
        slots *= 2;
    }
    return slots;
}

/* An entry of the hash table of byte strings. */
typedef struct napier_token_slot {
    uint32_t tag; /* upper half of the hash */
    int32_t id;   /* -1: empty */
} napier_token_slot;

/* The bytes that a token decodes to. */
typedef struct napier_token_text {
    uint32_t start, size;
} napier_token_text;

typedef struct napier_vocabulary {
    napier_token *tokens;     /* [size], by id: the bytes that encode to it, and for an added token its content */
    napier_token_text *texts; /* [size]; NULL: tokens decode to their own bytes */
    int64_t size;
    char *bytes; /* of all tokens */
    size_t used, capacity;
    napier_token_slot *slots; /* hash table of the model's tokens that a text can give */
    uint32_t mask;
    uint32_t longest;      /* bytes of the longest token in slots */
    int32_t byte_ids[256]; /* tokens of one byte; -1: none */
    /* Merging begins with the bytes of a word, or with its characters. A character without a token becomes the tokens
     * of its bytes, or the token `unknown`; if there is none it is left out, as in `tokenizers`. So is a byte. */
    bool of_characters;
    bool byte_fallback, fuse_unknown;
    bool lacks_bytes; /* some byte has no token */
    int32_t unknown;  /* -1: none */
    int32_t fallback_ids[256];
} napier_vocabulary;

/* Allocates memory for ids below `size`, and for `count` tokens of the model with `bytes` bytes in total. Free it even
 * after a failure. */
napier_status napier_vocabulary_allocate(napier_context *context, napier_vocabulary *v, int64_t size, size_t count,
                                         size_t bytes);
void napier_vocabulary_free(const napier_allocator *allocator, napier_vocabulary *v);

/* Decodes a token's text in the file (valid UTF-8): each character is one byte, in GPT-2's alphabet of 256 printable
 * characters. Writes at most `size` bytes and returns their number, or -1 if a character is not in the alphabet. */
int64_t napier_byte_level(const char *text, size_t size, char *out);

/* The character of a byte in this alphabet. */
uint32_t napier_byte_character(uint8_t byte);

/* Adds a token of the model, by its text in the file. TWICE: the id or the bytes exist already. */
napier_put napier_vocabulary_add(napier_vocabulary *v, int32_t id, const char *text);

/* The hash of a word, which usually has a few bytes. */
static inline uint64_t napier_hash(const uint8_t *bytes, size_t size) {
    const uint64_t k0 = UINT64_C(0xa0761d6478bd642f),
                   k1 = UINT64_C(0xe7037ed1a0b428db); /* odd, half of their bits set */
    uint64_t a = 0, b = 0, hash = size * k0;
    for (; size > 16; bytes += 8, size -= 8) {
        memcpy(&a, bytes, 8);
        hash = (hash ^ a) * k1;
        hash ^= hash >> 32;
    }
    if (size >= 8) {
        memcpy(&a, bytes, 8);
        memcpy(&b, bytes + size - 8, 8);
    } else if (size >= 4) {
        uint32_t low, high;
        memcpy(&low, bytes, 4);
        memcpy(&high, bytes + size - 4, 4);
        a = (uint64_t)low << 32 | high;
    } else if (size > 0) {
        a = (uint64_t)bytes[0] << 16 | (uint64_t)bytes[size / 2] << 8 | bytes[size - 1];
    }
    hash = (hash ^ a) * k0;
    hash ^= hash >> 29;
    hash = (hash ^ b) * k1;
    return hash ^ hash >> 32;
}

/* The model's token with these bytes, or -1. */
static inline int32_t napier_vocabulary_find(const napier_vocabulary *v, const uint8_t *bytes, size_t size) {
    if (size > v->longest) {
        return -1;
    }
    const uint64_t hash = napier_hash(bytes, size);
    const uint32_t tag = (uint32_t)(hash >> 32);
    for (uint32_t probe = 0; probe < NAPIER_MOST_PROBES; probe++) {
        const napier_token_slot slot = v->slots[((uint32_t)hash + probe) & v->mask];
        if (slot.id < 0) {
            break;
        }
        const napier_token *const token = &v->tokens[slot.id];
        if (slot.tag == tag && token->size == size && memcmp(v->bytes + token->start, bytes, size) == 0) {
            return slot.id;
        }
    }
    return -1;
}

#endif
