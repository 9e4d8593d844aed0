/* ops/isa/scalar/token_scalar.c - the kernels of tokens for plain C. The other instruction sets are compared with it. */
#include "core/isa/scalar.h"
#include "ops/tokens/token_kernels.inc.h"
#include "core/isa/end.h"
