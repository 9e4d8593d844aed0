/* core/base/isa.c - which instruction sets this machine has, and who made it. */
#include "core/base/context.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <cpuid.h>

/* CPUID is read directly. __builtin_cpu_supports has no name for half-precision conversion with every compiler, and where
 * zig links it, it finds nothing. */
enum { FMA = 1 << 12, OSXSAVE = 1 << 27, F16C = 1 << 29 }; /* leaf 1, ecx */
enum { AVX2 = 1 << 5, AVX512F = 1 << 16, AVX512DQ = 1 << 17, AVX512BW = 1 << 30 };
static const unsigned avx512vl = 1u << 31; /* leaf 7, ebx */

/* Whether the operating system saves these registers: bits of XCR0. */
enum { YMM = 0x6, ZMM = 0xe6 };
static int saves(unsigned wanted) {
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & wanted) == wanted;
}

/* Leaf 7, ebx; 0 on a machine or system without AVX2's companions. */
static unsigned extensions(unsigned registers) {
    const unsigned needed = FMA | OSXSAVE | F16C;
    unsigned eax, ebx, ecx, edx;
    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || (ecx & needed) != needed || !saves(registers) ||
        !__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) {
        return 0;
    }
    return ebx;
}

static int has_avx2(void) { return (extensions(YMM) & AVX2) != 0; }

/* The AVX-512 kernels use FMA and half-precision conversion too, which every such machine has. */
static int has_avx512(void) {
    const unsigned needed = AVX2 | AVX512F | AVX512DQ | AVX512BW | avx512vl;
    return (extensions(ZMM) & needed) == needed;
}

static int has_neon(void) { return 0; }

int napier_is_intel(void) {
    enum { GENU = 0x756e6547, INEI = 0x49656e69, NTEL = 0x6c65746e };
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(0, &eax, &ebx, &ecx, &edx) && ebx == GENU && edx == INEI && ecx == NTEL;
}

#else

static int has_avx2(void) { return 0; }
static int has_avx512(void) { return 0; }
int napier_is_intel(void) { return 0; }

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
