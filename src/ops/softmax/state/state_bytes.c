/* ops/softmax/state/state_bytes.c - the portable byte form of a mergeable state.
 *
 *   8  magic "NAPIERST"      4 format (1; 2: weighted)               4 numerics version    4 tile (1024)
 *   4  compute dtype         8 temperature (f64)   4 masked_rows     4 head size           4 tail size
 *   4  flags: 1 NaN seen, 2 +inf seen; weighted: 1 NaN, 2 a term +inf, 4 a term -inf
 *   8  first index           8 end                 8 count           8 maximum (f64 bits)
 *      8 count of maxima     8 top                 8 each digit: 12 (f32) or 54 (f64)
 *   4 or 8 each element of the head, then of the tail
 *   8  checksum: FNV-1a over all bytes before
 *
 * A weighted state has 8 unit, and 8 each digit of weight, ties and rest (13, 12, 12 or 88, 54, 54), in place of the line
 * with the count of maxima; and the weights of head and tail after the elements.
 *
 * All little-endian. Loading trusts nothing: every field is checked against what the arithmetic could have produced. */
#include "core/base/bytes.h"
#include "core/base/scope.h"
#include "core/math/f64.h"
#include "ops/softmax/state/state.h"
#include "ops/softmax/state/state_format.h"

static const unsigned char NAPIER_STATE_MAGIC[8] = {'N', 'A', 'P', 'I', 'E', 'R', 'S', 'T'};

enum {
    NAPIER_STATE_FORMAT = 1,
    NAPIER_STATE_WEIGHTED = 2 /* the format of a weighted state */
};

/* ---- Bytes --------------------------------------------------------------------------------------------------------- */

static void put_bytes(unsigned char **at, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) {
        *(*at)++ = (unsigned char)(value >> (8 * i) & 0xff);
    }
}

static uint64_t take(const unsigned char **at, int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) {
        value |= (uint64_t) * (*at)++ << (8 * i);
    }
    return value;
}

static int digit_count(napier_dtype compute) {
    return compute == NAPIER_F64 ? (int)NAPIER_F64_DIGITS : (int)NAPIER_DIGITS;
}

/* The words after the maximum: unit and digits, or count, top and digits. */
static size_t word_count(napier_dtype compute, bool weighted) {
    const int digits = digit_count(compute);
    const int weights = compute == NAPIER_F64 ? (int)NAPIER_WEIGHT_DIGITS_F64 : (int)NAPIER_WEIGHT_DIGITS;
    return (size_t)(weighted ? 1 + weights + 2 * digits : 2 + digits);
}

static size_t size_of(const napier_softmax_state *s) {
    const size_t element = napier_state_element(s->compute) * (s->weighted ? 2 : 1);
    return NAPIER_STATE_FIELDS + 8 * word_count(s->compute, s->weighted) +
           element * (size_t)(s->head_size + s->tail_size) + NAPIER_STATE_CHECKSUM;
}

size_t napier_softmax_state_size(const napier_softmax_state *state) { return state ? size_of(state) : 0; }

/* The elements in a block: those of the head, or of the tail. */
static int block_size(const napier_softmax_state *s, int block) { return block % 2 ? s->tail_size : s->head_size; }

/* ---- Save ---------------------------------------------------------------------------------------------------------- */

static void put_elements(unsigned char **at, napier_dtype compute, const char *elements, int n) {
    const size_t size = napier_state_element(compute);
    for (int i = 0; i < n; i++, elements += size) {
        uint64_t wide = 0;
        uint32_t narrow = 0;
        memcpy(size == 8 ? (void *)&wide : (void *)&narrow, elements, size);
        put_bytes(at, size == 8 ? wide : narrow, (int)size);
    }
}

static void put_words(unsigned char **at, const uint64_t *words, int n) {
    for (int i = 0; i < n; i++) {
        put_bytes(at, words[i], 8);
    }
}

static void put_plain_sum(unsigned char **at, const napier_softmax_state *s) {
    const bool wide = s->compute == NAPIER_F64;
    const double max = wide ? s->sum.f64.max : (double)s->sum.f32.max;
    put_bytes(at, napier_double_bits(max), 8);
    put_bytes(at, wide ? s->sum.f64.count : s->sum.f32.count, 8);
    put_bytes(at, (uint64_t)(wide ? s->sum.f64.top : s->sum.f32.top), 8);
    put_words(at, wide ? s->sum.f64.digit : s->sum.f32.digit, digit_count(s->compute));
}

/* What comes after a special element depends on the order, and means nothing. It is saved as 0. */
static void put_weighted_sum(unsigned char **at, const napier_weighted_sum *from) {
    napier_weighted_sum empty;
    napier_weighted_sum_init(&empty, from->wide);
    const napier_weighted_sum *const s = from->nan || from->plus || from->minus ? &empty : from;
    put_bytes(at, napier_double_bits(s->max), 8);
    put_bytes(at, (uint64_t)s->unit, 8);
    put_words(at, s->weight, napier_weight_digits(s));
    put_words(at, s->ties, napier_weighted_digits(s));
    put_words(at, s->rest, napier_weighted_digits(s));
}

static unsigned flags(const napier_softmax_state *s) {
    if (s->weighted) {
        const napier_weighted_sum *const w = napier_state_weighted_sum_of(s);
        return (w->nan ? 1u : 0u) | (w->plus ? 2u : 0u) | (w->minus ? 4u : 0u);
    }
    const bool wide = s->compute == NAPIER_F64;
    const bool nan = wide ? s->sum.f64.nan : s->sum.f32.nan, pinf = wide ? s->sum.f64.pinf : s->sum.f32.pinf;
    return (nan ? 1u : 0u) | (pinf ? 2u : 0u);
}

void napier_state_put_header(unsigned char *at, const napier_softmax_state *state) {
    memcpy(at, NAPIER_STATE_MAGIC, sizeof NAPIER_STATE_MAGIC);
    at += sizeof NAPIER_STATE_MAGIC;
    put_bytes(&at, state->weighted ? NAPIER_STATE_WEIGHTED : NAPIER_STATE_FORMAT, 4);
    put_bytes(&at, NAPIER_NUMERICS_VERSION, 4);
    put_bytes(&at, NAPIER_TILE, 4);
    put_bytes(&at, (uint64_t)state->compute, 4);
    put_bytes(&at, napier_double_bits(state->temperature), 8);
    put_bytes(&at, (uint64_t)state->masked_rows, 4);
    put_bytes(&at, (uint64_t)state->head_size, 4);
    put_bytes(&at, (uint64_t)state->tail_size, 4);
    put_bytes(&at, flags(state), 4);
    put_bytes(&at, (uint64_t)state->first, 8);
    put_bytes(&at, (uint64_t)state->end, 8);
    put_bytes(&at, (uint64_t)state->count, 8);
}

napier_status napier_softmax_state_to_bytes(napier_context *context, const napier_softmax_state *state, void *bytes,
                                            size_t capacity) {
    NAPIER_TRY(napier_begin(context));
    NAPIER_REFUSE_IF(context, !state || !bytes, "%s: is NULL", state ? "bytes" : "state");
    const size_t size = napier_softmax_state_size(state);
    NAPIER_REFUSE_IF(context, capacity < size, "capacity: %zu is less than the state's %zu bytes", capacity, size);
    unsigned char *at = (unsigned char *)bytes + NAPIER_STATE_HEADER;
    napier_state_put_header(bytes, state);
    if (state->weighted) {
        put_weighted_sum(&at, napier_state_weighted_sum_of(state));
    } else {
        put_plain_sum(&at, state);
    }
    for (int i = 0; i < (state->weighted ? NAPIER_STATE_BLOCKS : NAPIER_STATE_HEAD_WEIGHTS); i++) {
        put_elements(&at, state->compute, napier_state_elements_of(state, (napier_state_block)i), block_size(state, i));
    }
    put_bytes(&at, napier_checksum(bytes, size - NAPIER_STATE_CHECKSUM), 8);
    return NAPIER_OK;
}

/* ---- Load ---------------------------------------------------------------------------------------------------------- */

static napier_status corrupt(napier_context *context, const char *what) {
    return napier_fail(context, NAPIER_CORRUPT_DATA, "bytes: %s", what);
}

/* Reads the header and checks what can be checked in it; advances *at past it. */
static napier_status load_header(napier_context *context, const unsigned char **at, napier_softmax_state *s) {
    if (memcmp(*at, NAPIER_STATE_MAGIC, sizeof NAPIER_STATE_MAGIC) != 0) {
        return corrupt(context, "are not a softmax state");
    }
    *at += sizeof NAPIER_STATE_MAGIC;
    const uint64_t format = take(at, 4), numerics = take(at, 4), tile = take(at, 4);
    const uint64_t compute = take(at, 4);
    if (format != NAPIER_STATE_FORMAT && format != NAPIER_STATE_WEIGHTED) {
        return napier_fail(context, NAPIER_STATE_MISMATCH, "bytes: format %u; this library reads %d and %d",
                           (unsigned)format, NAPIER_STATE_FORMAT, NAPIER_STATE_WEIGHTED);
    }
    if (numerics != NAPIER_NUMERICS_VERSION || tile != NAPIER_TILE) {
        return napier_fail(context, NAPIER_STATE_MISMATCH,
                           "bytes: tile %u, numerics version %u; this library computes version %d with tiles of %d",
                           (unsigned)tile, (unsigned)numerics, NAPIER_NUMERICS_VERSION, NAPIER_TILE);
    }
    if (compute != NAPIER_F32 && compute != NAPIER_F64) {
        return napier_fail(context, NAPIER_STATE_MISMATCH, "bytes: compute dtype %u is not f32 or f64",
                           (unsigned)compute);
    }
    s->compute = (napier_dtype)compute;
    s->weighted = format == NAPIER_STATE_WEIGHTED;
    s->temperature = napier_double_of_bits(take(at, 8));
    const uint64_t masked = take(at, 4), head = take(at, 4), tail = take(at, 4);
    if (!(s->temperature > 0 && s->temperature <= 1.7976931348623157e308) || masked > NAPIER_MASKED_ZERO) {
        return corrupt(context, "the options are out of range");
    }
    if (head >= NAPIER_TILE || tail >= NAPIER_TILE) {
        return corrupt(context, "the open tiles are too long");
    }
    s->masked_rows = (napier_masked_rows)masked;
    s->head_size = (int32_t)head;
    s->tail_size = (int32_t)tail;
    return NAPIER_OK;
}

/* Is this position of a part possible? See the drawing in state.c. */
static bool place_is_possible(const napier_softmax_state *s) {
    if (s->first < 0 || s->end < s->first || s->count < 0 || s->count >= napier_state_most(s) ||
        s->count > s->end - s->first) {
        return false;
    }
    const int64_t room = (NAPIER_TILE - s->first % NAPIER_TILE) % NAPIER_TILE;
    const int64_t closed = s->count - s->head_size - s->tail_size;
    if (s->head_size > room || closed < 0 || closed % NAPIER_TILE != 0) {
        return false;
    }
    if (s->head_size < room) { /* all of the part is head */
        return closed == 0 && s->tail_size == 0 && s->count == s->end - s->first;
    }
    return (s->end - s->tail_size) % NAPIER_TILE == 0;
}

/* Could the closed tiles have this sum? */
static bool plain_sum_is_possible(const napier_softmax_state *s) {
    const uint64_t closed = (uint64_t)(s->count - s->head_size - s->tail_size);
    if (s->compute == NAPIER_F64) {
        return s->sum.f64.count <= closed && napier_f64_sum_valid(&s->sum.f64);
    }
    const napier_sum *sum = &s->sum.f32;
    bool any = false;
    for (int i = 0; i < NAPIER_DIGITS; i++) {
        any |= sum->digit[i] != 0;
    }
    if (sum->pinf != (sum->max == INFINITY) || sum->count > closed || sum->max != sum->max) {
        return false;
    }
    if (!(fabsf(sum->max) < INFINITY)) {
        return sum->count == 0 && sum->top == 0 && !any;
    }
    if (napier_is_huge(sum->max)) {
        return sum->count > 0 && sum->top == 0 && !any;
    }
    return sum->count > 0 && sum->top == napier_sum_top(napier_exp_parts_for(sum->max, sum->max).n);
}

static void take_words(const unsigned char **at, uint64_t *words, int n) {
    for (int i = 0; i < n; i++) {
        words[i] = take(at, 8);
    }
}

static bool take_plain_sum(const unsigned char **at, unsigned flags, napier_softmax_state *s) {
    const double max = napier_double_of_bits(take(at, 8));
    const uint64_t count = take(at, 8);
    const int64_t top = (int64_t)take(at, 8);
    const bool nan = flags & 1, pinf = (flags & 2) != 0;
    if (s->compute == NAPIER_F64) {
        s->sum.f64 = (napier_f64_sum){.max = max, .nan = nan, .pinf = pinf, .top = top, .count = count};
    } else {
        s->sum.f32 = (napier_sum){.max = (float)max, .nan = nan, .pinf = pinf, .top = top, .count = count};
    }
    take_words(at, s->compute == NAPIER_F64 ? s->sum.f64.digit : s->sum.f32.digit, digit_count(s->compute));
    return flags <= 3 && (s->compute == NAPIER_F64 || (double)s->sum.f32.max == max) && plain_sum_is_possible(s);
}

static bool take_weighted_sum(const unsigned char **at, unsigned flags, const napier_softmax_state *s,
                              napier_weighted_sum *sum) {
    napier_weighted_sum_init(sum, s->compute == NAPIER_F64);
    sum->nan = flags & 1;
    sum->plus = (flags & 2) != 0;
    sum->minus = (flags & 4) != 0;
    sum->max = napier_double_of_bits(take(at, 8));
    sum->unit = (int64_t)take(at, 8);
    take_words(at, sum->weight, napier_weight_digits(sum));
    take_words(at, sum->ties, napier_weighted_digits(sum));
    take_words(at, sum->rest, napier_weighted_digits(sum));
    return flags <= 7 && (flags == 0 || sum->max == -HUGE_VAL) &&
           napier_weighted_sum_valid(sum, s->count - s->head_size - s->tail_size);
}

static void take_elements(const unsigned char **at, napier_dtype compute, char *elements, int n) {
    const size_t size = napier_state_element(compute);
    for (int i = 0; i < n; i++, elements += size) {
        const uint64_t bits = take(at, (int)size);
        const uint32_t low = (uint32_t)bits;
        memcpy(elements, size == 8 ? (const void *)&bits : &low, size);
    }
}

/* Reads everything but the elements into *s, or *weighted for the sum of a weighted state; advances *at to the elements. */
static napier_status load_fields(napier_context *context, const unsigned char *bytes, size_t size,
                                 const unsigned char **at, napier_softmax_state *s, napier_weighted_sum *weighted) {
    if (size < NAPIER_STATE_FIELDS + NAPIER_STATE_CHECKSUM) {
        return corrupt(context, "are too few for a softmax state");
    }
    NAPIER_TRY(load_header(context, at, s));
    if (size != size_of(s)) {
        return corrupt(context, "are not as many as the header says");
    }
    const unsigned char *end = bytes + size - NAPIER_STATE_CHECKSUM;
    if (take(&end, 8) != napier_checksum(bytes, size - NAPIER_STATE_CHECKSUM)) {
        return corrupt(context, "the checksum is wrong");
    }
    const unsigned flags = (unsigned)take(at, 4);
    s->first = (int64_t)take(at, 8);
    s->end = (int64_t)take(at, 8);
    s->count = (int64_t)take(at, 8);
    if (!place_is_possible(s) ||
        !(s->weighted ? take_weighted_sum(at, flags, s, weighted) : take_plain_sum(at, flags, s))) {
        return corrupt(context, "hold numbers that no state can have");
    }
    return NAPIER_OK;
}

napier_status napier_softmax_state_from_bytes(napier_context *context, const void *bytes, size_t size,
                                              napier_softmax_state **out) {
    if (out) {
        *out = NULL;
    }
    NAPIER_TRY(napier_begin(context));
    NAPIER_REFUSE_IF(context, !bytes || !out, "%s: is NULL", out ? "bytes" : "out");
    napier_softmax_state fields;
    napier_weighted_sum weighted;
    memset(&fields, 0, sizeof fields);
    const unsigned char *at = bytes;
    NAPIER_DEFAULT_FENV;
    NAPIER_TRY(load_fields(context, bytes, size, &at, &fields, &weighted));
    const size_t room = napier_state_bytes(fields.compute, fields.weighted);
    napier_softmax_state *s = napier_alloc(&context->allocator, 1, room);
    if (!s) {
        return napier_fail(context, NAPIER_OUT_OF_MEMORY, "state: no memory for %zu bytes", room);
    }
    memset(s, 0, room);
    *s = fields;
    s->allocator = context->allocator;
    if (s->weighted) {
        *napier_state_weighted_sum(s) = weighted;
    }
    for (int i = 0; i < (s->weighted ? NAPIER_STATE_BLOCKS : NAPIER_STATE_HEAD_WEIGHTS); i++) {
        take_elements(&at, s->compute, napier_state_elements(s, (napier_state_block)i), block_size(s, i));
    }
    *out = s;
    return NAPIER_OK;
}
