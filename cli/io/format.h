/* cli/io/format.h - the file formats, and how a file's name tells them apart. */
#ifndef NAPIER_CLI_FORMAT_H
#define NAPIER_CLI_FORMAT_H

#include "program/options.h"

typedef enum file_format { FORMAT_AUTO, FORMAT_NPY, FORMAT_CSV, FORMAT_TSV, FORMAT_JSONL } file_format;

/* The words of options: formats of arrays; these and jsonl; dtypes. */
extern const option_word array_formats[], result_formats[], dtype_words[];

/* Whether a name ends so, in upper or lower case. */
bool ends_in(const char *path, const char *ending);

/* The format by the end of a file's name: .npy, .csv, .tsv or .tab, in upper or lower case; else AUTO. NULL is allowed. */
file_format format_of_name(const char *path);

/* What a file is that begins with these bytes and is neither text nor .npy: "a Parquet file: ...", with the way to convert
 * it; NULL: none that is known. */
const char *format_foreign(const char *bytes, size_t size);

/* The character between two numbers of a line of text. */
char format_separator(file_format format);

#endif
