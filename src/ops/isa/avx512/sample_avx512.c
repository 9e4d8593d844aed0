/* ops/isa/avx512/sample_avx512.c - the kernels of sample for AVX-512 F, BW, DQ and VL. */
#include "core/isa/avx512.h"
#include "ops/sample/sample_kernels.inc.h"
#include "core/isa/end.h"
