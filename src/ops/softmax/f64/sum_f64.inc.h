/* ops/softmax/f64/sum_f64.inc.h - tiles, the exact sum of tiles, and finals (see sum_f64.h). The CPU compiles this
 * once, in sum_f64.c. For a kernel of a GPU, sum_f64.h includes it. */

enum { NAPIER_F64_DIGIT_MASK = (1 << NAPIER_F64_DIGIT_BITS) - 1 };

/* Is x near enough to the maximum of its tile or row to count? */
NAPIER_BOTH bool f64_within_cutoff(double x, double max) { return x - max >= -NAPIER_F64_CUTOFF; }

NAPIER_BOTH int64_t f64_floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

/* Two digits of headroom above 2^n. */
NAPIER_BOTH int64_t f64_top_of(double max) {
    return napier_f64_is_huge(max) ? 0 : f64_floor_div(napier_f64_exp_parts(max).n, NAPIER_F64_DIGIT_BITS) + 2;
}

/* A term in units of 2^(exponent - 512), within the cutoff of a maximum whose n is `exponent`. */
NAPIER_BOTH double f64_scaled_term(napier_f64_parts x, int64_t exponent) {
    return x.p * napier_f64_power_of_two((int)(x.n - exponent + NAPIER_F64_TERM_SCALE));
}

/* ---- Digits ---------------------------------------------------------------------------------------------------- */

NAPIER_BOTH void f64_add_digit(napier_f64_sum *sum, int64_t place, uint64_t amount) {
    const int64_t j = sum->top - place;
    if (j >= 0 && j < NAPIER_F64_DIGITS) {
        sum->digit[j] += amount;
    }
}

/* Adds times * x * 2^exponent for a normal x > 0. It is split into digits first and then multiplied. That is linear, so
 * a digit below the window may be dropped before or after. times < 2^40 and a digit < 2^24, so no bin overflows. */
NAPIER_BOTH void f64_add_digits(napier_f64_sum *sum, uint64_t times, double x, int64_t exponent) {
    const uint64_t bits = napier_double_bits(x);
    const uint64_t significand = (bits & UINT64_C(0x000fffffffffffff)) | UINT64_C(0x0010000000000000);
    const int64_t unit = (int64_t)(bits >> 52) - 1075 + exponent;
    const int64_t place = f64_floor_div(unit, NAPIER_F64_DIGIT_BITS);
    const int shift = (int)(unit - place * NAPIER_F64_DIGIT_BITS);
    const uint64_t low = (significand & NAPIER_F64_DIGIT_MASK) << shift;
    const uint64_t high = ((significand >> NAPIER_F64_DIGIT_BITS) << shift) + (low >> NAPIER_F64_DIGIT_BITS);
    f64_add_digit(sum, place, times * (low & NAPIER_F64_DIGIT_MASK));
    f64_add_digit(sum, place + 1, times * (high & NAPIER_F64_DIGIT_MASK));
    f64_add_digit(sum, place + 2, times * (high >> NAPIER_F64_DIGIT_BITS & NAPIER_F64_DIGIT_MASK));
    f64_add_digit(sum, place + 3, times * (high >> 2 * NAPIER_F64_DIGIT_BITS));
}

NAPIER_BOTH void f64_move_window(napier_f64_sum *sum, int64_t top) {
    const int64_t by = top - sum->top;
    for (int64_t j = NAPIER_F64_DIGITS - 1; j >= 0 && by > 0; j--) {
        sum->digit[j] = j >= by ? sum->digit[j - by] : 0;
    }
    sum->top = top;
}

/* Raises the maximum to `max`, if that is larger: the old maxima become ordinary terms. */
NAPIER_BOTH void f64_raise(napier_f64_sum *sum, double max) {
    if (!(max > sum->max)) {
        return;
    }
    const int64_t top = f64_top_of(max);
    if (napier_f64_is_huge(max) ||
        napier_f64_is_huge(sum->max)) { /* infinities included: no old term is near enough to count */
        memset(sum->digit, 0, sizeof sum->digit);
        sum->top = top;
    } else {
        const napier_f64_parts old = napier_f64_exp_parts(sum->max);
        f64_move_window(sum, top);
        f64_add_digits(sum, sum->count, old.p, old.n);
    }
    sum->max = max;
    sum->count = 0;
}

/* The digits as one double in units of 2^(exponent - 512), rounded once, to nearest even. */
NAPIER_BOTH double f64_rest_of(const napier_f64_sum *sum, int64_t exponent) {
    uint64_t d[3 + NAPIER_F64_DIGITS + 3] = {0}; /* d[0] is at place top + 3 */
    int lead;
    const double value = napier_digits_sum(sum->digit, NAPIER_F64_DIGITS, d, &lead);
    const int64_t unit = (sum->top - lead) * NAPIER_F64_DIGIT_BITS - exponent + NAPIER_F64_TERM_SCALE;
    return value == 0 ? 0 : value * napier_f64_power_of_two((int)unit);
}

/* ---- The sum --------------------------------------------------------------------------------------------------- */

NAPIER_BOTH_LONG void napier_f64_sum_init(napier_f64_sum *sum) {
    memset(sum, 0, sizeof *sum);
    sum->max = -HUGE_VAL;
}

NAPIER_BOTH_LONG double napier_f64_fold(double lane[NAPIER_F64_LANES]) {
    for (int half = NAPIER_F64_LANES / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; i++) {
            lane[i] += lane[i + half];
        }
    }
    return lane[0];
}

/* What z adds to its lane: 0, or its term in units of 2^(exponent - 512). */
NAPIER_BOTH_LONG double napier_f64_term(double z, double max, int64_t exponent) {
    return z < max && f64_within_cutoff(z, max) ? f64_scaled_term(napier_f64_exp_parts(z), exponent) : 0;
}

NAPIER_BOTH_LONG int64_t napier_f64_exponent_of(double max) {
    return napier_f64_is_huge(max) ? 0 : napier_f64_exp_parts(max).n;
}

NAPIER_BOTH_LONG void napier_f64_sum_add_part(napier_f64_sum *sum, const napier_f64_tile_part *part) {
    sum->nan |= part->nan;
    if (part->max == -HUGE_VAL) {
        return;
    }
    napier_f64_sum tile;
    napier_f64_sum_init(&tile);
    f64_raise(&tile, part->max);
    tile.pinf = part->max == HUGE_VAL;
    tile.count = tile.pinf ? 0 : part->count;
    if (!napier_f64_is_huge(part->max) && part->rest > 0) {
        const int64_t exponent = napier_f64_exponent_of(part->max);
        f64_add_digits(&tile, 1, part->rest, exponent - NAPIER_F64_TERM_SCALE);
    }
    napier_f64_sum_merge(sum, &tile);
}

NAPIER_BOTH_LONG napier_f64_tile_part napier_f64_tile_by_definition(const double *z, int n) {
    napier_f64_tile_part part = {-HUGE_VAL, 0, 0, false};
    double lane[NAPIER_F64_LANES] = {0};
    for (int i = 0; i < n; i++) {
        part.nan |= z[i] != z[i];
        part.max = z[i] > part.max ? z[i] : part.max;
    }
    const int64_t exponent = napier_f64_exponent_of(part.max);
    for (int i = 0; i < n; i++) {
        part.count += z[i] == part.max ? 1 : 0;
        if (!napier_f64_is_huge(part.max)) {
            lane[i % NAPIER_F64_LANES] += napier_f64_term(z[i], part.max, exponent);
        }
    }
    part.rest = napier_f64_fold(lane);
    return part;
}

NAPIER_BOTH_LONG void napier_f64_sum_merge(napier_f64_sum *into, const napier_f64_sum *from) {
    napier_f64_sum other = *from;
    f64_raise(into, other.max);
    f64_raise(&other, into->max);
    into->nan |= other.nan;
    into->pinf |= other.pinf;
    into->count += other.count;
    for (int j = 0; j < NAPIER_F64_DIGITS; j++) {
        into->digit[j] += other.digit[j];
    }
}

NAPIER_BOTH_LONG bool napier_f64_sum_valid(const napier_f64_sum *sum) {
    const bool finite = fabs(sum->max) < HUGE_VAL;
    if (sum->max != sum->max || sum->pinf != (sum->max == HUGE_VAL) || sum->top != f64_top_of(sum->max)) {
        return false;
    }
    if (finite != (sum->count > 0) || sum->count >> 40 != 0) {
        return false;
    }
    uint64_t any = 0;
    for (int j = 0; j < NAPIER_F64_DIGITS; j++) {
        any |= sum->digit[j];
    }
    return any == 0 || !napier_f64_is_huge(sum->max);
}

/* ---- Results --------------------------------------------------------------------------------------------------- */

/* 1 / (x.high + x.low), almost as if rounded once. */
NAPIER_BOTH double f64_inverse_of(napier_double2 x) {
    const double inverse = 1.0 / x.high;
    const double remainder = fma(-inverse, x.high, 1.0) - inverse * x.low;
    return fma(inverse, remainder, inverse);
}

/* With P = exp(max) 2^-exponent and the rest R, u = count + R / P is the sum of exp(x - max). Then lse = max + log u,
 * the maximum's probability is 1 / u, and a term's probability is term / (P u). u, P and log u keep their low parts, so
 * that the results err only by their last rounding and by the error of R. */
NAPIER_BOTH void f64_finish_finite(double m, uint64_t count, napier_f64_parts max, double rest,
                                   napier_f64_final *final) {
    rest /= max.p;
    rest = fma(-rest, max.low / max.p, rest) * 0x1p-512;
    const napier_double2 u = napier_two_sum((double)count, rest);
    const napier_double2 log_u = napier_f64_log_of_sum(u);
    const napier_double2 lse = napier_two_sum(m, log_u.high);
    final->lse = lse.high + (lse.low + log_u.low);
    final->log_sum = log_u.high;
    final->log_sum_low = log_u.low;
    final->max_prob = f64_inverse_of(u);
    final->exponent = max.n;

    const napier_double2 divisor = napier_two_product(max.p, u.high);
    const double low = divisor.low + fma(max.p, u.low, max.low * u.high);
    final->scale = f64_inverse_of((napier_double2){divisor.high, low}) * 0x1p-512;
}

NAPIER_BOTH_LONG void napier_f64_finish(const napier_f64_sum *sum, napier_f64_final *final) {
    memset(final, 0, sizeof *final);
    final->max = sum->max;
    if (sum->nan) {
        final->row = NAPIER_F64_ROW_NAN;
        final->lse = napier_f64_nan();
    } else if (sum->pinf) {
        final->row = NAPIER_F64_ROW_PINF;
        final->lse = HUGE_VAL;
    } else if (sum->max == -HUGE_VAL) {
        final->row = NAPIER_F64_ROW_MASKED;
        final->lse = -HUGE_VAL;
    } else if (napier_f64_is_huge(sum->max)) {
        f64_finish_finite(sum->max, sum->count, (napier_f64_parts){.p = 1, .low = 0, .n = 0}, 0, final);
    } else {
        const napier_f64_parts max = napier_f64_exp_parts(sum->max);
        f64_finish_finite(sum->max, sum->count, max, f64_rest_of(sum, max.n), final);
    }
}

/* The digits would hold the rest exactly, and give it back. */
NAPIER_BOTH_LONG void napier_f64_finish_tile(const napier_f64_tile_part *part, napier_f64_final *final) {
    if (part->nan || !(fabs(part->max) <= NAPIER_F64_HUGE)) {
        napier_f64_sum sum;
        napier_f64_sum_init(&sum);
        napier_f64_sum_add_part(&sum, part);
        napier_f64_finish(&sum, final);
        return;
    }
    memset(final, 0, sizeof *final);
    final->max = part->max;
    f64_finish_finite(part->max, part->count, napier_f64_exp_parts(part->max), part->rest, final);
}

NAPIER_BOTH double f64_softmax_of(const napier_f64_final *final, double z) {
    if (z != z) {
        return napier_f64_nan();
    }
    if (z >= final->max) {
        return final->max_prob;
    }
    if (napier_f64_is_huge(final->max) || !f64_within_cutoff(z, final->max)) {
        return 0;
    }
    const double prob = f64_scaled_term(napier_f64_exp_parts(z), final->exponent) * final->scale;
    return prob < final->max_prob ? prob : final->max_prob;
}

/* (z - max) - log_sum, almost as if rounded once. The result is never positive, because z <= max and log_sum >= 0. */
NAPIER_BOTH double f64_log_softmax_of(const napier_f64_final *final, double z) {
    if (z != z) {
        return napier_f64_nan();
    }
    const napier_double2 d = napier_two_sum(z, -final->max);
    if (!(d.high > -0x1p1000)) { /* log_sum is negligible beside it, and the exact sums might overflow */
        return d.high;
    }
    const napier_double2 s = napier_two_sum(d.high, -final->log_sum);
    return s.high + (s.low + (d.low - final->log_sum_low));
}

NAPIER_BOTH_LONG void napier_f64_apply(const napier_f64_final *final, napier_softmax_kind kind,
                                       napier_masked_rows masked_rows, const double *z, double *out, int64_t n) {
    if (final->row != NAPIER_F64_ROW_FINITE) {
        double fill = napier_f64_nan();
        if (final->row == NAPIER_F64_ROW_MASKED && masked_rows == NAPIER_MASKED_ZERO) {
            fill = kind == NAPIER_KIND_SOFTMAX ? 0.0 : -HUGE_VAL;
        }
        for (int64_t i = 0; i < n; i++) {
            out[i] = fill;
        }
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        out[i] = kind == NAPIER_KIND_SOFTMAX ? f64_softmax_of(final, z[i]) : f64_log_softmax_of(final, z[i]);
    }
}
