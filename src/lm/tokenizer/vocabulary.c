/* lm/tokenizer/vocabulary.c - the alphabet of bytes, and the hash table of tokens. */
#include "lm/tokenizer/vocabulary.h"

#include "lm/tokenizer/unicode.h"

napier_status napier_vocabulary_allocate(napier_context *context, napier_vocabulary *v, int64_t size, size_t count,
                                         size_t bytes) {
    const napier_allocator *const allocator = &context->allocator;
    const uint32_t slots = napier_slots_for(count);
    v->tokens = napier_alloc(allocator, (size_t)size + 1, sizeof *v->tokens);
    v->bytes = bytes < UINT32_MAX ? napier_alloc(allocator, bytes + 1, 1) : NULL;
    v->slots = napier_alloc(allocator, slots, sizeof *v->slots);
    if (!v->tokens || !v->bytes || !v->slots) {
        return napier_fail(context, NAPIER_OUT_OF_MEMORY, "no memory for a vocabulary of %lld tokens", (long long)size);
    }
    v->size = size;
    v->capacity = bytes;
    v->mask = slots - 1;
    memset(v->tokens, 0, (size_t)size * sizeof *v->tokens);
    memset(v->slots, 0xff, slots * sizeof *v->slots);
    memset(v->byte_ids, 0xff, sizeof v->byte_ids);
    memset(v->fallback_ids, 0xff, sizeof v->fallback_ids);
    return NAPIER_OK;
}

void napier_vocabulary_free(const napier_allocator *allocator, napier_vocabulary *v) {
    napier_free(allocator, v->tokens);
    napier_free(allocator, v->texts);
    napier_free(allocator, v->bytes);
    napier_free(allocator, v->slots);
}

/* ---- Bytes as characters ----------------------------------------------------------------------------------------- */

/* Bytes that are printable characters of Latin-1 are themselves in the alphabet. The others, in order, are U+0100,
 * U+0101, ... (Radford et al., "Language models are unsupervised multitask learners", 2019, and its encoder). */
static bool stands_for_itself(uint32_t c) {
    return (c >= '!' && c <= '~') || (c >= 0xa1 && c <= 0xac) || (c >= 0xae && c <= 0xff);
}

static int byte_of(uint32_t c) {
    if (c < 0x100) {
        return stands_for_itself(c) ? (int)c : -1;
    }
    const int place = (int)(c - 0x100); /* index among 0 to 0x20, 0x7f to 0xa0, 0xad */
    return place < 33 ? place : place < 67 ? place - 33 + 0x7f : place == 67 ? 0xad : -1;
}

uint32_t napier_byte_character(uint8_t byte) {
    if (stands_for_itself(byte)) {
        return byte;
    }
    return 0x100 + (byte <= 0x20 ? byte : byte == 0xad ? 67U : byte - 0x7fU + 33U);
}

int64_t napier_byte_level(const char *text, size_t size, char *out) {
    int64_t n = 0;
    const uint8_t *const end = (const uint8_t *)text + size;
    for (const uint8_t *at = (const uint8_t *)text; at < end; at += napier_utf8_length(*at)) {
        const uint32_t c = napier_utf8_get(at);
        const int byte = *at > 0x20 && *at < 0x7f ? *at : byte_of(c);
        if (byte < 0) {
            return -1;
        }
        out[n++] = (char)byte;
    }
    return n;
}

/* ---- Adding ------------------------------------------------------------------------------------------------------ */

static napier_put insert(napier_vocabulary *v, int32_t id) {
    const napier_token *const token = &v->tokens[id];
    const uint8_t *const bytes = (const uint8_t *)v->bytes + token->start;
    v->longest = token->size > v->longest ? token->size : v->longest;
    if (napier_vocabulary_find(v, bytes, token->size) >= 0) {
        return NAPIER_PUT_TWICE;
    }
    const uint64_t hash = napier_hash(bytes, token->size);
    uint32_t probe = 0;
    while (probe < NAPIER_MOST_PROBES && v->slots[((uint32_t)hash + probe) & v->mask].id >= 0) {
        probe++;
    }
    if (probe == NAPIER_MOST_PROBES) {
        return NAPIER_PUT_CROWDED;
    }
    v->slots[((uint32_t)hash + probe) & v->mask] = (napier_token_slot){(uint32_t)(hash >> 32), id};
    if (token->size == 1) {
        v->byte_ids[*bytes] = id;
    }
    return NAPIER_PUT_DONE;
}

napier_put napier_vocabulary_add(napier_vocabulary *v, int32_t id, const char *text) {
    napier_token *const token = &v->tokens[id];
    char *const at = v->bytes + v->used;
    if (token->flags != 0) {
        return NAPIER_PUT_TWICE;
    }
    const int64_t mapped = v->of_characters ? -1 : napier_byte_level(text, strlen(text), at);
    const size_t size = mapped >= 0 ? (size_t)mapped : strlen(text);
    *token = (napier_token){(uint32_t)v->used, (uint32_t)size, NAPIER_TOKEN_PRESENT | NAPIER_TOKEN_MODEL};
    if (mapped < 0) {
        memcpy(at, text, size);
    }
    v->used += size;
    const bool is_given = mapped >= 0 || v->of_characters; /* else no text encodes to it, and it decodes to itself */
    return is_given ? insert(v, id) : NAPIER_PUT_DONE;
}
