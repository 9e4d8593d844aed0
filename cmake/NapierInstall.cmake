# make install: library (shared and archive), headers, program, man page, licence, and the files by which CMake
# (find_package(napier)) and pkg-config find them. Everything is relocatable.
include(CMakePackageConfigHelpers)

install(TARGETS ${napier_installed} EXPORT napier-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET napier_mpi)
  install(TARGETS napier_mpi EXPORT napier-targets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
set(napier_no_mpi PATTERN mpi.h EXCLUDE)
if(TARGET napier_mpi)
  set(napier_no_mpi)
endif()
install(DIRECTORY include/napier DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" ${napier_no_mpi})

# The documents, and the examples that they name. Links to what is not installed become plain text.
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs examples DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING REGEX "[.](png|svg|c|py|sh)$"
  PATTERN site EXCLUDE)
file(GLOB napier_documents RELATIVE "${CMAKE_CURRENT_SOURCE_DIR}" README.md NEWS.md docs/*.md docs/tutorials/*.md)
foreach(document IN LISTS napier_documents)
  file(READ ${document} text)
  string(REGEX REPLACE "\\[([^]]*)\\]\\((\\.\\./)*((src|bench|tests|cli|mpi|data|include|python|tools|cmake)(/[^)]*)?|CONTRIBUTING[^)]*)\\)" "\\1"
    text "${text}")
  file(CONFIGURE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/installed/${document}" CONTENT "@text@" @ONLY)
  get_filename_component(folder ${document} DIRECTORY)
  install(FILES "${CMAKE_CURRENT_BINARY_DIR}/installed/${document}" DESTINATION ${CMAKE_INSTALL_DOCDIR}/${folder})
endforeach()
if(TARGET napier_cli)
  install(TARGETS napier_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
if(napier_man_page)
  install(FILES "${napier_man_page}" DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endif()

set(napier_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/napier)
install(EXPORT napier-targets NAMESPACE napier:: DESTINATION ${napier_package_dir})
configure_package_config_file(cmake/napier-config.cmake.in "${CMAKE_CURRENT_BINARY_DIR}/napier-config.cmake"
  INSTALL_DESTINATION ${napier_package_dir})
# A program of an earlier minor version runs with this one: the soname is that of the major version.
write_basic_package_version_file("${CMAKE_CURRENT_BINARY_DIR}/napier-config-version.cmake"
  COMPATIBILITY SameMajorVersion)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/napier-config.cmake" "${CMAKE_CURRENT_BINARY_DIR}/napier-config-version.cmake"
  DESTINATION ${napier_package_dir})

# pkg-config: the prefix is found from where the file lies, so that the tree may be moved.
set(napier_pc_private -lm)
foreach(name IN LISTS napier_thread_names)
  list(APPEND napier_pc_private -l${name})
endforeach()
if(napier_have_model)
  list(TRANSFORM napier_model_names PREPEND -l OUTPUT_VARIABLE napier_pc_model)
  list(APPEND napier_pc_private ${napier_pc_model})
endif()
if(napier_have_cuda) # the archive does not contain the CUDA runtime
  list(APPEND napier_pc_private -L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -ldl -lrt -lpthread)
endif()
list(JOIN napier_pc_private " " napier_pc_private)
if(BUILD_SHARED_LIBS)
  set(napier_pc_libs "-lnapier")
else()
  set(napier_pc_libs "-lnapier ${napier_pc_private}")
endif()
file(RELATIVE_PATH napier_pc_to_prefix "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
string(REGEX REPLACE "/$" "" napier_pc_to_prefix "${napier_pc_to_prefix}")
configure_file(cmake/napier.pc.in napier.pc @ONLY)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/napier.pc" DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(TARGET napier_mpi)
  configure_file(cmake/napier_mpi.pc.in napier_mpi.pc @ONLY)
  install(FILES "${CMAKE_CURRENT_BINARY_DIR}/napier_mpi.pc" DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()
