# The CUDA half: kernels (*.cu in src) compiled by nvcc, and the runtime linked in. Its host half is in every build.
#
# Only on request, for nvcc takes minutes. The runtime is linked statically, so the library also loads on machines without
# CUDA, where it finds no device.

option(NAPIER_CUDA "Compile the kernels for NVIDIA GPUs (needs nvcc, and minutes)" OFF)
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 90 CACHE STRING
    "GPUs to compile for, from 80 on: 90, \"80-real;90\", native; the PTX of the last one also serves later ones")
endif()

set(napier_have_cuda FALSE)
if(NAPIER_CUDA)
  set(napier_have_cuda TRUE)
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  message(STATUS "CUDA: kernels for ${CMAKE_CUDA_ARCHITECTURES}, nvcc ${CMAKE_CUDA_COMPILER_VERSION}")
else()
  message(STATUS "CUDA: no kernels (-DNAPIER_CUDA=ON compiles them)")
endif()

# The flags are part of the numerics: no a * b + c fused, nothing flushed, no estimates for division and square root.
# C++20 has C's designated initializers; said as a flag, for CMake may be older than nvcc.
set(NAPIER_CUDA_FLAGS -std=c++20 -fmad=false -ftz=false -prec-div=true -prec-sqrt=true)

# napier_cuda_kernels(target source...): objects of kernels.
function(napier_cuda_kernels target)
  add_library(${target} OBJECT ${ARGN})
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}/src")
  target_compile_options(${target} PRIVATE ${NAPIER_CUDA_FLAGS})
  set_target_properties(${target} PROPERTIES
    POSITION_INDEPENDENT_CODE ON CUDA_VISIBILITY_PRESET hidden)
endfunction()
