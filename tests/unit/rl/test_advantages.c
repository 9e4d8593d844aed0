/* Group advantages against the formula in long double; equal rewards, NaN, infinities, groups of every size, dtypes,
 * strides, in place; hostile arguments. */
#include "support/check.h"

#include <math.h>
#include <string.h>

#include <napier/rl.h>

#include "support/formats.h"

enum { MOST = 600 };
typedef long double real;

static const napier_indices no_groups = {NULL, 0, NAPIER_I64};

static real deviation_of(const float *r, int64_t begin, int64_t end, real *mean) {
    real sum = 0, squares = 0, n = 0;
    for (int64_t i = begin; i < end; i++) {
        sum += isnan(r[i]) ? 0 : (real)r[i];
        n += isnan(r[i]) ? 0 : 1;
    }
    *mean = n > 0 ? sum / n : 0;
    for (int64_t i = begin; i < end; i++) {
        squares += isnan(r[i]) ? 0 : ((real)r[i] - *mean) * ((real)r[i] - *mean);
    }
    return n > 1 ? sqrtl(squares / (n - 1)) : 0;
}

static void check_group(const float *got, const float *r, int64_t begin, int64_t end, int64_t all,
                        const napier_advantage_options *o) {
    real mean, whole;
    const real group = deviation_of(r, begin, end, &mean), batch = deviation_of(r, 0, all, &whole);
    const real divisor =
        o->scale == NAPIER_SCALE_NONE ? 1 : (o->scale == NAPIER_SCALE_GROUP ? group : batch) + (real)o->epsilon;
    for (int64_t i = begin; i < end; i++) {
        const real truth = isnan(r[i]) ? 0 : ((real)r[i] - mean) / divisor;
        expect(fabsl((real)got[i] - truth) <= 0x1.01p-24L * fabsl(truth) + 1e-15L, "scale %d: %lld is %.9g, not %.9Lg",
               (int)o->scale, (long long)i, (double)got[i], truth);
    }
}

static void test_formula(napier_context *c) {
    float r[MOST], got[MOST];
    int64_t offsets[MOST];
    rng random = rng_make(5);
    for (int round = 0; round < 60; round++) {
        napier_advantage_options o = NAPIER_ADVANTAGE_OPTIONS_INIT;
        o.scale = (napier_advantage_scale)(round % 3);
        o.epsilon = round % 4 ? 1e-4 : 0.5;
        const int64_t groups = 1 + rng_below(&random, 9);
        offsets[0] = 0;
        for (int64_t g = 0; g < groups; g++) {
            offsets[g + 1] = offsets[g] + (round % 2 ? 8 : rng_below(&random, 30));
        }
        const int64_t n = offsets[groups];
        for (int64_t i = 0; i < n; i++) {
            const bool known = round % 5 != 4 || rng_below(&random, 4) > 0;
            r[i] = known ? (float)(rng_normal(&random) * (round % 7 ? 1.0 : 1e30)) : NAN;
        }
        works(napier_group_advantages, c, napier_const_array_f32(r, n), napier_indices_i64(offsets, groups + 1), &o,
              napier_array_f32(got, n));
        for (int64_t g = 0; g < groups; g++) {
            check_group(got, r, offsets[g], offsets[g + 1], n, &o);
        }
        if (round % 2) { /* the same groups by their size, in place */
            o.group_size = 8;
            works(napier_group_advantages, c, napier_const_array_f32(r, n), no_groups, &o, napier_array_f32(r, n));
            expect(!memcmp(r, got, (size_t)n * sizeof *r), "round %d: in place, by size: other bits", round);
        }
    }
}

static void test_special_rewards(napier_context *c) {
    static const struct {
        float rewards[4], advantages[4];
        napier_advantage_scale scale;
        double epsilon;
    } all[] = {
        {{0.1f, 0.1f, 0.1f, 0.1f}, {0, 0, 0, 0}, NAPIER_SCALE_GROUP, 1e-4}, /* exactly */
        {{0.1f, 0.1f, 0.1f, 0.1f}, {0, 0, 0, 0}, NAPIER_SCALE_GROUP, 0},    /* 0 / 0 */
        {{NAN, NAN, NAN, NAN}, {0, 0, 0, 0}, NAPIER_SCALE_GROUP, 1e-4},
        {{NAN, 5, NAN, NAN}, {0, 0, 0, 0}, NAPIER_SCALE_BATCH, 1e-4}, /* nothing to compare it with */
        {{1, NAN, 3, NAN}, {-1, 0, 1, 0}, NAPIER_SCALE_NONE, 1e-4},
        {{INFINITY, 1, 2, 3}, {0, 0, 0, 0}, NAPIER_SCALE_GROUP, 1e-4},
        {{-INFINITY, 1, 2, 3}, {0, 0, 0, 0}, NAPIER_SCALE_NONE, 1e-4},
        {{INFINITY, -INFINITY, 2, 3}, {0, 0, 0, 0}, NAPIER_SCALE_BATCH, 1e-4},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        napier_advantage_options o = NAPIER_ADVANTAGE_OPTIONS_INIT;
        float got[4];
        o.scale = all[i].scale;
        o.epsilon = all[i].epsilon;
        o.group_size = 4;
        works(napier_group_advantages, c, napier_const_array_f32(all[i].rewards, 4), no_groups, &o,
              napier_array_f32(got, 4));
        for (int k = 0; k < 4; k++) {
            expect(got[k] == all[i].advantages[k], "case %zu: advantage %d is %g", i, k, (double)got[k]);
        }
    }
}

/* f16 and bf16 of any stride: the rounded ones of the widened rewards. A batch of nothing. */
static void test_dtypes(napier_context *c) {
    static const napier_dtype dtypes[] = {NAPIER_F16, NAPIER_BF16};
    napier_advantage_options o = NAPIER_ADVANTAGE_OPTIONS_INIT;
    o.group_size = 5;
    for (int d = 0; d < 2; d++) {
        uint16_t in[3 * 20], out[2 * 20];
        float r[20], wide[20];
        rng random = rng_make(3);
        for (int i = 0; i < 20; i++) {
            element_set(in, dtypes[d], 3 * i, rng_normal(&random));
            r[i] = (float)element_get(in, dtypes[d], 3 * i);
        }
        works(napier_group_advantages, c, napier_const_array_f32(r, 20), no_groups, &o, napier_array_f32(wide, 20));
        works(napier_group_advantages, c, (napier_const_vector){in, 20, 3, dtypes[d]}, no_groups, &o,
              (napier_vector){out, 20, 2, dtypes[d]});
        for (int i = 0; i < 20; i++) {
            const double got = element_get(out, dtypes[d], 2 * i);
            expect(fabs(got - (double)wide[i]) <= 0.004 * fabs((double)wide[i]), "%s: %d is %g, not %g",
                   napier_dtype_name(dtypes[d]), i, got, (double)wide[i]);
        }
    }
    const int64_t none[] = {0, 0, 0};
    works(napier_group_advantages, c, NO_CONST_VECTOR, no_groups, NULL, NO_VECTOR);
    works(napier_group_advantages, c, NO_CONST_VECTOR, napier_indices_i64(none, 3), NULL, NO_VECTOR);
}

static void test_refusals(napier_context *c) {
    float r[6] = {1, 2, 3, 4, 5, 6}, out[6] = {7};
    const int64_t falling[] = {0, 4, 3, 6}, few[] = {0, 3, 5};
    const napier_const_vector rewards = napier_const_array_f32(r, 6);
    const napier_vector to = napier_array_f32(out, 6);
    const struct {
        int64_t size;
        int scale;
        double epsilon;
        napier_indices groups;
        napier_vector to;
        const char *words;
    } all[] = {{0, 0, 0, no_groups, to, "group_size 0"},
               {4, 0, 0, no_groups, to, "group_size 4 does not divide 6"},
               {-2, 0, 0, no_groups, to, "group_size -2"},
               {3, 3, 0, no_groups, to, "scale 3"},
               {3, -1, 0, no_groups, to, "scale -1"},
               {3, 0, -1, no_groups, to, "epsilon -1"},
               {3, 0, (double)NAN, no_groups, to, "epsilon"},
               {3, 0, HUGE_VAL, no_groups, to, "epsilon inf"},
               {3, 0, 0, napier_indices_i64(falling, 4), to, "group_offsets[2]"},
               {3, 0, 0, napier_indices_i64(few, 3), to, "group_offsets"},
               {3, 0, 0, napier_indices_i64(few, 0), to, "group_offsets"},
               {3, 0, 0, no_groups, napier_array_f32(out, 5), "advantages"},
               {3, 0, 0, no_groups, napier_array_f32(r + 1, 6), "advantages"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        napier_advantage_options o = NAPIER_ADVANTAGE_OPTIONS_INIT;
        o.group_size = all[i].size;
        o.scale = (napier_advantage_scale)all[i].scale;
        o.epsilon = all[i].epsilon;
        invalid(c, napier_group_advantages(c, rewards, all[i].groups, &o, all[i].to), all[i].words);
    }
    expect(out[0] == 7, "a refused call wrote");
}

int main(void) {
    return RUN_TESTS("advantages", TEST_2(test_formula), TEST_1(test_special_rewards), TEST_1(test_dtypes),
                     TEST_1(test_refusals));
}
