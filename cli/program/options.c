/* cli/program/options.c - parses options. For an unknown option it suggests the most similar one. */
#include "options.h"

#include "message.h"

#include <errno.h>
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

static int unknown_option(const option_scan *scan, const char *word, const char *name, size_t size) {
    const option_spec *nearest = NULL;
    size_t best = 3; /* two typing errors are allowed */
    for (const option_spec *s = scan->specs; s->name != NULL; s++) {
        const size_t distance = edit_distance(s->name, name, size);
        if (distance < best) {
            best = distance;
            nearest = s;
        }
    }
    char shown[64];
    printable(shown, sizeof shown, word, strcspn(word, "="));
    if (nearest != NULL) {
        misuse(scan->command, "unknown option '%s'; is '--%s' meant?", shown, nearest->name);
    } else {
        misuse(scan->command, "unknown option '%s'", shown);
    }
    return OPTION_MISUSE;
}

/* Takes the option's value: the text after the '=' or the letter, or the next word. */
static int take_value(option_scan *scan, const option_spec *spec, const char *attached) {
    scan->value = attached;
    if (attached == NULL) {
        if (scan->next == scan->count) {
            misuse(scan->command, "option '--%s' needs a value", spec->name);
            return OPTION_MISUSE;
        }
        scan->value = scan->words[scan->next++];
    }
    return spec->id;
}

static int long_option(option_scan *scan, const char *word) {
    const char *const name = word + 2;
    const size_t size = strcspn(name, "=");
    const char *const attached = name[size] == '=' ? name + size + 1 : NULL;
    for (const option_spec *s = scan->specs; s->name != NULL; s++) {
        if (strlen(s->name) != size || memcmp(s->name, name, size) != 0) {
            continue;
        }
        if (s->takes_value) {
            return take_value(scan, s, attached);
        }
        if (attached != NULL) {
            misuse(scan->command, "option '--%s' takes no value", s->name);
            return OPTION_MISUSE;
        }
        return s->id;
    }
    return unknown_option(scan, word, name, size);
}

static int short_option(option_scan *scan, const char *word) {
    for (const option_spec *s = scan->specs; s->name != NULL; s++) {
        if (s->letter == word[1] && (s->takes_value || word[2] == '\0')) {
            return s->takes_value ? take_value(scan, s, word[2] != '\0' ? word + 2 : NULL) : s->id;
        }
    }
    return unknown_option(scan, word, word + 1, strcspn(word + 1, "="));
}

int option_next(option_scan *scan) {
    if (scan->next == scan->count) {
        return OPTION_END;
    }
    char *const word = scan->words[scan->next++];
    if (!scan->only_operands && strcmp(word, "--") == 0) {
        scan->only_operands = true;
        return option_next(scan);
    }
    if (scan->only_operands || word[0] != '-' || word[1] == '\0') {
        scan->value = word;
        return OPTION_OPERAND;
    }
    return word[1] == '-' ? long_option(scan, word) : short_option(scan, word);
}

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

bool parse_size(const char *text, int64_t *bytes) {
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

int bad_value(const char *command, const char *option, const char *value, const char *wanted) {
    char shown[64];
    return misuse(command, "--%s: '%s' is not %s", option, printable(shown, sizeof shown, value, strlen(value)),
                  wanted);
}

int word_index(const char *text, const char *const *words) {
    for (int i = 0; words[i] != NULL; i++) {
        if (strcmp(text, words[i]) == 0) {
            return i;
        }
    }
    return -1;
}
