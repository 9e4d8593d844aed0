/* ops/linear/bf16_pairs.c - see ops/linear/bf16_pairs.h. Source: Intel 64 and IA-32 Architectures Software Developer's
 * Manual, VDPBF16PS. A Zen 5 gave the same bits in 192 million sums of all kinds. */
#include "ops/linear/bf16_pairs.h"

#include <string.h>

#include "core/base/sizes.h"

void napier_bf16_pairs_turn(uint32_t *lanes, int64_t count) {
    for (uint32_t *end = lanes + count / 2 * NAPIER_ENGINE_LANES; lanes < end; lanes += 2 * NAPIER_ENGINE_LANES) {
        for (int l = 0; l < NAPIER_ENGINE_LANES; l++) {
            const uint32_t first = lanes[l], second = lanes[NAPIER_ENGINE_LANES + l];
            lanes[l] = first << 16 | (second & 0xffffu);
            lanes[NAPIER_ENGINE_LANES + l] = (first & 0xffff0000u) | second >> 16;
        }
    }
}

#include "ops/linear/bf16_step.h"
#if NAPIER_HAS_BF16_PAIRS

#include <cpuid.h>

/* A patch has separate sums for even and odd k: 6 x 2 vectors of them are 24 of 32 registers. */
enum { ROWS = 6, VECTORS = 2, LANES = NAPIER_ENGINE_LANES, BLOCK = NAPIER_PAIRS_BLOCK };
/* k that all rows are multiplied with, before the next: the turned rows stay in the first-level cache. */
enum { PIECE = 512, STEP = PIECE + BLOCK };

typedef struct patch {
    const uint16_t *rows[ROWS];     /* in place, at k = at */
    const uint32_t *lanes[VECTORS]; /* at k = at */
    int64_t at, k;                  /* the piece */
    int64_t cols;                   /* of the rows, from `at` on */
    int64_t next;                   /* elements from these rows to those that are multiplied next */
    float *c;
    bool first, fetch; /* fetch: the next rows */
} patch;

/* Turns the piece of a row. Beyond its end a row is 0. */
NAPIER_PAIRS_KERNEL void turn_row(const uint16_t *row, int64_t cols, int64_t k, uint16_t *out) {
    int64_t i = 0;
    for (; i < k && i + BLOCK <= cols; i += BLOCK) {
        _mm512_store_si512(out + i, turn_pairs(_mm512_loadu_si512(row + i)));
    }
    for (; i < k; i += BLOCK) {
        const __mmask32 there = i < cols ? (1u << (cols - i)) - 1u : 0u;
        const __m512i x = _mm512_maskz_loadu_epi16(there, row + i);
        _mm512_store_si512(out + i, turn_pairs(x));
    }
}

/* The block of the rows that are multiplied next. */
NAPIER_PAIRS_KERNEL void fetch_rows(const int rows, const patch *p, int64_t k) {
    UNROLL
    for (int r = 0; r < rows; r++) {
        const uintptr_t at = (uintptr_t)p->rows[r] + (uintptr_t)((k + p->next) * (int64_t)sizeof *p->rows[r]);
        __builtin_prefetch((const void *)at);
    }
}

NAPIER_PAIRS_KERNEL __m512i broadcast(const uint16_t *pair) {
    int32_t bits;
    memcpy(&bits, pair, sizeof bits);
    return _mm512_set1_epi32(bits);
}

/* One block of k. Its sums are added to the totals in memory, which are in one place. */
NAPIER_PAIRS_KERNEL void multiply_block(const int rows, const int vectors, const patch *p, const uint16_t *room,
                                        int64_t k, float *total) {
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
            const __m512i x = broadcast(room + r * STEP + k + 2 * i);
            UNROLL
            for (int v = 0; v < vectors; v++) {
                sum[i % 2][r][v] = add_pairs(sum[i % 2][r][v], x, lanes[v]);
            }
        }
    }
    UNROLL
    for (int r = 0; r < rows; r++) {
        UNROLL
        for (int v = 0; v < vectors; v++) {
            float *const c = total + (r * vectors + v) * LANES;
            _mm512_store_ps(c, _mm512_add_ps(_mm512_load_ps(c), _mm512_add_ps(sum[0][r][v], sum[1][r][v])));
        }
    }
}

NAPIER_PAIRS_KERNEL void multiply_patch(const int rows, const int vectors, const patch *p, uint16_t *room,
                                        int64_t c_step) {
    const patch q = *p;
    _Alignas(64) float total[ROWS * VECTORS * LANES];
    for (int r = 0; r < rows; r++) {
        for (int v = 0; v < vectors; v++) {
            const float *const c = q.c + r * c_step + v * LANES;
            _mm512_store_ps(total + (r * vectors + v) * LANES, q.first ? _mm512_setzero_ps() : _mm512_loadu_ps(c));
        }
    }
    for (int64_t k = 0; k < q.k; k += BLOCK) {
        if (q.fetch) {
            fetch_rows(rows, &q, k);
        }
        multiply_block(rows, vectors, &q, room, k, total);
        __asm__ volatile("" : : "r"(total) : "memory"); /* else gcc keeps copies of the totals in other memory */
    }
    for (int r = 0; r < rows; r++) {
        for (int v = 0; v < vectors; v++) {
            _mm512_storeu_ps(q.c + r * c_step + v * LANES, _mm512_load_ps(total + (r * vectors + v) * LANES));
        }
    }
}

/* All lanes. */
NAPIER_PAIRS_KERNEL void multiply_rows(const int rows, const napier_engine_block *b, int64_t row, patch *p,
                                       uint16_t *room) {
    for (int r = 0; r < rows; r++) {
        turn_row(p->rows[r], p->cols, p->k, room + r * STEP);
    }
    p->fetch = true;
    for (int64_t l = 0; l < b->lane_count; p->fetch = false) {
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
    _Alignas(64) uint16_t room[ROWS * STEP];
    for (int64_t at = 0; at < b->k; at += PIECE) {
        patch p = {.at = at, .k = napier_least(b->k - at, PIECE), .cols = b->cols - at, .first = b->first && at == 0};
        for (int64_t row = 0; row < b->row_count;) {
            const int64_t left = b->row_count - row, rows = left >= ROWS ? ROWS : left >= 4 ? 4 : 1;
            p.next = rows * b->row_step;
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
            row += rows;
        }
    }
}

void napier_bf16_pairs_multiply(const napier_engine_block *b) {
    const unsigned saved = _mm_getcsr();
    _mm_setcsr(saved | 0x8040u); /* FTZ and DAZ, for the sums; the instruction itself does not look at them */
    multiply(b);
    _mm_setcsr(saved);
}

/* ---- Is it here? ------------------------------------------------------------------------------------------------- */

bool napier_bf16_pairs_are_here(const napier_context *context) {
#ifdef NAPIER_BF16_PAIRS_EMULATED
    return context->isa == NAPIER_ISA_AVX512;
#else
    unsigned eax, ebx, ecx, edx;
    return context->isa == NAPIER_ISA_AVX512 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) && (eax & 1u << 5);
#endif
}

#else

bool napier_bf16_pairs_are_here(const napier_context *context) {
    (void)context;
    return false;
}

void napier_bf16_pairs_multiply(const napier_engine_block *block) { (void)block; } /* never called */

#endif
