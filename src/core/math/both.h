/* core/math/both.h - declares functions and tables that the CPU and CUDA share.
 *
 * Such code is plain C: single IEEE operations, without a * b + c that a compiler could fuse. The CPU is
 * built with -ffp-contract=off, CUDA with -fmad=false -ftz=false -prec-div=true -prec-sqrt=true.
 * tests/cuda/ptx.sh checks the code that nvcc generates. */
#ifndef NAPIER_CORE_MATH_BOTH_H
#define NAPIER_CORE_MATH_BOTH_H

#include "core/simd/device_code.h"

#if NAPIER_DEVICE_CODE
#define NAPIER_BOTH static __device__ __forceinline__
#define NAPIER_BOTH_TABLE static __device__ const
#else
#define NAPIER_BOTH static inline
#define NAPIER_BOTH_TABLE static const
#endif

#endif
