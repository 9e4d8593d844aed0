/* core/isa/avx512.h - begins a file that compiles kernels for AVX-512 F, BW, DQ and VL.
 * NAPIER_TABLE(name) is the name of their table. The file ends with core/isa/end.h. On other processors it is empty. */
#if defined(__x86_64__)
#include "core/simd/target_avx512.h"
#define NAPIER_LANES_AVX512
#define NAPIER_TABLE(name) name##_avx512
#else
typedef int napier_avx512_is_for_another_processor;
#endif
