# A toolchain file: zig's C compiler, which has the headers and libraries of many systems (`pip install ziglang`).
#
#     cmake -S . -B build/mac --toolchain cmake/zig.cmake -DNAPIER_TARGET=aarch64-macos
#
# NAPIER_TARGET   x86_64-macos, aarch64-macos, x86_64-windows-gnu, aarch64-windows-gnu, x86_64-linux-gnu.2.28,
#                 aarch64-linux-gnu.2.28 and the like
# NAPIER_ZIG      the program zig, where neither PATH nor the Python on PATH has it
# NAPIER_SYSROOT  a folder with include/ and lib/ of more libraries for the target, such as cJSON; none by default
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES NAPIER_TARGET NAPIER_ZIG NAPIER_SYSROOT)

if(NOT NAPIER_ZIG)
  find_program(NAPIER_ZIG zig)
endif()
if(NOT NAPIER_ZIG)
  execute_process(COMMAND python3 -c "import os, ziglang; print(os.path.join(os.path.dirname(ziglang.__file__), 'zig'))"
    OUTPUT_VARIABLE napier_zig OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  set(NAPIER_ZIG "${napier_zig}" CACHE FILEPATH "The program zig" FORCE)
endif()
if(NOT NAPIER_ZIG OR NOT NAPIER_TARGET)
  message(FATAL_ERROR "cmake/zig.cmake: needs zig (pip install ziglang, or -DNAPIER_ZIG=...) and -DNAPIER_TARGET=...")
endif()

if(NAPIER_TARGET MATCHES "macos")
  set(CMAKE_SYSTEM_NAME Darwin)
elseif(NAPIER_TARGET MATCHES "windows")
  set(CMAKE_SYSTEM_NAME Windows)
else()
  set(CMAKE_SYSTEM_NAME Linux)
endif()
string(REGEX MATCH "^[a-z0-9_]+" CMAKE_SYSTEM_PROCESSOR "${NAPIER_TARGET}")

# zig would add checks of undefined behaviour to builds without -O.
set(CMAKE_C_COMPILER "${NAPIER_ZIG}" cc -target ${NAPIER_TARGET} -fno-sanitize=all)
set(CMAKE_C_ARCHIVE_CREATE "\"${NAPIER_ZIG}\" ar qc <TARGET> <OBJECTS>")
set(CMAKE_C_ARCHIVE_APPEND "\"${NAPIER_ZIG}\" ar q <TARGET> <OBJECTS>")
set(CMAKE_C_ARCHIVE_FINISH "\"${NAPIER_ZIG}\" ranlib <TARGET>")
set(CMAKE_C_LINKER_DEPFILE_SUPPORTED FALSE)

# The libraries of this machine are not the target's.
set(CMAKE_FIND_ROOT_PATH "${NAPIER_SYSROOT}")
foreach(kind LIBRARY INCLUDE PACKAGE)
  set(CMAKE_FIND_ROOT_PATH_MODE_${kind} ONLY)
endforeach()
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
if(NOT NAPIER_SYSROOT)
  set(CMAKE_FIND_ROOT_PATH /nonexistent)
endif()
