/* lm/isa/lm_scalar.c - the kernels of language models in plain C: the reference for the other instruction sets. */
#define NAPIER_LANES_SCALAR
#include "lm/isa/lm_kernels.inc.h"

const napier_lm_kernels napier_lm_kernels_scalar = NAPIER_LM_KERNELS(scalar);
