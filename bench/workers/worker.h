/* bench/workers/worker.h - what a C worker is made of. A worker is one process that holds one library, so that thread
 * pools never meet. It does what the driver's lines on stdin say, and answers each with one line on stdout (worker.py
 * speaks the same):
 *
 *     load NAME PATH             done               an input: the bytes of a file, in memory of the worker's own
 *     share NAME PATH            done               an input or a result that is too large for a copy each: a mapping
 *     prepare OP KEY=VALUE...    ready VARIANT...   or "skip REASON"
 *     check VARIANT PREFIX       done W P NAME...   one run; each result becomes the file PREFIX.NAME, but a shared one
 *     fresh                      done               from here on memory is counted
 *     go VARIANT COUNT WARM      times W P W P ...  of COUNT runs, after one that is not counted if WARM is 1
 *     figures                    figures {...}      what else there is to say of the last runs, as JSON
 *     clear                      done               gives all memory back
 *     quit
 *
 * W and P are the seconds of a run by the clock and of the processor. A line that cannot be done is answered
 * "error REASON". A worker greets with "hello NAME VERSION"; its argument is the number of threads. */
#ifndef BENCH_WORKER_H
#define BENCH_WORKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BENCH_VARIANTS = 8 };

/* One operation. `set_up` returns NULL, or why this library cannot do it; `run` returns 0, or a status of the library. */
typedef struct bench_case {
    const char *name;
    const char *(*set_up)(const struct bench_case *self);
    unsigned (*run)(int variant);
    const char *variants[BENCH_VARIANTS];
} bench_case;

typedef struct bench_peer {
    const char *name, *version;
    const bench_case *const *tables;        /* of cases, each ending with a case without a name; NULL after the last */
    const char *(*start)(int threads);      /* NULL, or why this library cannot run here */
    const char *(*reason)(void);            /* of the last status that was not 0 */
    unsigned (*floor)(const char *variant); /* NULL, or runs a variant whose name begins with "floor_" */
    void (*figures)(void);                  /* NULL, or calls bench_figure with what is worth to know of this machine */
} bench_peer;

int bench_serve(int argc, char **argv, bench_peer *peer);

double bench_now(void); /* seconds */

/* ---- For cases: the present job ---------------------------------------------------------------------------------- */

int64_t bench_number(const char *key);   /* of the prepare line; 0 where it is not there */
const char *bench_text(const char *key); /* "" where it is not there */
bool bench_is(const char *key, const char *value);

/* The bytes of an input; NULL and 0 where it was not loaded. */
const void *bench_input(const char *name);
size_t bench_input_bytes(const char *name);
/* The memory of a result, made when it is first asked for: on a 2 MiB boundary, in huge pages where the system allows. */
void *bench_result(const char *name, size_t bytes);

/* A figure of the last run, for the line `figures`. */
void bench_figure(const char *name, double value);

#endif
