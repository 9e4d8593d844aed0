/* ops/linear/bf16_pairs.h - bf16 by bf16 with the instruction vdpbf16ps (AVX512_BF16), for machines without a matrix
 * engine, or with one that may not be used.
 *
 * The instruction multiplies two pairs and adds first the product of the high halves, then that of the low halves, each
 * with an fma that takes subnormals for 0. A pair of two even k, or of two odd ones, is therefore two steps of a chain of
 * the order of napier/linear.h, at the price of one fma.
 *
 * Operands and blocks are those of ops/linear/amx.h, except that packed lanes are turned afterwards. */
#ifndef NAPIER_OPS_LINEAR_BF16_PAIRS_H
#define NAPIER_OPS_LINEAR_BF16_PAIRS_H

#include "ops/linear/amx.h"

/* True if the processor has the instruction and the context's instruction set is AVX-512. */
bool napier_bf16_pairs_are_here(const napier_context *context);

/* c += rows * lanes. Call it only where the instruction is here. */
void napier_bf16_pairs_multiply(const napier_engine_block *block);

/* Turns a packed group of lanes. Of k to k + 3, the pairs (k, k + 1) and (k + 2, k + 3) become (k + 2, k) and
 * (k + 3, k + 1), the low half first. count: of k, a multiple of 4. */
void napier_bf16_pairs_turn(uint32_t *lanes, int64_t count);
/* Where napier_bf16_pairs_turn puts k: the pair, and whether it is the high half. */
static inline int64_t napier_bf16_pair_of(int64_t k) { return k / 4 * 2 + k % 2; }
static inline bool napier_bf16_is_high(int64_t k) { return k % 4 < 2; }

/* The same for few lanes: napier_product_kernels.few_pairs, with lane_data that napier_bf16_few_pack has made of such. 16 rows
 * at a time are read along. */
void napier_bf16_few_multiply(const napier_few_block *p);
/* Packs [k][width] floats of bf16, in place, as pairs. k: a multiple of 32. */
void napier_bf16_few_pack(float *lanes, int64_t k, int64_t width);

/* The same for one lane. Rows are read one after the other, 512 k at a time. */
void napier_bf16_one_multiply(const napier_few_block *p);
/* The lane is filled up with 0 to a multiple of 32 k, and takes half of that afterwards. */
void napier_bf16_one_pack(float *lane, int64_t k);

#endif
