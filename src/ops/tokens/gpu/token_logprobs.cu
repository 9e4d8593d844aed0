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

/* ---- 16 bits, by a table -------------------------------------------------------------------------------------------
 *
 * exp of a 16-bit number is one of some 34,000 floats, so a block that has many tiles keeps them in shared memory. A load
 * takes the place of 11 instructions. It takes 3.4 clocks on average, as its 32 threads want words of the same banks, so an
 * eighth of the elements is computed, which keeps both pipes busy.
 *
 * The bits are those of cuda_token_add, whose terms are 2^(64 - n) times these, n the maximum's exponent. That commutes with
 * rounding, as nothing overflows, and nothing is subnormal but sums of distances whose terms are 1, which are exact. No two
 * numbers of the table are further apart than the cutoff. */
enum { NAPIER_TOKEN_TABLE_WORDS = 14 }; /* of a thread's 16, two elements in each */

/* By a permutation, so that the address is one more instruction and not two. */
CUDA_INLINE uint32_t cuda_low_half(uint32_t w) {
#if defined(__CUDACC__)
    return __byte_perm(w, 0, 0x4410);
#else
    return w & 0xffffu;
#endif
}

CUDA_INLINE void napier_cuda_token_table(const napier_dtype dtype, float *table) {
    const uint32_t numbers = (uint32_t)napier_token_table_end(dtype) - 0x8000u; /* of either sign */
    for (uint32_t i = threadIdx.x; i < 2 * numbers; i += blockDim.x) {
        const uint32_t bits = i < numbers ? i : i - numbers + 0x8000u;
        table[bits] = vf_exp_scaled(napier_widen(dtype, bits), NAPIER_ROUND_MAGIC);
    }
    __syncthreads();
}

/* Two elements, as cuda_token_step. both_max: the maximum twice, in 16 bits. */
CUDA_INLINE void napier_cuda_token_two(const napier_dtype dtype, const bool entropy, const bool first,
                                       const float *table, uint32_t word, float max, uint32_t both_max, float *sum,
                                       float *spread, int32_t *count) {
    const float low = table[cuda_low_half(word)], high = table[word >> 16];
    const float z_low = napier_widen(dtype, word & 0xffffu), z_high = napier_widen(dtype, word >> 16);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define NAPIER_TOKEN_TWO(type)                                                                              \
    asm("{ .reg .pred p, q; setp.lt." type " p|q, %3, %4; @p add.rn.f32 %0, %0, %5; @!p add.s32 %2, %2, 1;" \
        " @q add.rn.f32 %1, %1, %6; @!q add.s32 %2, %2, 1; }"                                               \
        : "+f"(sum[0]), "+f"(sum[1]), "+r"(*count)                                                          \
        : "r"(word), "r"(both_max), "f"(low), "f"(high))
#define NAPIER_TOKEN_FIRST_TWO(type)                                                                              \
    asm("{ .reg .pred p, q; setp.lt." type " p|q, %3, %4; selp.f32 %0, %5, 0f00000000, p; @!p add.s32 %2, %2, 1;" \
        " selp.f32 %1, %6, 0f00000000, q; @!q add.s32 %2, %2, 1; }"                                               \
        : "=f"(sum[0]), "=f"(sum[1]), "+r"(*count)                                                                \
        : "r"(word), "r"(both_max), "f"(low), "f"(high))
    if (dtype == NAPIER_BF16 && first) {
        NAPIER_TOKEN_FIRST_TWO("bf16x2");
    } else if (dtype == NAPIER_BF16) {
        NAPIER_TOKEN_TWO("bf16x2");
    } else if (first) {
        NAPIER_TOKEN_FIRST_TWO("f16x2");
    } else {
        NAPIER_TOKEN_TWO("f16x2");
    }
#else
    (void)both_max;
    sum[0] = (first ? 0.0f : sum[0]) + (z_low < max ? low : 0.0f);
    sum[1] = (first ? 0.0f : sum[1]) + (z_high < max ? high : 0.0f);
    *count += (z_low < max ? 0 : 1) + (z_high < max ? 0 : 1);
#endif
    if (entropy) {
        spread[0] = fmaf(-low, z_low - max, spread[0]);
        spread[1] = fmaf(-high, z_high - max, spread[1]);
    }
}

/* A tile. False, and nothing is done, if it has a number beyond the table. */
CUDA_INLINE bool napier_cuda_token_by_table(const napier_dtype dtype, const bool entropy, const float *table,
                                            const napier_words *words, napier_cuda_token_slot *slot) {
    float z[32];
    napier_unpack_tile(dtype, 4, words, 1.0f, z);
    const cuda_token_range r = cuda_token_range_of_words(dtype, words, z);
    const float max = napier_group_max(CUDA_WARP, r.max) + 0.0f;
    if (cuda_ballot(!(r.min >= -64.0f)) != 0 || !(max <= 64.0f)) {
        return false;
    }
    const napier_term_scale s = {max, 0.0f, NAPIER_ROUND_MAGIC};
    const uint32_t both_max = napier_narrow_numbers(dtype, max, max);
    const int power = NAPIER_TERM_SCALE - (int)napier_exp_parts_small(max).n, half = power / 2;
    const float scale = napier_power_of_two(half), again = napier_power_of_two(power - half);
    float sum[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
    float spread[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
    int32_t count = 0;
    NAPIER_UNROLL
    for (int i = 0; i < NAPIER_TOKEN_TABLE_WORDS; i++) {
        napier_cuda_token_two(dtype, entropy, i < 4, table, words[i / 4].w[i % 4], max, both_max, &sum[2 * (i % 4)],
                              &spread[2 * (i % 4)], &count);
    }
    NAPIER_UNROLL
    for (int e = 2 * NAPIER_TOKEN_TABLE_WORDS; e < 32; e++) {
        cuda_token_step(entropy, false, false, &s, z[e], &sum[e % 8], &spread[e % 8], &count);
    }
    slot->max = max;
    slot->rest = napier_fold(dtype, CUDA_WARP, cuda_lane(), sum) * scale * again;
    slot->spread = entropy ? napier_fold(dtype, CUDA_WARP, cuda_lane(), spread) * scale * again : 0.0f;
    slot->count = (int32_t)cuda_add_u32((uint32_t)count);
    return true;
}

/* ---- All tiles --------------------------------------------------------------------------------------------------- */

/* The amount of work: z equals the logits; or z is the logits divided by a temperature; or any rule, ranks and
 * totals. */
typedef enum napier_cuda_token_way {
    NAPIER_TOKEN_PLAIN,
    NAPIER_TOKEN_TEMPERED,
    NAPIER_TOKEN_ANY
} napier_cuda_token_way;

CUDA_INLINE napier_cuda_token_slot napier_cuda_token_tile(const napier_dtype dtype, const napier_cuda_token_way way,
                                                          const bool entropy, const napier_cuda_token_job *job,
                                                          int64_t row, int64_t tile) {
    const bool any = way == NAPIER_TOKEN_ANY, as_stored = way == NAPIER_TOKEN_PLAIN && dtype == NAPIER_BF16;
    const napier_line line = napier_line_in(&job->x, false, row);
    const int64_t first = tile * NAPIER_TILE;
    napier_words words[8];
    float z[32];
    cuda_token_load(dtype, &line, first, words);
    napier_unpack_tile(dtype, 4, words, way == NAPIER_TOKEN_TEMPERED ? job->call.rules.temperature : 1.0f, z);
    if (any) {
        cuda_token_tile_rules(dtype, &job->call.rules, row, first, job->x.cols, z);
    }
    const cuda_token_range r = as_stored ? cuda_token_range_of_words(dtype, words, z) : cuda_token_range_of(z);
    const napier_cuda_token_slot slot = cuda_token_sum(dtype, entropy, job, row, first, &r, z);
    if (any && job->totals != NULL) {
        const float total = napier_cuda_token_tile_total(dtype, job, row, first, z);
        if (cuda_lane() == 0) {
            job->totals[row * job->tiles + tile] = total;
        }
    }
    if (any && job->call.wants.ranks > 0) {
        napier_cuda_token_ranks(dtype, job, row, first, slot.max, z);
    }
    return slot;
}

/* A warp's place among the tiles of all rows, numbered along rows: every cuda_warps()-th, without a division in the loop. */
typedef struct napier_cuda_token_place {
    int64_t row, rows_on;
    int tile, tiles_on, tiles;
} napier_cuda_token_place;

CUDA_INLINE napier_cuda_token_place napier_cuda_token_start(const napier_cuda_token_job *job) {
    const int tiles = (int)job->tiles;
    const napier_cuda_token_place p = {cuda_warp() / tiles, cuda_warps() / tiles, (int)(cuda_warp() % tiles),
                                       (int)(cuda_warps() % tiles), tiles};
    return p;
}

/* Stores the tile's slot and goes on. */
CUDA_INLINE void napier_cuda_token_next(const napier_cuda_token_job *job, const napier_cuda_token_slot *slot,
                                        napier_cuda_token_place *p) {
    if (cuda_lane() == 0) {
        job->slots[p->row * p->tiles + p->tile] = *slot;
    }
    p->row += p->rows_on;
    p->tile += p->tiles_on;
    if (p->tile >= p->tiles) {
        p->tile -= p->tiles;
        p->row++;
    }
}

CUDA_INLINE void napier_cuda_token_tiles(const napier_dtype dtype, const napier_cuda_token_way way, const bool entropy,
                                         const napier_cuda_token_job *job) {
    napier_cuda_token_place p = napier_cuda_token_start(job);
    while (p.row < job->call.rows) {
        const napier_cuda_token_slot slot = napier_cuda_token_tile(dtype, way, entropy, job, p.row, p.tile);
        napier_cuda_token_next(job, &slot, &p);
    }
}

/* The same by a table. */
CUDA_INLINE void napier_cuda_token_table_tiles(const napier_dtype dtype, const bool entropy,
                                               const napier_cuda_token_job *job, const float *table) {
    const int64_t row_bytes = job->x.row_stride * 2;
    const bool wide = job->x.col_stride == 1 && (((int64_t)(uintptr_t)job->x.data | row_bytes) & 15) == 0;
    const int whole = wide ? (int)(job->x.cols / NAPIER_TILE) : 0; /* tiles of a row */
    const char *const data = (const char *)job->x.data + cuda_lane() * 16;
    napier_cuda_token_place p = napier_cuda_token_start(job);
    while (p.row < job->call.rows) {
        napier_cuda_token_slot slot;
        bool done = p.tile < whole;
        if (done) {
            const char *const from = data + p.row * row_bytes + p.tile * (2 * NAPIER_TILE);
            napier_words words[4];
            NAPIER_UNROLL
            for (int c = 0; c < 4; c++) {
                cuda_load_16(from + c * CUDA_WARP * 16, &words[c]);
            }
            done = napier_cuda_token_by_table(dtype, entropy, table, words, &slot);
        }
        if (!done) {
            slot = napier_cuda_token_tile(dtype, NAPIER_TOKEN_PLAIN, entropy, job, p.row, p.tile);
        }
        napier_cuda_token_next(job, &slot, &p);
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

#define NAPIER_TOKEN_TABLE_KERNEL(name, dtype, entropy)                                           \
    CUDA_KERNEL(name, napier_cuda_token_job, NAPIER_CUDA_BOUNDS(NAPIER_TOKEN_TABLE_THREADS, 1)) { \
        CUDA_SHARED(float, table);                                                                \
        napier_cuda_token_table(dtype, table);                                                    \
        napier_cuda_token_table_tiles(dtype, entropy, &job, table);                               \
    }

NAPIER_TOKEN_TABLE_KERNEL(napier_token_table_f16, NAPIER_F16, false)
NAPIER_TOKEN_TABLE_KERNEL(napier_token_table_bf16, NAPIER_BF16, false)
NAPIER_TOKEN_TABLE_KERNEL(napier_token_table_entropies_f16, NAPIER_F16, true)
NAPIER_TOKEN_TABLE_KERNEL(napier_token_table_entropies_bf16, NAPIER_BF16, true)

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
