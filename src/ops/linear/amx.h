/* ops/linear/amx.h - bf16 by bf16 on x86's matrix engine (AMX), whose documented order is the one of napier/linear.h.
 *
 * A part of AVX-512 machines, taken where a context was made with NAPIER_ISA_AUTO; NAPIER_ISA_AVX512 goes without.
 * It has given the bits of the other kernels on a Sapphire Rapids guest (docs/linear.md). Other processors and emulators may
 * differ, so it is not trusted: the first bf16 product of a context compares it with the AVX-512 kernel on numbers chosen to
 * tell orders and roundings apart, and takes it only if all bits agree. */
#ifndef NAPIER_OPS_LINEAR_AMX_H
#define NAPIER_OPS_LINEAR_AMX_H

#include "core/base/context.h"
#include "ops/linear/product_kernels.h"

/* Decides, once for a context, whether its bf16 products use the engine. */
void napier_matrix_engine_decide(napier_context *context);

/* As `pairs` of product_kernels.h. Only where the engine has been decided for. */
void napier_amx_pairs(const napier_product_block *block);

#endif
