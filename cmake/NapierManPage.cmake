# The man page is docs/napier.1.md, with the options that `napier help --man` lists in place of a line, turned into
# napier.1 by man.awk, where there is an awk. Run as a script (cmake -P), this file makes the page.
set(napier_man_mark "<!-- options -->")
if(CMAKE_SCRIPT_MODE_FILE)
  execute_process(COMMAND ${PROGRAM} help --man OUTPUT_VARIABLE options COMMAND_ERROR_IS_FATAL ANY)
  file(READ "${SOURCE}" page)
  string(REPLACE "${napier_man_mark}" "${options}" page "${page}")
  file(WRITE "${OUTPUT}.md" "${page}")
  execute_process(COMMAND "${AWK}" -f "${CMAKE_CURRENT_LIST_DIR}/man.awk" "${OUTPUT}.md" OUTPUT_FILE "${OUTPUT}"
    COMMAND_ERROR_IS_FATAL ANY)
  return()
endif()

set(napier_man_source "${CMAKE_CURRENT_SOURCE_DIR}/docs/napier.1.md")
find_program(NAPIER_AWK NAMES awk mawk gawk)
mark_as_advanced(NAPIER_AWK)
if(CMAKE_CROSSCOMPILING AND NOT CMAKE_CROSSCOMPILING_EMULATOR)
  message(STATUS "Man page: left out (the program, which lists its options, cannot run here)")
elseif(NAPIER_AWK AND EXISTS "${napier_man_source}")
  set(napier_man_page "${CMAKE_CURRENT_BINARY_DIR}/napier.1")
  add_custom_command(OUTPUT "${napier_man_page}"
    COMMAND "${CMAKE_COMMAND}" "-DPROGRAM=${CMAKE_CROSSCOMPILING_EMULATOR};$<TARGET_FILE:napier_cli>" "-DAWK=${NAPIER_AWK}"
      "-DSOURCE=${napier_man_source}" "-DOUTPUT=${napier_man_page}" -P "${CMAKE_CURRENT_LIST_FILE}"
    DEPENDS napier_cli "${napier_man_source}" "${CMAKE_CURRENT_LIST_DIR}/man.awk" COMMENT "Man page napier.1" VERBATIM)
  add_custom_target(napier_man ALL DEPENDS "${napier_man_page}")
elseif(NOT NAPIER_AWK)
  message(STATUS "Man page: left out (no awk found)")
endif()
