/* ops/isa/avx512/linear_avx512.c - the kernels of linear for AVX-512 F, BW, DQ and VL. */
#include "core/isa/avx512.h"
#include "ops/linear/linear_kernels.inc.h"
#include "core/isa/end.h"
