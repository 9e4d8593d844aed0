/* ops/linear/few_blocks.inc.h - the products of few.inc.h with rows that are stored as blocks (core/math/blocks.h). Included by
 * product.inc.h, once per instruction set.
 *
 * 16 rows are turned as they are stored, which takes an eighth of the shuffles that f32 would take, and each number is widened
 * where it is multiplied: 16 rows are the lanes of scales, numbers and sums alike. */

enum { NAPIER_TURNED_BLOCKS = 16, NAPIER_TURNED_BYTES = NAPIER_TURNED_BLOCKS * 34 + 64 }; /* at a time */

/* Moves `bits` bits (4 or 8) from bit `lowest` on to the top of each word. Lower bits follow them. */
NAPIER_KERNEL vi napier_to_the_top(const vi word, const int lowest, const int bits) {
    switch (32 - lowest - bits) { /* constants, because instructions have them */
    case 0: return word;
    case 4: return vi_shl(word, 4);
    case 8: return vi_shl(word, 8);
    case 12: return vi_shl(word, 12);
    case 16: return vi_shl(word, 16);
    case 20: return vi_shl(word, 20);
    case 24: return vi_shl(word, 24);
    default: return vi_shl(word, 28);
    }
}

/* The f16 at this byte of 16 turned rows. */
NAPIER_KERNEL vf napier_turned_half(const vf *words, const int byte) {
    const vi word = vf_bits(words[byte / 4]);
    return vf_from_f16(byte % 4 ? vi_shr(word, 16) : vi_and(word, vi_set(65535)));
}

/* Adds elements 16 `half` and following of a block to the sums. words: the rows from the word on that has the block's first byte,
 * at byte `phase`. y: of these elements. */
NAPIER_KERNEL void napier_add_half_block(const napier_block_kind kind, const int phase, const int half, const int lanes,
                                         const int width, const vf *words, const float *y, vf *sum) {
    const bool fours = kind != NAPIER_BLOCK_Q8_0;
    const int first = phase + (kind == NAPIER_BLOCK_Q4_1 ? 4 : 2) + (fours ? 0 : 16 * half);
    const vf scale = napier_turned_half(words, phase);
    const vf least = kind == NAPIER_BLOCK_Q4_1   ? napier_turned_half(words, phase + 2)
                     : kind == NAPIER_BLOCK_Q4_0 ? vf_mul(scale, vf_set(-8.0f))
                                                 : vf_zero();
    NAPIER_UNROLL_ALL
    for (int i = 0; i < 16; i++) {
        const int byte = first + i;
        const vi top =
            napier_to_the_top(vf_bits(words[byte / 4]), 8 * (byte % 4) + (fours ? 4 * half : 0), fours ? 4 : 8);
        const vf number = vf_from_int(fours ? vi_shr(top, 28) : vi_sar(top, 24));
        /* Exact but for one rounding, that of the sum: an f16 times a few bits needs no more than 24. */
        const vf x = fours ? vf_fma(scale, number, least) : vf_mul(scale, number);
        NAPIER_UNROLL_ALL
        for (int l = 0; l < lanes; l++) {
            sum[l] = vf_fma(vf_set(y[i * width + l]), x, sum[l]);
        }
    }
}

/* `count` blocks of turned rows. total: [lanes][16] */
NAPIER_KERNEL void napier_add_blocks(const napier_block_kind kind, const int lanes, const int width, const vf *words,
                                     const int64_t count, const float *y, float *total) {
    const int bytes = kind == NAPIER_BLOCK_Q4_1 ? 20 : kind == NAPIER_BLOCK_Q4_0 ? 18 : 34;
    vf sum[NAPIER_FEW];
    NAPIER_UNROLL_ALL
    for (int l = 0; l < lanes; l++) {
        sum[l] = vf_load(total + 16 * l);
    }
    for (int64_t i = 0; i < count; i++, y += 32 * width) {
        const vf *const at = words + i * bytes / 4;
        if (kind == NAPIER_BLOCK_Q4_1 || i % 2 == 0) {
            napier_add_half_block(kind, 0, 0, lanes, width, at, y, sum);
            napier_add_half_block(kind, 0, 1, lanes, width, at, y + 16 * width, sum);
        } else {
            napier_add_half_block(kind, 2, 0, lanes, width, at, y, sum);
            napier_add_half_block(kind, 2, 1, lanes, width, at, y + 16 * width, sum);
        }
    }
    NAPIER_UNROLL_ALL
    for (int l = 0; l < lanes; l++) {
        vf_store(total + 16 * l, sum[l]);
    }
}

/* `height` rows of `width` lanes, `lanes` of them at a time. */
NAPIER_KERNEL void napier_few_stored_rows(const napier_block_kind kind, const int lanes, const int width,
                                          const int height, const napier_few_block *p, const napier_blocks *b,
                                          int64_t row) {
    const char *const x = (const char *)p->rows + row * p->row_step;
    float total[NAPIER_FEW * 16] = {0};
    vf words[NAPIER_TURNED_BYTES / 4];
    for (int64_t k = 0, blocks; k < p->k; k += 32 * blocks) {
        const int64_t left = (p->k - k) / 32, from = k / 32 * b->bytes;
        blocks = left < NAPIER_TURNED_BLOCKS ? left : NAPIER_TURNED_BLOCKS;
        int64_t at = 0;
        for (; at + 64 <= blocks * b->bytes; at += 64) {
            napier_few_fetch(x, from + at, p->row_step, p->row_step);
            napier_few_turn(x + from + at, p->row_step, height, words + at / 4);
        }
        if (at < blocks * b->bytes) {
            napier_few_turn_part(x + from + at, p->row_step, height, blocks * b->bytes - at, words + at / 4);
        }
        for (int l = 0; l < width; l += lanes) {
            napier_add_blocks(kind, lanes, width, words, blocks, p->lane_data + k * width + l, total + 16 * l);
        }
    }
    for (int64_t l = 0; l < p->lanes; l++) {
        for (int i = 0; i < height; i++) {
            p->c[(row + i) * p->c_step + l] = total[16 * l + i];
        }
    }
}

NAPIER_KERNEL void napier_few_stored_as(const napier_block_kind kind, const int width, const napier_few_block *p,
                                        const napier_blocks *b) {
    const int lanes = width < NAPIER_FEW_CHAINS ? width : NAPIER_FEW_CHAINS;
    for (int64_t row = 0; row < p->row_count; row += 16) {
        const int64_t left = p->row_count - row;
        napier_few_stored_rows(kind, lanes, width, (int)(left < 16 ? left : 16), p, b, row);
    }
}

NAPIER_KERNEL void napier_few_stored_kind(const napier_block_kind kind, const napier_few_block *p,
                                          const napier_blocks *b) {
    switch (p->width) {
    case 1: napier_few_stored_as(kind, 1, p, b); break;
    case 2: napier_few_stored_as(kind, 2, p, b); break;
    case 4: napier_few_stored_as(kind, 4, p, b); break;
    default: napier_few_stored_as(kind, NAPIER_FEW, p, b); break;
    }
}

static void napier_few_stored(const napier_few_block *p, const napier_blocks *b) {
    switch (b->kind) {
    case NAPIER_BLOCK_Q4_0: napier_few_stored_kind(NAPIER_BLOCK_Q4_0, p, b); break;
    case NAPIER_BLOCK_Q4_1: napier_few_stored_kind(NAPIER_BLOCK_Q4_1, p, b); break;
    default: napier_few_stored_kind(NAPIER_BLOCK_Q8_0, p, b); break;
    }
}
