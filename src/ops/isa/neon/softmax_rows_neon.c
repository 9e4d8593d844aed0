/* ops/isa/neon/softmax_rows_neon.c - softmax of short rows for AArch64's NEON. */
#include "core/isa/neon.h"
#include "ops/softmax/rows_kernels.inc.h"
#include "core/isa/end.h"
