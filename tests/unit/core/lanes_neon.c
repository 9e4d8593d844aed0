/* lanes_neon.c - the probe of the NEON lanes. */
#include "lanes_probe.h"

#if defined(__aarch64__)
#define NAPIER_LANES_NEON
#include "core/simd/lanes.h"
#include "lanes_probe.inc.h"
const lanes_probe lanes_probe_neon = PROBE("neon");
#endif
