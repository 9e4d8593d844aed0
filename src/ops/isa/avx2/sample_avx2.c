/* ops/isa/avx2/sample_avx2.c - the kernels of sample for AVX2, FMA and F16C. */
#include "core/isa/avx2.h"
#include "ops/sample/sample_kernels.inc.h"
#include "core/isa/end.h"
