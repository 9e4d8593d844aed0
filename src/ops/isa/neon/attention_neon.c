/* ops/isa/neon/attention_neon.c - the kernels of attention for AArch64's NEON. */
#include "core/isa/neon.h"
#include "ops/attention/attention_kernels.inc.h"
#include "core/isa/end.h"
