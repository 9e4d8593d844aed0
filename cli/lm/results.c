/* cli/lm/results.c - see results.h. */
#define _POSIX_C_SOURCE 200809L

#include "results.h"

#ifdef NAPIER_MODEL

#include "io/jsonl.h"
#include "program/message.h"
#include "program/system.h"

#include <cjson/cJSON.h>

#include <string.h>

bool results_are_early(const model_request *q) {
    return q->resume || q->shared.out_path == NULL || is_standard(q->shared.out_path);
}

/* ---- A file that has a part of the results ----------------------------------------------------------------------- */

typedef struct line_check {
    const result_lines *results;
    int64_t done;
} line_check;

static int check_line(void *user, const jsonl_reader *r, const cJSON *object) {
    line_check *const c = user;
    const cJSON *const line = cJSON_GetObjectItemCaseSensitive(object, "line");
    const cJSON *const number = cJSON_GetObjectItemCaseSensitive(object, c->results->name);
    const cJSON *const format = cJSON_GetObjectItemCaseSensitive(object, "format"); /* docs/formats.md: none is 1 */
    int64_t want_line = 0, want_number = 0;
    if (format != NULL && format->valuedouble != 1) {
        return jsonl_fault(r, "results of format %g; this version goes on from format 1", format->valuedouble);
    }
    if (c->done < c->results->count) {
        c->results->place(c->results->user, c->done, &want_line, &want_number);
    }
    if (want_line == 0 || !cJSON_IsNumber(line) || !cJSON_IsNumber(number) || line->valuedouble != (double)want_line ||
        number->valuedouble != (double)want_number) {
        return jsonl_fault(r, "not the next result of this command; --resume wants its own file");
    }
    c->done++;
    return STATUS_OK;
}

/* The end of the complete lines. A last line that is not complete must begin as a result does. */
static int find_end(FILE *file, const char *path, off_t *complete) {
    static const char begin[] = "{\"line\": ";
    off_t end = 0;
    bool ours = true;
    int c;
    for (off_t at = 0; (c = getc(file)) != EOF; at++) {
        const off_t column = at - end;
        ours = (column == 0 || ours) && (column >= (off_t)sizeof begin - 1 || c == begin[column]);
        if (c == '\n') {
            end = at + 1;
            ours = true;
        }
    }
    if (!ours) {
        return complain("%s: its last line is not a result of this command; --resume wants its own file", path);
    }
    *complete = end;
    return ferror(file) || fseeko(file, 0, SEEK_SET) != 0 ? complain("%s: %s", path, strerror(errno)) : STATUS_OK;
}

/* Two processes that write one file would leave lines twice. */
static int lock(FILE *file, const char *path) {
    return system_lock(file) ? STATUS_OK : complain("%s: another process is writing it", path);
}

/* Opens OUT, which need not exist, counts its complete lines, and cuts off what is behind them. It checks them all before
 * it cuts: another's file stays as it is. */
static int open_partial(const result_lines *results, FILE **file, int64_t *done) {
    const char *const path = results->q->shared.out_path;
    static const jsonl_form form = {.take = check_line};
    line_check check = {.results = results};
    const int made = open(path, O_RDWR | O_CREAT, 0666);
    *file = made >= 0 ? fdopen(made, "r+b") : NULL;
    struct stat about;
    if (*file == NULL || fstat(made, &about) != 0) {
        return complain("%s: %s", path, strerror(errno));
    }
    if (!S_ISREG(about.st_mode)) { /* devices and pipes have no end, or cannot be read again */
        return complain("%s: --resume needs a regular file", path);
    }
    off_t end = 0;
    if (lock(*file, path) || find_end(*file, path, &end) || jsonl_read_complete(*file, path, &form, &check)) {
        return STATUS_FAILED;
    }
    *done = check.done;
    return ftruncate(fileno(*file), end) != 0 || fseeko(*file, end, SEEK_SET) != 0
               ? complain("%s: %s", path, strerror(errno))
               : STATUS_OK;
}

/* ---- The work ---------------------------------------------------------------------------------------------------- */

static int print_from(const result_lines *results, int64_t done, FILE *out) {
    while (done < results->count) {
        const int64_t printed = results->print(results->user, done, out);
        if (printed < 0) {
            return STATUS_FAILED;
        }
        done += printed;
        if (fflush(out) != 0) {
            return STATUS_OK; /* the caller looks at ferror */
        }
    }
    return STATUS_OK;
}

static int print_all(FILE *out, void *user) { return print_from(user, 0, out); }

int results_print(const result_lines *results) {
    const char *const path = results->q->shared.out_path;
    if (!results->q->resume) {
        result_lines copy = *results;
        return output_print(path, print_all, &copy);
    }
    FILE *file = NULL;
    int64_t done = 0;
    int status = open_partial(results, &file, &done) || print_from(results, done, file);
    const bool failed = file != NULL && (ferror(file) || fflush(file) != 0 || fsync(fileno(file)) != 0);
    if (file != NULL && fclose(file) != 0 && status == STATUS_OK) {
        status = complain("%s: %s", path, strerror(errno));
    }
    return failed && status == STATUS_OK ? complain("%s: %s", path, strerror(errno)) : status;
}

#endif
