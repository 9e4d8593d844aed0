/* lm/tokenizer/jinja/calls.c - methods of values, filters, tests and functions, as Python and jinja2 have them. */
#define _POSIX_C_SOURCE 200809L

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <utf8proc.h>

#include "lm/tokenizer/jinja/jinja.h"

static const jinja_value undefined = {.kind = JINJA_UNDEFINED};
static const napier_span nothing = {"", 0};

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

static const jinja_value *named(const jinja_arguments *a, int place, const char *name) {
    for (int i = 0; i < a->count; i++) {
        if (a->names[i].size > 0 ? name != NULL && napier_jinja_same(a->names[i], name) : i == place) {
            return &a->values[i];
        }
    }
    return NULL;
}

static jinja_value argument(const jinja_arguments *a, int place, const char *name, jinja_value otherwise) {
    const jinja_value *const found = named(a, place, name);
    return found != NULL ? *found : otherwise;
}

static napier_span text_argument(jinja *j, const jinja_arguments *a, int place, const char *name,
                                 const char *otherwise) {
    const jinja_value v = argument(a, place, name, otherwise != NULL ? napier_jinja_text(otherwise) : undefined);
    if (v.kind != JINJA_TEXT) {
        napier_jinja_fail(j, "argument %d: %s, where a text is wanted", place + 1, napier_jinja_kind_name(v.kind));
        return nothing;
    }
    return v.as.text;
}

static int64_t integer_argument(jinja *j, const jinja_arguments *a, int place, const char *name, int64_t otherwise) {
    const jinja_value v = argument(a, place, name, napier_jinja_int(otherwise));
    if (v.kind != JINJA_INT && v.kind != JINJA_BOOL) {
        napier_jinja_fail(j, "argument %d: %s, where an integer is wanted", place + 1, napier_jinja_kind_name(v.kind));
        return otherwise;
    }
    return v.as.integer;
}

static int shown(napier_span name) { return name.size < 40 ? (int)name.size : 40; }

/* ---- Texts ------------------------------------------------------------------------------------------------------- */

typedef enum letter_case { UPPER, LOWER, CAPITAL, TITLE } letter_case;

/* Simple mappings of each character. Texts whose case changes their length, or depends on the place, differ from Python's. */
static jinja_value change_case(jinja *j, napier_span text, letter_case to) {
    const size_t size = 4 * text.size + 1;
    char *const made = napier_jinja_spend(j, 8 * text.size) ? napier_jinja_take(j, size, 1) : NULL;
    size_t written = 0;
    bool is_first = true;
    for (size_t i = 0; made != NULL && i < text.size;) {
        utf8proc_int32_t c = 0;
        const utf8proc_ssize_t read =
            utf8proc_iterate((const utf8proc_uint8_t *)text.bytes + i, (utf8proc_ssize_t)(text.size - i), &c);
        if (read <= 0) {
            made[written++] = text.bytes[i++];
            continue;
        }
        const utf8proc_category_t kind = utf8proc_category(c);
        const utf8proc_int32_t changed =
            to == UPPER || (to != LOWER && is_first) ? utf8proc_toupper(c) : utf8proc_tolower(c);
        written += (size_t)utf8proc_encode_char(changed, (utf8proc_uint8_t *)made + written);
        is_first = to == TITLE && (kind < UTF8PROC_CATEGORY_LU || kind > UTF8PROC_CATEGORY_LO);
        i += (size_t)read;
    }
    return napier_jinja_span((napier_span){made != NULL ? made : "", written});
}

/* Takes white space, or characters of a set of ASCII, from the ends. */
static jinja_value strip(jinja *j, napier_span text, const jinja_arguments *a, bool at_start, bool at_end) {
    const jinja_value set = argument(a, 0, "chars", (jinja_value){.kind = JINJA_NONE});
    if (set.kind == JINJA_NONE) {
        text = at_start ? napier_chat_trim_start(text) : text;
        return napier_jinja_span(at_end ? napier_chat_trim_end(text) : text);
    }
    const napier_span characters = text_argument(j, a, 0, "chars", NULL);
    for (size_t i = 0; i < characters.size; i++) {
        if ((unsigned char)characters.bytes[i] >= 0x80) {
            napier_jinja_fail(j, "strip of characters beyond ASCII");
        }
    }
    while (at_start && text.size > 0 && memchr(characters.bytes, text.bytes[0], characters.size) != NULL) {
        text = (napier_span){text.bytes + 1, text.size - 1};
    }
    while (at_end && text.size > 0 && memchr(characters.bytes, text.bytes[text.size - 1], characters.size) != NULL) {
        text.size--;
    }
    return napier_jinja_span(text);
}

/* The words between white space, at most `most` of them split off. */
static jinja_value split_words(jinja *j, napier_span text, int64_t most) {
    const jinja_value list = napier_jinja_list(j);
    text = napier_chat_trim_start(text);
    for (int64_t count = 0; text.size > 0 && !j->status; count++) {
        size_t size = 0;
        while (size < text.size && (most < 0 || count < most)) {
            const napier_span rest = {text.bytes + size, text.size - size};
            if (napier_chat_trim_start(rest).size < rest.size) {
                break;
            }
            size++;
        }
        const bool is_last = most >= 0 && count >= most;
        const napier_span word = {text.bytes, is_last ? napier_chat_trim_end(text).size : size};
        napier_jinja_add(j, list, napier_jinja_span(word));
        text = is_last ? nothing : napier_chat_trim_start((napier_span){text.bytes + size, text.size - size});
    }
    return list;
}

static jinja_value split(jinja *j, napier_span text, const jinja_arguments *a) {
    const jinja_value by = argument(a, 0, "sep", (jinja_value){.kind = JINJA_NONE});
    const int64_t most = integer_argument(j, a, 1, "maxsplit", -1);
    if (by.kind == JINJA_NONE) {
        return split_words(j, text, most);
    }
    const napier_span part = text_argument(j, a, 0, "sep", NULL);
    const jinja_value list = napier_jinja_list(j);
    if (part.size == 0) {
        napier_jinja_fail(j, "split by a text without characters");
    }
    for (int64_t count = 0; !j->status; count++) {
        const int64_t found = most < 0 || count < most ? napier_jinja_find(text, part, 0) : -1;
        const size_t size = found >= 0 ? (size_t)found : text.size;
        napier_jinja_spend(j, size);
        napier_jinja_add(j, list, napier_jinja_span((napier_span){text.bytes, size}));
        if (found < 0) {
            break;
        }
        text = (napier_span){text.bytes + size + part.size, text.size - size - part.size};
    }
    return list;
}

static jinja_value join(jinja *j, jinja_value of, napier_span by, const jinja_value *attribute) {
    const jinja_value items = napier_jinja_items(j, of);
    size_t size = 0;
    for (int64_t i = 0; !j->status && i < items.as.list->count; i++) {
        jinja_value *const item = &items.as.list->items[i];
        const jinja_value v = attribute != NULL && attribute->kind == JINJA_TEXT
                                  ? napier_jinja_attribute(j, *item, attribute->as.text)
                                  : *item;
        size += napier_jinja_string(j, v).size + by.size;
    }
    char *const made = napier_jinja_spend(j, size) ? napier_jinja_take(j, size + 1, 1) : NULL;
    size_t at = 0;
    for (int64_t i = 0; made != NULL && !j->status && i < items.as.list->count; i++) {
        const jinja_value item = items.as.list->items[i];
        const jinja_value v = attribute != NULL && attribute->kind == JINJA_TEXT
                                  ? napier_jinja_attribute(j, item, attribute->as.text)
                                  : item;
        const napier_span text = napier_jinja_string(j, v), before = i > 0 ? by : nothing;
        if (before.size > 0) {
            memcpy(made + at, before.bytes, before.size);
        }
        if (text.size > 0) {
            memcpy(made + at + before.size, text.bytes, text.size);
        }
        at += before.size + text.size;
    }
    return napier_jinja_span((napier_span){made != NULL ? made : "", at});
}

static bool starts(napier_span text, napier_span with, bool at_end) {
    return with.size <= text.size &&
           (with.size == 0 || memcmp(text.bytes + (at_end ? text.size - with.size : 0), with.bytes, with.size) == 0);
}

/* startswith and endswith, whose argument may be a tuple. */
static jinja_value starts_with(jinja *j, napier_span text, const jinja_arguments *a, bool at_end) {
    const jinja_value v = argument(a, 0, NULL, undefined);
    bool found = false;
    if (v.kind != JINJA_LIST) {
        return napier_jinja_bool(starts(text, text_argument(j, a, 0, NULL, NULL), at_end));
    }
    for (int64_t i = 0; i < v.as.list->count && !found; i++) {
        found = v.as.list->items[i].kind == JINJA_TEXT && starts(text, v.as.list->items[i].as.text, at_end);
    }
    return napier_jinja_bool(found);
}

static jinja_value find_text(jinja *j, napier_span text, napier_span part, bool from_end) {
    int64_t found = napier_jinja_find(text, part, 0);
    for (int64_t later = found; from_end && later >= 0 && napier_jinja_spend(j, text.size - (size_t)later);) {
        found = later;
        later = napier_jinja_find(text, part, (size_t)later + 1);
    }
    return napier_jinja_int(found < 0 ? -1 : napier_jinja_length((napier_span){text.bytes, (size_t)found}));
}

static jinja_value count_text(jinja *j, napier_span text, napier_span part) {
    int64_t count = 0;
    size_t from = 0;
    for (int64_t at = 0;
         part.size > 0 && napier_jinja_spend(j, text.size - from) && (at = napier_jinja_find(text, part, from)) >= 0;
         count++) {
        from = (size_t)at + part.size;
    }
    return napier_jinja_int(part.size > 0 ? count : napier_jinja_length(text) + 1);
}

static jinja_value split_lines(jinja *j, napier_span text) {
    const jinja_value list = napier_jinja_list(j);
    while (text.size > 0 && !j->status) {
        const char *const end = memchr(text.bytes, '\n', text.size);
        const size_t size = end != NULL ? (size_t)(end - text.bytes) : text.size;
        napier_jinja_add(j, list, napier_jinja_span((napier_span){text.bytes, size}));
        text = (napier_span){text.bytes + size + (end != NULL), text.size - size - (end != NULL)};
    }
    return list;
}

static jinja_value replace(jinja *j, napier_span text, napier_span old, napier_span new, int64_t most) {
    napier_span made = {"", 0};
    size_t from = 0, size = text.size;
    int64_t count = 0;
    if (old.size == 0) {
        napier_jinja_fail(j, "replace of a text without characters");
        return (jinja_value){0};
    }
    for (int64_t at = 0; (most < 0 || count < most) && napier_jinja_spend(j, text.size - from) &&
                         (at = napier_jinja_find(text, old, from)) >= 0;
         count++) {
        from = (size_t)at + old.size;
    }
    if (new.size > old.size && count > 0 && (new.size - old.size) > (j->most_memory - size) / (size_t)count) {
        napier_jinja_fail(j, "replace makes more than %zu bytes", j->most_memory);
        return (jinja_value){0};
    }
    size = size + (size_t)count * new.size - (size_t)count *old.size;
    char *const to = napier_jinja_take(j, size + 1, 1);
    made = (napier_span){to != NULL ? to : "", to != NULL ? size : 0};
    from = 0;
    for (size_t at = 0; to != NULL && at < size; count--) {
        const size_t end = count > 0 ? (size_t)napier_jinja_find(text, old, from) : text.size;
        memcpy(to + at, text.bytes + from, end - from);
        at += end - from;
        if (count > 0) {
            memcpy(to + at, new.bytes, new.size);
            at += new.size;
            from = end + old.size;
        }
        if (count == 0) {
            break;
        }
    }
    return napier_jinja_span(made);
}

static jinja_value text_method(jinja *j, napier_span text, napier_span name, const jinja_arguments *a) {
#define IS(word) napier_jinja_same(name, word)
    napier_jinja_spend(j, text.size);
    if (IS("strip") || IS("lstrip") || IS("rstrip")) {
        return strip(j, text, a, !IS("rstrip"), !IS("lstrip"));
    }
    if (IS("split") || IS("splitlines")) {
        return IS("split") ? split(j, text, a) : split_lines(j, text);
    }
    if (IS("startswith") || IS("endswith")) {
        return starts_with(j, text, a, IS("endswith"));
    }
    if (IS("upper") || IS("lower") || IS("capitalize") || IS("title")) {
        return change_case(j, text, IS("upper") ? UPPER : IS("lower") ? LOWER : IS("title") ? TITLE : CAPITAL);
    }
    if (IS("replace")) {
        const napier_span old = text_argument(j, a, 0, "old", NULL);
        return replace(j, text, old, text_argument(j, a, 1, "new", NULL), integer_argument(j, a, 2, "count", -1));
    }
    if (IS("removeprefix") || IS("removesuffix")) {
        const napier_span part = text_argument(j, a, 0, NULL, NULL);
        const bool is_there = starts(text, part, IS("removesuffix"));
        const size_t size = text.size - (is_there ? part.size : 0);
        return napier_jinja_span((napier_span){text.bytes + (IS("removeprefix") ? text.size - size : 0), size});
    }
    if (IS("join")) {
        return join(j, argument(a, 0, NULL, undefined), text, NULL);
    }
    if (IS("format")) {
        return napier_jinja_format(j, text, a);
    }
    if (IS("find") || IS("rfind") || IS("count")) {
        const napier_span part = text_argument(j, a, 0, NULL, NULL);
        return IS("count") ? count_text(j, text, part) : find_text(j, text, part, IS("rfind"));
    }
    napier_jinja_fail(j, "the method %.*s of a text is not supported", shown(name), name.bytes);
    return undefined;
}

/* ---- Dicts ------------------------------------------------------------------------------------------------------- */

/* The pairs, the keys or the values of a dict. */
static jinja_value list_of(jinja *j, jinja_value dict, bool has_keys, bool has_values) {
    const jinja_value list = napier_jinja_list(j);
    for (int64_t i = 0; !j->status && i < dict.as.dict->count; i++) {
        const jinja_pair *const p = &dict.as.dict->pairs[i];
        jinja_value item = has_keys ? napier_jinja_span(p->key) : p->value;
        if (has_keys && has_values) {
            item = napier_jinja_tuple(j);
            napier_jinja_add(j, item, napier_jinja_span(p->key));
            napier_jinja_add(j, item, p->value);
        }
        napier_jinja_add(j, list, item);
    }
    return list;
}

jinja_value napier_jinja_method(jinja *j, jinja_value of, napier_span name, const jinja_arguments *a) {
    if (of.kind == JINJA_TEXT) {
        return text_method(j, of.as.text, name, a);
    }
    if (of.kind == JINJA_DICT && (IS("items") || IS("keys") || IS("values"))) {
        return list_of(j, of, !IS("values"), !IS("keys"));
    }
    if (of.kind == JINJA_DICT && IS("get")) {
        const jinja_value *const found = napier_jinja_member(of, text_argument(j, a, 0, NULL, NULL));
        return found != NULL ? *found : argument(a, 1, NULL, (jinja_value){.kind = JINJA_NONE});
    }
    napier_jinja_fail(j, "the method %.*s of %s is not supported", shown(name), name.bytes,
                      napier_jinja_kind_name(of.kind));
    return undefined;
}

jinja_value napier_jinja_attribute(jinja *j, jinja_value of, napier_span name) {
    const bool is_dict = of.kind == JINJA_DICT;
    if (of.kind == JINJA_UNDEFINED) {
        napier_jinja_fail(j, "'%.*s' of an undefined value", shown(name), name.bytes);
        return undefined;
    }
    if (is_dict &&
        (IS("items") || IS("keys") || IS("values") || IS("get") || IS("pop") || IS("update") || IS("copy"))) {
        napier_jinja_fail(j, "the method %.*s of a dict, which is not called", shown(name), name.bytes);
    }
    const bool has_members = is_dict || of.kind == JINJA_SPACE;
    const jinja_value *const found =
        napier_jinja_spend(j, has_members ? 32 * (size_t)of.as.dict->count : 0) ? napier_jinja_member(of, name) : NULL;
    return found != NULL ? *found : undefined;
}

/* ---- Tests ------------------------------------------------------------------------------------------------------- */

static bool is_kind(jinja_value v, napier_span name, bool *is_known) {
    const jinja_kind k = v.kind;
    const struct {
        const char *name;
        bool is;
    } tests[] = {{"defined", k != JINJA_UNDEFINED},
                 {"undefined", k == JINJA_UNDEFINED},
                 {"none", k == JINJA_NONE},
                 {"string", k == JINJA_TEXT},
                 {"mapping", k == JINJA_DICT},
                 {"sequence", k == JINJA_TEXT || k == JINJA_LIST || k == JINJA_DICT},
                 {"iterable", k == JINJA_TEXT || k == JINJA_LIST || k == JINJA_DICT || k == JINJA_UNDEFINED},
                 {"boolean", k == JINJA_BOOL},
                 {"integer", k == JINJA_INT || k == JINJA_LONG},
                 {"float", k == JINJA_FLOAT},
                 {"number", napier_jinja_is_number(v) || k == JINJA_LONG},
                 {"true", k == JINJA_BOOL && v.as.integer},
                 {"false", k == JINJA_BOOL && !v.as.integer},
                 {"callable", k == JINJA_MACRO || k == JINJA_FUNCTION}};
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        if (IS(tests[i].name)) {
            *is_known = true;
            return tests[i].is;
        }
    }
    return false;
}

bool napier_jinja_test(jinja *j, jinja_value v, napier_span name, const jinja_arguments *a) {
    bool is_known = false;
    const bool is = is_kind(v, name, &is_known);
    if (is_known) {
        return is;
    }
    static const char *const comparisons[][2] = {
        {"==", "=="},         {"eq", "=="},      {"equalto", "=="}, {"!=", "!="}, {"ne", "!="}, {"<", "<"},
        {"lt", "<"},          {"lessthan", "<"}, {"<=", "<="},      {"le", "<="}, {">", ">"},   {"gt", ">"},
        {"greaterthan", ">"}, {">=", ">="},      {"ge", ">="},      {"in", "in"}};
    for (size_t i = 0; i < sizeof comparisons / sizeof comparisons[0]; i++) {
        if (IS(comparisons[i][0])) {
            return napier_jinja_compare(j, comparisons[i][1], v, argument(a, 0, NULL, undefined));
        }
    }
    if ((IS("lower") || IS("upper")) && v.kind == JINJA_TEXT) {
        const napier_span text = v.as.text, lower = change_case(j, text, LOWER).as.text;
        const napier_span upper = change_case(j, text, UPPER).as.text, same = IS("lower") ? lower : upper;
        return !j->status && same.size == text.size && memcmp(same.bytes, text.bytes, text.size) == 0 &&
               (lower.size != upper.size || memcmp(lower.bytes, upper.bytes, lower.size) != 0);
    }
    if ((IS("odd") || IS("even")) && v.kind == JINJA_INT) {
        return (v.as.integer % 2 == 0) == IS("even");
    }
    if (IS("divisibleby") && v.kind == JINJA_INT && integer_argument(j, a, 0, "num", 0) != 0) {
        const int64_t by = integer_argument(j, a, 0, "num", 1);
        return by == -1 || v.as.integer % by == 0;
    }
    napier_jinja_fail(j, "the test '%.*s' of %s is not supported", shown(name), name.bytes,
                      napier_jinja_kind_name(v.kind));
    return false;
}

/* ---- Filters ----------------------------------------------------------------------------------------------------- */

static int64_t length(jinja *j, jinja_value v) {
    const jinja_kind k = v.kind;
    if (k != JINJA_TEXT && k != JINJA_LIST && k != JINJA_DICT && k != JINJA_UNDEFINED) {
        napier_jinja_fail(j, "the length of %s", napier_jinja_kind_name(k));
    }
    return k == JINJA_TEXT   ? napier_jinja_spend(j, v.as.text.size) ? napier_jinja_length(v.as.text) : 0
           : k == JINJA_LIST ? v.as.list->count
           : k == JINJA_DICT ? v.as.dict->count
                             : 0;
}

static jinja_arguments without(const jinja_arguments *a, int first) {
    jinja_arguments rest = {.count = 0};
    for (int i = first; i < a->count; i++) {
        rest.values[rest.count] = a->values[i];
        rest.names[rest.count++] = a->names[i];
    }
    return rest;
}

/* A member by a path such as "function.name". */
static jinja_value path_of(jinja *j, jinja_value v, napier_span path) {
    while (path.size > 0 && !j->status) {
        const char *const dot = memchr(path.bytes, '.', path.size);
        const size_t size = dot != NULL ? (size_t)(dot - path.bytes) : path.size;
        napier_jinja_spend(j, v.kind == JINJA_DICT ? 32 * (size_t)v.as.dict->count : 0);
        const jinja_value *const found = napier_jinja_member(v, (napier_span){path.bytes, size});
        v = found != NULL ? *found : undefined;
        path = dot != NULL ? (napier_span){dot + 1, path.size - size - 1} : nothing;
    }
    return v;
}

/* select, reject, selectattr and rejectattr: the items of which a test, or the truth, is `wanted`. */
static jinja_value select_items(jinja *j, jinja_value v, const jinja_arguments *a, bool by_attribute, bool wanted) {
    const jinja_value items = napier_jinja_items(j, v), chosen = napier_jinja_list(j);
    const napier_span path = by_attribute ? text_argument(j, a, 0, NULL, NULL) : nothing;
    const int test = by_attribute;
    const jinja_arguments rest = without(a, test + 1);
    for (int64_t i = 0; !j->status && i < items.as.list->count; i++) {
        const jinja_value item = items.as.list->items[i], of = by_attribute ? path_of(j, item, path) : item;
        const bool is = a->count > test ? napier_jinja_test(j, of, text_argument(j, a, test, NULL, NULL), &rest)
                                        : napier_jinja_is_true(of);
        if (is == wanted) {
            napier_jinja_add(j, chosen, item);
        }
    }
    return chosen;
}

static jinja_value map(jinja *j, jinja_value v, const jinja_arguments *a) {
    const jinja_value items = napier_jinja_items(j, v), made = napier_jinja_list(j);
    const bool by_attribute = named(a, -1, "attribute") != NULL;
    const napier_span name = text_argument(j, a, by_attribute ? -1 : 0, by_attribute ? "attribute" : NULL, NULL);
    const jinja_value otherwise = argument(a, -1, "default", undefined);
    const jinja_arguments rest = without(a, 1);
    for (int64_t i = 0; !j->status && i < items.as.list->count; i++) {
        const jinja_value item = items.as.list->items[i];
        jinja_value of = by_attribute ? path_of(j, item, name) : napier_jinja_filter(j, item, name, &rest);
        of = by_attribute && of.kind == JINJA_UNDEFINED ? otherwise : of;
        napier_jinja_add(j, made, of);
    }
    return made;
}

static jinja_value reverse(jinja *j, jinja_value v) {
    const jinja_value items = napier_jinja_items(j, v), made = napier_jinja_list(j);
    napier_span text = nothing;
    for (int64_t i = j->status ? 0 : items.as.list->count; i > 0 && !j->status; i--) {
        napier_jinja_add(j, made, items.as.list->items[i - 1]);
        text = v.kind == JINJA_TEXT ? napier_jinja_copy(j, text, items.as.list->items[i - 1].as.text) : nothing;
    }
    return v.kind == JINJA_TEXT ? napier_jinja_span(text) : made;
}

static jinja_value unique(jinja *j, jinja_value v) {
    const jinja_value items = napier_jinja_items(j, v), made = napier_jinja_list(j);
    for (int64_t i = 0; !j->status && i < items.as.list->count; i++) {
        bool known = false;
        for (int64_t k = 0; k < made.as.list->count && !known && !j->status; k++) {
            known = napier_jinja_equal(j, made.as.list->items[k], items.as.list->items[i]);
        }
        if (!known) {
            napier_jinja_add(j, made, items.as.list->items[i]);
        }
    }
    return made;
}

static int by_key(const void *a, const void *b) {
    const napier_span x = ((const jinja_pair *)a)->key, y = ((const jinja_pair *)b)->key;
    const int c = memcmp(x.bytes, y.bytes, x.size < y.size ? x.size : y.size);
    return c != 0 ? c : x.size < y.size ? -1 : x.size > y.size;
}

/* A dict in the order of its keys, and so of those within. */
static jinja_value sorted(jinja *j, jinja_value v) {
    jinja_value made = v;
    if (napier_jinja_enter(j) && v.kind == JINJA_DICT) {
        made = napier_jinja_dict(j, JINJA_DICT);
        for (int64_t i = 0; !j->status && i < v.as.dict->count; i++) {
            napier_jinja_put(j, made, v.as.dict->pairs[i].key, sorted(j, v.as.dict->pairs[i].value));
        }
        if (!j->status && v.as.dict->count > 0) {
            qsort(made.as.dict->pairs, (size_t)made.as.dict->count, sizeof *made.as.dict->pairs, by_key);
        }
    } else if (v.kind == JINJA_LIST) {
        made = napier_jinja_list(j);
        for (int64_t i = 0; !j->status && i < v.as.list->count; i++) {
            napier_jinja_add(j, made, sorted(j, v.as.list->items[i]));
        }
    }
    j->depth--;
    return made;
}

/* What an item is ordered by: it, or its attribute; texts in lower case, where case does not count. */
static jinja_value key_of(jinja *j, jinja_value item, const jinja_value *attribute, bool with_case) {
    const jinja_value key = attribute == NULL || attribute->kind == JINJA_NONE ? item
                            : attribute->kind == JINJA_TEXT                    ? path_of(j, item, attribute->as.text)
                                                                               : undefined;
    return key.kind == JINJA_TEXT && !with_case ? change_case(j, key.as.text, LOWER) : key;
}

/* The items in the order of their keys; equal ones stay in theirs. */
static jinja_value sort_by(jinja *j, jinja_value items, jinja_value keys, bool is_reverse) {
    const jinja_value made = napier_jinja_list(j), order = napier_jinja_list(j);
    for (int64_t i = 0; !j->status && i < keys.as.list->count; i++) {
        const jinja_value key = keys.as.list->items[i];
        int64_t at = i;
        napier_jinja_add(j, made, items.as.list->items[i]);
        napier_jinja_add(j, order, key);
        for (; at > 0 && napier_jinja_spend(j, key.kind == JINJA_TEXT ? key.as.text.size : 0) &&
               napier_jinja_compare(j, is_reverse ? "<" : ">", order.as.list->items[at - 1], key);
             at--) {
            made.as.list->items[at] = made.as.list->items[at - 1];
            order.as.list->items[at] = order.as.list->items[at - 1];
        }
        if (!j->status) {
            made.as.list->items[at] = items.as.list->items[i];
            order.as.list->items[at] = key;
        }
    }
    return made;
}

static jinja_value sort(jinja *j, jinja_value v, const jinja_arguments *a) {
    const jinja_value items = napier_jinja_items(j, v), keys = napier_jinja_list(j);
    const bool with_case = napier_jinja_is_true(argument(a, 1, "case_sensitive", undefined));
    for (int64_t i = 0; !j->status && i < items.as.list->count; i++) {
        napier_jinja_add(j, keys, key_of(j, items.as.list->items[i], named(a, 2, "attribute"), with_case));
    }
    return sort_by(j, items, keys, napier_jinja_is_true(argument(a, 0, "reverse", undefined)));
}

/* The first of the largest or smallest items. */
static jinja_value extreme(jinja *j, jinja_value v, const jinja_arguments *a, const char *operator) {
    const jinja_value items = napier_jinja_items(j, v);
    const bool with_case = napier_jinja_is_true(argument(a, 0, "case_sensitive", undefined));
    jinja_value found = undefined, best = undefined;
    for (int64_t i = 0; !j->status && i < items.as.list->count; i++) {
        const jinja_value key = key_of(j, items.as.list->items[i], named(a, 1, "attribute"), with_case);
        if (i == 0 || napier_jinja_compare(j, operator, key, best)) {
            found = items.as.list->items[i];
            best = key;
        }
    }
    return found;
}

static jinja_value sum(jinja *j, jinja_value v, const jinja_arguments *a) {
    const jinja_value items = napier_jinja_items(j, v);
    jinja_value made = argument(a, 1, "start", napier_jinja_int(0));
    for (int64_t i = 0; !j->status && i < items.as.list->count; i++) {
        const jinja_value item = key_of(j, items.as.list->items[i], named(a, 0, "attribute"), true);
        made = napier_jinja_is_number(made) ? napier_jinja_binary(j, "+", made, item)
                                            : (napier_jinja_fail(j, "sum is for numbers"), undefined);
    }
    return made;
}

/* The pairs of a dict in the order of their keys in lower case. */
static jinja_value sort_pairs(jinja *j, jinja_value dict, const jinja_arguments *a) {
    const jinja_value list = list_of(j, dict, true, true), keys = napier_jinja_list(j);
    if (a->count > 0) {
        napier_jinja_fail(j, "dictsort with arguments is not supported");
    }
    for (int64_t i = 0; !j->status && i < list.as.list->count; i++) {
        napier_jinja_add(j, keys, key_of(j, list.as.list->items[i].as.list->items[0], NULL, false));
    }
    return sort_by(j, list, keys, false);
}

static jinja_value to_json(jinja *j, jinja_value v, const jinja_arguments *a) {
    const jinja_value indent = argument(a, 1, "indent", (jinja_value){.kind = JINJA_NONE});
    const jinja_value ascii = argument(a, 0, "ensure_ascii", napier_jinja_bool(false));
    const jinja_value by_keys = argument(a, 3, "sort_keys", napier_jinja_bool(false));
    if (named(a, 2, "separators") != NULL || napier_jinja_is_true(ascii) ||
        (indent.kind == JINJA_INT && (indent.as.integer < 0 || indent.as.integer > 64))) {
        napier_jinja_fail(j, "tojson with separators, ensure_ascii or such an indent is not supported");
    }
    v = napier_jinja_is_true(by_keys) ? sorted(j, v) : v;
    return napier_jinja_span(napier_jinja_to_json(j, v, indent.kind == JINJA_INT ? indent.as.integer : -1));
}

/* Puts blanks before each line but the first and empty ones. */
static jinja_value indent_lines(jinja *j, napier_span text, const jinja_arguments *a) {
    const int64_t width = integer_argument(j, a, 0, "width", 4);
    const bool first = napier_jinja_is_true(argument(a, 1, "first", undefined)),
               blank = napier_jinja_is_true(argument(a, 2, "blank", undefined));
    static const char blanks[] = "                                                                ";
    const jinja_value lines =
        split(j, text, &(jinja_arguments){.count = 1, .values = {napier_jinja_text("\n")}, .names = {{"", 0}}});
    if (width < 0 || width >= (int64_t)sizeof blanks) {
        napier_jinja_fail(j, "an indent of %lld", (long long)width);
    }
    for (int64_t i = first ? 0 : 1; !j->status && i < lines.as.list->count; i++) {
        jinja_value *const line = &lines.as.list->items[i];
        if (line->as.text.size > 0 || blank) {
            line->as.text = napier_jinja_copy(j, (napier_span){blanks, (size_t)width}, line->as.text);
        }
    }
    return join(j, lines, (napier_span){"\n", 1}, NULL);
}

static jinja_value to_integer(jinja *j, jinja_value v, const jinja_arguments *a) {
    const jinja_value otherwise = argument(a, 0, "default", napier_jinja_int(0));
    if (v.kind == JINJA_TEXT) {
        const napier_span text = napier_chat_trim(v.as.text);
        const bool is_negative = text.size > 0 && text.bytes[0] == '-';
        const napier_span digits = {text.bytes + is_negative, text.size - is_negative};
        for (size_t i = 0; i < digits.size; i++) {
            if (digits.bytes[i] < '0' || digits.bytes[i] > '9') {
                return otherwise;
            }
        }
        return digits.size > 0 ? napier_jinja_read_number(j, digits, is_negative) : otherwise;
    }
    if (v.kind == JINJA_FLOAT) {
        return v.as.number > -1e15 && v.as.number < 1e15 ? napier_jinja_int((int64_t)v.as.number) : otherwise;
    }
    return napier_jinja_is_number(v) ? napier_jinja_int(v.as.integer) : otherwise;
}

static jinja_value list_filter(jinja *j, jinja_value v, napier_span name, const jinja_arguments *a, bool *is_known) {
    *is_known = true;
    if (IS("selectattr") || IS("rejectattr") || IS("select") || IS("reject")) {
        return select_items(j, v, a, IS("selectattr") || IS("rejectattr"), IS("select") || IS("selectattr"));
    }
    if (IS("map")) {
        return map(j, v, a);
    }
    if (IS("first") || IS("last")) {
        const jinja_value items = napier_jinja_items(j, v);
        const int64_t count = j->status ? 0 : items.as.list->count;
        return count > 0 ? items.as.list->items[IS("first") ? 0 : count - 1] : undefined;
    }
    if (IS("list")) {
        return v.kind == JINJA_LIST ? v : napier_jinja_items(j, v);
    }
    if (IS("items") && (v.kind == JINJA_DICT || v.kind == JINJA_UNDEFINED)) {
        return v.kind == JINJA_DICT ? list_of(j, v, true, true) : napier_jinja_list(j);
    }
    if (IS("dictsort") && v.kind == JINJA_DICT) {
        return sort_pairs(j, v, a);
    }
    if (IS("sort") || IS("sum")) {
        return IS("sort") ? sort(j, v, a) : sum(j, v, a);
    }
    if (IS("min") || IS("max")) {
        return extreme(j, v, a, IS("min") ? "<" : ">");
    }
    if (IS("reverse") || IS("unique")) {
        return IS("reverse") ? reverse(j, v) : unique(j, v);
    }
    if (IS("join")) {
        return join(j, v, text_argument(j, a, 0, "d", ""), named(a, 1, "attribute"));
    }
    *is_known = false;
    return undefined;
}

jinja_value napier_jinja_filter(jinja *j, jinja_value v, napier_span name, const jinja_arguments *a) {
    bool is_known = false;
    napier_jinja_spend(j, 0);
    const jinja_value made = list_filter(j, v, name, a, &is_known);
    if (is_known) {
        return made;
    }
    if (IS("default") || IS("d")) {
        const bool is_absent = v.kind == JINJA_UNDEFINED ||
                               (napier_jinja_is_true(argument(a, 1, "boolean", undefined)) && !napier_jinja_is_true(v));
        return is_absent ? argument(a, 0, "default_value", napier_jinja_text("")) : v;
    }
    if (IS("length") || IS("count")) {
        return napier_jinja_int(length(j, v));
    }
    if (IS("tojson")) {
        return to_json(j, v, a);
    }
    if (IS("int")) {
        return to_integer(j, v, a);
    }
    if ((IS("float") || IS("abs")) && napier_jinja_is_number(v)) {
        return IS("float")             ? (jinja_value){.kind = JINJA_FLOAT, .as.number = napier_jinja_number(v)}
               : v.kind == JINJA_FLOAT ? (jinja_value){.kind = JINJA_FLOAT, .as.number = fabs(v.as.number)}
                                       : napier_jinja_int(v.as.integer < 0 ? -v.as.integer : v.as.integer);
    }
    if (IS("string") || IS("safe")) {
        return IS("safe") ? v : napier_jinja_span(napier_jinja_string(j, v));
    }
    if (IS("trim") || IS("upper") || IS("lower") || IS("capitalize") || IS("title") || IS("replace") || IS("indent")) {
        const napier_span text = napier_jinja_string(j, v); /* they take any value */
        return IS("indent") ? indent_lines(j, text, a)
               : IS("trim") ? strip(j, text, a, true, true)
                            : text_method(j, text, name, a);
    }
    napier_jinja_fail(j, "the filter '%.*s' of %s is not supported", shown(name), name.bytes,
                      napier_jinja_kind_name(v.kind));
    return undefined;
}

/* ---- Functions --------------------------------------------------------------------------------------------------- */

static jinja_value range(jinja *j, const jinja_arguments *a) {
    const int64_t first = integer_argument(j, a, 0, NULL, 0), from = a->count > 1 ? first : 0;
    const int64_t to = a->count > 1 ? integer_argument(j, a, 1, NULL, 0) : first,
                  step = integer_argument(j, a, 2, NULL, 1);
    const jinja_value list = napier_jinja_list(j);
    enum { MOST = 1 << 20 };
    if (step == 0 || from < -MOST || from > MOST || to < -MOST || to > MOST || step < -MOST || step > MOST) {
        napier_jinja_fail(j, "range: a number is 0 or beyond %d", MOST);
    }
    for (int64_t i = from; !j->status && (step > 0 ? i < to : i > to); i += step) {
        napier_jinja_add(j, list, napier_jinja_int(i));
    }
    return list;
}

static jinja_value time_now(jinja *j, const jinja_arguments *a) {
    const napier_span given = text_argument(j, a, 0, NULL, NULL);
    const time_t now = (time_t)j->now;
    enum { MOST = 1000 };
    struct tm parts;
    char form[MOST + 1];
    char *const made = napier_jinja_take(j, 64 * MOST, 1);
    if (given.size > MOST || memchr(given.bytes, '\0', given.size) != NULL || gmtime_r(&now, &parts) == NULL) {
        napier_jinja_fail(j, "strftime_now with such a format");
        return undefined;
    }
    memcpy(form, given.bytes, given.size);
    form[given.size] = '\0';
    return made != NULL ? napier_jinja_span((napier_span){made, strftime(made, 64 * MOST, form, &parts)}) : undefined;
}

jinja_value napier_jinja_function(jinja *j, napier_span name, const jinja_arguments *a) {
    if (IS("raise_exception")) {
        char text[300];
        const napier_span given = text_argument(j, a, 0, NULL, NULL);
        (void)snprintf(text, sizeof text, "%.*s", given.size < sizeof text ? (int)given.size : (int)sizeof text,
                       given.bytes);
        napier_jinja_clean(text);
        if (!j->status) {
            j->status = napier_fail(j->context, NAPIER_INVALID_ARGUMENT, "%s%s",
                                    j->is_builtin ? "" : "messages: the chat template says: ", text);
        }
        return undefined;
    }
    if (IS("range")) {
        return range(j, a);
    }
    if (IS("strftime_now")) {
        return j->date.size > 0 ? napier_jinja_span(j->date) : time_now(j, a);
    }
    const jinja_value made = napier_jinja_dict(j, IS("namespace") ? JINJA_SPACE : JINJA_DICT);
    for (int i = 0; i < a->count && !j->status; i++) {
        if (a->names[i].size == 0) {
            napier_jinja_fail(j, "%.*s of a value without a name is not supported", shown(name), name.bytes);
        }
        napier_jinja_put(j, made, a->names[i], a->values[i]);
    }
    return made;
}
