/* cli/program/options.h - the options of the commands. A table of them makes the parser, --help and the man page. */
#ifndef NAPIER_CLI_OPTIONS_H
#define NAPIER_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What an option stores in the request. */
typedef enum option_kind {
    OPTION_FLAG,    /* int: 1. It takes no value */
    OPTION_READ,    /* const char *: a file to read */
    OPTION_WRITE,   /* const char *: a file to write */
    OPTION_WRITES,  /* const char *[OPTION_MOST_FILES + 1], NULL ends it: files to write; the option may be repeated */
    OPTION_TEXT,    /* const char * */
    OPTION_WORD,    /* int: the value of one of `words` */
    OPTION_INTEGER, /* int64_t */
    OPTION_NUMBER,  /* double */
    OPTION_SIZE,    /* int64_t: bytes, with K, M or G for units of 1024 */
    OPTION_OTHER    /* what `set` stores */
} option_kind;

enum { OPTION_MOST_FILES = 16 };

typedef struct option_word {
    const char *name; /* NULL ends a list */
    int value;
} option_word;

typedef struct option {
    const char *name; /* without the dashes; NULL ends a table */
    char letter;      /* 0: no short form */
    option_kind kind;
    const char *argument; /* of the help: "FILE"; NULL for a flag */
    size_t offset;        /* of what is stored in the request */
    const char *help;     /* "{}" stands for the list of words */
    const option_word *words;
    double least, most; /* of a number; see OPTION_FROM */
    /* Checks a value, and stores it if the kind is OTHER. Returns NULL, or what is allowed: "a name that ends in .svg" */
    const char *(*set)(void *request, const char *value);
    const char *variable; /* of the environment: its value counts if the option is not given */
    const char *old_name; /* taken too, with a warning; NULL: none */
} option;

/* The range of a number. If `high` is HUGE_VAL, the word inf is allowed. */
#define OPTION_FROM(low, high) .least = (low), .most = (high)
#define OPTION_ABOVE_0(high) .least = OPTION_LEAST_ABOVE_0, .most = (high)
#define OPTION_LEAST_ABOVE_0 0x1p-1074 /* the smallest double above 0 */

typedef struct option_group {
    const char *heading; /* of the help; NULL: none */
    const option *options;
} option_group;

enum { OPTION_MOST = 64 }; /* of a command */

typedef struct option_parser {
    const option_group *groups; /* options NULL ends them */
    void *request;
    const char **operand; /* NULL: no operand is allowed */
    const int *help;      /* the flag of --help, which ends the parsing */
    const char *second;   /* the option that a second operand is probably meant for; NULL: none */
} option_parser;

/* Sets the options and the operand that the words after the command name, then those of the environment. Accepts --name
 * VALUE, --name=VALUE, -o VALUE, -oVALUE; "-" is an operand and "--" ends the options. Returns STATUS_OK, or STATUS_USAGE
 * after a message. */
int options_parse(const option_parser *p, int count, char **words);

/* Finds an option of the command whose words were parsed last; '_' in the name counts as '-'. NULL: it has none of that name. */
const option *options_find(const char *name);

/* Joins the words of an option: "npy, csv or tsv". Returns `out`. */
enum { OPTION_WORDS_SIZE = 160 };
const char *option_words(char out[OPTION_WORDS_SIZE], const option_word *words);

/* The typing errors that turn `word` into the first `size` letters of `typed`; SIZE_MAX if they are too many for `word` to
 * be meant: more than two, or more than half of its letters. 0 for the first three letters or more. */
size_t typing_errors(const char *word, const char *typed, size_t size);

/* Parses all of `text` as a decimal number; returns false for anything else. */
bool parse_integer(const char *text, int64_t least, int64_t most, int64_t *value);
bool parse_number(const char *text, double *value);

#endif
