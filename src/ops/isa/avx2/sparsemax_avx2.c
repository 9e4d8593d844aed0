/* ops/isa/avx2/sparsemax_avx2.c - the kernels of sparsemax for AVX2, FMA and F16C. */
#include "core/isa/avx2.h"
#include "ops/sparsemax/sparsemax_kernels.inc.h"
#include "core/isa/end.h"
