# The man page is written in Markdown (docs/napier.1.md) and turned into napier.1 by lowdown, where that is installed.
set(napier_man_source "${CMAKE_CURRENT_SOURCE_DIR}/docs/napier.1.md")
find_program(LOWDOWN lowdown)
mark_as_advanced(LOWDOWN)
if(LOWDOWN AND EXISTS "${napier_man_source}")
  set(napier_man_page "${CMAKE_CURRENT_BINARY_DIR}/napier.1")
  add_custom_command(OUTPUT "${napier_man_page}"
    COMMAND "${LOWDOWN}" -s -T man -o "${napier_man_page}" "${napier_man_source}"
    DEPENDS "${napier_man_source}" COMMENT "Man page napier.1" VERBATIM)
  add_custom_target(napier_man ALL DEPENDS "${napier_man_page}")
elseif(NOT LOWDOWN)
  message(STATUS "Man page: left out (lowdown is not installed)")
endif()
