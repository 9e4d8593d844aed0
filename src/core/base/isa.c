/* core/base/isa.c - which instruction sets this machine has. */
#include "core/base/context.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <cpuid.h>

/* CPUID is read directly for half-precision conversion, because not every compiler has a name for it.
 * __builtin_cpu_supports for AVX2 also checks that the operating system saves the wide registers. */
static int has_f16c(void) {
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & (1u << 29)) != 0;
}

static int has_avx2(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

/* The AVX-512 kernels use FMA and half-precision conversion too, which every such machine has. */
static int has_avx512(void) {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

static int has_neon(void) { return 0; }

#else

static int has_avx2(void) { return 0; }
static int has_avx512(void) { return 0; }

static int has_neon(void) {
#if defined(__aarch64__) && defined(__GNUC__)
    return 1; /* part of the architecture */
#else
    return 0;
#endif
}

#endif

int napier_isa_available(napier_isa isa) {
    switch (isa) {
    case NAPIER_ISA_AUTO:
    case NAPIER_ISA_SCALAR: return 1;
    case NAPIER_ISA_NEON: return has_neon();
    case NAPIER_ISA_AVX2: return has_avx2();
    case NAPIER_ISA_AVX512: return has_avx512();
    }
    return 0;
}

napier_isa napier_isa_best(void) {
    return has_avx512() ? NAPIER_ISA_AVX512
           : has_avx2() ? NAPIER_ISA_AVX2
           : has_neon() ? NAPIER_ISA_NEON
                        : NAPIER_ISA_SCALAR;
}
