/* core/isa/core_scalar.c - elementary functions over arrays in plain C. */
#include "core/isa/scalar.h"
#include "core/isa/core_kernels.inc.h"
#include "core/isa/end.h"
