/* ops/isa/avx2/softmax_rows_avx2.c - softmax of short rows for AVX2, FMA and F16C. */
#include "core/isa/avx2.h"
#include "ops/softmax/rows_kernels.inc.h"
#include "core/isa/end.h"
