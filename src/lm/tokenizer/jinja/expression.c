/* lm/tokenizer/jinja/expression.c - expressions: what binds least comes first. */
#include "lm/tokenizer/jinja/jinja.h"

static const jinja_value undefined = {.kind = JINJA_UNDEFINED};

static const jinja_token *next(const jinja *j) { return &j->tokens[j->at]; }

bool napier_jinja_next_is(const jinja *j, jinja_token_kind kind, const char *text) {
    return !j->status && next(j)->kind == kind && (text == NULL || napier_jinja_same(next(j)->text, text));
}

bool napier_jinja_accept(jinja *j, jinja_token_kind kind, const char *text) {
    const bool is = napier_jinja_next_is(j, kind, text);
    j->at += is;
    return is;
}

void napier_jinja_expect(jinja *j, jinja_token_kind kind, const char *text) {
    static const char *const kinds[] = {"text",     "{{",          "}}",     "{%", "%}", "a name", "a text in quotes",
                                        "a number", "an operator", "the end"};
    if (!napier_jinja_accept(j, kind, text) && !j->status) {
        napier_jinja_fail(j, "%s is wanted before '%.*s'", text != NULL ? text : kinds[kind],
                          next(j)->text.size < 20 ? (int)next(j)->text.size : 20, next(j)->text.bytes);
    }
}

static bool accept(jinja *j, const char *operator) { return napier_jinja_accept(j, JINJA_OPERATOR, operator); }
static bool accept_name(jinja *j, const char *name) { return napier_jinja_accept(j, JINJA_NAME, name); }

/* ---- Slices, members --------------------------------------------------------------------------------------------- */

static int64_t length_of(jinja_value v) {
    return v.kind == JINJA_LIST ? v.as.list->count : v.kind == JINJA_TEXT ? napier_jinja_length(v.as.text) : 0;
}

static jinja_value element(jinja *j, jinja_value of, int64_t index) {
    const int64_t count = length_of(of);
    index += index < 0 ? count : 0;
    if (index < 0 || index >= count || !napier_jinja_spend(j, of.kind == JINJA_TEXT ? of.as.text.size : 0)) {
        return undefined;
    }
    return of.kind == JINJA_LIST ? of.as.list->items[index]
                                 : napier_jinja_span(napier_jinja_part(of.as.text, index, index + 1));
}

static jinja_value subscript(jinja *j, jinja_value of, jinja_value index) {
    if (j->dead || j->status) {
        return undefined;
    }
    if (of.kind == JINJA_UNDEFINED) {
        napier_jinja_fail(j, "a member of an undefined value");
    } else if ((of.kind == JINJA_DICT || of.kind == JINJA_SPACE) &&
               !napier_jinja_spend(j, 32 * (size_t)of.as.dict->count)) {
        return undefined;
    } else if ((of.kind == JINJA_DICT || of.kind == JINJA_SPACE) && index.kind == JINJA_TEXT) {
        const jinja_value *const found = napier_jinja_member(of, index.as.text);
        return found != NULL ? *found : undefined;
    } else if ((of.kind == JINJA_LIST || of.kind == JINJA_TEXT) &&
               (index.kind == JINJA_INT || index.kind == JINJA_BOOL)) {
        return element(j, of, index.as.integer);
    }
    return undefined;
}

static int64_t bound(int64_t value, int64_t least, int64_t most) {
    return value < least ? least : value > most ? most : value;
}

/* A bound of a slice as Python takes it, or `otherwise` if there is none. */
static int64_t slice_bound(jinja *j, jinja_value v, int64_t count, int64_t step, int64_t otherwise) {
    if (v.kind == JINJA_NONE) {
        return otherwise;
    }
    if (v.kind != JINJA_INT) {
        napier_jinja_fail(j, "%s is no bound of a slice", napier_jinja_kind_name(v.kind));
        return 0;
    }
    const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? count : count - 1;
    return bound(v.as.integer < 0 && v.as.integer > -count - 1 ? v.as.integer + count : v.as.integer, low, high);
}

static jinja_value slice(jinja *j, jinja_value of, const jinja_value parts[3]) {
    const int64_t count = length_of(of), step = parts[2].kind == JINJA_INT ? parts[2].as.integer : 1;
    if (j->dead || j->status) {
        return undefined;
    }
    if ((of.kind != JINJA_LIST && of.kind != JINJA_TEXT) || step == 0 || step < -count - 1 || step > INT32_MAX) {
        napier_jinja_fail(j, "a slice of %s", napier_jinja_kind_name(of.kind));
        return undefined;
    }
    const int64_t from = slice_bound(j, parts[0], count, step, step > 0 ? 0 : count - 1);
    const int64_t to = slice_bound(j, parts[1], count, step, step > 0 ? count : -1);
    if (of.kind == JINJA_TEXT && step == 1) {
        return napier_jinja_spend(j, of.as.text.size) ? napier_jinja_span(napier_jinja_part(of.as.text, from, to))
                                                      : undefined;
    }
    const jinja_value items = napier_jinja_items(j, of), made = napier_jinja_list(j);
    for (int64_t i = from; (step > 0 ? i < to : i > to) && !j->status; i += step) {
        napier_jinja_add(j, made, items.as.list->items[i]);
    }
    napier_span text = {"", 0};
    for (int64_t i = 0; of.kind == JINJA_TEXT && !j->status && i < made.as.list->count; i++) {
        text = napier_jinja_copy(j, text, made.as.list->items[i].as.text);
    }
    return of.kind == JINJA_TEXT ? napier_jinja_span(text) : made;
}

/* Reads what is behind [. */
static jinja_value read_subscript(jinja *j, jinja_value of) {
    jinja_value parts[3] = {{.kind = JINJA_NONE}, {.kind = JINJA_NONE}, {.kind = JINJA_NONE}};
    int count = 0;
    for (; count < 3 && !j->status; count++) {
        if (!napier_jinja_next_is(j, JINJA_OPERATOR, ":") && !napier_jinja_next_is(j, JINJA_OPERATOR, "]")) {
            parts[count] = napier_jinja_expression(j);
        }
        if (!accept(j, ":")) {
            break;
        }
    }
    napier_jinja_expect(j, JINJA_OPERATOR, "]");
    return count > 0 ? slice(j, of, parts) : subscript(j, of, parts[0]);
}

/* ---- Calls ------------------------------------------------------------------------------------------------------- */

/* Reads the arguments behind (. */
static void read_arguments(jinja *j, jinja_arguments *a) {
    a->count = 0;
    while (!j->status && !accept(j, ")")) {
        napier_span name = {"", 0};
        if (a->count == JINJA_MOST_ARGUMENTS) {
            napier_jinja_fail(j, "a call has more than %d arguments", JINJA_MOST_ARGUMENTS);
            return;
        }
        if (next(j)->kind == JINJA_NAME && napier_jinja_same(j->tokens[j->at + 1].text, "=") &&
            j->tokens[j->at + 1].kind == JINJA_OPERATOR) {
            name = next(j)->text;
            j->at += 2;
        } else if (a->count > 0 && a->names[a->count - 1].size > 0) {
            napier_jinja_fail(j, "an argument without a name stands behind one with a name");
        }
        a->values[a->count] = napier_jinja_expression(j);
        a->names[a->count++] = name;
        if (!napier_jinja_next_is(j, JINJA_OPERATOR, ")")) {
            napier_jinja_expect(j, JINJA_OPERATOR, ",");
        }
    }
}

static jinja_value call(jinja *j, jinja_value f, napier_span name) {
    jinja_arguments a;
    read_arguments(j, &a);
    if (j->dead || j->status) {
        return undefined;
    }
    if (f.kind == JINJA_MACRO) {
        return j->call_macro(j, f, &a);
    }
    if (f.kind == JINJA_FUNCTION) {
        return napier_jinja_function(j, f.as.text, &a);
    }
    napier_jinja_fail(j, "'%.*s' is no function", name.size < 40 ? (int)name.size : 40, name.bytes);
    return undefined;
}

static jinja_value read_member(jinja *j, jinja_value of) {
    const napier_span name = next(j)->text;
    if (napier_jinja_accept(j, JINJA_NUMBER, NULL)) {
        return subscript(j, of, name.size < 9 ? napier_jinja_read_number(j, name, false) : undefined);
    }
    napier_jinja_expect(j, JINJA_NAME, NULL);
    if (!accept(j, "(")) {
        return j->dead || j->status ? undefined : napier_jinja_attribute(j, of, name);
    }
    const jinja_value *const member = j->dead ? NULL : napier_jinja_member(of, name);
    if (member != NULL && member->kind == JINJA_MACRO) {
        return call(j, *member, name);
    }
    jinja_arguments a;
    read_arguments(j, &a);
    return j->dead || j->status ? undefined : napier_jinja_method(j, of, name, &a);
}

static jinja_value read_filter(jinja *j, jinja_value v) {
    jinja_arguments a = {.count = 0};
    const napier_span name = next(j)->text;
    napier_jinja_expect(j, JINJA_NAME, NULL);
    if (accept(j, "(")) {
        read_arguments(j, &a);
    }
    return j->dead || j->status ? undefined : napier_jinja_filter(j, v, name, &a);
}

static jinja_value read_primary(jinja *j);
static jinja_value read_postfix(jinja *j, jinja_value v, bool with_filters);

/* Reads what is behind `is`. The argument of a test may stand without parentheses. */
static jinja_value read_test(jinja *j, jinja_value v) {
    jinja_arguments a = {.count = 0};
    const bool is_not = accept_name(j, "not");
    const napier_span name = next(j)->text;
    napier_jinja_expect(j, JINJA_NAME, NULL);
    if (accept(j, "(")) {
        read_arguments(j, &a);
    } else {
        const jinja_token *const t = next(j);
        const bool is_word = t->kind == JINJA_NAME && !napier_jinja_same(t->text, "else") &&
                             !napier_jinja_same(t->text, "or") && !napier_jinja_same(t->text, "and") &&
                             !napier_jinja_same(t->text, "is") && !napier_jinja_same(t->text, "if") &&
                             !napier_jinja_same(t->text, "not") && !napier_jinja_same(t->text, "in");
        if (is_word || t->kind == JINJA_STRING || t->kind == JINJA_NUMBER ||
            napier_jinja_next_is(j, JINJA_OPERATOR, "[")) {
            a.values[0] = read_postfix(j, read_primary(j), false);
            a.names[0] = (napier_span){"", 0};
            a.count = 1;
        }
    }
    return j->dead || j->status ? undefined : napier_jinja_bool(napier_jinja_test(j, v, name, &a) != is_not);
}

/* ---- What binds most --------------------------------------------------------------------------------------------- */

static jinja_value read_list(jinja *j, const char *end) {
    const jinja_value list = j->dead ? undefined : napier_jinja_list(j);
    while (!j->status && !accept(j, end)) {
        const jinja_value item = napier_jinja_expression(j);
        napier_jinja_add(j, list, item);
        if (!napier_jinja_next_is(j, JINJA_OPERATOR, end)) {
            napier_jinja_expect(j, JINJA_OPERATOR, ",");
        }
    }
    return list;
}

/* Reads what is behind (: an expression, or a tuple. */
static jinja_value read_parentheses(jinja *j) {
    if (accept(j, ")")) {
        return j->dead ? undefined : napier_jinja_tuple(j);
    }
    const jinja_value first = napier_jinja_expression(j);
    if (accept(j, ")")) {
        return first;
    }
    napier_jinja_expect(j, JINJA_OPERATOR, ",");
    const jinja_value list = j->dead ? undefined : napier_jinja_tuple(j), rest = read_list(j, ")");
    napier_jinja_add(j, list, first);
    for (int64_t i = 0; rest.kind == JINJA_LIST && i < rest.as.list->count; i++) {
        napier_jinja_add(j, list, rest.as.list->items[i]);
    }
    return list;
}

static jinja_value read_dict(jinja *j) {
    const jinja_value dict = j->dead ? undefined : napier_jinja_dict(j, JINJA_DICT);
    while (!j->status && !accept(j, "}")) {
        const jinja_value key = napier_jinja_expression(j);
        napier_jinja_expect(j, JINJA_OPERATOR, ":");
        const jinja_value value = napier_jinja_expression(j);
        if (!j->dead && !j->status && key.kind != JINJA_TEXT) {
            napier_jinja_fail(j, "%s is no key: texts are", napier_jinja_kind_name(key.kind));
        }
        napier_jinja_put(j, dict, key.as.text, value);
        if (!napier_jinja_next_is(j, JINJA_OPERATOR, "}")) {
            napier_jinja_expect(j, JINJA_OPERATOR, ",");
        }
    }
    return dict;
}

static jinja_value read_name(jinja *j, napier_span name) {
    static const char *const words[] = {"true", "True", "false", "False", "none", "None"};
    for (size_t i = 0; i < 6; i++) {
        if (napier_jinja_same(name, words[i])) {
            return i < 4 ? napier_jinja_bool(i < 2) : (jinja_value){.kind = JINJA_NONE};
        }
    }
    const jinja_value v = j->dead ? undefined : napier_jinja_lookup(j, name);
    return accept(j, "(") ? call(j, v, name) : v;
}

static jinja_value read_primary(jinja *j) {
    const napier_span text = next(j)->text;
    if (napier_jinja_accept(j, JINJA_STRING, NULL)) {
        napier_span all = text;
        for (; next(j)->kind == JINJA_STRING && !j->status; j->at++) { /* those that follow are joined */
            all = napier_jinja_copy(j, all, next(j)->text);
        }
        return napier_jinja_span(all);
    }
    return napier_jinja_accept(j, JINJA_NUMBER, NULL) ? napier_jinja_read_number(j, text, false)
           : napier_jinja_accept(j, JINJA_NAME, NULL) ? read_name(j, text)
           : accept(j, "(")                           ? read_parentheses(j)
           : accept(j, "[")                           ? read_list(j, "]")
           : accept(j, "{")                           ? read_dict(j)
                                                      : (napier_jinja_expect(j, JINJA_NAME, "a value"), undefined);
}

static jinja_value read_postfix(jinja *j, jinja_value v, bool with_filters) {
    while (!j->status) {
        if (accept(j, ".")) {
            v = read_member(j, v);
        } else if (accept(j, "[")) {
            v = read_subscript(j, v);
        } else if (with_filters && accept(j, "|")) {
            v = read_filter(j, v);
        } else if (with_filters && accept_name(j, "is")) {
            v = read_test(j, v);
        } else {
            break;
        }
    }
    return v;
}

static jinja_value negative(jinja *j, jinja_value v) {
    if (v.kind == JINJA_INT || v.kind == JINJA_BOOL) {
        return napier_jinja_int(-v.as.integer); /* 19 digits and more are no integers here */
    }
    if (v.kind == JINJA_FLOAT) {
        return (jinja_value){.kind = JINJA_FLOAT, .as.number = -v.as.number};
    }
    if (!j->dead && !j->status) {
        napier_jinja_fail(j, "- before %s", napier_jinja_kind_name(v.kind));
    }
    return undefined;
}

static jinja_value read_unary(jinja *j, bool with_filters) {
    jinja_value v = undefined;
    if (napier_jinja_enter(j)) {
        v = accept(j, "-")   ? negative(j, read_unary(j, false))
            : accept(j, "+") ? read_unary(j, false)
                             : read_primary(j);
        v = read_postfix(j, v, with_filters);
    }
    j->depth--;
    return v;
}

/* ---- Operators --------------------------------------------------------------------------------------------------- */

/* The operators of each level, from what binds least. */
static const char *const levels[][5] = {{"+", "-", NULL}, {"~", NULL}, {"*", "//", "/", "%", NULL}};
enum { LEVELS = 3 };

static jinja_value read_level(jinja *j, int level) {
    jinja_value a = level == LEVELS ? read_unary(j, true) : read_level(j, level + 1);
    for (bool more = level < LEVELS; more && !j->status;) {
        more = false;
        for (int i = 0; levels[level][i] != NULL && !more; i++) {
            more = accept(j, levels[level][i]);
            if (more) {
                a = napier_jinja_binary(j, levels[level][i], a, read_level(j, level + 1));
            }
        }
    }
    if (napier_jinja_next_is(j, JINJA_OPERATOR, "**")) {
        napier_jinja_fail(j, "the operator ** is not supported");
    }
    return a;
}

/* The comparison that follows; NULL: none. */
static const char *accept_comparison(jinja *j) {
    static const char *const operators[] = {"==", "!=", "<=", ">=", "<", ">"};
    for (int i = 0; i < 6; i++) {
        if (accept(j, operators[i])) {
            return operators[i];
        }
    }
    if (accept_name(j, "in")) {
        return "in";
    }
    const bool is_not_in =
        napier_jinja_next_is(j, JINJA_NAME, "not") && napier_jinja_same(j->tokens[j->at + 1].text, "in");
    j->at += is_not_in ? 2 : 0;
    return is_not_in ? "not in" : NULL;
}

static jinja_value read_comparison(jinja *j) {
    jinja_value a = read_level(j, 0);
    bool is_true = true, is_any = false;
    for (const char *operator; !j->status && (operator= accept_comparison(j)) != NULL; is_any = true) {
        const jinja_value b = read_level(j, 0);
        is_true = is_true && !j->dead && !j->status && napier_jinja_compare(j, operator, a, b);
        a = b;
    }
    return is_any ? napier_jinja_bool(is_true) : a;
}

static jinja_value read_not(jinja *j) {
    jinja_value v = undefined;
    if (napier_jinja_enter(j)) {
        v = accept_name(j, "not") ? napier_jinja_bool(!napier_jinja_is_true(read_not(j))) : read_comparison(j);
    }
    j->depth--;
    return v;
}

/* `and`, or `or`: the right side counts only where the left one does not decide. */
static jinja_value read_logic(jinja *j, bool is_or) {
    jinja_value a = is_or ? read_logic(j, false) : read_not(j);
    while (accept_name(j, is_or ? "or" : "and")) {
        const bool decided = napier_jinja_is_true(a) == is_or;
        j->dead += decided;
        const jinja_value b = is_or ? read_logic(j, false) : read_not(j);
        j->dead -= decided;
        a = decided ? a : b;
    }
    return a;
}

/* The index of the `if` of A if CONDITION else B, which begins here; -1: the expression is no choice. */
static int64_t find_if(jinja *j) {
    int depth = 0;
    for (int64_t i = j->at; j->tokens[i].kind >= JINJA_NAME && j->tokens[i].kind <= JINJA_OPERATOR; i++) {
        j->steps += i % 8 == 0;
        const jinja_token *const t = &j->tokens[i];
        const char c = t->kind == JINJA_OPERATOR ? t->text.bytes[0] : '\0';
        depth += c == '(' || c == '[' || c == '{' ? 1 : c == ')' || c == ']' || c == '}' ? -1 : 0;
        if (depth < 0 ||
            (depth == 0 && (c == ',' || c == ':' || (t->kind == JINJA_NAME && napier_jinja_same(t->text, "else"))))) {
            break;
        }
        if (depth == 0 && t->kind == JINJA_NAME && napier_jinja_same(t->text, "if")) {
            return i;
        }
    }
    return -1;
}

jinja_value napier_jinja_operand(jinja *j) { return read_logic(j, true); }

/* The condition, which stands behind A, comes first. */
static jinja_value read_choice(jinja *j) {
    const int64_t begin = j->at, found = find_if(j);
    if (found < 0) {
        return napier_jinja_operand(j);
    }
    j->at = found + 1;
    const bool is_true = napier_jinja_is_true(napier_jinja_operand(j)) && !j->dead;
    const int64_t behind = j->at;
    j->dead += !is_true;
    j->at = begin;
    const jinja_value v = napier_jinja_operand(j);
    j->dead -= !is_true;
    if (!j->status && j->at != found) {
        napier_jinja_expect(j, JINJA_NAME, "if");
    }
    j->at = j->status ? j->at : behind;
    if (accept_name(j, "else")) {
        j->dead += is_true;
        const jinja_value other = napier_jinja_expression(j);
        j->dead -= is_true;
        return is_true ? v : other;
    }
    return is_true ? v : undefined;
}

jinja_value napier_jinja_expression(jinja *j) {
    jinja_value v = undefined;
    if (napier_jinja_enter(j) && napier_jinja_spend(j, 0)) {
        v = read_choice(j);
    }
    j->depth--;
    return v;
}
