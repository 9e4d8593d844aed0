/* ops/tokens/gpu/token_logprobs.cu - log-probabilities of tokens: first one warp per tile of any row, then one warp per
 * row. Both are numbered over all rows, so 64 rows fill a device as well as 8192. */
#define NAPIER_LANES_CUDA
#include "core/gpu/kernel.h"
/* after the language */
#include "ops/tokens/gpu/token_cuda.h"

/* ---- Tiles ------------------------------------------------------------------------------------------------------- */

/* Adds the number of the tile's elements that precede each id to its rank. */
CUDA_INLINE void napier_cuda_token_ranks(const napier_dtype dtype, const napier_cuda_token_job *job, int64_t row,
                                         int64_t first, float max, const float *z) {
    const int64_t per_row = job->call.wants.ranks;
    for (int64_t k = 0; k < per_row && max == max; k++) {
        const int64_t id = cuda_index_at(job->call.ids, row * per_row + k);
        if (cuda_token_kind_of(job, id) != CUDA_TOKEN_GOOD) {
            continue;
        }
        const float chosen = cuda_token_z(job, row, id);
        if (!(max >= chosen)) {
            continue;
        }
        int32_t before = 0;
        NAPIER_UNROLL
        for (int e = 0; e < 32; e++) {
            before += z[e] > chosen || (z[e] == chosen && first + cuda_token_place(dtype, e) < id) ? 1 : 0;
        }
        before = napier_group_add(CUDA_WARP, before);
        if (cuda_lane() == 0) {
            cuda_atomic_add_i64(&job->call.results.rank[row * per_row + k], before);
        }
    }
}

/* The sum of z over the elements of a tile that keep selects. */
CUDA_INLINE float napier_cuda_token_tile_total(const napier_dtype dtype, const napier_cuda_token_job *job, int64_t row,
                                               int64_t first, const float *z) {
    float lane[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
    NAPIER_UNROLL
    for (int e = 0; e < 32; e++) {
        const int64_t column = first + cuda_token_place(dtype, e);
        if (column < job->x.cols) {
            lane[e % 8] += cuda_token_kept(&job->call.rules, row, column) ? z[e] : 0.0f;
        }
    }
    return napier_fold(dtype, CUDA_WARP, cuda_lane(), lane);
}

/* The amount of work: z equals the logits; or z is the logits divided by a temperature; or any rule, ranks and
 * totals. */
typedef enum napier_cuda_token_way {
    NAPIER_TOKEN_PLAIN,
    NAPIER_TOKEN_TEMPERED,
    NAPIER_TOKEN_ANY
} napier_cuda_token_way;

CUDA_INLINE void napier_cuda_token_tile(const napier_dtype dtype, const napier_cuda_token_way way, const bool entropy,
                                        const napier_cuda_token_job *job, int64_t row, int64_t tile) {
    const bool plain = way == NAPIER_TOKEN_PLAIN, any = way == NAPIER_TOKEN_ANY;
    const napier_line line = napier_line_in(&job->x, false, row);
    const int64_t first = tile * NAPIER_TILE, at = row * job->tiles + tile;
    napier_words words[8];
    float z[32];
    cuda_token_load(dtype, &line, first, words);
    napier_unpack_tile(dtype, 4, words, way == NAPIER_TOKEN_TEMPERED ? job->call.rules.temperature : 1.0f, z);
    if (any) {
        cuda_token_tile_rules(dtype, &job->call.rules, row, first, job->x.cols, z);
    }
    const napier_cuda_token_slot slot =
        cuda_token_sum(dtype, entropy, job, row, first, plain && dtype == NAPIER_BF16 ? words : NULL, z);
    if (cuda_lane() == 0) {
        job->slots[at] = slot;
    }
    if (any && job->totals != NULL) {
        const float total = napier_cuda_token_tile_total(dtype, job, row, first, z);
        if (cuda_lane() == 0) {
            job->totals[at] = total;
        }
    }
    if (any && job->call.wants.ranks > 0) {
        napier_cuda_token_ranks(dtype, job, row, first, slot.max, z);
    }
}

/* Iterates over the tiles of all rows, without a division in the loop. */
CUDA_INLINE void napier_cuda_token_tiles(const napier_dtype dtype, const napier_cuda_token_way way, const bool entropy,
                                         const napier_cuda_token_job *job) {
    const int tiles = (int)job->tiles, tiles_on = (int)(cuda_warps() % tiles);
    const int64_t rows_on = cuda_warps() / tiles;
    int64_t row = cuda_warp() / tiles;
    int tile = (int)(cuda_warp() % tiles);
    while (row < job->call.rows) {
        napier_cuda_token_tile(dtype, way, entropy, job, row, tile);
        row += rows_on;
        tile += tiles_on;
        if (tile >= tiles) {
            tile -= tiles;
            row++;
        }
    }
}

#define NAPIER_TOKEN_KERNELS(suffix, dtype)                                                                            \
    CUDA_KERNEL(napier_token_tiles_##suffix, napier_cuda_token_job, NAPIER_CUDA_BOUNDS(NAPIER_TOKEN_THREADS, 4)) {     \
        napier_cuda_token_tiles(dtype, NAPIER_TOKEN_PLAIN, false, &job);                                               \
    }                                                                                                                  \
    CUDA_KERNEL(napier_token_entropies_##suffix, napier_cuda_token_job, NAPIER_TOKEN_THREADS) {                        \
        napier_cuda_token_tiles(dtype, NAPIER_TOKEN_PLAIN, true, &job);                                                \
    }                                                                                                                  \
    CUDA_KERNEL(napier_token_tempered_##suffix, napier_cuda_token_job, NAPIER_TOKEN_THREADS) {                         \
        napier_cuda_token_tiles(dtype, NAPIER_TOKEN_TEMPERED, true, &job);                                             \
    }                                                                                                                  \
    CUDA_KERNEL(napier_token_any_tiles_##suffix, napier_cuda_token_job, NAPIER_CUDA_BOUNDS(NAPIER_TOKEN_THREADS, 2)) { \
        napier_cuda_token_tiles(dtype, NAPIER_TOKEN_ANY, true, &job);                                                  \
    }

NAPIER_TOKEN_KERNELS(f32, NAPIER_F32)
NAPIER_TOKEN_KERNELS(f16, NAPIER_F16)
NAPIER_TOKEN_KERNELS(bf16, NAPIER_BF16)

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

/* The first index of the row's maximum. The slots give its tile, which is then read again. */
CUDA_INLINE int64_t napier_cuda_token_argmax(const napier_cuda_token_job *job, int64_t row, float max) {
    const napier_cuda_token_slot *const slots = job->slots + row * job->tiles;
    int64_t tile = 0, best = INT64_MAX;
    uint32_t found = 0;
    for (; tile < job->tiles && found == 0; tile += CUDA_WARP) {
        found = cuda_ballot(tile + cuda_lane() < job->tiles && slots[tile + cuda_lane()].max == max);
    }
    tile -= CUDA_WARP;
    for (; (found & 1) == 0; found >>= 1) {
        tile++;
    }
    for (int i = NAPIER_TILE - CUDA_WARP + cuda_lane(); i >= 0; i -= CUDA_WARP) {
        const int64_t column = tile * NAPIER_TILE + i;
        best = column < job->x.cols && cuda_token_z(job, row, column) == max ? column : best;
    }
    return INT64_MAX - cuda_warp_max_i64(INT64_MAX - best);
}

CUDA_INLINE void napier_cuda_token_chosen(const napier_cuda_token_job *job, int64_t row,
                                          const napier_token_final *final, int64_t kept) {
    const napier_token_results *const r = &job->call.results;
    const int64_t per_row = job->call.per_row;
    for (int64_t k = cuda_lane(); k < per_row; k += CUDA_WARP) {
        const int64_t id = cuda_index_at(job->call.ids, row * per_row + k);
        const cuda_token_kind kind = cuda_token_kind_of(job, id);
        float logprob = 0.0f;
        if (kind == CUDA_TOKEN_GOOD) {
            logprob = napier_token_logprob(final, cuda_token_z(job, row, id));
        } else if (kind == CUDA_TOKEN_BAD) {
            napier_cuda_note_fault(job->faults, NAPIER_FAULT_IDS, row * per_row + k);
            logprob = vf_canonical_nan();
        }
        if (r->logprobs.data != NULL) {
            cuda_put(r->logprobs.data, r->logprobs.dtype, row * r->logprobs.row_stride + k * r->logprobs.col_stride,
                     logprob);
        }
        if (r->rank != NULL && (kind != CUDA_TOKEN_GOOD || final->row.kind == NAPIER_ROW_NAN)) {
            r->rank[row * per_row + k] = -1;
        }
        if (r->loss.data != NULL) {
            const double loss =
                kind == CUDA_TOKEN_IGNORED ? 0.0 : napier_token_loss(&job->call.options, final, kept, logprob);
            napier_f64_store(r->loss.data, r->loss.dtype, row * r->loss.stride, loss);
        }
    }
}

CUDA_INLINE void napier_cuda_token_write(const napier_cuda_token_job *job, int64_t row,
                                         const napier_token_final *final) {
    const napier_token_results *const r = &job->call.results;
    if (r->argmax != NULL) {
        const bool some = final->row.kind == NAPIER_ROW_FINITE || final->row.kind == NAPIER_ROW_PINF;
        const int64_t argmax = some ? napier_cuda_token_argmax(job, row, final->row.max) : -1;
        if (cuda_lane() == 0) {
            r->argmax[row] = argmax;
        }
    }
    if (r->lse.data != NULL && cuda_lane() == 0) {
        cuda_put_token(r->lse, row, final->row.lse);
    }
    if (r->entropy.data != NULL && cuda_lane() == 0) {
        cuda_put_token(r->entropy, row, final->entropy);
    }
    if (job->call.chosen) {
        napier_cuda_token_chosen(job, row, final, job->call.wants.total ? cuda_token_count_kept(job, row) : 1);
    }
}

CUDA_KERNEL(napier_token_rows_finish, napier_cuda_token_job, NAPIER_TOKEN_THREADS) {
    CUDA_SHARED(napier_cuda_token_room, rooms);
    napier_cuda_token_room *const room = &rooms[threadIdx.x / CUDA_WARP];
    for (int64_t row = cuda_warp(); row < job.call.rows; row += cuda_warps()) {
        cuda_token_finish(&job, row, room);
        napier_cuda_token_write(&job, row, &room->final);
        __syncwarp(); /* all threads have read the shared memory */
    }
}
