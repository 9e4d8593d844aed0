/* ops/attention/gpu/attention_backward.cu - the gradients of attention by plain
 * multiply-adds in the CPU's order, with the same bits.
 *
 * p are the probabilities, s = p (grad_output . v - mean). In one kernel a block has 16 queries of a head and
 * goes through the keys for grad_q. In another a block has 16 rows of k and v and goes through all rows
 * (queries, and for each the heads of the group) of the sequences that use them, in their order, for grad_k and
 * grad_v. No two blocks add to the same element. */
#define NAPIER_LANES_CUDA
#include "core/gpu/kernel.h"
#include "core/simd/lanes.h"

#include "ops/attention/gpu/attention_tile.cuh"
#include "core/math/exp.h"

/* ---- Means: grad_output . output - grad_lse ---------------------------------------------------------------------- */

/* Element (token, head) of lse or of its gradient; 0 without data. */
CUDA_INLINE float of_row(const napier_const_matrix *m, int64_t token, int64_t head) {
    const float *const x = (const float *)m->data;
    return x ? x[token * m->row_stride + head * m->col_stride] : 0.0f;
}

/* The order of dot in ops/linear/linear_kernels.h, 256 columns at a time: lane l adds elements l and l + 32 of every 64;
 * then the 64 lanes are folded by halves. */
CUDA_INLINE float dot_part(const napier_attention_job *job, int64_t token, int64_t head, int64_t begin, int64_t end) {
    const int lane = (int)threadIdx.x % CUDA_WARP;
    float sum[2] = {0.0f, 0.0f};
    for (int64_t i = begin + lane; i < end; i += 64) {
        sum[0] = fmaf(head_element(&job->grad_output, token, head, i), head_element(&job->output_in, token, head, i),
                      sum[0]);
        if (i + 32 < end) {
            sum[1] = fmaf(head_element(&job->grad_output, token, head, i + 32),
                          head_element(&job->output_in, token, head, i + 32), sum[1]);
        }
    }
    float all = sum[0] + sum[1];
    NAPIER_UNROLL
    for (int h = 16; h > 0; h /= 2) {
        all += cuda_shuffle_xor_f32(all, h);
    }
    return all;
}

CUDA_KERNEL(napier_attention_means, napier_attention_job, NAPIER_ATTENTION_THREADS) {
    const int64_t rows = job.q.tokens * job.q.heads, warps = NAPIER_ATTENTION_THREADS / CUDA_WARP;
    for (int64_t row = blockIdx.x * warps + threadIdx.x / CUDA_WARP; row < rows; row += gridDim.x * warps) {
        float mean = 0.0f;
        for (int64_t begin = 0; begin < job.v.dim; begin += 256) {
            const int64_t end = begin + 256 < job.v.dim ? begin + 256 : job.v.dim;
            mean += dot_part(&job, row / job.q.heads, row % job.q.heads, begin, end);
        }
        if (threadIdx.x % CUDA_WARP == 0) {
            job.means[row] = mean - of_row(&job.grad_lse, row / job.q.heads, row % job.q.heads);
        }
    }
}

/* ---- A pair of a row and a key ----------------------------------------------------------------------------------- */

/* Of a row: lse log2(e), and its mean. */
typedef struct row_level {
    float level, mean;
} row_level;

CUDA_INLINE row_level level_of(const napier_attention_job *job, int64_t token, int64_t head) {
    const row_level l = {of_row(&job->lse_in, token, head) * NAPIER_LOG2E, job->means[token * job->q.heads + head]};
    return l;
}

/* Turns the score (-inf: hidden) into p, and grad_output . v into s. */
CUDA_INLINE float slope(row_level row, float score, float *of_v) {
    const bool nothing = row.level == -INFINITY || score == -INFINITY;
    const float p = nothing ? 0.0f : napier_weight(score - row.level);
    *of_v = nothing ? 0.0f : p * (*of_v - row.mean);
    return p;
}

/* ---- A block's shared memory ------------------------------------------------------------------------------------- */

typedef struct room {
    float *side_k, *side_v;       /* [dim][16], [v.dim][16]: queries and grad_output; or keys and values */
    float *columns_k, *columns_v; /* [dim][20], [v.dim][20]; the queries' kernel has the first only */
    float *total_k, *total_v;     /* the same, over sequences */
    float *slopes, *weights;      /* [256][20] */
    float *stage;                 /* [256][33] */
    int64_t *tokens, *side_tokens;
    int32_t *heads;
    uint32_t *seen;
} room;

CUDA_INLINE room room_of(const napier_attention_job *job, bool of_keys, unsigned char *shared) {
    room m = {NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL};
    float *at = (float *)(void *)shared;
    m.side_k = at, at += job->q.dim * ROWS;
    m.side_v = at, at += job->v.dim * ROWS;
    m.columns_k = at, at += job->q.dim * STEP;
    m.slopes = at, at += KEYS * STEP;
    if (of_keys) {
        m.columns_v = at, at += job->v.dim * STEP;
        m.total_k = at, at += job->q.dim * STEP;
        m.total_v = at, at += job->v.dim * STEP;
        m.weights = at, at += KEYS * STEP;
    }
    m.tokens = (int64_t *)(void *)at, at += 2 * KEYS;
    m.side_tokens = (int64_t *)(void *)at, at += 2 * ROWS;
    m.heads = (int32_t *)(void *)at, at += KEYS;
    m.seen = (uint32_t *)(void *)at, at += KEYS;
    m.stage = at;
    return m;
}

/* ---- grad_q ------------------------------------------------------------------------------------------------------ */

/* Slopes of this thread's key with the tile's rows. */
CUDA_INLINE void put_slopes(const napier_attention_job *job, const row_tile *t, int64_t place,
                            const float product[ROWS], float of_v[ROWS], const room *m) {
    uint32_t bits = 0;
    NAPIER_UNROLL
    for (int r = 0; r < ROWS; r++) {
        bool seen = false;
        if (r < t->rows && place < t->s.keys) {
            const float score = score_of(job, &t->s, t->query + r, t->head, place, product[r], &seen);
            (void)slope(level_of(job, m->side_tokens[r], t->head), score, &of_v[r]);
            bits |= seen ? 1u << r : 0;
        } else {
            of_v[r] = 0.0f;
        }
    }
    m->seen[threadIdx.x] = bits;
    put_sixteen(of_v, m->slopes);
}

CUDA_KERNEL(napier_attention_grad_q, napier_attention_job, NAPIER_ATTENTION_THREADS) {
    CUDA_SHARED(unsigned char, shared);
    if (is_bad(&job)) {
        fill_with_nan(&job.grad_q);
        return;
    }
    const room m = room_of(&job, false, shared);
    const row_tile t = row_tile_of(&job, ROWS);
    if (t.rows == 0) {
        return;
    }
    if (threadIdx.x < ROWS) {
        m.side_tokens[threadIdx.x] = (int)threadIdx.x < t.rows ? t.s.query_begin + t.query + (int64_t)threadIdx.x : -1;
    }
    clear_columns(m.columns_k, job.q.dim);
    __syncthreads();
    load_side(false, &job.q, m.side_tokens, t.head, m.side_k);
    load_side(false, &job.grad_output, m.side_tokens, t.head, m.side_v);
    const int64_t most = keys_seen(&job, &t.s, t.query + t.rows - 1);
    const others keys = {m.tokens, NULL, t.head / job.group};
    for (int64_t place = 0; place < most; place += KEYS) {
        const int64_t mine = place + threadIdx.x;
        float product[ROWS], of_v[ROWS];
        __syncthreads();
        m.tokens[threadIdx.x] = mine < most ? key_row(&t.s, mine) : -1;
        products(false, &job.k, m.side_k, &keys, m.stage, product);
        products(false, &job.v, m.side_v, &keys, m.stage, of_v);
        put_slopes(&job, &t, mine, product, of_v, &m);
        __syncthreads();
        add_columns(false, &job.k, m.slopes, m.seen, &keys, most - place < KEYS ? (int)(most - place) : (int)KEYS, NULL,
                    m.columns_k);
    }
    __syncthreads();
    for (int64_t at = threadIdx.x; at < t.rows * job.q.dim; at += NAPIER_ATTENTION_THREADS) {
        const int64_t r = at / job.q.dim, c = at % job.q.dim;
        head_store(&job.grad_q, m.side_tokens[r], t.head, c, (m.columns_k[c * STEP + r] + 0.0f) * job.scale);
    }
}

/* ---- grad_k and grad_v ------------------------------------------------------------------------------------------- */

/* Some rows of the block's 16 as keys of one sequence: row `first` of k has place `place`. */
typedef struct segment {
    sequence s;
    int64_t first, count, place;
} segment;

/* The part of rows [begin, begin + n) of k, whose places begin at `place`, that the block has. */
CUDA_INLINE segment segment_of(const sequence *s, int64_t begin, int64_t n, int64_t place) {
    const int64_t block = (int64_t)(blockIdx.x % gridDim.x) * ROWS;
    const int64_t first = begin > block ? begin : block;
    const int64_t end = begin + n < block + ROWS ? begin + n : block + ROWS;
    const segment g = {*s, first, end > first ? end - first : 0, place + (first - begin)};
    return g;
}

/* Row `index` of a sequence: query index / group, and of it head index % group of the group. */
CUDA_INLINE void name_row(const napier_attention_job *job, const segment *g, int64_t index, const room *m) {
    const bool there = index < g->s.queries * job->group;
    m->tokens[threadIdx.x] = there ? g->s.query_begin + index / job->group : -1;
    m->heads[threadIdx.x] = (int32_t)((int64_t)blockIdx.y * job->group + index % job->group);
}

/* p and s of this thread's row with the segment's keys. */
CUDA_INLINE void put_row(const napier_attention_job *job, const segment *g, int64_t index, float product[ROWS],
                         float of_v[ROWS], const room *m) {
    const int64_t offset = g->first - (int64_t)blockIdx.x * ROWS;
    const bool there = m->tokens[threadIdx.x] >= 0;
    const row_level none = {-INFINITY, 0.0f};
    const row_level level = there ? level_of(job, m->tokens[threadIdx.x], m->heads[threadIdx.x]) : none;
    uint32_t bits = 0;
    NAPIER_UNROLL
    for (int r = 0; r < ROWS; r++) {
        bool seen = false;
        float score = -INFINITY;
        if (there && r >= offset && r < offset + g->count) {
            score = score_of(job, &g->s, index / job->group, m->heads[threadIdx.x], g->place + (r - offset), product[r],
                             &seen);
        }
        product[r] = slope(level, score, &of_v[r]);
        bits |= seen ? 1u << r : 0;
    }
    m->seen[threadIdx.x] = bits;
    put_sixteen(product, m->weights);
    put_sixteen(of_v, m->slopes);
}

/* Adds what one sequence contributes to the segment's keys to their totals. */
CUDA_INLINE void add_total(const segment *g, float scale, int64_t dim, float *columns, float *total) {
    const int64_t offset = g->first - (int64_t)blockIdx.x * ROWS;
    for (int64_t at = threadIdx.x; at < dim * g->count; at += NAPIER_ATTENTION_THREADS) {
        const int64_t to = at / g->count * STEP + offset + at % g->count;
        const float sum = (columns[to] + 0.0f) * scale;
        total[to] = total[to] + sum;
    }
}

CUDA_INLINE void add_segment(const napier_attention_job *job, const segment *g, const room *m) {
    const others rows = {m->tokens, m->heads, 0};
    const int64_t count = g->s.queries * job->group;
    /* earlier rows attend to none of these keys */
    const int64_t hidden = job->causal ? (g->place + g->s.queries - g->s.keys) * job->group : 0;
    clear_columns(m->columns_k, job->q.dim);
    clear_columns(m->columns_v, job->v.dim);
    for (int64_t index = hidden > 0 ? hidden : 0; index < count; index += KEYS) {
        float product[ROWS], of_v[ROWS];
        const int some = count - index < KEYS ? (int)(count - index) : (int)KEYS;
        __syncthreads();
        name_row(job, g, index + threadIdx.x, m);
        products(false, &job->q, m->side_k, &rows, m->stage, product);
        products(false, &job->grad_output, m->side_v, &rows, m->stage, of_v);
        put_row(job, g, index + threadIdx.x, product, of_v, m);
        __syncthreads();
        add_columns(false, &job->q, m->slopes, m->seen, &rows, some, NULL, m->columns_k);
        add_columns(false, &job->grad_output, m->weights, m->seen, &rows, some, NULL, m->columns_v);
    }
    __syncthreads();
    add_total(g, job->scale, job->q.dim, m->columns_k, m->total_k);
    add_total(g, 1.0f, job->v.dim, m->columns_v, m->total_v);
    __syncthreads();
}

/* With one user at most, a row of k that none uses has +0, and a -0 stays one. */
CUDA_INLINE void write_totals(const napier_attention_job *job, const napier_heads *x, const float *total) {
    for (int64_t at = threadIdx.x; x->data && at < ROWS * x->dim; at += NAPIER_ATTENTION_THREADS) {
        const int64_t r = at / x->dim, c = at % x->dim, row = (int64_t)blockIdx.x * ROWS + r;
        if (row < job->k.tokens) {
            head_store(x, row, blockIdx.y, c, total[c * STEP + r]);
        }
    }
}

/* With prefixes totals begin with +0, as on the CPU; otherwise with -0, which does
 * not change the first number that is added. */
CUDA_INLINE void start_totals(const napier_attention_job *job, const segment *g, int64_t dim, float *total) {
    const int64_t offset = g->first - (int64_t)blockIdx.x * ROWS;
    for (int64_t at = threadIdx.x; !job->prefix_begin && at < dim * g->count; at += NAPIER_ATTENTION_THREADS) {
        total[at / g->count * STEP + offset + at % g->count] = -0.0f;
    }
}

CUDA_INLINE void use_segment(const napier_attention_job *job, const segment *g, const room *m) {
    if (g->count > 0) {
        start_totals(job, g, job->q.dim, m->total_k);
        start_totals(job, g, job->v.dim, m->total_v);
        add_segment(job, g, m);
    }
}

CUDA_KERNEL(napier_attention_grad_kv, napier_attention_job, NAPIER_ATTENTION_THREADS) {
    CUDA_SHARED(unsigned char, shared);
    if (is_bad(&job)) {
        fill_with_nan(&job.grad_k);
        fill_with_nan(&job.grad_v);
        return;
    }
    const room m = room_of(&job, true, shared);
    if (threadIdx.x < ROWS) {
        const int64_t row = (int64_t)blockIdx.x * ROWS + threadIdx.x;
        m.side_tokens[threadIdx.x] = row < job.k.tokens ? row : -1;
    }
    clear_columns(m.total_k, job.q.dim);
    clear_columns(m.total_v, job.v.dim);
    __syncthreads();
    load_side(false, &job.k, m.side_tokens, blockIdx.y, m.side_k);
    load_side(false, &job.v, m.side_tokens, blockIdx.y, m.side_v);
    __syncthreads();
    for (int64_t i = 0; i < job.sequences; i++) {
        const sequence s = sequence_of(&job, i);
        const segment prefix = segment_of(&s, s.prefix_begin, s.prefix, 0);
        const segment own = segment_of(&s, s.own_begin, s.keys - s.prefix, s.prefix);
        use_segment(&job, &prefix, &m);
        use_segment(&job, &own, &m);
    }
    __syncthreads();
    write_totals(&job, &job.grad_k, m.total_k);
    write_totals(&job, &job.grad_v, m.total_v);
}
