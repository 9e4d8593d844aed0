/* core/math/f64.c - the functions of f64.h, as the CPU links them. */
#include "core/math/f64.h"

#include "core/math/f64.inc.h"
