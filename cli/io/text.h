/* cli/io/text.h - numbers as text: CSV and TSV, read line by line, and written so that they read back as the same bits.
 *
 * Read: one row of the table per line, LF or CRLF; decimal numbers, nan, inf, infinity with or without a sign, in any
 * case; fields may be quoted and have spaces around them. Blank lines and lines that start with '#' are skipped, and so
 * is a byte order mark. A first line whose first field is no number is a header. Every row has as many fields as the
 * first; an empty field is an error. */
#ifndef NAPIER_CLI_TEXT_H
#define NAPIER_CLI_TEXT_H

#include <napier/types.h>

#include <stdbool.h>
#include <stdio.h>

typedef struct text_reader {
    FILE *file;
    const char *name; /* for messages */
    char separator;
    char *header;    /* the header line; NULL: none */
    int64_t columns; /* of every row; at least 1 */
    int64_t first_line;
    int64_t line;      /* number of the last line read, from 1 */
    double *row;       /* the first row, read ahead */
    bool row_is_ahead; /* and not yet given out */
    char *bytes;       /* the file from its next line on: bytes[start .. end) */
    size_t start, end, capacity;
    bool at_end;
} text_reader;

/* Starts on a file whose first `size` bytes have been read already into `bytes`. `separator` '\0': a tab if the first
 * line has one, else a comma. Reads the header and the first row. Close the reader even after a failure. */
int text_open(text_reader *t, FILE *file, const char *name, char separator, const void *bytes, size_t size);

/* The next row, `columns` numbers; *got is false at the end of the file. */
int text_read_row(text_reader *t, double *row, bool *got);

void text_close(text_reader *t);

/* The shortest decimal number that reads back as the same bits of its dtype: at most 9 digits for f32 and 17 for f64.
 * Returns its size. */
enum { TEXT_NUMBER_MAX = 32 };
int text_number(char text[TEXT_NUMBER_MAX], napier_dtype dtype, const void *element);

#endif
