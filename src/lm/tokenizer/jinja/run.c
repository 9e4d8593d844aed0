/* lm/tokenizer/jinja/run.c - the statements of a template, and its variables. */
#include "lm/tokenizer/jinja/jinja.h"

static bool same(napier_span a, napier_span b) { return a.size == b.size && memcmp(a.bytes, b.bytes, a.size) == 0; }

/* A frame of variables: of a loop, or of a macro, which does not see those of its caller. */
typedef struct frame {
    int64_t begin, visible, count;
    bool is_inner;
} frame;

static frame open_frame(jinja *j, bool is_macro) {
    const frame outer = {j->frame, j->visible, j->variable_count, j->is_in_frame};
    j->globals = j->is_in_frame ? j->globals : j->variable_count;
    j->is_in_frame = true;
    j->frame = j->variable_count;
    j->visible = is_macro ? j->variable_count : j->visible;
    return outer;
}

static void close_frame(jinja *j, frame outer) {
    j->variable_count = outer.count;
    j->frame = outer.begin;
    j->visible = outer.visible;
    j->is_in_frame = outer.is_inner;
}

/* ---- Statements -------------------------------------------------------------------------------------------------- */

static void run(jinja *j, int64_t from, int64_t to);

static void write_out(jinja *j, napier_span text) {
    if (!j->status && napier_jinja_spend(j, text.size)) {
        if (text.size > j->most_memory - j->out.size) {
            napier_jinja_fail(j, "it writes more than %zu bytes", j->most_memory);
            return;
        }
        j->status = napier_text_buffer_append(j->context, &j->out, text.bytes, text.size);
    }
}

/* What run writes, as a value. */
static jinja_value capture(jinja *j, int64_t from, int64_t to) {
    const size_t before = j->out.size;
    run(j, from, to);
    const size_t size = j->out.size - before;
    char *const copy = napier_jinja_take(j, size + 1, 1);
    if (copy != NULL && size > 0) {
        memcpy(copy, j->out.bytes + before, size);
    }
    j->out.size = before;
    return napier_jinja_span((napier_span){copy != NULL ? copy : "", copy != NULL ? size : 0});
}

/* Goes to the tag's end, which must come now. Returns the index of what is behind it. */
static int64_t end_tag(jinja *j) {
    napier_jinja_expect(j, JINJA_END, NULL);
    return j->at;
}

/* The index of the last part of a block, its end. */
static int64_t block_end(const jinja *j, int64_t tag) {
    while (j->tokens[tag].jump > 0) {
        tag = j->tokens[tag].jump;
    }
    return tag;
}

static bool is_part(const jinja *j, int64_t tag, const char *name) {
    return napier_jinja_same(j->tokens[tag + 1].text, name);
}

static void run_if(jinja *j, int64_t tag) {
    const int64_t end = block_end(j, tag);
    for (; tag != end && !j->status; tag = j->tokens[tag].jump) {
        j->at = tag + 2;
        const bool is_true = is_part(j, tag, "else") || napier_jinja_is_true(napier_jinja_expression(j));
        const int64_t begin = end_tag(j);
        if (is_true) {
            run(j, begin, j->tokens[tag].jump);
            break;
        }
    }
    j->at = j->status ? j->at : end + 2;
    end_tag(j);
}

/* The names that a loop gives to an item. */
typedef struct targets {
    int count;
    napier_span names[4];
} targets;

static void assign_targets(jinja *j, const targets *t, jinja_value item) {
    const bool fits = t->count == 1 || (item.kind == JINJA_LIST && item.as.list->count == t->count);
    if (!fits) {
        napier_jinja_fail(j, "%d names for %s", t->count, napier_jinja_kind_name(item.kind));
    }
    for (int i = 0; i < t->count && fits; i++) {
        napier_jinja_assign(j, t->names[i], t->count == 1 ? item : item.as.list->items[i]);
    }
}

static void read_targets(jinja *j, targets *t) {
    t->count = 0;
    const bool has_parentheses = napier_jinja_accept(j, JINJA_OPERATOR, "(");
    do {
        t->names[t->count] = j->tokens[j->at].text;
        napier_jinja_expect(j, JINJA_NAME, NULL);
        t->count++;
    } while (t->count < 4 && napier_jinja_accept(j, JINJA_OPERATOR, ","));
    if (has_parentheses) {
        napier_jinja_expect(j, JINJA_OPERATOR, ")");
    }
}

/* The items for which the condition at `condition` is true. */
static jinja_value choose(jinja *j, const targets *t, jinja_value items, int64_t condition) {
    const jinja_value chosen = napier_jinja_list(j);
    for (int64_t i = 0; napier_jinja_spend(j, 64) && i < items.as.list->count; i++) {
        const frame outer = open_frame(j, false);
        assign_targets(j, t, items.as.list->items[i]);
        j->at = condition;
        if (napier_jinja_is_true(napier_jinja_expression(j))) {
            napier_jinja_add(j, chosen, items.as.list->items[i]);
        }
        close_frame(j, outer);
    }
    return chosen;
}

static void set_loop(jinja *j, jinja_value loop, const jinja_list *items, int64_t i) {
    const int64_t count = items->count;
    const struct {
        const char *name;
        int64_t value;
    } members[] = {
        {"index", i + 1}, {"index0", i}, {"revindex", count - i}, {"revindex0", count - i - 1}, {"length", count}};
    for (size_t k = 0; k < sizeof members / sizeof members[0]; k++) {
        napier_jinja_put(j, loop, (napier_span){members[k].name, strlen(members[k].name)},
                         napier_jinja_int(members[k].value));
    }
    napier_jinja_put(j, loop, (napier_span){"first", 5}, napier_jinja_bool(i == 0));
    napier_jinja_put(j, loop, (napier_span){"last", 4}, napier_jinja_bool(i == count - 1));
    const jinja_value none = {.kind = JINJA_UNDEFINED};
    napier_jinja_put(j, loop, (napier_span){"previtem", 8}, i > 0 ? items->items[i - 1] : none);
    napier_jinja_put(j, loop, (napier_span){"nextitem", 8}, i < count - 1 ? items->items[i + 1] : none);
    napier_jinja_set(j, "loop", loop);
}

static void run_loop(jinja *j, const targets *t, const jinja_list *items, int64_t from, int64_t to) {
    const jinja_value loop = napier_jinja_dict(j, JINJA_DICT); /* one for all rounds */
    for (int64_t i = 0; i < items->count && j->flow != JINJA_BREAK && napier_jinja_spend(j, 256); i++) {
        const frame outer = open_frame(j, false);
        set_loop(j, loop, items, i);
        assign_targets(j, t, items->items[i]);
        run(j, from, to);
        j->flow = j->flow == JINJA_CONTINUE ? JINJA_GO : j->flow;
        close_frame(j, outer);
    }
    j->flow = JINJA_GO;
}

static void run_for(jinja *j, int64_t tag) {
    targets t;
    const int64_t next = j->tokens[tag].jump, end = block_end(j, tag);
    read_targets(j, &t);
    napier_jinja_expect(j, JINJA_NAME, "in");
    jinja_value items = napier_jinja_items(j, napier_jinja_operand(j));
    if (napier_jinja_accept(j, JINJA_NAME, "if") && !j->status) {
        const int64_t condition = j->at;
        items = choose(j, &t, items, condition);
        j->at = condition;
        j->dead++;
        (void)napier_jinja_expression(j);
        j->dead--;
    }
    const int64_t begin = end_tag(j);
    if (!j->status && items.as.list->count > 0) {
        run_loop(j, &t, items.as.list, begin, next);
    } else if (!j->status && next != end) { /* else */
        j->at = next + 2;
        run(j, end_tag(j), end);
    }
    j->at = j->status ? j->at : end + 2;
    end_tag(j);
}

static void set_member(jinja *j, napier_span name, napier_span member, jinja_value value) {
    const jinja_value space = napier_jinja_lookup(j, name);
    if (space.kind != JINJA_SPACE) {
        napier_jinja_fail(j, "set %.*s.%.*s: no namespace", name.size < 40 ? (int)name.size : 40, name.bytes,
                          member.size < 40 ? (int)member.size : 40, member.bytes);
    } else {
        napier_jinja_put(j, space, member, value);
    }
}

static void run_set(jinja *j, int64_t tag) {
    targets t;
    napier_span member = {"", 0};
    read_targets(j, &t);
    if (j->tokens[tag].jump > 0) { /* the text of a block */
        const int64_t end = j->tokens[tag].jump, begin = end_tag(j);
        const jinja_value text = capture(j, begin, end);
        napier_jinja_assign(j, t.names[0], text);
        j->at = j->status ? j->at : end + 2;
        end_tag(j);
        return;
    }
    if (t.count == 1 && napier_jinja_accept(j, JINJA_OPERATOR, ".")) {
        member = j->tokens[j->at].text;
        napier_jinja_expect(j, JINJA_NAME, NULL);
    }
    napier_jinja_expect(j, JINJA_OPERATOR, "=");
    jinja_value value = napier_jinja_expression(j);
    if (napier_jinja_accept(j, JINJA_OPERATOR, ",")) { /* a tuple without parentheses */
        const jinja_value list = napier_jinja_tuple(j);
        napier_jinja_add(j, list, value);
        do {
            napier_jinja_add(j, list, napier_jinja_expression(j));
        } while (napier_jinja_accept(j, JINJA_OPERATOR, ","));
        value = list;
    }
    end_tag(j);
    if (member.size > 0) {
        set_member(j, t.names[0], member, value);
    } else if (!j->status) {
        assign_targets(j, &t, value);
    }
}

static void run_macro(jinja *j, int64_t tag) {
    const napier_span name = j->tokens[j->at].text;
    napier_jinja_expect(j, JINJA_NAME, NULL);
    if (j->is_in_frame) {
        napier_jinja_fail(j, "a macro inside a loop or a macro");
    }
    napier_jinja_assign(j, name, (jinja_value){.kind = JINJA_MACRO, .as.integer = tag});
    j->at = j->status ? j->at : j->tokens[tag].jump + 2;
    end_tag(j);
}

/* Assigns the arguments of a call to the names of the macro, or their defaults. */
static void take_arguments(jinja *j, const jinja_arguments *a) {
    int taken = 0;
    napier_jinja_expect(j, JINJA_OPERATOR, "(");
    for (int place = 0; !j->status && !napier_jinja_accept(j, JINJA_OPERATOR, ")"); place++) {
        const napier_span name = j->tokens[j->at].text;
        jinja_value value = {.kind = JINJA_UNDEFINED};
        bool is_given = false;
        napier_jinja_expect(j, JINJA_NAME, NULL);
        for (int i = 0; i < a->count && !is_given; i++) {
            is_given = a->names[i].size > 0 ? same(a->names[i], name) : i == place;
            value = is_given ? a->values[i] : value;
        }
        if (napier_jinja_accept(j, JINJA_OPERATOR, "=")) {
            j->dead += is_given;
            const jinja_value otherwise = napier_jinja_expression(j);
            j->dead -= is_given;
            value = is_given ? value : otherwise;
        }
        taken += is_given;
        napier_jinja_assign(j, name, value);
        if (!napier_jinja_next_is(j, JINJA_OPERATOR, ")")) {
            napier_jinja_expect(j, JINJA_OPERATOR, ",");
        }
    }
    if (taken != a->count) {
        napier_jinja_fail(j, "a macro is called with an argument that it does not have");
    }
}

static jinja_value call_macro(jinja *j, jinja_value macro, const jinja_arguments *a) {
    const int64_t behind = j->at, tag = macro.as.integer;
    jinja_value text = {.kind = JINJA_UNDEFINED};
    if (napier_jinja_enter(j) && napier_jinja_spend(j, 512)) {
        const frame outer = open_frame(j, true);
        j->at = tag + 3;
        take_arguments(j, a);
        const int64_t begin = end_tag(j);
        text = capture(j, begin, j->tokens[tag].jump);
        close_frame(j, outer);
        j->at = j->status ? j->at : behind;
    }
    j->depth--;
    return text;
}

static void run_statement(jinja *j, int64_t tag) {
    const napier_span name = j->tokens[tag + 1].text;
    static const struct {
        const char *name;
        void (*run)(jinja *j, int64_t tag);
    } statements[] = {{"if", run_if}, {"for", run_for}, {"set", run_set}, {"macro", run_macro}};
    j->at = tag + 2;
    for (size_t i = 0; i < sizeof statements / sizeof statements[0]; i++) {
        if (napier_jinja_same(name, statements[i].name)) {
            statements[i].run(j, tag);
            return;
        }
    }
    if (j->is_in_frame && (napier_jinja_same(name, "break") || napier_jinja_same(name, "continue"))) {
        j->flow = napier_jinja_same(name, "break") ? JINJA_BREAK : JINJA_CONTINUE;
    }
    end_tag(j); /* of generation too, which marks what the assistant says */
}

static void run(jinja *j, int64_t from, int64_t to) {
    if (napier_jinja_enter(j)) {
        for (j->at = from; j->at < to && !j->status && j->flow == JINJA_GO && napier_jinja_spend(j, 0);) {
            const jinja_token *const t = &j->tokens[j->at];
            if (t->kind == JINJA_DATA) {
                j->at++;
                write_out(j, t->text);
            } else if (t->kind == JINJA_OPEN) {
                j->at++;
                const jinja_value v = napier_jinja_expression(j);
                napier_jinja_expect(j, JINJA_CLOSE, NULL);
                write_out(j, j->status ? (napier_span){"", 0} : napier_jinja_string(j, v));
            } else if (t->kind == JINJA_TAG) {
                run_statement(j, j->at);
            } else {
                napier_jinja_fail(j, "a tag ends twice");
            }
        }
    }
    j->depth--;
}

void napier_jinja_run(jinja *j) {
    j->call_macro = call_macro;
    run(j, 0, j->count - 1);
    if (!j->status) {
        j->at = j->count - 1;
    }
}
