/* ops/isa/avx2/token_avx2.c - the kernels of tokens for AVX2, FMA and F16C. */
#include "core/isa/avx2.h"
#include "ops/tokens/token_kernels.inc.h"
#include "core/isa/end.h"
