/* lm/tokenizer/jinja/values.c - values, their memory, and how they are written. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "lm/tokenizer/jinja/jinja.h"

/* ---- Memory and work --------------------------------------------------------------------------------------------- */

enum { CHUNK = 1 << 16, MOST_MEMORY = 1 << 26, MOST_STEPS = 1 << 24, EACH_BYTE = 256 };

struct jinja_chunk {
    jinja_chunk *next;
    size_t size, used;
};

void napier_jinja_start(jinja *j, napier_context *context, size_t input) {
    *j = (jinja){.context = context};
    j->most_memory = MOST_MEMORY + EACH_BYTE * input;
    j->most_steps = MOST_STEPS + (int64_t)input;
}

void napier_jinja_end(jinja *j) {
    for (jinja_chunk *chunk = j->chunks, *next; chunk != NULL; chunk = next) {
        next = chunk->next;
        napier_free(&j->context->allocator, chunk);
    }
    napier_text_buffer_free(j->context, &j->out);
}

static bool add_chunk(jinja *j, size_t bytes) {
    const size_t size = bytes > CHUNK ? bytes : CHUNK;
    if (size > j->most_memory - j->memory) {
        napier_jinja_fail(j, "it needs more than %zu bytes", j->most_memory);
        return false;
    }
    jinja_chunk *const chunk = napier_alloc(&j->context->allocator, sizeof *chunk + size, 1);
    if (chunk == NULL) {
        j->status = napier_fail(j->context, NAPIER_OUT_OF_MEMORY, "chat_template: no memory for %zu bytes", size);
        return false;
    }
    *chunk = (jinja_chunk){j->chunks, size, 0};
    j->chunks = chunk;
    j->memory += size;
    return true;
}

void *napier_jinja_take(jinja *j, size_t count, size_t size) {
    const size_t most = j->most_memory / size;
    const size_t bytes = count < most ? (count * size + 15) / 16 * 16 : SIZE_MAX;
    if (j->status || (count >= most && (napier_jinja_fail(j, "it needs too much memory"), true)) ||
        ((j->chunks == NULL || j->chunks->size - j->chunks->used < bytes) && !add_chunk(j, bytes))) {
        return NULL;
    }
    char *const memory = (char *)(j->chunks + 1) + j->chunks->used;
    j->chunks->used += bytes;
    return memory;
}

bool napier_jinja_spend(jinja *j, size_t work) {
    j->steps += 1 + (int64_t)(work / 32);
    if (!j->status && j->steps > j->most_steps) {
        napier_jinja_fail(j, "it runs for more than %lld steps", (long long)j->most_steps);
    }
    return !j->status;
}

bool napier_jinja_enter(jinja *j) {
    enum { MOST_DEPTH = 100 };
    if (!j->status && j->depth >= MOST_DEPTH) {
        napier_jinja_fail(j, "it is nested more than %d deep", MOST_DEPTH);
    }
    j->depth++;
    return !j->status;
}

/* ---- Making ------------------------------------------------------------------------------------------------------ */

jinja_value napier_jinja_span(napier_span text) { return (jinja_value){.kind = JINJA_TEXT, .as.text = text}; }
jinja_value napier_jinja_text(const char *text) { return napier_jinja_span((napier_span){text, strlen(text)}); }
jinja_value napier_jinja_int(int64_t integer) { return (jinja_value){.kind = JINJA_INT, .as.integer = integer}; }
jinja_value napier_jinja_bool(bool is_true) { return (jinja_value){.kind = JINJA_BOOL, .as.integer = is_true}; }

jinja_value napier_jinja_list(jinja *j) {
    jinja_list *const list = napier_jinja_take(j, 1, sizeof *list);
    if (list == NULL) {
        return (jinja_value){0};
    }
    *list = (jinja_list){0};
    return (jinja_value){.kind = JINJA_LIST, .as.list = list};
}

jinja_value napier_jinja_tuple(jinja *j) {
    const jinja_value list = napier_jinja_list(j);
    if (list.kind == JINJA_LIST) {
        list.as.list->is_tuple = true;
    }
    return list;
}

jinja_value napier_jinja_dict(jinja *j, jinja_kind kind) {
    jinja_dict *const dict = napier_jinja_take(j, 1, sizeof *dict);
    if (dict == NULL) {
        return (jinja_value){0};
    }
    *dict = (jinja_dict){0};
    return (jinja_value){.kind = kind, .as.dict = dict};
}

/* Returns room for one more element; NULL after a failure. */
static void *grow(jinja *j, void *items, int64_t count, int64_t *capacity, size_t size) {
    if (count < *capacity) {
        return items;
    }
    const int64_t wanted = *capacity > 0 ? 2 * *capacity : 4;
    void *const larger = napier_jinja_take(j, (size_t)wanted, size);
    if (larger != NULL) {
        *capacity = wanted;
        if (count > 0) {
            memcpy(larger, items, (size_t)count * size);
        }
    }
    return larger;
}

void napier_jinja_add(jinja *j, jinja_value v, jinja_value item) {
    jinja_list *const list = v.kind == JINJA_LIST ? v.as.list : NULL;
    jinja_value *const items = list != NULL && napier_jinja_spend(j, 0)
                                   ? grow(j, list->items, list->count, &list->capacity, sizeof item)
                                   : NULL;
    if (items != NULL) {
        list->items = items;
        items[list->count++] = item;
    }
}

static bool same_span(napier_span a, napier_span b) {
    return a.size == b.size && (a.size == 0 || memcmp(a.bytes, b.bytes, a.size) == 0);
}

bool napier_jinja_same(napier_span a, const char *b) { return same_span(a, (napier_span){b, strlen(b)}); }

jinja_value *napier_jinja_member(jinja_value v, napier_span key) {
    if (v.kind != JINJA_DICT && v.kind != JINJA_SPACE) {
        return NULL;
    }
    for (int64_t i = 0; i < v.as.dict->count; i++) {
        if (same_span(v.as.dict->pairs[i].key, key)) {
            return &v.as.dict->pairs[i].value;
        }
    }
    return NULL;
}

void napier_jinja_put(jinja *j, jinja_value v, napier_span key, jinja_value value) {
    jinja_value *const known = napier_jinja_member(v, key);
    if (known != NULL) {
        *known = value;
        return;
    }
    jinja_dict *const dict = v.kind == JINJA_DICT || v.kind == JINJA_SPACE ? v.as.dict : NULL;
    jinja_pair *const pairs = dict != NULL && napier_jinja_spend(j, 32 * (size_t)dict->count) /* the search */
                                  ? grow(j, dict->pairs, dict->count, &dict->capacity, sizeof *pairs)
                                  : NULL;
    if (pairs != NULL) {
        dict->pairs = pairs;
        pairs[dict->count++] = (jinja_pair){key, value};
    }
}

/* ---- Looking ----------------------------------------------------------------------------------------------------- */

const char *napier_jinja_kind_name(jinja_kind kind) {
    static const char *const names[] = {
        "an undefined value", "none",    "a bool",     "an integer",    "a float", "a text", "a list", "a dict",
        "a namespace",        "a macro", "a function", "a long integer"};
    return names[kind];
}

bool napier_jinja_is_number(jinja_value v) {
    return v.kind == JINJA_INT || v.kind == JINJA_FLOAT || v.kind == JINJA_BOOL;
}
double napier_jinja_number(jinja_value v) { return v.kind == JINJA_FLOAT ? v.as.number : (double)v.as.integer; }

bool napier_jinja_is_true(jinja_value v) {
    switch (v.kind) {
    case JINJA_UNDEFINED:
    case JINJA_NONE: return false;
    case JINJA_BOOL:
    case JINJA_INT: return v.as.integer != 0;
    case JINJA_FLOAT: return v.as.number < 0 || v.as.number > 0 || isnan(v.as.number);
    case JINJA_TEXT: return v.as.text.size > 0;
    case JINJA_LIST: return v.as.list->count > 0;
    case JINJA_DICT: return v.as.dict->count > 0;
    default: return true;
    }
}

static bool lists_equal(jinja *j, const jinja_list *a, const jinja_list *b) {
    bool equal = a->count == b->count && a->is_tuple == b->is_tuple;
    for (int64_t i = 0; equal && i < a->count; i++) {
        equal = napier_jinja_equal(j, a->items[i], b->items[i]);
    }
    return equal;
}

static bool dicts_equal(jinja *j, jinja_value a, jinja_value b) {
    bool equal = a.as.dict->count == b.as.dict->count;
    for (int64_t i = 0; equal && i < a.as.dict->count; i++) {
        const jinja_value *const other = napier_jinja_member(b, a.as.dict->pairs[i].key);
        equal = napier_jinja_spend(j, 32 * (size_t)b.as.dict->count) && other != NULL &&
                napier_jinja_equal(j, a.as.dict->pairs[i].value, *other);
    }
    return equal;
}

bool napier_jinja_equal(jinja *j, jinja_value a, jinja_value b) {
    bool equal = false;
    if (napier_jinja_enter(j) && napier_jinja_spend(j, a.kind == JINJA_TEXT ? a.as.text.size : 0)) {
        if (napier_jinja_is_number(a) && napier_jinja_is_number(b)) {
            const double x = napier_jinja_number(a), y = napier_jinja_number(b);
            equal = a.kind == JINJA_FLOAT || b.kind == JINJA_FLOAT ? !(x < y) && !(x > y) && !isnan(x - y)
                                                                   : a.as.integer == b.as.integer;
        } else if (a.kind == b.kind) {
            equal = a.kind == JINJA_TEXT    ? same_span(a.as.text, b.as.text)
                    : a.kind == JINJA_LIST  ? lists_equal(j, a.as.list, b.as.list)
                    : a.kind == JINJA_DICT  ? dicts_equal(j, a, b)
                    : a.kind == JINJA_SPACE ? a.as.dict == b.as.dict
                    : a.kind <= JINJA_NONE  ? true
                    : a.kind == JINJA_MACRO ? a.as.integer == b.as.integer
                                            : same_span(a.as.text, b.as.text);
        }
    }
    j->depth--;
    return equal;
}

/* The characters of a text, or the keys of a dict. */
jinja_value napier_jinja_items(jinja *j, jinja_value v) {
    if (v.kind == JINJA_LIST) {
        return v;
    }
    const jinja_value list = napier_jinja_list(j);
    if (v.kind == JINJA_DICT) {
        for (int64_t i = 0; i < v.as.dict->count; i++) {
            napier_jinja_add(j, list, napier_jinja_span(v.as.dict->pairs[i].key));
        }
    } else if (v.kind == JINJA_TEXT) {
        for (napier_span left = v.as.text; left.size > 0 && !j->status;) {
            const napier_span one = napier_jinja_part(left, 0, 1);
            napier_jinja_add(j, list, napier_jinja_span(one));
            left = (napier_span){left.bytes + one.size, left.size - one.size};
        }
    } else if (v.kind != JINJA_UNDEFINED) {
        napier_jinja_fail(j, "%s is no list", napier_jinja_kind_name(v.kind));
    }
    return list;
}

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

napier_span napier_jinja_copy(jinja *j, napier_span a, napier_span b) {
    if (a.size == 0 || b.size == 0) {
        return a.size > 0 ? a : b;
    }
    char *const both = napier_jinja_spend(j, a.size + b.size) ? napier_jinja_take(j, a.size + b.size, 1) : NULL;
    if (both == NULL) {
        return (napier_span){"", 0};
    }
    memcpy(both, a.bytes, a.size);
    memcpy(both + a.size, b.bytes, b.size);
    return (napier_span){both, a.size + b.size};
}

/* What is written goes to the end of j->out, and is taken from there as a value. */
static void write_span(jinja *j, napier_span text) {
    if (!j->status && napier_jinja_spend(j, text.size)) {
        if (text.size > j->most_memory - j->out.size) {
            napier_jinja_fail(j, "it writes more than %zu bytes", j->most_memory);
            return;
        }
        j->status = napier_text_buffer_append(j->context, &j->out, text.bytes, text.size);
    }
}
static void write_text(jinja *j, const char *text) { write_span(j, (napier_span){text, strlen(text)}); }

/* The shortest digits that give the number back, in the form of Python's repr. */
static void write_float(jinja *j, double x) {
    char digits[40], text[80];
    int precision = 0, exponent = 0, count = 0;
    if (!isfinite(x)) {
        write_text(j, isnan(x) ? "NaN" : x < 0 ? "-Infinity" : "Infinity");
        return;
    }
    do {
        (void)snprintf(digits, sizeof digits, "%.*e", precision, x);
    } while (precision++ < 17 && memcmp(&(double){strtod(digits, NULL)}, &x, sizeof x) != 0);
    exponent = (int)strtol(strchr(digits, 'e') + 1, NULL, 10);
    count = precision - 1; /* digits behind the first one */
    if (exponent >= -4 && exponent < 16) {
        const int decimals = count - exponent > 0 ? count - exponent : 1;
        (void)snprintf(text, sizeof text, "%.*f", decimals, x);
    } else {
        (void)snprintf(text, sizeof text, "%s", digits);
    }
    write_text(j, text);
}

static void write_number(jinja *j, jinja_value v) {
    char text[32];
    if (v.kind == JINJA_FLOAT) {
        write_float(j, v.as.number);
        return;
    }
    (void)snprintf(text, sizeof text, "%lld", (long long)v.as.integer);
    write_text(j, text);
}

/* A text in quotes, of JSON, or of Python's repr. */
static void write_quoted(jinja *j, napier_span s, bool is_json) {
    const bool has_single = memchr(s.bytes, '\'', s.size) != NULL, has_double = memchr(s.bytes, '"', s.size) != NULL;
    const char quote = is_json || (has_single && !has_double) ? '"' : '\'';
    char escaped[8];
    write_span(j, (napier_span){&quote, 1});
    for (size_t i = 0, from = 0; i <= s.size && !j->status; i++) {
        const char c = i < s.size ? s.bytes[i] : '\0';
        static const char plain[] = "\n\r\t\b\f", letters[] = "nrtbf";
        const char *const known = c != '\0' ? strchr(plain, c) : NULL;
        const bool has_letter = known != NULL && (is_json || known - plain < 3);
        if (i < s.size && (unsigned char)c >= 0x20 && (c != 0x7f || is_json) && c != quote && c != '\\') {
            continue;
        }
        write_span(j, (napier_span){s.bytes + from, i - from});
        from = i + 1;
        if (i < s.size) {
            (void)snprintf(escaped, sizeof escaped,
                           has_letter || c == quote || c == '\\' ? "\\%c"
                           : is_json                             ? "\\u%04x"
                                                                 : "\\x%02x",
                           has_letter ? letters[known - plain] : c);
            write_text(j, escaped);
        }
    }
    write_span(j, (napier_span){&quote, 1});
}

static void write_value(jinja *j, jinja_value v, bool is_json, int64_t indent, int64_t level);

static void write_break(jinja *j, int64_t indent, int64_t level) {
    if (indent >= 0) {
        write_text(j, "\n");
        for (int64_t i = 0; i < indent * level && !j->status; i++) {
            write_text(j, " ");
        }
    }
}

static void write_items(jinja *j, jinja_value v, bool is_json, int64_t indent, int64_t level) {
    const bool is_list = v.kind == JINJA_LIST, is_tuple = is_list && !is_json && v.as.list->is_tuple;
    const int64_t count = is_list ? v.as.list->count : v.as.dict->count;
    write_text(j, is_tuple ? "(" : is_list ? "[" : "{");
    for (int64_t i = 0; i < count && !j->status; i++) {
        write_text(j, i == 0 ? "" : indent >= 0 ? "," : ", ");
        write_break(j, indent, level + 1);
        if (!is_list) {
            write_quoted(j, v.as.dict->pairs[i].key, is_json);
            write_text(j, ": ");
        }
        write_value(j, is_list ? v.as.list->items[i] : v.as.dict->pairs[i].value, is_json, indent, level + 1);
    }
    if (count > 0) {
        write_break(j, indent, level);
    }
    write_text(j, is_tuple ? count == 1 ? ",)" : ")" : is_list ? "]" : "}");
}

static void write_value(jinja *j, jinja_value v, bool is_json, int64_t indent, int64_t level) {
    if (napier_jinja_enter(j)) {
        switch (v.kind) {
        case JINJA_NONE: write_text(j, is_json ? "null" : "None"); break;
        case JINJA_BOOL:
            write_text(j, is_json ? v.as.integer ? "true" : "false" : v.as.integer ? "True" : "False");
            break;
        case JINJA_INT:
        case JINJA_FLOAT: write_number(j, v); break;
        case JINJA_TEXT: write_quoted(j, v.as.text, is_json); break;
        case JINJA_LONG: write_span(j, v.as.text); break;
        case JINJA_LIST:
        case JINJA_DICT: write_items(j, v, is_json, indent, level); break;
        default: napier_jinja_fail(j, "%s has no text", napier_jinja_kind_name(v.kind));
        }
    }
    j->depth--;
}

static napier_span written(jinja *j, jinja_value v, bool is_json, int64_t indent) {
    const size_t before = j->out.size;
    write_value(j, v, is_json, indent, 0);
    const size_t size = j->out.size - before;
    char *const copy = napier_jinja_take(j, size + 1, 1);
    if (copy != NULL && size > 0) {
        memcpy(copy, j->out.bytes + before, size);
    }
    j->out.size = before;
    return (napier_span){copy != NULL ? copy : "", copy != NULL ? size : 0};
}

napier_span napier_jinja_string(jinja *j, jinja_value v) {
    return v.kind == JINJA_TEXT        ? v.as.text
           : v.kind == JINJA_UNDEFINED ? (napier_span){"", 0}
                                       : written(j, v, false, -1);
}

napier_span napier_jinja_to_json(jinja *j, jinja_value v, int64_t indent) { return written(j, v, true, indent); }
