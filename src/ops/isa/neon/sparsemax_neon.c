/* ops/isa/neon/sparsemax_neon.c - the kernels of sparsemax for AArch64's NEON. */
#include "core/isa/neon.h"
#include "ops/sparsemax/sparsemax_kernels.inc.h"
#include "core/isa/end.h"
