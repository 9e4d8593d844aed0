/* ops/softmax/gpu/sum.cuh - the exact sum of a row (sum.h) spread over a warp: lane j holds digit j.
 *
 * All members except the digit are the same in all lanes. A warp collects its tiles, one per lane, and adds up to 32 of
 * them at once: every lane computes to which digits the two numbers of its tile belong, and each of these digits is
 * summed over the lanes. The numbers are integers, so the order does not matter. */
#ifndef NAPIER_OPS_SOFTMAX_GPU_SUM_CUH
#define NAPIER_OPS_SOFTMAX_GPU_SUM_CUH

#include "ops/softmax/gpu/tile.cuh"

typedef struct napier_warp_sum {
    float max;
    bool nan, pinf;
    int64_t top;
    uint64_t count;
    uint64_t digit; /* of this lane; 0 from lane 12 on */
} napier_warp_sum;

NAPIER_INLINE napier_warp_sum napier_warp_sum_start(void) {
    return (napier_warp_sum){-INFINITY, false, false, 0, 0, 0};
}

NAPIER_INLINE uint64_t napier_warp_add(uint64_t v) {
    for (int lanes = CUDA_WARP / 2; lanes > 0; lanes /= 2) {
        v += cuda_shuffle_xor_u64(v, lanes);
    }
    return v;
}

/* The amount that a piece adds to digit j. */
NAPIER_INLINE uint64_t napier_piece_in(const napier_piece *p, int64_t j) {
    return (p->at == j ? p->low : 0) + (p->at - 1 == j ? p->high : 0);
}

/* napier_sum_raise: raises the maximum to `max`, finite or +inf, if that is larger. */
NAPIER_OUTLINE napier_warp_sum napier_warp_sum_raise(napier_warp_sum s, float max, int lane) {
    if (!(max > s.max)) {
        return s;
    }
    const bool forget = s.max == -INFINITY || napier_is_huge(max) || napier_is_huge(s.max);
    const int64_t top = napier_is_huge(max) ? 0 : napier_sum_top(napier_exp_parts_for(max, max).n);
    if (forget) {
        s.digit = 0;
    } else {
        const int64_t by = top - s.top;
        const uint64_t moved = cuda_shuffle_u64(s.digit, (int)(lane >= by ? lane - by : lane));
        const napier_piece old = napier_piece_of_terms(top, s.count, napier_exp_parts_for(s.max, s.max));
        s.digit = lane < NAPIER_DIGITS ? (lane >= by ? moved : 0) + napier_piece_in(&old, lane) : 0;
    }
    s.top = top;
    s.max = max + 0.0f;
    s.count = 0;
    return s;
}

/* The two numbers of a tile as pieces of a sum whose maximum is at least the tile's. */
typedef struct napier_tile_pieces {
    napier_piece terms, rest;
    uint64_t count; /* elements equal to the sum's maximum */
} napier_tile_pieces;

NAPIER_INLINE napier_tile_pieces napier_tile_pieces_of(const napier_warp_sum *s, napier_tile_part tile) {
    napier_tile_pieces p = {{-2, 0, 0}, {-2, 0, 0}, tile.max == s->max ? (uint64_t)tile.count : 0};
    if (!(fabsf(tile.max) < NAPIER_HUGE) || napier_is_huge(s->max)) {
        return p; /* no term is near enough to count */
    }
    const napier_exp_parts parts = napier_exp_parts_for(tile.max, tile.max);
    if (tile.max != s->max) {
        p.terms = napier_piece_of_terms(s->top, (uint64_t)tile.count, parts);
    }
    if (tile.rest > 0.0f) {
        p.rest = napier_piece_of_rest(s->top, tile.rest, parts.n);
    }
    return p;
}

/* Adds the tiles of all lanes. */
NAPIER_OUTLINE napier_warp_sum napier_warp_sum_add(napier_warp_sum s, napier_tile_part tile, int lane) {
    s.nan |= cuda_ballot(tile.max != tile.max) != 0;
    tile.max = tile.max == tile.max ? tile.max : -INFINITY;
    const float max = napier_group_max(CUDA_WARP, tile.max);
    if (max == -INFINITY) {
        return s;
    }
    s = napier_warp_sum_raise(s, max, lane);
    if (s.max == INFINITY) {
        s.pinf = true;
        return s;
    }
    const napier_tile_pieces p = napier_tile_pieces_of(&s, tile);
    s.count += napier_warp_add(p.count);
    for (int j = 0; j < NAPIER_DIGITS; j++) {
        const uint64_t mine = napier_piece_in(&p.terms, j) + napier_piece_in(&p.rest, j);
        if (cuda_ballot(mine != 0) != 0) {
            const uint64_t all = napier_warp_add(mine);
            s.digit += lane == j ? all : 0;
        }
    }
    return s;
}

/* Stores a sum to memory and loads it. */
NAPIER_INLINE void napier_warp_sum_store(const napier_warp_sum *s, napier_sum *out, int lane) {
    if (lane < NAPIER_DIGITS) {
        out->digit[lane] = s->digit;
    }
    if (lane == 0) {
        out->max = s->max;
        out->nan = s->nan;
        out->pinf = s->pinf;
        out->top = s->top;
        out->count = s->count;
    }
}
NAPIER_INLINE napier_warp_sum napier_warp_sum_load(const napier_sum *in, int lane) {
    const uint64_t digit = lane < NAPIER_DIGITS ? in->digit[lane] : 0;
    return (napier_warp_sum){in->max, in->nan, in->pinf, in->top, in->count, digit};
}

/* The same for a sum that is held in memory, because its warp needs the registers for tiles. */
NAPIER_OUTLINE void napier_warp_sum_take(napier_sum *s, napier_tile_part tile, int lane) {
    const napier_warp_sum sum = napier_warp_sum_add(napier_warp_sum_load(s, lane), tile, lane);
    __syncwarp();
    napier_warp_sum_store(&sum, s, lane);
    __syncwarp();
}

/* napier_sum_merge. */
NAPIER_OUTLINE napier_warp_sum napier_warp_sum_merge(napier_warp_sum a, napier_warp_sum b, int lane) {
    a = napier_warp_sum_raise(a, b.max, lane);
    b = napier_warp_sum_raise(b, a.max, lane);
    a.nan |= b.nan;
    a.pinf |= b.pinf;
    a.count += b.count;
    a.digit += b.digit;
    return a;
}

/* The sum of all warps of the block, in warp 0. First all are raised to one maximum;
 * then their digits can be added directly. */
NAPIER_INLINE napier_warp_sum napier_block_sum(napier_warp_sum s, napier_block_room *room) {
    const int lane = (int)threadIdx.x % CUDA_WARP, warp = (int)threadIdx.x / CUDA_WARP;
    const int warps = (int)blockDim.x / CUDA_WARP;
    if (lane == 0) {
        room->max[warp] = s.max;
    }
    __syncthreads();
    const float max = napier_group_max(CUDA_WARP, lane < warps ? room->max[lane] : -INFINITY);
    s = napier_warp_sum_raise(s, max, lane);
    napier_warp_sum_store(&s, &room->of_warp[warp], lane);
    __syncthreads();
    for (int w = 1; w < warps && warp == 0; w++) {
        const napier_sum *const other = &room->of_warp[w];
        s.nan |= other->nan;
        s.pinf |= other->pinf;
        s.count += other->count;
        s.digit += lane < NAPIER_DIGITS ? other->digit[lane] : 0;
    }
    return s;
}

#endif
