/* ops/losses/gpu/token_backward.cu - the gradient of logits. A block, or a cluster of blocks, sums the tiles of a row,
 * finishes it, and writes its gradient. If a block's tiles fit in its shared memory, the logits are read once. For a
 * GRPO loss with per-token ratios, the gradient of the loss is computed in between. */
#define NAPIER_LANES_CUDA
#include "core/gpu/kernel.h"
/* after the language */
#include "ops/losses/gpu/token_backward_cuda.h"

/* The number of ids per row that have a gradient. */
CUDA_INLINE int64_t napier_cuda_back_ids(const napier_cuda_back_job *job) {
    return job->token.call.chosen ? job->token.call.per_row : 0;
}

/* ---- The gradients of a row -------------------------------------------------------------------------------------- */

CUDA_INLINE double napier_cuda_back_gradient(napier_const_vector v, int64_t row) {
    return v.data != NULL ? (double)cuda_token(v, row) : 0.0;
}

/* The gradients of a row, computed by lane 0 of a warp, as napier_token_pull_of. */
NAPIER_OUTLINE void napier_cuda_back_pull(const napier_cuda_back_job *job, int64_t row, double *own,
                                          napier_cuda_back_room *room) {
    const napier_token_gradients *const g = &job->token.call.gradients;
    const int64_t count = napier_cuda_back_ids(job);
    napier_token_pull pull = {napier_cuda_back_gradient(g->lse, row), napier_cuda_back_gradient(g->entropy, row),
                              napier_cuda_back_gradient(g->loss, row), false};
    bool zero = pull.lse == 0.0 && pull.entropy == 0.0;
    for (int64_t k = 0; k < count; k++) {
        const int64_t id = cuda_index_at(job->token.call.ids, row * count + k);
        const cuda_token_kind kind = cuda_token_kind_of(&job->token, id);
        const napier_const_matrix *const m = &g->logprobs;
        own[k] = 0.0;
        if (kind == CUDA_TOKEN_GOOD && m->data != NULL) {
            own[k] = (double)cuda_element(m->data, m->dtype, row * m->row_stride + k * m->col_stride);
        }
        if (kind == CUDA_TOKEN_BAD) {
            napier_cuda_note_fault(job->token.faults, NAPIER_FAULT_IDS, row * count + k);
            room->bad = true;
        }
        pull.loss = kind == CUDA_TOKEN_GOOD ? pull.loss : 0.0;
        zero = zero && own[k] == 0.0;
    }
    pull.zero = zero && pull.loss == 0.0 && !room->bad;
    room->pull = pull;
}

/* The same for a GRPO loss, when the row's final is known, as loss_of_row. */
CUDA_INLINE void napier_cuda_back_ask(const napier_cuda_back_job *job, int64_t row, float chosen, double *own,
                                      napier_cuda_back_room *room) {
    const napier_token_final *const final = &room->row.final;
    const napier_cuda_responses *const r = &job->grpo.responses;
    const int64_t id = cuda_index_at(job->token.call.ids, row);
    const cuda_token_kind kind = cuda_token_kind_of(&job->token, id);
    const napier_grpo_job grpo = cuda_grpo_job_of(&job->grpo);
    float logprob = kind == CUDA_TOKEN_GOOD ? napier_token_logprob(final, chosen) : 0.0f;
    napier_token_pull pull = {0.0, 0.0, 0.0, false};
    if (kind == CUDA_TOKEN_BAD) {
        napier_cuda_note_fault(job->token.faults, NAPIER_FAULT_IDS, row);
        room->bad = true;
        logprob = vf_canonical_nan();
    }
    if (cuda_cluster_rank() == 0) {
        job->logprob[row] = logprob;
        job->entropy[row] = final->entropy;
    }
    if (r->tally->bad != 0) {
        room->bad = true;
    }
    own[0] = 0.0;
    if (!room->bad) {
        const int64_t b = cuda_response_at(r, row, false);
        const napier_grpo_response response = job->grpo.response[b];
        const napier_grpo_inputs in =
            cuda_grpo_inputs_with(&grpo, cuda_grpo_advantage(&grpo, b), row, logprob, final->entropy);
        const napier_grpo_outputs o = napier_grpo_sixteen(&grpo, &response, &in);
        float g = cuda_grpo_gradient(&grpo, &response, &in, &o);
        own[0] = kind == CUDA_TOKEN_GOOD ? (double)g : 0.0;
        if (in.counted) {
            pull.entropy = (double)(float)-(job->grpo.options.entropy_coefficient / (double)r->tally->all.counted);
        }
    }
    pull.zero = own[0] == 0.0 && pull.entropy == 0.0 && !room->bad;
    room->pull = pull;
}

/* ---- Sum --------------------------------------------------------------------------------------------------------- */

typedef struct napier_cuda_share {
    int64_t begin, end; /* tiles */
    napier_words *kept; /* NULL: none */
} napier_cuda_share;

CUDA_INLINE napier_words *napier_cuda_back_kept(const napier_dtype dtype, const napier_cuda_share *s, int64_t tile,
                                                int c) {
    return s->kept + ((tile - s->begin) * napier_chunks(dtype, 4) + c) * CUDA_WARP + cuda_lane();
}

CUDA_INLINE void napier_cuda_back_sum(const napier_dtype dtype, const bool plain, const napier_cuda_back_job *job,
                                      int64_t row, const napier_cuda_share *s) {
    const napier_cuda_token_job *const token = &job->token;
    const napier_line line = napier_line_in(&token->x, false, row);
    const int warps = (int)blockDim.x / CUDA_WARP;
    for (int64_t tile = s->begin + threadIdx.x / CUDA_WARP; tile < s->end; tile += warps) {
        const int64_t first = tile * NAPIER_TILE;
        napier_words words[8];
        float z[32];
        cuda_token_load(dtype, &line, first, words);
        if (s->kept != NULL) {
            NAPIER_UNROLL
            for (int c = 0; c < napier_chunks(dtype, 4); c++) {
                *napier_cuda_back_kept(dtype, s, tile, c) = words[c];
            }
        }
        napier_unpack_tile(dtype, 4, words, 1.0f, z);
        if (!plain) {
            cuda_token_tile_rules(dtype, &token->call.rules, row, first, token->x.cols, z);
        }
        const cuda_token_range r =
            plain && dtype == NAPIER_BF16 ? cuda_token_range_of_words(dtype, words, z) : cuda_token_range_of(z);
        const napier_cuda_token_slot slot = cuda_token_sum(dtype, true, token, row, first, &r, z);
        if (cuda_lane() == 0) {
            token->slots[row * token->tiles + tile] = slot;
        }
    }
}

/* ---- Between: warp 0 --------------------------------------------------------------------------------------------- */

NAPIER_OUTLINE void napier_cuda_back_slope(const napier_cuda_back_job *job, int64_t row, napier_cuda_back_room *room) {
    const napier_cuda_token_job *const token = &job->token;
    const int64_t count = napier_cuda_back_ids(job), at = (row * cuda_cluster_size() + cuda_cluster_rank()) * count;
    double *const start = job->doubles + 2 * at, *const own = start + count;
    const float *const chosen = job->chosen + at;
    cuda_token_finish(token, row, &room->row);
    const bool smooth = room->pull.loss != 0.0 && token->call.options.label_smoothing > 0.0;
    const int64_t kept = smooth ? cuda_token_count_kept(token, row) : 1;
    if (cuda_lane() != 0) {
        return;
    }
    if (job->hooked) {
        napier_cuda_back_ask(job, row, chosen[0], own, room);
    }
    if (room->bad) {
        room->row.final.row.kind = NAPIER_ROW_NAN;
    }
    napier_token_slope_make(&token->call.options, token->call.rules.temperature, kept, &room->pull, &room->row.final,
                            count, chosen, start, own, &room->slope);
    room->slope.start = start;
    room->slope.own = own;
}

/* ---- Write ------------------------------------------------------------------------------------------------------- */

/* softmax of an element of a row whose maximum is big. */
NAPIER_OUTLINE float napier_cuda_back_big(float max, float max_prob, float scale, int64_t exponent, float z) {
    const napier_final final = {NAPIER_ROW_FINITE, max, 0.0f, 0.0f, max_prob, scale, 1.0f, exponent};
    return napier_softmax_of(&final, z);
}

/* The gradient of an element that is not a chosen id. */
CUDA_INLINE float napier_cuda_back_value(const napier_final *f, const napier_term_scale *s, const napier_token_slope *g,
                                         bool big, float z) {
    const float p = big ? napier_cuda_back_big(f->max, f->max_prob, f->scale, f->exponent, z)
                        : napier_prob_of_term(f, napier_near_term(s, z, vf_exp_scaled(z, s->magic)));
    const float factor =
        g->entropy == 0.0f && g->base != 0.0f ? g->base : fmaf(-g->entropy, (z - f->max) - f->log_sum, g->base);
    return p == 0.0f ? g->constant : fmaf(p, factor, g->constant);
}

/* Writes the chosen ids among 8 (or 4) elements from `column` on: each gets its start and the gradients of all that
 * name it. */
CUDA_INLINE void napier_cuda_back_chosen(const napier_dtype dtype, const napier_cuda_back_job *job, int64_t row,
                                         const napier_token_slope *g, int64_t column, float *v) {
    const int64_t count = g->count;
    for (int64_t k = 0; k < count; k++) {
        const int64_t id = cuda_index_at(job->token.call.ids, row * count + k), i = id - column;
        bool first = i >= 0 && i < napier_chunk_of(dtype) && !napier_token_ignored(&job->token.call, id);
        for (int64_t before = 0; before < k && first; before++) {
            first = cuda_index_at(job->token.call.ids, row * count + before) != id;
        }
        if (!first) {
            continue;
        }
        double sum = g->start[k];
        for (int64_t other = k; other < count; other++) {
            if (cuda_index_at(job->token.call.ids, row * count + other) == id) {
                sum += g->own[other];
            }
        }
        NAPIER_UNROLL
        for (int e = 0; e < napier_chunk_of(dtype); e++) {
            v[e] = e == i ? (float)sum : v[e];
        }
    }
}

/* Multiplies by the softcap's derivative, writes 0 where keep is 0, and makes NaNs canonical. */
CUDA_INLINE void napier_cuda_back_end(const napier_dtype dtype, const napier_token_rules *rules, int64_t row,
                                      int64_t column, int64_t cols, const float *slope, float *v) {
    NAPIER_UNROLL
    for (int e = 0; e < napier_chunk_of(dtype); e++) {
        v[e] = rules->softcap != 0.0f ? v[e] * slope[e] : v[e];
        if (column + e < cols && !cuda_token_kept(rules, row, column + e)) {
            v[e] = 0.0f;
        }
        v[e] = v[e] != v[e] ? vf_canonical_nan() : v[e];
    }
}

/* Writes the chunk's results. words: its logits. */
CUDA_INLINE void napier_cuda_back_chunk(const napier_dtype dtype, const bool plain, const napier_cuda_back_job *job,
                                        int64_t row, int64_t column, const napier_words *words,
                                        const napier_term_scale *scale, const napier_cuda_back_room *room, float *v) {
    const napier_token_rules *const rules = &job->token.call.rules;
    const napier_final *const f = &room->row.final.row;
    const napier_token_slope *const g = &room->slope;
    const bool finite = f->kind == NAPIER_ROW_FINITE, big = finite && napier_is_big(f->max);
    const int64_t cols = job->token.x.cols;
    float slope[8];
    napier_unpack_chunk(dtype, words, 1.0f, v);
    if (!plain) {
        cuda_token_rules(dtype, rules, row, column, cols, v, slope);
    }
    NAPIER_UNROLL
    for (int e = 0; e < napier_chunk_of(dtype); e++) {
        v[e] = finite ? napier_cuda_back_value(f, scale, g, big, v[e]) : vf_canonical_nan();
    }
    if (finite) {
        napier_cuda_back_chosen(dtype, job, row, g, column, v);
    }
    if (!plain || g->nan) {
        napier_cuda_back_end(dtype, rules, row, column, cols, slope, v);
    }
}

/* Loads the tile's logits, from memory or from shared memory. */
CUDA_INLINE void napier_cuda_back_load(const napier_dtype dtype, const napier_line *x, const napier_cuda_share *s,
                                       int64_t tile, napier_words *words) {
    if (s->kept == NULL) {
        cuda_token_load(dtype, x, tile * NAPIER_TILE, words);
        return;
    }
    NAPIER_UNROLL
    for (int c = 0; c < napier_chunks(dtype, 4); c++) {
        words[c] = *napier_cuda_back_kept(dtype, s, tile, c);
    }
}

/* True if one of the row's ids is in the tile. */
CUDA_INLINE bool napier_cuda_back_has_id(const napier_cuda_back_job *job, int64_t row, int64_t first) {
    const int64_t count = napier_cuda_back_ids(job);
    bool some = false;
    for (int64_t k = 0; k < count; k++) {
        const int64_t i = cuda_index_at(job->token.call.ids, row * count + k) - first;
        some = some || (i >= 0 && i < NAPIER_TILE);
    }
    return some;
}

/* For most tiles: no id in them, and nothing near underflow. Every result is p (base - entropy log p) + constant, p >
 * 0. */
typedef struct napier_cuda_back_lines {
    napier_term_scale s;
    float log_sum, max_prob, scale, base, entropy, constant;
} napier_cuda_back_lines;

CUDA_INLINE void napier_cuda_back_easy(const napier_dtype dtype, const bool flat, const napier_cuda_back_lines *l,
                                       const napier_line *y, int64_t first, const napier_words *words) {
    NAPIER_UNROLL
    for (int c = 0; c < napier_chunks(dtype, 4); c++) {
        const int64_t i = first + napier_chunk_at(dtype, CUDA_WARP, cuda_lane(), c);
        float v[8];
        napier_unpack_chunk(dtype, &words[c], 1.0f, v);
        NAPIER_UNROLL
        for (int e = 0; e < napier_chunk_of(dtype); e++) {
            const float p = cuda_token_min(vf_exp_scaled(v[e], l->s.magic) * l->scale, l->max_prob);
            const float log_p = (v[e] - l->s.max) - l->log_sum;
            v[e] = fmaf(p, flat ? l->base : fmaf(-l->entropy, log_p, l->base), l->constant);
        }
        napier_store_chunk(y, i, napier_chunk_of(dtype), v);
    }
}

/* For any tile. zero: no logits were read. */
CUDA_INLINE void napier_cuda_back_hard(const napier_dtype dtype, const bool plain, const napier_cuda_back_job *job,
                                       int64_t row, int64_t first, bool zero, const napier_line *y,
                                       const napier_words *words, const napier_cuda_back_room *room) {
    const napier_final *const f = &room->row.final.row;
    const bool ordinary = !zero && f->kind == NAPIER_ROW_FINITE && !napier_is_big(f->max);
    const napier_term_scale scale = napier_term_scale_of(ordinary ? f->max : 0.0f);
    NAPIER_UNROLL
    for (int c = 0; c < napier_chunks(dtype, 4); c++) {
        const int64_t i = first + napier_chunk_at(dtype, CUDA_WARP, cuda_lane(), c);
        float v[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
        if (!zero) {
            napier_cuda_back_chunk(dtype, plain, job, row, i, &words[c], &scale, room, v);
        }
        if (i < y->size) {
            napier_store_chunk(y, i, napier_chunk_of(dtype), v);
        }
    }
}

/* True if no logit of a whole tile is so low that its probability might be subnormal. Called by the whole warp. */
CUDA_INLINE bool napier_cuda_back_is_easy(const napier_dtype dtype, const napier_cuda_back_lines *l,
                                          const napier_words *words) {
    float z[32];
    napier_unpack_tile(dtype, 4, words, 1.0f, z);
    const cuda_token_range r =
        dtype == NAPIER_BF16 ? cuda_token_range_of_words(dtype, words, z) : cuda_token_range_of(z);
    return cuda_ballot(!((r.min - l->s.max) - l->log_sum >= -87.0f)) == 0;
}

CUDA_INLINE void napier_cuda_back_write(const napier_dtype dtype, const bool plain, const napier_cuda_back_job *job,
                                        int64_t row, const napier_cuda_share *s, const napier_cuda_back_room *room) {
    const napier_line x = napier_line_in(&job->token.x, false, row), y = napier_line_out(&job->y, false, row);
    const napier_final f = room->row.final.row;
    const napier_token_slope g = room->slope;
    const bool zero = room->pull.zero;
    const bool easy = plain && !zero && f.kind == NAPIER_ROW_FINITE && !napier_is_big(f.max) && !g.nan;
    const bool flat = g.entropy == 0.0f && g.base != 0.0f; /* the general formula would lose the sign of a base of -0 */
    const napier_cuda_back_lines lines = {
        napier_term_scale_of(easy ? f.max : 0.0f), f.log_sum, f.max_prob, f.scale, g.base, g.entropy, g.constant};
    const int warps = (int)blockDim.x / CUDA_WARP;
    for (int64_t tile = s->begin + threadIdx.x / CUDA_WARP; tile < s->end; tile += warps) {
        const int64_t first = tile * NAPIER_TILE;
        napier_words words[8];
        if (!zero) {
            napier_cuda_back_load(dtype, &x, s, tile, words);
        }
        const bool whole = easy && first + NAPIER_TILE <= y.size && !napier_cuda_back_has_id(job, row, first);
        if (!whole || !napier_cuda_back_is_easy(dtype, &lines, words)) {
            napier_cuda_back_hard(dtype, plain, job, row, first, zero, &y, words, room);
        } else if (flat) {
            napier_cuda_back_easy(dtype, true, &lines, &y, first, words);
        } else {
            napier_cuda_back_easy(dtype, false, &lines, &y, first, words);
        }
    }
}

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

CUDA_INLINE void napier_cuda_back_sync(void) {
    if (cuda_cluster_size() > 1) {
        cuda_cluster_sync();
    } else {
        __syncthreads();
    }
}

CUDA_INLINE void napier_cuda_back_row(const napier_dtype dtype, const bool plain, const napier_cuda_back_job *job,
                                      int64_t row, napier_cuda_back_room *room) {
    const int64_t count = napier_cuda_back_ids(job), part = row * cuda_cluster_size() + cuda_cluster_rank();
    napier_cuda_share s = {cuda_cluster_rank() * job->share, (cuda_cluster_rank() + 1) * job->share,
                           job->keep ? (napier_words *)((char *)room + NAPIER_BACK_ROOM) : NULL};
    s.begin = s.begin < job->token.tiles ? s.begin : job->token.tiles;
    s.end = s.end < job->token.tiles ? s.end : job->token.tiles;
    if (threadIdx.x == 0) {
        const napier_token_pull none = {0.0, 0.0, 0.0, false};
        room->bad = false;
        room->pull = none;
        room->slope.nan = false;
        if (!job->hooked) {
            napier_cuda_back_pull(job, row, job->doubles + (2 * part + 1) * count, room);
        }
    }
    if (threadIdx.x < CUDA_WARP) { /* read early: other blocks may write in place of the logits before this block is
                                      done */
        for (int64_t k = threadIdx.x; k < count; k += CUDA_WARP) {
            const int64_t id = cuda_index_at(job->token.call.ids, row * count + k);
            const bool good = cuda_token_kind_of(&job->token, id) == CUDA_TOKEN_GOOD;
            job->chosen[part * count + k] = good ? cuda_token_z(&job->token, row, id) : INFINITY;
        }
    }
    __syncthreads();
    const bool zero = room->pull.zero; /* the same in all blocks of the row */
    if (!zero) {
        napier_cuda_back_sum(dtype, plain, job, row, &s);
        napier_cuda_back_sync();
        if (threadIdx.x < CUDA_WARP) {
            napier_cuda_back_slope(job, row, room);
        }
        __syncthreads();
    }
    napier_cuda_back_write(dtype, plain, job, row, &s, room);
    __syncthreads();
}

#define NAPIER_BACK_KERNEL(name, dtype, plain)                                                       \
    CUDA_KERNEL(name, napier_cuda_back_job, NAPIER_BACK_THREADS) {                                   \
        CUDA_SHARED(napier_cuda_back_room, room);                                                    \
        const int64_t blocks = cuda_cluster_size();                                                  \
        for (int64_t row = blockIdx.x / blocks; row < job.token.x.rows; row += gridDim.x / blocks) { \
            napier_cuda_back_row(dtype, plain, &job, row, room);                                     \
        }                                                                                            \
    }

NAPIER_BACK_KERNEL(napier_token_gradients_f32, NAPIER_F32, true)
NAPIER_BACK_KERNEL(napier_token_gradients_f16, NAPIER_F16, true)
NAPIER_BACK_KERNEL(napier_token_gradients_bf16, NAPIER_BF16, true)
NAPIER_BACK_KERNEL(napier_token_any_gradients_f32, NAPIER_F32, false)
NAPIER_BACK_KERNEL(napier_token_any_gradients_f16, NAPIER_F16, false)
NAPIER_BACK_KERNEL(napier_token_any_gradients_bf16, NAPIER_BF16, false)
