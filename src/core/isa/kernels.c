/* core/isa/kernels.c - from an instruction set to its kernels. */
#include "core/isa/kernels.h"

extern const napier_kernels napier_kernels_scalar;
#if defined(__x86_64__)
extern const napier_kernels napier_kernels_avx2;
extern const napier_kernels napier_kernels_avx512;
#elif defined(__aarch64__)
extern const napier_kernels napier_kernels_neon;
#endif

const napier_kernels *napier_kernels_of(napier_isa isa) {
    switch (isa) {
#if defined(__x86_64__)
    case NAPIER_ISA_AVX512: return &napier_kernels_avx512;
    case NAPIER_ISA_AVX2: return &napier_kernels_avx2;
#elif defined(__aarch64__)
    case NAPIER_ISA_NEON: return &napier_kernels_neon;
#endif
    default: return &napier_kernels_scalar;
    }
}
