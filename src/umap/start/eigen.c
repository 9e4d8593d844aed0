/* umap/start/eigen.c - a block iteration for the largest eigenvalues, with Chebyshev polynomials as filters.
 *
 * A cycle applies a polynomial of A to the block. The polynomial is small on [low, b] and grows fast beyond b, the
 * least eigenvalue estimate of the block. Then the Rayleigh-Ritz method finds the best vectors of the block's span,
 * which gives the next b. The recurrence needs two blocks and k products for degree k:
 *     y_1 = (A - c) y_0 / h,   y_k+1 = 2 (A - c) y_k / h - y_k-1,   c and h: centre and half width of [low, b]
 * Everything is in double, sums run over fixed blocks of rows, and the number of products is bounded.
 * Source: Zhou, Saad, Tiago and Chelikowsky, "Self-consistent-field calculations using Chebyshev-filtered subspace
 * iteration", 2006. */
#include "umap/start/eigen.h"

#include <math.h>
#include <string.h>

#include "core/base/parallel.h"
#include "core/math/f64.h"
#include "umap/start/start.h"

enum { LEAST_ROWS = 4096, MOST_BLOCKS = 256, SWEEPS = 30, FIRST_DEGREE = 8, MOST_DEGREE = 64 };
#define MOST_GROWTH 1e5 /* of the largest relative to the least in one cycle, so that columns stay independent */
#define RANK_TOLERANCE 1e-12
#define ZERO_RESIDUAL 1e-13 /* relative to the size of the spectrum */

/* ---- Small matrices ---------------------------------------------------------------------------------------------- */

/* Rotates n pairs of elements of x and y, `stride` apart. */
static void rotate(double *x, double *y, int64_t n, int64_t stride, double c, double s) {
    for (int64_t k = 0; k < n * stride; k += stride) {
        const double from_x = x[k], from_y = y[k];
        x[k] = c * from_x - s * from_y;
        y[k] = s * from_x + c * from_y;
    }
}

/* Rotates rows and columns p and q of a so that a[p][q] becomes 0, and rotates the columns of v in the same way. */
static void jacobi_rotate(double *a, double *v, int64_t n, int64_t p, int64_t q) {
    const double off = a[p * n + q];
    const double ratio = (a[q * n + q] - a[p * n + p]) / (2.0 * off);
    const double size = fabs(ratio);
    const double root = size < 0x1p500 ? size + sqrt(1.0 + size * size) : 2.0 * size;
    const double t = (ratio < 0.0 ? -1.0 : 1.0) / root;
    const double c = 1.0 / sqrt(1.0 + t * t), s = t * c;
    rotate(a + p, a + q, n, n, c, s);
    rotate(a + p * n, a + q * n, n, 1, c, s);
    rotate(v + p, v + q, n, n, c, s);
}

static void sort_columns(double *values, double *vectors, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        int64_t best = i;
        for (int64_t j = i + 1; j < n; j++) {
            best = values[j] > values[best] ? j : best;
        }
        const double value = values[i];
        values[i] = values[best];
        values[best] = value;
        for (int64_t k = 0; k < n && best != i; k++) {
            const double x = vectors[k * n + i];
            vectors[k * n + i] = vectors[k * n + best];
            vectors[k * n + best] = x;
        }
    }
}

void napier_symmetric_eigen(double *a, int64_t n, double *values, double *vectors) {
    memset(vectors, 0, (size_t)(n * n) * sizeof *vectors);
    for (int64_t i = 0; i < n; i++) {
        vectors[i * n + i] = 1.0;
    }
    for (int sweep = 0; sweep < SWEEPS; sweep++) {
        int rotated = 0;
        for (int64_t p = 0; p < n; p++) {
            for (int64_t q = p + 1; q < n; q++) {
                const double size = sqrt(fabs(a[p * n + p])) * sqrt(fabs(a[q * n + q]));
                if (fabs(a[p * n + q]) > 0x1p-54 * size && fabs(a[p * n + q]) > 0x1p-1000) {
                    jacobi_rotate(a, vectors, n, p, q);
                    rotated = 1;
                }
            }
        }
        if (!rotated) {
            break;
        }
    }
    for (int64_t i = 0; i < n; i++) {
        values[i] = a[i * n + i];
    }
    sort_columns(values, vectors, n);
}

/* ---- Sums over rows, by blocks ----------------------------------------------------------------------------------- */

typedef struct block_task block_task;

/* Processes one block: rows first .. last - 1. `sums` belong to the block and are 0 before. */
typedef void block_work(const block_task *t, int64_t first, int64_t last, double *sums);

struct block_task {
    const napier_operator *a;
    int64_t block_rows, blocks;
    double *x, *y;
    block_work *work;
    double *partial;      /* [blocks, width] */
    int64_t width;        /* number of sums of a block */
    const double *turn;   /* [columns, columns] */
    const double *values; /* [columns] */
    const double *shift;  /* [columns] */
};

static double weight_of(const napier_operator *a, int64_t i) { return a->weights ? a->weights[i] : 1.0; }

/* The block's sum of weights and of each weighted column. */
static void sum_rows(const block_task *t, int64_t first, int64_t last, double *sums) {
    const int64_t m = t->a->columns;
    for (int64_t i = first; i < last; i++) {
        const double w = weight_of(t->a, i);
        for (int64_t j = 0; j < m; j++) {
            sums[j] += w * t->x[i * m + j];
        }
        sums[m] += w;
    }
}

static void shift_rows(const block_task *t, int64_t first, int64_t last, double *sums) {
    const int64_t m = t->a->columns;
    (void)sums;
    for (int64_t i = first; i < last; i++) {
        for (int64_t j = 0; j < m; j++) {
            t->x[i * m + j] -= t->shift[j];
        }
    }
}

static inline void add_duo(double *sum, napier_duo v) { napier_duo_store(sum, napier_duo_load(sum) + v); }

/* The block's X' D X, then X' D Y. */
static void gram_rows(const block_task *t, int64_t first, int64_t last, double *sums) {
    const int64_t m = t->a->columns;
    double *gram = sums, *both = sums + m * m;
    for (int64_t i = first; i < last; i++) {
        const double w = weight_of(t->a, i);
        const double *x = t->x + i * m, *y = t->y + i * m;
        for (int64_t j = 0; j < m; j++) {
            const napier_duo xj = napier_duo_of(w * x[j]);
            for (int64_t k = 0; k < m; k += 2) {
                add_duo(gram + j * m + k, xj * napier_duo_load(x + k));
                add_duo(both + j * m + k, xj * napier_duo_load(y + k));
            }
        }
    }
}

static void turn_row(const double *turn, int64_t m, double *x) {
    double turned[NAPIER_MOST_BLOCK];
    for (int64_t k = 0; k < m; k += 2) {
        napier_duo sum = {0.0, 0.0};
        for (int64_t j = 0; j < m; j++) {
            sum += napier_duo_of(x[j]) * napier_duo_load(turn + j * m + k);
        }
        napier_duo_store(turned + k, sum);
    }
    memcpy(x, turned, (size_t)m * sizeof *x);
}

/* X and Y times the matrix `turn`; the block's weighted squares of Y - X values. */
static void turn_rows(const block_task *t, int64_t first, int64_t last, double *sums) {
    const int64_t m = t->a->columns;
    for (int64_t i = first; i < last; i++) {
        double *x = t->x + i * m, *y = t->y + i * m;
        turn_row(t->turn, m, x);
        turn_row(t->turn, m, y);
        const double w = weight_of(t->a, i);
        for (int64_t j = 0; j < m; j++) {
            const double gap = y[j] - t->values[j] * x[j];
            sums[j] += w * gap * gap;
        }
    }
}

/* y = (y - centre x) / half, the filter's first step. */
static void first_step_rows(const block_task *t, int64_t first, int64_t last, double *sums) {
    const int64_t m = t->a->columns;
    const double centre = t->values[0], half = t->values[1];
    (void)sums;
    for (int64_t i = first * m; i < last * m; i++) {
        t->y[i] = (t->y[i] - centre * t->x[i]) / half;
    }
}

static void each_block(void *argument, int worker, int64_t begin, int64_t end) {
    const block_task *t = argument;
    (void)worker;
    for (int64_t first = begin; first < end; first += t->block_rows) {
        double *sums = t->partial + first / t->block_rows * t->width;
        for (int64_t j = 0; j < t->width; j++) {
            sums[j] = 0.0;
        }
        t->work(t, first, first + t->block_rows < end ? first + t->block_rows : end, sums);
    }
}

/* Runs `work` on all blocks. sums [width]: the sums of the blocks, added in order. */
static void run_blocks(napier_context *context, block_task *t, block_work *work, int64_t width, double *sums) {
    t->work = work;
    t->width = width;
    napier_parallel(context, t->a->rows, t->block_rows, each_block, t);
    for (int64_t j = 0; j < width && sums; j++) {
        double sum = 0.0;
        for (int64_t block = 0; block < t->blocks; block++) {
            sum += t->partial[block * width + j];
        }
        sums[j] = sum;
    }
}

/* ---- The block --------------------------------------------------------------------------------------------------- */

/* Small matrices of one iteration. */
typedef struct room {
    double *gram; /* X'DX, X'DAX: two of [columns, columns]; the next five are one */
    double *vectors, *basis, *product, *small, *turn;
    double *shift;     /* [columns + 1] */
    double *residuals; /* [columns] */
} room;

static int64_t room_size(int64_t columns) { return 7 * columns * columns + 2 * columns + 1; }

static room room_in(double *at, int64_t columns) {
    const int64_t square = columns * columns;
    return (room){at,
                  at + 2 * square,
                  at + 3 * square,
                  at + 4 * square,
                  at + 5 * square,
                  at + 6 * square,
                  at + 7 * square,
                  at + 7 * square + columns + 1};
}

/* Makes x orthogonal to the constant vector. */
static void leave_constant_out(napier_context *context, block_task *t, room *r) {
    const int64_t m = t->a->columns;
    if (!t->a->weights) {
        return;
    }
    run_blocks(context, t, sum_rows, m + 1, r->shift);
    for (int64_t j = 0; j < m; j++) {
        r->shift[j] = r->shift[m] > 0.0 ? r->shift[j] / r->shift[m] : 0.0;
    }
    t->shift = r->shift;
    run_blocks(context, t, shift_rows, 0, NULL);
}

/* Fills r->basis [m, m] with columns that make X orthonormal; returns their number. */
static int64_t orthonormal_basis(room *r, int64_t m) {
    double scales[NAPIER_MOST_BLOCK], values[NAPIER_MOST_BLOCK];
    for (int64_t j = 0; j < m; j++) {
        const double square = r->gram[j * m + j];
        scales[j] = square > 0.0 ? 1.0 / sqrt(square) : 0.0;
    }
    for (int64_t j = 0; j < m; j++) {
        for (int64_t k = 0; k < m; k++) {
            r->small[j * m + k] = r->gram[j * m + k] * scales[j] * scales[k];
        }
    }
    napier_symmetric_eigen(r->small, m, values, r->vectors);
    int64_t rank = 0;
    while (rank < m && values[rank] > RANK_TOLERANCE * values[0] && values[rank] > 0.0) {
        rank++;
    }
    for (int64_t j = 0; j < m; j++) {
        for (int64_t k = 0; k < m; k++) {
            r->basis[j * m + k] = k < rank ? scales[j] * r->vectors[j * m + k] / sqrt(values[k]) : 0.0;
        }
    }
    return rank;
}

/* Replaces X and Y = AX by the Ritz vectors in the span of X, with the eigenvalues in `values`. Returns their
 * number. */
static int64_t ritz(napier_context *context, block_task *t, room *r, double *values) {
    const int64_t m = t->a->columns;
    run_blocks(context, t, gram_rows, 2 * m * m, r->gram);
    const int64_t rank = orthonormal_basis(r, m);
    const double *both = r->gram + m * m;
    for (int64_t j = 0; j < m; j++) { /* H basis */
        for (int64_t k = 0; k < rank; k++) {
            double sum = 0.0;
            for (int64_t i = 0; i < m; i++) {
                sum += 0.5 * (both[j * m + i] + both[i * m + j]) * r->basis[i * m + k];
            }
            r->product[j * m + k] = sum;
        }
    }
    for (int64_t j = 0; j < rank; j++) { /* basis' H basis */
        for (int64_t k = 0; k < rank; k++) {
            double sum = 0.0;
            for (int64_t i = 0; i < m; i++) {
                sum += r->basis[i * m + j] * r->product[i * m + k];
            }
            r->small[j * rank + k] = sum;
        }
    }
    napier_symmetric_eigen(r->small, rank, values, r->vectors);
    for (int64_t j = 0; j < m; j++) {
        for (int64_t k = 0; k < m; k++) {
            double sum = 0.0;
            for (int64_t i = 0; i < rank && k < rank; i++) {
                sum += r->basis[j * m + i] * r->vectors[i * rank + k];
            }
            r->turn[j * m + k] = sum;
        }
    }
    for (int64_t k = rank; k < m; k++) {
        values[k] = 0.0;
    }
    t->turn = r->turn;
    t->values = values;
    run_blocks(context, t, turn_rows, m, r->residuals);
    return rank;
}

static int converged(const napier_operator *a, const napier_eigen_limits *limits, const room *r, const double *values,
                     int64_t rank) {
    if (rank == 0) {
        return 1;
    }
    const double top = isinf(a->high) ? values[0] : a->high;
    const double size = fabs(top) > fabs(a->low) ? fabs(top) : fabs(a->low);
    const double limit = limits->tolerance * (top - values[rank - 1]) + ZERO_RESIDUAL * size;
    for (int64_t j = 0; j < limits->wanted && j < rank; j++) {
        if (!(sqrt(r->residuals[j]) <= limit)) {
            return 0;
        }
    }
    return 1;
}

/* ---- The filter -------------------------------------------------------------------------------------------------- */

/* The largest degree k, at most `most`, with a growth cosh(k acosh(top)) below MOST_GROWTH. */
static int64_t degree_for(double top, int64_t most) {
    const double x = top > 1.0 ? top : 1.0;
    const double per_step = napier_f64_log(x + sqrt(x * x - 1.0));
    const double steps = per_step > 0.0 ? napier_f64_log(2.0 * MOST_GROWTH) / per_step : (double)most;
    const int64_t degree = steps < (double)most ? (int64_t)steps : most;
    return degree < 2 ? 2 : degree;
}

/* Filters the block x, with y = Ax, by `degree` - 1 products. The result is in t->x. */
static void filter(napier_context *context, block_task *t, double centre, double half, int64_t degree) {
    const double step[2] = {centre, half};
    t->values = step;
    run_blocks(context, t, first_step_rows, 0, NULL);
    for (int64_t k = 1; k < degree; k++) {
        t->a->apply(t->a->argument, t->y, 2.0 / half, -2.0 * centre / half, -1.0, t->x);
        double *const other = t->x;
        t->x = t->y;
        t->y = other;
    }
    double *const other = t->x; /* the last block is in y */
    t->x = t->y;
    t->y = other;
}

static void iterate(napier_context *context, block_task *t, room *r, const napier_eigen_limits *limits, double *values,
                    int64_t *count) {
    const napier_operator *a = t->a;
    leave_constant_out(context, t, r);
    a->apply(a->argument, t->x, 1.0, 0.0, 0.0, t->y);
    int64_t products = 1;
    for (int64_t most = FIRST_DEGREE;; most = 2 * most < MOST_DEGREE ? 2 * most : MOST_DEGREE) {
        *count = ritz(context, t, r, values);
        const int64_t left = limits->products - products;
        if (left < 2 || converged(a, limits, r, values, *count)) {
            return;
        }
        const double least = values[*count - 1], top = isinf(a->high) ? values[0] : a->high;
        const double bound = least > a->low ? least : a->low;
        const double half = fmax(0.5 * (bound - a->low), 1e-3 * (top - a->low));
        const double centre = a->low + half;
        int64_t degree = degree_for((top - centre) / half, most);
        degree = degree < left ? degree : left;
        filter(context, t, centre, half, degree);
        leave_constant_out(context, t, r);
        a->apply(a->argument, t->x, 1.0, 0.0, 0.0, t->y);
        products += degree;
    }
}

void napier_eigen_start(int64_t rows, int64_t columns, double *x) {
    const uint32_t key = napier_random_key(0, NAPIER_STREAM_BLOCK);
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < columns; j++) {
            uint32_t random[2];
            napier_philox(key, (uint32_t)i, (uint32_t)j, random);
            x[i * columns + j] = napier_random_unit(random[0]) - 0.5;
        }
    }
}

static int64_t block_rows_of(int64_t rows) {
    const int64_t even = (rows + MOST_BLOCKS - 1) / MOST_BLOCKS;
    return even > LEAST_ROWS ? even : LEAST_ROWS;
}

int64_t napier_eigen_scratch(int64_t rows, int64_t columns) {
    const int64_t block_rows = block_rows_of(rows), blocks = (rows + block_rows - 1) / block_rows;
    return room_size(columns) + blocks * (2 * columns * columns + 1);
}

void napier_largest_eigenvectors(napier_context *context, const napier_operator *a, napier_eigen_limits limits,
                                 double *x, double *spare, double *scratch, double values[NAPIER_MOST_BLOCK],
                                 int64_t *count) {
    room r = room_in(scratch, a->columns);
    block_task t = {.a = a, .x = x, .y = spare, .block_rows = block_rows_of(a->rows)};
    t.blocks = (a->rows + t.block_rows - 1) / t.block_rows;
    t.partial = scratch + room_size(a->columns);
    iterate(context, &t, &r, &limits, values, count);
    if (t.x != x) {
        memcpy(x, t.x, (size_t)(a->rows * a->columns) * sizeof *x);
    }
}
