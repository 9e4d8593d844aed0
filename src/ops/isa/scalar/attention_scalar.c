/* ops/isa/scalar/attention_scalar.c - the kernels of attention for plain C. The other instruction sets are compared with it. */
#include "core/isa/scalar.h"
#include "ops/attention/attention_kernels.inc.h"
#include "core/isa/end.h"
