/* ops/softmax/state/state.h - the struct of a mergeable state, shared by state.c (the
 * reduction) and state_bytes.c (the byte form). */
#ifndef NAPIER_OPS_SOFTMAX_STATE_STATE_H
#define NAPIER_OPS_SOFTMAX_STATE_STATE_H

#include <napier/softmax.h>

#include "ops/softmax/sum.h"
#include "ops/softmax/f64/sum_f64.h"
#include "ops/softmax/weighted/weighted_sum.h"

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
    bool weighted;
    napier_any_sum sum; /* of the closed tiles; a weighted state has napier_state_weighted_sum in its place */
    bool finished;
    union {
        napier_final f32;
        napier_f64_final f64;
    } final;
    /* Blocks of 1024 elements of the compute type follow: head and tail, and if weighted their weights and the sum. */
};

typedef enum napier_state_block {
    NAPIER_STATE_HEAD,
    NAPIER_STATE_TAIL,
    NAPIER_STATE_HEAD_WEIGHTS,
    NAPIER_STATE_TAIL_WEIGHTS,
    NAPIER_STATE_BLOCKS
} napier_state_block;

/* A part has fewer elements. The digits of a sum are base 2^24 in 64 bits, and more elements could overflow one. */
#define NAPIER_SUM_MOST (INT64_C(1) << (64 - NAPIER_DIGIT_BITS))

/* Bytes of an element of head and tail. */
static inline size_t napier_state_element(napier_dtype compute) {
    return compute == NAPIER_F64 ? sizeof(double) : sizeof(float);
}
/* The size of the struct with all that follows it. */
static inline size_t napier_state_bytes(napier_dtype compute, bool weighted) {
    const size_t blocks = weighted ? NAPIER_STATE_BLOCKS : NAPIER_STATE_HEAD_WEIGHTS;
    return sizeof(napier_softmax_state) + blocks * NAPIER_TILE * napier_state_element(compute) +
           (weighted ? sizeof(napier_weighted_sum) : 0);
}

static inline size_t napier_state_offset(const napier_softmax_state *s, napier_state_block block) {
    return sizeof *s + (size_t)block * NAPIER_TILE * napier_state_element(s->compute);
}
static inline char *napier_state_elements(napier_softmax_state *s, napier_state_block block) {
    return (char *)s + napier_state_offset(s, block);
}
static inline const char *napier_state_elements_of(const napier_softmax_state *s, napier_state_block block) {
    return (const char *)s + napier_state_offset(s, block);
}
/* Of a weighted state. */
static inline napier_weighted_sum *napier_state_weighted_sum(napier_softmax_state *s) {
    return (napier_weighted_sum *)(void *)napier_state_elements(s, NAPIER_STATE_BLOCKS);
}
static inline const napier_weighted_sum *napier_state_weighted_sum_of(const napier_softmax_state *s) {
    return (const napier_weighted_sum *)(const void *)napier_state_elements_of(s, NAPIER_STATE_BLOCKS);
}

/* Writes the first NAPIER_STATE_HEADER bytes of the byte form (state_format.h). */
void napier_state_put_header(unsigned char *at, const napier_softmax_state *s);

/* The elements that a state may have, plus one. */
static inline int64_t napier_state_most(const napier_softmax_state *s) {
    return s->weighted ? NAPIER_WEIGHTED_MOST : NAPIER_SUM_MOST;
}

#endif
