/* lanes_avx512.c - the probe of the AVX-512 lanes. */
#include "lanes_probe.h"

#if defined(__x86_64__)
#include "core/simd/target_avx512.h"
#define NAPIER_LANES_AVX512
#include "core/simd/lanes.h"
#include "lanes_probe.inc.h"
#include "core/simd/target_end.h"

const lanes_probe lanes_probe_avx512 = PROBE("avx512");
#endif
