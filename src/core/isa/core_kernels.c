/* core/isa/core_kernels.c - finds the kernels of an instruction set. */
#include "core/isa/core_kernels.h"

#include "core/isa/choose.h"

const napier_core_kernels *napier_core_kernels_of(napier_isa isa) { return NAPIER_CHOOSE(napier_core_kernels, isa); }
