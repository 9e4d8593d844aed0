/* support/definition.h - the order of docs/numerics.md for f32, in the plainest form: every tile is reduced by itself,
 * then the terms of the whole row are added as one 320-bit integer, in two passes over a row whose maximum is known.
 * The library merges states instead. test_reference.c shows that both give the same bits. Only log1p differs: here it
 * is libm's in long double, so logsumexp and log_softmax may differ in a last bit. */
#ifndef NAPIER_TESTS_DEFINITION_H
#define NAPIER_TESTS_DEFINITION_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "support/oracle.h"

typedef struct definition_row {
    oracle_outcome outcome;
    float max, lse;
    float log_sum;    /* logsumexp - max */
    float max_prob;   /* softmax of the maximum */
    float scale;      /* softmax = term * scale */
    int64_t exponent; /* exp(max) = p * 2^exponent */
} definition_row;

enum { TILE = 1024, LANES = 256, DIGIT = 24, DIGITS = 12, TERM_SHIFT = 64, LIMBS = 10, LIMB = 32 };

/* ---- exp(x) = p * 2^n, step by step. */

typedef struct power {
    float p;
    int64_t n;
} power;

static float exp_polynomial(float r) {
    static const float coefficients[] = {
        0x1.6a4d7ep-10f, 0x1.123990p-7f, 0x1.5558b0p-5f, 0x1.555492p-3f, 0x1.fffffcp-2f, 1.0f, 1.0f};
    float p = coefficients[0];
    for (int i = 1; i < 7; i++) {
        p = fmaf(p, r, coefficients[i]);
    }
    return p;
}

static bool far_from_zero(float max) { return fabsf(max) > 1048576.0f; }
static bool floats_are_sparse(float max) { return fabsf(max) >= 2147483648.0f; }

static power exp_of(float x, bool in_double) {
    power e;
    if (in_double) {
        const double n = rint((double)x * 0x1.71547652b82fep+0);
        const double r = fma(-n, 0x1.abc9e3b39803fp-56, fma(-n, 0x1.62e42fefa39efp-1, (double)x));
        e.p = exp_polynomial((float)r);
        e.n = (int64_t)n;
        return e;
    }
    const float shifted = fmaf(x, 0x1.715476p+0f, 12582912.0f);
    const float n = shifted - 12582912.0f;
    const float r = fmaf(n, 0x1.05c610p-29f, fmaf(-n, 0x1.62e430p-1f, x));
    e.p = exp_polynomial(r);
    e.n = (int64_t)n;
    return e;
}

static bool near_enough(float x, float max) {
    if (far_from_zero(max)) {
        return (double)x - (double)max >= -129.0;
    }
    return x >= max - 129.0f;
}

/* exp(x) as a float in units of 2^(exponent - 64), exact but for p. */
static float term_of(float x, bool in_double, int64_t exponent) {
    const power e = exp_of(x, in_double);
    return ldexpf(e.p, (int)(e.n - exponent) + TERM_SHIFT);
}

/* ---- A tile. */

typedef struct tile_facts {
    float max;
    uint64_t count;
    float rest; /* in units of 2^(exponent - 64) */
    power top;  /* exp(max) */
} tile_facts;

static tile_facts tile_look(const float *x, int64_t n) {
    tile_facts t = {-INFINITY, 0, 0.0f, {1.0f, 0}};
    for (int64_t i = 0; i < n; i++) {
        t.max = x[i] > t.max ? x[i] : t.max;
    }
    for (int64_t i = 0; i < n; i++) {
        t.count += x[i] >= t.max;
    }
    if (isinf(t.max) || floats_are_sparse(t.max)) {
        return t;
    }
    const bool in_double = far_from_zero(t.max);
    t.top = exp_of(t.max, in_double);
    float lanes[LANES] = {0};
    for (int64_t i = 0; i < n; i++) {
        if (x[i] < t.max && near_enough(x[i], t.max)) {
            lanes[i % LANES] += term_of(x[i], in_double, t.top.n);
        }
    }
    for (int half = LANES / 2; half >= 1; half /= 2) {
        for (int i = 0; i < half; i++) {
            lanes[i] += lanes[i + half];
        }
    }
    t.rest = lanes[0];
    return t;
}

/* ---- The sum of a row: an integer in units of 2^unit, where unit is the lowest digit of the maximum's window. */

typedef struct whole {
    uint32_t limb[LIMBS]; /* least significant first */
    int64_t unit;
} whole;

static int64_t floor_div(int64_t a, int64_t b) {
    const int64_t q = a / b;
    return q * b > a ? q - 1 : q;
}

static void whole_add_at(whole *w, int place, uint64_t value) {
    uint64_t carry = value;
    for (int i = place; i < LIMBS && carry; i++) {
        carry += w->limb[i];
        w->limb[i] = (uint32_t)carry;
        carry >>= LIMB;
    }
}

/* Adds times * floor(significand * 2^(exponent - unit)): bits below the window are dropped before the
 * multiplication. */
static void whole_add(whole *w, uint64_t times, uint32_t significand, int64_t exponent) {
    const int64_t shift = exponent - w->unit;
    if (shift <= -LIMB) {
        return;
    }
    const uint64_t kept = shift < 0 ? (uint64_t)significand >> -shift : (uint64_t)significand << (shift % LIMB);
    const int place = shift < 0 ? 0 : (int)(shift / LIMB);
    const uint64_t pieces[2] = {kept & 0xffffffffu, kept >> LIMB};
    for (int i = 0; i < 2; i++) { /* times < 2^40 and a piece < 2^32: two partial products each */
        whole_add_at(w, place + i, (times & 0xffffffffu) * pieces[i]);
        whole_add_at(w, place + i + 1, (times >> LIMB) * pieces[i]);
    }
}

/* The sum in units of 2^exponent, rounded once to double, ties to even. */
static double whole_value(const whole *w, int64_t exponent) {
    int high = LIMBS * LIMB - 1;
    while (high >= 0 && !(w->limb[high / LIMB] >> (high % LIMB) & 1)) {
        high--;
    }
    uint64_t significand = 0;
    for (int bit = high; bit > high - 53; bit--) {
        significand = significand << 1 | (bit >= 0 ? w->limb[bit / LIMB] >> (bit % LIMB) & 1 : 0);
    }
    const int next = high - 53;
    if (next >= 0 && (w->limb[next / LIMB] >> (next % LIMB) & 1)) {
        bool more = significand & 1;
        for (int bit = next - 1; bit >= 0 && !more; bit--) {
            more = w->limb[bit / LIMB] >> (bit % LIMB) & 1;
        }
        significand += more;
    }
    return high < 0 ? 0.0 : ldexp((double)significand, (int)(high - 52 + w->unit - exponent));
}

static void whole_add_tile(whole *w, const tile_facts *t, float row_max) {
    if (isinf(t->max) || floats_are_sparse(t->max)) {
        return; /* the row has no other float near enough to count */
    }
    if (t->max < row_max) { /* its maxima are ordinary terms */
        whole_add(w, t->count, (uint32_t)(t->top.p * 0x1p24f), t->top.n - 24);
    }
    if (t->rest > 0) {
        int exponent;
        const float fraction = frexpf(t->rest, &exponent);
        whole_add(w, 1, (uint32_t)(fraction * 0x1p24f), exponent - 24 - TERM_SHIFT + t->top.n);
    }
}

static oracle_outcome look(const float *z, int64_t n, float *max) {
    bool nan = false;
    *max = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        nan = nan || isnan(z[i]);
        *max = z[i] > *max ? z[i] : *max;
    }
    if (n == 0) {
        return ORACLE_EMPTY;
    }
    return nan ? ORACLE_NAN : !isinf(*max) ? ORACLE_FINITE : *max > 0 ? ORACLE_PLUS_INF : ORACLE_ALL_MASKED;
}

static definition_row definition_reduce(const float *z, int64_t n) {
    definition_row row;
    memset(&row, 0, sizeof row);
    row.outcome = look(z, n, &row.max);
    if (row.outcome != ORACLE_FINITE) {
        row.lse = row.outcome == ORACLE_NAN ? NAN : row.outcome == ORACLE_PLUS_INF ? INFINITY : -INFINITY;
        return row;
    }
    const bool sparse = floats_are_sparse(row.max);
    power top = {1.0f, 0};
    if (!sparse) {
        top = exp_of(row.max, far_from_zero(row.max));
    }
    whole sum = {{0}, DIGIT * (floor_div(top.n, DIGIT) + 2 - (DIGITS - 1))};
    uint64_t count = 0;
    for (int64_t i = 0; i < n; i += TILE) {
        const tile_facts t = tile_look(z + i, n - i < TILE ? n - i : TILE);
        count += t.max >= row.max ? t.count : 0;
        if (!sparse) {
            whole_add_tile(&sum, &t, row.max);
        }
    }
    const double rest = whole_value(&sum, top.n), p = (double)top.p;
    const double log_sum = (double)log1pl((long double)((double)(count - 1) + rest / p));
    const double inverse = 1.0 / ((double)count * p + rest);
    row.exponent = top.n;
    row.lse = (float)((double)row.max + log_sum);
    row.log_sum = (float)log_sum;
    row.max_prob = (float)(p * inverse);
    row.scale = (float)(inverse * 0x1p-64);
    if (top.p * 0x1p64f * row.scale < row.max_prob) {
        row.scale = nextafterf(row.scale, 1.0f);
    }
    return row;
}

static float definition_softmax(const definition_row *row, float z) {
    if (floats_are_sparse(row->max)) {
        return z >= row->max ? row->max_prob : 0.0f;
    }
    if (!near_enough(z, row->max)) {
        return 0.0f;
    }
    const float prob = term_of(z, far_from_zero(row->max), row->exponent) * row->scale;
    return prob < row->max_prob ? prob : row->max_prob;
}

static float definition_log_softmax(const definition_row *row, float z) { return (z - row->max) - row->log_sum; }

#endif
