/* ops/softmax/state/state_bytes.c - the portable byte form of a mergeable state.
 *
 *   8  magic "NAPIERST"      4 format (1)      4 numerics version    4 tile (1024)     4 compute dtype
 *   8  temperature (f64)     4 masked_rows     4 head size           4 tail size       4 flags: 1 NaN seen, 2 +inf seen
 *   8  first index           8 end             8 count
 *   8  maximum (f64 bits)    8 count of maxima 8 top                 8 each digit: 12 (f32) or 54 (f64)
 *   4 or 8 each element of the head, then of the tail
 *   8  checksum: FNV-1a over all bytes before
 *
 * All little-endian. Loading trusts nothing: every field is checked against what the arithmetic could have produced. */
#include "core/base/bytes.h"
#include "core/base/scope.h"
#include "core/math/f64.h"
#include "ops/softmax/state/state.h"

static const unsigned char NAPIER_STATE_MAGIC[8] = {'N', 'A', 'P', 'I', 'E', 'R', 'S', 'T'};

enum {
    NAPIER_STATE_FORMAT = 1,
    NAPIER_STATE_FIELDS = 8 + 4 * 4 + 8 + 4 * 4 + 3 * 8 + 3 * 8,
    NAPIER_STATE_CHECKSUM = 8
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

static size_t size_of(napier_dtype compute, int64_t elements) {
    const size_t element = compute == NAPIER_F64 ? 8 : 4;
    return NAPIER_STATE_FIELDS + 8 * (size_t)digit_count(compute) + element * (size_t)elements + NAPIER_STATE_CHECKSUM;
}

size_t napier_softmax_state_size(const napier_softmax_state *state) {
    return state ? size_of(state->compute, (int64_t)state->head_size + state->tail_size) : 0;
}

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

static void put_sum(unsigned char **at, const napier_softmax_state *s) {
    const bool wide = s->compute == NAPIER_F64;
    const double max = wide ? s->sum.f64.max : (double)s->sum.f32.max;
    put_bytes(at, napier_double_bits(max), 8);
    put_bytes(at, wide ? s->sum.f64.count : s->sum.f32.count, 8);
    put_bytes(at, (uint64_t)(wide ? s->sum.f64.top : s->sum.f32.top), 8);
    const uint64_t *digit = wide ? s->sum.f64.digit : s->sum.f32.digit;
    for (int i = 0; i < digit_count(s->compute); i++) {
        put_bytes(at, digit[i], 8);
    }
}

static unsigned flags(const napier_softmax_state *s) {
    const bool wide = s->compute == NAPIER_F64;
    const bool nan = wide ? s->sum.f64.nan : s->sum.f32.nan, pinf = wide ? s->sum.f64.pinf : s->sum.f32.pinf;
    return (nan ? 1u : 0u) | (pinf ? 2u : 0u);
}

napier_status napier_softmax_state_save(napier_context *context, const napier_softmax_state *state, void *bytes,
                                        size_t capacity) {
    NAPIER_TRY(napier_begin(context));
    NAPIER_REFUSE_IF(context, !state || !bytes, "%s: is NULL", state ? "bytes" : "state");
    const size_t size = napier_softmax_state_size(state);
    NAPIER_REFUSE_IF(context, capacity < size, "capacity: %zu is less than the state's %zu bytes", capacity, size);
    unsigned char *at = bytes;
    memcpy(at, NAPIER_STATE_MAGIC, sizeof NAPIER_STATE_MAGIC);
    at += sizeof NAPIER_STATE_MAGIC;
    put_bytes(&at, NAPIER_STATE_FORMAT, 4);
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
    put_sum(&at, state);
    const char *head = (const char *)state + sizeof *state;
    const size_t room = NAPIER_TILE * napier_state_element(state->compute);
    put_elements(&at, state->compute, head, state->head_size);
    put_elements(&at, state->compute, head + room, state->tail_size);
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
    if (format != NAPIER_STATE_FORMAT || numerics != NAPIER_NUMERICS_VERSION || tile != NAPIER_TILE) {
        return napier_fail(context, NAPIER_STATE_MISMATCH,
                           "bytes: format %u, numerics version %u, tile %u where this library has %d, %d, %d",
                           (unsigned)format, (unsigned)numerics, (unsigned)tile, NAPIER_STATE_FORMAT,
                           NAPIER_NUMERICS_VERSION, NAPIER_TILE);
    }
    if (compute != NAPIER_F32 && compute != NAPIER_F64) {
        return napier_fail(context, NAPIER_STATE_MISMATCH, "bytes: compute dtype %u is not f32 or f64",
                           (unsigned)compute);
    }
    s->compute = (napier_dtype)compute;
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
    if (s->first < 0 || s->end < s->first || s->count < 0 || s->count >= NAPIER_SUM_MOST ||
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
static bool sum_is_possible(const napier_softmax_state *s) {
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

static bool take_sum(const unsigned char **at, unsigned flags, napier_softmax_state *s) {
    const double max = napier_double_of_bits(take(at, 8));
    const uint64_t count = take(at, 8);
    const int64_t top = (int64_t)take(at, 8);
    const bool nan = flags & 1, pinf = (flags & 2) != 0;
    uint64_t *digit = s->sum.f64.digit;
    if (s->compute == NAPIER_F64) {
        s->sum.f64 = (napier_f64_sum){.max = max, .nan = nan, .pinf = pinf, .top = top, .count = count};
    } else {
        s->sum.f32 = (napier_sum){.max = (float)max, .nan = nan, .pinf = pinf, .top = top, .count = count};
        digit = s->sum.f32.digit;
    }
    for (int i = 0; i < digit_count(s->compute); i++) {
        digit[i] = take(at, 8);
    }
    return flags <= 3 && (s->compute == NAPIER_F64 || (double)s->sum.f32.max == max);
}

static void take_elements(const unsigned char **at, napier_dtype compute, char *elements, int n) {
    const size_t size = napier_state_element(compute);
    for (int i = 0; i < n; i++, elements += size) {
        const uint64_t bits = take(at, (int)size);
        const uint32_t low = (uint32_t)bits;
        memcpy(elements, size == 8 ? (const void *)&bits : &low, size);
    }
}

/* Reads everything but the elements into *s; advances *at to the elements. */
static napier_status load_fields(napier_context *context, const unsigned char *bytes, size_t size,
                                 const unsigned char **at, napier_softmax_state *s) {
    if (size < NAPIER_STATE_FIELDS + NAPIER_STATE_CHECKSUM) {
        return corrupt(context, "are too few for a softmax state");
    }
    NAPIER_TRY(load_header(context, at, s));
    if (size != size_of(s->compute, (int64_t)s->head_size + s->tail_size)) {
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
    const bool fields = take_sum(at, flags, s);
    if (!fields || !place_is_possible(s) || !sum_is_possible(s)) {
        return corrupt(context, "hold numbers that no state can have");
    }
    return NAPIER_OK;
}

napier_status napier_softmax_state_load(napier_context *context, const void *bytes, size_t size,
                                        napier_softmax_state **out) {
    if (out) {
        *out = NULL;
    }
    NAPIER_TRY(napier_begin(context));
    NAPIER_REFUSE_IF(context, !bytes || !out, "%s: is NULL", out ? "bytes" : "out");
    napier_softmax_state fields;
    memset(&fields, 0, sizeof fields);
    const unsigned char *at = bytes;
    NAPIER_DEFAULT_FENV;
    NAPIER_TRY(load_fields(context, bytes, size, &at, &fields));
    napier_softmax_state *s = napier_alloc(&context->allocator, 1, napier_state_bytes(fields.compute));
    if (!s) {
        return napier_fail(context, NAPIER_OUT_OF_MEMORY, "state: no memory for %zu bytes",
                           napier_state_bytes(fields.compute));
    }
    memset(s, 0, napier_state_bytes(fields.compute));
    *s = fields;
    s->allocator = context->allocator;
    char *head = (char *)s + sizeof *s;
    const size_t room = NAPIER_TILE * napier_state_element(s->compute);
    take_elements(&at, s->compute, head, s->head_size);
    take_elements(&at, s->compute, head + room, s->tail_size);
    *out = s;
    return NAPIER_OK;
}
