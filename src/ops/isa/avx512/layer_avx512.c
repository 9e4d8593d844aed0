/* ops/isa/avx512/layer_avx512.c - the kernels of layers for AVX-512 F, BW, DQ and VL. */
#include "core/isa/avx512.h"
#include "ops/layers/layer_kernels.inc.h"
#include "core/isa/end.h"
