/* napier/linear.h - the matrix product in a fixed order.
 *
 * Bits. An element of the product depends only on its row of a and its column of b. It does not depend on the number of rows or
 * columns, on threads, strides, instruction set or compiler. So a row's result does not depend on its batch. The bits are
 * contractual.
 *
 * Order. Unless both operands are bf16: one chain of f32 fused multiply-adds over ascending k, starting at +0. f16 and bf16
 * are widened exactly.
 * bf16 by bf16 follows the matrix engine of x86 (AMX). For each block of 32 k (the last one padded with +0) there is one chain
 * of fma over the even k and one over the odd k, both starting at 0. The sum even + odd is added to the accumulator, which
 * starts at 0. Subnormal operands count as 0 with their sign. So does the result of each step if it is below 2^-126 when
 * rounded to 24 bits with an unbounded exponent. docs/linear.md says why and how. */
#ifndef NAPIER_LINEAR_H
#define NAPIER_LINEAR_H

#include <napier/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* product[i][j] = sum_k a[i][k] * b[k][j], with a [m, k], b [k, n] and product [m, n]. k = 0 gives zeros. Any strides: pass
 * weights stored as [n, k] as napier_const_transposed. Each dtype is f32, f16 or bf16; the result is rounded once, to nearest
 * even. NaN and inf follow IEEE arithmetic; a NaN result is the canonical quiet NaN.
 * The product must not overlap a or b. Error bound: (k + 1) 2^-24 sum_k |a b|.
 * Errors: INVALID_ARGUMENT (shapes that do not match, f64), OUT_OF_MEMORY. */
NAPIER_API napier_status napier_matmul(napier_context *context, napier_const_matrix a, napier_const_matrix b,
                                       napier_matrix product);

/* A product of f32 with bf16, with the accuracy of f32, on the engine that multiplies bf16 by bf16: a is activations, and b
 * weights of bf16, or the other way round. Each activation x is three pieces of bf16,
 *     high = x without its lower 16 bits, middle = (x - high) without them, low = x - high - middle,
 * whose sum is x exactly if |x| >= 2^-103 (1e-31). Of smaller numbers pieces below 2^-126 are lost, since they count as 0.
 * An element of the product is high + (middle + low), where each is the product of these pieces with the weights in the order
 * of bf16 by bf16. Where the first is infinite or NaN, it is the result: so inf and NaN in the operands give what
 * napier_matmul gives, except that a subnormal times inf is NaN. f16 is widened to f32. bf16 by bf16 is napier_matmul.
 * Error bound: (k / 31 + 20) 2^-24 sum_k |a b| + (k + 1) 2^-124 max(1, |a|, |b|).
 * Everything else is as in napier_matmul, also bits and errors; INVALID_ARGUMENT also if neither operand is bf16. */
NAPIER_API napier_status napier_matmul_split(napier_context *context, napier_const_matrix a, napier_const_matrix b,
                                             napier_matrix product);

/* 1 if this context multiplies bf16 by bf16 on the processor's matrix engine (AMX), else 0; the bits are the same. The first
 * call, or the first such product, compares the engine with the AVX-512 kernel, and takes it only if all bits agree. A context
 * made with another instruction set than NAPIER_ISA_AUTO goes without. context NULL: 0. */
NAPIER_API int napier_matrix_engine(napier_context *context);

#ifdef __cplusplus
}
#endif
#endif
