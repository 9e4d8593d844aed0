/* lanes_scalar.c - the probe of the plain C lanes. */
#define NAPIER_LANES_SCALAR
#include "core/simd/lanes.h"

#include "lanes_probe.inc.h"

const lanes_probe lanes_probe_scalar = PROBE("scalar");
