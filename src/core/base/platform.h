/* core/base/platform.h - what operating systems do differently: files, mapped files, aligned memory, the clock, processors.
 *
 * Napier's sources call files by POSIX's names. On POSIX this header includes the headers that declare them, and adds
 * nothing else to the sources. On Windows it gives the same names to functions of platform.c:
 *
 * - Paths are UTF-8, whatever the code page of the process is. '/' and '\' both separate folders.
 * - Files are opened for bytes, not for text, and another process may rename or delete a file that is open.
 * - stat finds the number by which two paths to one file are recognized.
 *
 * A source that calls POSIX through this header asks for it (_POSIX_C_SOURCE or _XOPEN_SOURCE) before its first #include. The
 * program napier compiles platform.c too, because the shared library does not export it. */
#ifndef NAPIER_CORE_BASE_PLATFORM_H
#define NAPIER_CORE_BASE_PLATFORM_H

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

/* `size` bytes on a multiple of `alignment`, a power of two that is at least the size of a pointer; NULL if there is no
 * memory. From 2 MB on it lies on huge pages if the system has them. Windows frees such memory in its own way. */
void *napier_aligned_take(size_t alignment, size_t size);
void napier_aligned_give(void *memory);
/* From 1 MB on, `size` rounded up to whole huge pages, so that the whole block can lie on them. */
size_t napier_whole_pages(size_t size);

/* Nanoseconds of a clock that never goes back. */
uint64_t napier_nanoseconds(void);

/* The processors that the process may use, at least 1: those that its affinity allows, but no more than its quota, rounded
 * up. */
int napier_processors(void);
/* The processors that the quota of the process's control group comes to (cpu.max of version 2, cpu.cfs_quota_us of 1), or of
 * a group around it if that is less; 0 if there is no quota. Linux only. `root` is "", but for tests. */
double napier_processor_quota(const char *root);

/* The number of the processor that this thread runs on; -1 if the system does not tell. */
int napier_this_processor(void);
/* Moves this thread to another processor of those that it may use, if it runs on this one. Linux only. */
void napier_leave_processor(int number);

/* The size of the last level of caches; 0 if the system does not tell. */
int64_t napier_cache_bytes(void);

/* The part of a path behind its last separator of folders. */
const char *napier_path_name(const char *path);

/* Maps the first `size` bytes (> 0) of an open file to be read; NULL, and errno, if that fails. A file that another
 * program shortens while it is mapped ends the process (SIGBUS on POSIX), and on Windows cannot be shortened. */
const void *napier_map_file(int fd, size_t size);
void napier_unmap_file(const void *map, size_t size);

#ifdef _WIN32

/* The members of struct stat that Napier uses. */
struct napier_windows_stat {
    uint64_t st_dev, st_ino;
    int64_t st_size;
    unsigned st_mode;
};

/* As POSIX defines them. */
int napier_windows_open(const char *path, int flags, ...);
ssize_t napier_windows_read(int fd, void *bytes, size_t size);
ssize_t napier_windows_write(int fd, const void *bytes, size_t size);
FILE *napier_windows_fopen(const char *path, const char *mode);
int napier_windows_stat(const char *path, struct napier_windows_stat *info);
int napier_windows_fstat(int fd, struct napier_windows_stat *info);
int napier_windows_access(const char *path, int mode);
int napier_windows_unlink(const char *path);
int napier_windows_rename(const char *from, const char *to);
char *napier_windows_realpath(const char *path, char *out); /* `out` has 4096 bytes */
int napier_windows_fsync(int fd);
int napier_windows_fchmod(int fd, unsigned mode); /* does nothing: a new file has its folder's permissions */

#define open napier_windows_open
#define read napier_windows_read
#define write napier_windows_write
#define fopen napier_windows_fopen
#undef stat /* the headers of mingw-w64 define these two, for files beyond 2 GB */
#undef fstat
#define stat napier_windows_stat
#define fstat napier_windows_fstat
#define access napier_windows_access
#define unlink napier_windows_unlink
#define rename napier_windows_rename
#define realpath napier_windows_realpath
#define fsync napier_windows_fsync
#define fchmod napier_windows_fchmod

#define O_CLOEXEC O_NOINHERIT
#define O_NOCTTY 0
#define O_NONBLOCK 0 /* opening a named pipe does not wait */
#define S_ISSOCK(mode) ((void)(mode), 0)

#endif
#endif
