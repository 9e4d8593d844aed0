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

/* The first bytes are those that the formats' specifications name. */
const char *format_foreign(const char *bytes, size_t size) {
    static const struct {
        const char *magic;
        size_t size;
        const char *what;
    } known[] = {
        {"PAR1\x15", 5, "a Parquet file: convert it first, as pandas.read_parquet(FILE).to_csv(OUT, index=False)"},
        {"ARROW1\0", 7, "an Arrow file: convert it first, as pandas.read_feather(FILE).to_csv(OUT, index=False)"},
        {"\x89HDF\r\n", 6, "an HDF5 file: convert it first, as numpy.save(OUT, h5py.File(FILE)[NAME][:])"},
        {"\x1f\x8b", 2, "a gzip file: unpack it first, as gzip -dc FILE"},
        {"\x28\xb5\x2f\xfd", 4, "a zstd file: unpack it first, as zstd -dc FILE"},
        {"BZh91AY&SY", 10, "a bzip2 file: unpack it first, as bzip2 -dc FILE"},
        {"\x80\x02", 2, NULL},
        {"\x80\x03", 2, NULL},
        {"\x80\x04", 2, NULL},
        {"\x80\x05", 2, NULL},
        {"PK\3\4", 4,
         "a zip archive (.npz, .xlsx?): unpack an .npz and give one of its arrays; save a spreadsheet as CSV"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (size >= known[i].size && memcmp(bytes, known[i].magic, known[i].size) == 0) {
            return known[i].what != NULL ? known[i].what : "a pickle: load it in Python and numpy.save the array";
        }
    }
    return NULL;
}
