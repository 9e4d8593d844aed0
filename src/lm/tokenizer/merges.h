/* lm/tokenizer/merges.h - byte-pair encoding of one word. It starts with the word's bytes or characters and merges the pair of lowest
 * rank, the leftmost first, until no pair is in the table (Sennrich, Haddow and Birch, "Neural machine translation of
 * rare words with subword units", 2016). */
#ifndef NAPIER_LM_TOKENIZER_MERGES_H
#define NAPIER_LM_TOKENIZER_MERGES_H

#include "lm/text/buffer.h"
#include "lm/tokenizer/vocabulary.h"

/* An entry of the hash table of pairs. */
typedef struct napier_merge {
    int32_t left, right; /* left -1: empty */
    int32_t rank;        /* its line number in the file */
    int32_t id;          /* the merged token */
} napier_merge;

typedef struct napier_merges {
    napier_merge *slots;
    uint32_t mask;
    uint64_t byte_pairs[256][4]; /* bit `right` of row `left`: the pair of these two bytes is in the table. Most pairs
                                    are not, and this test is cheaper than a look-up in the table */
} napier_merges;

/* Allocates the table for `count` pairs. Free it even after a failure. */
napier_status napier_merges_allocate(napier_context *context, napier_merges *m, size_t count);
void napier_merges_free(const napier_allocator *allocator, napier_merges *m);

/* The hash of a pair, before the mask is applied. */
static inline uint32_t napier_merge_hash(int32_t left, int32_t right) {
    uint64_t hash = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * UINT64_C(0x9e3779b97f4a7c15);
    hash = (hash ^ hash >> 32) * UINT64_C(0xe7037ed1a0b428db); /* odd, half of their bits set */
    return (uint32_t)(hash >> 32);
}

/* Adds a pair. TWICE: it is already in the table. */
napier_put napier_merges_add(napier_merges *m, napier_merge merge);
/* Sets the bit in byte_pairs for a pair of two bytes. */
void napier_merges_note_bytes(napier_merges *m, uint8_t left, uint8_t right);

/* Appends the ids of a word. Time: size log size. */
napier_status napier_merge_word(napier_context *context, const napier_vocabulary *vocabulary, const napier_merges *m,
                                const uint8_t *word, size_t size, napier_scratch *scratch, napier_token_buffer *ids);

#endif
