/* core/isa/choose.h - finds a part's table of kernels for an instruction set, which must be available
 * (napier_isa_available). NAPIER_CHOOSE(napier_umap_kernels, isa) is one of &napier_umap_kernels_scalar,
 * &napier_umap_kernels_avx2, ... */
#ifndef NAPIER_CORE_ISA_CHOOSE_H
#define NAPIER_CORE_ISA_CHOOSE_H

#include <napier/types.h>

#if defined(__x86_64__)
#define NAPIER_CHOOSE(table, isa) \
    ((isa) == NAPIER_ISA_AVX512 ? &table##_avx512 : (isa) == NAPIER_ISA_AVX2 ? &table##_avx2 : &table##_scalar)
#elif defined(__aarch64__)
#define NAPIER_CHOOSE(table, isa) ((isa) == NAPIER_ISA_NEON ? &table##_neon : &table##_scalar)
#else
#define NAPIER_CHOOSE(table, isa) ((void)(isa), &table##_scalar)
#endif

#endif
