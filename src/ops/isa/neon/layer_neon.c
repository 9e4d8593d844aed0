/* ops/isa/neon/layer_neon.c - the kernels of layers for AArch64's NEON. */
#include "core/isa/neon.h"
#include "ops/layers/layer_kernels.inc.h"
#include "core/isa/end.h"
