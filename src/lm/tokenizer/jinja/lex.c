/* lm/tokenizer/jinja/lex.c - a template as tokens, and where the parts of its blocks begin. */
#include <stdlib.h>

#include "lm/tokenizer/jinja/jinja.h"
#include "lm/tokenizer/unicode.h"

typedef struct lexer {
    jinja *j;
    const char *at, *end;
    int32_t line;
    int braces;         /* open (, [ and { of an expression: a }} within is no end */
    bool is_line_start; /* the text begins a line of the template */
    bool is_json;       /* texts have the escapes of JSON, else those of Python */
    int64_t capacity;
} lexer;

static void add(lexer *l, jinja_token_kind kind, const char *bytes, size_t size) {
    jinja *const j = l->j;
    if (j->count == l->capacity) {
        const int64_t wanted = l->capacity > 0 ? 2 * l->capacity : 256;
        jinja_token *const larger = napier_jinja_take(j, (size_t)wanted, sizeof *larger);
        if (larger == NULL) {
            return;
        }
        if (j->count > 0) {
            memcpy(larger, j->tokens, (size_t)j->count * sizeof *larger);
        }
        j->tokens = larger;
        l->capacity = wanted;
    }
    j->tokens[j->count++] = (jinja_token){kind, l->line, 0, {bytes, size}};
}

/* Fails at the place that has been read up to. */
#define FAIL(l, ...) (add(l, JINJA_EOF, l->at, 0), l->j->at = l->j->count, napier_jinja_fail(l->j, __VA_ARGS__))

static void advance(lexer *l, size_t size) {
    for (size_t i = 0; i < size; i++) {
        l->line += l->at[i] == '\n';
    }
    l->at += size;
}

static bool begins(const lexer *l, const char *text) {
    const size_t size = strlen(text);
    return (size_t)(l->end - l->at) >= size && memcmp(l->at, text, size) == 0;
}

/* ---- What stands between tags ------------------------------------------------------------------------------------ */

static const char *find_tag(const lexer *l) {
    for (const char *at = l->at; at + 1 < l->end; at++) {
        if (at[0] == '{' && (at[1] == '{' || at[1] == '%' || at[1] == '#')) {
            return at;
        }
    }
    return l->end;
}

/* Adds the text before a tag: without the white space that the tag's - takes, or what is before it on its line. */
static void add_data(lexer *l, const char *tag) {
    napier_span text = {l->at, (size_t)(tag - l->at)};
    const char sign = tag + 2 < l->end ? tag[2] : '\0';
    if (tag < l->end && sign == '-') {
        text = napier_chat_trim_end(text);
    } else if (tag < l->end && sign != '+' && tag[1] != '{') {
        size_t begin = text.size;
        while (begin > 0 && text.bytes[begin - 1] != '\n') {
            begin--;
        }
        const napier_span before = {text.bytes + begin, text.size - begin};
        if ((begin > 0 || l->is_line_start) && napier_chat_trim_end(before).size == 0) {
            text.size = begin;
        }
    }
    if (text.size > 0) {
        add(l, JINJA_DATA, text.bytes, text.size);
    }
    advance(l, (size_t)(tag - l->at));
}

/* Goes past the end of a tag: with the white space behind -, or one line feed if the tag is none of {{. */
static void finish_tag(lexer *l, bool takes_line_feed) {
    const bool takes_all = *l->at == '-', takes_none = *l->at == '+';
    advance(l, takes_all || takes_none ? 3 : 2);
    const char *const from = l->at;
    if (takes_all) {
        const napier_span left = {l->at, (size_t)(l->end - l->at)};
        advance(l, left.size - napier_chat_trim_start(left).size);
    } else if (takes_line_feed && !takes_none && begins(l, "\n")) {
        advance(l, 1);
    }
    l->is_line_start = l->at > from && l->at[-1] == '\n';
}

static void skip_comment(lexer *l) {
    for (advance(l, 2); l->at < l->end && !begins(l, "#}"); advance(l, 1)) {
    }
    if (l->at == l->end) {
        FAIL(l, "a comment has no end");
        return;
    }
    const size_t back = l->at[-1] == '-' || l->at[-1] == '+';
    l->at -= back;
    finish_tag(l, true);
}

/* ---- Inside tags ------------------------------------------------------------------------------------------------- */

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c); }

static int hex_of(const char *at, int digits) {
    int value = 0;
    for (int i = 0; i < digits; i++) {
        const char c = at[i];
        const int digit = is_digit(c)            ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (digit < 0) {
            return -1;
        }
        value = 16 * value + digit;
    }
    return value;
}

static size_t put_code_point(char *to, uint32_t c) {
    if (c < 0x80) {
        to[0] = (char)c;
        return 1;
    }
    const size_t size = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = size - 1; i > 0; i--, c >>= 6) {
        to[i] = (char)(0x80 | (c & 0x3f));
    }
    to[0] = (char)((0xf00 >> size & 0xff) | c);
    return size;
}

/* Reads \xHH, \uHHHH (two of them for a pair of surrogates) or \UHHHHHHHH at `at`, which is behind the backslash. Returns
 * the size of what it read; 0: none of these. */
static size_t read_code(const char *at, const char *end, uint32_t *code) {
    const int digits = *at == 'x' ? 2 : *at == 'u' ? 4 : *at == 'U' ? 6 : 0;
    const size_t zeros = *at == 'U' ? 2 : 0, size = 1 + zeros + (size_t)digits;
    const int first = digits > 0 && (size_t)(end - at) >= size ? hex_of(at + 1 + zeros, digits) : -1;
    *code = (uint32_t)first;
    if (first >= 0xd800 && first < 0xdc00 && (size_t)(end - at) >= size + 6 && at[size] == '\\' &&
        at[size + 1] == 'u') {
        const int second = hex_of(at + size + 2, 4);
        *code = 0x10000 + (((uint32_t)first - 0xd800) << 10) + ((uint32_t)second - 0xdc00);
        return second >= 0xdc00 && second < 0xe000 ? size + 6 : 0;
    }
    return first < 0 || first > 0x10ffff || (first >= 0xd800 && first < 0xe000) ? 0 : size;
}

/* Writes the escaped character at `at`, behind the backslash; returns how much of the source it takes, 0 if it is none
 * that is known. Python keeps a backslash before most others. */
static size_t unescape(const lexer *l, const char *at, char *to, size_t *written) {
    static const char letters[] = "nrtbfav\\'\"/", plain[] = "\n\r\t\b\f\a\v\\'\"/";
    const char *const known = *at != '\0' && (*at != '/' || l->is_json) ? strchr(letters, *at) : NULL;
    uint32_t code = 0;
    if (known != NULL) {
        *to = plain[known - letters];
        *written = 1;
        return 1;
    }
    const size_t size = read_code(at, l->end, &code);
    *written = size > 0 ? put_code_point(to, code) : 2;
    if (size == 0 && !l->is_json && !is_digit(*at) && strchr("xuUN\n", *at) == NULL) {
        to[0] = '\\';
        to[1] = *at;
        return 1;
    }
    return size;
}

static void read_string(lexer *l) {
    const char quote = *l->at, *from = l->at + 1, *at = from;
    while (at < l->end && *at != quote) {
        at += *at == '\\' && at + 1 < l->end ? 2 : 1;
    }
    char *const text = at < l->end ? napier_jinja_take(l->j, (size_t)(at - from) + 1, 1) : NULL;
    if (text == NULL) {
        FAIL(l, "a text in quotes has no end");
        return;
    }
    size_t size = 0;
    for (const char *c = from; c < at;) {
        size_t written = 1;
        const size_t read = *c == '\\' ? unescape(l, c + 1, text + size, &written) : 0;
        if (*c == '\\' && read == 0) {
            FAIL(l, "an escape in a text that is not known: \\%c", c[1] > ' ' && c[1] < 0x7f ? c[1] : '?');
            return;
        }
        text[size] = *c == '\\' ? text[size] : *c;
        size += written;
        c += read + 1;
    }
    add(l, JINJA_STRING, text, size);
    advance(l, (size_t)(at + 1 - l->at));
}

static void read_operator(lexer *l) {
    static const char *const operators[] = {"**", "//", "==", "!=", ">=", "<=", "+", "-", "*", "/", "%", "~", "[",
                                            "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", NULL};
    for (int i = 0; operators[i] != NULL; i++) {
        if (begins(l, operators[i])) {
            const char c = *l->at;
            l->braces += c == '(' || c == '[' || c == '{' ? 1 : c == ')' || c == ']' || c == '}' ? -1 : 0;
            add(l, JINJA_OPERATOR, operators[i], strlen(operators[i]));
            advance(l, strlen(operators[i]));
            return;
        }
    }
    FAIL(l, "the character %s has no meaning there", *l->at > ' ' && *l->at < 0x7f ? (char[]){*l->at, '\0'} : "?");
}

static size_t number_size(const lexer *l) {
    const char *at = l->at;
    while (at < l->end && is_digit(*at)) {
        at++;
    }
    if (at + 1 < l->end && at[0] == '.' && is_digit(at[1])) {
        for (at++; at < l->end && is_digit(*at); at++) {
        }
    }
    const char *exponent = at < l->end && (*at == 'e' || *at == 'E') ? at + 1 : l->end;
    exponent += exponent < l->end && (*exponent == '+' || *exponent == '-');
    if (exponent < l->end && is_digit(*exponent)) {
        for (at = exponent; at < l->end && is_digit(*at); at++) {
        }
    }
    return (size_t)(at - l->at);
}

static void read_word(lexer *l, jinja_token_kind kind, size_t size) {
    add(l, kind, l->at, size);
    advance(l, size);
}

static void read_one(lexer *l) {
    size_t size = 0;
    while (l->at + size < l->end && is_name(l->at[size])) {
        size++;
    }
    if (*l->at == ' ' || *l->at == '\n' || *l->at == '\t' || *l->at == '\r') {
        advance(l, 1);
    } else if (is_digit(*l->at)) {
        read_word(l, JINJA_NUMBER, number_size(l));
    } else if (size > 0) {
        read_word(l, JINJA_NAME, size);
    } else if (*l->at == '\'' || *l->at == '"') {
        read_string(l);
    } else {
        read_operator(l);
    }
}

/* Reads a tag up to its `end`, "}}" or "%}", with a - or + before. */
static void read_tag(lexer *l, bool is_block) {
    const char *const end = is_block ? "%}" : "}}";
    const char minus[] = {'-', end[0], end[1], '\0'}, plus[] = {'+', end[0], end[1], '\0'};
    add(l, is_block ? JINJA_TAG : JINJA_OPEN, l->at, 2);
    advance(l, 2);
    advance(l, l->at < l->end && (*l->at == '-' || *l->at == '+') ? 1 : 0);
    l->braces = 0;
    while (!l->j->status && l->at < l->end) {
        if (l->braces == 0 && (begins(l, end) || begins(l, minus) || (is_block && begins(l, plus)))) {
            add(l, is_block ? JINJA_END : JINJA_CLOSE, l->at, 2);
            finish_tag(l, is_block);
            return;
        }
        read_one(l);
    }
    if (!l->j->status) {
        FAIL(l, "a tag has no end");
    }
}

/* ---- Blocks ------------------------------------------------------------------------------------------------------ */

enum { MOST_BLOCKS = 100 };

/* {% set x %}, which takes the text of a block, has no =. */
static bool is_block_set(const jinja *j, int64_t tag) {
    return napier_jinja_same(j->tokens[tag + 1].text, "set") && tag + 3 < j->count &&
           j->tokens[tag + 3].kind == JINJA_END;
}

static const char *end_of(const jinja *j, int64_t tag) {
    static const char *const names[][2] = {
        {"if", "endif"}, {"for", "endfor"}, {"macro", "endmacro"}, {"generation", "endgeneration"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (napier_jinja_same(j->tokens[tag + 1].text, names[i][0])) {
            return names[i][1];
        }
    }
    return is_block_set(j, tag) ? "endset" : NULL;
}

/* Is it a statement without a block? */
static bool is_alone(napier_span name) {
    return napier_jinja_same(name, "set") || napier_jinja_same(name, "break") || napier_jinja_same(name, "continue");
}

/* Links the parts of each block: if, elif, else, endif. */
static void link_blocks(jinja *j) {
    int64_t parts[MOST_BLOCKS];
    const char *ends[MOST_BLOCKS];
    int depth = 0;
    for (int64_t i = 0; i + 1 < j->count && !j->status; i++) {
        const napier_span name = j->tokens[i + 1].text;
        j->at = i + 1;
        if (j->tokens[i].kind != JINJA_TAG) {
            continue;
        }
        const char *const end = end_of(j, i);
        const bool is_end = depth > 0 && napier_jinja_same(name, ends[depth - 1]);
        const bool is_if = depth > 0 && strcmp(ends[depth - 1], "endif") == 0;
        const bool is_part =
            (is_if && napier_jinja_same(name, "elif")) ||
            ((is_if || (depth > 0 && strcmp(ends[depth - 1], "endfor") == 0)) && napier_jinja_same(name, "else"));
        if (is_end || is_part) {
            j->tokens[parts[depth - 1]].jump = i;
            parts[depth - 1] = i;
            depth -= is_end;
        } else if (end != NULL && depth < MOST_BLOCKS) {
            parts[depth] = i;
            ends[depth++] = end;
        } else if (end != NULL) {
            napier_jinja_fail(j, "it is nested more than %d deep", MOST_BLOCKS);
        } else if (end == NULL && !is_alone(name)) {
            const bool is_part_of_none = napier_jinja_same(name, "else") || napier_jinja_same(name, "elif") ||
                                         (name.size > 3 && memcmp(name.bytes, "end", 3) == 0);
            napier_jinja_fail(
                j, is_part_of_none ? "'%.*s' without its beginning" : "the statement '%.*s' is not supported",
                name.size < 40 ? (int)name.size : 40, name.bytes);
        }
    }
    if (depth > 0) {
        napier_jinja_fail(j, "%s is missing", ends[depth - 1]);
    }
}

/* The source with \n in place of \r\n and \r, as jinja2 reads it. */
static napier_span with_line_feeds(jinja *j, napier_span source) {
    char *const made = source.size > 0 ? napier_jinja_take(j, source.size, 1) : NULL;
    size_t size = 0;
    for (size_t i = 0; made != NULL && i < source.size; i++) {
        if (source.bytes[i] != '\n' || i == 0 || source.bytes[i - 1] != '\r') {
            made[size++] = source.bytes[i] == '\r' ? '\n' : source.bytes[i];
        }
    }
    return (napier_span){made != NULL ? made : "", size};
}

void napier_jinja_read(jinja *j, napier_span source) {
    enum { MOST_SOURCE = 1 << 16 };
    if (source.size > MOST_SOURCE) {
        napier_jinja_fail(j, "it has more than %d bytes", MOST_SOURCE);
        return;
    }
    source = with_line_feeds(j, source);
    lexer l = {.j = j, .at = source.bytes, .end = source.bytes + source.size, .line = 1, .is_line_start = true};
    l.end -= source.size > 0 && l.end[-1] == '\n'; /* as jinja2 does */
    while (!j->status && l.at < l.end) {
        const char *const tag = find_tag(&l);
        add_data(&l, tag);
        if (tag == l.end) {
            break;
        }
        if (tag[1] == '#') {
            skip_comment(&l);
        } else {
            read_tag(&l, tag[1] == '%');
        }
    }
    add(&l, JINJA_EOF, l.at, 0);
    if (!j->status) {
        link_blocks(j);
    }
    j->at = 0;
}

void napier_jinja_read_json(jinja *j, napier_span json) {
    lexer l = {.j = j, .at = json.bytes, .end = json.bytes + json.size, .line = 1, .is_json = true};
    j->tokens = NULL;
    j->count = j->at = 0;
    while (!j->status && l.at < l.end) {
        read_one(&l);
    }
    add(&l, JINJA_EOF, l.at, 0);
}

jinja_value napier_jinja_read_number(jinja *j, napier_span digits, bool is_negative) {
    char text[64];
    char *end = NULL;
    if (digits.size >= sizeof text) {
        napier_jinja_fail(j, "a number has more than %zu digits", sizeof text - 1);
        return napier_jinja_int(0);
    }
    memcpy(text, digits.bytes, digits.size);
    text[digits.size] = '\0';
    if (strpbrk(text, ".eE") != NULL) {
        const double number = strtod(text, NULL);
        return (jinja_value){.kind = JINJA_FLOAT, .as.number = is_negative ? -number : number};
    }
    const long long integer = digits.size < 19 ? strtoll(text, &end, 10) : 0;
    if (digits.size >= 19) {
        napier_jinja_fail(j, "an integer has more than 18 digits");
    }
    return napier_jinja_int(is_negative ? -integer : integer);
}
