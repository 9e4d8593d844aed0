/* ops/linear/bf16_pairs.c - see ops/linear/bf16_pairs.h. Source: Intel 64 and IA-32 Architectures Software Developer's
 * Manual, VDPBF16PS. A Zen 5 gave the same bits in 192 million sums of all kinds. */
#include "ops/linear/bf16_pairs.h"

#include <string.h>

#include "core/base/sizes.h"
#include "ops/linear/bf16_step.h"

void napier_bf16_pairs_turn(uint32_t *lanes, int64_t count) {
    for (uint32_t *end = lanes + count / 2 * NAPIER_ENGINE_LANES; lanes < end; lanes += 2 * NAPIER_ENGINE_LANES) {
        for (int l = 0; l < NAPIER_ENGINE_LANES; l++) {
            const uint32_t first = lanes[l], second = lanes[NAPIER_ENGINE_LANES + l];
            lanes[l] = first << 16 | (second & 0xffffu);
            lanes[NAPIER_ENGINE_LANES + l] = (first & 0xffff0000u) | second >> 16;
        }
    }
}

#if NAPIER_HAS_BF16_PAIRS

#include <cpuid.h>

/* A patch has totals, and sums for the even and for the odd k of a block: 3 times 4 x 2 or 8 x 1 vectors are 24 of 32
 * registers. Larger patches would have their totals in memory, where each block's stores cost more than the loads that
 * they save. */
enum { ROWS = 8, VECTORS = 2, LANES = NAPIER_ENGINE_LANES, BLOCK = NAPIER_PAIRS_BLOCK };
/* So many rows, and so many k of them, are turned. They meet 32 lanes after the other, all in the first-level cache. With
 * few lanes a product waits for memory, which would idle while many rows are turned. */
enum { GROUP = 24, GROUP_OF_FEW = 8, FEW_LANES = 64, PIECE = 512, STEP = PIECE + BLOCK };

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
        __builtin_prefetch((const void *)at, 0, 2); /* into the second-level cache */
    }
}

NAPIER_PAIRS_KERNEL __m512i broadcast(const uint16_t *pair) {
    int32_t bits;
    memcpy(&bits, pair, sizeof bits);
    return _mm512_set1_epi32(bits);
}

/* One block of k, whose sums are added to the totals. */
NAPIER_PAIRS_KERNEL void multiply_block(const int rows, const int vectors, const patch *p, const uint16_t *room,
                                        int64_t k, __m512 total[ROWS][VECTORS]) {
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
            total[r][v] = _mm512_add_ps(total[r][v], _mm512_add_ps(sum[0][r][v], sum[1][r][v]));
        }
    }
}

NAPIER_PAIRS_KERNEL void multiply_patch(const int rows, const int vectors, const patch *p, const uint16_t *room,
                                        int64_t c_step) {
    const patch q = *p;
    __m512 total[ROWS][VECTORS];
    UNROLL
    for (int r = 0; r < rows; r++) {
        UNROLL
        for (int v = 0; v < vectors; v++) {
            total[r][v] = q.first ? _mm512_setzero_ps() : _mm512_loadu_ps(q.c + r * c_step + v * LANES);
        }
    }
    for (int64_t k = 0; k < q.k; k += BLOCK) {
        if (q.fetch) {
            fetch_rows(rows, &q, k);
        }
        multiply_block(rows, vectors, &q, room, k, total);
    }
    UNROLL
    for (int r = 0; r < rows; r++) {
        UNROLL
        for (int v = 0; v < vectors; v++) {
            _mm512_storeu_ps(q.c + r * c_step + v * LANES, total[r][v]);
        }
    }
}

/* The rows of a group, which are turned, and 32 lanes or the last 16. */
NAPIER_PAIRS_KERNEL void multiply_lanes(const int height, const int vectors, const napier_engine_block *b, int64_t row,
                                        int64_t rows, patch *p, const uint16_t *room) {
    for (int64_t r = 0, n; r < rows; r += n) {
        n = rows - r >= height ? height : rows - r >= 2 ? 2 : 1;
        for (int64_t i = 0; i < n; i++) {
            p->rows[i] = b->rows + (row + r + i) * b->row_step + p->at;
        }
        if (n == height) {
            multiply_patch(height, vectors, p, room + r * STEP, b->c_step);
        } else if (n == 2) {
            multiply_patch(2, vectors, p, room + r * STEP, b->c_step);
        } else {
            multiply_patch(1, vectors, p, room + r * STEP, b->c_step);
        }
        p->c += n * b->c_step;
    }
}

/* A group of rows and all lanes. */
NAPIER_PAIRS_KERNEL void multiply_group(const napier_engine_block *b, int64_t row, int64_t rows, patch *p,
                                        uint16_t *room) {
    for (int64_t r = 0; r < rows; r++) {
        turn_row(b->rows + (row + r) * b->row_step + p->at, p->cols, p->k, room + r * STEP);
    }
    for (int64_t l = 0; l < b->lane_count; l += VECTORS * LANES) {
        p->c = b->c + row * b->c_step + l;
        p->fetch = l == 0;
        p->lanes[0] = b->lanes + l / LANES * b->lane_step + p->at / 2 * LANES;
        if (b->lane_count - l == LANES) {
            multiply_lanes(ROWS, 1, b, row, rows, p, room);
            return;
        }
        p->lanes[1] = p->lanes[0] + b->lane_step;
        multiply_lanes(ROWS / VECTORS, VECTORS, b, row, rows, p, room);
    }
}

/* Never inlined: while the flush mode is set, the compiler must not move arithmetic across its beginning or end. */
NAPIER_PAIRS static __attribute__((noinline)) void multiply(const napier_engine_block *b) {
    _Alignas(64) uint16_t room[GROUP * STEP];
    const int64_t group = b->lane_count > FEW_LANES ? GROUP : GROUP_OF_FEW;
    for (int64_t at = 0; at < b->k; at += PIECE) {
        patch p = {.at = at, .k = napier_least(b->k - at, PIECE), .cols = b->cols - at, .first = b->first && at == 0};
        p.next = group * b->row_step;
        for (int64_t row = 0; row < b->row_count; row += group) {
            multiply_group(b, row, napier_least(b->row_count - row, group), &p, room);
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
