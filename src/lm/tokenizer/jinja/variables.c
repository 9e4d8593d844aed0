/* lm/tokenizer/jinja/variables.c - the variables of a template. */
#include "lm/tokenizer/jinja/jinja.h"

static bool same(napier_span a, napier_span b) { return a.size == b.size && memcmp(a.bytes, b.bytes, a.size) == 0; }

static jinja_variable *find(const jinja *j, napier_span name, int64_t from, int64_t to) {
    for (int64_t i = to; i > from; i--) {
        if (same(j->variables[i - 1].name, name)) {
            return &j->variables[i - 1];
        }
    }
    return NULL;
}

jinja_value napier_jinja_lookup(jinja *j, napier_span name) {
    static const char *const functions[] = {"namespace", "range", "raise_exception", "dict", "strftime_now"};
    const int64_t globals = j->is_in_frame ? j->globals : j->variable_count;
    const jinja_variable *found = NULL;
    if (napier_jinja_spend(j, 32 * (size_t)(j->variable_count - j->visible))) {
        found = find(j, name, j->visible, j->variable_count);
        found = found != NULL ? found : find(j, name, 0, globals);
    }
    for (size_t i = 0; found == NULL && i < 4U + (j->date.size > 0 || j->now != 0); i++) {
        if (napier_jinja_same(name, functions[i])) {
            return (jinja_value){.kind = JINJA_FUNCTION, .as.text = name};
        }
    }
    return found != NULL ? found->value : (jinja_value){.kind = JINJA_UNDEFINED};
}

void napier_jinja_assign(jinja *j, napier_span name, jinja_value value) {
    jinja_variable *const known = find(j, name, j->frame, j->variable_count);
    if (known != NULL) {
        known->value = value;
        return;
    }
    if (j->variable_count == j->variable_capacity) {
        const int64_t wanted = j->variable_capacity > 0 ? 2 * j->variable_capacity : 32;
        jinja_variable *const larger = napier_jinja_take(j, (size_t)wanted, sizeof *larger);
        if (larger == NULL) {
            return;
        }
        if (j->variable_count > 0) {
            memcpy(larger, j->variables, (size_t)j->variable_count * sizeof *larger);
        }
        j->variables = larger;
        j->variable_capacity = wanted;
    }
    j->variables[j->variable_count++] = (jinja_variable){name, value};
}

void napier_jinja_set(jinja *j, const char *name, jinja_value value) {
    napier_jinja_assign(j, (napier_span){name, strlen(name)}, value);
}
