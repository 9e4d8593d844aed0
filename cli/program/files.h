/* cli/program/files.h - the files that a command line names. */
#ifndef NAPIER_CLI_FILES_H
#define NAPIER_CLI_FILES_H

#include "command.h"

/* Is the path "-", for standard input or output? */
bool is_standard(const char *path);

/* Checks the files that the options of a command name. Only one file can be standard input, and one result standard
 * output. No result may replace another one, or an input; links and different paths to one file count as the same file.
 * A result may not replace a file in a folder that is read (a model) either. Devices and pipes may be named twice. A
 * file that cannot be written is found here, before the work, which may take long; writing it may still fail later. */
int files_check(const command *c, const base_request *q);

#endif
