/* bench/worker.h - what a C worker is made of. A worker is one process that holds one library (so that thread pools never
 * meet), does what the driver's lines on stdin say, and answers each with one line on stdout:
 *
 *     prepare OP DTYPE AXIS ROWS COLS IN OUT   ready VARIANT ...  |  skip REASON
 *     check VARIANT SAMPLES FILE               done SECONDS       |  error REASON     writes sampled rows of the result
 *     go VARIANT COUNT                         times S S S ...    |  error REASON     seconds of each of COUNT runs
 *     release                                  done                                   gives its memory back
 *     quit
 *
 * It greets with "hello NAME VERSION". The thread count is the program's argument. The file IN holds the input: ROWS
 * reductions of length COLS, stored [ROWS, COLS] for AXIS last and [COLS, ROWS] for AXIS first; f32, or bf16 as its bits.
 * OUT is "-" where the worker shall copy the input to memory of its own; for arrays too large for that it is a file, and
 * the worker works in shared mappings of both. */
#ifndef BENCH_WORKER_H
#define BENCH_WORKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum bench_op { BENCH_SOFTMAX, BENCH_LOG_SOFTMAX, BENCH_LOGSUMEXP, BENCH_LOGSUMEXP_ALL } bench_op;

typedef struct bench_job {
    bench_op op;
    bool bf16, first_axis;
    int64_t rows, cols;
    int threads;
    const void *in;
    void *out; /* as in for softmax and log_softmax; `rows` numbers, or one, for the rest */
    size_t in_bytes, out_bytes, item;
} bench_job;

typedef struct bench_peer {
    const char *name, *version;
    const char *const *variants; /* NULL-terminated */
    /* Called once; NULL, or why this library cannot run here. */
    const char *(*start)(int threads);
    /* NULL, or why this library cannot do the job. */
    const char *(*prepare)(const bench_job *job);
    /* One run of variants[variant]; returns the seconds it took, negative on failure. */
    double (*run)(const bench_job *job, int variant);
} bench_peer;

int bench_serve(int argc, char **argv, bench_peer *peer);

#endif
