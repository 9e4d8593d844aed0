/* lm/tokenizer/jinja/format.c - Python's formats of values in texts: "%5s" % x and "{:>5}".format(x). */
#include <stdio.h>

#include "lm/tokenizer/jinja/jinja.h"

static const jinja_value undefined = {.kind = JINJA_UNDEFINED};

/* How a value is written. */
typedef struct form {
    napier_span fill; /* one character */
    char align;       /* '<', '>', '^', or '=': zeros between the sign and the digits */
    int64_t width, precision;
    char type; /* 's', 'd' or 'f'; '\0': as str() */
} form;

static char next_of(napier_span text) { return text.size > 0 ? text.bytes[0] : '\0'; }

static napier_span behind(napier_span text, size_t size) { return (napier_span){text.bytes + size, text.size - size}; }

/* Takes the digits at the beginning; `otherwise` if there are none. */
static int64_t take_number(jinja *j, napier_span *text, int64_t otherwise) {
    enum { WIDEST = 1000 };
    int64_t number = next_of(*text) >= '0' && next_of(*text) <= '9' ? 0 : otherwise;
    for (; next_of(*text) >= '0' && next_of(*text) <= '9' && !j->status; *text = behind(*text, 1)) {
        number = 10 * number + (next_of(*text) - '0');
        if (number > WIDEST) {
            napier_jinja_fail(j, "a number of a format is more than %d", WIDEST);
        }
    }
    return number;
}

static void take_precision(jinja *j, napier_span *text, form *f) {
    f->precision = -1;
    if (next_of(*text) == '.') {
        *text = behind(*text, 1);
        f->precision = take_number(j, text, -1);
    }
}

static napier_span digits_of(jinja *j, jinja_value v, const form *f) {
    char text[1400]; /* a double has at most 309 digits before the point */
    const int precision = f->precision < 0 ? 6 : (int)f->precision;
    const int size = f->type == 'f' ? snprintf(text, sizeof text, "%.*f", precision, napier_jinja_number(v))
                                    : snprintf(text, sizeof text, "%lld", (long long)v.as.integer);
    char *const made = napier_jinja_take(j, (size_t)size + 1, 1);
    if (made != NULL) {
        memcpy(made, text, (size_t)size);
    }
    return (napier_span){made != NULL ? made : "", made != NULL ? (size_t)size : 0};
}

static void append(jinja *j, napier_span *made, napier_span text, int64_t times) {
    for (int64_t i = 0; i < times && !j->status; i++) {
        *made = napier_jinja_copy(j, *made, text);
    }
}

/* Appends the value in its form. */
static void put(jinja *j, napier_span *made, jinja_value v, const form *f) {
    const bool is_number = napier_jinja_is_number(v), is_digits = f->type == 'd' || f->type == 'f';
    if (j->status || (f->type != '\0' && f->type != 's' && !is_digits) ||
        (is_digits && (!is_number || (f->type == 'd' && v.kind == JINJA_FLOAT))) ||
        (!is_digits && is_number && f->precision >= 0) || (f->align == '=' && !is_number)) {
        napier_jinja_fail(j, "a format with %c of %s", f->type > ' ' ? f->type : '?', napier_jinja_kind_name(v.kind));
        return;
    }
    napier_span text = is_digits ? digits_of(j, v, f) : napier_jinja_string(j, v);
    text = !is_digits && f->precision >= 0 ? napier_jinja_part(text, 0, f->precision) : text;
    const int64_t length = napier_jinja_length(text), pad = f->width > length ? f->width - length : 0;
    const int64_t before = f->align == '<' ? 0 : f->align == '^' ? pad / 2 : pad;
    const size_t sign = f->align == '=' && next_of(text) == '-';
    append(j, made, (napier_span){"-", sign}, 1);
    append(j, made, f->fill, before);
    append(j, made, behind(text, sign), 1);
    append(j, made, f->fill, pad - before);
}

/* ---- % ----------------------------------------------------------------------------------------------------------- */

jinja_value napier_jinja_percent(jinja *j, napier_span text, jinja_value with) {
    const bool is_tuple = with.kind == JINJA_LIST && with.as.list->is_tuple;
    const int64_t count = is_tuple ? with.as.list->count : 1;
    napier_span made = {"", 0};
    int64_t taken = 0;
    for (int64_t at = 0; !j->status && (at = napier_jinja_find(text, (napier_span){"%", 1}, 0)) >= 0;) {
        form f = {.fill = {" ", 1}, .align = '>'};
        append(j, &made, (napier_span){text.bytes, (size_t)at}, 1);
        text = behind(text, (size_t)at + 1);
        const bool is_left = next_of(text) == '-';
        text = behind(text, is_left);
        const bool has_zeros = !is_left && next_of(text) == '0';
        f.width = take_number(j, &text, 0);
        take_precision(j, &text, &f);
        f.type = next_of(text) == 'i' ? 'd' : next_of(text) != '\0' ? next_of(text) : '?';
        f.align = is_left ? '<' : has_zeros && f.type != 's' ? '=' : '>';
        f.fill.bytes = f.align == '=' ? "0" : " ";
        text = behind(text, text.size > 0);
        if (f.type == '%') {
            append(j, &made, (napier_span){"%", 1}, 1);
        } else if (taken < count) {
            put(j, &made, is_tuple ? with.as.list->items[taken] : with, &f);
            taken++;
        } else {
            taken = count + 1;
            break;
        }
    }
    if (taken != count) {
        napier_jinja_fail(j, "a format does not take the %lld values that it has", (long long)count);
    }
    return napier_jinja_span(napier_jinja_copy(j, made, text));
}

/* ---- format ------------------------------------------------------------------------------------------------------ */

static bool is_align(char c) { return c == '<' || c == '>' || c == '^'; }

/* Reads what is behind : in braces. */
static form read_form(jinja *j, napier_span text, jinja_value v) {
    form f = {.fill = {" ", 1}, .align = napier_jinja_is_number(v) ? '>' : '<'};
    const napier_span first = text.size > 0 ? napier_jinja_part(text, 0, 1) : text;
    if (text.size > first.size && is_align(text.bytes[first.size])) {
        f.fill = first;
        text = behind(text, first.size);
    }
    if (is_align(next_of(text))) {
        f.align = next_of(text);
        text = behind(text, 1);
    } else if (next_of(text) == '0') {
        f.align = '=';
        f.fill = (napier_span){"0", 1};
    }
    f.width = take_number(j, &text, 0);
    take_precision(j, &text, &f);
    f.type = next_of(text);
    if (text.size > 1) {
        napier_jinja_fail(j, "a format with '%.*s'", text.size < 40 ? (int)text.size : 40, text.bytes);
    }
    return f;
}

/* The argument that a name, a number or nothing in braces means. */
static jinja_value value_of(jinja *j, napier_span name, const jinja_arguments *a, int64_t *next) {
    const napier_span all = name;
    const int64_t place = name.size > 0 ? take_number(j, &name, -1) : (*next)++;
    for (int i = 0; i < a->count; i++) {
        const bool is_named = a->names[i].size > 0 && a->names[i].size == all.size;
        if (a->names[i].size == 0 ? i == place && name.size == 0
                                  : is_named && memcmp(a->names[i].bytes, all.bytes, all.size) == 0) {
            return a->values[i];
        }
    }
    napier_jinja_fail(j, "a format asks for '%.*s', which it is not given", all.size < 40 ? (int)all.size : 40,
                      all.bytes);
    return undefined;
}

jinja_value napier_jinja_format(jinja *j, napier_span text, const jinja_arguments *a) {
    napier_span made = {"", 0};
    int64_t next = 0;
    while (text.size > 0 && !j->status) {
        size_t size = 0;
        while (size < text.size && text.bytes[size] != '{' && text.bytes[size] != '}') {
            size++;
        }
        append(j, &made, (napier_span){text.bytes, size}, 1);
        text = behind(text, size);
        if (text.size > 1 && text.bytes[1] == text.bytes[0]) { /* {{ and }} */
            append(j, &made, (napier_span){text.bytes, 1}, 1);
            text = behind(text, 2);
        } else if (text.size > 0) {
            const int64_t end = napier_jinja_find(text, (napier_span){"}", 1}, 0);
            if (end < 1) {
                napier_jinja_fail(j, "a format with a single brace");
                break;
            }
            const napier_span inside = {text.bytes + 1, (size_t)end - 1};
            const int64_t colon = napier_jinja_find(inside, (napier_span){":", 1}, 0);
            const size_t name = colon >= 0 ? (size_t)colon : inside.size;
            const jinja_value v = value_of(j, (napier_span){inside.bytes, name}, a, &next);
            const form f = read_form(j, behind(inside, name + (colon >= 0)), v);
            put(j, &made, v, &f);
            text = behind(text, (size_t)end + 1);
        }
    }
    return napier_jinja_span(made);
}
