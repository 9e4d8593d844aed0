/* ops/isa/avx2/attention_avx2.c - the kernels of attention for AVX2, FMA and F16C. */
#include "core/isa/avx2.h"
#include "ops/attention/attention_kernels.inc.h"
#include "core/isa/end.h"
