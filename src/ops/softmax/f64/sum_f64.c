/* ops/softmax/f64/sum_f64.c - the functions of sum_f64.h, compiled once for the CPU. */
#include "ops/softmax/f64/sum_f64.h"

#include "ops/softmax/f64/sum_f64.inc.h"
