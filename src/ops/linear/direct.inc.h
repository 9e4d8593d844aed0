/* ops/linear/direct.inc.h - products whose rows are read directly from memory, as weights are (product_kernels.h).
 * Included by product.inc.h, once per instruction set.
 *
 * To pack such rows would cost more than it saves. Rows of f32 are broadcast from their place in memory. Rows of 16
 * bits are widened, 64 k at a time. A few rows are read to their ends, or to the end of a long block of k, then the
 * next few. The hardware prefetcher follows this pattern, and explicit prefetches of f32 made it slower. Widening,
 * however, is many loads without arithmetic, so the next 64 k are prefetched while these are multiplied. */

/* At most 8 rows: they are read in turn, a cache line of each, and rows 4096 bytes apart all map to one cache set of 8
 * lines. Of AVX-512's 32 registers 6 x 64 outputs take 24, and so do 6 x 32 with separate sums for even and odd k; of
 * the 16 of AVX2 6 x 16 take 12. */
enum { NAPIER_DIRECT_ROWS = 8, NAPIER_DIRECT_VECTORS = 4, NAPIER_DIRECT_REST = 4 };
enum { NAPIER_DIRECT_CHUNK = 64 }; /* k that are widened at a time: whole blocks of pairs, two cache lines */
/* Widened rows stay in the first-level cache, up to NAPIER_DIRECT_K. The distance of rows is not a power of two. */
enum { NAPIER_DIRECT_STEP = NAPIER_DIRECT_ROOM / NAPIER_DIRECT_ROWS, NAPIER_DIRECT_K = NAPIER_DIRECT_STEP - 16 };

/* The most vectors of a patch, and the rows of such a patch. */
#if defined(NAPIER_LANES_AVX512)
enum { NAPIER_DIRECT_CHAIN_MOST = 4, NAPIER_DIRECT_CHAIN_WIDE = 6 };
enum { NAPIER_DIRECT_PAIRS_MOST = 2, NAPIER_DIRECT_PAIRS_WIDE = 6 };
#else
enum { NAPIER_DIRECT_CHAIN_MOST = 1, NAPIER_DIRECT_CHAIN_WIDE = 6 };
enum { NAPIER_DIRECT_PAIRS_MOST = 1, NAPIER_DIRECT_PAIRS_WIDE = 3 };
#endif
NAPIER_KERNEL int napier_direct_most(const bool pairs) {
    return pairs ? NAPIER_DIRECT_PAIRS_MOST : NAPIER_DIRECT_CHAIN_MOST;
}
NAPIER_KERNEL int napier_direct_wide(const bool pairs) {
    return pairs ? NAPIER_DIRECT_PAIRS_WIDE : NAPIER_DIRECT_CHAIN_WIDE;
}

/* Four k per iteration: with 34 instructions in 12 cycles, loop counters would cost time. */
#if defined(NAPIER_PLAIN_KERNELS)
#define NAPIER_DIRECT_UNROLL
#elif defined(__clang__)
#define NAPIER_DIRECT_UNROLL _Pragma("clang loop unroll_count(4)")
#else
#define NAPIER_DIRECT_UNROLL _Pragma("GCC unroll 4")
#endif

typedef vf napier_direct_sums[NAPIER_DIRECT_ROWS][NAPIER_DIRECT_VECTORS];

/* One patch: `rows` rows by `vectors` vectors of lanes, k of them from `at` on. */
typedef struct napier_direct_patch {
    const float *x[NAPIER_DIRECT_ROWS];    /* the rows, at k = at */
    const float *y[NAPIER_DIRECT_VECTORS]; /* the lanes, at k = at, NAPIER_LANES apart */
    const char *narrow; /* rows of 16 bits, to be widened to `room`, where x points; NULL: x needs no widening */
    int64_t at, k;
    float *c;
    bool first;
} napier_direct_patch;

/* Widens 16 k of a patch's rows. Beyond the end of a row they are 0. */
NAPIER_KERNEL void napier_direct_widen(const napier_dtype dtype, const int rows, const napier_direct_block *b,
                                       const napier_direct_patch *p, int64_t i) {
    const int64_t left = b->cols - p->at - i;
    NAPIER_UNROLL_ALL
    for (int r = 0; r < rows; r++) {
        const char *from = p->narrow + r * b->row_step + i * 2;
        vf_store(b->room + r * NAPIER_DIRECT_STEP + i, napier_load_some(from, dtype, left < 16 ? (int)left : 16));
    }
}

/* Prefetches the k after the next NAPIER_DIRECT_CHUNK: of these rows or, past their ends, of the rows that follow. */
NAPIER_KERNEL void napier_direct_fetch(const int rows, const napier_direct_block *b, const napier_direct_patch *p,
                                       int64_t i) {
    const int64_t ahead = i + NAPIER_DIRECT_CHUNK, left = b->k - p->at;
    const int64_t offset = ahead < left ? ahead * 2 : (ahead - left - p->at) * 2 + rows * b->row_step;
    NAPIER_UNROLL_ALL
    for (int r = 0; r < rows; r++) {
        const uintptr_t at = (uintptr_t)p->narrow + (uintptr_t)(offset + r * b->row_step);
        __builtin_prefetch((const void *)at);
        __builtin_prefetch((const void *)(at + 64));
    }
}

/* The next `count` k. */
NAPIER_KERNEL void napier_direct_widen_some(const int rows, const napier_direct_block *b, const napier_direct_patch *p,
                                            int64_t i, int64_t count) {
    napier_direct_fetch(rows, b, p, i);
    for (const int64_t end = i + count; i < end; i += 16) {
        if (b->dtype == NAPIER_BF16) {
            napier_direct_widen(NAPIER_BF16, rows, b, p, i);
        } else {
            napier_direct_widen(NAPIER_F16, rows, b, p, i);
        }
    }
}

NAPIER_KERNEL void napier_direct_load(const int rows, const int vectors, const float *c, int64_t c_step,
                                      napier_direct_sums sum) {
    NAPIER_UNROLL_ALL
    for (int r = 0; r < rows; r++) {
        NAPIER_UNROLL_ALL
        for (int v = 0; v < vectors; v++) {
            sum[r][v] = c ? vf_load(c + r * c_step + 16 * v) : vf_zero();
        }
    }
}

NAPIER_KERNEL void napier_direct_store(const int rows, const int vectors, float *c, int64_t c_step,
                                       napier_direct_sums sum) {
    NAPIER_UNROLL_ALL
    for (int r = 0; r < rows; r++) {
        NAPIER_UNROLL_ALL
        for (int v = 0; v < vectors; v++) {
            vf_store(c + r * c_step + 16 * v, sum[r][v]);
        }
    }
}

/* One k. */
NAPIER_KERNEL void napier_direct_step(const int rows, const int vectors, const float *const *x, const float *const *y,
                                      int64_t i, napier_direct_sums sum) {
    vf lanes[NAPIER_DIRECT_VECTORS];
    NAPIER_UNROLL_ALL
    for (int v = 0; v < vectors; v++) {
        lanes[v] = vf_load(y[v] + i * NAPIER_LANES);
    }
    NAPIER_UNROLL_ALL
    for (int r = 0; r < rows; r++) {
        const vf element = vf_set(x[r][i]);
        NAPIER_UNROLL_ALL
        for (int v = 0; v < vectors; v++) {
            sum[r][v] = vf_fma(element, lanes[v], sum[r][v]);
        }
    }
}

NAPIER_KERNEL void napier_direct_add(const int rows, const int vectors, const napier_direct_patch *p,
                                     const int64_t begin, const int64_t end, napier_direct_sums sum) {
    const napier_direct_patch q = *p; /* a copy, so that its pointers are in registers */
    NAPIER_DIRECT_UNROLL
    for (int64_t i = begin; i < end; i++) {
        napier_direct_step(rows, vectors, q.x, q.y, i, sum);
    }
}

NAPIER_KERNEL void napier_direct_patch_chain(const int rows, const int vectors, const napier_direct_block *b,
                                             const napier_direct_patch *p) {
    napier_direct_sums sum;
    napier_direct_load(rows, vectors, p->first ? NULL : p->c, b->c_step, sum);
    if (!p->narrow) {
        napier_direct_add(rows, vectors, p, 0, p->k, sum);
    } else {
        for (int64_t i = 0; i < p->k; i += NAPIER_DIRECT_CHUNK) {
            const int64_t count = p->k - i < NAPIER_DIRECT_CHUNK ? p->k - i : NAPIER_DIRECT_CHUNK;
            napier_direct_widen_some(rows, b, p, i, count);
            napier_direct_add(rows, vectors, p, i, i + count, sum);
        }
    }
    napier_direct_store(rows, vectors, p->c, b->c_step, sum);
}

/* Blocks of 32 k, with separate sums for even and odd k. */
NAPIER_KERNEL void napier_direct_patch_pairs(const int rows, const int vectors, const napier_direct_block *b,
                                             const napier_direct_patch *p) {
    const napier_direct_patch q = *p;
    for (int64_t block = 0; block < q.k; block += NAPIER_PAIRS_BLOCK) {
        napier_direct_sums even, odd;
        if (q.narrow && block % NAPIER_DIRECT_CHUNK == 0) {
            const int64_t left = q.k - block;
            napier_direct_widen_some(rows, b, &q, block, left < NAPIER_DIRECT_CHUNK ? left : NAPIER_DIRECT_CHUNK);
        }
        napier_direct_load(rows, vectors, NULL, 0, even);
        napier_direct_load(rows, vectors, NULL, 0, odd);
        NAPIER_DIRECT_UNROLL
        for (int64_t i = block; i < block + NAPIER_PAIRS_BLOCK; i += 2) {
            napier_direct_step(rows, vectors, q.x, q.y, i, even);
            napier_direct_step(rows, vectors, q.x, q.y, i + 1, odd);
        }
        const bool start = q.first && block == 0;
        NAPIER_UNROLL_ALL
        for (int r = 0; r < rows; r++) {
            NAPIER_UNROLL_ALL
            for (int v = 0; v < vectors; v++) {
                float *c = q.c + r * b->c_step + 16 * v;
                const vf both = vf_add(even[r][v], odd[r][v]);
                vf_store(c, napier_add_flushed(start ? vf_zero() : vf_load(c), both));
            }
        }
    }
}

NAPIER_KERNEL void napier_direct_patch_as(const bool pairs, const int rows, const int vectors,
                                          const napier_direct_block *b, const napier_direct_patch *p) {
    const int most = vectors == napier_direct_most(pairs) ? napier_direct_wide(pairs) : NAPIER_DIRECT_ROWS;
    const int height = rows < most ? rows : most;
    if (pairs) {
        napier_direct_patch_pairs(height, vectors, b, p);
    } else {
        napier_direct_patch_chain(height, vectors, b, p);
    }
}

NAPIER_KERNEL void napier_direct_vectors(const bool pairs, const int rows, const int vectors,
                                         const napier_direct_block *b, const napier_direct_patch *p) {
    const int most = napier_direct_most(pairs);
    if (most >= 4 && vectors == 4) {
        napier_direct_patch_as(pairs, rows, most < 4 ? 1 : 4, b, p);
    } else if (most >= 3 && vectors == 3) {
        napier_direct_patch_as(pairs, rows, most < 3 ? 1 : 3, b, p);
    } else if (most >= 2 && vectors == 2) {
        napier_direct_patch_as(pairs, rows, most < 2 ? 1 : 2, b, p);
    } else {
        napier_direct_patch_as(pairs, rows, 1, b, p);
    }
}

/* Multiplies `rows` rows from r on, k from `at` on, with all lanes, which are divided into
 * shares of almost the same number of vectors. */
NAPIER_KERNEL void napier_direct_rows(const bool pairs, const int rows, const napier_direct_block *b, int64_t r,
                                      int64_t at, int64_t k) {
    const int64_t vectors = b->lanes / 16, most = napier_direct_most(pairs), shares = (vectors + most - 1) / most;
    napier_direct_patch p = {.at = at, .k = k, .c = b->c + r * b->c_step, .first = b->first && at == 0};
    const char *from = (const char *)b->rows + r * b->row_step;
    for (int i = 0; i < rows; i++) {
        p.x[i] =
            b->room ? b->room + i * NAPIER_DIRECT_STEP : (const float *)(const void *)(from + i * b->row_step) + at;
    }
    p.narrow = b->room ? from + at * 2 : NULL;
    for (int64_t v = 0, share = 0; share < shares; share++) {
        const int count = (int)((vectors - v) / (shares - share));
        for (int i = 0; i < count; i++) {
            p.y[i] = b->panels + (v + i) / 2 * b->panel_step + at * NAPIER_LANES + (v + i) % 2 * 16;
        }
        napier_direct_vectors(pairs, rows, count, b, &p);
        p.c += 16 * count;
        p.narrow = NULL;
        v += count;
    }
}

NAPIER_KERNEL void napier_direct_group(const bool pairs, const int rows, const napier_direct_block *b, int64_t r) {
    const int64_t step = b->room ? NAPIER_DIRECT_K : b->k;
    for (int64_t at = 0; at < b->k; at += step) {
        napier_direct_rows(pairs, rows, b, r, at, b->k - at < step ? b->k - at : step);
    }
}

NAPIER_KERNEL void napier_direct_all(const bool pairs, const napier_direct_block *b) {
    const int64_t vectors = b->lanes / 16, most = napier_direct_most(pairs), shares = (vectors + most - 1) / most;
    const bool wide = vectors > shares * (most - 1); /* some share has the most vectors */
    const int height = napier_direct_wide(pairs);
    int64_t r = 0;
    for (; !wide && r + NAPIER_DIRECT_ROWS <= b->row_count; r += NAPIER_DIRECT_ROWS) {
        napier_direct_group(pairs, NAPIER_DIRECT_ROWS, b, r);
    }
    for (; r + height <= b->row_count; r += height) {
        napier_direct_group(pairs, height, b, r);
    }
    for (; height > NAPIER_DIRECT_REST && r + NAPIER_DIRECT_REST <= b->row_count; r += NAPIER_DIRECT_REST) {
        napier_direct_group(pairs, NAPIER_DIRECT_REST, b, r);
    }
    for (; r < b->row_count; r++) {
        napier_direct_group(pairs, 1, b, r);
    }
}

/* Never inlined: while the flush mode is set, the compiler must not move arithmetic across its beginning or end. */
static __attribute__((noinline)) void napier_direct_chain(const napier_direct_block *b) { napier_direct_all(false, b); }

#if NAPIER_HAS_FLUSH_MODE
static __attribute__((noinline)) void napier_direct_pairs_quick(const napier_direct_block *b) {
    napier_direct_all(true, b);
}
static void napier_direct_pairs(const napier_direct_block *b) {
    const unsigned saved = _mm_getcsr();
    _mm_setcsr(saved | 0x8040u); /* FTZ and DAZ */
    napier_direct_pairs_quick(b);
    _mm_setcsr(saved);
}
#else
#define napier_direct_pairs NULL
#endif

#undef NAPIER_DIRECT_UNROLL
