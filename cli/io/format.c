/* cli/io/format.c - file formats. */
#include "format.h"

#include <napier/types.h>

#include <string.h>

const option_word result_formats[] = {
    {"jsonl", FORMAT_JSONL}, {"npy", FORMAT_NPY}, {"csv", FORMAT_CSV}, {"tsv", FORMAT_TSV}, {NULL, 0}};
const option_word array_formats[] = {{"npy", FORMAT_NPY}, {"csv", FORMAT_CSV}, {"tsv", FORMAT_TSV}, {NULL, 0}};
const option_word dtype_words[] = {
    {"f32", NAPIER_F32}, {"f16", NAPIER_F16}, {"bf16", NAPIER_BF16}, {"f64", NAPIER_F64}, {NULL, 0}};

bool ends_in(const char *path, const char *ending) {
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
    return path == NULL                                     ? FORMAT_AUTO
           : ends_in(path, ".npy")                          ? FORMAT_NPY
           : ends_in(path, ".csv")                          ? FORMAT_CSV
           : ends_in(path, ".tsv") || ends_in(path, ".tab") ? FORMAT_TSV
                                                            : FORMAT_AUTO;
}

char format_separator(file_format format) { return format == FORMAT_TSV ? '\t' : ','; }
