/* ops/isa/avx512/softmax_rows_avx512.c - softmax of short rows for AVX-512 F, BW, DQ and VL. */
#include "core/isa/avx512.h"
#include "ops/softmax/rows_kernels.inc.h"
#include "core/isa/end.h"
