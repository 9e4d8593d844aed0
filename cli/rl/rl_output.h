/* cli/rl/rl_output.h - results of grpo, kl and rubric: JSON as Python's json writes it, or arrays. */
#ifndef NAPIER_CLI_RL_OUTPUT_H
#define NAPIER_CLI_RL_OUTPUT_H

#include "../io/output.h"

typedef enum rl_format { RL_FORMAT_AUTO, RL_FORMAT_JSONL, RL_FORMAT_NPY, RL_FORMAT_CSV, RL_FORMAT_TSV } rl_format;

/* "jsonl", "npy", "csv", "tsv"; false for any other word. */
bool rl_format_parse(const char *word, rl_format *format);

/* Replaces AUTO by the format of the name, or by JSON Lines if the name has none. */
rl_format rl_format_resolve(rl_format format, const char *path);

/* Writes f32 numbers to a file in the format of its name: .csv and .tsv as text, all others as .npy. */
int rl_write_array(const char *path, const array_shape *shape, float *numbers);
/* The same in a given format other than JSON Lines. */
int rl_write_format(const char *path, rl_format format, const array_shape *shape, float *numbers);

/* Prints a number with the fewest digits that read back as the same value, or NaN, Infinity and -Infinity. */
void rl_print_f64(FILE *file, double value);
void rl_print_f32(FILE *file, float value);

/* Ends an output after printing: commits it, or reports what went wrong. */
int rl_finish(output *out);

#endif
