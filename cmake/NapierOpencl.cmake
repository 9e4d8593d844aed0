# The OpenCL half: one text of each .cu file for the device's compiler, and the table of the kernels' names.
#
# The C compiler resolves what a text includes, with the names of core/gpu/kernel_opencl.h left as they are. OpenCL comes from the
# loader libOpenCL, which is no vendor's.

option(NAPIER_OPENCL "Let the kernels run on devices of OpenCL (needs the OpenCL headers and loader)" OFF)
if(NAPIER_OPENCL)
  find_package(OpenCL REQUIRED)
endif()

# napier_opencl_kernels(target kernel...): adds the texts to the target, and OpenCL to those of its sources that use it.
function(napier_opencl_kernels target)
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/opencl")
  foreach(header assert float limits math stdbool stddef stdint string) # kernel_opencl.h has what is needed of them
    file(CONFIGURE OUTPUT "${folder}/headers/${header}.h" CONTENT "")
  endforeach()
  set(declared)
  set(listed)
  foreach(source IN LISTS ARGN)
    cmake_path(GET source STEM stem)
    add_custom_command(OUTPUT "${folder}/${stem}.c"
      COMMAND "${CMAKE_C_COMPILER}" -E -P -x c -undef -nostdinc -D__OPENCL_C_VERSION__=300 -DCUDA_KERNEL=CUDA_KERNEL
        "-I${folder}/headers" "-I${PROJECT_SOURCE_DIR}/include" "-I${PROJECT_SOURCE_DIR}/src"
        -MD -MF "${folder}/${stem}.d" -MT "${folder}/${stem}.c" -o "${folder}/${stem}.cl" "${source}"
      COMMAND "${CMAKE_COMMAND}" "-Dname=${stem}" "-Dtext=${folder}/${stem}.cl" "-Dout=${folder}/${stem}.c"
        "-Dcuda=${napier_have_cuda}" -P "${PROJECT_SOURCE_DIR}/cmake/opencl_text.cmake"
      DEPENDS "${source}" "${PROJECT_SOURCE_DIR}/cmake/opencl_text.cmake" DEPFILE "${folder}/${stem}.d" VERBATIM
      COMMENT "OpenCL C of ${stem}.cu")
    target_sources(${target} PRIVATE "${folder}/${stem}.c")
    string(APPEND declared "extern const napier_opencl_file napier_opencl_text_${stem};\n")
    string(APPEND listed "&napier_opencl_text_${stem}, ")
  endforeach()
  file(CONFIGURE OUTPUT "${folder}/opencl_files.c" CONTENT "#include \"core/gpu/opencl/opencl.h\"
${declared}const napier_opencl_file *const napier_opencl_files[] = {${listed}NULL};\n" @ONLY)
  target_sources(${target} PRIVATE "${folder}/opencl_files.c")
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "/gpu/|^${folder}")
  set_property(SOURCE ${sources} APPEND PROPERTY COMPILE_DEFINITIONS NAPIER_OPENCL)
  target_include_directories(${target} SYSTEM PRIVATE ${OpenCL_INCLUDE_DIRS})
  napier_embed(${target} "${PROJECT_SOURCE_DIR}/src/core/gpu/kernel_opencl.h" kernel_opencl_text)
endfunction()
