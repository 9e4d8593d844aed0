/* cli/program/options.c - parses options. For an unknown option it suggests the most similar one. */
#define _POSIX_C_SOURCE 200809L

#include "options.h"

#include "message.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The number of letters to insert, delete or replace to turn a into b (Levenshtein), for short words. */
static size_t edit_distance(const char *a, const char *b, size_t b_size) {
    enum { LONGEST = 31 };
    size_t row[LONGEST + 1];
    const size_t a_size = strlen(a);
    if (a_size > LONGEST || b_size > LONGEST) {
        return LONGEST;
    }
    for (size_t i = 0; i <= a_size; i++) {
        row[i] = i;
    }
    for (size_t j = 1; j <= b_size; j++) {
        size_t diagonal = row[0];
        row[0] = j;
        for (size_t i = 1; i <= a_size; i++) {
            const size_t exchanged = diagonal + (a[i - 1] != b[j - 1]);
            const size_t other = (row[i] < row[i - 1] ? row[i] : row[i - 1]) + 1;
            diagonal = row[i];
            row[i] = exchanged < other ? exchanged : other;
        }
    }
    return row[a_size];
}

size_t typing_errors(const char *word, const char *typed, size_t size) {
    if (size >= 3 && strncmp(word, typed, size) == 0) {
        return 0; /* its first letters */
    }
    const size_t distance = edit_distance(word, typed, size);
    return distance <= 2 && 2 * distance <= strlen(word) ? distance : SIZE_MAX;
}

/* ---- Numbers ----------------------------------------------------------------------------------------------------- */

bool parse_integer(const char *text, int64_t least, int64_t most, int64_t *value) {
    const char *const digits = *text == '-' || *text == '+' ? text + 1 : text;
    if (*digits == '\0' || strspn(digits, "0123456789") != strlen(digits)) {
        return false;
    }
    errno = 0;
    const long long parsed = strtoll(text, NULL, 10);
    if (errno != 0 || parsed < least || parsed > most) {
        return false;
    }
    *value = parsed;
    return true;
}

bool parse_number(const char *text, double *value) {
    if (*text == '\0' || strspn(text, "0123456789+-.eE") != strlen(text)) {
        return false;
    }
    char *end;
    *value = strtod(text, &end);
    return *end == '\0';
}

static bool parse_size(const char *text, int64_t *bytes) {
    static const char units[] = "KMG";
    char digits[24];
    const size_t size = strlen(text);
    if (size == 0 || size >= sizeof digits) {
        return false;
    }
    memcpy(digits, text, size + 1);
    int shift = 0;
    const char *const unit = strchr(units, digits[size - 1]);
    if (unit != NULL) {
        shift = 10 * (int)(unit - units + 1);
        digits[size - 1] = '\0';
    }
    int64_t count;
    if (!parse_integer(digits, 0, INT64_MAX >> shift, &count)) {
        return false;
    }
    *bytes = (int64_t)((uint64_t)count << shift);
    return true;
}

/* ---- Values ------------------------------------------------------------------------------------------------------ */

const char *option_words(char out[OPTION_WORDS_SIZE], const option_word *words) {
    int at = 0;
    for (int i = 0; words[i].name != NULL; i++) {
        const char *const between = i == 0 ? "" : words[i + 1].name == NULL ? " or " : ", ";
        at += snprintf(out + at, OPTION_WORDS_SIZE - (size_t)at, "%s%s", between, words[i].name);
    }
    return out;
}

/* Describes what a number may be: "a number above 0, at most 3600". A limit that no one meets is not named. */
static const char *allowed_numbers(char out[OPTION_WORDS_SIZE], const option *o) {
    const char *const what = o->kind == OPTION_INTEGER    ? "a whole number"
                             : o->kind == OPTION_SIZE     ? "a number of bytes (K, M, G for more)"
                             : o->most == (double)DBL_MAX ? "a finite number"
                                                          : "a number";
    const bool is_above = o->least == OPTION_LEAST_ABOVE_0;
    const int at =
        snprintf(out, OPTION_WORDS_SIZE, "%s %s %.7g", what, is_above ? "above" : "from", is_above ? 0 : o->least);
    if (isinf(o->most)) {
        snprintf(out + at, OPTION_WORDS_SIZE - (size_t)at, ", or inf");
    } else if (o->most < INT32_MAX) {
        snprintf(out + at, OPTION_WORDS_SIZE - (size_t)at, "%s %.7g", is_above ? ", at most" : " to", o->most);
    }
    return out;
}

static bool in_range(const option *o, double value) { return value >= o->least && value <= o->most; }

static bool set_number(const option *o, const char *value, double *to) {
    const bool is_infinite = isinf(o->most) && strcmp(value, "inf") == 0;
    double number = HUGE_VAL;
    if ((!is_infinite && !parse_number(value, &number)) || !in_range(o, number)) {
        return false;
    }
    *to = number;
    return true;
}

static bool set_integer(const option *o, const char *value, int64_t *to) {
    int64_t number;
    const bool is_number =
        o->kind == OPTION_SIZE ? parse_size(value, &number) : parse_integer(value, INT64_MIN, INT64_MAX, &number);
    if (!is_number || !in_range(o, (double)number)) {
        return false;
    }
    *to = number;
    return true;
}

static bool set_word(const option *o, const char *value, int *to) {
    for (const option_word *w = o->words; w->name != NULL; w++) {
        if (strcmp(value, w->name) == 0) {
            *to = w->value;
            return true;
        }
    }
    return false;
}

static bool add_file(const char *value, const char **files) {
    int count = 0;
    while (count < OPTION_MOST_FILES && files[count] != NULL) {
        count++;
    }
    files[count] = count < OPTION_MOST_FILES ? value : NULL;
    return count < OPTION_MOST_FILES;
}

/* Stores a value. Returns NULL, or what is allowed instead. */
static const char *store(const option *o, void *request, const char *value, char allowed[OPTION_WORDS_SIZE]) {
    void *const to = (char *)request + o->offset;
    switch (o->kind) {
    case OPTION_FLAG: *(int *)to = 1; return NULL;
    case OPTION_READ:
    case OPTION_WRITE:
    case OPTION_TEXT: *(const char **)to = value; return NULL;
    case OPTION_WRITES: return add_file(value, to) ? NULL : "one of at most 16 files";
    case OPTION_WORD: return set_word(o, value, to) ? NULL : option_words(allowed, o->words);
    case OPTION_NUMBER: return set_number(o, value, to) ? NULL : allowed_numbers(allowed, o);
    case OPTION_INTEGER:
    case OPTION_SIZE: return set_integer(o, value, to) ? NULL : allowed_numbers(allowed, o);
    case OPTION_OTHER: break;
    }
    return NULL;
}

/* `name` is that of the option, with its dashes, or of a variable of the environment. */
static int set_option(const option_parser *p, const option *o, const char *name, const char *value) {
    char allowed[OPTION_WORDS_SIZE];
    const char *wanted = o->set != NULL ? o->set(p->request, value) : NULL;
    if (wanted == NULL) {
        wanted = store(o, p->request, value, allowed);
    }
    return wanted == NULL ? STATUS_OK : misuse("%s: '%s' is not %s", name, value, wanted);
}

/* ---- The words of the command line ------------------------------------------------------------------------------- */

typedef struct scan {
    const option_parser *parser;
    const option *options[OPTION_MOST]; /* of all groups */
    bool is_given[OPTION_MOST];
    int option_count;
    int count, next; /* of the words */
    char **words;
} scan;

static int unknown_option(const scan *s, const char *word, const char *name, size_t size) {
    const option *nearest = NULL;
    size_t best = SIZE_MAX;
    for (int i = 0; i < s->option_count; i++) {
        const size_t distance = typing_errors(s->options[i]->name, name, size);
        if (distance < best) {
            best = distance;
            nearest = s->options[i];
        }
    }
    const int shown = (int)strcspn(word, "=");
    return nearest != NULL ? misuse("unknown option '%.*s'; is '--%s' meant?", shown, word, nearest->name)
                           : misuse("unknown option '%.*s'", shown, word);
}

/* Sets option `i`. Its value is `attached`, the text after the '=' or the letter, or else the next word. */
static int take_option(scan *s, int i, const char *attached) {
    const option *const o = s->options[i];
    char name[64];
    snprintf(name, sizeof name, "--%s", o->name);
    if (o->kind == OPTION_FLAG && attached != NULL) {
        return misuse("option '%s' takes no value", name);
    }
    if (o->kind != OPTION_FLAG && attached == NULL) {
        if (s->next == s->count) {
            return misuse("option '%s' needs a value", name);
        }
        attached = s->words[s->next++];
    }
    s->is_given[i] = true;
    return set_option(s->parser, o, name, attached);
}

static bool is_word(const char *name, const char *word, size_t size) {
    return name != NULL && strlen(name) == size && memcmp(name, word, size) == 0;
}

static int long_option(scan *s, const char *word) {
    const char *const name = word + 2;
    const size_t size = strcspn(name, "=");
    for (int i = 0; i < s->option_count; i++) {
        const option *const o = s->options[i];
        const bool is_old = is_word(o->old_name, name, size);
        if (is_old && !s->is_given[i]) {
            warn("--%s is now --%s", o->old_name, o->name);
        }
        if (is_old || is_word(o->name, name, size)) {
            return take_option(s, i, name[size] == '=' ? name + size + 1 : NULL);
        }
    }
    return unknown_option(s, word, name, size);
}

static int short_option(scan *s, const char *word) {
    for (int i = 0; i < s->option_count; i++) {
        const option *const o = s->options[i];
        if (o->letter == word[1] && (o->kind != OPTION_FLAG || word[2] == '\0')) {
            return take_option(s, i, word[2] != '\0' ? word + 2 : NULL);
        }
    }
    return unknown_option(s, word, word + 1, strcspn(word + 1, "="));
}

static int take_operand(const option_parser *p, const char *word) {
    if (p->operand == NULL || *p->operand != NULL) {
        return p->operand == NULL  ? misuse("takes no file")
               : p->second == NULL ? misuse("one input at a time; '%s' is a second", word)
                                   : misuse("one input at a time; is '--%s %s' meant?", p->second, word);
    }
    *p->operand = word;
    return STATUS_OK;
}

static int parse_words(scan *s) {
    bool only_operands = false;
    int status = STATUS_OK;
    while (s->next < s->count && status == STATUS_OK && !*s->parser->help) {
        const char *const word = s->words[s->next++];
        if (only_operands || word[0] != '-' || word[1] == '\0') {
            status = take_operand(s->parser, word);
        } else if (strcmp(word, "--") == 0) {
            only_operands = true;
        } else {
            status = word[1] == '-' ? long_option(s, word) : short_option(s, word);
        }
    }
    return status;
}

/* An empty variable counts as unset. */
static int parse_environment(const scan *s) {
    int status = STATUS_OK;
    for (int i = 0; i < s->option_count && status == STATUS_OK; i++) {
        const char *const variable = s->is_given[i] ? NULL : s->options[i]->variable;
        const char *const value = variable != NULL ? getenv(variable) : NULL;
        if (value != NULL && *value != '\0') {
            status = set_option(s->parser, s->options[i], variable, value);
        }
    }
    return status;
}

static const option_group *running; /* the groups of the command */

static bool is_named(const option *o, const char *name) {
    size_t i = 0;
    while (name[i] != '\0' && o->name[i] == (name[i] == '_' ? '-' : name[i])) {
        i++;
    }
    return name[i] == '\0' && o->name[i] == '\0';
}

const option *options_find(const char *name) {
    for (const option_group *g = running; g != NULL && g->options != NULL; g++) {
        for (const option *o = g->options; o->name != NULL; o++) {
            if (is_named(o, name)) {
                return o;
            }
        }
    }
    return NULL;
}

int options_parse(const option_parser *p, int count, char **words) {
    scan s = {.parser = p, .count = count, .words = words};
    running = p->groups;
    for (const option_group *g = p->groups; g->options != NULL; g++) {
        for (const option *o = g->options; o->name != NULL; o++) {
            s.options[s.option_count++] = o;
        }
    }
    const int status = parse_words(&s);
    return status == STATUS_OK && !*p->help ? parse_environment(&s) : status;
}
