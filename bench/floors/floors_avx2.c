/* bench/floors/floors_avx2.c - the floor kernels for this instruction set. */
#if defined(__x86_64__) || defined(_M_X64)
#include "core/simd/target_avx2.h"
#define NAPIER_LANES_AVX2
#define FLOORS_TABLE floor_avx2
#include "floors.inc.h"
#include "core/simd/target_end.h"
#else
#include "floors.h"
const floor_kernels floor_avx2 = {{NULL}, {NULL}, {NULL}, {NULL}, {NULL}};
#endif
