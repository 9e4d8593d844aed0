/* lanes_avx2.c - the probe of the AVX2 lanes. */
#include "lanes_probe.h"

#if defined(__x86_64__)
#include "core/simd/target_avx2.h"
#define NAPIER_LANES_AVX2
#include "core/simd/lanes.h"
#include "lanes_probe.inc.h"
#include "core/simd/target_end.h"

const lanes_probe lanes_probe_avx2 = PROBE("avx2");
#endif
