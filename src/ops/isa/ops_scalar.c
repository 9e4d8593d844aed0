/* ops/isa/ops_scalar.c - the kernels of the operations in plain C: the oracle the other instruction sets are compared with. */
#define NAPIER_LANES_SCALAR
#include "ops/isa/ops_kernels.inc.h"

const napier_ops_kernels napier_ops_kernels_scalar = NAPIER_OPS_KERNELS(scalar);
