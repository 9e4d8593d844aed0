/* bench/floors/floors.h - what no softmax can beat: the fastest known copy and read of the bytes, and in L1 what every
 * correct implementation must do: maximum, difference, exp and sum; for softmax and log_softmax also a scale or a
 * difference, and a store.
 *
 * The kernels are written once (floors.inc.h) on the library's own vectors and compiled for each instruction set, so
 * "the same ISA's exp" is what it says. Each kind has several candidates; bench_floors_choose times them on the caller's
 * buffers and keeps the fastest. */
#ifndef BENCH_FLOORS_H
#define BENCH_FLOORS_H

#include <napier/types.h>
#include <stdbool.h>
#include <stddef.h>

enum { FLOOR_COPIES = 4, FLOOR_READS = 2, FLOOR_FILLS = 2, FLOOR_EXPS = 4, FLOOR_ROWS = 4, FLOOR_ROW = 1024 };

/* What a row is turned into. */
typedef enum floor_op { FLOOR_SOFTMAX, FLOOR_LOG_SOFTMAX, FLOOR_LOGSUMEXP } floor_op;

/* Sizes are bytes, multiples of 1024; addresses lie on 64-byte boundaries. */
typedef struct floor_kernels {
    void (*copy[FLOOR_COPIES])(void *to, const void *from, size_t bytes);
    int (*read[FLOOR_READS])(const void *from, size_t bytes); /* the bits of all words or-ed: nothing can be left out */
    void (*fill[FLOOR_FILLS])(void *to, size_t bytes);
    float (*exp_sum[FLOOR_EXPS])(const float *x, int n); /* n a multiple of 256 */
    /* A row of FLOOR_ROW floats or bf16: its results in y, of the same dtype; for logsumexp only a number is returned. */
    float (*row[FLOOR_ROWS])(floor_op op, bool bf16, const void *x, void *y);
} floor_kernels;

extern const floor_kernels floor_scalar, floor_avx2, floor_avx512, floor_neon;

/* What a shape must move: the row-wise operation reads `rows` times `row_bytes` once, or twice (`reads` 2) if a row does
 * not stay in L2 between the looks, and writes `out_bytes`. */
typedef struct floor_work {
    const void *in;
    void *out;
    size_t rows, row_bytes, out_bytes;
    int reads, threads;
} floor_work;

typedef struct floor_choice {
    const floor_kernels *kernels;
    int copy, read, fill;
} floor_choice;

/* The kernels of an instruction set that the library found available here. */
const floor_kernels *floors_of(napier_isa isa);
/* Times the candidates on the work and keeps the fastest of each kind. `out` is overwritten. */
floor_choice floors_choose(const floor_kernels *kernels, const floor_work *work);

/* One pass over the work: moves its bytes and computes nothing. Copies if what is written is as large as what is read. */
void floors_memory(const floor_choice *choice, const floor_work *work);
/* Every input byte read once. */
void floors_read(const floor_choice *choice, const floor_work *work);

/* Every thread does exp + sum of 4096 floats in L1, 256 times over, by candidate `which`: 2^20 exponentials each. */
void floors_exp(const floor_kernels *kernels, int which, int threads);

/* Every thread does 1024 rows of 1024 elements in L1 by candidate `which`: 2^20 elements each. */
void floors_row(const floor_kernels *kernels, int which, floor_op op, bool bf16, int threads);
/* The fastest candidate. */
int floors_choose_row(const floor_kernels *kernels, floor_op op, bool bf16, int threads);

/* The clock in GHz right now, from a chain of dependent one-cycle additions; 0 where we do not know how. */
double floors_clock(void);

#endif
