/* ops/softmax/weighted/weighted_sum.c - see weighted_sum.h. */
#include "ops/softmax/weighted/weighted_sum.h"

enum {
    WEIGHT_TOP = 5, /* places of the first digits of weights: the whole range of the dtype lies below */
    WEIGHT_TOP_F64 = 42,
    HEADROOM = 2,
    UNIT_MOST_F64 =
        500,          /* powers of two between the maximum's term and the largest for which the maximum's unit serves */
    UNIT_REACH = 2300 /* more than lies between the powers of two of two weights, or of exp(max) and the unit */
};

static int64_t weight_top(const napier_weighted_sum *s) { return s->wide ? WEIGHT_TOP_F64 : WEIGHT_TOP; }

static int64_t top_of(int64_t unit) { return napier_floor_div(unit, NAPIER_DIGIT_BITS) + HEADROOM; }

static bool is_huge(const napier_weighted_sum *s, double max) {
    return s->wide ? napier_f64_is_huge(max) : napier_is_huge((float)max);
}

static bool is_special(bool nan, bool plus, bool minus) { return nan || plus || minus; }

/* The power of two of exp(max), which is not huge. */
static int64_t exponent_of(const napier_weighted_sum *s) {
    return s->wide ? napier_f64_exp_parts(s->max).n : napier_exp_parts_for((float)s->max, (float)s->max).n;
}

static void clear(uint64_t *digit, int digits) { memset(digit, 0, (size_t)digits * sizeof *digit); }

static void clear_digits(napier_weighted_sum *s) {
    clear(s->weight, napier_weight_digits(s));
    clear(s->ties, napier_weighted_digits(s));
    clear(s->rest, napier_weighted_digits(s));
}

void napier_weighted_sum_init(napier_weighted_sum *s, bool wide) {
    s->wide = wide;
    s->nan = s->plus = s->minus = false;
    s->max = -HUGE_VAL;
    s->unit = INT64_MIN;
    clear_digits(s);
}

/* ---- The maximum and the window ------------------------------------------------------------------------------------ */

/* Raises the maximum to a finite one: the old ties become ordinary terms, if they are near enough to count. */
static void raise_max(napier_weighted_sum *s, double max) {
    if (!(max > s->max)) {
        return;
    }
    s->max = max + 0.0; /* -0 and +0 are one maximum */
    if (is_huge(s, max)) {
        clear_digits(s);
        s->unit = INT64_MIN;
        return;
    }
    for (int j = 0; j < napier_weighted_digits(s); j++) {
        s->rest[j] += s->ties[j];
    }
    clear(s->weight, napier_weight_digits(s));
    clear(s->ties, napier_weighted_digits(s));
}

static void move(uint64_t *digit, int digits, int64_t by) {
    const int kept = by < digits ? digits - (int)by : 0;
    memmove(digit + (digits - kept), digit, (size_t)kept * sizeof *digit);
    clear(digit, digits - kept);
}

static void raise_unit(napier_weighted_sum *s, int64_t unit) {
    if (unit <= s->unit || is_huge(s, s->max)) {
        return;
    }
    const int64_t by =
        s->unit == INT64_MIN ? 0 : top_of(unit) - top_of(s->unit); /* without a unit there are no digits */
    s->unit = unit;
    if (by > 0) {
        move(s->ties, napier_weighted_digits(s), by);
        move(s->rest, napier_weighted_digits(s), by);
    }
}

/* ---- Tiles --------------------------------------------------------------------------------------------------------- */

static void add_term(const napier_weighted_sum *s, uint64_t *digit, double x, int64_t exponent) {
    napier_digits_add(digit, napier_weighted_digits(s), top_of(s->unit), x, exponent);
}

static void add_weight(napier_weighted_sum *s, double b) {
    const bool small = fabs(b) < 0x1p-1022; /* a digit needs a normal number */
    napier_digits_add(s->weight, napier_weight_digits(s), weight_top(s), small ? b * 0x1p64 : b, small ? -64 : 0);
}

/* What the elements add that equal the maximum of their tile. */
typedef struct tied {
    bool weights;    /* add their weights, because it is the maximum of the sum too */
    uint64_t *terms; /* add their terms here; NULL: they are too far below */
} tied;

static void add_tie_f32(napier_weighted_sum *s, const tied *to, float b, napier_exp_parts parts) {
    int32_t e;
    if (to->weights) {
        add_weight(s, (double)b);
    }
    if (to->terms) {
        const float scaled = napier_weight_parts(b, &e) * parts.p;
        add_term(s, to->terms, (double)scaled, parts.n + e);
    }
}

static void add_f32(const napier_softmax_kernels *kernels, napier_weighted_sum *s, const napier_weighted_look *look,
                    const float *x, const float *b, int n) {
    const float max = (float)look->max;
    const bool near = !is_huge(s, s->max) && !is_huge(s, look->max);
    const bool highest = look->max == s->max;
    const tied to = {highest, !near ? NULL : highest ? s->ties : s->rest};
    const napier_exp_parts parts = near ? napier_exp_parts_for(max, max) : (napier_exp_parts){0};
    int at[NAPIER_TILE];
    const int ties = to.weights || to.terms ? kernels->weighted_ties(x, b, n, max, at) : 0;
    for (int i = 0; i < ties; i++) {
        add_tie_f32(s, &to, b[at[i]], parts);
    }
    if (near) {
        add_term(s, s->rest, (double)kernels->weighted_rest(x, b, n, look), look->unit - NAPIER_TERM_SCALE);
    }
}

static void add_tie_f64(napier_weighted_sum *s, const tied *to, double b, napier_f64_parts parts) {
    int e;
    if (to->weights) {
        add_weight(s, b);
    }
    if (to->terms) {
        const double scaled = napier_f64_weight_parts(b, &e) * parts.p;
        add_term(s, to->terms, scaled, parts.n + e);
    }
}

static void add_f64(const napier_softmax_kernels *kernels, napier_weighted_sum *s, const napier_weighted_look *look,
                    const double *x, const double *b, int n) {
    const bool near = !is_huge(s, s->max) && !is_huge(s, look->max);
    const bool highest = look->max == s->max;
    const tied to = {highest, !near ? NULL : highest ? s->ties : s->rest};
    const napier_f64_parts parts = near ? napier_f64_exp_parts(look->max) : (napier_f64_parts){.p = 1};
    for (int i = 0; i < n; i++) {
        if (x[i] == look->max && b[i] != 0) {
            add_tie_f64(s, &to, b[i], parts);
        }
    }
    if (near) {
        add_term(s, s->rest, kernels->f64_weighted_rest(x, b, n, look), look->unit - NAPIER_F64_TERM_SCALE);
    }
}

void napier_weighted_sum_add(const napier_softmax_kernels *kernels, napier_weighted_sum *s, const void *x,
                             const void *b, int n) {
    napier_weighted_look look;
    if (s->wide) {
        kernels->f64_weighted_look(x, b, n, &look);
    } else {
        kernels->weighted_look(x, b, n, &look);
    }
    s->nan |= look.nan;
    s->plus |= look.plus;
    s->minus |= look.minus;
    if (is_special(s->nan, s->plus, s->minus) || look.max == -HUGE_VAL) {
        return;
    }
    raise_max(s, look.max);
    raise_unit(s, look.unit);
    if (s->wide) {
        add_f64(kernels, s, &look, x, b, n);
    } else {
        add_f32(kernels, s, &look, x, b, n);
    }
}

/* ---- Merge --------------------------------------------------------------------------------------------------------- */

static void add_digits(uint64_t *into, const uint64_t *from, int digits) {
    for (int j = 0; j < digits; j++) {
        into[j] += from[j];
    }
}

void napier_weighted_sum_merge(napier_weighted_sum *into, const napier_weighted_sum *from) {
    napier_weighted_sum other = *from;
    into->nan |= other.nan;
    into->plus |= other.plus;
    into->minus |= other.minus;
    if (is_special(into->nan, into->plus, into->minus) || other.max == -HUGE_VAL) {
        return;
    }
    raise_max(into, other.max);
    raise_max(&other, into->max);
    raise_unit(into, other.unit);
    raise_unit(&other, into->unit);
    add_digits(into->weight, other.weight, napier_weight_digits(into));
    add_digits(into->ties, other.ties, napier_weighted_digits(into));
    add_digits(into->rest, other.rest, napier_weighted_digits(into));
}

/* ---- Finish -------------------------------------------------------------------------------------------------------- */

/* log u for u = W + R > 0 in plain doubles: napier_log1p of u - 1 or, below 1, minus that of 1 / u - 1. */
static double log_of(double weight, double rest) {
    const double above = (weight - 1.0) + rest, u = weight + rest;
    return above >= 0 ? napier_log1p(above) : -napier_log1p(-above / u);
}

/* exp(max) (W + R); `rest` is R in units of the power of two of exp(max), not yet divided by its significand. */
static napier_weighted_result finish_f32(double max, double weight, double rest) {
    if (!napier_is_huge((float)max)) {
        rest /= (double)napier_exp_parts_for((float)max, (float)max).p;
    }
    const double u = weight + rest;
    if (u == 0) {
        return (napier_weighted_result){-HUGE_VAL, 0};
    }
    const double sign = u < 0 ? -1 : 1;
    const double log_sum = log_of(sign * weight, sign * rest);
    return (napier_weighted_result){(double)napier_f64_to_f32((max + 0.0) + log_sum), sign};
}

static napier_weighted_result finish_sum_f32(const napier_weighted_sum *s) {
    const double weight = napier_digits_value(s->weight, NAPIER_WEIGHT_DIGITS, WEIGHT_TOP, 0);
    double rest = 0;
    if (!is_huge(s, s->max)) {
        rest = napier_digits_value(s->rest, NAPIER_DIGITS, top_of(s->unit), exponent_of(s));
    }
    return finish_f32(s->max, weight, rest);
}

/* The unit of W and R of an f64 sum, relative to exp(max): 1, or that of the largest term if this lies far away. */
typedef struct scale_f64 {
    napier_f64_parts parts; /* of exp(max); 1 if max is huge */
    int64_t unit;
} scale_f64;

static scale_f64 scale_of_f64(double max, int64_t unit) {
    if (napier_f64_is_huge(max)) {
        return (scale_f64){{.p = 1, .low = 0, .n = 0}, 0};
    }
    const napier_f64_parts parts = napier_f64_exp_parts(max);
    const int64_t away = unit - parts.n;
    return (scale_f64){parts, away >= -UNIT_MOST_F64 && away <= UNIT_MOST_F64 ? 0 : away};
}

/* As f64_finish_finite. weight: W in units of the scale; rest: R 2^512, likewise, but not yet divided by the significand of
 * exp(max). */
static napier_weighted_result finish_f64(double max, const scale_f64 *scale, double weight, double rest) {
    const napier_f64_parts parts = scale->parts;
    const int64_t unit = scale->unit;
    rest /= parts.p;
    rest = fma(-rest, parts.low / parts.p, rest) * 0x1p-512;
    napier_double2 u = napier_two_sum(weight, rest);
    if (u.high == 0) {
        return (napier_weighted_result){-HUGE_VAL, 0};
    }
    const double sign = u.high < 0 ? -1 : 1;
    u = (napier_double2){sign * u.high, sign * u.low};
    napier_double2 log_u = napier_f64_log_of_sum(u);
    if (unit != 0) {
        const napier_double2 shift = napier_two_product((double)unit, NAPIER_LN2_DOUBLE);
        const napier_double2 high = napier_two_sum(log_u.high, shift.high);
        const double low = high.low + (log_u.low + shift.low + (double)unit * 0x1.abc9e3b39803fp-56);
        log_u = (napier_double2){high.high, low};
    }
    const napier_double2 lse = napier_two_sum(max, log_u.high);
    return (napier_weighted_result){lse.high + (lse.low + log_u.low), sign};
}

static napier_weighted_result finish_sum_f64(const napier_weighted_sum *s) {
    const scale_f64 scale = scale_of_f64(s->max, s->unit);
    const double weight = napier_digits_value(s->weight, NAPIER_WEIGHT_DIGITS_F64, WEIGHT_TOP_F64, scale.unit);
    double rest = 0;
    if (!is_huge(s, s->max)) {
        const int64_t exponent = scale.parts.n + scale.unit - NAPIER_F64_TERM_SCALE;
        rest = napier_digits_value(s->rest, NAPIER_F64_DIGITS, top_of(s->unit), exponent);
    }
    return finish_f64(s->max, &scale, weight, rest);
}

static napier_weighted_result special_result(bool nan, bool plus, bool minus) {
    if (nan || (plus && minus)) {
        return (napier_weighted_result){napier_f64_nan(), napier_f64_nan()};
    }
    if (plus || minus) {
        return (napier_weighted_result){HUGE_VAL, plus ? 1 : -1};
    }
    return (napier_weighted_result){-HUGE_VAL, 0}; /* there is no term */
}

napier_weighted_result napier_weighted_sum_finish(const napier_weighted_sum *s) {
    if (is_special(s->nan, s->plus, s->minus) || s->max == -HUGE_VAL) {
        return special_result(s->nan, s->plus, s->minus);
    }
    return s->wide ? finish_sum_f64(s) : finish_sum_f32(s);
}

/* ---- A row of one tile: there is nothing to add up ------------------------------------------------------------------- */

/* The weights of several elements that equal the maximum. */
static double weight_of_ties(const float *b, const int *at, int ties) {
    uint64_t digit[NAPIER_WEIGHT_DIGITS] = {0};
    for (int i = 0; i < ties; i++) {
        napier_digits_add(digit, NAPIER_WEIGHT_DIGITS, WEIGHT_TOP, (double)b[at[i]], 0);
    }
    return napier_digits_value(digit, NAPIER_WEIGHT_DIGITS, WEIGHT_TOP, 0);
}

napier_weighted_result napier_weighted_one_tile(const napier_softmax_kernels *kernels, const float *x, const float *b,
                                                int n) {
    napier_weighted_look look;
    kernels->weighted_look(x, b, n, &look);
    if (is_special(look.nan, look.plus, look.minus) || look.max == -HUGE_VAL) {
        return special_result(look.nan, look.plus, look.minus);
    }
    const float max = (float)look.max;
    int at[NAPIER_TILE];
    const int ties = kernels->weighted_ties(x, b, n, max, at);
    const double weight = ties == 1 ? (double)b[at[0]] : weight_of_ties(b, at, ties);
    double rest = 0;
    if (!napier_is_huge(max)) {
        const int64_t unit = look.unit - NAPIER_TERM_SCALE - napier_exp_parts_for(max, max).n;
        rest = ldexp((double)kernels->weighted_rest(x, b, n, &look), (int)unit);
    }
    return finish_f32(look.max, weight, rest);
}

/* The weights of the elements that equal the maximum, in units of 2^unit. */
static double weight_of_ties_f64(const double *x, const double *b, int n, double max, int64_t unit) {
    int ties = 0;
    double only = 0;
    for (int i = 0; i < n; i++) {
        const bool is_tied = x[i] == max && b[i] != 0;
        ties += is_tied;
        only = is_tied ? b[i] : only;
    }
    if (ties == 1) {
        return unit == 0 ? only : ldexp(only, (int)-unit);
    }
    napier_weighted_sum s = {.wide = true};
    for (int i = 0; i < n; i++) {
        if (x[i] == max && b[i] != 0) {
            add_weight(&s, b[i]);
        }
    }
    return napier_digits_value(s.weight, NAPIER_WEIGHT_DIGITS_F64, WEIGHT_TOP_F64, unit);
}

napier_weighted_result napier_weighted_one_tile_f64(const napier_softmax_kernels *kernels, const double *x,
                                                    const double *b, int n) {
    napier_weighted_look look;
    kernels->f64_weighted_look(x, b, n, &look);
    if (is_special(look.nan, look.plus, look.minus) || look.max == -HUGE_VAL) {
        return special_result(look.nan, look.plus, look.minus);
    }
    const double max = look.max + 0.0; /* -0 and +0 are one maximum */
    const scale_f64 scale = scale_of_f64(max, look.unit);
    const double weight = weight_of_ties_f64(x, b, n, max, scale.unit);
    double rest = 0;
    if (!napier_f64_is_huge(max)) {
        rest = kernels->f64_weighted_rest(x, b, n, &look) + 0.0;
        const int64_t shift = look.unit - scale.parts.n - scale.unit;
        rest = shift == 0 ? rest : ldexp(rest, (int)shift);
    }
    return finish_f64(max, &scale, weight, rest);
}

/* ---- Untrusted sums ------------------------------------------------------------------------------------------------- */

static uint64_t magnitude(uint64_t digit) { return digit >> 63 ? 0 - digit : digit; }

/* Are all digits within what so many elements can add? `ties` will be added to `rest` one day, so their sum counts. */
static bool digits_fit(const uint64_t *a, const uint64_t *b, int digits, int64_t elements) {
    const uint64_t most = (uint64_t)elements << NAPIER_DIGIT_BITS;
    for (int j = 0; j < digits; j++) {
        const uint64_t size = magnitude(a[j]);
        if (size > most || (b && magnitude(b[j]) > most - size)) {
            return false;
        }
    }
    return true;
}

static bool are_zero(const uint64_t *digit, int digits) {
    uint64_t any = 0;
    for (int j = 0; j < digits; j++) {
        any |= digit[j];
    }
    return any == 0;
}

bool napier_weighted_sum_valid(const napier_weighted_sum *s, int64_t elements) {
    const int digits = napier_weighted_digits(s), weights = napier_weight_digits(s);
    if (!(s->max < HUGE_VAL) || elements < 0 || elements >= NAPIER_WEIGHTED_MOST ||
        (!s->wide && (double)(float)s->max != s->max) || !digits_fit(s->weight, NULL, weights, elements) ||
        !digits_fit(s->rest, s->ties, digits, elements)) {
        return false;
    }
    if ((s->max == -HUGE_VAL && !are_zero(s->weight, weights)) || (elements == 0 && s->max != -HUGE_VAL)) {
        return false;
    }
    if (s->max == -HUGE_VAL || is_huge(s, s->max)) {
        return s->unit == INT64_MIN && are_zero(s->ties, digits) && are_zero(s->rest, digits);
    }
    const int64_t exponent = exponent_of(s);
    return s->unit >= exponent - UNIT_REACH && s->unit <= exponent + UNIT_REACH;
}
