/* ops/isa/avx2/layer_avx2.c - the kernels of layers for AVX2, FMA and F16C. */
#include "core/isa/avx2.h"
#include "ops/layers/layer_kernels.inc.h"
#include "core/isa/end.h"
