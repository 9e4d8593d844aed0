/* cli/io/format.h - the file formats, and how a file's name tells them apart. */
#ifndef NAPIER_CLI_FORMAT_H
#define NAPIER_CLI_FORMAT_H

#include <stdbool.h>

typedef enum file_format { FORMAT_AUTO, FORMAT_NPY, FORMAT_CSV, FORMAT_TSV } file_format;

/* "npy", "csv", "tsv"; false for any other word. */
bool format_parse(const char *word, file_format *format);

/* The format by the end of a file's name: .npy, .csv, .tsv or .tab, in upper or lower case; else AUTO. */
file_format format_of_name(const char *path);

/* The character between two numbers of a line of text. */
char format_separator(file_format format);

#endif
