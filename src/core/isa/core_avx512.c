/* core/isa/core_avx512.c - elementary functions over arrays for AVX-512 F, BW, DQ and VL. */
#include "core/isa/avx512.h"
#include "core/isa/core_kernels.inc.h"
#include "core/isa/end.h"
