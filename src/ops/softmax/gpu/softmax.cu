/* ops/softmax/gpu/softmax.cu - softmax, log_softmax and logsumexp on a GPU, with the CPU's bits;
 * docs/cuda-softmax.md explains it as a lesson.
 *
 *   short   rows of up to one tile: a warp, or some threads of one, take a row; one read, one write, all in registers
 *   rows    a block takes a row, tile by tile. The job says whether it reads the row three times (maximum, sum,
 *           result), or twice, or once and keeps it in shared memory; several blocks (a cluster) may keep a row
 *           together
 *   tiles   one line split over many blocks: the sum of each block's tiles; merge: the sums of a line; write: its
 *           results
 *
 * Tiles are summed in one fixed order, and merge exactly (sum.h), so all of these give the same bits. */
#define NAPIER_LANES_CUDA
#include "ops/softmax/gpu/sum.cuh"

/* ---- Short rows -------------------------------------------------------------------------------------------------- */

/* napier_sum_finish of a row that is one tile, whose rest needs no digits. Computes only what the operation uses. */
NAPIER_INLINE napier_final napier_finish_tile(napier_softmax_op op, const napier_tile_part *tile) {
    napier_final f = {NAPIER_ROW_FINITE, tile->max, tile->max, 0.0f, 0.0f, 0.0f, 1.0f, 0};
    if (!(fabsf(tile->max) < INFINITY)) {
        f.kind = tile->max == INFINITY ? NAPIER_ROW_PINF : tile->max == -INFINITY ? NAPIER_ROW_MASKED : NAPIER_ROW_NAN;
        f.lse = f.kind == NAPIER_ROW_NAN ? napier_nan() : f.max;
        return f;
    }
    float p = 1.0f;
    double rest = 0.0;
    if (!napier_is_huge(tile->max)) {
        const napier_exp_parts parts = napier_exp_parts_for(tile->max, tile->max);
        p = parts.p;
        f.exponent = parts.n;
        rest = (double)tile->rest * 0x1p-64;
    }
    if (op == NAPIER_OP_SOFTMAX) {
        napier_final_prob(&f, (double)tile->count, p, rest);
    } else {
        napier_final_log(&f, (double)tile->count, p, rest);
    }
    return f;
}

/* For the gradient of logsumexp: results are multiplied by grad_lse / T. */
NAPIER_INLINE float napier_factor_of(const napier_softmax_cuda_job *job, int64_t index) {
    if (job->factor.data == NULL) {
        return 1.0f;
    }
    const napier_line g = {(char *)job->factor.data, job->factor.dtype, job->lines, job->factor.stride, 0, 0};
    return napier_element(&g, index) / job->temperature;
}

/* Element e of a thread's part of a short row. */
NAPIER_INLINE int napier_short_at(const napier_dtype dtype, const int group, int t, int e) {
    const int per = napier_chunk_of(dtype);
    return napier_chunk_at(dtype, group, t, e / per) + e % per;
}

/* z = x / temperature, -inf past the end: 16 bytes at a time or, if the row is not aligned or
 * contiguous, one by one. */
NAPIER_INLINE void napier_load_short(const napier_dtype dtype, const int group, const int eights, const napier_line *x,
                                     int t, float temperature, float *z) {
    if (napier_is_wide(x, 16) && x->size % napier_chunk_of(dtype) == 0) {
        napier_words words[8];
        napier_load_whole_chunks(dtype, eights, group, x, 0, t, words);
        napier_unpack_tile(dtype, eights, words, temperature, z);
        return;
    }
    NAPIER_UNROLL
    for (int e = 0; e < 8 * eights; e++) {
        const int i = napier_short_at(dtype, group, t, e);
        z[e] = -INFINITY;
        if (i < x->size) {
            const char *const at = x->data + i * x->stride * napier_element_bytes(dtype);
            const float v = napier_widen(dtype, napier_element_bits(dtype, at));
            z[e] = temperature != 1.0f ? v / temperature : v;
        }
    }
}

/* Results of an ordinary row. z holds the kept terms for softmax, otherwise the logits over T. */
NAPIER_INLINE void napier_write_short(const napier_dtype dtype, const int group, const int eights, napier_softmax_op op,
                                      const napier_final *f, const napier_line *y, int t, float *z) {
    const int per = napier_chunk_of(dtype);
    NAPIER_UNROLL
    for (int e = 0; e < 8 * eights; e++) {
        z[e] = op == NAPIER_OP_SOFTMAX ? napier_prob_of_term(f, z[e]) : (z[e] - f->max) - f->log_sum;
    }
    if (y->size % per == 0 && napier_is_wide_out(y, per)) {
        NAPIER_UNROLL
        for (int c = 0; c < napier_chunks(dtype, eights); c++) {
            if (napier_chunk_at(dtype, group, t, c) < y->size) {
                napier_store_whole_chunk(y, napier_chunk_at(dtype, group, t, c), per, z + c * per);
            }
        }
        return;
    }
    NAPIER_UNROLL
    for (int e = 0; e < 8 * eights; e++) {
        const int i = napier_short_at(dtype, group, t, e);
        if (i < y->size) {
            napier_set_element_at(y->dtype, y->data + i * y->stride * napier_element_bytes(y->dtype), z[e]);
        }
    }
}

/* Is the row odd, that is, without an ordinary maximum, or with a factor? */
NAPIER_INLINE bool napier_is_odd_short(const napier_softmax_cuda_job *job, float max) {
    return !napier_is_ordinary(max) || job->factor.data != NULL;
}

NAPIER_INLINE void napier_store_lse_of(const napier_softmax_cuda_job *job, int64_t line, float lse) {
    const napier_line y = napier_line_out(&job->y, false, line);
    napier_set_element(&y, 0, lse);
}

/* A short row whose maximum is infinite, NaN or beyond 2^20, or that has a factor, from memory to its result. */
NAPIER_OUTLINE void napier_short_odd_row(const napier_softmax_cuda_job *job, int64_t row, int group, int t, int eights,
                                         float max, bool odd) {
    const napier_line x = napier_line_in(&job->x, false, row);
    const napier_tile_part tile = napier_sum_odd_tile(&x, 0, group, t, eights, job->temperature, max, odd);
    napier_final final = napier_finish_tile(job->op, &tile);
    if (odd && job->op == NAPIER_OP_LOGSUMEXP && t == 0) {
        napier_store_lse_of(job, row, final.lse);
    } else if (odd && job->op != NAPIER_OP_LOGSUMEXP) {
        const napier_line y = napier_line_out(&job->y, false, row);
        final.factor = napier_factor_of(job, row);
        const napier_writing w = napier_writing_of(job->op, job->masked_rows, &final);
        napier_write_odd(&x, &y, &w, job->temperature, 0, group, t);
    }
}

/* Threads without a row compute an empty one, so that the warp stays together. */
NAPIER_INLINE void napier_short_row(const napier_dtype dtype, const int group, const int eights,
                                    const napier_softmax_cuda_job *job, int64_t row) {
    const int t = (int)threadIdx.x % group;
    const bool mine = row < job->lines, keep = job->op == NAPIER_OP_SOFTMAX;
    napier_line x = napier_line_in(&job->x, false, mine ? row : 0);
    x.size = mine ? x.size : 0;
    float z[32];
    napier_load_short(dtype, group, eights, &x, t, job->temperature, z);
    const float max = napier_tile_max(eights, group, z);
    const bool odd = napier_is_odd_short(job, max);
    const napier_tile_part tile = napier_sum_tile(dtype, eights, group, t, odd ? 0.0f : max, keep, z);
    if (mine && !odd) {
        const napier_final final = napier_finish_tile(job->op, &tile);
        if (job->op == NAPIER_OP_LOGSUMEXP) {
            if (t == 0) {
                napier_store_lse_of(job, row, final.lse);
            }
        } else {
            const napier_line y = napier_line_out(&job->y, false, row);
            napier_write_short(dtype, group, eights, job->op, &final, &y, t, z);
        }
    }
    if (cuda_ballot(mine && odd) != 0) {
        napier_short_odd_row(job, mine ? row : 0, group, t, eights, max, mine && odd);
    }
}

#define NAPIER_SHORT_KERNEL(name, dtype, group, eights)                                                          \
    CUDA_KERNEL(name, napier_softmax_cuda_job, NAPIER_CUDA_BOUNDS(NAPIER_CUDA_THREADS, (eights) == 1 ? 3 : 2)) { \
        const int64_t per_block = (int)blockDim.x / (group);                                                     \
        for (int64_t first = blockIdx.x * per_block; first < job.lines; first += gridDim.x * per_block) {        \
            napier_short_row(dtype, group, eights, &job, first + threadIdx.x / (group));                         \
        }                                                                                                        \
    }

#define NAPIER_SHORT_KERNELS(suffix, dtype)                        \
    NAPIER_SHORT_KERNEL(napier_softmax_8_##suffix, dtype, 1, 1)    \
    NAPIER_SHORT_KERNEL(napier_softmax_16_##suffix, dtype, 2, 1)   \
    NAPIER_SHORT_KERNEL(napier_softmax_32_##suffix, dtype, 4, 1)   \
    NAPIER_SHORT_KERNEL(napier_softmax_64_##suffix, dtype, 8, 1)   \
    NAPIER_SHORT_KERNEL(napier_softmax_128_##suffix, dtype, 16, 1) \
    NAPIER_SHORT_KERNEL(napier_softmax_256_##suffix, dtype, 32, 1) \
    NAPIER_SHORT_KERNEL(napier_softmax_512_##suffix, dtype, 32, 2) \
    NAPIER_SHORT_KERNEL(napier_softmax_1024_##suffix, dtype, 32, 4)

NAPIER_SHORT_KERNELS(f32, NAPIER_F32)
NAPIER_SHORT_KERNELS(f16, NAPIER_F16)
NAPIER_SHORT_KERNELS(bf16, NAPIER_BF16)

/* ---- Long lines: what a warp does with the tiles of its block ---------------------------------------------------- */

/* A block's tiles of a line, [begin, end); its warps take them in turn. Kept tiles are stored as they
 * were read. A thread reads back what it wrote itself, chunk by chunk, so that no thread waits and no
 * two threads of a warp use the same bank. */
typedef struct napier_span {
    napier_line line;
    int64_t begin, end;
    napier_words *kept; /* NULL: none */
} napier_span;

NAPIER_INLINE int64_t napier_tiles_of(int64_t size) { return (size + NAPIER_TILE - 1) / NAPIER_TILE; }

NAPIER_INLINE napier_span napier_span_of(napier_line line, int64_t part, int64_t share, napier_words *kept) {
    napier_span span = {line, part * share, (part + 1) * share, kept};
    const int64_t tiles = napier_tiles_of(line.size);
    span.begin = span.begin < tiles ? span.begin : tiles;
    span.end = span.end < tiles ? span.end : tiles;
    return span;
}

NAPIER_INLINE napier_words *napier_kept_chunk(const napier_dtype dtype, const napier_span *span, int64_t tile, int c) {
    const int chunks = napier_chunks(dtype, 4);
    return span->kept + ((tile - span->begin) * chunks + c) * CUDA_WARP + threadIdx.x % CUDA_WARP;
}

/* The largest element of the span; NaN is ignored. The safe algorithm begins with it. */
NAPIER_INLINE float napier_span_max(const napier_dtype dtype, const napier_span *span, float temperature) {
    const int lane = (int)threadIdx.x % CUDA_WARP, warps = (int)blockDim.x / CUDA_WARP;
    float max = -INFINITY;
    for (int64_t tile = span->begin + threadIdx.x / CUDA_WARP; tile < span->end; tile += warps) {
        napier_words words[8];
        float z[32];
        napier_load_tile(dtype, 4, CUDA_WARP, &span->line, tile * NAPIER_TILE, lane, words);
        napier_unpack_tile(dtype, 4, words, temperature, z);
        NAPIER_UNROLL
        for (int e = 0; e < 32; e++) {
            max = z[e] > max ? z[e] : max;
        }
    }
    return napier_group_max(CUDA_WARP, max);
}

/* Adds a warp's tiles to `sum`. One lane keeps the sum of each tile until 32 of them, or all, are added at once. */
NAPIER_INLINE void napier_span_sum(const napier_dtype dtype, const napier_span *span, float temperature,
                                   napier_sum *sum) {
    const int lane = (int)threadIdx.x % CUDA_WARP, warps = (int)blockDim.x / CUDA_WARP;
    napier_tile_part mine = napier_no_tile();
    int waiting = 0;
    for (int64_t tile = span->begin + threadIdx.x / CUDA_WARP; tile < span->end; tile += warps) {
        napier_words words[8];
        float z[32];
        napier_load_tile(dtype, 4, CUDA_WARP, &span->line, tile * NAPIER_TILE, lane, words);
        if (span->kept != NULL) {
            NAPIER_UNROLL
            for (int c = 0; c < napier_chunks(dtype, 4); c++) {
                *napier_kept_chunk(dtype, span, tile, c) = words[c];
            }
        }
        napier_unpack_tile(dtype, 4, words, temperature, z);
        const bool as_stored = dtype == NAPIER_BF16 && temperature == 1.0f;
        const float mine_max = as_stored ? napier_largest_bf16(words, z) : napier_largest(4, z);
        const float max = napier_group_max(CUDA_WARP, mine_max) + 0.0f; /* makes -0 and +0 one maximum */
        napier_tile_part part;
        if (napier_is_ordinary(max)) {
            part = napier_sum_tile(dtype, 4, CUDA_WARP, lane, max, false, z);
        } else {
            const napier_line line = span->line;
            part = napier_sum_odd_tile(&line, tile * NAPIER_TILE, CUDA_WARP, lane, 4, temperature, max, true);
        }
        mine = lane == waiting ? part : mine;
        if (++waiting == CUDA_WARP) {
            napier_warp_sum_take(sum, mine, lane);
            mine = napier_no_tile();
            waiting = 0;
        }
    }
    if (waiting > 0) {
        napier_warp_sum_take(sum, mine, lane);
    }
}

/* The sum of a block's span, in warp 0. */
NAPIER_INLINE napier_warp_sum napier_block_span_sum(const napier_dtype dtype, const napier_span *span,
                                                    float temperature, napier_warp_sum start, napier_block_room *room) {
    const int lane = (int)threadIdx.x % CUDA_WARP;
    napier_sum *const mine = &room->of_warp[threadIdx.x / CUDA_WARP];
    napier_warp_sum_store(&start, mine, lane);
    __syncwarp();
    napier_span_sum(dtype, span, temperature, mine);
    return napier_block_sum(napier_warp_sum_load(mine, lane), room);
}

/* The results of the chunk that begins at element i, of a row that is not odd. */
NAPIER_INLINE void napier_write_chunk(const napier_dtype dtype, const napier_words *words, float temperature,
                                      const napier_writing *w, const napier_line *y, int64_t i) {
    const int per = napier_chunk_of(dtype);
    float z[8];
    napier_unpack_chunk(dtype, words, temperature, z);
    NAPIER_UNROLL
    for (int e = 0; e < per; e++) {
        z[e] = napier_result_of(w->op == NAPIER_OP_LOG_SOFTMAX, w, z[e]);
    }
    const int64_t tile_end = (i / NAPIER_TILE + 1) * NAPIER_TILE;
    const bool plain = y->stride == 1 && y->cols == 0 && per * napier_element_bytes(y->dtype) == 16;
    if (plain && !napier_is_wide(y, 16) && tile_end <= y->size) {
        napier_store_shifted(y, i, per, z);
    } else if (i < y->size) {
        napier_store_chunk(y, i, per, z);
    }
}

/* The results of a tile of the input's dtype that is whole in the result, where it is on a boundary of 16 bytes: nearly all
 * tiles. Without the other cases nothing is decided inside the loop. */
NAPIER_INLINE void napier_write_plain(const napier_dtype dtype, const bool log, const napier_words *words,
                                      const int step, float temperature, const napier_writing *w, char *at) {
    const int per = napier_chunk_of(dtype);
    NAPIER_UNROLL
    for (int c = 0; c < napier_chunks(dtype, 4); c++) {
        float z[8];
        napier_words out;
        napier_unpack_chunk(dtype, words + c * step, temperature, z);
        NAPIER_UNROLL
        for (int e = 0; e < per; e++) {
            z[e] = napier_result_of(log, w, z[e]);
        }
        NAPIER_UNROLL
        for (int e = 0; e < 4; e++) {
            out.w[e] =
                dtype == NAPIER_F32 ? napier_float_bits(z[e]) : napier_narrow_numbers(dtype, z[2 * e], z[2 * e + 1]);
        }
        cuda_store_16(at + c * CUDA_WARP * 16, &out);
    }
}

/* The results of the tile that begins at element `first`, whose chunks are `step` apart. */
NAPIER_INLINE void napier_write_tile(const napier_dtype dtype, const napier_words *words, const int step,
                                     float temperature, const napier_writing *w, const napier_line *y, int64_t first) {
    const int lane = (int)threadIdx.x % CUDA_WARP;
    const int64_t i = first + napier_chunk_at(dtype, CUDA_WARP, lane, 0);
    if (!(y->dtype == dtype && napier_is_wide(y, 16) && first + NAPIER_TILE <= y->size)) {
        NAPIER_UNROLL
        for (int c = 0; c < napier_chunks(dtype, 4); c++) {
            napier_write_chunk(dtype, &words[c * step], temperature, w, y, i + c * CUDA_WARP * napier_chunk_of(dtype));
        }
    } else if (w->op == NAPIER_OP_LOG_SOFTMAX) {
        napier_write_plain(dtype, true, words, step, temperature, w, y->data + i * napier_element_bytes(dtype));
    } else {
        napier_write_plain(dtype, false, words, step, temperature, w, y->data + i * napier_element_bytes(dtype));
    }
}

/* The results of the span. Each warp writes those of the tiles that it summed. */
NAPIER_INLINE void napier_span_write(const napier_dtype dtype, const napier_span *span, float temperature,
                                     const napier_writing *w, const napier_line *y) {
    const int lane = (int)threadIdx.x % CUDA_WARP, warps = (int)blockDim.x / CUDA_WARP;
    for (int64_t tile = span->begin + threadIdx.x / CUDA_WARP; tile < span->end; tile += warps) {
        const int64_t first = tile * NAPIER_TILE;
        if (napier_is_odd_row(w)) {
            const napier_line from = span->line, to = *y;
            const napier_writing odd = *w;
            napier_write_odd(&from, &to, &odd, temperature, first, CUDA_WARP, lane);
        } else if (span->kept != NULL) {
            napier_write_tile(dtype, napier_kept_chunk(dtype, span, tile, 0), CUDA_WARP, temperature, w, y, first);
        } else {
            napier_words words[8];
            napier_load_tile(dtype, 4, CUDA_WARP, &span->line, first, lane, words);
            napier_write_tile(dtype, words, 1, temperature, w, y, first);
        }
    }
}

/* ---- A block, or a cluster of blocks, takes a row ---------------------------------------------------------------- */

/* The maximum first, so that the sum that starts from it is never raised. */
NAPIER_INLINE napier_warp_sum napier_start_from_max(const napier_dtype dtype, const napier_span *span,
                                                    float temperature, napier_block_room *room) {
    const int lane = (int)threadIdx.x % CUDA_WARP, warps = (int)blockDim.x / CUDA_WARP;
    const float mine = napier_span_max(dtype, span, temperature);
    if (lane == 0) {
        room->max[threadIdx.x / CUDA_WARP] = mine;
    }
    __syncthreads();
    const float max = napier_group_max(CUDA_WARP, lane < warps ? room->max[lane] : -INFINITY);
    __syncthreads();
    napier_warp_sum sum = napier_warp_sum_raise(napier_warp_sum_start(), max, lane);
    sum.pinf = max == INFINITY;
    return sum;
}

/* The sums of the cluster's blocks, in warp 0 of each. */
NAPIER_INLINE napier_warp_sum napier_cluster_sum(napier_warp_sum sum, napier_block_room *room) {
    const int lane = (int)threadIdx.x % CUDA_WARP, blocks = cuda_cluster_size(), rank = cuda_cluster_rank();
    if (threadIdx.x < CUDA_WARP) {
        napier_warp_sum_store(&sum, &room->total, lane);
    }
    cuda_cluster_sync();
    for (int other = 0; other < blocks && threadIdx.x < CUDA_WARP; other++) {
        if (other != rank) {
            const napier_sum *const there = (const napier_sum *)cuda_cluster_shared(&room->total, other);
            sum = napier_warp_sum_merge(sum, napier_warp_sum_load(there, lane), lane);
        }
    }
    return sum;
}

/* Broadcasts the sum of warp 0, as a final, to all threads. */
NAPIER_INLINE void napier_share_final(const napier_softmax_cuda_job *job, int64_t line, napier_warp_sum sum,
                                      napier_block_room *room) {
    if (threadIdx.x < CUDA_WARP) {
        napier_warp_sum_store(&sum, &room->of_line, (int)threadIdx.x);
        __syncwarp();
        if (threadIdx.x == 0) {
            room->final = napier_sum_finish(&room->of_line);
            room->final.factor = napier_factor_of(job, line);
        }
    }
    __syncthreads();
}

NAPIER_INLINE void napier_take_row(const napier_dtype dtype, const napier_softmax_cuda_job *job, int64_t row,
                                   napier_block_room *room) {
    napier_words *const kept = (napier_words *)((char *)room + NAPIER_BLOCK_ROOM);
    const napier_span span = napier_span_of(napier_line_in(&job->x, job->whole, row), cuda_cluster_rank(), job->share,
                                            job->keep ? kept : NULL);
    napier_warp_sum sum = napier_warp_sum_start();
    if (job->look_first) {
        sum = napier_start_from_max(dtype, &span, job->temperature, room);
    }
    sum = napier_block_span_sum(dtype, &span, job->temperature, sum, room);
    if (cuda_cluster_size() > 1) {
        sum = napier_cluster_sum(sum, room);
    }
    napier_share_final(job, row, sum, room);
    if (job->op != NAPIER_OP_LOGSUMEXP) {
        const napier_line y = napier_line_out(&job->y, job->whole, row);
        const napier_writing w = napier_writing_of(job->op, job->masked_rows, &room->final);
        napier_span_write(dtype, &span, job->temperature, &w, &y);
    } else if (cuda_cluster_rank() == 0 && threadIdx.x == 0) {
        napier_store_lse_of(job, row, room->final.lse);
    }
    if (cuda_cluster_size() > 1) {
        cuda_cluster_sync(); /* no other block still reads this shared memory */
    } else {
        __syncthreads();
    }
}

#define NAPIER_ROWS_KERNEL(name, dtype)                                                                   \
    CUDA_KERNEL(name, napier_softmax_cuda_job, NAPIER_CUDA_BOUNDS(NAPIER_CUDA_ROW_WARPS *CUDA_WARP, 1)) { \
        CUDA_SHARED(napier_block_room, room);                                                             \
        const int64_t blocks = cuda_cluster_size();                                                       \
        for (int64_t row = blockIdx.x / blocks; row < job.lines; row += gridDim.x / blocks) {             \
            napier_take_row(dtype, &job, row, room);                                                      \
        }                                                                                                 \
    }

NAPIER_ROWS_KERNEL(napier_softmax_rows_f32, NAPIER_F32)
NAPIER_ROWS_KERNEL(napier_softmax_rows_f16, NAPIER_F16)
NAPIER_ROWS_KERNEL(napier_softmax_rows_bf16, NAPIER_BF16)

/* ---- A line split over many blocks: block = line * parts + part -------------------------------------------------- */

NAPIER_INLINE void napier_sum_part(const napier_dtype dtype, const napier_softmax_cuda_job *job,
                                   napier_block_room *room) {
    const int64_t line = blockIdx.x / job->parts, part = blockIdx.x % job->parts;
    const napier_span span = napier_span_of(napier_line_in(&job->x, job->whole, line), part, job->share, NULL);
    const napier_warp_sum sum = napier_block_span_sum(dtype, &span, job->temperature, napier_warp_sum_start(), room);
    if (threadIdx.x < CUDA_WARP) {
        napier_warp_sum_store(&sum, &job->sums[blockIdx.x], (int)threadIdx.x);
    }
}

NAPIER_INLINE void napier_write_part(const napier_dtype dtype, const napier_softmax_cuda_job *job) {
    const int64_t line = blockIdx.x / job->parts, part = blockIdx.x % job->parts;
    const napier_span span = napier_span_of(napier_line_in(&job->x, job->whole, line), part, job->share, NULL);
    const napier_line y = napier_line_out(&job->y, job->whole, line);
    const napier_writing w = napier_writing_of(job->op, job->masked_rows, &job->finals[line]);
    napier_span_write(dtype, &span, job->temperature, &w, &y);
}

#define NAPIER_TILES_KERNELS(suffix, dtype)                                                                           \
    CUDA_KERNEL(napier_softmax_sums_##suffix, napier_softmax_cuda_job, NAPIER_CUDA_BOUNDS(NAPIER_CUDA_THREADS, 2)) {  \
        CUDA_SHARED(napier_block_room, room);                                                                         \
        napier_sum_part(dtype, &job, room);                                                                           \
    }                                                                                                                 \
    CUDA_KERNEL(napier_softmax_write_##suffix, napier_softmax_cuda_job, NAPIER_CUDA_BOUNDS(NAPIER_CUDA_THREADS, 2)) { \
        napier_write_part(dtype, &job);                                                                               \
    }

NAPIER_TILES_KERNELS(f32, NAPIER_F32)
NAPIER_TILES_KERNELS(f16, NAPIER_F16)
NAPIER_TILES_KERNELS(bf16, NAPIER_BF16)

/* One block for each line: merges the sums of its parts, with its state if it has one, and computes the final. */
CUDA_KERNEL(napier_softmax_merge, napier_softmax_cuda_job, NAPIER_CUDA_THREADS) {
    CUDA_SHARED(napier_block_room, room);
    const int lane = (int)threadIdx.x % CUDA_WARP, warp = (int)threadIdx.x / CUDA_WARP;
    const int warps = (int)blockDim.x / CUDA_WARP;
    const int64_t line = blockIdx.x;
    napier_warp_sum sum = napier_warp_sum_start();
    if (job.states != NULL && !job.clear && warp == 0) {
        sum = napier_warp_sum_load(&job.states[line], lane);
    }
    for (int64_t part = warp; part < job.parts && job.sums != NULL; part += warps) {
        sum = napier_warp_sum_merge(sum, napier_warp_sum_load(&job.sums[line * job.parts + part], lane), lane);
    }
    sum = napier_block_sum(sum, room);
    if (job.update) {
        if (warp == 0) {
            napier_warp_sum_store(&sum, &job.states[line], lane);
        }
        return;
    }
    napier_share_final(&job, line, sum, room);
    if (threadIdx.x == 0) {
        if (job.op == NAPIER_OP_LOGSUMEXP) {
            napier_store_lse_of(&job, line, room->final.lse);
        } else {
            job.finals[line] = room->final;
        }
    }
}
