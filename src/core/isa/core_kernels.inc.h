/* core/isa/core_kernels.inc.h - includes every kernel of core, so that they are compiled for the instruction set that
 * the including file has chosen, and defines their table. */
#include "core/isa/core_kernels.h"
#include "core/math/math.inc.h"

#define NAPIER_CORE_KERNELS(isa) \
    { .math = NAPIER_MATH_KERNELS }
