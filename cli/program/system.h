/* cli/program/system.h - what operating systems do differently for a program: its streams and arguments, signals, memory,
 * locks and temporary files. Files go by POSIX's names, which core/base/platform.h gives to Windows too. */
#ifndef NAPIER_CLI_SYSTEM_H
#define NAPIER_CLI_SYSTEM_H

#include "core/base/platform.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Call first in main. On POSIX: if standard streams are closed, opens a file on each of their numbers, so that no file of
 * this program gets such a number; enlarges a stack that is too small, or says that it cannot. On Windows: standard input
 * and output carry bytes, a console shows UTF-8, and the words of the command line become UTF-8. Returns false if that
 * fails. */
bool system_start(int *count, char ***words);

/* From now on a signal that ends the program calls `remove_files` first, which may make only async-signal-safe calls. A
 * signal that was ignored when the program started (nohup) stays ignored. A full pipe or file limit is an error of
 * write, not a signal. */
void system_handle_signals(void (*remove_files)(void));

/* Between the two, no signal calls `remove_files` on this thread. They cannot be nested. On Windows they do
 * nothing: Ctrl-C may leave a temporary file in the moment in which it is made or renamed. */
void system_hold_signals(void);
void system_release_signals(void);

/* Whether this errno of write says that the reader of a pipe has closed it. */
bool system_is_closed_pipe(int error);

/* Bytes of memory of this machine, or fewer if the system limits this process (RLIMIT_DATA, RLIMIT_AS). */
int64_t system_memory(void);

/* Whether no other process has locked this open file; then it is locked until it is closed. True where the file system
 * has no locks. */
bool system_lock(FILE *file);

/* A new file in `directory` that vanishes when it is closed; NULL, and errno. */
FILE *system_temporary_file(const char *directory);
const char *system_temporary_directory(void);

/* `size` bytes of memory that the system pages out to the new, empty `file` (Windows: to its own page file). The map
 * outlives the file. NULL, and errno. */
void *system_map_new(FILE *file, size_t size);
void system_unmap(void *map, size_t size);

#endif
