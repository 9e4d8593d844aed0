/* umap/metric/samples.c - copies of samples. */
#include "umap/metric/samples.h"

#include <string.h>

#include "core/base/bytes.h"
#include "core/base/parallel.h"
#include "core/base/scope.h"
#include "core/base/view.h"
#include "core/math/f64.h"
#include "umap/options/params.h"

enum { COPY_CHUNK = 1 << 18 /* elements */ };

int64_t napier_samples_rows(napier_umap_samples samples) {
    return samples.sparse ? samples.sparse->rows : samples.dense.rows;
}

int64_t napier_samples_cols(napier_umap_samples samples) {
    return samples.sparse ? samples.sparse->cols : samples.dense.cols;
}

napier_status napier_samples_check(napier_context *context, napier_umap_samples samples) {
    if (!samples.sparse) {
        return napier_check_matrix(context, "samples", samples.dense);
    }
    const napier_csr_matrix *m = samples.sparse;
    NAPIER_REFUSE_IF(
        context, m->rows < 0 || m->cols < 0 || m->cols >= (int64_t)1 << 31 || !m->row_starts || m->row_starts[0] != 0,
        "samples: CSR of %lld x %lld without row_starts from 0", (long long)m->rows, (long long)m->cols);
    for (int64_t r = 0; r < m->rows; r++) {
        NAPIER_REFUSE_IF(context, m->row_starts[r + 1] < m->row_starts[r],
                         "samples: row_starts[%lld] %lld is less than %lld", (long long)(r + 1),
                         (long long)m->row_starts[r + 1], (long long)m->row_starts[r]);
    }
    NAPIER_REFUSE_IF(context, m->row_starts[m->rows] > 0 && (!m->columns || !m->values), "samples: %s NULL",
                     m->columns ? "values" : "columns");
    return NAPIER_OK;
}

napier_status napier_samples_check_apart(napier_context *context, const char *name, napier_matrix out,
                                         const char *samples_name, napier_umap_samples samples) {
    if (!samples.sparse) {
        return napier_umap_check_apart(context, name, out, samples_name, samples.dense);
    }
    const napier_csr_matrix *m = samples.sparse;
    const int64_t entries = m->row_starts[m->rows];
    NAPIER_TRY(napier_umap_check_apart(context, name, out, samples_name,
                                       napier_umap_array(m->row_starts, m->rows + 1, NAPIER_F64)));
    NAPIER_TRY(
        napier_umap_check_apart(context, name, out, samples_name, napier_umap_array(m->columns, entries, NAPIER_F32)));
    return napier_umap_check_apart(context, name, out, samples_name, napier_umap_array(m->values, entries, NAPIER_F32));
}

static float element(napier_const_matrix m, int64_t i, int64_t j) {
    return napier_f64_to_f32(napier_f64_load(m.data, m.dtype, i * m.row_stride + j * m.col_stride));
}

static napier_status copy_sparse(napier_context *context, const napier_csr_matrix *m, napier_samples_copy *out) {
    const size_t entries = (size_t)m->row_starts[m->rows], room = entries > 0 ? entries : 1;
    int64_t *starts = napier_alloc(&context->allocator, (size_t)m->rows + 1, sizeof *starts);
    int32_t *columns = napier_alloc(&context->allocator, room, sizeof *columns);
    float *values = napier_alloc(&context->allocator, room, sizeof *values);
    if (!starts || !columns || !values) {
        napier_free(&context->allocator, starts);
        napier_free(&context->allocator, columns);
        napier_free(&context->allocator, values);
        return napier_fail(context, NAPIER_OUT_OF_MEMORY, "samples: no memory for %lld entries", (long long)entries);
    }
    memcpy(starts, m->row_starts, ((size_t)m->rows + 1) * sizeof *starts);
    if (entries > 0) {
        memcpy(columns, m->columns, entries * sizeof *columns);
        memcpy(values, m->values, entries * sizeof *values);
    }
    out->sparse = (napier_csr_matrix){m->rows, m->cols, starts, columns, values};
    return NAPIER_OK;
}

typedef struct copy_task {
    napier_const_matrix from;
    float *to;
} copy_task;

/* Uses all threads, because most of the time goes to new memory pages. */
static void copy_rows(void *argument, int worker, int64_t begin, int64_t end) {
    const copy_task *t = argument;
    const napier_const_matrix m = t->from;
    const int plain = m.dtype == NAPIER_F32 && m.col_stride == 1;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        float *row = t->to + i * m.cols;
        if (plain && m.cols > 0) {
            memcpy(row, (const float *)m.data + i * m.row_stride, (size_t)m.cols * sizeof *row);
            continue;
        }
        for (int64_t j = 0; j < m.cols; j++) {
            row[j] = element(m, i, j);
        }
    }
}

napier_status napier_samples_copy_of(napier_context *context, napier_umap_samples samples, napier_samples_copy *out) {
    *out = (napier_samples_copy){.rows = napier_samples_rows(samples), .cols = napier_samples_cols(samples)};
    if (samples.sparse) {
        return copy_sparse(context, samples.sparse, out);
    }
    const napier_const_matrix m = samples.dense;
    const int64_t elements = m.rows * m.cols; /* the view has been checked */
    out->dense = napier_alloc(&context->allocator, elements > 0 ? (size_t)elements : 1, sizeof *out->dense);
    if (!out->dense) {
        return napier_fail(context, NAPIER_OUT_OF_MEMORY, "samples: no memory for a copy of %lld x %lld",
                           (long long)m.rows, (long long)m.cols);
    }
    copy_task task = {m, out->dense};
    const int64_t chunk = m.cols > 0 ? 1 + COPY_CHUNK / m.cols : m.rows + 1;
    napier_parallel(context, m.rows, chunk, copy_rows, &task);
    return NAPIER_OK;
}

void napier_samples_release(napier_context *context, napier_samples_copy *copy) {
    const napier_allocator *allocator = &context->allocator;
    napier_free(allocator, copy->dense);
    napier_free(allocator, (void *)(uintptr_t)copy->sparse.row_starts); /* allocated by copy_sparse */
    napier_free(allocator, (void *)(uintptr_t)copy->sparse.columns);
    napier_free(allocator, (void *)(uintptr_t)copy->sparse.values);
    *copy = (napier_samples_copy){0};
}

napier_umap_samples napier_samples_view(const napier_samples_copy *copy) {
    napier_umap_samples samples = {napier_const_rows_f32(copy->dense, copy->rows, copy->cols), NULL};
    if (!copy->dense) {
        samples.sparse = &copy->sparse;
    }
    return samples;
}

void napier_samples_row(const napier_samples_copy *copy, int64_t row, float *out) {
    if (copy->dense) {
        memcpy(out, copy->dense + row * copy->cols, (size_t)copy->cols * sizeof *out);
        return;
    }
    memset(out, 0, (size_t)copy->cols * sizeof *out);
    for (int64_t e = copy->sparse.row_starts[row]; e < copy->sparse.row_starts[row + 1]; e++) {
        out[copy->sparse.columns[e]] = copy->sparse.values[e];
    }
}

/* Hashes the nonzero elements with their columns, so that dense and sparse rows of the same values have the same
 * hash. */
uint64_t napier_samples_hash(napier_umap_samples samples, int64_t row) {
    uint64_t hash = UINT64_C(14695981039346656037);
    const napier_csr_matrix *m = samples.sparse;
    const int64_t begin = m ? m->row_starts[row] : 0, end = m ? m->row_starts[row + 1] : samples.dense.cols;
    for (int64_t e = begin; e < end; e++) {
        const float value = m ? m->values[e] : element(samples.dense, row, e);
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
