/* ops/tokens/gpu/responses_cuda.h - ragged responses on a GPU: checking offsets there, tiles, and sums in the CPU's
 * order.
 *
 * A warp takes a tile of 1024 tokens, named by the slot of its sums (ops/tokens/responses.h). So the work is known
 * without reading the offsets. Of the tile's 256 lanes, thread t computes t, t + 32, .. t + 224, one after another, in
 * the order in which they fold. So a sum takes three numbers, not eight. */
#ifndef NAPIER_OPS_TOKENS_GPU_RESPONSES_CUDA_H
#define NAPIER_OPS_TOKENS_GPU_RESPONSES_CUDA_H

#include <napier/rl.h>

#include "core/gpu/fault.h"
#include "core/math/f64.h"
#include "ops/softmax/sum.h"
#include "ops/tokens/counts.h"

/* The result of checking all offsets and the mask. Cleared before. */
typedef struct napier_cuda_tally {
    napier_response_counts all;
    int64_t bad; /* number of invalid offsets; if it is not 0, all results are NaN */
} napier_cuda_tally;

typedef struct napier_cuda_responses {
    napier_indices offsets;
    const uint8_t *mask; /* NULL: all tokens count */
    int64_t count, tokens;
    int64_t slots;    /* number of tiles, and at most one empty slot for each response */
    bool count_empty; /* responses without tokens count as present too */
    napier_cuda_tally *tally;
    napier_cuda_faults *faults;
} napier_cuda_responses;

enum { NAPIER_RESPONSE_THREADS = 256, NAPIER_RESPONSE_WARPS = NAPIER_RESPONSE_THREADS / 32 };

/* The number of counted tokens in each slot. */
typedef struct napier_cuda_count_job {
    napier_cuda_responses responses;
    int32_t *counted;
} napier_cuda_count_job;

#if defined(CUDA_KERNEL)
#include "ops/softmax/gpu/tile.cuh"

/* ---- Elements ---------------------------------------------------------------------------------------------------- */

CUDA_INLINE float cuda_element(const void *data, napier_dtype dtype, int64_t at) {
    return napier_widen(dtype, napier_element_bits(dtype, (const char *)data + at * napier_element_bytes(dtype)));
}
CUDA_INLINE float cuda_token(napier_const_vector v, int64_t t) { return cuda_element(v.data, v.dtype, t * v.stride); }

/* Stores a float, rounded once. A NaN becomes the canonical one. */
CUDA_INLINE void cuda_put(void *data, napier_dtype dtype, int64_t at, float x) {
    x = x != x ? vf_canonical_nan() : x;
    if (dtype == NAPIER_F32) {
        ((float *)data)[at] = x;
    } else {
        ((uint16_t *)data)[at] = (uint16_t)napier_narrow_two(dtype, x, 0.0f);
    }
}
CUDA_INLINE void cuda_put_token(napier_vector v, int64_t t, float x) { cuda_put(v.data, v.dtype, t * v.stride, x); }

CUDA_INLINE int64_t cuda_index_at(napier_indices indices, int64_t i) {
    return indices.type == NAPIER_I32 ? ((const int32_t *)indices.data)[i] : ((const int64_t *)indices.data)[i];
}

/* ---- Threads ----------------------------------------------------------------------------------------------------- */

CUDA_INLINE int cuda_lane(void) { return (int)threadIdx.x % CUDA_WARP; }
CUDA_INLINE int64_t cuda_warp(void) { return ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / CUDA_WARP; }
CUDA_INLINE int64_t cuda_warps(void) { return (int64_t)gridDim.x * blockDim.x / CUDA_WARP; }
CUDA_INLINE int64_t cuda_thread(void) { return (int64_t)blockIdx.x * blockDim.x + threadIdx.x; }
CUDA_INLINE int64_t cuda_threads(void) { return (int64_t)gridDim.x * blockDim.x; }

CUDA_INLINE double cuda_shuffle_f64(double v, int lane) {
    return napier_double_of_bits(cuda_shuffle_u64(napier_double_bits(v), lane));
}
CUDA_INLINE double cuda_shuffle_xor_f64(double v, int lanes) {
    return napier_double_of_bits(cuda_shuffle_xor_u64(napier_double_bits(v), lanes));
}
CUDA_INLINE int64_t cuda_warp_add_i64(int64_t v) {
    for (int lanes = CUDA_WARP / 2; lanes > 0; lanes /= 2) {
        v += (int64_t)cuda_shuffle_xor_u64((uint64_t)v, lanes);
    }
    return v;
}
CUDA_INLINE int64_t cuda_warp_max_i64(int64_t v) {
    for (int lanes = CUDA_WARP / 2; lanes > 0; lanes /= 2) {
        const int64_t other = (int64_t)cuda_shuffle_xor_u64((uint64_t)v, lanes);
        v = other > v ? other : v;
    }
    return v;
}

/* total plus the values of the first n <= 32 lanes, added in ascending order. */
CUDA_INLINE double cuda_warp_ordered(double total, double mine, int64_t n) {
    for (int k = 0; k < CUDA_WARP && k < n; k++) {
        total += cuda_shuffle_f64(mine, k);
    }
    return total;
}

/* ---- Tiles ------------------------------------------------------------------------------------------------------- */

typedef struct napier_cuda_tile {
    int64_t response, first;
    int64_t tile; /* index of the tile in its response */
    int n;
} napier_cuda_tile;

CUDA_INLINE int64_t cuda_response_begin(const napier_cuda_responses *r, int64_t b) {
    return cuda_index_at(r->offsets, b);
}
CUDA_INLINE int64_t cuda_response_size(const napier_cuda_responses *r, int64_t b) {
    return cuda_index_at(r->offsets, b + 1) - cuda_index_at(r->offsets, b);
}
CUDA_INLINE int64_t cuda_response_tiles(const napier_cuda_responses *r, int64_t b) {
    return (cuda_response_size(r, b) + NAPIER_TILE - 1) / NAPIER_TILE;
}
/* The first slot of a response, as in napier_tile_slot. */
CUDA_INLINE int64_t cuda_response_slot(const napier_cuda_responses *r, int64_t b) {
    return cuda_response_begin(r, b) / NAPIER_TILE + b;
}

/* The last response whose first slot (if `slot`) or first token (else) is not above `at`. */
CUDA_INLINE int64_t cuda_response_at(const napier_cuda_responses *r, int64_t at, bool slot) {
    int64_t low = 0, high = r->count;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if ((slot ? cuda_response_slot(r, middle) : cuda_response_begin(r, middle)) <= at) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Returns false for a slot without a tile. The offsets must have been checked. */
CUDA_INLINE bool cuda_tile_of(const napier_cuda_responses *r, int64_t slot, napier_cuda_tile *t) {
    t->response = cuda_response_at(r, slot, true);
    t->tile = slot - cuda_response_slot(r, t->response);
    const int64_t done = t->tile * NAPIER_TILE, left = cuda_response_size(r, t->response) - done;
    t->first = cuda_response_begin(r, t->response) + done;
    t->n = left < NAPIER_TILE ? (int)left : NAPIER_TILE;
    return left > 0;
}

CUDA_INLINE bool cuda_counts(const napier_cuda_responses *r, int64_t t) { return r->mask == NULL || r->mask[t] != 0; }

/* ---- Sums over a tile -------------------------------------------------------------------------------------------- */

/* A tile takes 8 steps. In step s thread t adds lane t + 32 * cuda_step_lane(s), whose elements are 256 apart. */
enum { CUDA_STEPS = 8 };
CUDA_INLINE int cuda_step_lane(int s) { return (s & 1) << 2 | (s & 2) | s >> 2; }
/* The token of the tile that this thread adds as number q of step s. */
CUDA_INLINE int cuda_step_token(int s, int q) {
    return q * NAPIER_TILE_LANES + CUDA_WARP * cuda_step_lane(s) + cuda_lane();
}
enum { CUDA_STEP_TOKENS = NAPIER_TILE / NAPIER_TILE_LANES };

typedef struct cuda_ladder {
    float two, four, eight; /* lanes 128 apart, 64 and 32 */
} cuda_ladder;
CUDA_INLINE void cuda_ladder_add(cuda_ladder *l, int s, float lane) {
    l->two = s & 1 ? l->two + lane : lane;
    if (s & 1) {
        l->four = s & 2 ? l->four + l->two : l->two;
    }
    if ((s & 3) == 3) {
        l->eight = s & 4 ? l->eight + l->four : l->four;
    }
}
CUDA_INLINE float cuda_ladder_fold(const cuda_ladder *l) {
    float v = l->eight;
    for (int lanes = CUDA_WARP / 2; lanes > 0; lanes /= 2) {
        v += cuda_shuffle_xor_f32(v, lanes);
    }
    return v;
}

/* The same in double, for sums that become an exponent. */
typedef struct cuda_wide_ladder {
    double two, four, eight;
} cuda_wide_ladder;
CUDA_INLINE void cuda_wide_ladder_add(cuda_wide_ladder *l, int s, double lane) {
    l->two = s & 1 ? l->two + lane : lane;
    if (s & 1) {
        l->four = s & 2 ? l->four + l->two : l->two;
    }
    if ((s & 3) == 3) {
        l->eight = s & 4 ? l->eight + l->four : l->four;
    }
}
CUDA_INLINE double cuda_wide_ladder_fold(const cuda_wide_ladder *l) {
    double v = l->eight;
    for (int lanes = CUDA_WARP / 2; lanes > 0; lanes /= 2) {
        v += cuda_shuffle_xor_f64(v, lanes);
    }
    return v;
}

#else
#include "core/gpu/launch.h"

/* Makes the device's view of the checked arguments, with the tally from the workspace. */
napier_cuda_responses napier_cuda_responses_of(napier_cuda_context *context, napier_cuda_room *room,
                                               napier_indices offsets, int64_t tokens, const uint8_t *mask);
/* Launches the check of offsets and mask in the stream. */
napier_status napier_cuda_responses_look(const napier_cuda_call *gpu, const napier_cuda_responses *r);

/* Launches a kernel whose warps divide `count` pieces. Each warp finds its own. */
napier_status napier_cuda_warps(const napier_cuda_call *gpu, napier_cuda_kernel kernel, int64_t count, const void *job,
                                size_t job_size);
#define NAPIER_CUDA_WARPS(gpu, kernel, count, job) \
    napier_cuda_warps(gpu, NAPIER_CUDA_KERNEL(kernel), count, job, sizeof *(job))
#endif

#endif
