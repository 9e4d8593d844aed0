/* ops/tokens/gpu/token_top.cu - the top k of a row, with one block per row. It finds the position of number k among all
 * (z, column) digit by digit without sorting, collects everything before it, and sorts only that.
 *
 * The order is that of rank: larger z first, and the lower column first if equal. u, the complement of napier_rising,
 * increases as z decreases. */
#define NAPIER_LANES_CUDA
#include "core/gpu/kernel.h"
/* after the language */
#include "ops/tokens/gpu/token_cuda.h"

/* The position of an element in the order. */
typedef struct napier_cuda_top_place {
    uint32_t u;
    int64_t column;
} napier_cuda_top_place;

CUDA_INLINE bool napier_cuda_top_before(napier_cuda_top_place a, napier_cuda_top_place b) {
    return a.u < b.u || (a.u == b.u && a.column < b.column);
}

/* -inf is never in the top k. */
CUDA_INLINE bool napier_cuda_top_at(const napier_cuda_token_job *job, int64_t row, int64_t column,
                                    napier_cuda_top_place *p) {
    const float z = cuda_token_z(job, row, column);
    p->u = ~napier_rising(z);
    p->column = column;
    return z > -INFINITY;
}

/* ---- A digit ----------------------------------------------------------------------------------------------------- */

/* Counts the next digit of all elements that share the digits found so far: of u (32 bits), and when all of u is known,
 * of the column. */
CUDA_INLINE void napier_cuda_top_count(const napier_cuda_token_job *job, int64_t row, napier_cuda_top_place found,
                                       bool of_column, int shift, napier_cuda_top_room *room) {
    const int above = shift + NAPIER_KEY_DIGIT;
    for (int d = (int)threadIdx.x; d < NAPIER_KEY_DIGITS; d += (int)blockDim.x) {
        room->counts[d] = 0;
    }
    __syncthreads();
    for (int64_t j = threadIdx.x; j < job->x.cols; j += blockDim.x) {
        napier_cuda_top_place p;
        if (!napier_cuda_top_at(job, row, j, &p)) {
            continue;
        }
        const uint64_t value = of_column ? (uint64_t)j : p.u, prefix = of_column ? (uint64_t)found.column : found.u;
        if (value >> above == prefix >> above && (!of_column || p.u == found.u)) {
            cuda_atomic_add_i32(&room->counts[value >> shift & (NAPIER_KEY_DIGITS - 1)], 1);
        }
    }
    __syncthreads();
}

/* The digit of element number `rank`. *before: number of elements with lower digits. -1 if there are fewer elements. */
CUDA_INLINE int napier_cuda_top_choose(int64_t rank, int64_t *before, napier_cuda_top_room *room) {
    enum { EACH = NAPIER_KEY_DIGITS / NAPIER_TOP_THREADS };
    const int first = (int)threadIdx.x * EACH;
    int32_t mine = 0;
    int64_t earlier = *before;
    for (int d = first; d < first + EACH; d++) {
        mine += room->counts[d];
    }
    room->partial[threadIdx.x] = mine;
    if (threadIdx.x == 0) {
        room->digit = -1;
    }
    __syncthreads();
    for (int i = 0; i < (int)threadIdx.x; i++) {
        earlier += room->partial[i];
    }
    if (earlier <= rank && rank < earlier + mine) { /* one thread */
        int d = first;
        for (; earlier + room->counts[d] <= rank; d++) {
            earlier += room->counts[d];
        }
        room->digit = d;
        room->before = earlier;
    }
    __syncthreads();
    *before = room->digit < 0 ? *before : room->before;
    const int digit = room->digit;
    __syncthreads();
    return digit;
}

/* The last selected element: number k - 1, or the last of all if there are fewer. */
CUDA_INLINE napier_cuda_top_place napier_cuda_top_last(const napier_cuda_token_job *job, int64_t row, int64_t k,
                                                       napier_cuda_top_room *room) {
    napier_cuda_top_place found = {0, 0};
    const napier_cuda_top_place all = {UINT32_MAX, INT64_MAX};
    int64_t before = 0;
    for (int shift = 2 * NAPIER_KEY_DIGIT; shift >= 0; shift -= NAPIER_KEY_DIGIT) {
        napier_cuda_top_count(job, row, found, false, shift, room);
        const int digit = napier_cuda_top_choose(k - 1, &before, room);
        if (digit < 0) {
            return all;
        }
        found.u |= (uint32_t)digit << shift;
    }
    for (int shift = NAPIER_TOP_COLUMN_BITS - NAPIER_KEY_DIGIT; shift >= 0; shift -= NAPIER_KEY_DIGIT) {
        if ((job->x.cols - 1) >> shift == 0) {
            continue; /* all digits from here up are 0 */
        }
        napier_cuda_top_count(job, row, found, true, shift, room);
        found.column |= (int64_t)napier_cuda_top_choose(k - 1, &before, room) << shift;
    }
    return found;
}

/* ---- The list ---------------------------------------------------------------------------------------------------- */

CUDA_INLINE int napier_cuda_top_collect(const napier_cuda_token_job *job, int64_t row, napier_cuda_top_place last,
                                        napier_cuda_top_room *room) {
    if (threadIdx.x == 0) {
        room->used = 0;
    }
    __syncthreads();
    for (int64_t j = threadIdx.x; j < job->x.cols; j += blockDim.x) {
        napier_cuda_top_place p;
        if (napier_cuda_top_at(job, row, j, &p) && !napier_cuda_top_before(last, p)) {
            const int32_t at = cuda_atomic_add_i32(&room->used, 1);
            room->u[at] = p.u;
            room->column[at] = p.column;
        }
    }
    __syncthreads();
    return room->used;
}

/* A bitonic sort of `size` entries, a power of two. Entries from `used` on sort to the end. */
CUDA_INLINE void napier_cuda_top_sort(int used, int size, napier_cuda_top_room *room) {
    for (int i = used + (int)threadIdx.x; i < size; i += (int)blockDim.x) {
        room->u[i] = UINT32_MAX;
        room->column[i] = INT64_MAX;
    }
    __syncthreads();
    for (int run = 2; run <= size; run *= 2) {
        for (int apart = run / 2; apart > 0; apart /= 2) {
            for (int i = (int)threadIdx.x; i < size; i += (int)blockDim.x) {
                const int other = i ^ apart;
                const napier_cuda_top_place a = {room->u[i], room->column[i]},
                                            b = {room->u[other], room->column[other]};
                if (other > i && napier_cuda_top_before(b, a) == ((i & run) == 0) &&
                    (a.u != b.u || a.column != b.column)) {
                    room->u[i] = b.u;
                    room->column[i] = b.column;
                    room->u[other] = a.u;
                    room->column[other] = a.column;
                }
            }
            __syncthreads();
        }
    }
}

CUDA_INLINE void napier_cuda_top_write(const napier_cuda_token_job *job, int64_t row, int used,
                                       const napier_cuda_top_room *room) {
    const napier_token_results *const r = &job->call.results;
    const napier_matrix m = r->top_logprobs;
    for (int64_t i = threadIdx.x; i < r->top_k; i += blockDim.x) {
        const bool there = i < used;
        if (r->top_ids != NULL) {
            r->top_ids[row * r->top_k + i] = there ? room->column[i] : -1;
        }
        if (m.data != NULL) {
            const float z = there ? cuda_token_z(job, row, room->column[i]) : -INFINITY;
            cuda_put(m.data, m.dtype, row * m.row_stride + i * m.col_stride, napier_token_logprob(&room->row.final, z));
        }
    }
}

CUDA_KERNEL(napier_token_rows_top, napier_cuda_token_job, NAPIER_TOP_THREADS) {
    CUDA_SHARED(napier_cuda_top_room, room);
    const int64_t k = job.call.wants.top_k;
    int size = 1;
    while (size < k) {
        size *= 2;
    }
    for (int64_t row = blockIdx.x; row < job.call.rows; row += gridDim.x) {
        if (threadIdx.x < CUDA_WARP) {
            cuda_token_finish(&job, row, &room->row);
        }
        __syncthreads();
        int used = 0;
        if (room->row.final.row.kind != NAPIER_ROW_NAN) {
            const napier_cuda_top_place last = napier_cuda_top_last(&job, row, k, room);
            used = napier_cuda_top_collect(&job, row, last, room);
            napier_cuda_top_sort(used, size, room);
        }
        napier_cuda_top_write(&job, row, used, room);
        __syncthreads();
    }
}
