/* ops/isa/avx512/losses_avx512.c - the kernels of losses for AVX-512 F, BW, DQ and VL. */
#include "core/isa/avx512.h"
#include "ops/losses/losses_kernels.inc.h"
#include "core/isa/end.h"
