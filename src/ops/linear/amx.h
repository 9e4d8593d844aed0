/* ops/linear/amx.h - bf16 by bf16 on x86's matrix engine (AMX), whose documented order is that of napier/linear.h.
 *
 * The engine belongs to some AVX-512 machines. A context made with NAPIER_ISA_AUTO may use it, one made with
 * NAPIER_ISA_AVX512 does not. On a Sapphire Rapids guest it gave the bits of the other kernels (docs/linear.md), but
 * other processors and emulators may differ. So the first bf16 product of a context compares it with the AVX-512
 * kernel, on numbers chosen to distinguish orders and roundings, and the engine is used only if all bits agree. */
#ifndef NAPIER_OPS_LINEAR_AMX_H
#define NAPIER_OPS_LINEAR_AMX_H

#include "core/base/context.h"
#include "ops/linear/product_kernels.h"

/* Decides, once for a context, whether its bf16 products use the engine. */
void napier_matrix_engine_decide(napier_context *context);

/* The same as `pairs` in product_kernels.h. Call it only if the context uses the engine. */
void napier_amx_pairs(const napier_product_block *block);

#endif
