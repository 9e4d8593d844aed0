/* lm/decoder/safetensors.h - tensors of safetensors files, mapped into memory, or of the caller; looked up by name.
 *
 * A folder holds `model.safetensors`, or shards that `model.safetensors.index.json` names. Files are mapped read-only.
 * Tensors stay in the mapped file, except those that are not aligned, which are copied. All of the header is checked
 * before any of it is used. If another program truncates a mapped file, reading the lost part ends this program with
 * SIGBUS, as with every mapped file. So replace files by renaming, which does not change the mapped one.
 *
 * Format: https://huggingface.co/docs/safetensors (8 bytes of length, little endian; JSON; data). */
#ifndef NAPIER_LM_DECODER_SAFETENSORS_H
#define NAPIER_LM_DECODER_SAFETENSORS_H

#include <napier/model.h>

#include "core/base/context.h"

enum { NAPIER_TENSOR_DIMS = 8 };

typedef struct napier_safetensors napier_safetensors;

typedef struct napier_tensor {
    const char *name;
    const void *data;   /* contiguous, row-major; aligned to its element after napier_safetensors_get */
    void *copy;         /* NULL, or the copy of an unaligned tensor, owned by the set */
    napier_dtype dtype; /* 0: a dtype that Napier does not support; napier_safetensors_get refuses it */
    int ndim;           /* 0 to NAPIER_TENSOR_DIMS */
    int64_t shape[NAPIER_TENSOR_DIMS];
    int64_t elements;
    int64_t begin, end; /* bytes of the file's data */
    int used;           /* 1: napier_safetensors_get returned it */
} napier_tensor;

/* Opens the tensors of a folder, or of one file. Close *out with the same context. On an error *out is NULL. Errors:
 * IO_ERROR, CORRUPT_DATA (the message names file, tensor and value), UNSUPPORTED (a big-endian machine). */
napier_status napier_safetensors_open(napier_context *context, const char *folder, napier_safetensors **out);
napier_status napier_safetensors_open_file(napier_context *context, const char *path, napier_safetensors **out);
/* The same for tensors in the caller's memory, which must outlive the set. Names are copied. misfit: the status of a tensor
 * that is given twice, and that napier_safetensors_misfit returns. Errors: INVALID_ARGUMENT, misfit, OUT_OF_MEMORY. */
napier_status napier_safetensors_view(napier_context *context, const napier_named_tensor *tensors, int64_t count,
                                      napier_status misfit, napier_safetensors **out);
/* NULL is allowed. */
void napier_safetensors_close(napier_context *context, napier_safetensors *all);

/* The tensor of that name, or NULL. Its dtype may be unsupported. */
const napier_tensor *napier_safetensors_find(const napier_safetensors *all, const char *name);

/* The status of a tensor that is missing or has another shape: CORRUPT_DATA if the tensors are in files, INVALID_ARGUMENT
 * if the caller gave them. */
napier_status napier_safetensors_misfit(const napier_safetensors *all);

/* The tensor of that name, aligned. It must have this shape and a supported dtype. Not thread-safe. Errors: the status
 * of a misfit, UNSUPPORTED (dtype), OUT_OF_MEMORY. */
napier_status napier_safetensors_get(napier_context *context, napier_safetensors *all, const char *name, int ndim,
                                     const int64_t *shape, const napier_tensor **out);

/* All tensors, sorted by name. */
int64_t napier_safetensors_count(const napier_safetensors *all);
const napier_tensor *napier_safetensors_at(const napier_safetensors *all, int64_t i);

#endif
