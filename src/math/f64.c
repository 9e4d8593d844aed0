/* math/f64.c - the functions of f64.h, as the CPU links them. */
#include "math/f64.h"

#include "math/f64.inc.h"
