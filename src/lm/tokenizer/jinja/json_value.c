/* lm/tokenizer/jinja/json_value.c - values of JSON, from its tokens, of which those of Jinja are a superset. */
#include "lm/tokenizer/jinja/jinja.h"

static jinja_value read_value(jinja *j);

static jinja_value read_list(jinja *j) {
    const jinja_value list = napier_jinja_list(j);
    while (!j->status && !napier_jinja_accept(j, JINJA_OPERATOR, "]")) {
        napier_jinja_add(j, list, read_value(j));
        if (!napier_jinja_next_is(j, JINJA_OPERATOR, "]")) {
            napier_jinja_expect(j, JINJA_OPERATOR, ",");
        }
    }
    return list;
}

static jinja_value read_dict(jinja *j) {
    const jinja_value dict = napier_jinja_dict(j, JINJA_DICT);
    while (!j->status && !napier_jinja_accept(j, JINJA_OPERATOR, "}")) {
        const napier_span key = j->tokens[j->at].text;
        napier_jinja_expect(j, JINJA_STRING, NULL);
        napier_jinja_expect(j, JINJA_OPERATOR, ":");
        napier_jinja_put(j, dict, key, read_value(j));
        if (!napier_jinja_next_is(j, JINJA_OPERATOR, "}")) {
            napier_jinja_expect(j, JINJA_OPERATOR, ",");
        }
    }
    return dict;
}

static bool is_long(napier_span digits) {
    bool is_integer = digits.size > 18;
    for (size_t i = 0; i < digits.size && is_integer; i++) {
        is_integer = digits.bytes[i] >= '0' && digits.bytes[i] <= '9';
    }
    return is_integer;
}

static jinja_value read_long(jinja *j, napier_span digits, bool is_negative) {
    return (jinja_value){.kind = JINJA_LONG, .as.text = napier_jinja_copy(j, (napier_span){"-", is_negative}, digits)};
}

static jinja_value read_value(jinja *j) {
    jinja_value value = {.kind = JINJA_NONE};
    if (napier_jinja_enter(j)) {
        const bool is_negative = napier_jinja_accept(j, JINJA_OPERATOR, "-");
        const napier_span text = j->tokens[j->at].text;
        if (napier_jinja_accept(j, JINJA_NUMBER, NULL)) {
            value = is_long(text) ? read_long(j, text, is_negative) : napier_jinja_read_number(j, text, is_negative);
        } else if (napier_jinja_accept(j, JINJA_STRING, NULL)) {
            value = napier_jinja_span(text);
        } else if (napier_jinja_accept(j, JINJA_NAME, "true") || napier_jinja_accept(j, JINJA_NAME, "false")) {
            value = napier_jinja_bool(napier_jinja_same(text, "true"));
        } else if (napier_jinja_accept(j, JINJA_OPERATOR, "[")) {
            value = read_list(j);
        } else if (napier_jinja_accept(j, JINJA_OPERATOR, "{")) {
            value = read_dict(j);
        } else if (!napier_jinja_accept(j, JINJA_NAME, "null")) {
            napier_jinja_fail(j, "no JSON");
        }
    }
    j->depth--;
    return value;
}

jinja_value napier_jinja_json(jinja *j, napier_span json) {
    jinja_token *const tokens = j->tokens;
    const int64_t count = j->count, at = j->at;
    napier_jinja_read_json(j, json);
    const jinja_value value = read_value(j);
    if (!napier_jinja_next_is(j, JINJA_EOF, NULL)) {
        napier_jinja_fail(j, "no JSON");
    }
    j->tokens = tokens;
    j->count = count;
    j->at = at;
    return value;
}
