/* core/math/both.h - how a function or table is declared that the CPU and CUDA share.
 *
 * Such a header is plain C: single IEEE operations, no a * b + c that a compiler may fuse. The CPU is built with
 * -ffp-contract=off; CUDA with -fmad=false -ftz=false -prec-div=true -prec-sqrt=true, and tests/cuda/ptx.sh reads what nvcc
 * made of it. */
#ifndef NAPIER_CORE_MATH_BOTH_H
#define NAPIER_CORE_MATH_BOTH_H

#if defined(__CUDACC__)
#define NAPIER_BOTH static __device__ __forceinline__
#define NAPIER_BOTH_TABLE static __device__ const
#else
#define NAPIER_BOTH static inline
#define NAPIER_BOTH_TABLE static const
#endif

#endif
