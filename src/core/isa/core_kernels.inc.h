/* core/isa/core_kernels.inc.h - every kernel of this part, compiled for the instruction set that the including file has
 * chosen, and the table of them. */
#include "core/isa/core_kernels.h"
#include "core/math/math.inc.h"

#define NAPIER_CORE_KERNELS(isa) \
    { .math = NAPIER_MATH_KERNELS }
