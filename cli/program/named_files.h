/* cli/program/named_files.h - the files that a command line names: no result may replace another one, or an input. */
#ifndef NAPIER_CLI_NAMED_FILES_H
#define NAPIER_CLI_NAMED_FILES_H

#include <stdbool.h>

typedef struct named_file {
    const char *what; /* "--model", "the input" */
    const char *path; /* NULL or "-": no file */
    bool is_written;
} named_file;

/* Returns STATUS_USAGE after a message if a file to be written is also another file of the list. Links and different
 * paths to one file count as the same file. A result may not replace a file in a folder that is read (a model) either.
 * Devices and pipes may be named twice. */
int named_files_check(const char *command, const named_file *files, int count);

#endif
