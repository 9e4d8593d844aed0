/* ops/linear/few.inc.h - products of many rows with few lanes: a decode step (product_kernels.h). Included by
 * product.inc.h, once per instruction set.
 *
 * Such a product should take one read of the rows from memory. So rows are read once, in place, and the work for each
 * element is small. 16 words of 32 bits come from each of 16 rows, and are turned in registers: then a vector holds the
 * same word of 16 rows, and the rows are the lanes of the sums. A word is an f32, or two neighbours of 16 bits: the even
 * and the odd k of the order of bf16 by bf16. Words are turned before they are widened, which halves the shuffles.
 *
 * Not more than 16 rows: the hardware prefetcher follows about so many streams. It stops at the end of each page, so
 * lines are prefetched too (napier_few_fetch). */

/* The lanes that are computed together, whose sums are in registers; and where turned words stay in registers too, the
 * loop over them is unrolled. */
#if defined(NAPIER_LANES_AVX512)
enum { NAPIER_FEW_CHAINS = 8, NAPIER_FEW_PAIRS = 8 };
#define NAPIER_FEW_UNROLL NAPIER_UNROLL_ALL
#else
enum { NAPIER_FEW_CHAINS = 4, NAPIER_FEW_PAIRS = 2 };
#define NAPIER_FEW_UNROLL
#endif

/* Element `part` of each word, widened. */
NAPIER_KERNEL vf napier_few_element(const napier_dtype dtype, const vf word, const int part) {
    const vi bits = vf_bits(word);
    const bool low = (part == 0) == (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
    if (dtype == NAPIER_F32) {
        return word;
    }
    if (dtype == NAPIER_BF16) {
        return vf_from_bits(low ? vi_shl(bits, 16) : vi_and(bits, vi_set(-65536)));
    }
    return vf_from_f16(low ? vi_and(bits, vi_set(65535)) : vi_shr(bits, 16));
}

/* Turns 64 bytes of `height` rows. */
NAPIER_KERNEL void napier_few_turn(const char *x, const int64_t row_step, const int height, vf words[16]) {
    NAPIER_UNROLL_ALL
    for (int i = 0; i < 16; i++) {
        words[i] = vf_load((const float *)(const void *)(x + (i < height ? i : 0) * row_step));
    }
    vf_transpose(words);
}

/* The same with fewer bytes, and 0 beyond. */
static void napier_few_turn_part(const char *x, const int64_t row_step, const int height, const int64_t bytes,
                                 vf words[16]) {
    float part[16] = {0};
    for (int i = 0; i < 16; i++) {
        memcpy(part, x + (i < height ? i : 0) * row_step, (size_t)bytes);
        words[i] = vf_load(part);
    }
    vf_transpose(words);
}

/* Adds 16 words to the sums of `lanes` of `width` lanes, whose elements are y[k][width]. total: [lanes][16] */
NAPIER_KERNEL void napier_few_add(const napier_dtype dtype, const bool pairs, const int lanes, const int width,
                                  const vf words[16], const float *y, float *total) {
    const int parts = dtype == NAPIER_F32 ? 1 : 2;
    vf sum[2][NAPIER_FEW];
    NAPIER_UNROLL_ALL
    for (int l = 0; l < lanes; l++) {
        sum[0][l] = pairs ? vf_zero() : vf_load(total + 16 * l);
        sum[1][l] = vf_zero();
    }
    NAPIER_FEW_UNROLL
    for (int j = 0; j < 16; j++) {
        NAPIER_UNROLL_ALL
        for (int part = 0; part < parts; part++) {
            const vf x = napier_few_element(dtype, words[j], part);
            NAPIER_UNROLL_ALL
            for (int l = 0; l < lanes; l++) {
                vf *const s = &sum[pairs ? part : 0][l];
                *s = vf_fma(vf_set(y[(j * parts + part) * width + l]), x, *s);
            }
        }
    }
    NAPIER_UNROLL_ALL
    for (int l = 0; l < lanes; l++) {
        const vf both = pairs ? vf_add(vf_load(total + 16 * l), vf_add(sum[0][l], sum[1][l])) : sum[0][l];
        vf_store(total + 16 * l, both);
    }
}

/* The k after the last whole words: one by one. */
NAPIER_KERNEL void napier_few_add_rest(const napier_dtype dtype, const int width, const vf words[16], const int64_t k,
                                       const float *y, float *total) {
    const int parts = dtype == NAPIER_F32 ? 1 : 2;
    for (int64_t i = 0; i < k; i++) {
        const vf x = napier_few_element(dtype, words[i / parts], (int)(i % parts));
        for (int l = 0; l < width; l++) {
            vf_store(total + 16 * l, vf_fma(vf_set(y[i * width + l]), x, vf_load(total + 16 * l)));
        }
    }
}

/* `height` rows from `row` on with `width` lanes, `lanes` of them at a time. */
NAPIER_KERNEL void napier_few_rows(const napier_dtype dtype, const bool pairs, const int lanes, const int width,
                                   const int height, const napier_few_block *p, int64_t row) {
    enum { BYTES = 64 };
    const int size = dtype == NAPIER_F32 ? 4 : 2, each = BYTES / size;
    const char *const x = (const char *)p->rows + row * p->row_step;
    float total[NAPIER_FEW * 16] = {0};
    for (int64_t i = 0; p->add && i < height * p->lanes; i++) {
        total[16 * (i % p->lanes) + i / p->lanes] = p->c[(row + i / p->lanes) * p->c_step + i % p->lanes];
    }
    for (int64_t k = 0; k < p->k; k += each) {
        const int64_t left = p->k - k;
        const float *const y = p->lane_data + k * width;
        vf words[16];
        if (left >= each) {
            napier_few_fetch(x, k * size, p->k * size, p->row_step);
            napier_few_turn(x + k * size, p->row_step, height, words);
        } else {
            napier_few_turn_part(x + k * size, p->row_step, height, left * size, words);
        }
        if (!pairs && left < each) {
            napier_few_add_rest(dtype, width, words, left, y, total);
            break;
        }
        for (int l = 0; l < width; l += lanes) {
            napier_few_add(dtype, pairs, lanes, width, words, y + l, total + 16 * l);
        }
    }
    for (int64_t l = 0; l < p->lanes; l++) {
        for (int i = 0; i < height; i++) {
            p->c[(row + i) * p->c_step + l] = total[16 * l + i];
        }
    }
}

/* ---- One lane, bf16 by bf16 --------------------------------------------------------------------------------------
 * Rows are read one after the other, at the speed of a plain read. Each block of 32 k has sums of its own, which start
 * from 0. So 16 neighbouring blocks of one row can be the lanes of these sums; then 16 blocks are a kilobyte of memory.
 * What the blocks add to the totals is kept for 16 rows, turned, and added block after block. */

enum {
    NAPIER_ONE_K = 16 * NAPIER_PAIRS_BLOCK, /* the k of 16 blocks */
    NAPIER_ONE_MOST = 8 * NAPIER_ONE_K,     /* as many k of the lane, turned, stay in the first-level cache */
    NAPIER_ONE_BLOCKS = NAPIER_ONE_MOST / NAPIER_PAIRS_BLOCK
};

/* out[16 j + i] = y[32 i + j] */
NAPIER_KERNEL void napier_one_turn_lane(const float *y, float *out) {
    for (int half = 0; half < 2; half++) {
        vf v[16];
        NAPIER_UNROLL_ALL
        for (int i = 0; i < 16; i++) {
            v[i] = vf_load(y + NAPIER_PAIRS_BLOCK * i + 16 * half);
        }
        vf_transpose(v);
        NAPIER_UNROLL_ALL
        for (int i = 0; i < 16; i++) {
            vf_store(out + 16 * (16 * half + i), v[i]);
        }
    }
}

/* The sum of each of 16 blocks of a row. */
NAPIER_KERNEL vf napier_one_blocks(const char *x, const float *y) {
    vf words[16], even = vf_zero(), odd = vf_zero();
    napier_few_turn(x, 64, 16, words);
    NAPIER_UNROLL_ALL
    for (int j = 0; j < 16; j++) {
        even = vf_fma(vf_load(y + 32 * j), napier_few_element(NAPIER_BF16, words[j], 0), even);
        odd = vf_fma(vf_load(y + 32 * j + 16), napier_few_element(NAPIER_BF16, words[j], 1), odd);
    }
    return vf_add(even, odd);
}

/* Adds the sums of `blocks` blocks of 16 rows to their totals, in the order of the blocks. */
NAPIER_KERNEL vf napier_one_total(float sums[][NAPIER_ONE_BLOCKS], const int64_t blocks, vf total) {
    for (int64_t b = 0; b < blocks; b += 16) {
        vf v[16];
        NAPIER_UNROLL_ALL
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

/* The blocks after the last 16 whole ones: 16 rows are the lanes. x: the rows from there on. */
NAPIER_KERNEL void napier_one_rest(const char *x, const int64_t row_step, const int height, const int64_t k,
                                   const float *y, float *total) {
    for (int64_t i = 0; i < k; i += NAPIER_PAIRS_BLOCK) {
        vf words[16];
        if (k - i >= NAPIER_PAIRS_BLOCK) {
            napier_few_turn(x + 2 * i, row_step, height, words);
        } else {
            napier_few_turn_part(x + 2 * i, row_step, height, 2 * (k - i), words);
        }
        napier_few_add(NAPIER_BF16, true, 1, 1, words, y + i, total);
    }
}

/* k from `at` on, at most NAPIER_ONE_MOST of them, of `height` rows from `row` on. */
NAPIER_KERNEL void napier_one_rows(const napier_few_block *p, const int64_t row, const int height, const int64_t at,
                                   const float *y) {
    const int64_t left = p->k - at, k = left < NAPIER_ONE_MOST ? left : NAPIER_ONE_MOST;
    const int64_t whole = k / NAPIER_ONE_K * NAPIER_ONE_K;
    const char *const first = (const char *)p->rows + row * p->row_step + 2 * at;
    float sums[16][NAPIER_ONE_BLOCKS], total[16] = {0};
    for (int i = 0; i < height; i++) {
        const char *const x = first + i * p->row_step;
        for (int64_t b = 0; b < 2 * whole; b += 2 * NAPIER_ONE_K) {
            vf_store(sums[i] + b / 64, napier_one_blocks(x + b, y + b / 2));
        }
        total[i] = at > 0 ? p->c[(row + i) * p->c_step] : 0.0f;
    }
    vf_store(total, napier_one_total(sums, whole / NAPIER_PAIRS_BLOCK, vf_load(total)));
    napier_one_rest(first + 2 * whole, p->row_step, height, k - whole, p->lane_data + at + whole, total);
    for (int i = 0; i < height; i++) {
        p->c[(row + i) * p->c_step] = total[i];
    }
}

NAPIER_KERNEL void napier_one_lane(const napier_few_block *p) {
    float y[NAPIER_ONE_MOST];
    for (int64_t at = 0; at < p->k; at += NAPIER_ONE_MOST) {
        for (int64_t k = at; k + NAPIER_ONE_K <= p->k && k < at + NAPIER_ONE_MOST; k += NAPIER_ONE_K) {
            napier_one_turn_lane(p->lane_data + k, y + (k - at));
        }
        for (int64_t row = 0; row < p->row_count; row += 16) {
            napier_one_rows(p, row, (int)(p->row_count - row < 16 ? p->row_count - row : 16), at, y);
        }
    }
}

NAPIER_KERNEL void napier_few_lanes(const napier_dtype dtype, const bool pairs, const int width,
                                    const napier_few_block *p) {
    const int most = pairs ? NAPIER_FEW_PAIRS : NAPIER_FEW_CHAINS, lanes = width < most ? width : most;
    int64_t row = 0;
    for (; row + 16 <= p->row_count; row += 16) {
        napier_few_rows(dtype, pairs, lanes, width, 16, p, row);
    }
    if (row < p->row_count) {
        napier_few_rows(dtype, pairs, lanes, width, (int)(p->row_count - row), p, row);
    }
}

NAPIER_KERNEL void napier_few_as(const napier_dtype dtype, const bool pairs, const napier_few_block *p) {
    switch (p->width) {
    case 1: napier_few_lanes(dtype, pairs, 1, p); break;
    case 2: napier_few_lanes(dtype, pairs, 2, p); break;
    case 4: napier_few_lanes(dtype, pairs, 4, p); break;
    default: napier_few_lanes(dtype, pairs, NAPIER_FEW, p); break;
    }
}

static void napier_few_chain(const napier_few_block *p) { NAPIER_FOR_DTYPE(p->dtype, napier_few_as, false, p); }

#if NAPIER_HAS_FLUSH_MODE
/* Never inlined: while the flush mode is set, the compiler must not move arithmetic across its beginning or end. */
static __attribute__((noinline)) void napier_few_pairs_quick(const napier_few_block *p) {
    napier_few_as(NAPIER_BF16, true, p);
}
static __attribute__((noinline)) void napier_one_pairs_quick(const napier_few_block *p) { napier_one_lane(p); }

static void napier_few_flushed(void (*multiply)(const napier_few_block *), const napier_few_block *p) {
    const unsigned saved = _mm_getcsr();
    _mm_setcsr(saved | 0x8040u); /* FTZ and DAZ */
    multiply(p);
    _mm_setcsr(saved);
}
static void napier_few_pairs(const napier_few_block *p) { napier_few_flushed(napier_few_pairs_quick, p); }
static void napier_one_pairs(const napier_few_block *p) { napier_few_flushed(napier_one_pairs_quick, p); }
#else
#define napier_few_pairs NULL
#define napier_one_pairs NULL
#endif

#undef NAPIER_FEW_UNROLL
