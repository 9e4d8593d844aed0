/* lm/tokenizer/jinja/jinja.h - the part of Jinja that chat templates use, as jinja2 runs it with trim_blocks and
 * lstrip_blocks. There is no such library in C.
 *
 * A template comes from a stranger. It reaches only the values that it is given: there are no objects, files, names of
 * Python or other templates. Its work is bounded by steps, memory, and depth. What this interpreter does not know is
 * refused by name, never skipped.
 *
 * There is no syntax tree: the tokens of the template are run. Of an operator or a condition whose operand does not count
 * the tokens are passed over with `dead` set, and nothing is computed. */
#ifndef NAPIER_LM_TOKENIZER_JINJA_H
#define NAPIER_LM_TOKENIZER_JINJA_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lm/text/buffer.h"
#include "lm/tokenizer/chat/chat.h"

/* ---- Values ------------------------------------------------------------------------------------------------------ */

typedef enum jinja_kind {
    JINJA_UNDEFINED,
    JINJA_NONE,
    JINJA_BOOL,
    JINJA_INT,
    JINJA_FLOAT,
    JINJA_TEXT,
    JINJA_LIST,
    JINJA_DICT,
    JINJA_SPACE, /* a namespace: a dict whose members can be set */
    JINJA_MACRO,
    JINJA_FUNCTION,
    JINJA_LONG /* an integer of JSON with more than 18 digits, which is only written: as.text */
} jinja_kind;

typedef struct jinja_list jinja_list;
typedef struct jinja_dict jinja_dict;

typedef struct jinja_value {
    jinja_kind kind;
    union {
        int64_t integer; /* also of BOOL; of MACRO: the index of its first token */
        double number;
        napier_span text; /* also the name of FUNCTION */
        jinja_list *list;
        jinja_dict *dict;
    } as;
} jinja_value;

struct jinja_list {
    int64_t count, capacity;
    jinja_value *items;
    bool is_tuple;
};

typedef struct jinja_pair {
    napier_span key;
    jinja_value value;
} jinja_pair;

struct jinja_dict {
    int64_t count, capacity;
    jinja_pair *pairs;
};

/* ---- Tokens ------------------------------------------------------------------------------------------------------ */

typedef enum jinja_token_kind {
    JINJA_DATA, /* text between tags */
    JINJA_OPEN, /* {{ */
    JINJA_CLOSE,
    JINJA_TAG, /* {% */
    JINJA_END,
    JINJA_NAME,
    JINJA_STRING, /* its escapes are resolved */
    JINJA_NUMBER,
    JINJA_OPERATOR,
    JINJA_EOF
} jinja_token_kind;

typedef struct jinja_token {
    jinja_token_kind kind;
    int32_t line;
    int64_t jump; /* of a TAG of a block: the index of the TAG of its next part or its end */
    napier_span text;
} jinja_token;

/* ---- The interpreter --------------------------------------------------------------------------------------------- */

typedef struct jinja_chunk jinja_chunk;

typedef struct jinja_variable {
    napier_span name;
    jinja_value value;
} jinja_variable;

typedef struct jinja_arguments jinja_arguments;

typedef struct jinja {
    napier_context *context;
    napier_status status; /* of the first failure; nothing more happens after it */
    jinja_chunk *chunks;  /* the memory of all values, freed at the end */
    size_t memory, most_memory;
    int64_t steps, most_steps;
    int depth;
    jinja_token *tokens;
    int64_t count, at; /* at: the next token */
    int dead;          /* not 0: expressions are read, not computed */
    jinja_variable *variables;
    int64_t variable_count, variable_capacity;
    int64_t globals; /* variables of the template itself; a macro sees these and its own */
    int64_t frame;   /* the first variable of the innermost loop or macro, which `set` assigns to */
    int64_t visible; /* the first variable of the running macro */
    bool is_in_frame;
    bool is_builtin; /* the template is the library's own: what it refuses is said in its words alone */
    enum { JINJA_GO, JINJA_BREAK, JINJA_CONTINUE } flow;
    napier_text_buffer out;
    jinja_value (*call_macro)(struct jinja *j, jinja_value macro, const jinja_arguments *a); /* of run.c */
    napier_span date; /* what strftime_now gives; no bytes: what the clock `now` says */
    int64_t now;      /* seconds since 1970, in local time; 0: there is no clock */
} jinja;

/* Begins with no tokens and no variables. `input` bytes of the conversation allow more work. */
void napier_jinja_start(jinja *j, napier_context *context, size_t input);
void napier_jinja_end(jinja *j);

/* Reads a template into tokens, which point into `source`: keep it. */
void napier_jinja_read(jinja *j, napier_span source);
/* Replaces the tokens by those of a text in JSON. */
void napier_jinja_read_json(jinja *j, napier_span json);
/* Sets a variable of the template. */
void napier_jinja_set(jinja *j, const char *name, jinja_value value);
/* A value of JSON. */
jinja_value napier_jinja_json(jinja *j, napier_span json);
jinja_value napier_jinja_read_number(jinja *j, napier_span digits, bool is_negative);
/* Runs the template; j->out is its text. */
void napier_jinja_run(jinja *j);

/* Fails with the status and a message that begins with the line of the template. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
void napier_jinja_fail(jinja *j, const char *format, ...);

/* Replaces control characters of a template's own text, which could change how a terminal works. */
void napier_jinja_clean(char *text);

/* values.c */
void *napier_jinja_take(jinja *j, size_t count, size_t size); /* NULL after a failure */
bool napier_jinja_spend(jinja *j, size_t work);               /* false after a failure */
jinja_value napier_jinja_text(const char *text);
jinja_value napier_jinja_span(napier_span text);
jinja_value napier_jinja_int(int64_t integer);
jinja_value napier_jinja_bool(bool is_true);
jinja_value napier_jinja_list(jinja *j);
jinja_value napier_jinja_tuple(jinja *j);
jinja_value napier_jinja_dict(jinja *j, jinja_kind kind);
void napier_jinja_add(jinja *j, jinja_value v, jinja_value item);                   /* to a list */
void napier_jinja_put(jinja *j, jinja_value v, napier_span key, jinja_value value); /* into a dict */
jinja_value *napier_jinja_member(jinja_value v, napier_span key);                   /* of a dict; NULL: none */
bool napier_jinja_is_true(jinja_value v);
bool napier_jinja_equal(jinja *j, jinja_value a, jinja_value b);
bool napier_jinja_same(napier_span a, const char *b);
napier_span napier_jinja_copy(jinja *j, napier_span a, napier_span b); /* the two, joined */
napier_span napier_jinja_string(jinja *j, jinja_value v);              /* as str() */
napier_span napier_jinja_to_json(jinja *j, jinja_value v, int64_t indent);
jinja_value napier_jinja_items(jinja *j, jinja_value v); /* the list that a loop runs over */
const char *napier_jinja_kind_name(jinja_kind kind);
double napier_jinja_number(jinja_value v);
bool napier_jinja_is_number(jinja_value v);

/* format.c: Python's % of a text, and its method format */
jinja_value napier_jinja_percent(jinja *j, napier_span text, jinja_value with);
jinja_value napier_jinja_format(jinja *j, napier_span text, const jinja_arguments *a);

/* operators.c */
jinja_value napier_jinja_binary(jinja *j, const char *operator, jinja_value a, jinja_value b);
bool napier_jinja_compare(jinja *j, const char *operator, jinja_value a, jinja_value b);

/* text.c */
int64_t napier_jinja_length(napier_span text); /* in characters */
napier_span napier_jinja_part(napier_span text, int64_t from, int64_t to);
int64_t napier_jinja_find(napier_span text, napier_span part, size_t from); /* bytes; -1: not there */

/* calls.c: methods of values, filters, tests and functions */
enum { JINJA_MOST_ARGUMENTS = 16 };
struct jinja_arguments {
    int count;
    jinja_value values[JINJA_MOST_ARGUMENTS];
    napier_span names[JINJA_MOST_ARGUMENTS]; /* no bytes: by position, which come first */
};
jinja_value napier_jinja_method(jinja *j, jinja_value of, napier_span name, const jinja_arguments *a);
jinja_value napier_jinja_filter(jinja *j, jinja_value v, napier_span name, const jinja_arguments *a);
bool napier_jinja_test(jinja *j, jinja_value v, napier_span name, const jinja_arguments *a);
jinja_value napier_jinja_function(jinja *j, napier_span name, const jinja_arguments *a);
jinja_value napier_jinja_attribute(jinja *j, jinja_value of, napier_span name);

/* expression.c, variables.c. A macro, which run.c runs, is called in an expression. */
jinja_value napier_jinja_expression(jinja *j);
jinja_value napier_jinja_operand(jinja *j); /* an expression that is no A if CONDITION else B */
jinja_value napier_jinja_lookup(jinja *j, napier_span name);
void napier_jinja_assign(jinja *j, napier_span name, jinja_value value);
bool napier_jinja_next_is(const jinja *j, jinja_token_kind kind, const char *text);
bool napier_jinja_accept(jinja *j, jinja_token_kind kind, const char *text);
void napier_jinja_expect(jinja *j, jinja_token_kind kind, const char *text);
bool napier_jinja_enter(jinja *j); /* false, after a failure, where the nesting is too deep */

#endif
