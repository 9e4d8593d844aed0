# The libraries that tokenizer and model stand on: cJSON (tokenizer.json, config.json, headers of safetensors), PCRE2 (the
# tokenizer's regular expression) and utf8proc (Unicode's normal form C). All three, or src/lm is left out.
#
#   napier_have_model        whether src/lm is built
#   napier_model_includes    folders of headers
#   napier_model_libraries   by path, for this build; napier_model_names: as a linker knows them, for the installed files

macro(napier_find_cjson)
  find_path(NAPIER_CJSON_INCLUDE cjson/cJSON.h)
  find_library(NAPIER_CJSON_LIBRARY cjson)
  mark_as_advanced(NAPIER_CJSON_INCLUDE NAPIER_CJSON_LIBRARY)
  napier_warn_of_old_cjson()
endmacro()

# Before 1.7.18 cJSON_ParseWithLength, which reads all JSON here, may read beyond a text that is cut off (CVE-2023-53154).
# Distributions mend that without a new number, so an old one is named and not refused.
function(napier_warn_of_old_cjson)
  get_property(told GLOBAL PROPERTY napier_cjson_told)
  if(told OR NOT NAPIER_CJSON_INCLUDE)
    return()
  endif()
  set_property(GLOBAL PROPERTY napier_cjson_told TRUE)
  set(version "")
  foreach(part MAJOR MINOR PATCH)
    file(STRINGS "${NAPIER_CJSON_INCLUDE}/cjson/cJSON.h" line REGEX "define CJSON_VERSION_${part} ")
    string(REGEX MATCH "[0-9]+$" number "${line}")
    list(APPEND version "${number}")
  endforeach()
  list(JOIN version "." version)
  if(version VERSION_LESS 1.7.18)
    message(STATUS "cJSON ${version} is older than 1.7.18, which mends a read beyond hostile texts (CVE-2023-53154): "
      "make sure that it is mended (in Debian 12 from 1.7.15-1+deb12u3 on)")
  endif()
endfunction()

set(napier_have_model FALSE)
if(NAPIER_MODEL)
  napier_find_cjson()
  find_path(NAPIER_PCRE2_INCLUDE pcre2.h)
  find_library(NAPIER_PCRE2_LIBRARY pcre2-8)
  find_path(NAPIER_UTF8PROC_INCLUDE utf8proc.h)
  find_library(NAPIER_UTF8PROC_LIBRARY utf8proc)
  mark_as_advanced(NAPIER_PCRE2_INCLUDE NAPIER_PCRE2_LIBRARY NAPIER_UTF8PROC_INCLUDE NAPIER_UTF8PROC_LIBRARY)
  set(napier_model_lacks "")
  foreach(library CJSON PCRE2 UTF8PROC)
    if(NOT NAPIER_${library}_INCLUDE OR NOT NAPIER_${library}_LIBRARY)
      string(TOLOWER "${library}" library)
      list(APPEND napier_model_lacks ${library})
    endif()
  endforeach()
  if(napier_model_lacks STREQUAL "")
    set(napier_have_model TRUE)
    set(napier_model_includes "${NAPIER_CJSON_INCLUDE}" "${NAPIER_PCRE2_INCLUDE}" "${NAPIER_UTF8PROC_INCLUDE}")
    set(napier_model_libraries "${NAPIER_CJSON_LIBRARY}" "${NAPIER_PCRE2_LIBRARY}" "${NAPIER_UTF8PROC_LIBRARY}")
    set(napier_model_names cjson pcre2-8 utf8proc)
    list(REMOVE_DUPLICATES napier_model_includes)
  else()
    list(JOIN napier_model_lacks ", " napier_model_lacks)
    message(STATUS "Tokenizer and model: left out (not found: ${napier_model_lacks})")
  endif()
else()
  message(STATUS "Tokenizer and model: left out (NAPIER_MODEL is off)")
endif()

# For programs that call those rooms where they are built, and say so where they are not.
function(napier_use_model target)
  if(napier_have_model)
    target_compile_definitions(${target} PRIVATE NAPIER_MODEL)
    target_include_directories(${target} SYSTEM PRIVATE ${napier_model_includes})
    target_link_libraries(${target} PRIVATE ${napier_model_libraries})
  endif()
endfunction()
