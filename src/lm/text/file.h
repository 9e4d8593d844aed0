/* lm/text/file.h - the files of a model, opened with distrust: regular files only, and never more than a limit. */
#ifndef NAPIER_LM_TEXT_FILE_H
#define NAPIER_LM_TEXT_FILE_H

#include "core/base/context.h"

/* Opens a regular file for reading, with its size: close(*fd) gives it back. A folder, pipe, socket or device is
 * refused by name, and none of them is waited for. Errors: IO_ERROR. */
napier_status napier_open_file(napier_context *context, const char *path, int *fd, size_t *size);

/* All of a regular file, at most `most` bytes, in memory of the context's allocator, ended by 0. Errors: IO_ERROR. */
napier_status napier_read_file(napier_context *context, const char *path, size_t most, char **bytes, size_t *size);

#endif
