/* core/math/exp_f64.h - the constants of exp in double precision. */
#ifndef NAPIER_CORE_MATH_EXP_F64_H
#define NAPIER_CORE_MATH_EXP_F64_H

#include "core/math/both.h"

#define NAPIER_F64_LOG2E 0x1.71547652b82fep+0

/* ln 2 = NAPIER_F64_LN2_1 + NAPIER_F64_LN2_2 + NAPIER_F64_LN2_3, to 2^-164. */
#define NAPIER_F64_LN2_1 0x1.62e42fefa39efp-1
#define NAPIER_F64_LN2_2 0x1.abc9e3b39803fp-56
#define NAPIER_F64_LN2_3 0x1.7b57a079a1934p-111

/* exp(r) = 1 + r + r^2/2 + r^3 c(r) on |r| <= ln2/2, to 2^-60.6 of its value. */
NAPIER_BOTH_TABLE double napier_f64_exp_c[11] = {0x1.5555555555555p-3,  0x1.5555555555556p-5,  0x1.1111111111111p-7,
                                                 0x1.6c16c16c162d6p-10, 0x1.a01a01a019b2bp-13, 0x1.a01a01a6d787dp-16,
                                                 0x1.71de3a5904972p-19, 0x1.27e4db679d0c0p-22, 0x1.ae64344d66a09p-26,
                                                 0x1.1f72fca335d17p-29, 0x1.61b2b04a0777ap-33};

#endif
