/* ops/sample/gpu/sample.cu - draws of ids on a GPU, with the CPU's bits. A block works on a row: thread t has the elements t,
 * t + 256, ..., which are also lane t of a tile's sum (ops/softmax/sum.h). What is left of the row after penalties,
 * temperature and keep is kept in the workspace. Filters find their last element by bisection over the bits of values, each
 * step one count over the row (ops/sample/draw.h has the definition). It aims at correctness first. */
#define NAPIER_LANES_CUDA
#include "core/gpu/kernel.h"
/* after the language */
#include "ops/sample/gpu/sample_cuda.h"

enum { THREADS = NAPIER_SAMPLE_THREADS };

/* A row in work; the same in all threads. */
typedef struct cuda_drawing {
    const napier_cuda_sample_job *job;
    napier_cuda_sample_room *room;
    int64_t row, cols;
    float *z;
    napier_cuda_sample_slot *slots;
    float max;
    napier_sample_cut cut;
} cuda_drawing;

/* ---- Over the threads of a block ---------------------------------------------------------------------------------- */

CUDA_INLINE uint64_t block_add(const cuda_drawing *d, uint64_t mine) {
    uint64_t *const lane = d->room->integers;
    const int t = (int)threadIdx.x;
    lane[t] = mine;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (t < half) {
            lane[t] += lane[t + half];
        }
        __syncthreads();
    }
    const uint64_t all = lane[0];
    __syncthreads();
    return all;
}

/* The sum by halves, or the maximum, which is NaN if one is. */
CUDA_INLINE float block_fold(const cuda_drawing *d, float mine, bool max) {
    float *const lane = d->room->floats;
    const int t = (int)threadIdx.x;
    lane[t] = mine;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (t < half) {
            const float a = lane[t], b = lane[t + half];
            lane[t] = !max ? a + b : a != a || a > b ? a : b;
        }
        __syncthreads();
    }
    const float all = lane[0];
    __syncthreads();
    return all;
}

/* ---- Tiles: napier_tile_by_definition, a thread for each lane ------------------------------------------------------ */

/* An element after the filters. */
CUDA_INLINE float left_of(const cuda_drawing *d, int64_t i) {
    const float z = d->z[i];
    return z < d->cut.least || (z == d->cut.least && i > d->cut.last) ? -INFINITY : z;
}

CUDA_INLINE void sum_tile(const cuda_drawing *d, int64_t tile) {
    const int64_t begin = tile * NAPIER_TILE, end = begin + NAPIER_TILE < d->cols ? begin + NAPIER_TILE : d->cols;
    float max = -INFINITY, rest = 0.0f;
    uint64_t count = 0;
    for (int64_t i = begin + threadIdx.x; i < end; i += THREADS) {
        const float z = left_of(d, i);
        max = max != max || max > z ? max : z;
    }
    max = block_fold(d, max, true);
    const bool finite = fabsf(max) < NAPIER_HUGE;
    const int64_t exponent = finite ? napier_exp_parts_for(max, max).n : 0;
    for (int64_t i = begin + threadIdx.x; i < end; i += THREADS) {
        const float z = left_of(d, i);
        count += z == max ? 1 : 0;
        if (finite && z < max && napier_within_cutoff(z, max)) {
            rest += napier_term(z, max, exponent);
        }
    }
    count = block_add(d, count);
    rest = block_fold(d, rest, false);
    if (threadIdx.x == 0) {
        const napier_cuda_sample_slot slot = {max, rest, (int32_t)count};
        d->slots[tile] = slot;
    }
}

/* All tiles, and the row's final from them. */
CUDA_INLINE napier_final sum_row(const cuda_drawing *d) {
    for (int64_t t = 0; t < d->job->call.tiles; t++) {
        sum_tile(d, t);
    }
    if (threadIdx.x == 0) {
        napier_sum_init(&d->room->sum);
        for (int64_t t = 0; t < d->job->call.tiles; t++) {
            const napier_cuda_sample_slot *const s = &d->slots[t];
            const bool nan = s->max != s->max;
            const napier_tile_sum tile = {nan ? -INFINITY : s->max, 0.0f, s->rest, s->count, nan};
            napier_sum_add_tile(&d->room->sum, &tile);
        }
        d->room->final = napier_sum_finish(&d->room->sum);
    }
    __syncthreads();
    const napier_final final = d->room->final;
    __syncthreads();
    return final;
}

CUDA_INLINE uint64_t tile_weight(const cuda_drawing *d, int64_t tile) {
    const napier_cuda_sample_slot *const s = &d->slots[tile];
    return s->max == -INFINITY ? 0
                               : napier_sample_tile_weight(s->max, (float)s->count, s->rest, d->max, d->job->call.bits);
}

CUDA_INLINE uint64_t row_weight(const cuda_drawing *d) {
    uint64_t mine = 0;
    for (int64_t t = threadIdx.x; t < d->job->call.tiles; t += THREADS) {
        mine += tile_weight(d, t);
    }
    return block_add(d, mine);
}

/* ---- From logits to what is left before the filters ---------------------------------------------------------------- */

CUDA_INLINE float logit(const cuda_drawing *d, int64_t i) {
    const napier_const_matrix *const x = &d->job->call.logits;
    return cuda_element(x->data, x->dtype, d->row * x->row_stride + i * x->col_stride);
}

/* The ids of a row's prompt or output: data[begin .. begin + size). */
typedef struct cuda_history {
    napier_indices ids;
    int64_t begin, size;
} cuda_history;

/* False, and a fault, if the offsets or an id are bad. */
CUDA_INLINE bool take_history(const cuda_drawing *d, napier_indices ids, napier_indices offsets, cuda_history *h) {
    h->ids = ids;
    h->begin = h->size = 0;
    if (offsets.size == 0) {
        return true;
    }
    const int64_t begin = cuda_index_at(offsets, d->row), end = cuda_index_at(offsets, d->row + 1);
    if (begin < 0 || begin > end || end > ids.size) {
        if (threadIdx.x == 0) {
            napier_cuda_note_fault(d->job->faults, NAPIER_FAULT_OFFSETS, d->row + 1);
        }
        return false;
    }
    uint64_t bad = 0;
    h->begin = begin;
    h->size = end - begin;
    for (int64_t i = begin + threadIdx.x; i < end; i += THREADS) {
        const int64_t id = cuda_index_at(ids, i);
        if (id < 0 || id >= d->cols) {
            napier_cuda_note_fault(d->job->faults, NAPIER_FAULT_IDS, i);
            bad++;
        }
    }
    return block_add(d, bad) == 0;
}

/* How often an id is among the first n. */
CUDA_INLINE uint32_t times_in(const cuda_history *h, int64_t n, int64_t id) {
    uint32_t times = 0;
    for (int64_t i = 0; i < n; i++) {
        times += cuda_index_at(h->ids, h->begin + i) == id ? 1u : 0u;
    }
    return times;
}

/* Each different id once: at its first place in the output, or else in the prompt. */
CUDA_INLINE void penalize(const cuda_drawing *d, const cuda_history *prompt, const cuda_history *output) {
    const napier_sample_call *const c = &d->job->call;
    for (int64_t i = threadIdx.x; i < prompt->size + output->size; i += THREADS) {
        const bool in_output = i < output->size;
        const cuda_history *const h = in_output ? output : prompt;
        const int64_t at = in_output ? i : i - output->size, id = cuda_index_at(h->ids, h->begin + at);
        const uint32_t count = times_in(output, output->size, id);
        if (times_in(h, at, id) == 0 && (in_output || count == 0)) {
            d->z[id] = napier_sample_penalized(d->z[id], c->repetition, c->frequency, c->presence, count);
        }
    }
}

CUDA_INLINE bool is_kept(const cuda_drawing *d, int64_t i) {
    const napier_token_rules *const rules = &d->job->call.rules;
    return rules->keep == NULL || rules->keep[d->row * rules->keep_stride + i] != 0;
}

/* False if the prompt or the output is bad. */
CUDA_INLINE bool make_left(const cuda_drawing *d) {
    const napier_sample_call *const c = &d->job->call;
    cuda_history prompt, output;
    for (int64_t i = threadIdx.x; i < d->cols; i += THREADS) {
        d->z[i] = logit(d, i);
    }
    __syncthreads();
    if (c->penalties) {
        if (!take_history(d, c->options.prompt_ids, c->options.prompt_offsets, &prompt) ||
            !take_history(d, c->options.output_ids, c->options.output_offsets, &output)) {
            return false;
        }
        penalize(d, &prompt, &output);
        __syncthreads();
    }
    for (int64_t i = threadIdx.x; i < d->cols; i += THREADS) {
        d->z[i] = is_kept(d, i) ? d->z[i] / c->plain.temperature : -INFINITY;
    }
    __syncthreads();
    return true;
}

/* ---- Filters ------------------------------------------------------------------------------------------------------- */

/* The elements from a key on: their number, or their weight. */
CUDA_INLINE uint64_t measure(const cuda_drawing *d, uint32_t key, bool weights) {
    uint64_t mine = 0;
    for (int64_t i = threadIdx.x; i < d->cols; i += THREADS) {
        const float z = left_of(d, i);
        if (z > -INFINITY && napier_rising(z) >= key) {
            mine += weights ? napier_sample_weight(napier_sample_term(z, d->max), d->job->call.bits) : 1;
        }
    }
    return block_add(d, mine);
}

/* The shortest beginning that counts at least `goal`; false if there is none. */
CUDA_INLINE bool search(const cuda_drawing *d, uint64_t goal, bool weights, float *least, int64_t *ties) {
    uint32_t key = 0;
    if (measure(d, 0, weights) < goal) {
        return false;
    }
    for (int bit = 31; bit >= 0; bit--) {
        const uint32_t higher = key | 1u << bit;
        key = measure(d, higher, weights) >= goal ? higher : key;
    }
    *least = napier_of_rising(key);
    const uint64_t each = weights ? napier_sample_weight(napier_sample_term(*least, d->max), d->job->call.bits) : 1;
    *ties = napier_sample_ties(goal, measure(d, key + 1, weights), each);
    return true;
}

/* The index of the *ties-th element that equals `least`; the last index if there are not more. */
CUDA_INLINE int64_t place_of(const cuda_drawing *d, float least, int64_t ties) {
    int64_t low = 0, high = d->cols - 1;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        uint64_t mine = 0;
        for (int64_t i = threadIdx.x; i <= middle; i += THREADS) {
            mine += d->z[i] == least ? 1 : 0;
        }
        if (block_add(d, mine) >= (uint64_t)ties) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

/* Returns whether something is cut. Leaves the tiles' sums after top_k in the slots. */
CUDA_INLINE bool filter(cuda_drawing *d) {
    const napier_sample_options *const o = &d->job->call.options;
    float least = -INFINITY;
    int64_t ties = 0;
    if (o->top_k > 0 && o->top_k < d->cols && search(d, (uint64_t)o->top_k, false, &least, &ties)) {
        d->cut.last = place_of(d, least, ties);
        d->cut.least = least;
        sum_row(d);
    }
    if (o->top_p < 1.0 && search(d, napier_sample_goal(row_weight(d), o->top_p), true, &least, &ties)) {
        d->cut.last = place_of(d, least, ties);
        d->cut.least = least;
    }
    if (o->min_p > 0.0) {
        least = napier_sample_min_p_least(d->max, o->min_p);
        d->cut.last = least > d->cut.least ? INT64_MAX : d->cut.last;
        d->cut.least = least > d->cut.least ? least : d->cut.least;
    }
    return d->cut.least > -INFINITY;
}

/* ---- The draw ------------------------------------------------------------------------------------------------------ */

CUDA_INLINE int64_t index_or(napier_indices indices, int64_t row, int64_t other) {
    return indices.size > 0 ? cuda_index_at(indices, row) : other;
}

/* The first thread finds the tile. */
CUDA_INLINE void choose_tile(const cuda_drawing *d, uint64_t target) {
    int64_t tile = 0;
    uint64_t weight = tile_weight(d, 0);
    while (tile < d->job->call.tiles - 1 && target >= weight) {
        target -= weight;
        weight = tile_weight(d, ++tile);
    }
    d->room->tile = tile;
    d->room->rest = target;
    d->room->weight = weight;
}

CUDA_INLINE int64_t choose(const cuda_drawing *d) {
    const napier_sample_options *const o = &d->job->call.options;
    const uint64_t u = napier_sample_number((uint64_t)index_or(o->seeds, d->row, o->seed),
                                            (uint64_t)index_or(o->samples, d->row, d->row),
                                            (uint64_t)index_or(o->positions, d->row, 0));
    const uint64_t whole = row_weight(d);
    if (threadIdx.x == 0) {
        choose_tile(d, napier_sample_part(whole, u));
    }
    __syncthreads();
    const int64_t begin = d->room->tile * NAPIER_TILE;
    const int n = (int)(d->cols - begin < NAPIER_TILE ? d->cols - begin : NAPIER_TILE);
    uint64_t mine = 0;
    for (int i = (int)threadIdx.x; i < n; i += THREADS) {
        const float term = napier_sample_term(left_of(d, begin + i), d->slots[d->room->tile].max);
        d->room->weights[i] = napier_sample_weight(term, NAPIER_SAMPLE_TILE_BITS);
        mine += d->room->weights[i];
    }
    const uint64_t inside = block_add(d, mine);
    if (threadIdx.x == 0) {
        const uint64_t target = napier_sample_inside(d->room->rest, d->room->weight, inside);
        uint64_t before = 0;
        int i = 0;
        while (i < n - 1 && (before += d->room->weights[i]) <= target) {
            i++;
        }
        d->room->place = begin + i;
    }
    __syncthreads();
    return d->room->place;
}

CUDA_INLINE void write(const cuda_drawing *d, int64_t id, float logprob, float plain) {
    const napier_sample_results *const r = &d->job->call.results;
    if (threadIdx.x != 0) {
        return;
    }
    r->ids[d->row] = id;
    if (r->logprobs.data != NULL) {
        cuda_put_token(r->logprobs, d->row, logprob);
    }
    if (r->plain_logprobs.data != NULL) {
        cuda_put_token(r->plain_logprobs, d->row, plain);
    }
}

CUDA_INLINE void refuse(const cuda_drawing *d, bool note) {
    if (note && threadIdx.x == 0) {
        napier_cuda_note_fault(d->job->faults, NAPIER_FAULT_ROWS, d->row);
    }
    write(d, -1, napier_nan(), napier_nan());
}

CUDA_INLINE void draw_row(cuda_drawing *d) {
    const napier_sample_call *const c = &d->job->call;
    for (int64_t i = threadIdx.x; i < d->cols; i += THREADS) {
        d->z[i] = logit(d, i) / c->plain.temperature;
    }
    __syncthreads();
    const napier_final plain = sum_row(d);
    napier_final final = plain;
    if (plain.kind == NAPIER_ROW_FINITE && (c->penalties || c->rules.keep != NULL)) {
        if (!make_left(d)) {
            refuse(d, false);
            return;
        }
        final = sum_row(d);
    }
    if (plain.kind != NAPIER_ROW_FINITE || final.kind != NAPIER_ROW_FINITE) {
        refuse(d, true);
        return;
    }
    d->max = final.max;
    if (c->filters && filter(d)) {
        final = sum_row(d);
    }
    const int64_t id = c->greedy ? place_of(d, d->max, 1) : choose(d);
    const float plain_z = logit(d, id) / c->plain.temperature;
    write(d, id, c->greedy ? 0.0f : napier_log_softmax_of(&final, d->z[id]), napier_log_softmax_of(&plain, plain_z));
    __syncthreads();
}

CUDA_KERNEL(napier_sample_rows, napier_cuda_sample_job, NAPIER_SAMPLE_THREADS) {
    CUDA_SHARED(napier_cuda_sample_room, room);
    for (int64_t row = blockIdx.x; row < job.call.logits.rows; row += gridDim.x) {
        cuda_drawing d = {.job = &job, .room = room, .row = row, .cols = job.call.logits.cols};
        d.z = job.z + row * d.cols;
        d.slots = job.slots + row * job.call.tiles;
        d.cut.least = -INFINITY;
        d.cut.last = INT64_MAX;
        draw_row(&d);
    }
}
