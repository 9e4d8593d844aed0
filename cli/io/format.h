/* cli/io/format.h - the file formats and how they are told apart by name. */
#ifndef NAPIER_CLI_FORMAT_H
#define NAPIER_CLI_FORMAT_H

#include <stdbool.h>

typedef enum file_format { FORMAT_AUTO, FORMAT_NPY, FORMAT_CSV, FORMAT_TSV } file_format;

/* "npy", "csv", "tsv"; false for any other word. */
bool format_parse(const char *word, file_format *format);

/* By the end of a file's name: .npy, .csv, .tsv or .tab, in small or capital letters; else AUTO. */
file_format format_of_name(const char *path);

/* What stands between two numbers of a line of text. */
char format_separator(file_format format);

#endif
