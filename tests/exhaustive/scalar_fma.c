/* exhaustive/scalar_fma.c - the scalar functions once more, from the same source, compiled with -O3 -mfma: fma is then one
 * instruction and no call, and every float takes seconds instead of minutes. See exhaustive.c. */
#define NAPIER_LANES_SCALAR
#include "core/math/math.inc.h"

extern const napier_math_kernels scalar_fma_kernels;
const napier_math_kernels scalar_fma_kernels = NAPIER_MATH_KERNELS;
