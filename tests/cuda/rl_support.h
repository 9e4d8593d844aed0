/* tests/cuda/rl_support.h - calls of tokens and losses on both sides: arrays here and on the device, results compared byte for byte,
 * gaps between elements included. */
#ifndef NAPIER_TESTS_RL_SUPPORT_H
#define NAPIER_TESTS_RL_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* after those that it needs */
#include <cmocka.h>
#include <napier/cuda.h>
#include <napier/rl.h>

#include "cuda_test.h"
#include "support/rows.h"

static napier_context *cpu;
static napier_cuda_context *gpu;

/* An array on both sides: the same bytes, or the same poison. */
typedef struct pair {
    void *here, *there;
    size_t size;
} pair;

enum { PAIRS = 64 };
static pair pairs[PAIRS];
static int pairs_used;

static inline pair both_of(const void *from, size_t size) {
    pair p = {malloc(size + 1), NULL, size};
    if (from) {
        memcpy(p.here, from, size);
    } else {
        memset(p.here, 0xa5, size);
    }
    p.there = device_copy(p.here, size);
    assert_true(pairs_used < PAIRS);
    return pairs[pairs_used++] = p;
}
static inline void both_forget(void) {
    for (int i = 0; i < pairs_used; i++) {
        free(pairs[i].here);
        device_free(pairs[i].there);
    }
    pairs_used = 0;
}

/* Are results the same? Tells of the first byte that is not. */
static inline void same(const char *what, const pair *p) {
    unsigned char *const got = malloc(p->size + 1);
    device_read(got, p->there, p->size);
    for (size_t i = 0; i < p->size; i++) {
        if (got[i] != ((const unsigned char *)p->here)[i]) {
            fprintf(stderr, "%s: byte %zu of %zu is %02x, not %02x", what, i, p->size, got[i],
                    ((const unsigned char *)p->here)[i]);
            if (i / 4 * 4 + 4 <= p->size) {
                float a, b;
                memcpy(&a, got + i / 4 * 4, 4);
                memcpy(&b, (const char *)p->here + i / 4 * 4, 4);
                fprintf(stderr, " (as f32: %.9g, not %.9g)", (double)a, (double)b);
            }
            fprintf(stderr, "\n");
            free(got);
            fail();
        }
    }
    free(got);
}

static inline void gpu_ok(const char *what, napier_status status) {
    if (status) {
        fprintf(stderr, "%s: %s\n", what, napier_cuda_last_error(gpu));
    }
    assert_int_equal(status, NAPIER_OK);
}
static inline void cpu_ok(const char *what, napier_status status) {
    if (status) {
        fprintf(stderr, "%s: %s\n", what, napier_last_error(cpu));
    }
    assert_int_equal(status, NAPIER_OK);
}

/* Runs `call` (an expression with `w`, a workspace) twice: for the size, then with just that. */
#define WITH_WORKSPACE(what, call)                                                                    \
    do {                                                                                              \
        napier_cuda_workspace workspace_ = {NULL, 0}, *w = &workspace_;                               \
        gpu_ok(what, call);                                                                           \
        workspace_.data = workspace_.size > 0 ? both_of(NULL, workspace_.size).there : device_new(0); \
        gpu_ok(what, call);                                                                           \
        gpu_ok(what, napier_cuda_synchronize(gpu, NULL));                                             \
    } while (0)

/* ---- Views of one side ---------------------------------------------------------------------------------------------- */

static inline size_t bytes_of(napier_dtype dtype) { return dtype == NAPIER_F32 ? 4 : 2; }

/* `size` elements `stride` apart. */
typedef struct line {
    pair p;
    napier_dtype dtype;
    int64_t size, stride;
} line;

static inline void put_element(void *data, napier_dtype dtype, int64_t i, float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    if (dtype == NAPIER_F32) {
        ((float *)data)[i] = x;
    } else { /* cut off: any value will do */
        ((uint16_t *)data)[i] = dtype == NAPIER_BF16                ? (uint16_t)(bits >> 16)
                                : x != x                            ? 0x7e00
                                : (bits & 0x7fffffffu) < 0x38800000 ? (uint16_t)(bits >> 16 & 0x8000)
                                : (bits & 0x7fffffffu) > 0x477fe000
                                    ? (uint16_t)(0x7c00 | (bits >> 16 & 0x8000))
                                    : (uint16_t)((bits >> 16 & 0x8000) | ((bits & 0x7fffffffu) - 0x38000000) >> 13);
    }
}

static inline line line_in(const float *x, int64_t size, napier_dtype dtype, int64_t stride) {
    const size_t bytes = (size_t)(size > 0 ? (size - 1) * stride + 1 : 0) * bytes_of(dtype);
    void *const data = malloc(bytes + 1);
    memset(data, 0x5a, bytes);
    for (int64_t i = 0; i < size; i++) {
        put_element(data, dtype, i * stride, x[i]);
    }
    const line l = {both_of(data, bytes), dtype, size, stride};
    free(data);
    return l;
}
static inline line line_out(int64_t size, napier_dtype dtype, int64_t stride) {
    const size_t bytes = (size_t)(size > 0 ? (size - 1) * stride + 1 : 0) * bytes_of(dtype);
    const line l = {both_of(NULL, bytes), dtype, size, stride};
    return l;
}
static inline napier_const_vector here(line l) { return (napier_const_vector){l.p.here, l.size, l.stride, l.dtype}; }
static inline napier_const_vector there(line l) { return (napier_const_vector){l.p.there, l.size, l.stride, l.dtype}; }
static inline napier_vector here_out(line l) { return (napier_vector){l.p.here, l.size, l.stride, l.dtype}; }
static inline napier_vector there_out(line l) { return (napier_vector){l.p.there, l.size, l.stride, l.dtype}; }

/* Rows of a matrix lie in a line. */
static inline napier_const_matrix rows_here(line l, int64_t rows, int64_t cols, int64_t row_stride) {
    return (napier_const_matrix){l.p.here, rows, cols, row_stride, l.stride, l.dtype};
}
static inline napier_const_matrix rows_there(line l, int64_t rows, int64_t cols, int64_t row_stride) {
    return (napier_const_matrix){l.p.there, rows, cols, row_stride, l.stride, l.dtype};
}
static inline napier_matrix rows_here_out(line l, int64_t rows, int64_t cols, int64_t row_stride) {
    return (napier_matrix){l.p.here, rows, cols, row_stride, l.stride, l.dtype};
}
static inline napier_matrix rows_there_out(line l, int64_t rows, int64_t cols, int64_t row_stride) {
    return (napier_matrix){l.p.there, rows, cols, row_stride, l.stride, l.dtype};
}

typedef struct integers {
    pair p;
    int64_t size;
} integers;
static inline integers integers_in(const int64_t *x, int64_t size, napier_index_type type) {
    integers l = {{NULL, NULL, 0}, size};
    if (type == NAPIER_I64) {
        l.p = both_of(x, (size_t)size * 8);
    } else {
        int32_t *const narrow = malloc((size_t)size * 4 + 1);
        for (int64_t i = 0; i < size; i++) {
            narrow[i] = (int32_t)x[i];
        }
        l.p = both_of(narrow, (size_t)size * 4);
        free(narrow);
    }
    return l;
}
static inline napier_index_type type_of(const integers *l) {
    return l->p.size == (size_t)l->size * 8 ? NAPIER_I64 : NAPIER_I32;
}
static inline napier_indices indices_here(integers l) {
    return (napier_indices){l.p.here, l.size, l.size > 0 ? type_of(&l) : NAPIER_I64};
}
static inline napier_indices indices_there(integers l) {
    return (napier_indices){l.p.there, l.size, l.size > 0 ? type_of(&l) : NAPIER_I64};
}

/* ---- Batches -------------------------------------------------------------------------------------------------------- */

/* Responses of 0 to `most` tokens; returns how many tokens. offsets: [responses + 1]. */
static inline int64_t make_offsets(rng *r, int64_t responses, int64_t most, int64_t *offsets) {
    offsets[0] = 0;
    for (int64_t b = 0; b < responses; b++) {
        offsets[b + 1] = offsets[b] + (b % 4 == 2 ? 0 : b % 3 == 1 ? most : rng_below(r, most + 1));
    }
    return offsets[responses];
}

/* Log-probabilities; some special values where `wild`. */
static inline void make_logprobs(rng *r, float *x, int64_t n, double spread, bool wild) {
    static const float special[] = {0.0f, -0.0f, -INFINITY, NAN, -1e30f, -1e-40f, INFINITY, -90.0f};
    for (int64_t i = 0; i < n; i++) {
        x[i] = (float)(-1.5 + spread * rng_normal(r));
        if (wild && rng_below(r, 40) == 0) {
            x[i] = special[rng_below(r, 8)];
        }
    }
}

static inline void both_set_up(void) {
    device_wanted();
    const napier_context_options options = {.struct_size = sizeof options, .threads = 1};
    assert_int_equal(napier_context_create(&cpu, &options), NAPIER_OK);
    assert_int_equal(napier_cuda_context_create(&gpu, -1), NAPIER_OK);
}
static inline void both_tear_down(void) {
    both_forget();
    napier_cuda_context_destroy(gpu);
    napier_context_destroy(cpu);
}

#endif
