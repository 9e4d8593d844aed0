/* cli/rl/rl_lines.c - responses from JSON Lines: {"logprobs": [-0.5, -1.25], "advantage": 0.5} per line. */
#include "rl_batch.h"

#include "io/jsonl.h"
#include "io/source.h"
#include "program/message.h"
#include "program/progress.h"

#ifdef NAPIER_CJSON
#include <cjson/cJSON.h>
#endif

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* The batch, the line that is read, and the first line, whose fields all lines must have. */
typedef struct lines {
    rl_batch *batch;
    const jsonl_reader *reader;
    int64_t first_line;
    progress_line progress;
} lines;

#ifdef NAPIER_CJSON

enum { WHAT = 64 };

/* Reads a number, or one of the three words that some programs write as strings. */
static bool number_of(const cJSON *value, double *number) {
    static const char *const words[] = {"NaN", "Infinity", "-Infinity"};
    const double values[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
    if (cJSON_IsNumber(value)) {
        *number = value->valuedouble;
        return true;
    }
    for (int i = 0; cJSON_IsString(value) && i < 3; i++) {
        if (strcmp(value->valuestring, words[i]) == 0) {
            *number = values[i];
            return true;
        }
    }
    return false;
}

/* A value's description for a message. */
static const char *shown_value(char *out, size_t size, const cJSON *value) {
    char text[40];
    double number;
    if (cJSON_IsString(value) && number_of(value, &number)) {
        snprintf(out, size, "%s", value->valuestring);
    } else if (cJSON_IsString(value)) {
        snprintf(out, size, "the string '%s'",
                 printable(text, sizeof text, value->valuestring, strlen(value->valuestring)));
    } else if (cJSON_IsNumber(value)) {
        snprintf(out, size, "%g", value->valuedouble);
    } else {
        snprintf(out, size, "%s",
                 cJSON_IsNull(value)    ? "null"
                 : cJSON_IsBool(value)  ? (cJSON_IsTrue(value) ? "true" : "false")
                 : cJSON_IsArray(value) ? "a list"
                                        : "an object");
    }
    return out;
}

/* ---- One field --------------------------------------------------------------------------------------------------- */

static int find_field(const char *name) {
    for (int field = 0; field < RL_FIELDS; field++) {
        if (strcmp(name, rl_fields[field].json) == 0) {
            return field;
        }
    }
    return strcmp(name, "advantages") == 0 ? RL_ADVANTAGES : -1;
}

/* Adds one number of a field; `index` is -1 if it is not in a list. */
static int add_value(const lines *l, rl_field field, const cJSON *value, int64_t index) {
    char shown[WHAT];
    char place[32] = "";
    double number = cJSON_IsTrue(value) ? 1 : 0;
    const bool is_number = (field == RL_MASK && cJSON_IsBool(value)) || number_of(value, &number);
    const char *const wrong = is_number ? rl_column_add(&l->batch->columns[field], field, number) : "is not a number";
    if (wrong == NULL) {
        return STATUS_OK;
    }
    if (index >= 0) {
        snprintf(place, sizeof place, "[%" PRId64 "]", index);
    }
    return jsonl_fault(l->reader, "%s%s is %s, which %s", rl_fields[field].json, place,
                       shown_value(shown, sizeof shown, value), wrong);
}

static int add_list(const lines *l, rl_field field, const cJSON *list) {
    char shown[WHAT];
    if (!cJSON_IsArray(list)) {
        return jsonl_fault(l->reader, "%s is %s, not a list", rl_fields[field].json,
                           shown_value(shown, sizeof shown, list));
    }
    int64_t index = 0;
    int status = STATUS_OK;
    for (const cJSON *value = list->child; value != NULL && status == STATUS_OK; value = value->next) {
        status = add_value(l, field, value, index++);
    }
    return status;
}

/* The advantage is a number of the response or a list of numbers of its tokens, the same kind on all lines. */
static int add_advantage(const lines *l, const cJSON *value) {
    const bool is_list = cJSON_IsArray(value);
    if (l->batch->responses > 0 && is_list != l->batch->advantages_per_token) {
        return jsonl_fault(l->reader, "advantage is a %s, on line %" PRId64 " a %s", is_list ? "list" : "number",
                           l->first_line, is_list ? "number" : "list");
    }
    l->batch->advantages_per_token = is_list;
    return is_list ? add_list(l, RL_ADVANTAGES, value) : add_value(l, RL_ADVANTAGES, value, -1);
}

/* ---- One line ---------------------------------------------------------------------------------------------------- */

/* null counts as absent, because Python writes None as null. */
static int add_fields(const lines *l, const cJSON *object, unsigned *have) {
    int status = STATUS_OK;
    for (const cJSON *value = object->child; value != NULL && status == STATUS_OK; value = value->next) {
        const int field = find_field(value->string);
        if (field < 0 || (l->batch->wanted & RL_BIT(field)) == 0 || cJSON_IsNull(value)) {
            continue;
        }
        if ((*have & RL_BIT(field)) != 0) {
            return jsonl_fault(l->reader, "%s stands there twice", rl_fields[field].json);
        }
        *have |= RL_BIT(field);
        status = field == RL_ADVANTAGES ? add_advantage(l, value) : add_list(l, (rl_field)field, value);
    }
    return status;
}

/* All lines have the same fields. */
static int check_fields(const lines *l, unsigned have) {
    for (int field = 0; field < RL_FIELDS; field++) {
        const unsigned bit = RL_BIT(field);
        if ((l->batch->required & bit & ~have) != 0) {
            return jsonl_fault(l->reader, "no %s", rl_fields[field].json);
        }
        if (l->batch->responses > 0 && ((l->batch->have ^ have) & bit) != 0) {
            return (have & bit) != 0 ? jsonl_fault(l->reader, "%s, which line %" PRId64 " has not",
                                                   rl_fields[field].json, l->first_line)
                                     : jsonl_fault(l->reader, "no %s, which line %" PRId64 " has",
                                                   rl_fields[field].json, l->first_line);
        }
    }
    return STATUS_OK;
}

/* Checks that all lists of a line are as long as its log-probs. */
static int check_lengths(const lines *l, unsigned have) {
    const rl_batch *const batch = l->batch;
    const int64_t tokens = batch->columns[RL_LOGPROBS].count - batch->tokens;
    for (int field = 0; field < RL_FIELDS; field++) {
        if ((have & RL_BIT(field)) == 0 || (field == RL_ADVANTAGES && !batch->advantages_per_token)) {
            continue;
        }
        const int64_t count = batch->columns[field].count - batch->tokens;
        if (count != tokens) {
            return jsonl_fault(l->reader, "%s has %" PRId64 " number%s, logprobs %" PRId64, rl_fields[field].json,
                               count, count == 1 ? "" : "s", tokens);
        }
    }
    return STATUS_OK;
}

static int add_line(lines *l, const cJSON *object) {
    rl_batch *const batch = l->batch;
    unsigned have = 0;
    if (add_fields(l, object, &have) || check_fields(l, have) || check_lengths(l, have)) {
        return STATUS_FAILED;
    }
    l->first_line = batch->responses == 0 ? l->reader->lines.line : l->first_line;
    batch->have = have;
    batch->responses++;
    batch->tokens = batch->columns[RL_LOGPROBS].count;
    return rl_offsets_add(batch, batch->tokens);
}

#else

/* Never called: the reader returns no object. */
static int add_line(lines *l, const struct cJSON *object) {
    (void)l, (void)object;
    return STATUS_FAILED;
}

#endif

/* ---- The file ---------------------------------------------------------------------------------------------------- */

static int take_line(void *user, const jsonl_reader *r, const struct cJSON *object) {
    lines *const l = user;
    const int64_t before = l->batch->tokens;
    l->reader = r;
    const int status = add_line(l, object);
    if (r->size > 0) {
        progress_stage(&l->progress, "reading", (double)r->lines.used / (double)r->size);
    } else {
        progress_add(&l->progress, l->batch->tokens - before);
    }
    return status;
}

/* Ends the reading of a file. */
static int finish(rl_batch *batch, int status, const char *name) {
    batch->shape = (array_shape){.dims = 1, .dim = {batch->tokens}};
    return status == STATUS_OK && batch->responses == 0 ? complain("%s: no line with a response", name) : status;
}

enum { MOST_USED = 32 };

/* The form of the lines of a batch. Its names are in `used`: of all fields, as one file may serve several commands; only a
 * mask that does not count is told. */
static jsonl_form form_of(const rl_batch *batch, const char *used[MOST_USED]) {
    static const char *const results[] = {MEMBERS_OF_RESULTS, "advantages", NULL};
    int count = 0;
    for (int field = 0; field < RL_FIELDS; field++) {
        if (field != RL_MASK || (batch->wanted & RL_BIT(RL_MASK)) != 0) {
            used[count++] = rl_fields[field].json;
        }
    }
    memcpy(used + count, results, sizeof results);
    return (jsonl_form){.take = take_line, .used = used};
}

int rl_batch_read_lines(rl_batch *batch, const char *path) {
    const char *used[MOST_USED];
    const jsonl_form form = form_of(batch, used);
    lines l = {.batch = batch};
    progress_start(&l.progress, -1);
    const int status = rl_offsets_add(batch, 0) || jsonl_read(path, &form, &l);
    progress_end(&l.progress);
    return finish(batch, status, source_name(path));
}

int rl_batch_read_stream(rl_batch *batch, FILE *file, const char *name) {
    const char *used[MOST_USED];
    const jsonl_form form = form_of(batch, used);
    lines l = {.batch = batch};
    return finish(batch, rl_offsets_add(batch, 0) || jsonl_read_file(file, name, &form, &l), name);
}
