/* support/structs.c - see structs.h. */
#include "support/structs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POISON = 0xa5, MORE = 64 };

/* What a call gave. */
typedef struct outcome {
    napier_status status;
    char text[256];
    double number[STRUCT_NUMBERS];
} outcome;

/* The struct with room behind it: `size` bytes that count, then poison. */
static unsigned char *made(const structure *s, size_t size) {
    unsigned char *const bytes = room_for(1, s->size + 2 * MORE);
    memset(bytes, 0, s->size + MORE);
    memcpy(bytes, s->defaults, s->size);
    if (s->fill) {
        s->fill(bytes);
    }
    memset(bytes + size, POISON, s->size + 2 * MORE - size);
    memcpy(bytes, &size, sizeof size);
    return bytes;
}

static outcome call(napier_context *context, const structure *s, void *bytes) {
    outcome o;
    memset(&o, 0, sizeof o);
    o.status = s->call(context, bytes, o.number);
    (void)snprintf(o.text, sizeof o.text, "%s", s->argument ? napier_last_error(context) : "");
    return o;
}

static void check_same(const structure *s, const outcome *got, const outcome *expected, const char *which) {
    expect(got->status == expected->status, "%s %s: %s (%s), not %s (%s)", which, s->name,
           napier_status_string(got->status), got->text, napier_status_string(expected->status), expected->text);
    expect(memcmp(got->number, expected->number, sizeof got->number) == 0, "%s %s: another result", which, s->name);
}

static void check_refused(const structure *s, const outcome *got, const char *start) {
    char expected[256];
    (void)snprintf(expected, sizeof expected, "%s: %s", s->argument ? s->argument : "", start);
    expect(got->status == NAPIER_INVALID_ARGUMENT, "%s, %s: %s", s->name, start, napier_status_string(got->status));
    expect(!s->argument || strncmp(got->text, expected, strlen(expected)) == 0, "%s: '%s' does not begin with '%s'",
           s->name, got->text, expected);
}

/* ---- Structs that are read --------------------------------------------------------------------------------------- */

/* Without its newest fields a struct means what it means with their defaults, and what lies behind it is not read. */
static void check_older(napier_context *context, const structure *s) {
    if (s->older <= sizeof(size_t)) {
        return; /* its first version is its newest */
    }
    unsigned char *const full = made(s, s->size), *const old = made(s, s->older);
    memcpy(full + s->older, (const unsigned char *)s->defaults + s->older, s->size - s->older);
    const outcome expected = call(context, s, full), got = call(context, s, old);
    check_same(s, &got, &expected, "older");
    free(full);
    free(old);
}

/* A larger struct is fine as long as the fields that are not known are 0. */
static void check_newer(napier_context *context, const structure *s) {
    const size_t more = s->size + MORE;
    unsigned char *const full = made(s, s->size), *const new = made(s, more);
    memcpy(new, full, s->size);
    memcpy(new, &more, sizeof more);
    memset(new + s->size, 0, MORE);
    const outcome expected = call(context, s, full), got = call(context, s, new);
    expect(got.status == NAPIER_OK, "newer %s: %s", s->name, got.text);
    check_same(s, &got, &expected, "newer");
    for (size_t i = s->size; i < more; i++) {
        char start[128];
        new[i] = 1;
        const outcome refused_one = call(context, s, new);
        (void)snprintf(start, sizeof start, "struct_size is %zu, and byte %zu is not 0, but Napier %s knows only %zu; ",
                       more, i, NAPIER_VERSION_STRING, s->size);
        check_refused(s, &refused_one, start);
        new[i] = 0;
    }
    free(full);
    free(new);
}

/* ---- Structs that are written ------------------------------------------------------------------------------------ */

/* Copies as many bytes as the caller's struct has, and its struct_size stays. */
static void check_written(napier_context *context, const structure *s, size_t size) {
    const size_t shared = size < s->size ? size : s->size;
    unsigned char *const full = made(s, s->size), *const other = made(s, size);
    const outcome expected = call(context, s, full), got = call(context, s, other);
    expect(expected.status == NAPIER_OK, "%s: %s", s->name, expected.text);
    check_same(s, &got, &expected, "another");
    expect(memcmp(other, &size, sizeof size) == 0, "%s: struct_size %zu has changed", s->name, size);
    expect(memcmp(other + sizeof size, full + sizeof size, shared - sizeof size) == 0, "%s of %zu bytes: other results",
           s->name, size);
    for (size_t i = shared; i < s->size + 2 * MORE; i++) {
        expect(other[i] == POISON || (i >= s->size && i < size), "%s of %zu bytes: byte %zu is written", s->name, size,
               i);
    }
    free(full);
    free(other);
}

/* ---- Structs that cannot be -------------------------------------------------------------------------------------- */

/* 0: not initialised. sizeof(void *): sizeof of the pointer. Then one that is older than the first version. The others are
 * what memory may hold that nobody initialised. */
static void check_sizes(napier_context *context, const structure *s) {
    const size_t sizes[] = {
        0,           3,       sizeof(size_t) - 1, sizeof(void *), s->older - sizeof(size_t), s->size - 1,
        s->size + 1, 1 << 20, SIZE_MAX - 7};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char start[128];
        unsigned char *const bytes = made(s, s->size);
        memcpy(bytes, &sizes[i], sizeof sizes[i]);
        const outcome got = call(context, s, bytes);
        (void)snprintf(start, sizeof start, "struct_size is %zu, which no version has; initialise the struct with %s",
                       sizes[i], s->init);
        check_refused(s, &got, start);
        free(bytes);
    }
}

void check_structures(napier_context *context, const structure *all, size_t count) {
    for (size_t i = 0; i < count; i++) {
        check_sizes(context, &all[i]);
        if (all[i].results) {
            check_written(context, &all[i], all[i].older);
            check_written(context, &all[i], all[i].size);
            check_written(context, &all[i], all[i].size + MORE);
        } else {
            check_older(context, &all[i]);
            check_newer(context, &all[i]);
        }
    }
}
