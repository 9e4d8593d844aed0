/* lm/tokenizer/split_pattern.c - translates an expression for Oniguruma, over characters, to one for PCRE2, over class
 * strings.
 *
 *     alternatives = sequence { "|" sequence }          sequence = { atom [quantifier] | "$" }
 *     atom         = "(?:" | "(?i:" | "(?=" | "(?!" | "(", alternatives, ")"  |  set  |  one character
 *     set          = "." | "[" ... "]" | \s \S \d \D | \p{L} \P{L} ...; a set in brackets may have others in brackets
 *
 * Each set is written as the list of its codes, and case is resolved here, so the result does not depend on PCRE2's
 * tables. */
#include "lm/tokenizer/split.h"

#include <stdio.h>
#include <string.h>

enum { MOST_DEPTH = 50, MOST_PATTERN = 16384, MOST_REPEAT = 1000, MOST_RANGES = 1024 };

typedef struct set {
    bool has[NAPIER_MOST_CODES];
} set;

/* After the first failure the functions below emit nothing and read no more alternatives. */
typedef struct parser {
    napier_json *json;
    napier_alphabet *alphabet;
    const char *pattern, *at;
    napier_text_buffer *out; /* NULL: only divide the alphabet */
    int depth;
    char last; /* if case is ignored, the preceding character in lower case; else 0 */
    size_t range_count;
    napier_range ranges[MOST_RANGES]; /* the characters beyond ASCII that the brackets read now have by name */
} parser;

static void refuse(const parser *p, const char *why) {
    napier_json_fail(p->json, NAPIER_UNSUPPORTED, "pre_tokenizer: pattern: %s at byte %zu, '%.24s'", why,
                     (size_t)(p->at - p->pattern), napier_show_text(p->at).text);
}

static void emit_bytes(const parser *p, const char *bytes, size_t size) {
    if (!p->json->status && p->out != NULL) {
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

/* The named sets. */
static const struct {
    const char *name; /* of \p{L} */
    uint32_t kinds;
} sets[] = {{"L", NAPIER_CHARS_LETTERS},     {"Lu", NAPIER_CHARS_UPPER},     {"Ll", NAPIER_CHARS_LOWER},
            {"Lt", NAPIER_CHARS(TITLE)},     {"Lm", NAPIER_CHARS(MODIFIER)}, {"Lo", NAPIER_CHARS(LETTER)},
            {"M", NAPIER_CHARS_MARKS},       {"N", NAPIER_CHARS_NUMBERS},    {"Nd", NAPIER_CHARS(DIGIT)},
            {"Nl", NAPIER_CHARS(NUMERAL)},   {"No", NAPIER_CHARS(NUMBER)},   {"P", NAPIER_CHARS_POINTS},
            {"Pc", NAPIER_CHARS(CONNECTOR)}, {"S", NAPIER_CHARS_SYMBOLS}};
enum { SETS = sizeof sets / sizeof sets[0] };

static set set_of(const parser *p, uint32_t kinds) {
    set s = {{false}};
    napier_alphabet_kinds(p->alphabet, kinds, s.has);
    return s;
}

static int long_s_of(const parser *p) { return p->alphabet->codes[0x17f]; }
static int kelvin_of(const parser *p) { return p->alphabet->codes[0x212a]; }

static bool has_kind(const parser *p, const set *s, napier_char_class kind) {
    bool any = false;
    for (int c = NAPIER_FIRST_CLASS; c < p->alphabet->count; c++) {
        any = any || (s->has[c] && p->alphabet->kinds[c] == kind);
    }
    return any;
}

/* True if the set has letters beyond ASCII of one case only. Their other case is not known here. */
static bool is_of_one_case(const parser *p, const set *s) {
    const bool upper = has_kind(p, s, NAPIER_CHAR_UPPER);
    return upper != has_kind(p, s, NAPIER_CHAR_LOWER) || upper != has_kind(p, s, NAPIER_CHAR_TITLE);
}

/* The set of the ranges read since `first`, which is forgotten. Characters that are named have no other case here. */
static set take_ranges(parser *p, size_t first, bool caseless) {
    set s = {{false}};
    const napier_range *const ranges = p->ranges + first;
    const size_t count = p->range_count - first;
    p->range_count = first;
    if (count > 0 && caseless) {
        refuse(p, "characters beyond ASCII where case is ignored, before");
    } else if (!p->json->status && !(p->out == NULL ? napier_alphabet_divide(p->alphabet, ranges, count)
                                                    : napier_alphabet_codes(p->alphabet, ranges, count, s.has))) {
        refuse(p, "too many different characters, before");
    }
    return s;
}

static void negate(set *s) {
    for (int c = 0; c < NAPIER_MOST_CODES; c++) {
        s->has[c] = !s->has[c];
    }
}

/* Adds the other case of all characters in the set. */
static void fold(const parser *p, set *s) {
    if (is_of_one_case(p, s)) {
        refuse(p, "letters of one case where case is ignored, before");
    }
    const int long_s = long_s_of(p), kelvin = kelvin_of(p);
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
    const int codes = p->alphabet->count;
    for (int c = 0; c < codes; c++) {
        if (s->has[c] == negated) {
            continue;
        }
        const int first = c;
        while (c + 1 < codes && s->has[c + 1] != negated) {
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
    for (size_t k = 0; k < SETS; k++) {
        const size_t size = strlen(sets[k].name);
        if (strncmp(at + 2, sets[k].name, size) == 0 && at[2 + size] == '}') {
            *s = set_of(p, sets[k].kinds);
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
    uint32_t c; /* the character, if single */
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
        all.c = (uint8_t)(control != NULL ? values[control - names] : name);
        p->at++;
    } else if (name != '\0' && strchr("sSdD", name) != NULL) {
        all.set = set_of(p, lower(name) == 's' ? (uint32_t)NAPIER_CHARS_SPACES : (uint32_t)NAPIER_CHARS(DIGIT));
        if (is_upper(name)) {
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
    const char *const special = inside ? "[]" : "\\^$*+?{}[]|()";
    if (here == '\\') {
        p->at++;
        return take_escape(p);
    }
    item one = {.single = true, .c = (uint8_t)here};
    const bool is_control = here == '\0' || here == 0x7f || (one.c < ' ' && strchr("\t\n\r", here) == NULL);
    const bool meets = inside && here == '&' && p->at[1] == '&'; /* of two sets */
    if (is_control || meets || strchr(special, here) != NULL) {
        refuse(p, "not understood"); /* also the end */
        one.single = false;
    } else {
        one.c = napier_utf8_get((const uint8_t *)p->at);
        p->at += napier_utf8_length((uint8_t)here);
    }
    return one;
}

static void include(set *all, const set *more) {
    for (int c = 0; c < NAPIER_MOST_CODES; c++) {
        all->has[c] = all->has[c] || more->has[c];
    }
}

/* Adds characters [first, last] to the set, or, beyond ASCII, to the parser's ranges. */
static void add_range(parser *p, set *all, uint32_t first, uint32_t last) {
    for (; first <= last && first < 0x80; first++) {
        all->has[first] = true;
    }
    if (first > last || p->json->status) {
        return;
    }
    if (p->range_count == MOST_RANGES) {
        refuse(p, "more than 1024 ranges before");
        return;
    }
    p->ranges[p->range_count++] = (napier_range){first, last};
}

/* Reads a character, a range or a named set within brackets. */
static void take_member(parser *p, set *all) {
    const item first = take_item(p, true);
    uint32_t to = first.c;
    if (p->at[0] == '-' && p->at[1] != ']' && !p->json->status) {
        p->at++;
        const item last = take_item(p, true);
        to = last.c;
        if (!first.single || !last.single || to < first.c) {
            refuse(p, "a range that is not understood");
        }
    }
    if (first.single) {
        add_range(p, all, first.c, to);
    } else {
        include(all, &first.set);
    }
}

/* Reads the contents of brackets: characters, ranges, named sets, and brackets without ^. */
static set take_members(parser *p, bool caseless) {
    set all = {{false}};
    const size_t first = p->range_count;
    do {
        if (*p->at == '[' && p->at[1] != '^' && p->at[1] != ':' && p->at[1] != ']' && p->depth < MOST_DEPTH) {
            p->at++;
            p->depth++;
            const set inner = take_members(p, caseless);
            p->depth--;
            p->at += *p->at == ']';
            include(&all, &inner);
        } else {
            take_member(p, &all);
        }
    } while (*p->at != ']' && !p->json->status);
    const set named = take_ranges(p, first, caseless);
    include(&all, &named);
    return all;
}

static void take_brackets(parser *p, bool caseless) {
    const bool negated = p->at[1] == '^';
    p->at += negated ? 2 : 1;
    set s = take_members(p, caseless);
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
    const item one = take_item(p, false);
    set s = one.set;
    if (one.single) {
        add_range(p, &s, one.c, one.c);
        const set named = take_ranges(p, 0, caseless);
        include(&s, &named);
        if (caseless && joins(last, lower((char)one.c))) {
            refuse(p, "two letters that are one character in another case, before");
        }
    }
    if (caseless) {
        p->last = (char)(one.single ? lower((char)one.c) : 0);
        fold(p, &s);
    }
    emit_set(p, &s, false);
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
        } else if (*p->at == '$') { /* the end of a line */
            p->at++;
            p->last = 0;
            emit(p, "(?![^\\n])");
        } else {
            (*p->at == '[' ? take_brackets : take_single)(p, caseless);
            take_quantifier(p);
        }
    }
}

napier_status napier_split_translate(napier_json *json, napier_alphabet *alphabet, napier_pattern pattern,
                                     napier_text_buffer *out) {
    parser p = {.json = json, .alphabet = alphabet, .pattern = pattern.text, .at = pattern.text, .out = out};
    const size_t size = strlen(pattern.text);
    if (size > MOST_PATTERN) {
        refuse(&p, "longer than 16384 bytes");
    } else if (napier_utf8_check((const uint8_t *)pattern.text, size) < size) {
        refuse(&p, "not UTF-8");
    }
    if (!pattern.literal) {
        take_alternatives(&p, false);
    }
    for (; *p.at != '\0' && pattern.literal && !json->status; p.at += napier_utf8_length((uint8_t)*p.at)) {
        const uint32_t c = napier_utf8_get((const uint8_t *)p.at);
        set s = {{false}};
        add_range(&p, &s, c, c);
        const set named = take_ranges(&p, 0, false);
        include(&s, &named);
        emit_set(&p, &s, false);
    }
    if (*p.at != '\0') {
        refuse(&p, "a bracket too many");
    }
    return json->status;
}

napier_status napier_split_collect(napier_json *json, napier_alphabet *alphabet, napier_pattern pattern) {
    return napier_split_translate(json, alphabet, pattern, NULL);
}
