# cmake -Dname=<stem> -Dtext=<stem>.cl -Dout=<stem>.c -Dcuda=ON|OFF -P: the text of one .cu file as a C array, and its kernels.
#
# A kernel's address is its identity (NAPIER_CUDA_KERNEL). Without CUDA nothing else defines it, so it becomes a function, each
# with another variable, for linkers may merge functions that are equal.
file(READ "${text}" source)
string(REGEX MATCHALL "CUDA_KERNEL\\([a-z0-9_]+" kernels "${source}")
list(TRANSFORM kernels REPLACE "CUDA_KERNEL.(.*)" "\\1")
list(LENGTH kernels count)
# OpenCL C has no pointers to functions; structs of the host's headers do, which no kernel reads.
string(REGEX REPLACE "[a-z0-9_]+ [*]*\\([*]([a-z0-9_]+)\\)\\([^;{}]*\\);" "void *\\1;" source "${source}")
string(REGEX REPLACE "typedef [a-z0-9_]+ [*]*([a-z0-9_]+)\\([^;{}]*\\);" "typedef void \\1;" source "${source}")
file(WRITE "${text}" "${source}")
set(code "#include \"core/gpu/opencl/opencl.h\"\n")
set(entries)
foreach(kernel IN LISTS kernels)
  string(APPEND code "void ${kernel}(void);\n")
  if(NOT cuda)
    string(APPEND code "void ${kernel}(void) { static volatile char called; called = 1; (void)called; }\n")
  endif()
  string(APPEND entries "{${kernel}, \"${kernel}\"}, ")
endforeach()
set(bytes NULL)
if(NOT source MATCHES "cuda_(mma|ldmatrix)_") # tensor cores
  file(READ "${text}" hex HEX)
  string(REGEX REPLACE "(..)" "0x\\1," hex "${hex}")
  string(APPEND code "static const unsigned char text[] = {${hex}0};\n")
  set(bytes "(const char *)text")
endif()
file(WRITE "${out}" "${code}static const napier_opencl_entry entries[] = {${entries}};
extern const napier_opencl_file napier_opencl_text_${name};
const napier_opencl_file napier_opencl_text_${name} = {${bytes}, entries, ${count}};\n")
