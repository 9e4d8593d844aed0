/* ops/isa/neon/sample_neon.c - the kernels of sample for AArch64's NEON. */
#include "core/isa/neon.h"
#include "ops/sample/sample_kernels.inc.h"
#include "core/isa/end.h"
