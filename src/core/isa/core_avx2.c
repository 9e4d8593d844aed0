/* core/isa/core_avx2.c - elementary functions over arrays for AVX2, FMA and F16C. */
#include "core/isa/avx2.h"
#include "core/isa/core_kernels.inc.h"
#include "core/isa/end.h"
