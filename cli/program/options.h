/* cli/program/options.h - the command line: options, operands, and the values they take. */
#ifndef NAPIER_CLI_OPTIONS_H
#define NAPIER_CLI_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct option_spec {
    int id;           /* > 0; what option_next returns */
    const char *name; /* without the dashes; NULL ends a table */
    char letter;      /* '\0': no short form */
    bool takes_value;
} option_spec;

typedef struct option_scan {
    const char *command; /* for messages */
    const option_spec *specs;
    int count;
    char **words; /* the words after the command */
    int next;
    bool only_operands; /* "--" has been read */
    const char *value;  /* of the option just returned, or the operand */
} option_scan;

enum { OPTION_OPERAND = 0, OPTION_END = -1, OPTION_MISUSE = -2 };

/* Returns the id of the next option, OPTION_OPERAND, OPTION_END, or OPTION_MISUSE after a message. Accepts --name
 * VALUE, --name=VALUE, -o VALUE, -oVALUE; "-" is an operand and "--" ends the options. */
int option_next(option_scan *scan);

/* Parses all of `text` as a decimal number; returns false for anything else. */
bool parse_integer(const char *text, int64_t least, int64_t most, int64_t *value);
bool parse_number(const char *text, double *value);
/* Bytes, with K, M or G for units of 1024. */
bool parse_size(const char *text, int64_t *bytes);

/* Prints "--beta: '-1' is not a number from 0" and where to find help. Returns STATUS_USAGE. */
int bad_value(const char *command, const char *option, const char *value, const char *wanted);

/* The index of `text` in a NULL-terminated list of words, or -1. */
int word_index(const char *text, const char *const *words);

#endif
