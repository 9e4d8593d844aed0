/* cli/umap/umap_npz.h - a sparse matrix as scipy.sparse.save_npz writes it: a zip archive with the arrays data,
 * indices, indptr and shape, and the word csr. The file may be untrusted. */
#ifndef NAPIER_CLI_UMAP_NPZ_H
#define NAPIER_CLI_UMAP_NPZ_H

#include <napier/umap.h>

#include <stdbool.h>

typedef struct sparse_table {
    napier_csr_matrix matrix; /* points into the following arrays */
    int64_t *row_starts;
    int32_t *columns;
    float *values;
    double least, most; /* of the values as they are stored */
} sparse_table;

/* Reads a matrix, and sorts rows whose columns are not in order. Free the table even after a failure. */
int sparse_read(sparse_table *t, const char *path);
void sparse_free(sparse_table *t);

#endif
