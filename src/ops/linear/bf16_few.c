/* ops/linear/bf16_few.c - the products of ops/linear/few.inc.h, bf16 by bf16, with the instruction vdpbf16ps: a step of one
 * to eight sequences. Rows are turned as there, but pairs of bf16 are multiplied without being widened. */
#include <stdbool.h>
#include <string.h>

#include "core/base/sizes.h"
#include "ops/linear/bf16_pairs.h"
#include "ops/linear/bf16_step.h"

enum {
    BLOCK = NAPIER_PAIRS_BLOCK,
    ONE_K = 16 * BLOCK,   /* the k of 16 blocks of one row */
    ONE_MOST = 8 * ONE_K, /* as many k of the lane stay in the first-level cache */
    ONE_BLOCKS = ONE_MOST / BLOCK,
    ONE_AHEAD = 8 * ONE_K * 2, /* bytes from a line to the one that is prefetched with it */
    PAGE = 4096,
    PAGES_AHEAD = 6, /* from a page to the one in which the hardware prefetcher is started */
    SOME_LANES = 4   /* that are computed together: their sums and a turned block stay in registers */
};

#if NAPIER_HAS_BF16_PAIRS

#include "core/simd/target_avx512.h"
#define NAPIER_LANES_AVX512
#include "core/simd/lanes.h"
#include "core/simd/target_end.h"

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

/* Makes pairs of 16 lines of 64 bytes that are `step` bytes apart, and turns them: word i of line j becomes lane j of
 * words[i]. There are `height` lines; the others are the first. */
NAPIER_PAIRS_KERNEL void turn_lines(const char *x, int64_t step, int height, vf words[16]) {
    UNROLL
    for (int i = 0; i < 16; i++) {
        const __m512i line = _mm512_loadu_si512(x + (i < height ? i : 0) * step);
        words[i] = _mm512_castsi512_ps(turn_pairs(line));
    }
    vf_transpose(words);
}

/* The same of fewer lines, of `bytes` bytes each. */
NAPIER_PAIRS_KERNEL void turn_part(const char *x, int64_t step, int height, int64_t bytes, vf words[16]) {
    char rest[16][2 * BLOCK] = {{0}};
    for (int i = 0; i < height; i++) {
        memcpy(rest[i], x + i * step, (size_t)bytes);
    }
    turn_lines(rest[0], 2 * BLOCK, height, words);
}

NAPIER_PAIRS_KERNEL void fetch_lines(uintptr_t x) {
    UNROLL
    for (int i = 0; i < 16; i++) {
        __builtin_prefetch((const void *)(x + (uintptr_t)(64 * i)));
    }
}

/* ---- Lanes ------------------------------------------------------------------------------------------------------- */

/* Elements k and k + 1 of all lanes are followed by k + 2 and k + 3. `out` may be before `lanes` or the same. */
NAPIER_PAIRS_KERNEL void pack_few(const float *lanes, int64_t k, int64_t width, float *out) {
    const __mmask16 two = (__mmask16)((1u << 2 * width) - 1u);
    const __m512i high = _mm512_set1_epi32(-65536);
    for (int64_t i = 0; i < k; i += 4) {
        const __m512i first = _mm512_maskz_loadu_epi32(two, lanes + i * width);
        const __m512i second = _mm512_maskz_loadu_epi32(two, lanes + (i + 2) * width);
        const __m512i pairs = _mm512_or_si512(_mm512_and_si512(first, high), _mm512_srli_epi32(second, 16));
        _mm512_mask_storeu_epi32(out + i / 2 * width, two, pairs);
    }
}

NAPIER_PAIRS void napier_bf16_few_pack(float *lanes, int64_t k, int64_t width) { pack_few(lanes, k, width, lanes); }

/* Word j of 16 blocks follow one another. Blocks after the last 16 are packed as one of few lanes. */
NAPIER_PAIRS void napier_bf16_one_pack(float *lane, int64_t k) {
    int64_t at = 0;
    for (; at + ONE_K <= k; at += ONE_K) {
        _Alignas(64) uint16_t narrow[ONE_K];
        vf words[16];
        for (int64_t i = 0; i < ONE_K; i += 16) {
            const __m512i wide = _mm512_loadu_si512(lane + at + i);
            _mm256_store_si256((__m256i *)(void *)(narrow + i), _mm512_cvtepi32_epi16(_mm512_srli_epi32(wide, 16)));
        }
        turn_lines((const char *)narrow, 64, 16, words);
        for (int i = 0; i < 16; i++) {
            vf_store(lane + at / 2 + 16 * i, words[i]);
        }
    }
    pack_few(lane + at, napier_round_up(k - at, BLOCK), 1, lane + at / 2);
}

/* ---- One lane: 16 blocks of a row are the lanes of vectors ---------------------------------------------------------- */

/* The hardware prefetcher follows a stream to the end of its page, and takes a while to start in the next one. The first
 * lines of a page to come start it there early, once for each page that x passes in steps of 2 * ONE_K. */
NAPIER_PAIRS_KERNEL void start_page(uintptr_t x) {
    if (x % PAGE >= PAGE - 2 * ONE_K) {
        const uintptr_t page = x - x % PAGE + PAGES_AHEAD * PAGE;
        __builtin_prefetch((const void *)page, 0, 2);
        __builtin_prefetch((const void *)(page + 64), 0, 2);
    }
}

/* The sum of each of 16 blocks of a row. */
NAPIER_PAIRS_KERNEL vf sum_blocks(const char *x, const uint32_t *lane) {
    vf words[16], even = vf_zero(), odd = vf_zero();
    turn_lines(x, 64, 16, words);
    UNROLL
    for (int j = 0; j < 16; j += 2) {
        even = add_pairs(even, _mm512_castps_si512(words[j]), _mm512_loadu_si512(lane + 16 * j));
        odd = add_pairs(odd, _mm512_castps_si512(words[j + 1]), _mm512_loadu_si512(lane + 16 * j + 16));
    }
    return vf_add(even, odd);
}

/* Adds the sums of `blocks` blocks of 16 rows to their totals, in the order of the blocks. */
NAPIER_PAIRS_KERNEL vf add_blocks(float sums[][ONE_BLOCKS], int64_t blocks, vf total) {
    for (int64_t b = 0; b < blocks; b += 16) {
        vf v[16];
        UNROLL
        for (int i = 0; i < 16; i++) {
            v[i] = vf_load(sums[i] + b);
        }
        vf_transpose(v);
        for (int i = 0; i < 16 && b + i < blocks; i++) {
            total = vf_add(total, v[i]);
        }
    }
    return total;
}

/* Adds a block of 16 rows to the totals of `lanes` of `width` lanes. total: [lanes][16] */
NAPIER_PAIRS_KERNEL void add_block(const int lanes, const int width, const vf words[16], const uint32_t *y,
                                   float *total) {
    vf sum[2][SOME_LANES];
    UNROLL
    for (int l = 0; l < lanes; l++) {
        sum[0][l] = sum[1][l] = vf_zero();
    }
    UNROLL
    for (int j = 0; j < 16; j++) {
        UNROLL
        for (int l = 0; l < lanes; l++) {
            const __m512i pair = _mm512_set1_epi32((int32_t)y[j * width + l]);
            sum[j % 2][l] = add_pairs(sum[j % 2][l], _mm512_castps_si512(words[j]), pair);
        }
    }
    UNROLL
    for (int l = 0; l < lanes; l++) {
        vf_store(total + 16 * l, vf_add(vf_load(total + 16 * l), vf_add(sum[0][l], sum[1][l])));
    }
}

/* The blocks after the last 16 whole ones: 16 rows are the lanes. x: the rows from there on. */
NAPIER_PAIRS_KERNEL void one_rest(const char *x, int64_t step, int height, int64_t k, const uint32_t *lane,
                                  float *total) {
    for (int64_t i = 0; i < k; i += BLOCK) {
        vf words[16];
        if (k - i >= BLOCK) {
            turn_lines(x + 2 * i, step, height, words);
        } else {
            turn_part(x + 2 * i, step, height, 2 * (k - i), words);
        }
        add_block(1, 1, words, lane + i / 2, total);
    }
}

/* k from `at` on, at most ONE_MOST of them, of `height` rows from `row` on. */
NAPIER_PAIRS_KERNEL void one_rows(const napier_few_block *p, int64_t row, int height, int64_t at) {
    const int64_t k = napier_least(p->k - at, ONE_MOST), whole = k / ONE_K * ONE_K;
    const char *const first = (const char *)p->rows + row * p->row_step + 2 * at;
    const uint32_t *const lane = (const uint32_t *)(const void *)p->lane_data + at / 2;
    float sums[16][ONE_BLOCKS], total[16] = {0};
    for (int i = 0; i < height; i++) {
        const char *const x = first + i * p->row_step;
        for (int64_t b = 0; b < 2 * whole; b += 2 * ONE_K) {
            const int64_t ahead = b + ONE_AHEAD;
            start_page((uintptr_t)x + (uintptr_t)b);
            fetch_lines((uintptr_t)x + (uintptr_t)(ahead < 2 * k ? ahead : ahead - 2 * k + p->row_step));
            vf_store(sums[i] + b / 64, sum_blocks(x + b, lane + b / 4));
        }
        total[i] = at > 0 ? p->c[(row + i) * p->c_step] : 0.0f;
    }
    vf_store(total, add_blocks(sums, whole / BLOCK, vf_load(total)));
    one_rest(first + 2 * whole, p->row_step, height, k - whole, lane + whole / 2, total);
    for (int i = 0; i < height; i++) {
        p->c[(row + i) * p->c_step] = total[i];
    }
}

/* ---- Few lanes: 16 rows are the lanes of vectors ------------------------------------------------------------------- */

NAPIER_PAIRS_KERNEL void few_rows(const int width, const napier_few_block *p, int64_t row, int height) {
    const int lanes = width < SOME_LANES ? width : SOME_LANES;
    const char *const x = (const char *)p->rows + row * p->row_step;
    float total[NAPIER_FEW * 16] = {0};
    for (int64_t k = 0; k < p->k; k += BLOCK) {
        const uint32_t *const y = (const uint32_t *)(const void *)p->lane_data + k / 2 * width;
        vf words[16];
        if (p->k - k >= BLOCK) {
            napier_few_fetch(x, 2 * k, 2 * p->k, p->row_step);
            turn_lines(x + 2 * k, p->row_step, height, words);
        } else {
            turn_part(x + 2 * k, p->row_step, height, 2 * (p->k - k), words);
        }
        UNROLL
        for (int l = 0; l < width; l += lanes) {
            add_block(lanes, width, words, y + l, total + 16 * l);
        }
    }
    for (int64_t l = 0; l < p->lanes; l++) {
        for (int i = 0; i < height; i++) {
            p->c[(row + i) * p->c_step + l] = total[16 * l + i];
        }
    }
}

/* ---- The product ------------------------------------------------------------------------------------------------- */

NAPIER_PAIRS_KERNEL void some_rows(const napier_few_block *p, int64_t row, int height) {
    switch (p->width) {
    case 1: few_rows(1, p, row, height); break;
    case 2: few_rows(2, p, row, height); break;
    case 4: few_rows(4, p, row, height); break;
    default: few_rows(NAPIER_FEW, p, row, height); break;
    }
}

/* Never inlined: while the flush mode is set, the compiler must not move arithmetic across its beginning or end. */
NAPIER_PAIRS static __attribute__((noinline)) void multiply_one(const napier_few_block *p) {
    for (int64_t at = 0; at < p->k; at += ONE_MOST) {
        for (int64_t row = 0; row < p->row_count; row += 16) {
            one_rows(p, row, (int)napier_least(p->row_count - row, 16), at);
        }
    }
}

NAPIER_PAIRS static __attribute__((noinline)) void multiply_few(const napier_few_block *p) {
    int64_t row = 0;
    for (; row + 16 <= p->row_count; row += 16) {
        some_rows(p, row, 16);
    }
    if (row < p->row_count) {
        some_rows(p, row, (int)(p->row_count - row));
    }
}

static void multiply(void (*kernel)(const napier_few_block *), const napier_few_block *p) {
    const unsigned saved = _mm_getcsr();
    _mm_setcsr(saved | 0x8040u); /* FTZ and DAZ, for the sums; the instruction itself does not look at them */
    kernel(p);
    _mm_setcsr(saved);
}

void napier_bf16_one_multiply(const napier_few_block *p) { multiply(multiply_one, p); }
void napier_bf16_few_multiply(const napier_few_block *p) { multiply(multiply_few, p); }

#else

/* Never called. */
void napier_bf16_one_multiply(const napier_few_block *p) { (void)p; }
void napier_bf16_one_pack(float *lane, int64_t k) { (void)lane, (void)k; }
void napier_bf16_few_multiply(const napier_few_block *p) { (void)p; }
void napier_bf16_few_pack(float *lanes, int64_t k, int64_t width) { (void)lanes, (void)k, (void)width; }

#endif
