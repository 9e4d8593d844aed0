/* ops/head/gpu/linear_token_logprobs.cu - log-probabilities directly from hidden states: tiles of logits to slots,
 * slots to results. See linear_token_cuda.h.
 *
 * After the product, a tile is in the shared memory that its stages used, and each of the 128 threads reduces one row
 * of it. So no sum crosses threads. With about 30 instructions per logit this takes a tenth of the time of a product
 * with k = 4096, and most of it overlaps with the products of the multiprocessor's other block. */
#define NAPIER_LANES_CUDA
#include "core/gpu/kernel.h"
#include "core/simd/lanes.h"

#include <assert.h>

#include "core/math/exp.h"
#include "ops/head/gpu/linear_tile.cuh"

/* ---- A row of a tile --------------------------------------------------------------------------------------------- */

typedef struct tile_parts {
    float max, count, rest, spread;
    int best;
} tile_parts;

CUDA_INLINE void apply_rules(const napier_linear_job *job, int64_t row, int64_t token, int n, float *z) {
    const uint8_t *const keep = napier_token_keep(&job->rules, job->first + row, token);
    for (int i = 0; i < n; i++) {
        float slope;
        z[i] = napier_linear_z(&job->rules, z[i], !keep || keep[i], &slope);
    }
}

/* The maximum, its first index, and whether there is a NaN. */
CUDA_INLINE tile_parts look(const float *z, int n) {
    tile_parts p = {-INFINITY, 0.0f, 0.0f, 0.0f, 0};
    bool nan = false;
    for (int i = 0; i < n; i++) {
        const float x = z[i];
        nan = nan || x != x;
        p.best = x > p.max ? i : p.best;
        p.max = x > p.max ? x : p.max;
    }
    p.max = nan ? vf_canonical_nan() : p.max;
    return p;
}

/* Four independent chains, each over every fourth column. */
CUDA_INLINE void add_terms(const float *z, int n, tile_parts *p) {
    const float magic = NAPIER_ROUND_MAGIC + (float)(NAPIER_TERM_SCALE - napier_exp_parts_small(p->max).n);
    const float cutoff = p->max - NAPIER_CUTOFF;
    float rest[4] = {0.0f, 0.0f, 0.0f, 0.0f}, spread[4] = {0.0f, 0.0f, 0.0f, 0.0f}, count = 0.0f;
    for (int i = 0; i < n; i += 4) {
        NAPIER_UNROLL
        for (int j = 0; j < 4; j++) {
            const float x = i + j < n ? z[i + j] : -INFINITY, down = x - p->max;
            const bool near = x >= cutoff;
            const float term = near ? vf_exp_scaled(near ? x : p->max, magic) : 0.0f;
            count += x == p->max ? 1.0f : 0.0f;
            rest[j] += x < p->max ? term : 0.0f;
            spread[j] = near ? fmaf(-term, down, spread[j]) : spread[j];
        }
    }
    p->count = count;
    p->rest = (rest[0] + rest[2]) + (rest[1] + rest[3]);
    p->spread = (spread[0] + spread[2]) + (spread[1] + spread[3]);
}

/* For a maximum beyond 2^20: element by element. */
CUDA_INLINE void add_terms_big(const float *z, int n, tile_parts *p) {
    const bool terms = !napier_is_huge(p->max);
    const int64_t exponent = terms ? napier_exp_parts_for(p->max, p->max).n : 0;
    for (int i = 0; i < n; i++) {
        p->count += z[i] == p->max ? 1.0f : 0.0f;
        if (terms && z[i] < p->max && napier_within_cutoff(z[i], p->max)) {
            const float term = napier_term(z[i], p->max, exponent);
            p->rest += term;
            p->spread = fmaf(-term, z[i] - p->max, p->spread);
        }
    }
}

CUDA_INLINE void sum_kept(const napier_linear_job *job, int64_t row, int64_t token, const float *z, int n, float *total,
                          float *kept) {
    const uint8_t *const keep = napier_token_keep(&job->rules, job->first + row, token);
    for (int i = 0; i < n; i++) {
        if (!keep || keep[i]) {
            *total += z[i];
            *kept += 1.0f;
        }
    }
}

CUDA_INLINE void keep_chosen(const napier_linear_job *job, int64_t row, int64_t token, const float *z, int n) {
    for (int64_t k = 0; k < job->per_row; k++) {
        const int64_t id = napier_linear_id(&job->ids, (job->first + row) * job->per_row + k);
        if (id >= token && id < token + n) {
            job->chosen[row * job->per_row + k] = z[id - token];
        }
    }
}

CUDA_INLINE void tile_row(const napier_linear_job *job, const napier_linear_tile *t) {
    const int64_t row = t->row + threadIdx.x;
    float *const z = t->z + threadIdx.x * NAPIER_LINEAR_STEP;
    if (row >= job->rows) {
        return;
    }
    if (napier_linear_changes(&job->rules)) {
        apply_rules(job, row, t->token, t->n, z);
    }
    tile_parts p = look(z, t->n);
    if (fabsf(p.max) <= NAPIER_BIG) {
        add_terms(z, t->n, &p);
    } else if (fabsf(p.max) < INFINITY) {
        add_terms_big(z, t->n, &p);
    }
    keep_chosen(job, row, t->token, z, t->n);
    const napier_linear_slots *const s = &job->slots;
    const int64_t at = t->column / NAPIER_LINEAR_TILE * s->step + row;
    s->max[at] = p.max;
    s->count[at] = p.count;
    s->rest[at] = p.rest;
    s->spread[at] = p.spread;
    s->best[at] = p.best;
    if (s->total) {
        float total = 0.0f, kept = 0.0f;
        sum_kept(job, row, t->token, z, t->n, &total, &kept);
        s->total[at] = total;
        s->kept[at] = kept;
    }
}

CUDA_KERNEL(napier_linear_tiles_bf16, napier_linear_job, NAPIER_MMA_THREADS) {
    CUDA_SHARED(unsigned char, shared);
    const napier_linear_tile t = napier_linear_logits(false, &job, shared);
    tile_row(&job, &t);
}

CUDA_KERNEL(napier_linear_tiles_f16, napier_linear_job, NAPIER_MMA_THREADS) {
    CUDA_SHARED(unsigned char, shared);
    const napier_linear_tile t = napier_linear_logits(true, &job, shared);
    tile_row(&job, &t);
}

/* ---- The slots of a row ------------------------------------------------------------------------------------------ */

/* The sums of some slots of a row, and finally of all. */
typedef struct row_sum {
    float max;
    bool nan;
    int64_t best;
    double count, rest, spread, total, kept; /* rest and spread in units of 2^E, where E is the exponent of exp(max) */
} row_sum;

static_assert(sizeof(row_sum) <= NAPIER_LINEAR_FINISH_BYTES, "shared memory of napier_linear_finish");

typedef struct range {
    int64_t begin, end;
} range;

CUDA_INLINE range part_of(int64_t tiles) {
    const int64_t part = threadIdx.x / CUDA_WARP,
                  each = (tiles + NAPIER_LINEAR_FINISH_PARTS - 1) / NAPIER_LINEAR_FINISH_PARTS;
    const int64_t begin = part * each, end = begin + each;
    const range r = {begin, end < tiles ? end : tiles};
    return r;
}

CUDA_INLINE void look_at_slots(const napier_linear_slots *s, int64_t row, range tiles, row_sum *sum) {
    for (int64_t t = tiles.begin; t < tiles.end; t++) {
        const float max = s->max[t * s->step + row];
        sum->nan = sum->nan || max != max;
        if (max > sum->max) {
            sum->max = max;
            sum->best = t * NAPIER_LINEAR_TILE + s->best[t * s->step + row];
        }
    }
}

/* 2^k for k <= 0; 0 if it is too small to count. */
CUDA_INLINE double power_down(int64_t k) { return k < -1000 ? 0.0 : napier_f64_power_of_two((int)k); }

/* sum->max must be the row's maximum, finite and not huge. */
CUDA_INLINE void add_slot(const napier_linear_slots *s, int64_t at, int64_t exponent, row_sum *sum) {
    const float max = s->max[at];
    if (max == -INFINITY || napier_is_huge(max)) {
        return;
    }
    const napier_exp_parts parts = napier_exp_parts_for(max, max);
    const double rest = (double)s->rest[at] * 0x1p-64, count = (double)s->count[at];
    const double terms = count * (double)parts.p + rest, down = (double)sum->max - (double)max;
    const double power = power_down(parts.n - exponent);
    const bool same = max == sum->max;
    sum->count += same ? count : 0.0;
    sum->rest += same ? rest : terms * power;
    sum->spread += ((double)s->spread[at] * 0x1p-64 + down * terms) * power;
}

CUDA_INLINE void add_slots(const napier_linear_slots *s, int64_t row, range tiles, row_sum *sum) {
    const bool huge = napier_is_huge(sum->max);
    const int64_t exponent = huge ? 0 : napier_exp_parts_for(sum->max, sum->max).n;
    for (int64_t t = tiles.begin; t < tiles.end; t++) {
        const int64_t at = t * s->step + row;
        if (huge) {
            sum->count += s->max[at] == sum->max ? (double)s->count[at] : 0.0;
        } else {
            add_slot(s, at, exponent, sum);
        }
    }
}

CUDA_INLINE void add_totals(const napier_linear_slots *s, int64_t row, range tiles, row_sum *sum) {
    for (int64_t t = tiles.begin; t < tiles.end && s->total; t++) {
        sum->total += (double)s->total[t * s->step + row];
        sum->kept += (double)s->kept[t * s->step + row];
    }
}

/* Combines the parts of a row, one from each warp, in the order of the tiles. */
CUDA_INLINE void fold_looks(const row_sum *parts, row_sum *sum) {
    for (int i = 0; i < NAPIER_LINEAR_FINISH_PARTS; i++) {
        const row_sum *const part = &parts[i * CUDA_WARP + (int)threadIdx.x % CUDA_WARP];
        sum->nan = sum->nan || part->nan;
        if (part->max > sum->max) {
            sum->max = part->max;
            sum->best = part->best;
        }
    }
}

CUDA_INLINE void fold_sums(const row_sum *parts, row_sum *sum) {
    for (int i = 0; i < NAPIER_LINEAR_FINISH_PARTS; i++) {
        const row_sum *const part = &parts[i * CUDA_WARP + (int)threadIdx.x % CUDA_WARP];
        sum->count += part->count;
        sum->rest += part->rest;
        sum->spread += part->spread;
        sum->total += part->total;
        sum->kept += part->kept;
    }
}

/* ---- Results ----------------------------------------------------------------------------------------------------- */

typedef struct row_final {
    napier_final row;
    float entropy;
} row_final;

CUDA_INLINE row_final final_of(const row_sum *sum) {
    row_final f = {{.kind = NAPIER_ROW_FINITE, .max = sum->max + 0.0f, .factor = 1.0f}, vf_canonical_nan()};
    if (sum->nan) {
        f.row.kind = NAPIER_ROW_NAN;
        f.row.lse = vf_canonical_nan();
    } else if (fabsf(sum->max) == INFINITY) {
        f.row.kind = sum->max > 0.0f ? NAPIER_ROW_PINF : NAPIER_ROW_MASKED;
        f.row.lse = sum->max;
    } else {
        const bool huge = napier_is_huge(sum->max);
        const float p = huge ? 1.0f : napier_exp_parts_for(sum->max, sum->max).p;
        napier_final_outputs(&f.row, sum->count, p, sum->rest);
        const double log_sum = napier_log1p((sum->count - 1.0) + sum->rest / (double)p);
        f.entropy = (float)(log_sum + sum->spread * (1.0 / (sum->count * (double)p + sum->rest)));
    }
    return f;
}

CUDA_INLINE void put_row(napier_vector v, int64_t row, float x) {
    if (v.data) {
        napier_store_float(v.data, v.dtype, row * v.stride, x);
    }
}

CUDA_INLINE float logprob_of(const row_final *f, float z) {
    return f->row.kind == NAPIER_ROW_FINITE ? napier_log_softmax_of(&f->row, z) : vf_canonical_nan();
}

/* (1 - s) (-logprob) + s (lse - mean z) + z_loss lse^2. */
CUDA_INLINE float loss_of(const napier_linear_job *job, const row_sum *sum, const row_final *f, float logprob) {
    const double s = job->label_smoothing, lse = (double)f->row.lse;
    double loss = (1.0 - s) * -(double)logprob;
    if (s > 0.0) {
        loss += s * (lse - sum->total / sum->kept);
    }
    if (job->z_loss > 0.0) {
        loss += job->z_loss * (lse * lse);
    }
    return (float)loss;
}

/* The z of chosen id k. *ignored: the id is ignored. An invalid id gives NaN and is reported. */
CUDA_INLINE float chosen_z(const napier_linear_job *job, int64_t row, int64_t k, bool *ignored) {
    const int64_t at = (job->first + row) * job->per_row + k, id = napier_linear_id(&job->ids, at);
    *ignored = id == job->ignore;
    if (*ignored) {
        return 0.0f;
    }
    if (id < 0 || id >= job->cols) {
        napier_cuda_note_fault(job->faults, NAPIER_FAULT_IDS, at);
        return vf_canonical_nan();
    }
    return job->chosen[row * job->per_row + k];
}

CUDA_INLINE void write_row(const napier_linear_job *job, int64_t row, const row_sum *sum, const row_final *f) {
    const int64_t to = job->first + row;
    put_row(job->lse, to, f->row.lse);
    put_row(job->entropy, to, f->entropy);
    if (job->argmax) {
        job->argmax[to] = f->row.kind == NAPIER_ROW_NAN ? -1 : sum->best;
    }
    for (int64_t k = 0; k < job->per_row; k++) {
        bool ignored;
        const float z = chosen_z(job, row, k, &ignored);
        const float logprob = ignored ? 0.0f : z != z ? z : logprob_of(f, z);
        if (job->logprobs.data) {
            const napier_matrix *const m = &job->logprobs;
            napier_store_float(m->data, m->dtype, to * m->row_stride + k * m->col_stride, logprob);
        }
        put_row(job->loss, to, ignored ? 0.0f : loss_of(job, sum, f, logprob));
    }
}

/* ---- The slope of a gradient ------------------------------------------------------------------------------------- */

CUDA_INLINE double gradient_at(napier_const_vector v, int64_t row) {
    return v.data ? (double)napier_load_float(v.data, v.dtype, row * v.stride) : 0.0;
}
CUDA_INLINE double gradient_of_logprob(const napier_const_matrix *m, int64_t row, int64_t k) {
    return m->data ? (double)napier_load_float(m->data, m->dtype, row * m->row_stride + k * m->col_stride) : 0.0;
}

/* As napier_token_slope_of. */
CUDA_INLINE void write_slope(const napier_linear_job *job, int64_t row, const row_sum *sum, const row_final *f) {
    const int64_t to = job->first + row;
    const double s = job->label_smoothing, t = (double)job->rules.temperature;
    const double g_lse = gradient_at(job->grad_lse, to), g_entropy = gradient_at(job->grad_entropy, to);
    double g_loss = gradient_at(job->grad_loss, to), base = g_lse;
    bool zero = g_lse == 0.0 && g_entropy == 0.0, nan = false;
    for (int64_t k = 0; k < job->per_row; k++) {
        bool ignored;
        const float z = chosen_z(job, row, k, &ignored);
        const double g = ignored ? 0.0 : gradient_of_logprob(&job->grad_logprobs, to, k);
        g_loss = ignored ? 0.0 : g_loss;
        zero = zero && g == 0.0;
        nan = nan || z != z;
        base -= g;
        const float own = ignored ? 0.0f : (float)((g - (1.0 - s) * g_loss) / t);
        nan = nan || own != own;
        job->own[to * job->per_row + k] = own;
    }
    zero = zero && g_loss == 0.0;
    base += g_loss * (1.0 + 2.0 * job->z_loss * (double)f->row.lse) - g_entropy * (double)f->entropy;
    const double constant = g_loss != 0.0 && s > 0.0 ? -g_loss * s / sum->kept : 0.0;
    const napier_linear_slope slope = {
        f->row.max,         f->row.log_sum, (float)(base / t), (float)(g_entropy / t), (float)(constant / t),
        NAPIER_SLOPE_FINITE};
    const bool finite = fabsf(slope.base) < INFINITY && fabsf(slope.entropy) < INFINITY &&
                        fabsf(slope.constant) < INFINITY && f->row.kind == NAPIER_ROW_FINITE;
    job->slopes[to] = slope;
    job->slopes[to].kind = zero ? NAPIER_SLOPE_ZERO : nan || !finite ? NAPIER_SLOPE_NAN : NAPIER_SLOPE_FINITE;
}

/* ---- The kernel -------------------------------------------------------------------------------------------------- */

CUDA_INLINE row_sum no_sum(float max) {
    const row_sum s = {max, false, -1, 0.0, 0.0, 0.0, 0.0, 0.0};
    return s;
}

CUDA_KERNEL(napier_linear_finish, napier_linear_job, CUDA_WARP *NAPIER_LINEAR_FINISH_PARTS) {
    CUDA_SHARED(row_sum, parts);
    const int64_t row = (int64_t)blockIdx.x * NAPIER_LINEAR_FINISH_ROWS + threadIdx.x % CUDA_WARP;
    const bool there = row < job.rows;
    const range tiles = part_of(there ? job.slots.tiles : 0);
    row_sum sum = no_sum(-INFINITY), part = no_sum(-INFINITY);
    look_at_slots(&job.slots, row, tiles, &part);
    parts[threadIdx.x] = part;
    __syncthreads();
    fold_looks(parts, &sum);
    __syncthreads();
    part = no_sum(sum.max);
    if (!sum.nan && fabsf(sum.max) < INFINITY) {
        add_slots(&job.slots, row, tiles, &part);
        add_totals(&job.slots, row, tiles, &part);
    }
    parts[threadIdx.x] = part;
    __syncthreads();
    if (threadIdx.x < CUDA_WARP && there) {
        fold_sums(parts, &sum);
        const row_final f = final_of(&sum);
        if (job.slopes) {
            write_slope(&job, row, &sum, &f);
        } else {
            write_row(&job, row, &sum, &f);
        }
    }
}
