/* softmax/sum_f64.c - the functions of sum_f64.h, as the CPU links them. */
#include "softmax/sum_f64.h"

#include "softmax/sum_f64.inc.h"
