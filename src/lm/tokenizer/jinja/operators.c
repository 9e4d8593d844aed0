/* lm/tokenizer/jinja/operators.c - operators with two sides, on values. */
#include "lm/tokenizer/jinja/jinja.h"

static const jinja_value undefined = {.kind = JINJA_UNDEFINED};

static jinja_value refuse_operator(jinja *j, const char *operator, jinja_value a, jinja_value b) {
    if (!j->dead && !j->status) {
        napier_jinja_fail(j, "%s %s %s", napier_jinja_kind_name(a.kind), operator, napier_jinja_kind_name(b.kind));
    }
    return undefined;
}

/* Python's // and %, whose remainder has the sign of b. */
static jinja_value divide(jinja *j, int64_t a, int64_t b, bool remainder) {
    if (b == 0) {
        napier_jinja_fail(j, "a division by 0");
        return undefined;
    }
    if (b == -1) {
        return napier_jinja_int(remainder ? 0 : -a);
    }
    const int64_t rest = a % b, moves = rest != 0 && (rest < 0) != (b < 0);
    return napier_jinja_int(remainder ? rest + (moves ? b : 0) : a / b - moves);
}

static jinja_value integers(jinja *j, char operator, int64_t a, int64_t b) {
    enum { BITS = 62 };
    int64_t made = 0;
    const bool overflows = operator== '+' ? __builtin_add_overflow(a, b, &made) :
                           operator== '-' ? __builtin_sub_overflow(a, b, &made)
                                          : __builtin_mul_overflow(a, b, &made);
    if (overflows || made >= INT64_C(1) << BITS || made <= -(INT64_C(1) << BITS)) {
        napier_jinja_fail(j, "an integer has more than %d bits", BITS);
    }
    return napier_jinja_int(made);
}

static jinja_value numbers(jinja *j, const char *operator, jinja_value a, jinja_value b) {
    const double x = napier_jinja_number(a), y = napier_jinja_number(b);
    const char c = operator[0];
    if (a.kind != JINJA_FLOAT && b.kind != JINJA_FLOAT && strcmp(operator, "/") != 0) {
        return c == '+' || c == '-' || c == '*' ? integers(j, c, a.as.integer, b.as.integer)
                                                : divide(j, a.as.integer, b.as.integer, c == '%');
    }
    if (c == '%' || strcmp(operator, "//") == 0 || (c == '/' && !(y < 0) && !(y > 0))) {
        return refuse_operator(j, operator, a, b);
    }
    return (jinja_value){.kind = JINJA_FLOAT,
                         .as.number = c == '+'   ? x + y
                                      : c == '-' ? x - y
                                      : c == '*' ? x * y
                                                 : x / y};
}

static jinja_value join_lists(jinja *j, jinja_value a, jinja_value b) {
    const jinja_value made = a.as.list->is_tuple ? napier_jinja_tuple(j) : napier_jinja_list(j);
    for (int64_t i = 0; i < a.as.list->count + b.as.list->count && !j->status; i++) {
        const int64_t k = i - a.as.list->count;
        napier_jinja_add(j, made, k < 0 ? a.as.list->items[i] : b.as.list->items[k]);
    }
    return made;
}

static jinja_value repeat(jinja *j, jinja_value v, int64_t times) {
    jinja_value made = napier_jinja_text("");
    if (v.kind == JINJA_LIST) {
        made = v.as.list->is_tuple ? napier_jinja_tuple(j) : napier_jinja_list(j);
        for (int64_t i = 0; i < times && v.as.list->count > 0 && !j->status; i++) {
            for (int64_t k = 0; k < v.as.list->count; k++) {
                napier_jinja_add(j, made, v.as.list->items[k]);
            }
        }
    } else if (v.kind == JINJA_TEXT) {
        for (int64_t i = 0; i < times && v.as.text.size > 0 && !j->status; i++) {
            made.as.text = napier_jinja_copy(j, made.as.text, v.as.text);
        }
    } else {
        refuse_operator(j, "*", v, napier_jinja_int(times));
    }
    return made;
}

jinja_value napier_jinja_binary(jinja *j, const char *operator, jinja_value a, jinja_value b) {
    if (j->dead || j->status || !napier_jinja_spend(j, 0)) {
        return undefined;
    }
    if (operator[0] == '~') {
        const napier_span left = napier_jinja_string(j, a);
        return napier_jinja_span(napier_jinja_copy(j, left, napier_jinja_string(j, b)));
    }
    if (napier_jinja_is_number(a) && napier_jinja_is_number(b)) {
        return numbers(j, operator, a, b);
    }
    if (operator[0] == '%' && a.kind == JINJA_TEXT) {
        return napier_jinja_percent(j, a.as.text, b);
    }
    if (operator[0] == '+' && a.kind == JINJA_TEXT && b.kind == JINJA_TEXT) {
        return napier_jinja_span(napier_jinja_copy(j, a.as.text, b.as.text));
    }
    if (operator[0] == '+' && a.kind == JINJA_LIST && b.kind == JINJA_LIST &&
        a.as.list->is_tuple == b.as.list->is_tuple) {
        return join_lists(j, a, b);
    }
    if (operator[0] == '*' &&(a.kind == JINJA_INT || b.kind == JINJA_INT)) {
        return a.kind == JINJA_INT ? repeat(j, b, a.as.integer) : repeat(j, a, b.as.integer);
    }
    return refuse_operator(j, operator, a, b);
}

/* ---- Comparisons ----------------------------------------------------------------------------------------------- */

static bool contains(jinja *j, jinja_value in, jinja_value v) {
    bool found = false;
    if (in.kind == JINJA_TEXT && v.kind == JINJA_TEXT) {
        return napier_jinja_spend(j, in.as.text.size) && napier_jinja_find(in.as.text, v.as.text, 0) >= 0;
    }
    if (in.kind == JINJA_DICT) {
        return napier_jinja_spend(j, 32 * (size_t)in.as.dict->count) && v.kind == JINJA_TEXT &&
               napier_jinja_member(in, v.as.text) != NULL;
    }
    if (in.kind != JINJA_LIST && in.kind != JINJA_UNDEFINED) {
        napier_jinja_fail(j, "in %s", napier_jinja_kind_name(in.kind));
    }
    for (int64_t i = 0; in.kind == JINJA_LIST && i < in.as.list->count && !found && !j->status; i++) {
        found = napier_jinja_equal(j, in.as.list->items[i], v);
    }
    return found;
}

static int order(jinja *j, jinja_value a, jinja_value b, const char *operator) {
    if (napier_jinja_is_number(a) && napier_jinja_is_number(b)) {
        const double x = napier_jinja_number(a), y = napier_jinja_number(b);
        return x < y ? -1 : x > y;
    }
    if (a.kind != JINJA_TEXT || b.kind != JINJA_TEXT) {
        refuse_operator(j, operator, a, b);
        return 0;
    }
    const size_t size = a.as.text.size < b.as.text.size ? a.as.text.size : b.as.text.size;
    const int c = size > 0 ? memcmp(a.as.text.bytes, b.as.text.bytes, size) : 0;
    return c != 0 ? c : a.as.text.size < b.as.text.size ? -1 : a.as.text.size > b.as.text.size;
}

bool napier_jinja_compare(jinja *j, const char *operator, jinja_value a, jinja_value b) {
    const char c = operator[0];
    return c == '='   ? napier_jinja_equal(j, a, b)
           : c == '!' ? !napier_jinja_equal(j, a, b)
           : c == 'i' ? contains(j, b, a)
           : c == 'n' ? !contains(j, b, a)
           : c == '<' ? order(j, a, b, operator) < (operator[1] == '=')
                      : order(j, a, b, operator) > -(operator[1] == '=');
}
