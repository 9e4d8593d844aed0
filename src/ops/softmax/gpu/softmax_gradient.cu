/* ops/softmax/gpu/softmax_gradient.cu - the gradients of softmax and log_softmax
 * on a GPU, in the order of gradient.inc.h.
 *
 * Row sums: 256 lanes over a tile of 1024, folded by halves. One thread adds the tiles' sums in double in order of
 * their index, because signed terms have no exact sum that would make the order irrelevant. Thread t of a warp has
 * lanes 8t .. 8t+7 for every dtype.
 *
 *   short   a warp takes a row of one tile and keeps it in registers
 *   rows    a block takes a row and keeps both inputs in shared memory: one read
 *   tiles   the sums of all tiles, a warp each; totals, a block for each row; write: two reads */
#define NAPIER_LANES_CUDA
#include "ops/softmax/gpu/softmax_gradient_cuda.h"
#include "ops/softmax/gpu/tile.cuh"

/* ---- Eight elements of a thread ---------------------------------------------------------------------------------- */

/* Eight elements from i on: one chunk, or two of floats. */
typedef struct napier_eight {
    napier_words words[2];
} napier_eight;

NAPIER_INLINE napier_words napier_load_chunk(const napier_line *l, int64_t i) {
    const int per = napier_chunk_of(l->dtype);
    napier_words words = {{0, 0, 0, 0}};
    if (napier_is_wide(l, 16) && i + per <= l->size) {
        cuda_load_16(l->data + i * (16 / per), &words);
    } else if (i < l->size) {
        words = napier_load_edge(l->data, l->dtype, l->size, l->stride, l->cols, l->row_stride, i);
    }
    return words;
}

NAPIER_INLINE napier_eight napier_load_eight(const napier_line *l, int64_t i) {
    napier_eight eight;
    eight.words[0] = napier_load_chunk(l, i);
    if (l->dtype == NAPIER_F32) {
        eight.words[1] = napier_load_chunk(l, i + 4);
    }
    return eight;
}

/* As floats; 0 past the end of the line. */
NAPIER_INLINE void napier_unpack_eight(const napier_line *l, const napier_eight *eight, int64_t i, float *z) {
    switch (l->dtype) {
    case NAPIER_F32:
        napier_unpack_chunk(NAPIER_F32, &eight->words[0], 1.0f, z);
        napier_unpack_chunk(NAPIER_F32, &eight->words[1], 1.0f, z + 4);
        break;
    case NAPIER_BF16: napier_unpack_chunk(NAPIER_BF16, &eight->words[0], 1.0f, z); break;
    default: napier_unpack_chunk(NAPIER_F16, &eight->words[0], 1.0f, z); break;
    }
    if (i + 8 > l->size) {
        NAPIER_UNROLL
        for (int e = 0; e < 8; e++) {
            z[e] = i + e < l->size ? z[e] : 0.0f;
        }
    }
}

/* ---- The two steps of a gradient --------------------------------------------------------------------------------- */

/* A row's three lines. */
typedef struct napier_gradient_lines {
    napier_line values, gradients, out;
} napier_gradient_lines;

NAPIER_INLINE napier_gradient_lines napier_gradient_lines_of(const napier_gradient_cuda_job *job, int64_t row) {
    return (napier_gradient_lines){napier_line_in(&job->values, false, row),
                                   napier_line_in(&job->gradients, false, row), napier_line_out(&job->out, false, row)};
}

/* Both eights from element i on, as floats. */
NAPIER_INLINE void napier_gradient_load(const napier_gradient_lines *lines, int64_t i, float *value, float *gradient) {
    const napier_eight values = napier_load_eight(&lines->values, i);
    const napier_eight gradients = napier_load_eight(&lines->gradients, i);
    napier_unpack_eight(&lines->values, &values, i, value);
    napier_unpack_eight(&lines->gradients, &gradients, i, gradient);
}

/* A thread's eight lanes of the sums of a tile. */
typedef struct napier_gradient_lanes {
    float certain[8], rest[8], prob[8];
} napier_gradient_lanes;

NAPIER_INLINE void napier_gradient_lanes_start(napier_gradient_lanes *lanes) {
    NAPIER_UNROLL
    for (int e = 0; e < 8; e++) {
        lanes->certain[e] = lanes->rest[e] = lanes->prob[e] = 0.0f;
    }
}

/* Adds eight elements to their lanes. If a probability is 0 (a masked position), its gradient is ignored. */
NAPIER_INLINE void napier_gradient_add(bool log, const float *value, const float *gradient,
                                       napier_gradient_lanes *lanes) {
    NAPIER_UNROLL
    for (int e = 0; e < 8; e++) {
        if (log) {
            lanes->rest[e] += gradient[e];
            continue;
        }
        const bool certain = value[e] > NAPIER_CERTAIN;
        const float p = certain ? 0.0f : value[e], q = certain ? value[e] : 0.0f;
        lanes->rest[e] = fmaf(p, p == 0.0f ? 0.0f : gradient[e], lanes->rest[e]);
        lanes->certain[e] = fmaf(q, q == 0.0f ? 0.0f : gradient[e], lanes->certain[e]);
        lanes->prob[e] += p;
    }
}

/* Eight results. */
NAPIER_INLINE void napier_gradient_write(const napier_gradient_cuda_job *job, const napier_certain_sums *sums,
                                         const float *value, const float *gradient, const napier_line *out, int64_t i) {
    const float sum = napier_certain_sum(sums);
    float result[8];
    NAPIER_UNROLL
    for (int e = 0; e < 8; e++) {
        float v;
        if (job->log ? napier_is_certain_log((double)value[e]) : value[e] > NAPIER_CERTAIN) {
            const double x = (double)value[e], g = (double)gradient[e];
            v = (float)(job->log ? napier_certain_log_gradient(x, g, (double)sum)
                                 : napier_certain_gradient(x, g, sums));
        } else if (job->log) {
            v = vf_fnma(vf_exp(value[e]), sum, gradient[e]);
        } else {
            v = value[e] == 0.0f ? 0.0f : value[e] * (gradient[e] - sum);
        }
        v = job->temperature != 1.0f ? v / job->temperature : v;
        result[e] = v != v ? napier_nan() : v;
    }
    if (i < out->size) {
        napier_store_chunk(out, i, 8, result);
    }
}

/* Stores the sum of a row, by one thread, where it is the result. Returns whether it is. */
NAPIER_INLINE bool napier_gradient_is_dot(const napier_gradient_cuda_job *job, int64_t row,
                                          const napier_certain_sums *sums, bool mine) {
    if (job->dots.data && mine) {
        napier_f64_store(job->dots.data, job->dots.dtype, row * job->dots.stride, (double)napier_certain_sum(sums));
    }
    return job->dots.data != NULL;
}

/* The first element of a thread's k-th eight of a tile. */
NAPIER_INLINE int64_t napier_eight_at(int64_t tile, int k) {
    return tile * NAPIER_TILE + k * NAPIER_TILE_LANES + 8 * (threadIdx.x % CUDA_WARP);
}

/* The sums of a tile from the lanes of a warp, whatever the dtype: those of 16-bit elements (tile.cuh). */
NAPIER_INLINE napier_certain_sums napier_gradient_fold(bool log, napier_gradient_lanes *lanes) {
    const int thread = (int)threadIdx.x % CUDA_WARP;
    napier_certain_sums sums = {0.0, 0.0, 0.0};
    sums.rest = (double)napier_fold(NAPIER_BF16, CUDA_WARP, thread, lanes->rest);
    if (!log) {
        sums.certain = (double)napier_fold(NAPIER_BF16, CUDA_WARP, thread, lanes->certain);
        sums.prob = (double)napier_fold(NAPIER_BF16, CUDA_WARP, thread, lanes->prob);
    }
    return sums;
}

/* ---- Rows of one tile -------------------------------------------------------------------------------------------- */

CUDA_KERNEL(napier_gradient_short, napier_gradient_cuda_job, NAPIER_GRADIENT_THREADS) {
    const int64_t warps = blockDim.x / CUDA_WARP;
    for (int64_t row = blockIdx.x * warps + threadIdx.x / CUDA_WARP; row < job.out.rows; row += gridDim.x * warps) {
        const napier_gradient_lines lines = napier_gradient_lines_of(&job, row);
        napier_gradient_lanes lanes;
        float value[32], gradient[32];
        napier_gradient_lanes_start(&lanes);
        napier_eight values[4], gradients[4];
        NAPIER_UNROLL
        for (int k = 0; k < 4; k++) { /* all loads first */
            values[k] = napier_load_eight(&lines.values, napier_eight_at(0, k));
            gradients[k] = napier_load_eight(&lines.gradients, napier_eight_at(0, k));
        }
        NAPIER_UNROLL
        for (int k = 0; k < 4; k++) {
            napier_unpack_eight(&lines.values, &values[k], napier_eight_at(0, k), value + 8 * k);
            napier_unpack_eight(&lines.gradients, &gradients[k], napier_eight_at(0, k), gradient + 8 * k);
            napier_gradient_add(job.log, value + 8 * k, gradient + 8 * k, &lanes);
        }
        const napier_certain_sums sum = napier_gradient_fold(job.log, &lanes);
        if (napier_gradient_is_dot(&job, row, &sum, threadIdx.x % CUDA_WARP == 0)) {
            continue;
        }
        NAPIER_UNROLL
        for (int k = 0; k < 4; k++) {
            napier_gradient_write(&job, &sum, value + 8 * k, gradient + 8 * k, &lines.out, napier_eight_at(0, k));
        }
    }
}

/* ---- Rows that a block keeps ------------------------------------------------------------------------------------- */

/* A thread's k-th eight of a kept tile: values, then gradients, each thread its own 16 bytes. */
NAPIER_INLINE napier_words *napier_kept_eights(napier_gradient_room *room, int per_tile, int64_t tile, int at) {
    napier_words *const kept = (napier_words *)((char *)room + NAPIER_GRADIENT_ROOM);
    return kept + (tile * per_tile + at) * CUDA_WARP + threadIdx.x % CUDA_WARP;
}

/* In chunks: eight elements are one, or two of floats. */
NAPIER_INLINE int napier_eight_chunks(napier_dtype dtype) { return dtype == NAPIER_F32 ? 2 : 1; }

NAPIER_INLINE void napier_keep_eight(napier_dtype dtype, const napier_eight *eight, napier_words *kept) {
    kept[0] = eight->words[0];
    if (dtype == NAPIER_F32) {
        kept[CUDA_WARP] = eight->words[1];
    }
}
NAPIER_INLINE napier_eight napier_kept_eight(napier_dtype dtype, const napier_words *kept) {
    napier_eight eight;
    eight.words[0] = kept[0];
    if (dtype == NAPIER_F32) {
        eight.words[1] = kept[CUDA_WARP];
    }
    return eight;
}

/* The sum of a tile, which is kept. */
NAPIER_INLINE napier_certain_sums napier_gradient_keep_tile(const napier_gradient_cuda_job *job,
                                                            const napier_gradient_lines *lines,
                                                            napier_gradient_room *room, int64_t tile) {
    const int a = napier_eight_chunks(job->values.dtype), b = napier_eight_chunks(job->gradients.dtype);
    napier_gradient_lanes lanes;
    napier_gradient_lanes_start(&lanes);
    napier_eight values[4], gradients[4];
    NAPIER_UNROLL
    for (int k = 0; k < 4; k++) {
        values[k] = napier_load_eight(&lines->values, napier_eight_at(tile, k));
        gradients[k] = napier_load_eight(&lines->gradients, napier_eight_at(tile, k));
    }
    NAPIER_UNROLL
    for (int k = 0; k < 4; k++) {
        float value[8], gradient[8];
        napier_unpack_eight(&lines->values, &values[k], napier_eight_at(tile, k), value);
        napier_unpack_eight(&lines->gradients, &gradients[k], napier_eight_at(tile, k), gradient);
        napier_gradient_add(job->log, value, gradient, &lanes);
        napier_keep_eight(job->values.dtype, &values[k], napier_kept_eights(room, 4 * (a + b), tile, k * (a + b)));
        napier_keep_eight(job->gradients.dtype, &gradients[k],
                          napier_kept_eights(room, 4 * (a + b), tile, k * (a + b) + a));
    }
    return napier_gradient_fold(job->log, &lanes);
}

NAPIER_INLINE void napier_gradient_write_kept(const napier_gradient_cuda_job *job, const napier_gradient_lines *lines,
                                              napier_gradient_room *room, int64_t tile) {
    const int a = napier_eight_chunks(job->values.dtype), b = napier_eight_chunks(job->gradients.dtype);
    for (int k = 0; k < 4; k++) {
        const int64_t i = napier_eight_at(tile, k);
        float value[8], gradient[8];
        napier_eight kept =
            napier_kept_eight(job->values.dtype, napier_kept_eights(room, 4 * (a + b), tile, k * (a + b)));
        napier_unpack_eight(&lines->values, &kept, i, value);
        kept = napier_kept_eight(job->gradients.dtype, napier_kept_eights(room, 4 * (a + b), tile, k * (a + b) + a));
        napier_unpack_eight(&lines->gradients, &kept, i, gradient);
        napier_gradient_write(job, &room->total, value, gradient, &lines->out, i);
    }
}

CUDA_KERNEL(napier_gradient_rows, napier_gradient_cuda_job, NAPIER_GRADIENT_ROW_WARPS *CUDA_WARP) {
    CUDA_SHARED(napier_gradient_room, room);
    const int warp = (int)threadIdx.x / CUDA_WARP, warps = (int)blockDim.x / CUDA_WARP;
    for (int64_t row = blockIdx.x; row < job.out.rows; row += gridDim.x) {
        const napier_gradient_lines lines = napier_gradient_lines_of(&job, row);
        for (int64_t tile = warp; tile < job.tiles; tile += warps) {
            const napier_certain_sums sum = napier_gradient_keep_tile(&job, &lines, room, tile);
            if (threadIdx.x % CUDA_WARP == 0) {
                room->sums[tile] = sum;
            }
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            napier_certain_sums total = {0.0, 0.0, 0.0};
            for (int64_t tile = 0; tile < job.tiles; tile++) {
                napier_certain_sums_add(&total, &room->sums[tile]);
            }
            room->total = total;
        }
        __syncthreads();
        const bool dot = napier_gradient_is_dot(&job, row, &room->total, threadIdx.x == 0);
        for (int64_t tile = warp; tile < job.tiles && !dot; tile += warps) {
            napier_gradient_write_kept(&job, &lines, room, tile);
        }
        __syncthreads(); /* the next row's sums */
    }
}

/* ---- Rows split over blocks -------------------------------------------------------------------------------------- */

/* All tiles of all rows, a warp each, as one sequence. */
CUDA_KERNEL(napier_gradient_sums, napier_gradient_cuda_job, NAPIER_GRADIENT_THREADS) {
    const int64_t warps = blockDim.x / CUDA_WARP, count = job.out.rows * job.tiles;
    for (int64_t at = blockIdx.x * warps + threadIdx.x / CUDA_WARP; at < count; at += gridDim.x * warps) {
        const napier_gradient_lines lines = napier_gradient_lines_of(&job, at / job.tiles);
        napier_gradient_lanes lanes;
        napier_gradient_lanes_start(&lanes);
        NAPIER_UNROLL
        for (int k = 0; k < 4; k++) {
            const int64_t i = napier_eight_at(at % job.tiles, k);
            float value[8], gradient[8];
            napier_gradient_load(&lines, i, value, gradient);
            napier_gradient_add(job.log, value, gradient, &lanes);
        }
        const napier_certain_sums sum = napier_gradient_fold(job.log, &lanes);
        if (threadIdx.x % CUDA_WARP == 0) {
            job.sums[at] = sum;
        }
    }
}

/* A block for each row: many threads read, one adds. */
CUDA_KERNEL(napier_gradient_totals, napier_gradient_cuda_job, NAPIER_GRADIENT_THREADS) {
    CUDA_SHARED(napier_certain_sums, some);
    for (int64_t row = blockIdx.x; row < job.out.rows; row += gridDim.x) {
        napier_certain_sums total = {0.0, 0.0, 0.0};
        for (int64_t first = 0; first < job.tiles; first += blockDim.x) {
            const int64_t left = job.tiles - first, n = left < blockDim.x ? left : blockDim.x;
            if ((int64_t)threadIdx.x < n) {
                some[threadIdx.x] = job.sums[row * job.tiles + first + threadIdx.x];
            }
            __syncthreads();
            for (int64_t i = 0; i < n && threadIdx.x == 0; i++) {
                napier_certain_sums_add(&total, &some[i]);
            }
            __syncthreads();
        }
        if (!napier_gradient_is_dot(&job, row, &total, threadIdx.x == 0) && threadIdx.x == 0) {
            job.totals[row] = total;
        }
    }
}

CUDA_KERNEL(napier_gradient_write_tiles, napier_gradient_cuda_job, NAPIER_GRADIENT_THREADS) {
    const int64_t warps = blockDim.x / CUDA_WARP, count = job.out.rows * job.tiles;
    for (int64_t at = blockIdx.x * warps + threadIdx.x / CUDA_WARP; at < count; at += gridDim.x * warps) {
        const int64_t row = at / job.tiles;
        const napier_gradient_lines lines = napier_gradient_lines_of(&job, row);
        NAPIER_UNROLL
        for (int k = 0; k < 4; k++) {
            const int64_t i = napier_eight_at(at % job.tiles, k);
            float value[8], gradient[8];
            napier_gradient_load(&lines, i, value, gradient);
            napier_gradient_write(&job, &job.totals[row], value, gradient, &lines.out, i);
        }
    }
}
