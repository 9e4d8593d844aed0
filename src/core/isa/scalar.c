/* core/isa/scalar.c - the kernels in plain C: the oracle the other instruction sets are compared with. */
#define NAPIER_LANES_SCALAR
#include "core/isa/kernels.inc.h"

extern const napier_kernels napier_kernels_scalar;
const napier_kernels napier_kernels_scalar = NAPIER_KERNELS;
