/* ops/isa/scalar/layer_scalar.c - the kernels of layers in plain C. */
#include "core/isa/scalar.h"
#include "ops/layers/layer_kernels.inc.h"
#include "core/isa/end.h"
