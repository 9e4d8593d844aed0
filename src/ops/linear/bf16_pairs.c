/* ops/linear/bf16_pairs.c - see ops/linear/bf16_pairs.h. Source: Intel 64 and IA-32 Architectures Software Developer's
 * Manual, VDPBF16PS. Measured on a Zen 5: its two additions are in this order too. */
#include "ops/linear/bf16_pairs.h"

#include <string.h>

#include "core/base/scope.h"
#include "ops/linear/product.h"

void napier_bf16_pairs_turn(uint32_t *lanes, int64_t count) {
    for (uint32_t *end = lanes + count / 2 * NAPIER_ENGINE_LANES; lanes < end; lanes += 2 * NAPIER_ENGINE_LANES) {
        for (int l = 0; l < NAPIER_ENGINE_LANES; l++) {
            const uint32_t first = lanes[l], second = lanes[NAPIER_ENGINE_LANES + l];
            lanes[l] = first << 16 | (second & 0xffffu);
            lanes[NAPIER_ENGINE_LANES + l] = (first & 0xffff0000u) | second >> 16;
        }
    }
}

#if defined(__x86_64__) && (defined(__clang__) ? __clang_major__ >= 9 : __GNUC__ >= 10)

#include <cpuid.h>
#include <immintrin.h>

#define NAPIER_PAIRS __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))
#define NAPIER_PAIRS_KERNEL NAPIER_PAIRS __attribute__((always_inline)) static inline
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* A patch has separate sums for even and odd k: 6 x 2 vectors of them are 24 of 32 registers. */
enum { ROWS = 6, VECTORS = 2, LANES = NAPIER_ENGINE_LANES, BLOCK = NAPIER_PAIRS_BLOCK };
/* k of the rows that are turned at a time. They stay in the first-level cache. */
enum { PIECE = 1024, STEP = PIECE + BLOCK, AHEAD = 4 * BLOCK };

typedef struct patch {
    const uint16_t *rows[ROWS];     /* in place, at k = at */
    const uint32_t *lanes[VECTORS]; /* at k = at */
    int64_t at, k;                  /* the piece */
    int64_t cols;                   /* of the rows, from `at` on */
    int64_t next;                   /* elements from these rows to those that are multiplied after them */
    float *c;
    bool first, turned; /* turned: `room` holds the rows already */
} patch;

/* Turns a block of the rows. Beyond the end of a row they are 0. */
NAPIER_PAIRS_KERNEL void turn_rows(const int rows, const patch *p, int64_t k, uint16_t *room) {
    const __m512i order = _mm512_set4_epi32(0x0b0a0f0e, 0x09080d0c, 0x03020706, 0x01000504);
    const int64_t left = p->cols - k, ahead = k + AHEAD < p->k ? k + AHEAD : k + AHEAD - p->k + p->next;
    const __mmask32 there = left >= BLOCK ? ~0u : left <= 0 ? 0u : (1u << left) - 1u;
    UNROLL
    for (int r = 0; r < rows; r++) {
        const __m512i x = _mm512_maskz_loadu_epi16(there, p->rows[r] + k);
        _mm512_storeu_si512(room + r * STEP + k, _mm512_shuffle_epi8(x, order));
        __builtin_prefetch((const void *)((uintptr_t)p->rows[r] + (uintptr_t)(ahead * (int64_t)sizeof *room)));
    }
}

NAPIER_PAIRS_KERNEL __m512 broadcast(const uint16_t *pair) {
    int32_t bits;
    memcpy(&bits, pair, sizeof bits);
    return _mm512_castsi512_ps(_mm512_set1_epi32(bits));
}

/* One block of k. */
NAPIER_PAIRS_KERNEL void multiply_block(const int rows, const int vectors, const patch *p, const uint16_t *room,
                                        int64_t k, int64_t c_step) {
    __m512 sum[2][ROWS][VECTORS];
    UNROLL
    for (int r = 0; r < rows; r++) {
        UNROLL
        for (int v = 0; v < vectors; v++) {
            sum[0][r][v] = sum[1][r][v] = _mm512_setzero_ps();
        }
    }
    UNROLL
    for (int i = 0; i < BLOCK / 2; i++) {
        __m512i lanes[VECTORS];
        UNROLL
        for (int v = 0; v < vectors; v++) {
            lanes[v] = _mm512_loadu_si512(p->lanes[v] + (k / 2 + i) * LANES);
        }
        UNROLL
        for (int r = 0; r < rows; r++) {
            const __m512 x = broadcast(room + r * STEP + k + 2 * i);
            UNROLL
            for (int v = 0; v < vectors; v++) {
                sum[i % 2][r][v] = _mm512_dpbf16_ps(sum[i % 2][r][v], (__m512bh)x, (__m512bh)lanes[v]);
            }
        }
    }
    const bool start = p->first && k == 0;
    UNROLL
    for (int r = 0; r < rows; r++) {
        UNROLL
        for (int v = 0; v < vectors; v++) {
            float *const c = p->c + r * c_step + v * LANES;
            const __m512 both = _mm512_add_ps(sum[0][r][v], sum[1][r][v]);
            _mm512_storeu_ps(c, _mm512_add_ps(start ? _mm512_setzero_ps() : _mm512_loadu_ps(c), both));
        }
    }
}

NAPIER_PAIRS_KERNEL void multiply_patch(const int rows, const int vectors, const patch *p, uint16_t *room,
                                        int64_t c_step) {
    const patch q = *p;
    if (!q.turned) {
        turn_rows(rows, &q, 0, room);
    }
    for (int64_t k = 0; k < q.k; k += BLOCK) {
        if (!q.turned && k + BLOCK < q.k) {
            turn_rows(rows, &q, k + BLOCK, room);
        }
        multiply_block(rows, vectors, &q, room, k, c_step);
    }
}

/* All lanes. */
NAPIER_PAIRS_KERNEL void multiply_rows(const int rows, const napier_engine_block *b, int64_t row, patch *p,
                                       uint16_t *room) {
    p->turned = false;
    for (int64_t l = 0; l < b->lane_count; p->turned = true) {
        const int vectors = b->lane_count - l >= VECTORS * LANES ? VECTORS : 1;
        for (int v = 0; v < vectors; v++) {
            p->lanes[v] = b->lanes + (l / LANES + v) * b->lane_step + p->at / 2 * LANES;
        }
        p->c = b->c + row * b->c_step + l;
        if (vectors == VECTORS) {
            multiply_patch(rows, VECTORS, p, room, b->c_step);
        } else {
            multiply_patch(rows, 1, p, room, b->c_step);
        }
        l += vectors * LANES;
    }
}

/* Never inlined: while the flush mode is set, the compiler must not move arithmetic across its beginning or end. */
NAPIER_PAIRS static __attribute__((noinline)) void multiply(const napier_engine_block *b) {
    uint16_t room[ROWS * STEP];
    for (int64_t row = 0; row < b->row_count;) {
        const int64_t left = b->row_count - row, rows = left >= ROWS ? ROWS : left >= 4 ? 4 : 1;
        for (int64_t at = 0; at < b->k; at += PIECE) {
            patch p = {.at = at,
                       .k = napier_least(b->k - at, PIECE),
                       .cols = b->cols - at,
                       .next = at + PIECE < b->k ? PIECE : rows * b->row_step - at,
                       .first = b->first && at == 0};
            for (int64_t r = 0; r < rows; r++) {
                p.rows[r] = b->rows + (row + r) * b->row_step + at;
            }
            if (rows == ROWS) {
                multiply_rows(ROWS, b, row, &p, room);
            } else if (rows == 4) {
                multiply_rows(4, b, row, &p, room);
            } else {
                multiply_rows(1, b, row, &p, room);
            }
        }
        row += rows;
    }
}

void napier_bf16_pairs_multiply(const napier_engine_block *b) {
    const unsigned saved = _mm_getcsr();
    _mm_setcsr(saved | 0x8040u); /* FTZ and DAZ, for the sums; the instruction itself does not look at them */
    multiply(b);
    _mm_setcsr(saved);
}

/* ---- May it be used? --------------------------------------------------------------------------------------------- */

static bool is_here(const napier_context *context) {
    unsigned eax, ebx, ecx, edx;
    return context->isa == NAPIER_ISA_AVX512 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) && (eax & 1u << 5);
}

/* Whole patches and edges; k that is not a multiple of 4, and more than a piece. */
enum { CHECK_ROWS = 23, CHECK_LANES = 41, CHECK_K = PIECE + 75, CHECK_KINDS = 4 };

typedef struct pairs_check {
    uint16_t rows[CHECK_ROWS][CHECK_K], lanes[CHECK_LANES][CHECK_K];
    float products[2][CHECK_ROWS][CHECK_LANES];
} pairs_check;

/* bf16 numbers: ordinary, of all exponents, tiny, and around the smallest normal products. */
static void fill_check(pairs_check *check, int kind) {
    uint16_t *const numbers = check->rows[0];
    uint32_t state = 54321u + (uint32_t)kind;
    for (size_t i = 0; i < (sizeof check->rows + sizeof check->lanes) / sizeof *numbers; i++) {
        state = state * 1664525u + 1013904223u;
        const uint32_t random = state >> 8, exponents[CHECK_KINDS] = {120 + random / 256 % 8, 1 + random / 256 % 254,
                                                                      random / 256 % 60, 50 + random / 256 % 16};
        numbers[i] = (uint16_t)((random & 1u) << 15 | exponents[kind] << 7 | (random >> 1 & 0x7fu));
    }
}

static napier_status multiply_check(const napier_context *context, bool with, pairs_check *check) {
    napier_context alone = *context;
    alone.threads = 1;
    alone.bf16_pairs = with ? NAPIER_ENGINE_ON : NAPIER_ENGINE_OFF;
    const napier_const_matrix lanes = napier_const_rows(check->lanes, CHECK_LANES, CHECK_K, NAPIER_BF16);
    const napier_const_matrix rows = napier_const_rows(check->rows, CHECK_ROWS, CHECK_K, NAPIER_BF16);
    napier_product_plan plan = napier_product_plan_of(
        &alone, lanes, rows, napier_rows_f32(check->products[with][0], CHECK_ROWS, CHECK_LANES), false);
    NAPIER_MEMORY(memory, &alone);
    float *const packed = napier_take(&memory, sizeof(float), napier_product_floats(&alone, &plan));
    NAPIER_TRY(napier_taken(&memory, "product: no memory for a comparison"));
    napier_product_run(&alone, &plan, packed);
    return NAPIER_OK;
}

static bool is_trusted(const napier_context *context) {
    pairs_check *check = is_here(context) ? napier_alloc(&context->allocator, 1, sizeof *check) : NULL;
    bool trusted = check != NULL;
    for (int kind = 0; kind < CHECK_KINDS && trusted; kind++) {
        fill_check(check, kind);
        trusted = multiply_check(context, false, check) == NAPIER_OK &&
                  multiply_check(context, true, check) == NAPIER_OK &&
                  memcmp(check->products[0], check->products[1], sizeof check->products[0]) == 0;
    }
    napier_free(&context->allocator, check);
    return trusted;
}

void napier_bf16_pairs_decide(napier_context *context) {
    if (context->bf16_pairs == NAPIER_ENGINE_UNDECIDED) {
        NAPIER_DEFAULT_FENV;
        const bool on = context->engine != NAPIER_ENGINE_ON && is_trusted(context);
        context->bf16_pairs = on ? NAPIER_ENGINE_ON : NAPIER_ENGINE_OFF;
    }
}

#else

void napier_bf16_pairs_decide(napier_context *context) { context->bf16_pairs = NAPIER_ENGINE_OFF; }

void napier_bf16_pairs_multiply(const napier_engine_block *block) { (void)block; } /* never called */

#endif
