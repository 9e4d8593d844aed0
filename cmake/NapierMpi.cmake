# napier_mpi: the calls of napier/mpi.h. It links libnapier and MPI.
set(napier_have_mpi FALSE)
if(NAPIER_MPI)
  find_package(MPI QUIET COMPONENTS C)
  set(napier_have_mpi ${MPI_C_FOUND})
endif()
if(NOT napier_have_mpi)
  message(STATUS "MPI: no napier_mpi (no MPI found or asked for)")
  return()
endif()
message(STATUS "MPI: napier_mpi for MPI ${MPI_C_VERSION}")

file(GLOB napier_mpi_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/mpi/*.c")
add_library(napier_mpi ${napier_mpi_sources})
napier_defaults(napier_mpi)
target_include_directories(napier_mpi SYSTEM PRIVATE ${MPI_C_INCLUDE_DIRS})
target_include_directories(napier_mpi PUBLIC
  "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>" "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
target_link_libraries(napier_mpi PUBLIC napier PRIVATE "$<BUILD_INTERFACE:MPI::MPI_C>" m)
set_target_properties(napier_mpi PROPERTIES
  C_VISIBILITY_PRESET hidden VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
napier_symbol_versions(napier_mpi "${PROJECT_SOURCE_DIR}/cmake/napier_mpi.map")
add_library(napier::napier_mpi ALIAS napier_mpi)
