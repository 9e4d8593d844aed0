/* ops/isa/avx2/losses_avx2.c - the kernels of losses for AVX2, FMA and F16C. */
#include "core/isa/avx2.h"
#include "ops/losses/losses_kernels.inc.h"
#include "core/isa/end.h"
