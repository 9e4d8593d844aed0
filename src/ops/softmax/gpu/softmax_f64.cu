/* ops/softmax/gpu/softmax_f64.cu - softmax, log_softmax, logsumexp and their gradients in double precision
 * on a GPU, with the CPU's bits. It aims at correctness, not speed: a thread for each of a tile's 256
 * lanes, sums in one kernel, results in another. */
#include <assert.h>

#define NAPIER_LANES_CUDA
#include "core/gpu/kernel.h"
#include "core/math/f64.h"
#include "core/simd/lanes.h"
#include "ops/softmax/gpu/softmax_f64_cuda.h"

/* ---- Elements of a line ------------------------------------------------------------------------------------------ */

/* The position of element i of a line, counted in elements. */
NAPIER_INLINE int64_t napier_f64_place(const napier_f64_cuda_job *job, int64_t row_stride, int64_t col_stride,
                                       int64_t line, int64_t i) {
    const int64_t row = job->whole ? i / job->x.cols : line, col = job->whole ? i % job->x.cols : i;
    return row * row_stride + col * col_stride;
}
NAPIER_INLINE double napier_f64_element(const napier_f64_cuda_job *job, const napier_const_matrix *m, int64_t line,
                                        int64_t i) {
    return napier_f64_load(m->data, m->dtype, napier_f64_place(job, m->row_stride, m->col_stride, line, i));
}
NAPIER_INLINE double napier_f64_logit(const napier_f64_cuda_job *job, int64_t line, int64_t i) {
    const double x = napier_f64_element(job, &job->x, line, i);
    return job->temperature != 1 ? x / job->temperature : x;
}
NAPIER_INLINE int napier_f64_tile_end(const napier_f64_cuda_job *job, int64_t tile) {
    const int64_t left = job->size - tile * NAPIER_F64_TILE;
    return left < NAPIER_F64_TILE ? (int)left : NAPIER_F64_TILE;
}

/* ---- Sums over a block's 256 threads, one lane each -------------------------------------------------------------- */

typedef struct napier_f64_room {
    double lane[NAPIER_F64_LANES];
    uint64_t count;
    bool nan;
    napier_f64_sum sum;
} napier_f64_room;

static_assert(sizeof(napier_f64_room) <= NAPIER_F64_ROOM, "the launch asks for so much");

/* The sum, folded by halves as in napier_f64_fold, or the maximum; every thread gets it. */
NAPIER_INLINE double napier_f64_block_fold(double mine, bool max, double *lane) {
    const int t = (int)threadIdx.x;
    lane[t] = mine;
    __syncthreads();
    for (int half = NAPIER_F64_LANES / 2; half > 0; half /= 2) {
        if (t < half && max) {
            lane[t] = lane[t + half] > lane[t] ? lane[t + half] : lane[t];
        } else if (t < half) {
            lane[t] += lane[t + half];
        }
        __syncthreads();
    }
    const double all = lane[0];
    __syncthreads();
    return all;
}

/* napier_f64_tile_by_definition and napier_f64_sum_add_part, by all threads of the block. */
NAPIER_INLINE void napier_f64_add_tile(const napier_f64_cuda_job *job, int64_t line, int64_t tile,
                                       napier_f64_room *room) {
    const int n = napier_f64_tile_end(job, tile), t = (int)threadIdx.x;
    double z[NAPIER_F64_TILE / NAPIER_F64_LANES], max = -HUGE_VAL, lane = 0;
    int held = 0;
    bool nan = false;
    for (int i = t; i < n; i += NAPIER_F64_LANES, held++) {
        z[held] = napier_f64_logit(job, line, tile * NAPIER_F64_TILE + i);
        nan |= z[held] != z[held];
        max = z[held] > max ? z[held] : max;
    }
    napier_f64_tile_part part = {napier_f64_block_fold(max, true, room->lane), 0, 0, false};
    const int64_t exponent = napier_f64_exponent_of(part.max);
    double count = 0; /* a whole number: exact in any order */
    for (int k = 0; k < held; k++) {
        count += z[k] == part.max ? 1 : 0;
        if (!napier_f64_is_huge(part.max)) {
            lane += napier_f64_term(z[k], part.max, exponent);
        }
    }
    part.count = (uint64_t)napier_f64_block_fold(count, false, room->lane);
    part.nan = napier_f64_block_fold(nan ? 1 : 0, false, room->lane) > 0;
    part.rest = napier_f64_block_fold(lane, false, room->lane);
    if (t == 0) {
        napier_f64_sum_add_part(&room->sum, &part);
    }
}

/* Block = line * parts + part. */
CUDA_KERNEL(napier_f64_sums, napier_f64_cuda_job, NAPIER_F64_LANES) {
    CUDA_SHARED(napier_f64_room, room);
    const int64_t line = blockIdx.x / job.parts, first = blockIdx.x % job.parts * job.share;
    if (threadIdx.x == 0) {
        napier_f64_sum_init(&room->sum);
    }
    __syncthreads();
    for (int64_t tile = first; tile < first + job.share && tile < job.tiles; tile++) {
        napier_f64_add_tile(&job, line, tile, room);
    }
    if (threadIdx.x == 0) {
        job.sums[blockIdx.x] = room->sum;
    }
}

/* A thread for each line. */
CUDA_KERNEL(napier_f64_merge, napier_f64_cuda_job, CUDA_WARP) {
    const int64_t line = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (line >= job.lines) {
        return;
    }
    napier_f64_sum sum;
    napier_f64_sum_init(&sum);
    if (job.states != NULL && !job.clear) {
        sum = job.states[line];
    }
    for (int64_t part = 0; part < job.parts && job.sums != NULL; part++) {
        napier_f64_sum_merge(&sum, &job.sums[line * job.parts + part]);
    }
    if (job.result == NAPIER_F64_STATE) {
        job.states[line] = sum;
        return;
    }
    napier_f64_final final;
    napier_f64_finish(&sum, &final);
    if (job.result == NAPIER_F64_LSE) {
        napier_f64_store(job.y.data, job.y.dtype, line * job.y.row_stride, final.lse);
    } else {
        job.finals[line] = final;
    }
}

/* ---- The row sums of the gradients: a block for each tile in turn, then a thread for each line ------------------- */

CUDA_KERNEL(napier_f64_tile_sums, napier_f64_cuda_job, NAPIER_F64_LANES) {
    CUDA_SHARED(napier_f64_room, room);
    for (int64_t at = blockIdx.x; at < job.lines * job.tiles; at += gridDim.x) {
        const int64_t line = at / job.tiles, tile = at % job.tiles;
        double rest = 0, prob = 0, certain = 0;
        for (int i = (int)threadIdx.x; i < napier_f64_tile_end(&job, tile); i += NAPIER_F64_LANES) {
            const double g = napier_f64_element(&job, &job.g, line, tile * NAPIER_F64_TILE + i);
            if (job.result == NAPIER_F64_LOG_SOFTMAX_GRADIENT) {
                rest += g;
                continue;
            }
            const double p = napier_f64_element(&job, &job.x, line, tile * NAPIER_F64_TILE + i);
            if (p > (double)NAPIER_CERTAIN) {
                certain = fma(g, p, certain);
            } else if (p != 0) {
                rest = fma(g, p, rest);
                prob += p;
            }
        }
        napier_certain_sums sums;
        sums.certain = napier_f64_block_fold(certain, false, room->lane);
        sums.rest = napier_f64_block_fold(rest, false, room->lane);
        sums.prob = napier_f64_block_fold(prob, false, room->lane);
        if (threadIdx.x == 0) {
            job.tile_sums[at] = sums;
        }
    }
}

CUDA_KERNEL(napier_f64_totals, napier_f64_cuda_job, CUDA_WARP) {
    const int64_t line = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    napier_certain_sums total = {0, 0, 0};
    for (int64_t tile = 0; tile < job.tiles && line < job.lines; tile++) {
        napier_certain_sums_add(&total, &job.tile_sums[line * job.tiles + tile]);
    }
    if (line < job.lines && job.result == NAPIER_F64_DOT) {
        napier_f64_store(job.y.data, job.y.dtype, line * job.y.row_stride, total.rest + total.certain);
    } else if (line < job.lines) {
        job.totals[line] = total;
    }
}

/* ---- Results, element by element --------------------------------------------------------------------------------- */

NAPIER_INLINE double napier_f64_result_of(const napier_f64_cuda_job *job, int64_t line, int64_t i) {
    double y = 0;
    switch (job->result) {
    case NAPIER_F64_SOFTMAX_GRADIENT:
        return napier_f64_softmax_gradient(napier_f64_element(job, &job->x, line, i),
                                           napier_f64_element(job, &job->g, line, i), &job->totals[line],
                                           job->temperature);
    case NAPIER_F64_LOG_SOFTMAX_GRADIENT:
        return napier_f64_log_softmax_gradient(napier_f64_element(job, &job->x, line, i),
                                               napier_f64_element(job, &job->g, line, i), &job->totals[line],
                                               job->temperature);
    case NAPIER_F64_LSE_GRADIENT:
        y = napier_f64_logit(job, line, i);
        napier_f64_apply(&job->finals[line], NAPIER_KIND_SOFTMAX, NAPIER_MASKED_ZERO, &y, &y, 1);
        return napier_f64_lse_gradient(
            y, napier_f64_load(job->factor.data, job->factor.dtype, line * job->factor.stride), job->temperature);
    default:
        y = napier_f64_logit(job, line, i);
        napier_f64_apply(&job->finals[line],
                         job->result == NAPIER_F64_SOFTMAX ? NAPIER_KIND_SOFTMAX : NAPIER_KIND_LOG_SOFTMAX,
                         job->masked_rows, &y, &y, 1);
        return y;
    }
}

CUDA_KERNEL(napier_f64_write, napier_f64_cuda_job, NAPIER_F64_LANES) {
    const int64_t count = job.lines * job.size, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < count; at += step) {
        const int64_t line = at / job.size, i = at % job.size;
        const double result = napier_f64_result_of(&job, line, i);
        napier_f64_store(job.y.data, job.y.dtype, napier_f64_place(&job, job.y.row_stride, job.y.col_stride, line, i),
                         result);
    }
}
