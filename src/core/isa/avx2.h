/* core/isa/avx2.h - begins a file that compiles kernels for AVX2, FMA and F16C.
 * NAPIER_TABLE(name) is the name of their table. The file ends with core/isa/end.h. On other processors it is empty. */
#if defined(__x86_64__)
#include "core/simd/target_avx2.h"
#define NAPIER_LANES_AVX2
#define NAPIER_TABLE(name) name##_avx2
#else
typedef int napier_avx2_is_for_another_processor;
#endif
