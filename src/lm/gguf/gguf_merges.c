/* lm/gguf/gguf_merges.c - the merges of a SentencePiece vocabulary, which has a score of each piece instead.
 *
 * SentencePiece joins the two neighbours whose piece has the highest score. So every way to make a piece of two others is
 * a merge, and they are ordered by its score. Ties are in the order of transformers' converter (generate_merges): the
 * longer left part first, then the longer right part, in characters. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/scope.h"
#include "lm/gguf/gguf.h"
#include "lm/text/json.h"

/* Limits: bytes of a piece, merges for each piece (Llama 2 has 48 and 1.9), and places that a search looks at: pieces that are
 * chosen to fall on one place would make it long. */
enum { LONGEST_PIECE = 128, MOST_MERGES = 6, MOST_STEPS = 512 };

typedef struct piece {
    napier_text text;
    double score;
} piece;

/* A piece made of its first `left` bytes and the others. */
typedef struct join {
    double score;
    int64_t piece;
    int32_t left, left_chars, right_chars;
} join;

typedef struct vocabulary {
    piece *pieces;
    int64_t count;
    int64_t *places; /* [mask + 1] index of a piece plus one, at its hash or behind; 0: none */
    uint64_t mask;
} vocabulary;

/* FNV-1a (Fowler, Noll and Vo). */
static uint64_t hash_of(napier_text text) {
    uint64_t hash = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < text.size; i++) {
        hash = (hash ^ (uint8_t)text.bytes[i]) * UINT64_C(1099511628211);
    }
    return hash ^ hash >> 32;
}

/* Where a piece with this text is, or its free place; NULL: too many are in the way. */
static int64_t *place_of(const vocabulary *v, napier_text text) {
    uint64_t at = hash_of(text) & v->mask;
    for (int steps = 0; steps < MOST_STEPS; steps++, at = (at + 1) & v->mask) {
        const int64_t i = v->places[at] - 1;
        if (i < 0 ||
            (v->pieces[i].text.size == text.size && memcmp(v->pieces[i].text.bytes, text.bytes, text.size) == 0)) {
            return &v->places[at];
        }
    }
    return NULL;
}

static bool has(const vocabulary *v, napier_text text) {
    const int64_t *const place = place_of(v, text);
    return place && *place != 0;
}

static bool begins_character(char byte) { return ((unsigned char)byte & 0xc0) != 0x80; }

static int32_t characters(napier_text text) {
    int32_t count = 0;
    for (size_t i = 0; i < text.size; i++) {
        count += begins_character(text.bytes[i]);
    }
    return count;
}

/* Counts the joins of all pieces, and stores them if `joins` is not NULL. */
static int64_t find_joins(const vocabulary *v, join *joins) {
    int64_t count = 0;
    for (int64_t i = 0; i < v->count; i++) {
        const napier_text whole = v->pieces[i].text;
        for (size_t k = 1; k < whole.size; k++) {
            const napier_text left = {whole.bytes, k}, right = {whole.bytes + k, whole.size - k};
            if (begins_character(*right.bytes) && has(v, left) && has(v, right)) {
                if (joins) {
                    joins[count] = (join){v->pieces[i].score, i, (int32_t)k, characters(left), characters(right)};
                }
                count++;
            }
        }
    }
    return count;
}

static int by_score(const void *a, const void *b) {
    const join *const x = a, *const y = b;
    return x->score != y->score               ? (x->score < y->score ? 1 : -1)
           : x->left_chars != y->left_chars   ? (x->left_chars < y->left_chars ? 1 : -1)
           : x->right_chars != y->right_chars ? (x->right_chars < y->right_chars ? 1 : -1)
           : x->piece != y->piece             ? (x->piece < y->piece ? -1 : 1)
                                              : 0;
}

/* Takes the normal pieces. */
static napier_status read_pieces(napier_gguf *file, napier_memory *memory, vocabulary *v) {
    enum { NORMAL = 1 };
    napier_gguf_walk texts = napier_gguf_texts(file, "tokenizer.ggml.tokens");
    napier_gguf_walk scores = napier_gguf_numbers(file, "tokenizer.ggml.scores");
    napier_gguf_walk types = napier_gguf_numbers(file, "tokenizer.ggml.token_type");
    napier_text text;
    if (scores.left != texts.left) {
        return napier_gguf_fail(file, NAPIER_CORRUPT_DATA, "tokenizer.ggml.scores: not as many as there are tokens");
    }
    const int64_t most = (int64_t)texts.left;
    for (v->mask = 1; v->mask < 2 * (uint64_t)most; v->mask *= 2) {
    }
    v->pieces = napier_take(memory, most, sizeof *v->pieces);
    v->places = napier_take(memory, (int64_t)v->mask, sizeof *v->places);
    NAPIER_TRY(file->status = napier_taken(memory, "tokenizer.ggml.tokens: no memory"));
    memset(v->places, 0, (size_t)v->mask-- * sizeof *v->places);
    while (napier_gguf_next_text(&texts, &text)) {
        double score = 0, type = NORMAL;
        (void)napier_gguf_next_number(&scores, &score);
        (void)napier_gguf_next_number(&types, &type);
        if (isnan(score) || text.size > LONGEST_PIECE || (type == NORMAL && memchr(text.bytes, ' ', text.size))) {
            return napier_gguf_fail(file, NAPIER_UNSUPPORTED,
                                    "tokenizer.ggml.tokens: '%s' has no score, a space, or more than %d bytes",
                                    napier_show(text.bytes, text.size).text, LONGEST_PIECE);
        }
        if (type != NORMAL || text.size == 0) {
            continue;
        }
        int64_t *const place = place_of(v, text);
        if (!place) {
            return napier_gguf_fail(file, NAPIER_UNSUPPORTED, "tokenizer.ggml.tokens: chosen to make searches slow");
        }
        if (*place == 0) {
            v->pieces[v->count] = (piece){text, score};
            *place = ++v->count;
        }
    }
    return file->status;
}

void napier_gguf_put_scored_merges(napier_gguf_writer *w) {
    NAPIER_MEMORY(memory, w->file->context);
    vocabulary v = {0};
    if (w->file->status || read_pieces(w->file, &memory, &v)) {
        return;
    }
    const int64_t count = find_joins(&v, NULL);
    if (count > MOST_MERGES * v.count) {
        napier_gguf_fail(w->file, NAPIER_UNSUPPORTED, "tokenizer.ggml.tokens: more than %d merges for each token",
                         MOST_MERGES);
        return;
    }
    join *const joins = napier_take(&memory, count, sizeof *joins);
    w->file->status = napier_taken(&memory, "tokenizer.ggml.scores: no memory for %lld merges", (long long)count);
    if (w->file->status) {
        return;
    }
    (void)find_joins(&v, joins);
    qsort(joins, (size_t)count, sizeof *joins, by_score);
    napier_gguf_put(w, "\"merges\": [");
    for (int64_t i = 0; i < count; i++) { /* one string of both takes a third of the memory of a list of two */
        const napier_text whole = v.pieces[joins[i].piece].text;
        const size_t left = (size_t)joins[i].left;
        char both[LONGEST_PIECE + 1];
        memcpy(both, whole.bytes, left);
        both[left] = ' ';
        memcpy(both + left + 1, whole.bytes + left, whole.size - left);
        napier_gguf_put(w, i > 0 ? ", " : "");
        napier_gguf_put_text(w, (napier_text){both, whole.size + 1});
    }
    napier_gguf_put(w, "]");
}
