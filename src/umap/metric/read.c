/* umap/metric/read.c - rows of samples as f32 (see read.h). */
#include "umap/metric/read.h"

#include <math.h>
#include <string.h>

#include "core/base/scope.h"
#include "core/base/view.h"
#include "core/math/f64.h"

/* ---- Structure ----------------------------------------------------------------------------------------------------- */

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

napier_status napier_read_check(napier_context *context, const char *name, napier_umap_samples samples, int64_t *n,
                                int64_t *cols) {
    NAPIER_TRY(samples.sparse ? check_csr(context, name, samples.sparse)
                              : napier_check_matrix(context, name, samples.dense));
    *n = samples.sparse ? samples.sparse->rows : samples.dense.rows;
    *cols = samples.sparse ? samples.sparse->cols : samples.dense.cols;
    NAPIER_REFUSE_IF(context, *n >= (int64_t)1 << 31 || *cols >= (int64_t)1 << 31,
                     "%s: %lld x %lld are not fewer than 2^31 rows and columns", name, (long long)*n, (long long)*cols);
    NAPIER_REFUSE_IF(context, *cols < 1, "%s: no columns", name);
    return NAPIER_OK;
}

/* ---- Values -------------------------------------------------------------------------------------------------------- */

static int64_t first_not_finite(const float *x, int64_t n) {
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
            out[c] = napier_f64_to_f32(napier_f64_load(m.data, m.dtype, at + c * m.col_stride));
        }
    }
    return first_not_finite(out, m.cols);
}

int64_t napier_read_bad_entry(const napier_csr_matrix *matrix) {
    return first_not_finite(matrix->values, matrix->row_starts[matrix->rows]);
}

static double value_at(napier_umap_samples samples, int64_t row, int64_t col) {
    if (!samples.sparse) {
        const napier_const_matrix m = samples.dense;
        return napier_f64_load(m.data, m.dtype, row * m.row_stride + col * m.col_stride);
    }
    const napier_csr_matrix *m = samples.sparse;
    for (int64_t e = m->row_starts[row]; e < m->row_starts[row + 1]; e++) {
        if (m->columns[e] == col) {
            return (double)m->values[e];
        }
    }
    return 0.0;
}

napier_status napier_read_refuse(napier_context *context, const char *name, napier_umap_samples samples, int64_t row,
                                 int64_t col) {
    return napier_fail(context, NAPIER_INVALID_ARGUMENT, "%s: row %lld, column %lld is %g: not a finite f32", name,
                       (long long)row, (long long)col, value_at(samples, row, col));
}
