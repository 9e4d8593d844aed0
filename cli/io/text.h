/* cli/io/text.h - numbers as text, CSV and TSV: read line by line, and written so that they read back with the same
 * bits.
 *
 * Input: one row of the table per line, LF or CRLF. Numbers are decimal, nan, inf or infinity, with or without a sign,
 * in upper or lower case. Fields may be quoted and have spaces around them. Blank lines, lines that start with '#', and
 * a byte order mark are skipped. A first line whose first field is not a number is a header. Every row has as many
 * fields as the first; an empty field is an error. */
#ifndef NAPIER_CLI_TEXT_H
#define NAPIER_CLI_TEXT_H

#include "lines.h"

#include <napier/types.h>

typedef struct text_reader {
    const char *name; /* for messages */
    char separator;
    const char *wanted; /* which columns are read, as of text_open; NULL: all */
    bool *chosen;       /* [fields] the same; NULL: all */
    int64_t fields;     /* of every line */
    char *header;       /* the header line, of the chosen fields; NULL: none */
    int64_t columns;    /* of every row: the chosen fields; at least 1 */
    int64_t first_line;
    int64_t line;      /* number of the last line read, from 1 */
    double *row;       /* the first row, read ahead */
    bool row_is_ahead; /* and not yet returned */
    line_reader lines;
} text_reader;

/* Starts reading a file whose first `size` bytes have been read into `bytes` already. If `separator` is '\0', it is a
 * tab if the first line has one, else a comma. Reads the header and the first row. `wanted` lists the columns to read, in
 * the order of the file: names of the header, numbers from 1, or ranges as 2-5, with commas; NULL: all. Close the reader
 * even after a failure. */
int text_open(text_reader *t, FILE *file, const char *name, char separator, const void *bytes, size_t size,
              const char *wanted);

/* Reads the next row of `columns` numbers; *got is false at the end of the file. */
int text_read_row(text_reader *t, double *row, bool *got);

void text_close(text_reader *t);

/* Writes the shortest decimal number that reads back with the same bits of its dtype: at most 9 digits for f32 and 17
 * for f64. Returns its size. */
enum { TEXT_NUMBER_MAX = 32 };
int text_number(char text[TEXT_NUMBER_MAX], napier_dtype dtype, const void *element);

#endif
