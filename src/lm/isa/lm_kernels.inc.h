/* lm/isa/lm_kernels.inc.h - every kernel of lm, compiled for the instruction set that the including file has chosen,
 * and the table of them. */
#include "lm/isa/lm_kernels.h"
#include "lm/decoder/model.inc.h"

#define NAPIER_LM_KERNELS(isa) \
    { .model = NAPIER_MODEL_KERNELS, .math = &napier_core_kernels_##isa.math }
