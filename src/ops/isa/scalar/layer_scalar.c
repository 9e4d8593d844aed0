/* ops/isa/scalar/layer_scalar.c - the kernels of layers for plain C. The other instruction sets are compared with it. */
#include "core/isa/scalar.h"
#include "ops/layers/layer_kernels.inc.h"
#include "core/isa/end.h"
