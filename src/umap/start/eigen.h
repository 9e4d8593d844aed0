/* umap/start/eigen.h - the eigenvectors of the largest eigenvalues of a symmetric operator that is given only by its
 * products with vectors. */
#ifndef NAPIER_UMAP_START_EIGEN_H
#define NAPIER_UMAP_START_EIGEN_H

#include <stdint.h>
#include <string.h>

#include "core/base/context.h"

/* Vectors of two doubles, in plain C, because every 64-bit machine has registers for them. Each operation is one rounding
 * for each lane, so the bits are those of a loop over doubles. (A GNU C extension, which clang has too.) */
typedef double napier_duo __attribute__((vector_size(16)));

static inline napier_duo napier_duo_of(double x) { return (napier_duo){x, x}; }

static inline napier_duo napier_duo_load(const double *p) {
    napier_duo v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline void napier_duo_store(double *p, napier_duo v) { memcpy(p, &v, sizeof v); }

enum { NAPIER_MOST_BLOCK = 288 }; /* columns of a block: a multiple of 8 */

/* A matrix A of `rows` rows that is symmetric in the inner product sum_i weights[i] x_i y_i. Blocks are [rows,
 * columns], row by row, in double. */
typedef struct napier_operator {
    int64_t rows, columns;
    const double *weights; /* NULL: all 1. Else the constant vector is an eigenvector of A and is left out */
    double low;            /* lower bound of the eigenvalues */
    double high;           /* upper bound, or INFINITY if unknown */
    /* y = alpha A x + beta x + gamma y; y is not read if gamma is 0. */
    void (*apply)(void *argument, const double *x, double alpha, double beta, double gamma, double *y);
    void *argument;
} napier_operator;

/* When the iteration ends: after `products` products at the latest, or earlier when the residuals of the
 * `wanted` first vectors are below tolerance * (high - the block's least eigenvalue). */
typedef struct napier_eigen_limits {
    int64_t wanted, products;
    double tolerance;
} napier_eigen_limits;

/* Fills a block with random columns, which depend only on its shape. */
void napier_eigen_start(int64_t rows, int64_t columns, double *x);

/* The number of scratch doubles that an iteration on such a block needs in addition to the two blocks. */
int64_t napier_eigen_scratch(int64_t rows, int64_t columns);

/* x holds the start, then the eigenvectors in its columns, by descending eigenvalue, of length 1 in the operator's
 * inner product. There are `count` of them; the other columns are 0. `spare` is a second block. Allocates nothing. */
void napier_largest_eigenvectors(napier_context *context, const napier_operator *a, napier_eigen_limits limits,
                                 double *x, double *spare, double *scratch, double values[NAPIER_MOST_BLOCK],
                                 int64_t *count);

/* Eigenvalues, descending, and eigenvectors (the columns of `vectors` [n, n]) of a symmetric matrix, by Jacobi's
 * method. `a` is overwritten; n is at most NAPIER_MOST_BLOCK. */
void napier_symmetric_eigen(double *a, int64_t n, double *values, double *vectors);

#endif
