/* core/isa/end.h - ends a file that began with core/isa/avx2.h, avx512.h, neon.h or scalar.h. */
#if defined(NAPIER_LANES_AVX2) || defined(NAPIER_LANES_AVX512)
#include "core/simd/target_end.h"
#endif
