/* ops/isa/avx2/linear_avx2.c - the kernels of linear for AVX2, FMA and F16C. */
#include "core/isa/avx2.h"
#include "ops/linear/linear_kernels.inc.h"
#include "core/isa/end.h"
