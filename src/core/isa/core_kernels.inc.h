/* core/isa/core_kernels.inc.h - every kernel of core, compiled for the instruction set that the including file has chosen,
 * and the table of them. */
#if defined(NAPIER_TABLE)
#include "core/isa/core_kernels.h"
#include "core/math/math.inc.h"

const napier_core_kernels NAPIER_TABLE(napier_core_kernels) = {.math = NAPIER_MATH_KERNELS};
#endif
