/* ops/sample/draw.h - the arithmetic of a draw: the definition that all kernels follow, in integers.
 *
 * Weights. The weight of an element is the integer floor(exp(z - E ln 2) 2^bits), with exp(max) = p 2^E, p in [0.70, 1.42],
 * and with the exponentials of ops/softmax/sum.h, so 0 further than the cutoff below the maximum. `bits` follows from the
 * row's length, so that the weights of a row add up to less than 2^63. They are integers: their sums have no order.
 * The weight of a tile comes from its sum in float (token_tile.h), which the logsumexp needs too: no further read.
 *
 * A draw, from a number u of 64 bits and the row after all filters:
 *     W        the sum of the tiles' weights
 *     target   floor(u W / 2^64)
 *     tile     the first at which the weights up to it add up to more than target; rest = target - those before it
 *     inside   w is the sum of the weights of the tile's elements with the tile's own maximum and 52 bits.
 *              target' = floor(rest / W_tile * w) in double, at most w - 1; the element is found as the tile was
 * The rest is rescaled because W_tile has the rounding of a sum in float, about 2^-21 of it.
 *
 * Plain C, shared by the CPU, CUDA and the tests. */
#ifndef NAPIER_OPS_SAMPLE_DRAW_H
#define NAPIER_OPS_SAMPLE_DRAW_H

#include "core/math/random.h"
#include "ops/softmax/sum.h"
#include "ops/tokens/quantile.h"

/* The ids that are kept: those with z > least, and those with z == least up to id `last`. */
typedef struct napier_sample_cut {
    float least;
    int64_t last;
} napier_sample_cut;

enum { NAPIER_SAMPLE_TILE_BITS = 52 };

/* A tile whose maximum is further than this below the row's has weight 0. */
#define NAPIER_SAMPLE_FAR 250.0f

/* An element weighs less than 2^(bits + 1), and there are fewer than 2^(62 - bits). */
NAPIER_BOTH int napier_sample_bits(int64_t cols) {
    int bits = 62;
    for (; cols > 0; cols >>= 1) {
        bits--;
    }
    return bits;
}

/* term: 2^64 exp(z - E ln 2). */
NAPIER_BOTH uint64_t napier_sample_weight(float term, int bits) {
    return (uint64_t)(int64_t)((double)term * napier_f64_power_of_two(bits - NAPIER_TERM_SCALE));
}

/* The term of an element in a row or tile with this maximum, which is finite. */
NAPIER_BOTH float napier_sample_term(float z, float max) {
    if (napier_is_huge(max)) {
        return z == max ? 0x1p64f : 0.0f;
    }
    return napier_within_cutoff(z, max) ? napier_term(z, max, napier_exp_parts_for(max, max).n) : 0.0f;
}

/* The weight of a tile from its slot; max: the row's maximum. */
NAPIER_BOTH uint64_t napier_sample_tile_weight(float tile_max, float count, float rest, float max, int bits) {
    if (napier_is_huge(max)) {
        return tile_max == max ? (uint64_t)count << bits : 0;
    }
    if (!((double)max - (double)tile_max <= (double)NAPIER_SAMPLE_FAR)) {
        return 0;
    }
    const napier_exp_parts parts = napier_exp_parts_for(tile_max, tile_max);
    const int64_t exponent = napier_exp_parts_for(max, max).n;
    const double sum = (double)count * (double)parts.p + (double)rest * 0x1p-64;
    return (uint64_t)(int64_t)(sum * napier_f64_power_of_two((int)(parts.n - exponent) + bits));
}

/* floor(whole * part / 2^64) */
NAPIER_BOTH uint64_t napier_sample_part(uint64_t whole, uint64_t part) {
    const uint64_t low = 0xffffffffu, a = whole >> 32, b = whole & low, c = part >> 32, d = part & low;
    const uint64_t middle = (b * d >> 32) + (a * d & low) + (b * c & low);
    return a * c + (a * d >> 32) + (b * c >> 32) + (middle >> 32);
}

/* The target inside a tile of weight `tile`, whose elements weigh `inside` > 0 together. */
NAPIER_BOTH uint64_t napier_sample_inside(uint64_t rest, uint64_t tile, uint64_t inside) {
    const uint64_t target = (uint64_t)(int64_t)((double)rest / (double)tile * (double)inside);
    return target < inside ? target : inside - 1;
}

/* The number u of a row. */
NAPIER_BOTH uint64_t napier_sample_number(uint64_t seed, uint64_t sample, uint64_t position) {
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const uint32_t counter[4] = {(uint32_t)position, (uint32_t)(position >> 32), (uint32_t)sample,
                                 (uint32_t)(sample >> 32)};
    uint32_t word[4];
    napier_philox4(key, counter, word);
    return (uint64_t)word[1] << 32 | word[0];
}

/* A logit after the penalties. count: times that the id is in the output. */
NAPIER_BOTH float napier_sample_penalized(float x, float repetition, float frequency, float presence, uint32_t count) {
    x = x < 0.0f ? x * repetition : x / repetition;
    return count > 0 ? (x - frequency * (float)count) - presence : x;
}

/* The weight that a beginning must have at least for top_p, of the whole row's weight. */
NAPIER_BOTH uint64_t napier_sample_goal(uint64_t whole, double top_p) {
    const uint64_t goal = napier_sample_part(whole, (uint64_t)(top_p * 0x1p64));
    return goal > 0 ? goal : 1;
}

/* The least float z with z - max >= log(min_p) in double; min_p > 0. */
NAPIER_BOTH float napier_sample_min_p_least(float max, double min_p) {
    const double distance = napier_f64_log(min_p), m = (double)max;
    uint32_t key = napier_rising((float)(m + distance));
    while ((double)napier_of_rising(key) - m < distance) {
        key++;
    }
    while ((double)napier_of_rising(key - 1) - m >= distance) {
        key--;
    }
    return napier_of_rising(key);
}

/* The number of equal elements that are kept, each of weight `each`, if those above them have the weight `above`. */
NAPIER_BOTH int64_t napier_sample_ties(uint64_t goal, uint64_t above, uint64_t each) {
    return (int64_t)((goal - above + each - 1) / each);
}

#endif
