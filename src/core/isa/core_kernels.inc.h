/* core/isa/core_kernels.inc.h - the table of every kernel of core, for the instruction set
 * that the including file has chosen. */
#if defined(NAPIER_TABLE)
#include "core/isa/blocks.inc.h"
#include "core/isa/core_kernels.h"
#include "core/isa/pack.inc.h"
#include "core/math/math.inc.h"

const napier_core_kernels NAPIER_TABLE(napier_core_kernels) = {
    .math = NAPIER_MATH_KERNELS, .pack = napier_pack, .unpack = napier_unpack, .widen_rows = napier_widen_rows};
#endif
