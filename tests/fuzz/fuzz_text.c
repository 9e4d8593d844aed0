/* fuzz_text - hostile CSV and TSV: a message, or rows of equal length whose numbers, written again, read back as the same
 * bits. Complaints go to standard error: run the fuzzer with -close_fd_mask=2. */
#include "fuzz_file.h"

#include <math.h>

#include "io/array.h"
#include "io/text.h"
#include "support/formats.h"

static void write_and_read(napier_dtype dtype, double value) {
    char text[TEXT_NUMBER_MAX];
    uint64_t element = 0, again = 0;
    element_set(&element, dtype, 0, value);
    const int size = text_number(text, dtype, &element);
    REQUIRE(size > 0 && size < TEXT_NUMBER_MAX && (int)strlen(text) == size, "%d characters", size);
    char *end;
    element_set(&again, dtype, 0, strtod(text, &end));
    REQUIRE(*end == 0, "'%s'", text);
    REQUIRE(element == again || isnan(value), "%a as %s: '%s' reads as other bits", value, napier_dtype_name(dtype),
            text);
}

FUZZ(in) {
    static const char separators[] = {'\0', ',', '\t', ';'};
    const char separator = separators[take(&in) % 4];
    const size_t ahead = take(&in) % 16;
    const size_t read_ahead = ahead < in.left ? ahead : in.left;
    FILE *const file = fuzz_stream(in.at + read_ahead, in.left - read_ahead);
    text_reader t;
    bool got = true;
    if (text_open(&t, file, "fuzz", separator, in.at, read_ahead, NULL) == 0) {
        REQUIRE(t.columns >= 1, "%lld columns", (long long)t.columns);
        double *const row = fuzz_allocate((size_t)t.columns * sizeof *row);
        while (text_read_row(&t, row, &got) == 0 && got) {
            for (int64_t j = 0; j < t.columns; j++) {
                write_and_read(all_dtypes[j % DTYPE_COUNT], row[j]);
            }
        }
        free(row);
    }
    text_close(&t);
    fclose(file);
}
