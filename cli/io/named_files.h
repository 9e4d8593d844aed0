/* cli/io/named_files.h - the files that a command line names: no result may replace another one, or an input. */
#ifndef NAPIER_CLI_NAMED_FILES_H
#define NAPIER_CLI_NAMED_FILES_H

#include <stdbool.h>

typedef struct named_file {
    const char *what; /* "--model", "the input" */
    const char *path; /* NULL or "-": no file */
    bool is_written;
} named_file;

/* STATUS_USAGE after a message where a file that is written is also another one of the list, by whatever name: links and
 * different paths to one file count. Nor may it replace a file in a folder that is read (a model). Devices and pipes may
 * be named twice. */
int named_files_check(const char *command, const named_file *files, int count);

#endif
