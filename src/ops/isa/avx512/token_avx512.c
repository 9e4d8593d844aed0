/* ops/isa/avx512/token_avx512.c - the kernels of tokens for AVX-512 F, BW, DQ and VL. */
#include "core/isa/avx512.h"
#include "ops/tokens/token_kernels.inc.h"
#include "core/isa/end.h"
