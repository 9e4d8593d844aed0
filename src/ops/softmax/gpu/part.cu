/* ops/softmax/gpu/part.cu - the portable byte form of a state, written and read on a device. A block takes a row. Sums of
 * whole tiles come from the kernels of softmax.cu and softmax_f64.cu, and go there; here they change their form. */
#define NAPIER_LANES_CUDA
#include "ops/softmax/gpu/part_cuda.h"
#include "ops/softmax/gpu/tile.cuh"

enum { FLAGS_WORD = NAPIER_STATE_FLAGS_AT / 4, NAN_FLAG = 1, PINF_FLAG = 2 };

CUDA_INLINE int part_digits(const napier_part_cuda_job *job) {
    return job->compute == NAPIER_F64 ? (int)NAPIER_F64_DIGITS : (int)NAPIER_DIGITS;
}
CUDA_INLINE int64_t part_element_bytes(const napier_part_cuda_job *job) { return job->compute == NAPIER_F64 ? 8 : 4; }
CUDA_INLINE char *part_elements(const napier_part_cuda_job *job, char *row) {
    return row + NAPIER_STATE_FIELDS + 8 * (2 + part_digits(job));
}

/* ---- Save -------------------------------------------------------------------------------------------------------- */

/* Word i of the sum: maximum, count, top, digits. What a sum holds besides a NaN means nothing; it is that of no element. */
CUDA_INLINE uint64_t part_word_f32(const napier_sum *s, int i) {
    const float max = s->nan ? -INFINITY : s->max;
    return i == 0   ? napier_double_bits((double)max)
           : s->nan ? 0
           : i == 1 ? s->count
           : i == 2 ? (uint64_t)s->top
                    : s->digit[i - 3];
}
CUDA_INLINE uint64_t part_word_f64(const napier_f64_sum *s, int i) {
    return i == 0   ? napier_double_bits(s->nan ? -(double)INFINITY : s->max)
           : s->nan ? 0
           : i == 1 ? s->count
           : i == 2 ? (uint64_t)s->top
                    : s->digit[i - 3];
}

CUDA_INLINE uint32_t part_flags(bool nan, bool pinf) { return nan ? NAN_FLAG : pinf ? PINF_FLAG : 0; }

CUDA_INLINE void part_put_fields(const napier_part_cuda_job *job, int64_t row, char *at) {
    const napier_sum *const narrow = (const napier_sum *)job->sums + row;
    const napier_f64_sum *const wide = (const napier_f64_sum *)job->sums + row;
    const bool is_wide = job->compute == NAPIER_F64;
    const int t = (int)threadIdx.x;
    if (t < NAPIER_PART_WORDS) {
        const uint32_t flags = is_wide ? part_flags(wide->nan, wide->pinf) : part_flags(narrow->nan, narrow->pinf);
        ((uint32_t *)at)[t] = t == FLAGS_WORD ? flags : job->header[t];
    }
    if (t < 3 + part_digits(job)) {
        ((uint64_t *)(at + NAPIER_STATE_HEADER))[t] = is_wide ? part_word_f64(wide, t) : part_word_f32(narrow, t);
    }
}

/* Element i of those that are stored: the head, then the tail. */
CUDA_INLINE void part_put_element(const napier_part_cuda_job *job, int64_t row, int64_t i, char *elements) {
    const int64_t column = i < job->head ? i : job->x.cols - job->tail + (i - job->head);
    if (job->compute == NAPIER_F64) {
        const double x =
            napier_f64_load(job->x.data, job->x.dtype, row * job->x.row_stride + column * job->x.col_stride);
        const double z = job->temperature != 1.0 ? x / job->temperature : x;
        ((double *)elements)[i] = z == z ? z : napier_f64_nan();
        return;
    }
    const napier_line line = napier_line_in(&job->x, false, row);
    const float temperature = (float)job->temperature, x = napier_element(&line, column);
    const float z = temperature != 1.0f ? x / temperature : x;
    ((float *)elements)[i] = z == z ? z : napier_nan();
}

/* napier_checksum of `words` words of 32 bits. */
CUDA_INLINE uint64_t part_checksum(const uint32_t *at, int64_t words) {
    uint64_t hash = 14695981039346656037ull;
    for (int64_t i = 0; i < words; i++) {
        uint32_t word = at[i];
        NAPIER_UNROLL
        for (int byte = 0; byte < 4; byte++, word >>= 8) {
            hash = (hash ^ (word & 0xffu)) * 1099511628211ull;
        }
    }
    return hash;
}

CUDA_KERNEL(napier_part_save, napier_part_cuda_job, NAPIER_PART_THREADS) {
    for (int64_t row = blockIdx.x; row < job.rows; row += gridDim.x) {
        char *const at = job.bytes + row * job.stride, *const elements = part_elements(&job, at);
        const int64_t stored = job.head + job.tail;
        part_put_fields(&job, row, at);
        for (int64_t i = threadIdx.x; i < stored; i += blockDim.x) {
            part_put_element(&job, row, i, elements);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            uint32_t *const end = (uint32_t *)(elements + stored * part_element_bytes(&job));
            const uint64_t hash = part_checksum((const uint32_t *)at, end - (const uint32_t *)at);
            end[0] = (uint32_t)hash;
            end[1] = (uint32_t)(hash >> 32);
        }
        __syncthreads();
    }
}

/* ---- Load -------------------------------------------------------------------------------------------------------- */

/* Is this the part that the arguments name? The whole block gets the answer. */
CUDA_INLINE bool part_is_ours(const napier_part_cuda_job *job, const char *at, int32_t *room) {
    const int t = (int)threadIdx.x;
    if (t < CUDA_WARP) {
        const uint32_t word = t < NAPIER_PART_WORDS ? ((const uint32_t *)at)[t] : 0;
        const bool same =
            t >= NAPIER_PART_WORDS || (t == FLAGS_WORD ? word <= (NAN_FLAG | PINF_FLAG) : word == job->header[t]);
        const uint32_t others = cuda_ballot(!same);
        if (t == 0) {
            *room = others == 0;
        }
    }
    __syncthreads();
    const bool ours = *room != 0;
    __syncthreads();
    return ours;
}

CUDA_INLINE void part_take_sum(const napier_part_cuda_job *job, int64_t row, const char *at, bool ours) {
    const uint64_t *const words = (const uint64_t *)(at + NAPIER_STATE_HEADER);
    const uint32_t flags = ours ? ((const uint32_t *)at)[FLAGS_WORD] : NAN_FLAG;
    const bool nan = (flags & NAN_FLAG) != 0, pinf = (flags & PINF_FLAG) != 0;
    const double max = nan ? -(double)INFINITY : napier_double_of_bits(words[0]);
    const int t = (int)threadIdx.x;
    if (job->compute == NAPIER_F64) {
        napier_f64_sum *const s = (napier_f64_sum *)job->sums + row;
        if (t < NAPIER_F64_DIGITS) {
            s->digit[t] = nan ? 0 : words[3 + t];
        }
        if (t == 0) {
            s->max = max;
            s->nan = nan || max != max;
            s->pinf = pinf;
            s->count = nan ? 0 : words[1];
            s->top = nan ? 0 : (int64_t)words[2];
        }
        return;
    }
    napier_sum *const s = (napier_sum *)job->sums + row;
    if (t < NAPIER_DIGITS) {
        s->digit[t] = nan ? 0 : words[3 + t];
    }
    if (t == 0) {
        s->max = (float)max;
        s->nan = nan || max != max;
        s->pinf = pinf;
        s->count = nan ? 0 : words[1];
        s->top = nan ? 0 : (int64_t)words[2];
    }
}

CUDA_KERNEL(napier_part_load, napier_part_cuda_job, NAPIER_PART_THREADS) {
    CUDA_SHARED(int32_t, room);
    for (int64_t row = blockIdx.x; row < job.rows; row += gridDim.x) {
        char *const at = job.bytes + row * job.stride;
        const char *const elements = part_elements(&job, at);
        const bool ours = part_is_ours(&job, at, room);
        if (!ours && threadIdx.x == 0) {
            napier_cuda_note_fault(job.faults, NAPIER_FAULT_PARTS, row);
        }
        part_take_sum(&job, row, at, ours);
        for (int64_t i = threadIdx.x; i < job.head + job.tail; i += blockDim.x) {
            const int64_t to = row * job.z_stride + (i < job.head ? job.head_at + i : job.tail_at + i - job.head);
            if (job.compute == NAPIER_F64) {
                ((double *)job.z)[to] = ((const double *)elements)[i];
            } else {
                ((float *)job.z)[to] = ((const float *)elements)[i];
            }
        }
    }
}
