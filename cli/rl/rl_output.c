/* cli/rl/rl_output.c - writes results. */
#include "rl_output.h"

#include "../program/message.h"
#include "../program/options.h"
#include "../io/text.h"

#include <math.h>
#include <string.h>

bool rl_format_parse(const char *word, rl_format *format) {
    static const char *const words[] = {"jsonl", "npy", "csv", "tsv", NULL};
    static const rl_format formats[] = {RL_FORMAT_JSONL, RL_FORMAT_NPY, RL_FORMAT_CSV, RL_FORMAT_TSV};
    const int index = word_index(word, words);
    if (index >= 0) {
        *format = formats[index];
    }
    return index >= 0;
}

rl_format rl_format_resolve(rl_format format, const char *path) {
    if (format != RL_FORMAT_AUTO) {
        return format;
    }
    switch (path != NULL ? format_of_name(path) : FORMAT_AUTO) {
    case FORMAT_NPY: return RL_FORMAT_NPY;
    case FORMAT_CSV: return RL_FORMAT_CSV;
    case FORMAT_TSV: return RL_FORMAT_TSV;
    case FORMAT_AUTO: break;
    }
    return RL_FORMAT_JSONL;
}

int rl_write_format(const char *path, rl_format format, const array_shape *shape, float *numbers) {
    output out;
    const file_format file = format == RL_FORMAT_CSV ? FORMAT_CSV : format == RL_FORMAT_TSV ? FORMAT_TSV : FORMAT_NPY;
    int status = output_open(&out, path);
    if (status == STATUS_OK) {
        status = output_begin(&out, file, NAPIER_F32, shape, NULL);
    }
    if (status == STATUS_OK) {
        status = output_write(&out, numbers, shape_count(shape));
    }
    if (status == STATUS_OK) {
        status = output_commit(&out);
    }
    output_discard(&out);
    return status;
}

int rl_write_array(const char *path, const array_shape *shape, float *numbers) {
    return rl_write_format(path, rl_format_resolve(RL_FORMAT_AUTO, path), shape, numbers);
}

static void print_number(FILE *file, napier_dtype dtype, const void *number) {
    char text[TEXT_NUMBER_MAX];
    const double value = element_value(dtype, number);
    if (isfinite(value)) {
        text_number(text, dtype, number);
    }
    fputs(isnan(value) ? "NaN" : isinf(value) ? (value > 0 ? "Infinity" : "-Infinity") : text, file);
}

void rl_print_f64(FILE *file, double value) { print_number(file, NAPIER_F64, &value); }
void rl_print_f32(FILE *file, float value) { print_number(file, NAPIER_F32, &value); }

int rl_finish(output *out) { return ferror(out->file) ? output_error(out) : output_commit(out); }
