/* support/calls.h - small valid calls of every public function, on data that the file makes itself, for what must hold for
 * all of them: memory that runs out (hostile/allocations.c) and the caller's floating-point state (unit/core/test_fenv.c).
 * A new public function gets a line in calls.c. */
#ifndef NAPIER_TESTS_CALLS_H
#define NAPIER_TESTS_CALLS_H

#include <napier/napier.h>
#include <stdbool.h>

enum {
    CALL_TAKES = 1,       /* takes memory of the context's allocator */
    CALL_MAY_TAKE = 2,    /* may or may not */
    CALL_UNTOUCHED = 4,   /* results are as they were where it fails */
    CALL_FALLS_BACK = 8,  /* may do with less memory: PCRE2 interprets, bf16 goes without an engine */
    CALL_NO_TEXT = 16,    /* an error leaves no text in the context */
    CALL_BY_THREADS = 32, /* some results depend on the number of threads */
    CALL_LONG = 64        /* many calls of functions that other lines have too; hostile/allocations leaves it out */
};

typedef struct public_call {
    const char *name;
    napier_status (*run)(napier_context *context); /* destroys everything that it creates */
    unsigned flags;
} public_call;

/* Makes what the calls read; `path` is of a file that some write. Destroys it and removes the file. */
void calls_open(const char *path);
void calls_close(void);

/* The calls; call_at also makes the input of call number i, which lasts until the next call_at or the test's end. */
int calls_count(void);
public_call call_at(int i);

/* Changes the calls' numbers: zeros are a fourth, and the maxima of half of the rows. signs: half of the zeros are -0. */
void calls_set_zeros(bool signs);

/* Runs the call. What it writes is in call_result, whose other bytes are CALL_FILL. */
enum { CALL_RESULT_BYTES = 1 << 20, CALL_FILL = 0x5a };
extern unsigned char call_result[CALL_RESULT_BYTES];
napier_status call_run(const public_call *call, napier_context *context);

/* The allocator of the contexts that calls create. At first the default one. */
extern napier_allocator calls_allocator;

/* Reports functions that the headers declare and that no call has called so far. Tests run in the project's folder. */
void check_calls_cover_headers(void);

#endif
