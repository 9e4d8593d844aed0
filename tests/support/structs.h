/* support/structs.h - a public struct of every version: one that is older, newer, or not initialised. */
#ifndef NAPIER_TESTS_STRUCTS_H
#define NAPIER_TESTS_STRUCTS_H

#include "support/check.h"

enum { STRUCT_NUMBERS = 64 };

/* A struct that a call reads, or, with `results`, one that it writes. */
typedef struct structure {
    const char *name, *argument, *init; /* argument NULL: the call has no context, so no text */
    const void *defaults;
    size_t size, older;    /* older: without its newest fields */
    void (*fill)(void *s); /* makes the defaults good for the call; may be NULL */
    /* What comes of the call, in *number too. */
    napier_status (*call)(napier_context *context, void *s, double number[STRUCT_NUMBERS]);
    bool results;
} structure;

/* `newest`: the first of the fields that an older header lacks. */
#define STRUCTURE(type, init, argument, newest, fill, call) \
    { #type, argument, #init, &(const type)init, sizeof(type), offsetof(type, newest), fill, call, false }
#define RESULT_STRUCTURE(type, init, argument, newest, call) \
    { #type, argument, #init, &(const type)init, sizeof(type), offsetof(type, newest), NULL, call, true }

/* Problems where a struct is not read, or written, as <napier/types.h> says. */
void check_structures(napier_context *context, const structure *all, size_t count);

#endif
