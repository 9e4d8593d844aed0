/* ops/sample/sample.inc.h - the kernels of sampling. Compiled once per instruction set. */
#ifndef NAPIER_OPS_SAMPLE_SAMPLE_INC_H
#define NAPIER_OPS_SAMPLE_SAMPLE_INC_H

#include "ops/sample/draw.h"
#include "ops/sample/sample_kernels.h"
#include "ops/softmax/softmax.inc.h"

static int sample_collect(const float *z, int n, float least, float *out) {
    const vf limit = vf_set(least);
    int count = 0;
    for (int i = 0; i < n; i += 16) {
        const int part = n - i < 16 ? n - i : 16;
        if (!vm_any(vf_ge(vf_load_part(z + i, part, napier_minus_infinity()), limit))) {
            continue;
        }
        for (int j = i; j < i + part; j++) { /* without a branch: most are out, or most are in */
            out[count] = z[j];
            count += z[j] >= least ? 1 : 0;
        }
    }
    return count;
}

static int sample_ties(const float *z, int n, float x, int64_t *left) {
    const vf same = vf_set(x);
    for (int i = 0; i<n && * left> 0; i += 16) {
        const int part = n - i < 16 ? n - i : 16;
        const vm equal = vm_and(vf_eq(vf_load_part(z + i, part, same), same), vm_first(part));
        if (vm_count(equal) < *left) {
            *left -= vm_count(equal);
            continue;
        }
        for (int j = i; j < i + part; j++) {
            *left -= z[j] == x ? 1 : 0;
            if (*left == 0) {
                return j + 1;
            }
        }
    }
    return *left > 0 ? n : 0;
}

static void sample_cut(float *z, int n, float least, int end) {
    const vf limit = vf_set(least);
    for (int i = 0; i < n; i += 16) {
        const int part = n - i < 16 ? n - i : 16, ties = end <= i ? 0 : end - i < 16 ? end - i : 16;
        const vf v = vf_load_part(z + i, part, napier_minus_infinity());
        const vm in = vm_or(vf_gt(v, limit), vm_and(vf_eq(v, limit), vm_first(ties)));
        vf_store_part(z + i, part, vf_select(in, v, napier_minus_infinity()));
    }
}

static void sample_terms(const float *z, int n, float max, float *terms) {
    if (!(fabsf(max) <= NAPIER_BIG)) {
        for (int i = 0; i < n; i++) {
            terms[i] = napier_sample_term(z[i], max);
        }
        return;
    }
    const float magic = napier_term_magic(napier_exp_parts_small(max).n);
    terms_as(z, n, vf_set(max - NAPIER_CUTOFF), vf_set(magic), true, terms);
}

#define NAPIER_SAMPLE_KERNELS \
    { .collect = sample_collect, .ties = sample_ties, .cut = sample_cut, .terms = sample_terms }

#endif
