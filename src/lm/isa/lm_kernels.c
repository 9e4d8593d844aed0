/* lm/isa/lm_kernels.c - maps an instruction set to its kernels. */
#include "lm/isa/lm_kernels.h"

#include "core/isa/choose.h"

const napier_lm_kernels *napier_lm_kernels_of(napier_isa isa) { return NAPIER_CHOOSE(napier_lm_kernels, isa); }
