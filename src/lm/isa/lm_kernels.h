/* lm/isa/lm_kernels.h - the kernels of language models: one table for each instruction set, all with the same bits.
 * lm_scalar.c, lm_avx2.c, lm_avx512.c and lm_neon.c each compile every kernel for one instruction set and fill one
 * table. */
#ifndef NAPIER_LM_ISA_LM_KERNELS_H
#define NAPIER_LM_ISA_LM_KERNELS_H

#include <napier/types.h>

#include "lm/decoder/model_kernels.h"
#include "core/isa/core_kernels.h"

typedef struct napier_lm_kernels {
    napier_model_kernels model;
    /* The kernels of core, for the same instruction set. */
    const napier_math_kernels *math;
} napier_lm_kernels;

/* Each exists only in builds for its processor. */
extern const napier_lm_kernels napier_lm_kernels_scalar, napier_lm_kernels_avx2, napier_lm_kernels_avx512,
    napier_lm_kernels_neon;

/* The table of an instruction set. It is not NULL if the instruction set is available here (napier_isa_available). */
const napier_lm_kernels *napier_lm_kernels_of(napier_isa isa);

#endif
