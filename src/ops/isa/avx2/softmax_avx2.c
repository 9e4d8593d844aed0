/* ops/isa/avx2/softmax_avx2.c - the kernels of softmax for AVX2, FMA and F16C. */
#include "core/isa/avx2.h"
#include "ops/softmax/softmax_kernels.inc.h"
#include "core/isa/end.h"
