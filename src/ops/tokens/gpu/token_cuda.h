/* ops/tokens/gpu/token_cuda.h - log-probabilities of tokens from logits on a GPU: declarations shared by host and
 * kernels, and what the kernels do with a tile and with a row. As on the CPU (ops/tokens/token_tile.h), a tile is
 * reduced to a slot, and the slots of a row, in their order, to its final.
 *
 * An element of an ordinary bf16 tile, with none beyond the cutoff, takes 16 instructions: 1 to widen, 1 for maximum
 * and minimum (two elements at a time), 11 for exp, a compare, an add and a count. The spread for entropy adds 2. The
 * argmax adds none, because the first slot with the row's maximum is read again. */
#ifndef NAPIER_OPS_TOKENS_GPU_TOKEN_CUDA_H
#define NAPIER_OPS_TOKENS_GPU_TOKEN_CUDA_H

#include "ops/tokens/quantile.h"
#include "ops/tokens/gpu/responses_cuda.h"
#include "ops/tokens/token_row.h"

/* The slot of a tile, as in napier_token_slots. max is NaN if the tile has a NaN. */
typedef struct napier_cuda_token_slot {
    float max, rest, spread;
    int32_t count;
} __attribute__((aligned(16))) napier_cuda_token_slot;

typedef struct napier_cuda_token_job {
    napier_token_call call;
    napier_const_matrix x;         /* logits */
    int64_t tiles;                 /* of a row */
    napier_cuda_token_slot *slots; /* [N, tiles] */
    float *totals;                 /* [N, tiles], or NULL */
    napier_cuda_faults *faults;
} napier_cuda_token_job;

enum { NAPIER_TOKEN_THREADS = 256, NAPIER_TOKEN_WARPS = NAPIER_TOKEN_THREADS / 32, NAPIER_TOKEN_TABLE_THREADS = 1024 };

/* The table of exp has the numbers of at most 64 in magnitude at the places that their bits name: it ends after -64. */
NAPIER_BOTH int64_t napier_token_table_end(napier_dtype dtype) { return (dtype == NAPIER_BF16 ? 0xc280 : 0xd400) + 1; }

/* Shared memory of a warp that finishes a row. */
typedef struct napier_cuda_token_room {
    napier_sum sum;
    napier_token_final final;
} napier_cuda_token_room;

/* ---- The top k (token_top.cu) ------------------------------------------------------------------------------------- */

enum {
    NAPIER_TOP_THREADS = 256,
    NAPIER_TOP_MOST = 1024,
    NAPIER_TOP_COLUMN_BITS = 33 /* three digits; rows with 2^31 or more columns are refused */
};

/* Shared memory of a block. */
typedef struct napier_cuda_top_room {
    int32_t counts[NAPIER_KEY_DIGITS], partial[NAPIER_TOP_THREADS];
    uint32_t u[NAPIER_TOP_MOST];
    int64_t column[NAPIER_TOP_MOST];
    int64_t before;
    int32_t digit, used;
    napier_cuda_token_room row;
} napier_cuda_top_room;

#if defined(CUDA_KERNEL)
#include "core/math/lanes_tanh.h"
#include "ops/softmax/gpu/sum.cuh"

/* ---- Logits to z ------------------------------------------------------------------------------------------------- */

/* softcap tanh(x / softcap), and its derivative. */
typedef struct cuda_token_capped {
    float x, slope;
} cuda_token_capped;

NAPIER_OUTLINE cuda_token_capped cuda_token_cap(float softcap, float x) {
    const vf_tanh_parts t = vf_tanh_and_slope(x / softcap);
    const cuda_token_capped capped = {softcap * t.tanh, t.slope};
    return capped;
}

CUDA_INLINE bool cuda_token_kept(const napier_token_rules *rules, int64_t row, int64_t column) {
    return rules->keep == NULL || rules->keep[row * rules->keep_stride + column] != 0;
}

CUDA_INLINE bool cuda_token_plain(const napier_token_rules *rules) {
    return rules->softcap == 0.0f && rules->temperature == 1.0f && rules->keep == NULL;
}

/* One z, from memory. */
CUDA_INLINE float cuda_token_z(const napier_cuda_token_job *job, int64_t row, int64_t column) {
    const napier_const_matrix *const x = &job->x;
    const napier_token_rules *const rules = &job->call.rules;
    float z = cuda_element(x->data, x->dtype, row * x->row_stride + column * x->col_stride);
    z = rules->softcap != 0.0f ? cuda_token_cap(rules->softcap, z).x : z;
    z = rules->temperature != 1.0f ? napier_quotient(z, rules->temperature) : z;
    return cuda_token_kept(rules, row, column) ? z : -INFINITY;
}

/* The column in the tile of element e of this thread's 32. */
CUDA_INLINE int cuda_token_place(const napier_dtype dtype, int e) {
    const int per = napier_chunk_of(dtype);
    return napier_chunk_at(dtype, CUDA_WARP, cuda_lane(), e / per) + e % per;
}

/* Converts a chunk's logits to z, with -inf past the end; column: its first. slope receives the softcap's derivatives, or is
 * NULL. Each rule goes over the chunk by itself: together, they would need more registers than half a processor has. */
CUDA_INLINE void cuda_token_rules(const napier_dtype dtype, const napier_token_rules *rules, int64_t row,
                                  int64_t column, int64_t cols, float *z, float *slope) {
    if (rules->softcap != 0.0f) {
        NAPIER_UNROLL
        for (int e = 0; e < napier_chunk_of(dtype); e++) {
            const cuda_token_capped capped = cuda_token_cap(rules->softcap, z[e]);
            z[e] = capped.x;
            if (slope != NULL) {
                slope[e] = capped.slope;
            }
        }
    }
    if (rules->temperature != 1.0f) {
        napier_divide(z, napier_chunk_of(dtype), rules->temperature);
    }
    const unsigned char *const keep = rules->keep == NULL ? NULL : rules->keep + row * rules->keep_stride;
    if (keep == NULL && column + napier_chunk_of(dtype) <= cols) {
        return;
    }
    NAPIER_UNROLL
    for (int e = 0; e < napier_chunk_of(dtype); e++) { /* a load past the end is one of the last: no branch */
        const bool inside = column + e < cols, kept = keep == NULL || keep[inside ? column + e : cols - 1] != 0;
        z[e] = inside && kept ? z[e] : -INFINITY;
    }
}
/* The same for a tile. */
CUDA_INLINE void cuda_token_tile_rules(const napier_dtype dtype, const napier_token_rules *rules, int64_t row,
                                       int64_t first, int64_t cols, float *z) {
    NAPIER_UNROLL
    for (int e = 0; e < 32; e += napier_chunk_of(dtype)) {
        cuda_token_rules(dtype, rules, row, first + cuda_token_place(dtype, e), cols, z + e, NULL);
    }
}

/* Loads a tile as stored. */
CUDA_INLINE void cuda_token_load(const napier_dtype dtype, const napier_line *line, int64_t first,
                                 napier_words *words) {
    napier_load_tile(dtype, 4, CUDA_WARP, line, first, cuda_lane(), words);
}

/* ---- A tile to its slot ------------------------------------------------------------------------------------------ */

/* Reduces a tile whose maximum is not an ordinary number, element by element, from memory. */
NAPIER_OUTLINE napier_cuda_token_slot cuda_token_odd(const napier_cuda_token_job *job, int64_t row, int64_t first,
                                                     float max) {
    const bool finite = fabsf(max) < NAPIER_HUGE;
    const int64_t exponent = finite ? napier_exp_parts_for(max, max).n : 0;
    cuda_ladder rest = {0.0f, 0.0f, 0.0f}, spread = {0.0f, 0.0f, 0.0f};
    int32_t count = 0;
    for (int s = 0; s < CUDA_STEPS; s++) {
        float sum = 0.0f, down = 0.0f;
        for (int q = 0; q < CUDA_STEP_TOKENS; q++) {
            const int64_t column = first + cuda_step_token(s, q);
            const float z = column < job->x.cols ? cuda_token_z(job, row, column) : vf_canonical_nan();
            count += z == max ? 1 : 0;
            if (finite && z <= max && napier_within_cutoff(z, max)) {
                const float term = napier_term(z, max, exponent);
                sum += z < max ? term : 0.0f;
                down = fmaf(-term, z - max, down);
            }
        }
        cuda_ladder_add(&rest, s, sum);
        cuda_ladder_add(&spread, s, down);
    }
    const napier_cuda_token_slot slot = {max, cuda_ladder_fold(&rest), cuda_ladder_fold(&spread),
                                         napier_group_add(CUDA_WARP, count)};
    return slot;
}

/* The largest (NaN if there is one) and the smallest of a thread's elements. */
typedef struct cuda_token_range {
    float max, min;
} cuda_token_range;

/* The minimum in one instruction. It ignores NaN, and may return either of two zeros. */
CUDA_INLINE float cuda_token_min(float a, float b) {
#if defined(__CUDACC__)
    float y;
    asm("min.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
#else
    return vf_min(a, b);
#endif
}

CUDA_INLINE cuda_token_range cuda_token_range_of(const float *z) {
    cuda_token_range r = {-INFINITY, INFINITY};
    NAPIER_UNROLL
    for (int e = 0; e < 32; e++) {
        r.max = napier_max_or_nan(z[e], r.max);
        r.min = cuda_token_min(z[e], r.min);
    }
    return r;
}

/* The same of words of 16-bit elements as stored, two at a time. */
CUDA_INLINE cuda_token_range cuda_token_range_of_words(const napier_dtype dtype, const napier_words *words,
                                                       const float *z) {
#if defined(__CUDACC__)
    uint32_t max = words[0].w[0], min = max;
    (void)z;
    NAPIER_UNROLL
    for (int i = 1; i < 16; i++) {
        if (dtype == NAPIER_BF16) {
            asm("max.NaN.bf16x2 %0, %0, %1;" : "+r"(max) : "r"(words[i / 4].w[i % 4]));
            asm("min.bf16x2 %0, %0, %1;" : "+r"(min) : "r"(words[i / 4].w[i % 4]));
        } else {
            asm("max.NaN.f16x2 %0, %0, %1;" : "+r"(max) : "r"(words[i / 4].w[i % 4]));
            asm("min.f16x2 %0, %0, %1;" : "+r"(min) : "r"(words[i / 4].w[i % 4]));
        }
    }
    const cuda_token_range r = {napier_max_or_nan(napier_widen(dtype, max & 0xffffu), napier_widen(dtype, max >> 16)),
                                cuda_token_min(napier_widen(dtype, min & 0xffffu), napier_widen(dtype, min >> 16))};
    return r;
#else
    (void)dtype;
    (void)words;
    return cuda_token_range_of(z);
#endif
}

/* Adds an element to its lane. If it is below the maximum, its term is added, else it is counted. Its distance times
 * its term is added to the spread. first: the lane is still empty. far: the element may be beyond the cutoff, and then
 * does not count. Uses predicates, not branches. */
CUDA_INLINE void cuda_token_step(const bool entropy, const bool far, const bool first, const napier_term_scale *s,
                                 float z, float *sum, float *spread, int32_t *count) {
    const float term = vf_exp_scaled(z, s->magic), down = z - s->max;
#if defined(__CUDACC__)
    if (far) {
        asm("{ .reg .pred p, q; setp.lt.f32 p, %3, %4; setp.ge.f32 q, %3, %5; @!p add.s32 %1, %1, 1;"
            " @q fma.rn.f32 %2, %7, %8, %2; and.pred p, p, q; @p add.rn.f32 %0, %0, %6; }"
            : "+f"(*sum), "+r"(*count), "+f"(*spread)
            : "f"(z), "f"(s->max), "f"(s->cutoff), "f"(term), "f"(-term), "f"(down));
        return;
    }
    if (first) {
        asm("{ .reg .pred p; setp.lt.f32 p, %2, %3; selp.f32 %0, %4, 0f00000000, p; @!p add.s32 %1, %1, 1; }"
            : "=f"(*sum), "+r"(*count)
            : "f"(z), "f"(s->max), "f"(term));
    } else {
        asm("{ .reg .pred p; setp.lt.f32 p, %2, %3; @p add.rn.f32 %0, %0, %4; @!p add.s32 %1, %1, 1; }"
            : "+f"(*sum), "+r"(*count)
            : "f"(z), "f"(s->max), "f"(term));
    }
    *spread = entropy ? fmaf(-term, down, *spread) : 0.0f;
#else
    const bool below = z < s->max, near = !far || z >= s->cutoff;
    *sum = below && near ? (first ? term : *sum + term) : first ? 0.0f : *sum;
    *count += below ? 0 : 1;
    *spread = entropy && near ? fmaf(-term, down, *spread) : *spread;
#endif
}

CUDA_INLINE napier_cuda_token_slot cuda_token_add(const napier_dtype dtype, const bool entropy, const bool far,
                                                  const float max, const float *z) {
    const napier_term_scale s = napier_term_scale_of(max);
    float sum[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
    float spread[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
    int32_t count = 0;
    NAPIER_UNROLL
    for (int e = 0; e < 32; e++) {
        cuda_token_step(entropy, far, e < 8, &s, z[e], &sum[e % 8], &spread[e % 8], &count);
    }
    const napier_cuda_token_slot slot = {max, napier_fold(dtype, CUDA_WARP, cuda_lane(), sum),
                                         entropy ? napier_fold(dtype, CUDA_WARP, cuda_lane(), spread) : 0.0f,
                                         (int32_t)cuda_add_u32((uint32_t)count)};
    return slot;
}

/* r: the range of this thread's elements. */
CUDA_INLINE napier_cuda_token_slot cuda_token_sum(const napier_dtype dtype, const bool entropy,
                                                  const napier_cuda_token_job *job, int64_t row, int64_t first,
                                                  const cuda_token_range *r, const float *z) {
    const float max = napier_group_max(CUDA_WARP, r->max) + 0.0f; /* makes -0 and +0 one maximum */
    if (max != max) {
        const napier_cuda_token_slot nan = {max, 0.0f, 0.0f, 0};
        return nan;
    }
    if (!napier_is_ordinary(max)) {
        return cuda_token_odd(job, row, first, max);
    }
    return cuda_ballot(!(r->min >= max - NAPIER_CUTOFF)) != 0 ? cuda_token_add(dtype, entropy, true, max, z)
                                                              : cuda_token_add(dtype, entropy, false, max, z);
}

/* ---- Slots to the final of a row --------------------------------------------------------------------------------- */

/* A tile's spread, moved to the row's maximum, in units of the row's 2^E, as in napier_token_moved. */
CUDA_INLINE double cuda_token_moved(const napier_cuda_token_slot *slot, float max, int64_t exponent) {
    const bool small = fabsf(max) <= NAPIER_BIG && max - NAPIER_TOKEN_FAR >= -NAPIER_BIG;
    const double distance = (double)max - (double)slot->max;
    const bool near = small ? slot->max >= max - NAPIER_TOKEN_FAR : distance <= (double)NAPIER_TOKEN_FAR;
    if (!near || napier_is_huge(max)) {
        return 0.0;
    }
    const napier_exp_parts parts = napier_exp_parts_for(slot->max, slot->max);
    const int64_t down = parts.n - exponent < -252 ? -252 : parts.n - exponent;
    const double terms = (double)slot->count * (double)parts.p + (double)slot->rest * 0x1p-64;
    return ((double)slot->spread * 0x1p-64 + distance * terms) * napier_f64_power_of_two((int)down);
}

/* Adds the numbers of 32 tiles to 16 lanes, tile t to lane t % 16, in order. */
CUDA_INLINE double cuda_token_add16(double lane, double mine) {
    lane += mine;
    return lane + cuda_shuffle_f64(mine, cuda_lane() % 16 + 16);
}
CUDA_INLINE double cuda_token_fold16(double lane) {
    for (int lanes = 8; lanes > 0; lanes /= 2) {
        lane += cuda_shuffle_xor_f64(lane, lanes);
    }
    return cuda_shuffle_f64(lane, 0);
}

CUDA_INLINE double cuda_token_spread(const napier_cuda_token_slot *slots, int64_t tiles, float max) {
    const int64_t exponent = napier_is_huge(max) ? 0 : napier_exp_parts_for(max, max).n;
    double lane = 0.0;
    for (int64_t i = 0; i < tiles; i += CUDA_WARP) {
        double mine = 0.0;
        if (i + cuda_lane() < tiles) {
            mine = cuda_token_moved(&slots[i + cuda_lane()], max, exponent);
        }
        lane = cuda_token_add16(lane, mine);
    }
    return cuda_token_fold16(lane);
}

CUDA_INLINE double cuda_token_total(const float *totals, int64_t tiles) {
    double lane = 0.0;
    for (int64_t i = 0; i < tiles; i += CUDA_WARP) {
        lane = cuda_token_add16(lane, i + cuda_lane() < tiles ? (double)totals[i + cuda_lane()] : 0.0);
    }
    return cuda_token_fold16(lane);
}

/* A warp finishes a row, as in napier_token_finish. The final goes to the warp's shared memory. */
CUDA_INLINE void cuda_token_finish(const napier_cuda_token_job *job, int64_t row, napier_cuda_token_room *room) {
    const napier_cuda_token_slot *const slots = job->slots + row * job->tiles;
    const napier_token_wants *const wants = &job->call.wants;
    napier_warp_sum sum = napier_warp_sum_start();
    for (int64_t i = 0; i < job->tiles; i += CUDA_WARP) {
        napier_tile_part part = napier_no_tile();
        if (i + cuda_lane() < job->tiles) {
            const napier_cuda_token_slot *const slot = &slots[i + cuda_lane()];
            part.max = slot->max;
            part.rest = slot->rest;
            part.count = slot->count;
        }
        sum = napier_warp_sum_add(sum, part, cuda_lane());
    }
    const bool finite = !sum.nan && fabsf(sum.max) < INFINITY;
    const double spread = finite && wants->entropy ? cuda_token_spread(slots, job->tiles, sum.max) : 0.0;
    const double total = wants->total ? cuda_token_total(job->totals + row * job->tiles, job->tiles) : 0.0;
    napier_warp_sum_store(&sum, &room->sum, cuda_lane());
    __syncwarp();
    if (cuda_lane() == 0) {
        room->final.row = napier_sum_finish(&room->sum);
        room->final.entropy = !wants->entropy ? 0.0f
                              : finite        ? napier_token_entropy(&room->sum, spread)
                                              : vf_canonical_nan();
        room->final.total = total;
    }
    __syncwarp();
}

/* ---- Ids --------------------------------------------------------------------------------------------------------- */

typedef enum cuda_token_kind { CUDA_TOKEN_GOOD, CUDA_TOKEN_IGNORED, CUDA_TOKEN_BAD } cuda_token_kind;

CUDA_INLINE cuda_token_kind cuda_token_kind_of(const napier_cuda_token_job *job, int64_t id) {
    return napier_token_ignored(&job->call, id) ? CUDA_TOKEN_IGNORED
           : id >= 0 && id < job->call.cols     ? CUDA_TOKEN_GOOD
                                                : CUDA_TOKEN_BAD;
}

/* The number of a row's tokens that keep selects. Called by the whole warp. */
CUDA_INLINE int64_t cuda_token_count_kept(const napier_cuda_token_job *job, int64_t row) {
    const napier_token_rules *const rules = &job->call.rules;
    int64_t kept = 0;
    if (rules->keep == NULL) {
        return job->call.cols;
    }
    for (int64_t j = cuda_lane(); j < job->call.cols; j += CUDA_WARP) {
        kept += cuda_token_kept(rules, row, j) ? 1 : 0;
    }
    return cuda_warp_add_i64(kept);
}

#else
#include "core/gpu/launch.h"
#include "ops/tokens/token_call.h"

/* Makes a job from a call that has been read, with memory from the workspace. */
napier_cuda_token_job napier_cuda_token_of(napier_cuda_context *context, napier_cuda_room *room,
                                           const napier_token_call *call, napier_const_matrix logits);

/* Computes the slots of all rows. */
napier_status napier_cuda_token_sums(const napier_cuda_call *gpu, const napier_cuda_token_job *job);
/* Computes the slots, and then all results except the top k. */
napier_status napier_cuda_token_run(const napier_cuda_call *gpu, const napier_cuda_token_job *job);
#endif

#endif
