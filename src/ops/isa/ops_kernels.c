/* ops/isa/ops_kernels.c - from an instruction set to its kernels. */
#include "ops/isa/ops_kernels.h"

#include "core/isa/choose.h"

const napier_ops_kernels *napier_ops_kernels_of(napier_isa isa) { return NAPIER_CHOOSE(napier_ops_kernels, isa); }
