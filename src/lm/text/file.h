/* lm/text/file.h - opens the files of a model, which may be hostile: regular files only, and up to a size limit. */
#ifndef NAPIER_LM_TEXT_FILE_H
#define NAPIER_LM_TEXT_FILE_H

#include "core/base/scope.h"

/* Opens a regular file for reading and gets its size. Close *fd with close. A folder, pipe, socket or device is
 * refused, with a message that names it, and never blocks. Errors: IO_ERROR. */
napier_status napier_open_file(napier_context *context, const char *path, int *fd, size_t *size);

/* The path of a file in a folder, in memory of the caller. Errors: OUT_OF_MEMORY. */
napier_status napier_join_path(napier_memory *memory, const char *folder, const char *name, char **path);

/* Reads all of a regular file, at most `most` bytes, into memory from the context's allocator, and appends a 0. Errors:
 * IO_ERROR. */
napier_status napier_read_file(napier_context *context, const char *path, size_t most, char **bytes, size_t *size);

#endif
