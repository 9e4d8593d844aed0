/* ops/softmax/sum.h - the exact sum of a row's exponentials. It gives the same bits in any order of additions.
 *
 * A row is cut into tiles of 1024 elements. Inside a tile floats are added in one fixed order
 * (softmax.inc.h), so the sum of a tile is a pure function of its elements. Tiles are then added as integers,
 * which may be added in any grouping and order.
 *
 *   sum = { max, count, top, digit[12] }    the value  count * exp(max) + sum_j digit[j] * 2^(24 * (top - j))
 *
 * Elements equal to the maximum are only counted. They contribute 1 each, exactly, so log(1 + rest) keeps its accuracy
 * when the rest is small. The digits are base 2^24 in 64-bit bins: 2^40 terms may be added before one overflows. `top`
 * follows from the maximum, so that the window of 288 bits always holds all that matters: 48 bits of headroom, then
 * down to 2^-240 of the largest term. A digit that falls below the window is below every later window too, so it makes
 * no difference whether it is dropped before or after a merge.
 *
 * Plain C on single sums, shared by the kernels of every instruction set, the public state and CUDA. */
#ifndef NAPIER_OPS_SOFTMAX_SUM_H
#define NAPIER_OPS_SOFTMAX_SUM_H

#include <stdbool.h>

#include "core/math/exp.h"
#include "core/math/f64.h"
#include "core/math/log.h"
#include "ops/softmax/signed_digits.h"

enum {
    NAPIER_TILE = 1024,      /* elements whose terms are added as floats */
    NAPIER_TILE_LANES = 256, /* accumulators of a tile */
    NAPIER_DIGIT_BITS = NAPIER_SIGNED_BITS,
    NAPIER_DIGITS = 12
};

#define NAPIER_TERM_SCALE 64 /* terms are multiplied by 2^64, so that none inside the cutoff is subnormal */
#define NAPIER_CUTOFF 129.0f /* elements further below the maximum are dropped: exp(-129) < 2^-186 */
#define NAPIER_BIG 0x1p20f   /* above this magnitude of the maximum, the reduction of exp runs in double */
#define NAPIER_HUGE 0x1p31f  /* from here on neighbouring floats are further apart than the cutoff: only ties count */

/* The sum of one tile: a pure function of its elements. */
typedef struct napier_tile_sum {
    float max;     /* the largest element; -inf if there is none or all are -inf */
    float min;     /* the smallest; not part of the sum, it shows which outputs may be subnormal */
    float rest;    /* sum of exp(x - E ln 2) 2^64 over elements below max, E = exponent(exp(max)) */
    int32_t count; /* elements equal to max */
    bool nan;      /* an element is NaN; the other members then mean nothing */
} napier_tile_sum;

typedef struct napier_sum {
    float max;
    bool nan, pinf;
    int64_t top;
    uint64_t count;
    uint64_t digit[NAPIER_DIGITS];
} napier_sum;

typedef enum napier_softmax_op { NAPIER_OP_SOFTMAX, NAPIER_OP_LOG_SOFTMAX, NAPIER_OP_LOGSUMEXP } napier_softmax_op;

typedef enum napier_row_kind { NAPIER_ROW_FINITE, NAPIER_ROW_NAN, NAPIER_ROW_PINF, NAPIER_ROW_MASKED } napier_row_kind;

/* All that the outputs of a row need besides the row's elements. */
typedef struct napier_final {
    napier_row_kind kind;
    float max;
    float lse;
    float log_sum;    /* L = lse - max >= 0, in f32 */
    float max_prob;   /* probability of the maximum; no other exceeds it */
    float scale;      /* softmax = term * scale; includes 2^-64 */
    float factor;     /* the result is softmax * factor: 1, except for the gradient of logsumexp */
    int64_t exponent; /* E: exp(max) = p 2^E */
} napier_final;

NAPIER_BOTH bool napier_is_big(float max) { return fabsf(max) > NAPIER_BIG; }
NAPIER_BOTH bool napier_is_huge(float max) { return fabsf(max) >= NAPIER_HUGE; }

/* exp(x) = p 2^n by the reduction that a row or tile with maximum `max` uses; |max| < 2^31. */
NAPIER_BOTH napier_exp_parts napier_exp_parts_for(float x, float max) {
    return napier_is_big(max) ? napier_exp_parts_big(x) : napier_exp_parts_small(x);
}

/* Is x near enough to the maximum to count? Exact for big values too. */
NAPIER_BOTH bool napier_within_cutoff(float x, float max) {
    return napier_is_big(max) ? (double)x - (double)max >= -(double)NAPIER_CUTOFF : x >= max - NAPIER_CUTOFF;
}

NAPIER_BOTH int64_t napier_floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

/* The digit position of the window's first bin: two digits of headroom above 2^E. */
NAPIER_BOTH int64_t napier_sum_top(int64_t exponent) { return napier_floor_div(exponent, NAPIER_DIGIT_BITS) + 2; }

NAPIER_BOTH void napier_sum_init(napier_sum *s) {
    memset(s, 0, sizeof *s);
    s->max = -INFINITY;
}

/* times * significand * 2^exponent in a window: `low` is added to digit[at], `high` to digit[at - 1], if these are
 * inside; significand < 2^25, times < 2^40. It is split into digits first and then multiplied. That is linear, so a
 * digit below the window may be dropped before or after. */
typedef struct napier_piece {
    int64_t at;
    uint64_t low, high;
} napier_piece;

NAPIER_BOTH napier_piece napier_piece_of(int64_t top, uint64_t times, uint32_t significand, int64_t exponent) {
    const int64_t place = napier_floor_div(exponent, NAPIER_DIGIT_BITS);
    const uint64_t shifted = (uint64_t)significand << (exponent - place * NAPIER_DIGIT_BITS);
    const uint64_t low = shifted & ((1u << NAPIER_DIGIT_BITS) - 1), high = shifted >> NAPIER_DIGIT_BITS;
    return (napier_piece){top - place, times * low, times * high};
}

/* `count` elements equal to x, an ordinary term below the maximum. */
NAPIER_BOTH napier_piece napier_piece_of_terms(int64_t top, uint64_t count, napier_exp_parts x) {
    return napier_piece_of(top, count, (uint32_t)(x.p * 0x1p24f), x.n - 24);
}

/* The rest of a tile: `rest` > 0 is a float times 2^(E - 64). */
NAPIER_BOTH napier_piece napier_piece_of_rest(int64_t top, float rest, int64_t exponent) {
    const uint32_t bits = napier_float_bits(rest);
    const uint32_t significand = (bits & 0x7fffffu) | 0x800000u;
    return napier_piece_of(top, 1, significand, (int64_t)(bits >> 23) - 127 - 23 - NAPIER_TERM_SCALE + exponent);
}

NAPIER_BOTH void napier_sum_add_piece(napier_sum *s, napier_piece piece) {
    if (piece.at >= 0 && piece.at < NAPIER_DIGITS) {
        s->digit[piece.at] += piece.low;
    }
    if (piece.at >= 1 && piece.at <= NAPIER_DIGITS) {
        s->digit[piece.at - 1] += piece.high;
    }
}

/* Moves the window up to a new top. */
NAPIER_BOTH void napier_sum_move_window(napier_sum *s, int64_t top) {
    const int64_t by = top - s->top;
    if (by <= 0) {
        return;
    }
    for (int64_t j = NAPIER_DIGITS - 1; j >= 0; j--) {
        s->digit[j] = j >= by ? s->digit[j - by] : 0;
    }
    s->top = top;
}

/* Adds `count` elements equal to x, an ordinary term below the maximum. */
NAPIER_BOTH void napier_sum_add_terms(napier_sum *s, uint64_t count, napier_exp_parts x) {
    napier_sum_add_piece(s, napier_piece_of_terms(s->top, count, x));
}

/* Raises the maximum to `max` (finite or +inf, at least the sum's own): the old maxima become ordinary terms. */
NAPIER_BOTH void napier_sum_raise(napier_sum *s, float max) {
    if (!(max > s->max)) {
        return;
    }
    const bool start = s->max == -INFINITY;
    const bool forget =
        start || napier_is_huge(max) || napier_is_huge(s->max); /* no old term is near enough to count */
    const int64_t top = napier_is_huge(max) ? 0 : napier_sum_top(napier_exp_parts_for(max, max).n);
    if (forget) {
        memset(s->digit, 0, sizeof s->digit);
        s->top = top;
    } else {
        const napier_exp_parts old = napier_exp_parts_for(s->max, s->max);
        napier_sum_move_window(s, top);
        napier_sum_add_terms(s, s->count, old);
    }
    s->max = max + 0.0f; /* -0 and +0 are one maximum */
    s->count = 0;
}

/* Adds the rest of a tile: `rest` is a float times 2^(E - 64). */
NAPIER_BOTH void napier_sum_add_rest(napier_sum *s, float rest, int64_t exponent) {
    if (rest > 0) {
        napier_sum_add_piece(s, napier_piece_of_rest(s->top, rest, exponent));
    }
}

NAPIER_BOTH void napier_sum_add_tile(napier_sum *s, const napier_tile_sum *t) {
    s->nan |= t->nan;
    if (t->max == -INFINITY) {
        return;
    }
    if (t->max == INFINITY) {
        s->pinf = true;
        napier_sum_raise(s, INFINITY);
        return;
    }
    napier_sum_raise(s, t->max);
    if (napier_is_huge(s->max)) {
        s->count += t->max == s->max ? (uint64_t)t->count : 0;
        return;
    }
    if (t->max == s->max) {
        s->count += (uint64_t)t->count;
        napier_sum_add_rest(s, t->rest, napier_exp_parts_for(t->max, t->max).n);
    } else if (!napier_is_huge(t->max)) {
        const napier_exp_parts parts = napier_exp_parts_for(t->max, t->max);
        napier_sum_add_terms(s, (uint64_t)t->count, parts);
        napier_sum_add_rest(s, t->rest, parts.n);
    }
}

NAPIER_BOTH void napier_sum_merge(napier_sum *into, const napier_sum *from) {
    napier_sum other = *from;
    into->nan |= other.nan;
    into->pinf |= other.pinf;
    if (other.max == -INFINITY) {
        return;
    }
    napier_sum_raise(into, other.max);
    napier_sum_raise(&other, into->max);
    into->count += other.count;
    for (int j = 0; j < NAPIER_DIGITS; j++) {
        into->digit[j] += other.digit[j];
    }
}

/* The digits as one double in units of 2^exponent, rounded once, to nearest even. */
NAPIER_BOTH double napier_sum_rest(const napier_sum *s, int64_t exponent) {
    uint64_t d[3 + NAPIER_DIGITS + 3] = {0}; /* d[0] is at place top + 3 */
    int lead;
    const double value = napier_digits_sum(s->digit, NAPIER_DIGITS, d, &lead);
    const int64_t unit = (s->top - lead) * NAPIER_DIGIT_BITS;
    return value == 0 ? 0 : value * napier_f64_power_of_two((int)(unit - exponent));
}

/* The members that the outputs need, from the maximum (count times, p its significand) and the rest in units of 2^E.
 * The kernels do the same on 16 rows at a time. */
NAPIER_BOTH void napier_final_log(napier_final *f, double count, float p, double rest) {
    const double log_sum = napier_log1p((count - 1.0) + rest / (double)p);
    f->lse = (float)((double)f->max + log_sum);
    f->log_sum = -(0.0f - (float)log_sum); /* 0 becomes -0: (x - max) - log_sum is then +0 for x = -0 too */
}

NAPIER_BOTH void napier_final_prob(napier_final *f, double count, float p, double rest) {
    const double inverse = 1.0 / (count * (double)p + rest);
    f->max_prob = (float)((double)p * inverse);
    f->scale = (float)(inverse * 0x1p-64);
    if (p * 0x1p64f * f->scale < f->max_prob) { /* the maximum's own term must reach its probability */
        f->scale = napier_float_of_bits(napier_float_bits(f->scale) + 1);
    }
}

NAPIER_BOTH void napier_final_outputs(napier_final *f, double count, float p, double rest) {
    napier_final_log(f, count, p, rest);
    napier_final_prob(f, count, p, rest);
}

NAPIER_BOTH napier_final napier_sum_finish(const napier_sum *s) {
    napier_final f = {.kind = NAPIER_ROW_FINITE, .max = s->max, .factor = 1.0f};
    if (s->nan) {
        f.kind = NAPIER_ROW_NAN;
        f.lse = napier_nan();
    } else if (s->pinf) {
        f.kind = NAPIER_ROW_PINF;
        f.lse = INFINITY;
    } else if (s->max == -INFINITY) {
        f.kind = NAPIER_ROW_MASKED;
        f.lse = -INFINITY;
    } else if (napier_is_huge(s->max)) {
        napier_final_outputs(&f, (double)s->count, 1.0f, 0.0);
    } else {
        const napier_exp_parts parts = napier_exp_parts_for(s->max, s->max);
        f.exponent = parts.n;
        napier_final_outputs(&f, (double)s->count, parts.p, napier_sum_rest(s, parts.n));
    }
    return f;
}

/* exp(x - E ln 2) 2^64 for x within the cutoff of the row's maximum, which is not huge. */
NAPIER_BOTH float napier_term(float x, float max, int64_t exponent) {
    const napier_exp_parts parts = napier_exp_parts_for(x, max);
    return parts.p * napier_power_of_two(parts.n - exponent + NAPIER_TERM_SCALE);
}

/* softmax and log_softmax of one element of a finite row; x <= max, not NaN. */
NAPIER_BOTH float napier_softmax_of(const napier_final *f, float x) {
    if (napier_is_huge(f->max)) {
        return x == f->max ? f->max_prob : 0.0f;
    }
    if (!napier_within_cutoff(x, f->max)) {
        return 0.0f;
    }
    if (x > f->max) { /* a block of another row (state_apply): its exponent may not fit an integer */
        return f->max_prob;
    }
    const float prob = napier_term(x, f->max, f->exponent) * f->scale;
    return prob < f->max_prob ? prob : f->max_prob;
}

NAPIER_BOTH float napier_log_softmax_of(const napier_final *f, float x) { return (x - f->max) - f->log_sum; }

/* One tile of 1 to 1024 elements, element by element: the definition. The kernels call it for rows whose maximum is
 * big, and the tests compare the kernels with it. */
NAPIER_BOTH void napier_tile_by_definition(const float *x, int n, napier_tile_sum *t) {
    *t = (napier_tile_sum){.max = -INFINITY, .min = INFINITY};
    for (int i = 0; i < n; i++) {
        t->nan |= x[i] != x[i];
        t->max = x[i] > t->max ? x[i] : t->max;
        t->min = x[i] < t->min ? x[i] : t->min;
    }
    if (t->nan) { /* the row is NaN, whatever its other elements are */
        t->max = -INFINITY;
        return;
    }
    for (int i = 0; i < n; i++) {
        t->count += x[i] == t->max ? 1 : 0;
    }
    if (!(fabsf(t->max) < NAPIER_HUGE)) {
        return;
    }
    float lane[NAPIER_TILE_LANES] = {0};
    const int64_t exponent = napier_exp_parts_for(t->max, t->max).n;
    for (int i = 0; i < n; i++) {
        if (x[i] < t->max && napier_within_cutoff(x[i], t->max)) {
            lane[i % NAPIER_TILE_LANES] += napier_term(x[i], t->max, exponent);
        }
    }
    for (int h = NAPIER_TILE_LANES / 2; h > 0; h /= 2) {
        for (int i = 0; i < h; i++) {
            lane[i] += lane[i + h];
        }
    }
    t->rest = lane[0];
}

#endif
