/* core/isa/core_scalar.c - elementary functions over arrays in plain C. The
 * other instruction sets are compared with it. */
#define NAPIER_LANES_SCALAR
#include "core/isa/core_kernels.inc.h"

const napier_core_kernels napier_core_kernels_scalar = NAPIER_CORE_KERNELS(scalar);
