/* lm/tokenizer/split_pattern.c - translates an expression for Oniguruma, over characters, to one for PCRE2, over class
 * strings.
 *
 *     alternatives = sequence { "|" sequence }          sequence = { atom [quantifier] }
 *     atom         = "(?:" | "(?i:" | "(?=" | "(?!" | "(", alternatives, ")"  |  set  |  one character
 *     set          = "." | "[" ... "]" | \s | \S | \p{L} | \P{L} ... (L, Lu, Ll, Lt, Lm, Lo, M, N)
 *
 * Each set is written as the list of its codes, and case is resolved here, so the result does not depend on PCRE2's
 * tables. */
#include "lm/tokenizer/split.h"

#include <stdio.h>
#include <string.h>

enum { MOST_DEPTH = 50, MOST_PATTERN = 4096, MOST_REPEAT = 1000 };

typedef struct set {
    bool has[NAPIER_CODES];
} set;

/* After the first failure the functions below emit nothing and read no more alternatives. */
typedef struct parser {
    napier_json *json;
    const char *pattern, *at;
    napier_text_buffer *out;
    int depth;
    char last; /* if case is ignored, the preceding character in lower case; else 0 */
} parser;

static void refuse(const parser *p, const char *why) {
    napier_json_fail(p->json, NAPIER_UNSUPPORTED, "pre_tokenizer: pattern: %s at byte %zu, '%.24s'", why,
                     (size_t)(p->at - p->pattern), napier_show_text(p->at).text);
}

static void emit_bytes(const parser *p, const char *bytes, size_t size) {
    if (!p->json->status) {
        p->json->status = napier_text_buffer_append(p->json->context, p->out, bytes, size);
    }
}

static void emit(const parser *p, const char *text) { emit_bytes(p, text, strlen(text)); }

/* ---- Sets -------------------------------------------------------------------------------------------------------- */

static bool is_digit(int c) { return c >= '0' && c <= '9'; }
static bool is_lower(int c) { return c >= 'a' && c <= 'z'; }
static bool is_upper(int c) { return c >= 'A' && c <= 'Z'; }
static bool is_punctuation(int c) { return c > ' ' && c < 0x7f && !is_digit(c) && !is_lower(c) && !is_upper(c); }
static char lower(char c) { return (char)(is_upper(c) ? c - 'A' + 'a' : c); }

static int code_of(napier_char_class kind) { return NAPIER_FIRST_CLASS + (int)kind; }

/* The characters beyond ASCII of each named set. */
static const struct {
    const char *name; /* of \p{L}; "s" is \s */
    napier_char_class first, last;
} sets[] = {{"L", NAPIER_CHAR_UPPER, NAPIER_CHAR_LETTER},       {"Lu", NAPIER_CHAR_UPPER, NAPIER_CHAR_UPPER},
            {"Ll", NAPIER_CHAR_LOWER, NAPIER_CHAR_LOWER},       {"Lt", NAPIER_CHAR_TITLE, NAPIER_CHAR_TITLE},
            {"Lm", NAPIER_CHAR_MODIFIER, NAPIER_CHAR_MODIFIER}, {"Lo", NAPIER_CHAR_LETTER, NAPIER_CHAR_LETTER},
            {"M", NAPIER_CHAR_MARK, NAPIER_CHAR_MARK},          {"N", NAPIER_CHAR_NUMBER, NAPIER_CHAR_NUMBER},
            {"s", NAPIER_CHAR_SPACE, NAPIER_CHAR_SPACE}};
enum { SETS = sizeof sets / sizeof sets[0], SPACES = SETS - 1 };

static set set_of(int k) {
    set s = {{false}};
    for (int kind = (int)sets[k].first; kind <= (int)sets[k].last; kind++) {
        s.has[code_of((napier_char_class)kind)] = true;
    }
    const bool upper = s.has[code_of(NAPIER_CHAR_UPPER)], lower = s.has[code_of(NAPIER_CHAR_LOWER)];
    for (int c = 0; c < 0x80; c++) {
        const bool is_space = c == ' ' || (c >= '\t' && c <= '\r');
        s.has[c] = (upper && is_upper(c)) || (lower && is_lower(c)) ||
                   (sets[k].first == NAPIER_CHAR_NUMBER && is_digit(c)) || (k == SPACES && is_space);
    }
    s.has[code_of(NAPIER_CHAR_LONG_S)] = lower;
    s.has[code_of(NAPIER_CHAR_KELVIN)] = upper;
    return s;
}

/* True if the set has letters beyond ASCII of one case only. Their other case is not known here. */
static bool is_of_one_case(const set *s) {
    const bool upper = s->has[code_of(NAPIER_CHAR_UPPER)];
    return upper != s->has[code_of(NAPIER_CHAR_LOWER)] || upper != s->has[code_of(NAPIER_CHAR_TITLE)];
}

static void negate(set *s) {
    for (int c = 0; c < NAPIER_CODES; c++) {
        s->has[c] = !s->has[c];
    }
}

/* Adds the other case of all characters in the set. */
static void fold(const parser *p, set *s) {
    if (is_of_one_case(s)) {
        refuse(p, "letters of one case where case is ignored, before");
    }
    const int long_s = code_of(NAPIER_CHAR_LONG_S), kelvin = code_of(NAPIER_CHAR_KELVIN);
    const bool s_in = s->has['s'] || s->has['S'] || s->has[long_s], k_in = s->has['k'] || s->has['K'] || s->has[kelvin];
    for (int c = 'a'; c <= 'z'; c++) {
        s->has[c] = s->has[c - 'a' + 'A'] = s->has[c] || s->has[c - 'a' + 'A'];
    }
    s->has['s'] = s->has['S'] = s->has[long_s] = s_in;
    s->has['k'] = s->has['K'] = s->has[kelvin] = k_in;
}

/* Emits a set, or all that is not in it. */
static void emit_set(const parser *p, const set *s, bool negated) {
    char text[8];
    bool any = false;
    for (int c = 0; c < NAPIER_CODES; c++) {
        if (s->has[c] == negated) {
            continue;
        }
        const int first = c;
        while (c + 1 < NAPIER_CODES && s->has[c + 1] != negated) {
            c++;
        }
        snprintf(text, sizeof text, "%s\\x%02x", any ? "" : "[", (unsigned)first);
        emit(p, text);
        if (c > first) {
            snprintf(text, sizeof text, "-\\x%02x", (unsigned)c);
            emit(p, text);
        }
        any = true;
    }
    emit(p, any ? "]" : "(?!)");
}

/* ---- Escapes and characters -------------------------------------------------------------------------------------- */

/* Reads \p{L} and similar, after the backslash. */
static bool take_property(parser *p, set *s) {
    const char *const at = p->at;
    if ((at[0] != 'p' && at[0] != 'P') || at[1] != '{') {
        return false;
    }
    for (int k = 0; k < SPACES; k++) {
        const size_t size = strlen(sets[k].name);
        if (strncmp(at + 2, sets[k].name, size) == 0 && at[2 + size] == '}') {
            *s = set_of(k);
            if (at[0] == 'P') {
                negate(s);
            }
            p->at += size + 3;
            return true;
        }
    }
    return false;
}

/* One character, or a named set. */
typedef struct item {
    bool single;
    int c; /* the character, if single */
    set set;
} item;

/* Reads an escape after the backslash. */
static item take_escape(parser *p) {
    static const char names[] = "rntf", values[] = "\r\n\t\f";
    item all = {0};
    const char name = *p->at;
    const char *const control = name != '\0' ? strchr(names, name) : NULL;
    if (control != NULL || is_punctuation(name)) {
        all.single = true;
        all.c = (unsigned char)(control != NULL ? values[control - names] : name);
        p->at++;
    } else if (name == 's' || name == 'S') {
        all.set = set_of(SPACES);
        if (name == 'S') {
            negate(&all.set);
        }
        p->at++;
    } else if (!take_property(p, &all.set)) {
        refuse(p, "an escape that is not understood");
    }
    return all;
}

/* Reads one character or a named set. inside: within brackets. */
static item take_item(parser *p, bool inside) {
    const char here = *p->at;
    const char *const special = inside ? "[]&" : "\\^$*+?{}[]|()";
    if (here == '\\') {
        p->at++;
        return take_escape(p);
    }
    item one = {.single = true, .c = (unsigned char)here};
    if (here < ' ' || here > '~' || strchr(special, here) != NULL) { /* also the end, and characters that are not
                                                                        ASCII */
        refuse(p, "not understood");
        one.single = false;
    } else {
        p->at++;
    }
    return one;
}

/* Reads the contents of brackets: characters, ranges, sets. */
static void take_members(parser *p, set *all) {
    do {
        item first = take_item(p, true);
        int to = first.c;
        if (p->at[0] == '-' && p->at[1] != ']' && !p->json->status) {
            p->at++;
            const item last = take_item(p, true);
            to = last.c;
            if (!first.single || !last.single || to < first.c) {
                refuse(p, "a range that is not understood");
            }
        }
        for (int c = first.c; first.single && c <= to; c++) {
            first.set.has[c] = true;
        }
        for (int c = 0; c < NAPIER_CODES; c++) {
            all->has[c] = all->has[c] || first.set.has[c];
        }
    } while (*p->at != ']' && !p->json->status);
}

static void take_brackets(parser *p, bool caseless) {
    set s = {{false}};
    const bool negated = p->at[1] == '^';
    p->at += negated ? 2 : 1;
    take_members(p, &s);
    if (p->json->status) {
        return;
    }
    p->at++;
    p->last = 0;
    if (caseless) {
        fold(p, &s);
    }
    emit_set(p, &s, negated);
}

/* True for pairs of letters that Oniguruma treats as one character if case is ignored ("ss" for U+00DF, "fi" for
 * U+FB01). */
static bool joins(char before, char c) {
    return (before == 's' && (c == 's' || c == 't')) || (before == 'f' && (c == 'f' || c == 'i' || c == 'l'));
}

static void take_single(parser *p, bool caseless) {
    const char last = p->last;
    p->last = 0;
    if (*p->at == '.') {
        const set newline = {.has = {['\n'] = true}};
        p->at++;
        emit_set(p, &newline, true);
        return;
    }
    item one = take_item(p, false);
    if (one.single) {
        one.set.has[one.c] = true;
        if (caseless && joins(last, lower((char)one.c))) {
            refuse(p, "two letters that are one character in another case, before");
        }
    }
    if (caseless) {
        p->last = (char)(one.single ? lower((char)one.c) : 0);
        fold(p, &one.set);
    }
    emit_set(p, &one.set, false);
}

/* ---- Structure --------------------------------------------------------------------------------------------------- */

static bool take_number(parser *p, int *n) {
    const char *const start = p->at;
    for (*n = 0; is_digit(*p->at) && *n <= MOST_REPEAT; p->at++) {
        *n = 10 * *n + (*p->at - '0');
    }
    return p->at > start && *n <= MOST_REPEAT;
}

/* Reads {n}, {n,} or {n,m}. Refuses a suffix whose meaning differs between the engines. */
static void take_counts(parser *p) {
    int least, most;
    const char *const start = p->at++;
    bool good = take_number(p, &least);
    if (good && *p->at == ',') {
        p->at++;
        good = *p->at == '}' || (take_number(p, &most) && most >= least);
    }
    if (!good || *p->at != '}' || (p->at[1] != '\0' && strchr("*+?{", p->at[1]) != NULL)) {
        p->at = start;
        refuse(p, "a count that is not understood");
        return;
    }
    p->at++;
    emit_bytes(p, start, (size_t)(p->at - start));
}

static void take_quantifier(parser *p) {
    if (*p->at == '\0' || strchr("*+?{", *p->at) == NULL || p->json->status) {
        return;
    }
    p->last = 0;
    if (*p->at == '{') {
        take_counts(p);
        return;
    }
    const size_t size = p->at[1] == '?' || p->at[1] == '+' ? 2 : 1; /* lazy or possessive */
    emit_bytes(p, p->at, size);
    p->at += size;
    if (*p->at != '\0' && strchr("*+?{", *p->at) != NULL) {
        refuse(p, "two quantifiers");
    }
}

static void take_alternatives(parser *p, bool caseless);

static void take_group(parser *p, bool caseless) {
    static const struct {
        const char *open, *emitted;
        bool caseless, quantified;
    } kinds[] = {{"(?:", "(?:", false, true},
                 {"(?i:", "(?:", true, true},
                 {"(?=", "(?=", false, false},
                 {"(?!", "(?!", false, false},
                 {"(", "(?:", false, true}};
    size_t k = 0;
    while (strncmp(p->at, kinds[k].open, strlen(kinds[k].open)) != 0) {
        k++; /* the last alternative always fits */
    }
    if ((kinds[k].open[1] == '\0' && p->at[1] == '?') || p->depth == MOST_DEPTH) {
        refuse(p, "a group that is not understood");
        return;
    }
    p->at += strlen(kinds[k].open);
    p->depth++;
    p->last = 0;
    emit(p, kinds[k].emitted);
    take_alternatives(p, caseless || kinds[k].caseless);
    if (*p->at != ')') {
        refuse(p, "a group without end");
        return;
    }
    p->at++;
    p->depth--;
    p->last = 0;
    emit(p, ")");
    if (kinds[k].quantified) {
        take_quantifier(p);
    }
}

static void take_alternatives(parser *p, bool caseless) {
    while (*p->at != '\0' && *p->at != ')' && !p->json->status) {
        if (*p->at == '|') {
            p->at++;
            p->last = 0;
            emit(p, "|");
        } else if (*p->at == '(') {
            take_group(p, caseless);
        } else {
            (*p->at == '[' ? take_brackets : take_single)(p, caseless);
            take_quantifier(p);
        }
    }
}

napier_status napier_split_translate(napier_json *json, const char *pattern, napier_text_buffer *out) {
    parser p = {json, pattern, pattern, out, 0, 0};
    if (strlen(pattern) > MOST_PATTERN) {
        refuse(&p, "longer than 4096 bytes");
    }
    take_alternatives(&p, false);
    if (*p.at != '\0') {
        refuse(&p, "a bracket too many");
    }
    return json->status;
}
