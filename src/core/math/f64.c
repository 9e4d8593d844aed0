/* core/math/f64.c - the functions of f64.h, compiled once for the CPU. */
#include "core/math/f64.h"

#include "core/math/f64.inc.h"
