# The CUDA half: kernels (src/*/*.cu) compiled by nvcc, and the runtime linked in. Its host half is in every build.
#
# NAPIER_CUDA AUTO: where a working nvcc is found. The runtime is linked statically, so the library also loads on machines
# without CUDA, where it finds no device.

set(napier_cuda_default AUTO)
if(DEFINED ENV{NAPIER_CUDA}) # what a script that builds Napier several times wants
  set(napier_cuda_default $ENV{NAPIER_CUDA})
endif()
set(NAPIER_CUDA ${napier_cuda_default} CACHE STRING "Kernels for NVIDIA GPUs: AUTO (where nvcc is found), ON or OFF")
set_property(CACHE NAPIER_CUDA PROPERTY STRINGS AUTO ON OFF)
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES "80-real;90" CACHE STRING "GPUs to compile for; the last one's PTX also serves later ones")
endif()

set(napier_have_cuda FALSE)
if(NAPIER_CUDA STREQUAL "AUTO")
  include(CheckLanguage)
  set(ENV{CUDAARCHS} 80) # CMake's own default is older than today's nvcc takes
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(napier_have_cuda TRUE)
  endif()
elseif(NAPIER_CUDA)
  set(napier_have_cuda TRUE)
endif()
if(napier_have_cuda)
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  message(STATUS "CUDA: kernels for ${CMAKE_CUDA_ARCHITECTURES}, nvcc ${CMAKE_CUDA_COMPILER_VERSION}")
else()
  message(STATUS "CUDA: none (no nvcc found or asked for)")
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
