/* lm/tokenizer/split_pattern.c - translates an expression for Oniguruma, over characters, to one for PCRE2, over class
 * strings.
 *
 *     alternatives = sequence { "|" sequence }          sequence = { atom [quantifier] }
 *     atom         = "(?:" | "(?i:" | "(?=" | "(?!" | "(", alternatives, ")"  |  set  |  one character
 *     set          = "." | "[" ... "]" | \s | \S | \p{L} | \P{L} ... (L, M, N)
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

typedef struct parser {
    const napier_json *json;
    const char *pattern, *at;
    napier_text_buffer *out;
    int depth;
    char last; /* if case is ignored, the preceding character in lower case; else 0 */
} parser;

static napier_status refuse(const parser *p, const char *why) {
    const napier_shown shown = napier_show(p->at, strlen(p->at));
    return napier_json_fail(p->json, NAPIER_UNSUPPORTED, "pre_tokenizer: pattern: %s at byte %zu, '%.24s'", why,
                            (size_t)(p->at - p->pattern), shown.text);
}

static napier_status emit(const parser *p, const char *text) {
    return napier_text_buffer_append(p->json->context, p->out, text, strlen(text));
}

/* ---- Sets ----------------------------------------------------------------------------------------------------------
 */

static bool is_digit(int c) { return c >= '0' && c <= '9'; }
static bool is_lower(int c) { return c >= 'a' && c <= 'z'; }
static bool is_upper(int c) { return c >= 'A' && c <= 'Z'; }
static bool is_punctuation(int c) { return c > ' ' && c < 0x7f && !is_digit(c) && !is_lower(c) && !is_upper(c); }
static char lower(char c) { return (char)(is_upper(c) ? c - 'A' + 'a' : c); }

static int code_of(napier_char_class kind) { return NAPIER_FIRST_CLASS + (int)kind; }

/* The characters of \p{L}, \p{M}, \p{N}, or 's' for \s. */
static set set_of(char name) {
    set s = {{false}};
    for (int c = 0; c < 0x80; c++) {
        s.has[c] = name == 'L' ? is_lower(c) || is_upper(c) : name == 'N' ? is_digit(c) : false;
        s.has[c] = s.has[c] || (name == 's' && (c == ' ' || (c >= '\t' && c <= '\r')));
    }
    s.has[code_of(NAPIER_CHAR_LETTER)] = s.has[code_of(NAPIER_CHAR_LONG_S)] = s.has[code_of(NAPIER_CHAR_KELVIN)] =
        name == 'L';
    s.has[code_of(NAPIER_CHAR_MARK)] = name == 'M';
    s.has[code_of(NAPIER_CHAR_NUMBER)] = name == 'N';
    s.has[code_of(NAPIER_CHAR_SPACE)] = name == 's';
    return s;
}

static void negate(set *s) {
    for (int c = 0; c < NAPIER_CODES; c++) {
        s->has[c] = !s->has[c];
    }
}

static void unite(set *s, const set *other) {
    for (int c = 0; c < NAPIER_CODES; c++) {
        s->has[c] = s->has[c] || other->has[c];
    }
}

/* Adds the other case of all characters in the set. */
static void fold(set *s) {
    const int long_s = code_of(NAPIER_CHAR_LONG_S), kelvin = code_of(NAPIER_CHAR_KELVIN);
    const bool s_in = s->has['s'] || s->has['S'] || s->has[long_s], k_in = s->has['k'] || s->has['K'] || s->has[kelvin];
    for (int c = 'a'; c <= 'z'; c++) {
        s->has[c] = s->has[c - 'a' + 'A'] = s->has[c] || s->has[c - 'a' + 'A'];
    }
    s->has['s'] = s->has['S'] = s->has[long_s] = s_in;
    s->has['k'] = s->has['K'] = s->has[kelvin] = k_in;
}

static napier_status emit_set(const parser *p, const set *s) {
    char text[8];
    bool any = false;
    napier_status status = NAPIER_OK;
    for (int c = 0; c < NAPIER_CODES && !status; c++) {
        if (!s->has[c]) {
            continue;
        }
        const int first = c;
        for (; c + 1 < NAPIER_CODES && s->has[c + 1]; c++) {
        }
        snprintf(text, sizeof text, "%s\\x%02x", any ? "" : "[", (unsigned)first);
        status = emit(p, text);
        if (!status && c > first) {
            snprintf(text, sizeof text, "-\\x%02x", (unsigned)c);
            status = emit(p, text);
        }
        any = true;
    }
    return status ? status : emit(p, any ? "]" : "(?!)");
}

/* ---- Escapes and characters ----------------------------------------------------------------------------------------
 */

/* Reads \p{L} and similar, after the backslash. */
static bool take_property(parser *p, set *s) {
    const char *const at = p->at;
    if ((at[0] != 'p' && at[0] != 'P') || at[1] != '{' || at[2] == '\0' || strchr("LMN", at[2]) == NULL ||
        at[3] != '}') {
        return false;
    }
    *s = set_of(at[2]);
    if (at[0] == 'P') {
        negate(s);
    }
    p->at += 4;
    return true;
}

/* Reads an escape after the backslash. *single: it is one character, *c. */
static napier_status take_escape(parser *p, set *s, bool *single, int *c) {
    static const char names[] = "rntf", values[] = "\r\n\t\f";
    const char name = *p->at;
    const char *const control = name != '\0' ? strchr(names, name) : NULL;
    *single = control != NULL || is_punctuation(name);
    if (*single) {
        *c = control != NULL ? values[control - names] : name;
        p->at++;
        return NAPIER_OK;
    }
    if (name == 's' || name == 'S') {
        *s = set_of('s');
        if (name == 'S') {
            negate(s);
        }
        p->at++;
        return NAPIER_OK;
    }
    return take_property(p, s) ? NAPIER_OK : refuse(p, "an escape that is not understood");
}

/* Reads one character or a named set. inside: within brackets. */
static napier_status take_item(parser *p, bool inside, set *s, bool *single, int *c) {
    const char here = *p->at;
    const char *const special = inside ? "[]&" : "\\^$*+?{}[]|()";
    if (here == '\\') {
        p->at++;
        return take_escape(p, s, single, c);
    }
    if (here < ' ' || here > '~' || strchr(special, here) != NULL) { /* also the end, and characters that are not
                                                                        ASCII */
        return refuse(p, "not understood");
    }
    *single = true;
    *c = here;
    p->at++;
    return NAPIER_OK;
}

/* Reads the contents of brackets: characters, ranges, sets. */
static napier_status take_members(parser *p, set *all) {
    do {
        set s = {{false}};
        bool single = false, to_single = false;
        int c = 0, to = 0;
        napier_status status = take_item(p, true, &s, &single, &c);
        if (!status && single) {
            to = c;
        }
        if (!status && p->at[0] == '-' && p->at[1] != ']') {
            p->at++;
            status = take_item(p, true, &s, &to_single, &to);
            if (!status && (!single || !to_single || to < c)) {
                status = refuse(p, "a range that is not understood");
            }
        }
        if (status) {
            return status;
        }
        for (; single && c <= to; c++) {
            s.has[c] = true;
        }
        unite(all, &s);
    } while (*p->at != ']');
    return NAPIER_OK;
}

static napier_status take_brackets(parser *p, bool caseless) {
    set s = {{false}};
    const bool negated = p->at[1] == '^';
    p->at += negated ? 2 : 1;
    const napier_status status = take_members(p, &s);
    if (status) {
        return status;
    }
    p->at++;
    if (caseless) {
        fold(&s);
    }
    if (negated) {
        negate(&s);
    }
    return emit_set(p, &s);
}

/* True for pairs of letters that Oniguruma treats as one character if case is ignored ("ss" for U+00DF, "fi" for
 * U+FB01). */
static bool joins(char before, char c) {
    return (before == 's' && (c == 's' || c == 't')) || (before == 'f' && (c == 'f' || c == 'i' || c == 'l'));
}

static napier_status take_single(parser *p, bool caseless) {
    set s = {{false}};
    bool single = false;
    int c = 0;
    const char last = p->last;
    p->last = 0;
    if (*p->at == '.') {
        s.has['\n'] = true;
        negate(&s);
        p->at++;
        return emit_set(p, &s);
    }
    const napier_status status = take_item(p, false, &s, &single, &c);
    if (status) {
        return status;
    }
    if (single) {
        s.has[c] = true;
        if (caseless && joins(last, lower((char)c))) {
            return refuse(p, "two letters that are one character in another case, before");
        }
    }
    if (caseless) {
        p->last = (char)(single ? lower((char)c) : 0);
        fold(&s);
    }
    return emit_set(p, &s);
}

/* ---- Structure -----------------------------------------------------------------------------------------------------
 */

static bool take_number(parser *p, int *n) {
    const char *const start = p->at;
    for (*n = 0; is_digit(*p->at) && *n <= MOST_REPEAT; p->at++) {
        *n = 10 * *n + (*p->at - '0');
    }
    return p->at > start && *n <= MOST_REPEAT;
}

/* Reads {n}, {n,} or {n,m}. Refuses a suffix whose meaning differs between the engines. */
static napier_status take_counts(parser *p) {
    int least, most;
    const char *const start = p->at++;
    bool good = take_number(p, &least);
    if (good && *p->at == ',') {
        p->at++;
        good = *p->at == '}' || (take_number(p, &most) && most >= least);
    }
    if (!good || *p->at != '}' || (p->at[1] != '\0' && strchr("*+?{", p->at[1]) != NULL)) {
        p->at = start;
        return refuse(p, "a count that is not understood");
    }
    p->at++;
    return napier_text_buffer_append(p->json->context, p->out, start, (size_t)(p->at - start));
}

static napier_status take_quantifier(parser *p) {
    if (*p->at == '{') {
        p->last = 0;
        return take_counts(p);
    }
    if (*p->at == '\0' || strchr("*+?", *p->at) == NULL) {
        return NAPIER_OK;
    }
    p->last = 0;
    const size_t size = p->at[1] == '?' || p->at[1] == '+' ? 2 : 1; /* lazy or possessive */
    const napier_status status = napier_text_buffer_append(p->json->context, p->out, p->at, size);
    p->at += size;
    return status || *p->at == '\0' || strchr("*+?{", *p->at) == NULL ? status : refuse(p, "two quantifiers");
}

static napier_status take_alternatives(parser *p, bool caseless);

static napier_status take_group(parser *p, bool caseless) {
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
        return refuse(p, "a group that is not understood");
    }
    p->at += strlen(kinds[k].open);
    p->depth++;
    p->last = 0;
    napier_status status = emit(p, kinds[k].emitted);
    if (!status) {
        status = take_alternatives(p, caseless || kinds[k].caseless);
    }
    if (!status && *p->at != ')') {
        status = refuse(p, "a group without end");
    }
    if (status) {
        return status;
    }
    p->at++;
    p->depth--;
    p->last = 0;
    status = emit(p, ")");
    return status ? status : kinds[k].quantified ? take_quantifier(p) : NAPIER_OK;
}

static napier_status take_atom(parser *p, bool caseless) {
    if (*p->at == '(') {
        return take_group(p, caseless);
    }
    const bool brackets = *p->at == '[';
    const napier_status status = brackets ? take_brackets(p, caseless) : take_single(p, caseless);
    if (brackets) {
        p->last = 0;
    }
    return status ? status : take_quantifier(p);
}

static napier_status take_alternatives(parser *p, bool caseless) {
    napier_status status = NAPIER_OK;
    while (*p->at != '\0' && *p->at != ')' && !status) {
        if (*p->at == '|') {
            p->at++;
            p->last = 0;
            status = emit(p, "|");
        } else {
            status = take_atom(p, caseless);
        }
    }
    return status;
}

napier_status napier_split_translate(const napier_json *json, const char *pattern, napier_text_buffer *out) {
    parser p = {json, pattern, pattern, out, 0, 0};
    if (strlen(pattern) > MOST_PATTERN) {
        return refuse(&p, "longer than 4096 bytes");
    }
    const napier_status status = take_alternatives(&p, false);
    return status || *p.at == '\0' ? status : refuse(&p, "a bracket too many");
}
