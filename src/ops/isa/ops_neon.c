/* ops/isa/ops_neon.c - the kernels of the operations for AArch64's NEON. */
#if defined(__aarch64__)
#define NAPIER_LANES_NEON
#include "ops/isa/ops_kernels.inc.h"

const napier_ops_kernels napier_ops_kernels_neon = NAPIER_OPS_KERNELS(neon);
#else
typedef int napier_ops_neon_is_for_aarch64;
#endif
