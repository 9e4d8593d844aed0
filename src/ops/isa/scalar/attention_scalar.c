/* ops/isa/scalar/attention_scalar.c - the kernels of attention in plain C. */
#include "core/isa/scalar.h"
#include "ops/attention/attention_kernels.inc.h"
#include "core/isa/end.h"
