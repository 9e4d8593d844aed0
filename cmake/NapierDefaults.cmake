# napier_defaults(target): what every C target of this project is compiled with.
#
# -ffp-contract=off is part of the numerics, not a preference: a compiler that fuses a*b+c by itself changes bits.

set(NAPIER_WARNINGS
  -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wundef -Wvla
  -Wstrict-prototypes -Wmissing-prototypes -Wdouble-promotion)

# New clang warns of an enumeration constant among doubles, which C allows: -Wconversion warns where a value may change.
include(CheckCCompilerFlag)
check_c_compiler_flag(-Wenum-float-conversion napier_has_enum_float_conversion)
if(napier_has_enum_float_conversion)
  list(APPEND NAPIER_WARNINGS -Wno-enum-float-conversion)
endif()

# Some linkers refuse a list that names what this build lacks (the model) unless they are told not to.
include(CheckLinkerFlag)
if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
  check_linker_flag(C "LINKER:--undefined-version" napier_has_undefined_version)
endif()

# napier_symbol_versions(target map): the functions that a shared library exports, with their versions.
function(napier_symbol_versions target map)
  get_target_property(type ${target} TYPE)
  if(CMAKE_SYSTEM_NAME STREQUAL "Linux" AND type STREQUAL "SHARED_LIBRARY")
    target_link_options(${target} PRIVATE "LINKER:--version-script=${map}"
      $<$<BOOL:${napier_has_undefined_version}>:LINKER:--undefined-version>)
    set_target_properties(${target} PROPERTIES LINK_DEPENDS "${map}")
  endif()
endfunction()

function(napier_defaults target)
  set_target_properties(${target} PROPERTIES C_STANDARD 11 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF)
  target_compile_options(${target} PRIVATE -ffp-contract=off ${NAPIER_WARNINGS})
  if(WIN32) # files beyond 2 GB; printf as C11 defines it
    target_compile_definitions(${target} PRIVATE _FILE_OFFSET_BITS=64 __USE_MINGW_ANSI_STDIO=1)
  endif()
  if(NAPIER_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(NAPIER_SANITIZE)
    target_compile_options(${target} PRIVATE
      -fsanitize=${NAPIER_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_link_options(${target} PRIVATE -fsanitize=${NAPIER_SANITIZE})
  endif()
endfunction()
