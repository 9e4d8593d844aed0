/* core/isa/core_kernels.h - elementary functions over arrays: a table for each instruction set, all with the same bits. core_scalar.c, core_avx2.c,
 * core_avx512.c and core_neon.c compile every kernel for one instruction set and fill one table each. */
#ifndef NAPIER_CORE_ISA_CORE_KERNELS_H
#define NAPIER_CORE_ISA_CORE_KERNELS_H

#include <napier/types.h>

#include "core/math/math_kernels.h"

typedef struct napier_core_kernels {
    napier_math_kernels math;
} napier_core_kernels;

/* Each is compiled for its processor alone. */
extern const napier_core_kernels napier_core_kernels_scalar, napier_core_kernels_avx2, napier_core_kernels_avx512,
    napier_core_kernels_neon;

/* The table of an instruction set that is available here (napier_isa_available); never NULL for those. */
const napier_core_kernels *napier_core_kernels_of(napier_isa isa);

#endif
