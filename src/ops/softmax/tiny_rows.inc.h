/* ops/softmax/tiny_rows.inc.h - rows of up to 16 columns, which are computed in the lanes of vectors. Compiled once per instruction
 * set. */
#ifndef NAPIER_OPS_SOFTMAX_TINY_ROWS_INC_H
#define NAPIER_OPS_SOFTMAX_TINY_ROWS_INC_H

#include "ops/softmax/lanes.inc.h"
#include "ops/softmax/short_rows.inc.h"

/* Spreads rows of n floats to places `width` floats apart in 16 vectors. The
 * next row overwrites the tail of each store. */
NAPIER_KERNEL void tiny_spread(const float *x, int n, int width, float *spread) {
    const int rows = 256 / width;
    for (int r = 0; r < rows; r++) {
        const int left = (rows - r) * n;
        vf_store(spread + r * width, left >= 16 ? vf_load(x + r * n) : vf_load_part(x + r * n, left, vf_zero()));
    }
}

/* 256 / width contiguous rows. A transpose of 16 x 16 floats puts element 16 j + k in lane j of vector k: lane j of
 * vectors g width .. g width + width - 1 is row j (16 / width) + g. scratch: NAPIER_NARROW_SCRATCH floats. */
NAPIER_KERNEL void tiny_block(napier_softmax_op op, int width, const napier_softmax_job *job, int64_t first,
                              float *scratch) {
    const int n = tiny_columns_of_width(job, width), rows = 256 / width, groups = 16 / width;
    float *packed = scratch, *spread = scratch + 320;
    const float *x = (const float *)row_in(job, first);
    if (job->x.dtype != NAPIER_F32 || job->temperature != 1.0f) {
        x = napier_look(x, job->x.dtype, 1, job->temperature, rows * n, packed).z;
    }
    if (n != width) {
        tiny_spread(x, n, width, spread);
        x = spread;
    }
    vf v[16];
    NAPIER_UNROLL
    for (int k = 0; k < 16; k++) {
        __builtin_prefetch((const char *)(x + 16 * k) + NAPIER_PREFETCH_BYTES);
        v[k] = vf_load(x + 16 * k);
    }
    vf_transpose(v);
    for (int g = 0; g < groups; g++) {
        const vf lse = tiny_group(op, width, n, job->masked_rows, v + g * width);
        if (op == NAPIER_OP_LOGSUMEXP) {
            vf_store(spread + 16 * g, lse);
        }
    }
    if (op == NAPIER_OP_LOGSUMEXP) {
        for (int g = 0; g < groups; g++) {
            for (int j = 0; j < 16; j++) {
                packed[j * groups + g] = spread[16 * g + j];
            }
        }
        napier_scatter(packed, rows, row_out(job, first), job->y.dtype, job->y.row_stride, false);
        return;
    }
    vf_transpose(v);
    char *y = row_out(job, first);
    const bool run = job->y.col_stride == 1 && job->y.row_stride == n;
    if (run && n == width && job->y.dtype == NAPIER_F32 && (!job->stream || ((uintptr_t)y & 63) == 0)) {
        NAPIER_UNROLL
        for (int k = 0; k < 16; k++) {
            if (job->stream) {
                vf_stream((float *)(void *)y + 16 * k, v[k]);
            } else {
                napier_fetch_to_write(y + 64 * k);
                vf_store((float *)(void *)y + 16 * k, v[k]);
            }
        }
        return;
    }
    NAPIER_UNROLL
    for (int k = 0; k < 16; k++) {
        vf_store(spread + 16 * k, v[k]);
    }
    if (!run) {
        for (int r = 0; r < rows; r++) {
            napier_scatter(spread + r * width, n, row_out(job, first + r), job->y.dtype, job->y.col_stride, false);
        }
        return;
    }
    const float *result = spread;
    if (n != width) {
        for (int r = 0; r < rows; r++) {
            vf_store(packed + r * n, vf_load(spread + r * width));
        }
        result = packed;
    }
    napier_scatter(result, rows * n, y, job->y.dtype, 1, job->stream);
}

NAPIER_KERNEL void tiny_block_of(napier_softmax_op op, const napier_softmax_job *job, int64_t first, float *scratch) {
    switch (tiny_width(job->x.cols)) {
    case 2: tiny_block(op, 2, job, first, scratch); break;
    case 4: tiny_block(op, 4, job, first, scratch); break;
    case 8: tiny_block(op, 8, job, first, scratch); break;
    default: tiny_block(op, 16, job, first, scratch); break;
    }
}

/* Up to 16 rows, which do not fill a block: each is one vector of v, whatever its width, and rows that do not exist are 0. */
NAPIER_KERNEL void tiny_few(napier_softmax_op op, int width, const napier_softmax_job *job, int64_t first, int rows) {
    const int n = tiny_columns_of_width(job, width);
    const vf temperature = vf_set(job->temperature);
    vf v[16];
    for (int r = 0; r < 16; r++) {
        v[r] = r < rows ? napier_load_part(row_in(job, first + r), job->x.dtype, n, vf_zero()) : vf_zero();
        v[r] = job->temperature != 1.0f ? vf_div(v[r], temperature) : v[r];
    }
    vf_transpose(v);
    float out[16];
    vf_store(out, tiny_group(op, width, n, job->masked_rows, v));
    if (op == NAPIER_OP_LOGSUMEXP) {
        napier_scatter(out, rows, row_out(job, first), job->y.dtype, job->y.row_stride, false);
        return;
    }
    vf_transpose(v);
    for (int r = 0; r < rows; r++) {
        if (job->y.col_stride == 1) {
            napier_store_part(row_out(job, first + r), job->y.dtype, n, v[r]);
        } else {
            vf_store(out, v[r]);
            napier_scatter(out, n, row_out(job, first + r), job->y.dtype, job->y.col_stride, false);
        }
    }
}

NAPIER_KERNEL void tiny_few_of(napier_softmax_op op, const napier_softmax_job *job, int64_t first, int rows) {
    switch (tiny_width(job->x.cols)) {
    case 2: tiny_few(op, 2, job, first, rows); break;
    case 4: tiny_few(op, 4, job, first, rows); break;
    case 8: tiny_few(op, 8, job, first, rows); break;
    default: tiny_few(op, 16, job, first, rows); break;
    }
}

/* The fewest rows that are computed 16 at a time; fewer are faster along a vector. In plain C an idle lane takes time. */
static int tiny_least(int width) {
#if defined(NAPIER_LANES_SCALAR)
    return width * 5 / 8;
#else
    return width == 16 ? 3 : 1;
#endif
}

/* Rows of up to 16 contiguous columns: in blocks, if they lie one after the other, and what is left 16 at a time. */
static void tiny_rows(const napier_softmax_job *job, int64_t begin, int64_t end, float *scratch) {
    const int width = tiny_width(job->x.cols);
    int64_t first = begin;
    for (; job->x.row_stride == job->x.cols && first + 256 / width <= end; first += 256 / width) {
        NAPIER_FOR_OP(job->op, tiny_block_of, job, first, scratch);
    }
    for (; first + tiny_least(width) <= end; first += 16) {
        NAPIER_FOR_OP(job->op, tiny_few_of, job, first, end - first < 16 ? (int)(end - first) : 16);
    }
    if (first < end) {
        short_rows(job, first, end, scratch);
    }
}

#endif
