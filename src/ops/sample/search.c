/* ops/sample/search.c - see search.h. The values' bits become integers in the same order (napier_rising). Each round divides
 * their range into buckets of equal width, adds up what is in each, and goes on in the bucket where the goal is reached. The
 * last bucket holds one value. Sums are integers, so the result does not depend on the order of the values. */
#include "ops/sample/search.h"

#include "core/base/sizes.h"
#include "ops/sample/draw.h"
#include "ops/tokens/quantile.h"

enum { BUCKETS = 1024 };

/* Keys from low on, in buckets of 2^shift keys. */
typedef struct range {
    uint32_t low;
    int shift;
} range;

static range range_of(const float *values, int64_t n) {
    uint32_t low = UINT32_MAX, high = 0;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t key = napier_rising(values[i]);
        low = key < low ? key : low;
        high = key > high ? key : high;
    }
    range r = {low, 0};
    while ((high - low) >> r.shift >= BUCKETS) {
        r.shift++;
    }
    return r;
}

static uint32_t bucket_of(range r, float value) { return (napier_rising(value) - r.low) >> r.shift; }

static void add_up(const napier_sample_measure *m, range r, const float *values, int64_t n, uint64_t *sums) {
    float terms[NAPIER_TILE + 16];
    memset(sums, 0, BUCKETS * sizeof *sums);
    for (int64_t at = 0; at < n; at += NAPIER_TILE) {
        const int part = (int)napier_least(n - at, NAPIER_TILE);
        if (!m->weights) {
            for (int i = 0; i < part; i++) {
                sums[bucket_of(r, values[at + i])]++;
            }
            continue;
        }
        m->kernels->terms(values + at, part, m->max, terms);
        for (int i = 0; i < part; i++) {
            sums[bucket_of(r, values[at + i])] += napier_sample_weight(terms[i], m->bits);
        }
    }
}

/* Moves the values of a bucket to the front. */
static int64_t keep_bucket(range r, uint32_t bucket, float *values, int64_t n) {
    int64_t kept = 0;
    for (int64_t i = 0; i < n; i++) {
        const float value = values[i];
        values[kept] = value;
        kept += bucket_of(r, value) == bucket ? 1 : 0;
    }
    return kept;
}

bool napier_sample_search(const napier_sample_measure *measure, float *values, int64_t n, uint64_t goal, float *least,
                          int64_t *ties) {
    uint64_t sums[BUCKETS], above = 0;
    for (;;) {
        const range r = range_of(values, n);
        add_up(measure, r, values, n, sums);
        int bucket = BUCKETS - 1;
        while (bucket >= 0 && above + sums[bucket] < goal) {
            above += sums[bucket--];
        }
        if (bucket < 0) {
            return false;
        }
        n = keep_bucket(r, (uint32_t)bucket, values, n);
        if (r.shift == 0) { /* all equal */
            *least = values[0];
            *ties = napier_sample_ties(goal, above, sums[bucket] / (uint64_t)n);
            return true;
        }
    }
}
