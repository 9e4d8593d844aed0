/* random_rows - three promises that no small test can show, on a thousand million elements of random rows:
 *   no log-probability is positive (a greater one is a loss below zero, an importance ratio above its bound);
 *   no probability is above the maximum's;
 *   the probabilities of a row sum to 1 within 3e-7.
 * Rows of sixteen kinds and 1 to 6,000 columns, f32 in and out; every eighth block goes through bf16 and f16 as well.
 *
 *     random_rows [--elements N] [--seed S]     default 1e9 */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <napier/napier.h>

#include "core/base/parallel.h"

enum { BLOCK = 1 << 17, KINDS = 16, WIDEST = 6000 };

typedef struct random_stream {
    uint64_t state;
} random_stream;

static uint64_t next(random_stream *r) { /* splitmix64 */
    uint64_t z = r->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static float uniform(random_stream *r) { return (float)(next(r) >> 40) * 0x1p-24f; }

/* Four uniforms of 16 bits from one word, standardised: bell enough. */
static float normal(random_stream *r) {
    const uint64_t w = next(r);
    const int sum = (int)(w & 0xffff) + (int)(w >> 16 & 0xffff) + (int)(w >> 32 & 0xffff) + (int)(w >> 48);
    return (float)(sum - 131070) * (1.0f / 37837.0f);
}

static float any_finite(random_stream *r) {
    for (;;) {
        const uint32_t bits = (uint32_t)next(r);
        float f;
        memcpy(&f, &bits, sizeof f);
        if (isfinite(f)) {
            return f;
        }
    }
}

static float element(random_stream *r, int kind, int64_t j, int64_t cols, float scale, float offset) {
    switch (kind) {
    case 0: return normal(r);
    case 1: return scale * normal(r);
    case 2: return scale * normal(r) + offset;
    case 3: return 20.0f * uniform(r) - 10.0f;
    case 4: return 2e4f * uniform(r) - 1e4f;
    case 5: return j == cols / 3 ? offset : -scale * uniform(r);       /* a peak, or a valley */
    case 6: return j == cols / 2 ? 0.0f : -17.0f - 2.0f * uniform(r);  /* the rest near half an ulp of 1 */
    case 7: return j == cols / 2 ? 0.0f : -80.0f - 60.0f * uniform(r); /* the rest near the flush threshold */
    case 8: return 1e-7f * normal(r);                                  /* all but equal */
    case 9: return (float)(next(r) % 3);                               /* ties */
    case 10: return any_finite(r);
    case 11: return offset + 1e-6f * fabsf(offset) * normal(r); /* neighbours in the float line */
    case 12: return next(r) & 3 ? -INFINITY : normal(r);
    case 13: return -scale * (float)j;                                         /* geometric weights */
    case 14: return scale * logf(uniform(r) + 0x1p-24f);                       /* exponential tails */
    default: return j & 1 ? offset : offset - 0x1p-20f * (float)(next(r) & 7); /* alternating, nearly tied */
    }
}

static void fill(random_stream *r, float *x, int64_t rows, int64_t cols, int kind) {
    for (int64_t i = 0; i < rows; i++) {
        const float scale = exp2f(12.0f * uniform(r) - 6.0f), offset = scale * scale * normal(r);
        for (int64_t j = 0; j < cols; j++) {
            x[i * cols + j] = element(r, kind, j, cols, scale, offset);
        }
    }
}

typedef struct tally {
    int64_t elements, rows, positive, above, not_one, nan, error;
    double worst_sum;
    float worst_logprob;
} tally;

static void look_at_row(const float *x, const float *probs, const float *logprobs, int64_t n, tally *t) {
    float highest = -INFINITY, at_highest = 0, greatest = 0;
    double sum = 0;
    int64_t positive = 0, nan = 0;
    for (int64_t j = 0; j < n; j++) {
        positive += logprobs[j] > 0.0f;
        nan += isnan(probs[j]) || isnan(logprobs[j]);
        sum += (double)probs[j];
        greatest = probs[j] > greatest ? probs[j] : greatest;
        at_highest = x[j] > highest ? probs[j] : at_highest;
        highest = x[j] > highest ? x[j] : highest;
        t->worst_logprob = logprobs[j] > t->worst_logprob ? logprobs[j] : t->worst_logprob;
    }
    t->elements += n;
    t->rows++;
    if (highest == -INFINITY) {
        t->nan += nan != n; /* all masked: NaN everywhere is right */
        return;
    }
    t->positive += positive;
    t->nan += nan;
    t->above += greatest > at_highest;
    t->not_one += !(fabs(sum - 1) <= 3e-7);
    t->worst_sum = fmax(t->worst_sum, fabs(sum - 1));
}

/* Positive 16-bit values are the bit patterns from 1 to infinity's. */
static void look_at_16(napier_context *context, const float *x, uint16_t *out, int64_t rows, int64_t cols, tally *t) {
    static const napier_dtype dtypes[] = {NAPIER_F16, NAPIER_BF16};
    static const uint16_t infinities[] = {0x7c00, 0x7f80};
    for (int d = 0; d < 2; d++) {
        t->error += napier_log_softmax(context, napier_const_rows_f32(x, rows, cols),
                                       napier_rows(out, rows, cols, dtypes[d]), NULL) != NAPIER_OK;
        for (int64_t i = 0; i < rows * cols; i++) {
            t->positive += out[i] > 0 && out[i] <= infinities[d];
        }
    }
}

typedef struct worker {
    napier_context *context;
    float *x, *probs, *logprobs;
    uint16_t *narrow;
    bool is_made;
    tally tally;
} worker;

static bool worker_make(worker *w) {
    w->is_made = true;
    napier_context_options options = NAPIER_CONTEXT_OPTIONS_INIT;
    options.threads = 1;
    const bool good = napier_context_create(&w->context, &options) == NAPIER_OK;
    w->x = malloc(BLOCK * sizeof *w->x);
    w->probs = malloc(BLOCK * sizeof *w->probs);
    w->logprobs = malloc(BLOCK * sizeof *w->logprobs);
    w->narrow = malloc(BLOCK * sizeof *w->narrow);
    return good && w->x && w->probs && w->logprobs && w->narrow;
}

static void worker_free(worker *w) {
    napier_context_destroy(w->context);
    free(w->x);
    free(w->probs);
    free(w->logprobs);
    free(w->narrow);
}

/* Block b is a function of the seed and b alone, so that threads change nothing. */
static void do_block(worker *w, uint64_t seed, int64_t b, tally *t) {
    random_stream r = {seed * 0x2545f4914f6cdd1du + (uint64_t)b * 0x9e3779b97f4a7c15u};
    const double share = (double)uniform(&r);
    const int64_t cols = 1 + (int64_t)(share * share * share * WIDEST), rows = BLOCK / cols;
    fill(&r, w->x, rows, cols, (int)(b % KINDS));
    const napier_const_matrix in = napier_const_rows_f32(w->x, rows, cols);
    t->error += napier_softmax(w->context, in, napier_rows_f32(w->probs, rows, cols), NULL) != NAPIER_OK;
    t->error += napier_log_softmax(w->context, in, napier_rows_f32(w->logprobs, rows, cols), NULL) != NAPIER_OK;
    for (int64_t i = 0; i < rows; i++) {
        look_at_row(w->x + i * cols, w->probs + i * cols, w->logprobs + i * cols, cols, t);
    }
    if (b / KINDS % 8 == 0) {
        look_at_16(w->context, w->x, w->narrow, rows, cols, t);
    }
}

static void add_tally(tally *sum, const tally *part) {
    sum->elements += part->elements;
    sum->rows += part->rows;
    sum->positive += part->positive;
    sum->above += part->above;
    sum->not_one += part->not_one;
    sum->nan += part->nan;
    sum->error += part->error;
    sum->worst_sum = fmax(sum->worst_sum, part->worst_sum);
    sum->worst_logprob = fmaxf(sum->worst_logprob, part->worst_logprob);
}

enum { MOST_WORKERS = 1024 };

static worker workers[MOST_WORKERS];

static void do_blocks(void *seed, int number, int64_t begin, int64_t end) {
    worker *const w = &workers[number];
    if (!w->is_made && !worker_make(w)) {
        w->tally.error++;
    }
    for (int64_t b = begin; b < end && w->tally.error == 0; b++) {
        do_block(w, *(const uint64_t *)seed, b, &w->tally);
    }
}

int main(int argc, char **argv) {
    double wanted = 1e9;
    uint64_t seed = 1;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--elements") == 0 && i + 1 < argc) {
            wanted = strtod(argv[++i], NULL);
        } else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc) {
            seed = strtoull(argv[++i], NULL, 10);
        } else {
            fprintf(stderr, "usage: random_rows [--elements N] [--seed S]\n");
            return 2;
        }
    }
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    /* A block holds at least BLOCK - WIDEST elements. */
    const int64_t blocks = (int64_t)(wanted / (BLOCK - WIDEST)) + 1;
    tally sum = {0, 0, 0, 0, 0, 0, 0, 0, 0};
    napier_context *context = NULL;
    sum.error += napier_context_create(&context, NULL) != NAPIER_OK;
    if (context) {
        napier_parallel(context, blocks, 4, do_blocks, &seed);
    }
    napier_context_destroy(context);
    for (int i = 0; i < MOST_WORKERS; i++) {
        add_tally(&sum, &workers[i].tally);
        worker_free(&workers[i]);
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    const bool good = !sum.positive && !sum.above && !sum.not_one && !sum.nan && !sum.error;
    printf("random_rows elements=%lld rows=%lld positive_logprobs=%lld greatest_logprob=%a probs_above_max=%lld "
           "sums_off=%lld worst_sum=%.3g nan=%lld errors=%lld seconds=%.1f\n",
           (long long)sum.elements, (long long)sum.rows, (long long)sum.positive, (double)sum.worst_logprob,
           (long long)sum.above, (long long)sum.not_one, sum.worst_sum, (long long)sum.nan, (long long)sum.error,
           (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec));
    printf("%d passed, %d failed\n", good, !good);
    return good ? 0 : 1;
}
