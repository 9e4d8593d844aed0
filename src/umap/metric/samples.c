/* umap/metric/samples.c - checks, rows and copies of samples (samples.h). */
#include "umap/metric/samples.h"

#include <math.h>
#include <string.h>

#include "core/base/bytes.h"
#include "core/base/parallel.h"
#include "core/base/view.h"
#include "core/math/f64.h"
#include "umap/options/params.h"

enum { COPY_CHUNK = 1 << 18 /* elements */ };

/* ---- Structure --------------------------------------------------------------------------------------------------- */

static napier_status check_csr(napier_context *context, const char *name, const napier_csr_matrix *m) {
    NAPIER_REFUSE_IF(context, m->rows < 0 || m->cols < 0 || !m->row_starts, "%s: CSR of %lld x %lld, row_starts %s",
                     name, (long long)m->rows, (long long)m->cols, m->row_starts ? "given" : "NULL");
    if (m->rows >= (int64_t)1 << 31) {
        return NAPIER_OK; /* refused below */
    }
    NAPIER_REFUSE_IF(context, m->row_starts[0] != 0, "%s: row_starts[0] %lld is not 0", name,
                     (long long)m->row_starts[0]);
    for (int64_t r = 0; r < m->rows; r++) {
        NAPIER_REFUSE_IF(context, m->row_starts[r + 1] < m->row_starts[r],
                         "%s: row_starts[%lld] %lld is less than %lld", name, (long long)(r + 1),
                         (long long)m->row_starts[r + 1], (long long)m->row_starts[r]);
    }
    NAPIER_REFUSE_IF(context, m->row_starts[m->rows] > 0 && (!m->columns || !m->values), "%s: %s NULL", name,
                     m->columns ? "values" : "columns");
    for (int64_t r = 0; r < m->rows; r++) {
        for (int64_t e = m->row_starts[r]; e < m->row_starts[r + 1]; e++) {
            NAPIER_REFUSE_IF(context, m->columns[e] < 0 || m->columns[e] >= m->cols,
                             "%s: row %lld has column %ld of %lld", name, (long long)r, (long)m->columns[e],
                             (long long)m->cols);
            NAPIER_REFUSE_IF(context, e > m->row_starts[r] && m->columns[e] <= m->columns[e - 1],
                             "%s: columns of row %lld do not ascend: %ld after %ld", name, (long long)r,
                             (long)m->columns[e], (long)m->columns[e - 1]);
        }
    }
    return NAPIER_OK;
}

napier_status napier_samples_check(napier_context *context, const char *name, napier_umap_samples samples) {
    NAPIER_TRY(samples.sparse ? check_csr(context, name, samples.sparse)
                              : napier_check_matrix(context, name, samples.dense));
    const int64_t n = napier_samples_rows(samples), cols = napier_samples_cols(samples);
    NAPIER_REFUSE_IF(context, n >= (int64_t)1 << 31 || cols >= (int64_t)1 << 31,
                     "%s: %lld x %lld are not fewer than 2^31 rows and columns", name, (long long)n, (long long)cols);
    return NAPIER_OK;
}

napier_status napier_read_check(napier_context *context, const char *name, napier_umap_samples samples) {
    NAPIER_TRY(napier_samples_check(context, name, samples));
    NAPIER_REFUSE_IF(context, napier_samples_cols(samples) < 1, "%s: no columns", name);
    return NAPIER_OK;
}

napier_status napier_samples_check_apart(napier_context *context, const char *name, napier_matrix out,
                                         const char *samples_name, napier_umap_samples samples) {
    const napier_csr_matrix *m = samples.sparse;
    if (!m) {
        return napier_umap_check_apart(context, name, out, samples_name, samples.dense);
    }
    return napier_umap_check_apart_rows(context, name, out, samples_name, m->row_starts, m->rows, m->columns,
                                        m->values);
}

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

int64_t napier_first_not_finite(const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) {
            return i;
        }
    }
    return -1;
}

static int64_t read_sparse(const napier_csr_matrix *m, int64_t row, float *out) {
    memset(out, 0, (size_t)m->cols * sizeof *out);
    int64_t bad = -1;
    for (int64_t e = m->row_starts[row]; e < m->row_starts[row + 1]; e++) {
        out[m->columns[e]] = m->values[e];
        if (bad < 0 && !isfinite(m->values[e])) {
            bad = m->columns[e];
        }
    }
    return bad;
}

static double element(napier_const_matrix m, int64_t i, int64_t j) {
    return napier_f64_load(m.data, m.dtype, i * m.row_stride + j * m.col_stride);
}

int64_t napier_read_row(const napier_umap_kernels *kernels, napier_umap_samples samples, int64_t row, float *out) {
    if (samples.sparse) {
        return read_sparse(samples.sparse, row, out);
    }
    const napier_const_matrix m = samples.dense;
    const int64_t at = row * m.row_stride;
    if (m.col_stride == 1 && m.dtype == NAPIER_F32) {
        memcpy(out, (const float *)m.data + at, (size_t)m.cols * sizeof *out);
    } else if (m.col_stride == 1 && m.dtype == NAPIER_F16) {
        kernels->math->f16_to_f32((const uint16_t *)m.data + at, out, m.cols);
    } else if (m.col_stride == 1 && m.dtype == NAPIER_BF16) {
        kernels->math->bf16_to_f32((const uint16_t *)m.data + at, out, m.cols);
    } else {
        for (int64_t c = 0; c < m.cols; c++) {
            out[c] = napier_f64_to_f32(element(m, row, c));
        }
    }
    return napier_first_not_finite(out, m.cols);
}

/* Hashes the nonzero elements with their columns, so that dense and sparse rows of the same values have the same
 * hash. */
uint64_t napier_samples_hash(napier_umap_samples samples, int64_t row) {
    uint64_t hash = UINT64_C(14695981039346656037);
    const napier_csr_matrix *m = samples.sparse;
    const int64_t begin = m ? m->row_starts[row] : 0, end = m ? m->row_starts[row + 1] : samples.dense.cols;
    for (int64_t e = begin; e < end; e++) {
        const float value = m ? m->values[e] : napier_f64_to_f32(element(samples.dense, row, e));
        if (value != 0.0f) {
            uint8_t bytes[8];
            napier_put_f32(napier_put_u32(bytes, m ? (uint32_t)m->columns[e] : (uint32_t)e), value);
            for (int i = 0; i < 8; i++) {
                hash = (hash ^ bytes[i]) * UINT64_C(1099511628211);
            }
        }
    }
    return hash;
}

static double value_at(napier_umap_samples samples, int64_t row, int64_t col) {
    const napier_csr_matrix *m = samples.sparse;
    if (!m) {
        return element(samples.dense, row, col);
    }
    for (int64_t e = m->row_starts[row]; e < m->row_starts[row + 1]; e++) {
        if (m->columns[e] == col) {
            return (double)m->values[e];
        }
    }
    return 0.0;
}

napier_status napier_read_refuse(napier_context *context, const char *name, napier_umap_samples samples, int64_t row,
                                 int64_t col) {
    const double value = value_at(samples, row, col);
    return napier_fail(
        context, NAPIER_INVALID_ARGUMENT, "%s: row %lld, column %lld is %g: %s", name, (long long)row, (long long)col,
        value, isfinite(value) ? "more than float32 holds; divide the data by a power of two" : "not a finite f32");
}

int64_t napier_csr_row_of(const napier_csr_matrix *matrix, int64_t e) {
    int64_t row = 0;
    while (matrix->row_starts[row + 1] <= e) {
        row++;
    }
    return row;
}

/* ---- Copies ------------------------------------------------------------------------------------------------------ */

napier_csr_arrays napier_csr_take(napier_memory *memory, int64_t n, int64_t cols, int64_t count,
                                  napier_csr_matrix *matrix) {
    const napier_csr_arrays made = {napier_take(memory, n + 1, sizeof(int64_t)),
                                    napier_take(memory, count, sizeof(int32_t)),
                                    napier_take(memory, count, sizeof(float))};
    *matrix = (napier_csr_matrix){n, cols, made.starts, made.columns, made.values};
    return made;
}

typedef struct copy_task {
    const napier_umap_kernels *kernels;
    napier_umap_samples from;
    const double *offsets; /* or NULL */
    bool by_row;
    float *to;
} copy_task;

/* Row `row`, less the offsets. */
static void read_row_less(const napier_umap_kernels *kernels, napier_umap_samples samples, int64_t row,
                          const double *offsets, bool by_row, float *out) {
    const napier_const_matrix m = samples.dense;
    const int64_t cols = napier_samples_cols(samples);
    if (samples.sparse) {
        (void)napier_read_row(kernels, samples, row, out);
    }
    for (int64_t c = 0; c < cols; c++) {
        const double x =
            samples.sparse ? (double)out[c] : napier_f64_load(m.data, m.dtype, row * m.row_stride + c * m.col_stride);
        out[c] = napier_f64_to_f32(x - offsets[by_row ? row : c]);
    }
}

/* Copies row i. Has it a bad value? */
static bool copy_row(void *argument, int64_t i) {
    const copy_task *t = argument;
    const int64_t cols = napier_samples_cols(t->from);
    float *to = t->to + i * cols;
    if (!t->offsets) {
        return napier_read_row(t->kernels, t->from, i, to) >= 0;
    }
    read_row_less(t->kernels, t->from, i, t->offsets, t->by_row, to);
    return napier_first_not_finite(to, cols) >= 0;
}

static napier_status copy_sparse(napier_memory *memory, const napier_csr_matrix *m, napier_samples_copy *out) {
    const int64_t entries = m->row_starts[m->rows];
    const napier_csr_arrays copy = napier_csr_take(memory, m->rows, m->cols, entries, &out->sparse);
    NAPIER_TRY(napier_taken(memory, "samples: no memory for %lld entries", (long long)entries));
    memcpy(copy.starts, m->row_starts, ((size_t)m->rows + 1) * sizeof *copy.starts);
    if (entries > 0) {
        memcpy(copy.columns, m->columns, (size_t)entries * sizeof *copy.columns);
        memcpy(copy.values, m->values, (size_t)entries * sizeof *copy.values);
    }
    const int64_t bad = napier_first_not_finite(copy.values, entries);
    if (bad >= 0) {
        out->bad_row = napier_csr_row_of(m, bad);
        out->bad_col = m->columns[bad];
    }
    return NAPIER_OK;
}

/* Uses all threads, because most of the time goes to new memory pages. */
napier_status napier_samples_copy_of(napier_memory *memory, napier_umap_samples samples, const double *offsets,
                                     bool by_row, napier_samples_copy *out) {
    const int64_t n = napier_samples_rows(samples), cols = napier_samples_cols(samples);
    *out = (napier_samples_copy){.rows = n, .cols = cols, .bad_row = -1, .bad_col = -1};
    if (samples.sparse && !offsets) {
        return copy_sparse(memory, samples.sparse, out);
    }
    out->dense = napier_take(memory, n * cols, sizeof *out->dense); /* cannot overflow: the view has been checked */
    NAPIER_TRY(napier_taken(memory, "samples: no memory for a copy of %lld x %lld", (long long)n, (long long)cols));
    copy_task task = {napier_umap_kernels_of(memory->context->isa), samples, offsets, by_row, out->dense};
    if (cols > 0) {
        out->bad_row = napier_parallel_find(memory->context, n, 1 + COPY_CHUNK / cols, copy_row, &task);
        out->bad_col = out->bad_row < 0 ? -1 : napier_first_not_finite(out->dense + out->bad_row * cols, cols);
    }
    return NAPIER_OK;
}

/* ---- Very large and very small values ---------------------------------------------------------------------------- */

/* The square of a difference of smaller values, summed over 2^20 columns, is within f32. */
#define LARGE 0x1p52f
/* The square of a difference of one unit in the last place of a larger value than 2^-40 is a normal number. */
enum { SCALED_TO = 51, SCALED_LEAST = -40, LARGE_CHUNK = 1024 };
/* Small values are raised less far, so that new rows may be much larger. */
enum { RAISED_TO = 20 };

/* Do these metrics weigh each column by itself, so that a column of small values counts like one of large values? */
static bool is_by_column(napier_metric metric) {
    return metric == NAPIER_METRIC_SEUCLIDEAN || metric == NAPIER_METRIC_MAHALANOBIS;
}

/* The other metrics that do not change with a factor divide by a row's size first, so they need none. */
bool napier_metric_scales(napier_metric metric) {
    return metric == NAPIER_METRIC_BRAYCURTIS || is_by_column(metric) || napier_metric_grows(metric, true);
}

bool napier_metric_grows(napier_metric metric, bool has_values) {
    switch (metric) {
    case NAPIER_METRIC_EUCLIDEAN:
    case NAPIER_METRIC_MANHATTAN:
    case NAPIER_METRIC_CHEBYSHEV:
    case NAPIER_METRIC_MINKOWSKI:
    case NAPIER_METRIC_WMINKOWSKI: return true;
    case NAPIER_METRIC_SEUCLIDEAN:
    case NAPIER_METRIC_MAHALANOBIS: return has_values;
    default: return false;
    }
}

/* The values of row i of a copy. */
static const float *values_of(const napier_samples_copy *copy, int64_t i, int64_t *count) {
    if (copy->dense) {
        *count = copy->cols;
        return copy->dense + i * copy->cols;
    }
    *count = copy->sparse.row_starts[i + 1] - copy->sparse.row_starts[i];
    return *count > 0 ? copy->sparse.values + copy->sparse.row_starts[i] : NULL;
}

/* The least and the largest size of a row's values, without 0 and those that are not finite; INFINITY and 0 if it has no
 * other. */
static void sizes_of(const napier_samples_copy *copy, int64_t i, float *least, float *largest) {
    int64_t count;
    const float *x = values_of(copy, i, &count);
    *least = INFINITY;
    *largest = 0.0f;
    for (int64_t c = 0; c < count; c++) {
        const float size = fabsf(x[c]);
        *largest = isfinite(size) && size > *largest ? size : *largest;
        *least = size > 0.0f && size < *least ? size : *least;
    }
}

static bool has_large(void *argument, int64_t i) {
    float least, largest;
    sizes_of(argument, i, &least, &largest);
    return largest >= LARGE;
}

/* Is not every value of row i small? */
static bool has_usual(void *argument, int64_t i) {
    float least, largest;
    sizes_of(argument, i, &least, &largest);
    return largest >= NAPIER_SAMPLES_SMALL;
}

int napier_samples_exponent(const napier_context *context, const napier_samples_copy *copy, napier_metric metric) {
    napier_samples_copy rows = *copy;
    if (!napier_metric_scales(metric)) {
        return 0;
    }
    const bool large = napier_parallel_find(context, rows.rows, LARGE_CHUNK, has_large, &rows) >= 0;
    if (!large && napier_parallel_find(context, rows.rows, LARGE_CHUNK, has_usual, &rows) >= 0) {
        return 0;
    }
    float least = INFINITY, largest = 0.0f; /* of rows, or of values */
    for (int64_t i = 0; i < rows.rows; i++) {
        float own_least, own;
        sizes_of(&rows, i, &own_least, &own);
        const float small = is_by_column(metric) || own == 0.0f ? own_least : own;
        least = small < least ? small : least;
        largest = own > largest ? own : largest;
    }
    if (largest == 0.0f) {
        return 0;
    }
    const int exponent = (large ? SCALED_TO : RAISED_TO) - ilogbf(largest);
    return large && ilogbf(least) + exponent < SCALED_LEAST ? 0 : exponent;
}

bool napier_samples_need_scale(napier_umap_samples samples, napier_metric metric, const napier_umap_kernels *kernels,
                               bool may_be_large, float *row) {
    const int64_t n = napier_samples_rows(samples);
    const float enough = may_be_large ? LARGE : NAPIER_SAMPLES_SMALL;
    napier_samples_copy one = {.rows = 1, .cols = napier_samples_cols(samples), .dense = row};
    float least, own, largest = 0.0f;
    for (int64_t i = 0; napier_metric_scales(metric) && i < n && largest < enough; i++) {
        (void)napier_read_row(kernels, samples, i, row);
        sizes_of(&one, 0, &least, &own);
        largest = own > largest ? own : largest;
    }
    return napier_metric_scales(metric) && (largest < NAPIER_SAMPLES_SMALL || (may_be_large && largest >= LARGE));
}

/* Multiplies the copy by 2^exponent. */
static void multiply(napier_samples_copy *copy, int exponent) {
    const double factor = ldexp(1.0, exponent); /* may be beyond f32 */
    for (int64_t i = 0; i < copy->rows; i++) {
        int64_t count;
        float *x = (float *)(uintptr_t)values_of(copy, i, &count); /* our own copy */
        for (int64_t c = 0; c < count; c++) {
            x[c] = (float)((double)x[c] * factor);
        }
    }
}

napier_umap_samples napier_samples_view(const napier_samples_copy *copy) {
    napier_umap_samples samples = {napier_const_rows_f32(copy->dense, copy->rows, copy->cols), NULL};
    if (!copy->dense) {
        samples.sparse = &copy->sparse;
    }
    return samples;
}

napier_status napier_samples_scaled(napier_memory *memory, napier_umap_samples samples, int exponent,
                                    napier_umap_samples *out) {
    *out = samples;
    if (exponent == 0) {
        return NAPIER_OK;
    }
    napier_samples_copy *copy = napier_take(memory, 1, sizeof *copy);
    NAPIER_TRY(napier_taken(memory, "samples: no memory"));
    NAPIER_TRY(napier_samples_copy_of(memory, samples, NULL, false, copy));
    multiply(copy, exponent);
    *out = napier_samples_view(copy);
    return NAPIER_OK;
}

napier_status napier_samples_rescale(napier_memory *memory, napier_umap_samples *samples, napier_umap_samples *queries,
                                     napier_metric metric, int *exponent) {
    napier_samples_copy copy;
    NAPIER_TRY(napier_samples_copy_of(memory, *samples, NULL, false, &copy));
    *exponent = napier_samples_exponent(memory->context, &copy, metric);
    NAPIER_TRY(napier_samples_scaled(memory, *samples, *exponent, samples));
    return queries ? napier_samples_scaled(memory, *queries, *exponent, queries) : NAPIER_OK;
}
