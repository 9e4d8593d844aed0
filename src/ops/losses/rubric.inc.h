/* ops/losses/rubric.inc.h - sums of log-probabilities, weighted by the rubric's values for their tokens. Compiled once
 * per instruction set. */
#ifndef NAPIER_OPS_LOSSES_RUBRIC_INC_H
#define NAPIER_OPS_LOSSES_RUBRIC_INC_H

#include "ops/losses/rubric_kernels.h"
#include "ops/tokens/responses.inc.h"

/* The ids of a tile as 32 bits, or NULL if the rubric has too many columns. `first` is the index of the first one. */
NAPIER_KERNEL const int32_t *napier_rubric_ids(const napier_rubric_job *job, int64_t first, int n, int32_t *room) {
    if (job->rubric.cols > INT32_MAX) {
        return NULL;
    }
    if (job->ids.type == NAPIER_I32) {
        return (const int32_t *)job->ids.data + first;
    }
    const int64_t *id = (const int64_t *)job->ids.data + first;
    for (int i = 0; i < n; i++) {
        room[i] = (int32_t)id[i];
    }
    return room;
}

NAPIER_KERNEL int64_t napier_rubric_id(const napier_rubric_job *job, int64_t t) {
    return job->ids.type == NAPIER_I32 ? ((const int32_t *)job->ids.data)[t] : ((const int64_t *)job->ids.data)[t];
}

/* rubric[c][id_t] for the tile's tokens, as floats. ids: as above, or NULL. */
NAPIER_KERNEL void napier_rubric_look(const napier_rubric_job *job, int64_t c, int64_t first, int n, const int32_t *ids,
                                      float *y) {
    const napier_const_matrix m = job->rubric;
    const char *row = (const char *)napier_at(m.data, m.dtype, c * m.row_stride);
    int i = 0;
    if (m.dtype == NAPIER_F32 && m.col_stride == 1 && ids) {
        for (; i + 16 <= n; i += 16) {
            vf_store(y + i, vf_gather((const float *)(const void *)row, vi_load(ids + i)));
        }
    }
    if (m.dtype == NAPIER_F32) {
        for (; i < n; i++) {
            y[i] = ((const float *)(const void *)row)[napier_rubric_id(job, first + i) * m.col_stride];
        }
        return;
    }
    for (; i < n; i += 16) {
        const int part = n - i < 16 ? n - i : 16;
        uint16_t lane[16] = {0};
        for (int j = 0; j < part; j++) {
            lane[j] = ((const uint16_t *)(const void *)row)[napier_rubric_id(job, first + i + j) * m.col_stride];
        }
        vf_store_part(y + i, part, napier_load16(lane, m.dtype));
    }
}

static void napier_rubric_tile(const napier_rubric_job *job, int64_t first, int n, float *sums) {
    float room[NAPIER_TILE], marks[NAPIER_TILE];
    int32_t id_room[NAPIER_TILE];
    const float *logprobs = napier_tokens(job->logprobs, first, n, room);
    const int32_t *ids = napier_rubric_ids(job, first, n, id_room);
    for (int64_t c = 0; c < job->rubric.rows; c++) {
        napier_rubric_look(job, c, first, n, ids, marks);
        sums[c] = napier_dot_tile(marks, logprobs, n); /* a mark of 0 makes any log-probability 0 */
    }
}

static void napier_rubric_tile_gradient(const napier_rubric_job *job, int64_t first, int n, const float *factor) {
    float room[NAPIER_TILE], marks[NAPIER_TILE], sum[NAPIER_TILE] = {0};
    int32_t id_room[NAPIER_TILE];
    const int32_t *ids = napier_rubric_ids(job, first, n, id_room);
    for (int64_t c = 0; c < job->rubric.rows; c++) {
        napier_rubric_look(job, c, first, n, ids, marks);
        const vf f = vf_set(factor[c]);
        for (int i = 0; i < n; i += 16) {
            const vf m = napier_sixteen_tokens(marks, i, n, 0.0f);
            vf_store(sum + i, vf_fma(f, m, vf_load(sum + i)));
        }
    }
    float *grad = napier_tokens_out(job->grad_logprobs, first, room);
    for (int i = 0; i < n; i += 16) {
        napier_sixteen_results(grad, i, n, vf_load(sum + i));
    }
    napier_tokens_put(job->grad_logprobs, first, n, grad);
}

#endif
