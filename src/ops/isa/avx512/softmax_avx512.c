/* ops/isa/avx512/softmax_avx512.c - the kernels of softmax for AVX-512 F, BW, DQ and VL. */
#include "core/isa/avx512.h"
#include "ops/softmax/softmax_kernels.inc.h"
#include "core/isa/end.h"
