/* core/isa/core_kernels.h - elementary functions over arrays: one table of kernels per instruction set, all
 * with the same bits. core_scalar.c, core_avx2.c, core_avx512.c and core_neon.c each compile all kernels
 * for one instruction set and fill one table. */
#ifndef NAPIER_CORE_ISA_CORE_KERNELS_H
#define NAPIER_CORE_ISA_CORE_KERNELS_H

#include <napier/types.h>

#include "core/math/math_kernels.h"

typedef struct napier_core_kernels {
    napier_math_kernels math;
} napier_core_kernels;

/* Each exists only in builds for its processor. */
extern const napier_core_kernels napier_core_kernels_scalar, napier_core_kernels_avx2, napier_core_kernels_avx512,
    napier_core_kernels_neon;

/* The table of an instruction set, which must be available (napier_isa_available). Never NULL. */
const napier_core_kernels *napier_core_kernels_of(napier_isa isa);

#endif
