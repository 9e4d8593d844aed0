/* ops/softmax/state/state.h - the struct of a mergeable state, shared by state.c (the
 * reduction) and state_bytes.c (the byte form). */
#ifndef NAPIER_OPS_SOFTMAX_STATE_STATE_H
#define NAPIER_OPS_SOFTMAX_STATE_STATE_H

#include <napier/softmax.h>

#include "ops/softmax/sum.h"
#include "ops/softmax/f64/sum_f64.h"

typedef union napier_any_sum {
    napier_sum f32;
    napier_f64_sum f64;
} napier_any_sum;

struct napier_softmax_state {
    napier_allocator allocator;
    napier_dtype compute;
    double temperature;
    napier_masked_rows masked_rows;
    int64_t first, end; /* the part's indices in its row; count < end - first if merged parts left gaps */
    int64_t count;
    int32_t head_size, tail_size;
    napier_any_sum sum; /* of the closed tiles */
    bool finished;
    union {
        napier_final f32;
        napier_f64_final f64;
    } final;
    /* head and tail follow: 1024 elements of the compute type each */
};

/* A part has fewer elements. The digits of a sum are base 2^24 in 64 bits, and more elements could overflow one. */
#define NAPIER_SUM_MOST (INT64_C(1) << (64 - NAPIER_DIGIT_BITS))

/* Bytes of an element of head and tail. */
static inline size_t napier_state_element(napier_dtype compute) {
    return compute == NAPIER_F64 ? sizeof(double) : sizeof(float);
}
/* The size of the struct with its head and tail. */
size_t napier_state_bytes(napier_dtype compute);

#endif
