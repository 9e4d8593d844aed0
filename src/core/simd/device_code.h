/* core/simd/device_code.h - NAPIER_DEVICE_CODE: 1 where a GPU's code is compiled, by nvcc or as OpenCL C, else 0. */
#ifndef NAPIER_CORE_SIMD_DEVICE_CODE_H
#define NAPIER_CORE_SIMD_DEVICE_CODE_H

#include <assert.h>
#include <math.h>
#include <string.h>

#if defined(__CUDACC__) || defined(__OPENCL_C_VERSION__)
#define NAPIER_DEVICE_CODE 1
#else
#define NAPIER_DEVICE_CODE 0
#endif

#endif
