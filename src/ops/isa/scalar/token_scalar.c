/* ops/isa/scalar/token_scalar.c - the kernels of tokens in plain C. */
#include "core/isa/scalar.h"
#include "ops/tokens/token_kernels.inc.h"
#include "core/isa/end.h"
