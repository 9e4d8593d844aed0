/* cli/io/format.c - file formats. */
#include "format.h"

#include "../program/options.h"

#include <string.h>

bool format_parse(const char *word, file_format *format) {
    static const char *const words[] = {"npy", "csv", "tsv", NULL};
    static const file_format formats[] = {FORMAT_NPY, FORMAT_CSV, FORMAT_TSV};
    const int index = word_index(word, words);
    if (index < 0) {
        return false;
    }
    *format = formats[index];
    return true;
}

static bool ends_in(const char *path, const char *ending) {
    const size_t size = strlen(path);
    const size_t tail = strlen(ending);
    if (size < tail) {
        return false;
    }
    for (size_t i = 0; i < tail; i++) {
        const char c = path[size - tail + i];
        if ((c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c) != ending[i]) {
            return false;
        }
    }
    return true;
}

file_format format_of_name(const char *path) {
    if (ends_in(path, ".npy")) {
        return FORMAT_NPY;
    }
    if (ends_in(path, ".csv")) {
        return FORMAT_CSV;
    }
    return ends_in(path, ".tsv") || ends_in(path, ".tab") ? FORMAT_TSV : FORMAT_AUTO;
}

char format_separator(file_format format) { return format == FORMAT_TSV ? '\t' : ','; }
