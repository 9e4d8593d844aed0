/* lm/decoder/gpu/decoder.cu - the beginning and the end of a decoder: from tokens to embeddings and positions, and the
 * states as the caller wants them. */
#define NAPIER_LANES_CUDA
#include "core/gpu/kernel.h"
/* after the language */
#include "lm/decoder/gpu/decoder_cuda.h"
#include "ops/tokens/gpu/responses_cuda.h"

/* Whatever an offset is, differences must not overflow. One outside the tokens stays outside. */
CUDA_INLINE int64_t napier_decoder_offset(const napier_decoder_tokens *tokens, int64_t s) {
    const int64_t offset = cuda_index_at(tokens->offsets, s), beyond = tokens->ids.size + 1;
    return offset < 0 ? -1 : offset > beyond ? beyond : offset;
}

/* The offsets as attention reads them. It checks that they rise. */
CUDA_KERNEL(napier_decoder_starts, napier_decoder_tokens, NAPIER_RESPONSE_THREADS) {
    for (int64_t s = cuda_thread(); s <= job.sequences; s += cuda_threads()) {
        const bool one = job.offsets.size == 0;
        const int64_t start = !one ? napier_decoder_offset(&job, s) : s > 0 ? job.ids.size : 0;
        job.starts[s] = start;
        if (!one && s > 0 && start - napier_decoder_offset(&job, s - 1) > job.most) {
            napier_cuda_note_fault(job.faults, NAPIER_FAULT_LENGTHS, s - 1);
        }
    }
}

/* The position of token t in its sequence. With offsets that do not rise, any number. */
CUDA_INLINE int64_t napier_decoder_position(const napier_decoder_tokens *tokens, int64_t t) {
    int64_t low = 0, high = tokens->sequences;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (tokens->starts[middle] <= t) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return t - tokens->starts[low];
}

CUDA_KERNEL(napier_decoder_embed, napier_decoder_embed_job, NAPIER_RESPONSE_THREADS) {
    const napier_const_matrix *const e = &job.embedding;
    for (int64_t t = cuda_warp(); t < job.tokens.ids.size; t += cuda_warps()) {
        const int64_t id = cuda_index_at(job.tokens.ids, t), position = napier_decoder_position(&job.tokens, t);
        const bool known = id >= 0 && id < e->rows, here = position >= 0 && position < job.tokens.most;
        if (cuda_lane() == 0) {
            job.tokens.positions[t] = here ? position : 0;
            if (!known) {
                napier_cuda_note_fault(job.tokens.faults, NAPIER_FAULT_IDS, t);
            }
        }
        for (int64_t i = cuda_lane(); i < e->cols; i += CUDA_WARP) {
            job.x[t * e->cols + i] =
                known && here ? cuda_element(e->data, e->dtype, id * e->cols + i) : vf_canonical_nan();
        }
    }
}

CUDA_KERNEL(napier_decoder_states, napier_decoder_states_job, NAPIER_RESPONSE_THREADS) {
    const int64_t cols = job.states.cols;
    for (int64_t i = cuda_thread(); i < job.states.rows * cols; i += cuda_threads()) {
        cuda_put(job.out.data, job.out.dtype, i / cols * job.out.row_stride + i % cols * job.out.col_stride,
                 cuda_element(job.states.data, job.states.dtype, i));
    }
}
