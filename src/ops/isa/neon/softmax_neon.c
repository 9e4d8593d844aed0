/* ops/isa/neon/softmax_neon.c - the kernels of softmax for AArch64's NEON. */
#include "core/isa/neon.h"
#include "ops/softmax/softmax_kernels.inc.h"
#include "core/isa/end.h"
