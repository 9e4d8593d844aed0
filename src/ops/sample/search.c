/* ops/sample/search.c - see search.h. Each round divides the range of the values into buckets of equal width, adds up what is
 * in each, and goes on in the bucket where the goal is reached, until all values there are equal. A bucket is a monotone
 * function of the value, and sums are integers. So the result depends neither on the widths nor on the order of values. */
#include "ops/sample/search.h"

#include <float.h>
#include <math.h>

#include "core/base/sizes.h"
#include "ops/sample/draw.h"

enum { BUCKETS = 1024 };

/* Values from low to high. Their buckets are linear in the value or, if the range is extreme, in its bits as an integer of
 * the same order. */
typedef struct range {
    float low, high;
    bool linear;
    float scale;
    uint32_t low_key;
    int shift;
} range;

static range range_of(const float *values, int64_t n) {
    enum { LANES = 8 };
    float low[LANES], high[LANES];
    for (int k = 0; k < LANES; k++) {
        low[k] = high[k] = values[0];
    }
    for (int64_t i = 0; i < n; i += LANES) {
        const int64_t at = i + LANES <= n ? i : n > LANES ? n - LANES : 0;
        for (int k = 0; k < LANES && k < n; k++) {
            const float value = values[at + k];
            low[k] = value < low[k] ? value : low[k];
            high[k] = value > high[k] ? value : high[k];
        }
    }
    range r = {.low = low[0], .high = high[0]};
    for (int k = 1; k < LANES; k++) {
        r.low = low[k] < r.low ? low[k] : r.low;
        r.high = high[k] > r.high ? high[k] : r.high;
    }
    const double width = (double)r.high - (double)r.low;
    r.linear = width > 0x1p-60 && width < 0x1p60;
    r.scale = r.linear ? (float)((double)(BUCKETS - 1) / width) : 0.0f;
    r.low_key = napier_rising(r.low);
    while ((napier_rising(r.high) - r.low_key) >> r.shift >= BUCKETS) {
        r.shift++;
    }
    return r;
}

static int bucket_of(const range *r, float value) {
    if (!r->linear) {
        return (int)((napier_rising(value) - r->low_key) >> r->shift);
    }
    const int bucket = (int)((value - r->low) * r->scale);
    return bucket < BUCKETS ? bucket : BUCKETS - 1;
}

static void add_up(const napier_sample_measure *m, const range *r, const float *values, int64_t n, uint64_t *sums) {
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
static int64_t keep_bucket(const range *r, int bucket, float *values, int64_t n) {
    int64_t kept = 0;
    for (int64_t i = 0; i < n; i++) {
        const float value = values[i];
        values[kept] = value;
        kept += bucket_of(r, value) == bucket ? 1 : 0;
    }
    return kept;
}

static uint64_t measure_of(const napier_sample_measure *m, float value) {
    return m->weights ? napier_sample_weight(napier_sample_term(value, m->max), m->bits) : 1;
}

bool napier_sample_search(const napier_sample_measure *measure, float *values, int64_t n, uint64_t goal, float *least,
                          int64_t *ties) {
    uint64_t sums[BUCKETS], above = 0;
    for (;;) {
        const range r = range_of(values, n);
        if (r.low == r.high) {
            const uint64_t each = measure_of(measure, r.low);
            *least = r.low;
            *ties = each > 0 ? napier_sample_ties(goal, above, each) : INT64_MAX;
            return *ties <= n;
        }
        add_up(measure, &r, values, n, sums);
        int bucket = BUCKETS - 1;
        while (bucket >= 0 && above + sums[bucket] < goal) {
            above += sums[bucket--];
        }
        if (bucket < 0) {
            return false;
        }
        n = keep_bucket(&r, bucket, values, n);
    }
}

/* ---- Estimates ---------------------------------------------------------------------------------------------------- */

/* The least value of a bucket, nearly. */
static float edge_of(const range *r, int bucket) {
    const float edge =
        r->linear ? r->low + (float)bucket / r->scale : napier_of_rising(r->low_key + ((uint32_t)bucket << r->shift));
    return edge < r->high ? edge : r->high;
}

/* Bucket i in the order of the sum: from above, or for weights from below. */
static int in_order(const napier_sample_measure *m, int i) { return m->weights ? i : BUCKETS - 1 - i; }

/* How many buckets in this order it takes to reach the goal; BUCKETS if they do not. */
static int buckets_to(const napier_sample_measure *m, const uint64_t *sums, double goal) {
    double sum = 0;
    int i = 0;
    while (i < BUCKETS && (sum += (double)sums[in_order(m, i)]) < goal) {
        i++;
    }
    return i;
}

/* The square of the standard deviation of the sum of the first buckets, if the elements are drawn at random. */
static double variance(const napier_sample_measure *m, const range *r, const uint64_t *sums, int buckets) {
    float edges[BUCKETS], terms[BUCKETS];
    double sum = 0;
    for (int i = 0; i < BUCKETS; i++) {
        edges[i] = edge_of(r, i);
    }
    if (m->weights) {
        m->kernels->terms(edges, BUCKETS, m->max, terms);
    }
    for (int i = 0; i <= buckets && i < BUCKETS; i++) {
        const int at = in_order(m, i);
        sum += (double)sums[at] * (m->weights ? (double)napier_sample_weight(terms[at], m->bits) : 1.0);
    }
    return sum;
}

void napier_sample_bracket(const napier_sample_measure *m, const float *values, int64_t n, double share, float floor,
                           float *low, float *high) {
    uint64_t sums[BUCKETS];
    const range r = range_of(values, n);
    *low = floor;
    *high = FLT_MAX;
    if (r.low == r.high) {
        return;
    }
    add_up(m, &r, values, n, sums);
    const double spare = 4.0 * sqrt(variance(m, &r, sums, buckets_to(m, sums, share)));
    const int near = buckets_to(m, sums, share - spare), far = buckets_to(m, sums, share + spare);
    const int lower = m->weights ? near : in_order(m, far), upper = m->weights ? far : in_order(m, near);
    if (lower > 0 && edge_of(&r, lower) > floor) {
        *low = edge_of(&r, lower);
    }
    if (upper < BUCKETS - 1) {
        *high = edge_of(&r, upper + 1);
    }
}
