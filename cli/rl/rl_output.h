/* cli/rl/rl_output.h - results of grpo, kl and rubric: JSON as Python's json writes it, or arrays. */
#ifndef NAPIER_CLI_RL_OUTPUT_H
#define NAPIER_CLI_RL_OUTPUT_H

#include "../io/output.h"

typedef enum rl_format { RL_FORMAT_AUTO, RL_FORMAT_JSONL, RL_FORMAT_NPY, RL_FORMAT_CSV, RL_FORMAT_TSV } rl_format;

/* "jsonl", "npy", "csv", "tsv"; false for any other word. */
bool rl_format_parse(const char *word, rl_format *format);

/* AUTO becomes the format of the name, JSON Lines where it has none. */
rl_format rl_format_resolve(rl_format format, const char *path);

/* f32 numbers to a file by its name: .csv and .tsv as text, all else .npy. */
int rl_write_array(const char *path, const array_shape *shape, float *numbers);
/* The same in a format that is not JSON Lines. */
int rl_write_format(const char *path, rl_format format, const array_shape *shape, float *numbers);

/* A number with as few digits as read back as the same; NaN, Infinity and -Infinity where it is not finite. */
void rl_print_f64(FILE *file, double value);
void rl_print_f32(FILE *file, float value);

/* What ends an output that has been printed to: commits it, or says what was wrong with it. */
int rl_finish(output *out);

#endif
