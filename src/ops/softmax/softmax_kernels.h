/* ops/softmax/softmax_kernels.h - the kernels of softmax, which softmax.inc.h and gradient.inc.h implement once for all
 * instruction sets. They compute in f32, unless their names begin with f64.
 *
 * A job has been checked and is on the caller's stack. Kernels allocate nothing and share nothing but their outputs. */
#ifndef NAPIER_OPS_SOFTMAX_SOFTMAX_KERNELS_H
#define NAPIER_OPS_SOFTMAX_SOFTMAX_KERNELS_H

#include <napier/softmax.h>

#include "ops/softmax/certain.h"
#include "ops/softmax/f64/sum_f64.h"
#include "ops/softmax/sum.h"
#include "ops/softmax/weighted.h"

typedef struct napier_softmax_job {
    napier_softmax_op op;
    napier_const_matrix x; /* logits [rows, cols]: f32, f16 or bf16 */
    napier_matrix y;       /* result [rows, cols]; for logsumexp [rows, 1] */
    float temperature;
    napier_masked_rows masked_rows;
    bool stream; /* the result is too large to stay in a cache: store past it */
} napier_softmax_job;

enum {
    NAPIER_GROUP = 16,       /* rows finished together, one per lane */
    NAPIER_STRIP = 64,       /* adjacent rows that are packed together if rows are columns in memory, ... */
    NAPIER_STRIP_MOST = 512, /* ... or up to so many if there are few columns */
    NAPIER_TINY_COLS = 16    /* 16 rows of up to so many columns are computed in the lanes of one vector */
};

/* Floats of scratch memory that a worker needs, on a 64-byte boundary. */
enum {
    NAPIER_ROWS_SCRATCH = 10 * (4096 + NAPIER_GROUP * 16) + 4 * NAPIER_TILE,
    NAPIER_COLUMNS_SCRATCH = NAPIER_STRIP * NAPIER_TILE + 16 * NAPIER_TILE_LANES + 16 * NAPIER_STRIP,
    NAPIER_SPARE = 2 * NAPIER_TILE + 32, /* for a row that is computed by itself */
    /* Fewer than 65,536 elements in rows of up to so many columns need less. */
    NAPIER_NARROW_COLS = 128,
    NAPIER_NARROW_SCRATCH = NAPIER_SPARE + 5 * NAPIER_GROUP * NAPIER_NARROW_COLS
};

/* What is recorded about a tile whose terms are kept. */
typedef struct napier_kept_tile {
    float min;
    int32_t exponent;
    bool whole; /* all terms are kept and none is special, so that each result is one multiplication */
} napier_kept_tile;

/* May the terms of a row be kept in the memory of its results? These must be f32 too, and stay in a cache. */
static inline bool napier_terms_in_result(const napier_softmax_job *job) {
    return job->op == NAPIER_OP_SOFTMAX && job->y.dtype == NAPIER_F32 && job->y.col_stride == 1 &&
           job->y.data != job->x.data && !job->stream;
}

typedef struct napier_softmax_kernels {
    /* Rows [begin, end) of at most 1024 columns, any strides. scratch: NAPIER_ROWS_SCRATCH floats, or NAPIER_NARROW_SCRATCH. */
    void (*short_rows)(const napier_softmax_job *job, int64_t begin, int64_t end, float *scratch);
    /* The same for rows that are neighbours in memory (row strides 1). NAPIER_COLUMNS_SCRATCH floats. */
    void (*short_columns)(const napier_softmax_job *job, int64_t begin, int64_t end, float *scratch);

    /* Whole rows [begin, end) of more than 1024 columns, factor 1. terms: for softmax, space for two tiles if the terms
     * are kept in the result, otherwise for the tiles of a row and one more; else NULL. kept: one more element than a
     * row has tiles. scratch: NAPIER_ROWS_SCRATCH floats, here and below. */
    void (*long_rows)(const napier_softmax_job *job, int64_t begin, int64_t end, float *terms, napier_kept_tile *kept,
                      float *scratch);

    /* Adds columns [begin, end) of a row, begin a multiple of 1024, to *sum, and keeps their terms at
     * terms + column: in memory of the worker, or in the row of the result itself (f32, contiguous, not
     * the input). tiles: one per tile of the row. */
    void (*keep_range)(const napier_softmax_job *job, int64_t row, int64_t begin, int64_t end, napier_sum *sum,
                       float *terms, napier_kept_tile *tiles, float *scratch);
    /* Writes the softmax of these columns from their terms. */
    void (*write_kept)(const napier_softmax_job *job, int64_t row, int64_t begin, int64_t end,
                       const napier_final *final, const float *terms, const napier_kept_tile *tiles, float *scratch);

    /* The largest element of columns [begin, end) of a row, begin a multiple of 1024: -inf if none; NaN is ignored. */
    float (*max_of_range)(const napier_softmax_job *job, int64_t row, int64_t begin, int64_t end, float *scratch);
    /* Adds these columns to *sum. */
    void (*sum_range)(const napier_softmax_job *job, int64_t row, int64_t begin, int64_t end, napier_sum *sum,
                      float *scratch);
    /* Writes the results of these columns. */
    void (*write_range)(const napier_softmax_job *job, int64_t row, int64_t begin, int64_t end,
                        const napier_final *final, float *scratch);

    /* The same for up to NAPIER_STRIP rows that are neighbours in memory. NAPIER_COLUMNS_SCRATCH floats. */
    void (*sum_strip)(const napier_softmax_job *job, int64_t row, int rows, int64_t begin, int64_t end,
                      napier_sum *sums, float *scratch);
    void (*write_strip)(const napier_softmax_job *job, int64_t row, int rows, int64_t begin, int64_t end,
                        const napier_final *finals, float *scratch);

    /* For fewer than 16 rows that are neighbours in memory: packs columns [begin, end) of all of them as z, row r at z
     * + r * ld, whole vectors; and writes results back to y. */
    void (*pack_few)(const napier_softmax_job *job, int64_t begin, int64_t end, float *z, int64_t ld);
    void (*unpack_few)(const napier_softmax_job *job, int64_t begin, int64_t end, const float *z, int64_t ld);

    /* napier_sum_merge and napier_sum_finish, where an fma is one instruction; in plain C it is a call. */
    void (*merge)(napier_sum *into, const napier_sum *from);
    napier_final (*finish)(const napier_sum *sum);

    /* Writes one result of logsumexp. */
    void (*store_lse)(const napier_softmax_job *job, int64_t row, float lse);

    /* The sum of one tile of 1 to 1024 contiguous floats. */
    void (*tile_sum)(const float *z, int n, napier_tile_sum *sum);
    /* Widens n elements of any stride to z = x / temperature. */
    void (*pack)(const void *x, napier_dtype dtype, int64_t stride, int64_t n, float temperature, float *z);
    /* Writes results of n contiguous z from a row's final. y of any stride, and of any
     * dtype that is computed in f32; y may be z. */
    void (*write)(napier_softmax_op op, const napier_final *final, napier_masked_rows masked, const float *z, int64_t n,
                  void *y, napier_dtype dtype, int64_t stride, float *scratch);

    /* The functions of weighted.h, for a weighted logsumexp of n <= 1024 contiguous elements x with
     * weights b. weighted_ties finds the indices of the elements that equal max and have a weight, and
     * returns their number; `at` has space for n. */
    void (*weighted_look)(const float *x, const float *b, int n, napier_weighted_look *look);
    float (*weighted_rest)(const float *x, const float *b, int n, const napier_weighted_look *look);
    int (*weighted_ties)(const float *x, const float *b, int n, float max, int *at);

    /* In double (f64/tile_f64.inc.h): napier_f64_tile_by_definition, napier_f64_apply, and the two of weighted_f64.h.
     * terms: NULL, or space for the tile's terms in whole vectors; f64_tile returns whether it kept them there, and
     * f64_apply reads them if they are not NULL. */
    bool (*f64_tile)(const double *z, int n, napier_f64_tile_part *part, double *terms);
    void (*f64_apply)(const napier_f64_final *final, napier_softmax_kind kind, napier_masked_rows masked_rows,
                      const double *z, const double *terms, double *out, int64_t n);
    void (*f64_weighted_look)(const double *x, const double *b, int n, napier_weighted_look *look);
    double (*f64_weighted_rest)(const double *x, const double *b, int n, const napier_weighted_look *look);

    /* Gradients; gradient.inc.h. The sums of columns [begin, end) of a row, begin a multiple of 1024, in the order of the
     * tiles; each tile's sum is added to a double. log: of log_softmax; values are not read. parts: the columns
     * are a part of a row, so that another part may have a certain element. */
    napier_certain_sums (*gradient_sums)(bool log, bool parts, napier_const_matrix values,
                                         napier_const_matrix gradients, int64_t row, int64_t begin, int64_t end,
                                         float *scratch);
    /* grad = p * (g - sum) / T of probs and their gradients; log: (g - exp(l) * sum) / T of logprobs and theirs; those of
     * certain elements as in certain.h. */
    void (*gradient)(bool log, napier_const_matrix values, napier_const_matrix gradients, napier_matrix out,
                     int64_t row, const napier_certain_sums *sums, float temperature, float *scratch);
} napier_softmax_kernels;

/* The slot short_rows of each table. */
typedef void napier_softmax_rows(const napier_softmax_job *job, int64_t begin, int64_t end, float *scratch);
napier_softmax_rows napier_softmax_short_rows_scalar, napier_softmax_short_rows_avx2, napier_softmax_short_rows_avx512,
    napier_softmax_short_rows_neon;

/* Each exists only in builds for its processor. */
extern const napier_softmax_kernels napier_softmax_kernels_scalar, napier_softmax_kernels_avx2,
    napier_softmax_kernels_avx512, napier_softmax_kernels_neon;

#endif
