/* ops/isa/avx512/sparsemax_avx512.c - the kernels of sparsemax for AVX-512 F, BW, DQ and VL. */
#include "core/isa/avx512.h"
#include "ops/sparsemax/sparsemax_kernels.inc.h"
#include "core/isa/end.h"
