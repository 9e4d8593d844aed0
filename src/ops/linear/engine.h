/* ops/linear/engine.h - how a context multiplies bf16 by bf16: on the matrix engine (ops/linear/amx.h), with vdpbf16ps
 * (ops/linear/bf16_pairs.h), or with the kernels of its instruction set. Where both are here, vdpbf16ps multiplies one
 * lane, and serves attention with few queries.
 *
 * A context made with NAPIER_ISA_AUTO may use the engine, one made with NAPIER_ISA_AVX512 does not. On a Sapphire Rapids
 * guest the engine gave the bits of the kernels (docs/linear.md), as vdpbf16ps did on a Zen 5 and on a Granite Rapids.
 * Other processors and emulators may differ. So the first bf16 product of a context compares them with the AVX-512 kernel,
 * on numbers chosen to distinguish orders and roundings, and uses one only if all bits agree. */
#ifndef NAPIER_OPS_LINEAR_ENGINE_H
#define NAPIER_OPS_LINEAR_ENGINE_H

#include "core/base/context.h"

/* What multiplies bf16 by bf16: the kernels of the instruction set, vdpbf16ps, AMX, or both. From NAPIER_ENGINE_AMX on
 * there is AMX. */
typedef enum napier_engine {
    NAPIER_ENGINE_UNDECIDED,
    NAPIER_ENGINE_NONE,
    NAPIER_ENGINE_PAIRS,
    NAPIER_ENGINE_AMX,
    NAPIER_ENGINE_BOTH
} napier_engine;

/* Decides, once for a context, how its bf16 products are computed. */
void napier_matrix_engine_decide(napier_context *context);

#endif
