/* ops/isa/avx512/attention_avx512.c - the kernels of attention for AVX-512 F, BW, DQ and VL. */
#include "core/isa/avx512.h"
#include "ops/attention/attention_kernels.inc.h"
#include "core/isa/end.h"
