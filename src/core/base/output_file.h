/* core/base/output_file.h - a file that is either complete or not written at all.
 *
 * A regular file is written to a temporary file in the same directory, synchronised to the disk, and then renamed to
 * its path in one step. If anything fails before that, the old file is unchanged. A symbolic link keeps pointing to the
 * file, and the file keeps its mode. Each writer has its own temporary file, so of two writers the later one replaces
 * the whole file. A device, a pipe or a socket is opened and written directly.
 *
 *     napier_output_file file;
 *     int error = napier_output_file_place(&file, path);       each returns 0 or an errno
 *     if (!error) error = napier_output_file_open(&file);
 *     ... write to file.fd ...
 *     if (!error) error = napier_output_file_close(&file);
 *     if (!error) error = napier_output_file_move(&file);
 *     napier_output_file_discard(&file);                       after success and after failure
 *
 * Allocates nothing. The library saves models with it. The program napier compiles this file too, because the shared
 * library does not export it. */
#ifndef NAPIER_CORE_BASE_OUTPUT_FILE_H
#define NAPIER_CORE_BASE_OUTPUT_FILE_H

#include <sys/types.h>

enum { NAPIER_PATH_ROOM = 4096 }; /* no system's PATH_MAX is more */

typedef struct napier_output_file {
    int fd;       /* open for writing; -1: none */
    mode_t mode;  /* mode of the existing file; 0: there is none, and umask decides */
    int is_moved; /* 1 if a temporary file is written and renamed: for a regular file, or one that does not exist yet */
    char place[NAPIER_PATH_ROOM];
    char temporary[NAPIER_PATH_ROOM]; /* path of the temporary file; "": none */
} napier_output_file;

/* Resolves `path` and checks that it can be written. Opens nothing. */
int napier_output_file_place(napier_output_file *file, const char *path);

/* Creates the temporary file, or opens the device. Opening a pipe waits for its reader. */
int napier_output_file_open(napier_output_file *file);

/* Synchronises the contents of a regular file to the disk. */
int napier_output_file_sync(const napier_output_file *file);

/* Synchronises and closes. */
int napier_output_file_close(napier_output_file *file);

/* Renames the closed file to its path and synchronises the directory. */
int napier_output_file_move(napier_output_file *file);

/* Closes the file if it is open, and removes the temporary file if there still is one. */
void napier_output_file_discard(napier_output_file *file);

#endif
