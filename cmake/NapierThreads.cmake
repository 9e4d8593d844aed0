# The threads of the library's own pool (src/core/base/pool.c): POSIX's, or those of Windows.
#
#   napier_thread_names    their library as a linker knows it, for the installed files; empty where libc has them
find_package(Threads REQUIRED)
set(napier_thread_names "")
if(CMAKE_USE_PTHREADS_INIT AND NOT APPLE)
  set(napier_thread_names pthread)
endif()
