/* lm/decoder/safetensors.h - tensors of safetensors files, mapped into memory and looked up by name.
 *
 * A folder holds `model.safetensors`, or shards that `model.safetensors.index.json` names. Files are mapped read-only.
 * Tensors stay in the mapped file, except those that are not aligned, which are copied. All of the header is checked
 * before any of it is used. If another program truncates a mapped file, reading the lost part ends this program with
 * SIGBUS, as with every mapped file. So replace files by renaming, which does not change the mapped one.
 *
 * Format: https://huggingface.co/docs/safetensors (8 bytes of length, little endian; JSON; data). */
#ifndef NAPIER_LM_DECODER_SAFETENSORS_H
#define NAPIER_LM_DECODER_SAFETENSORS_H

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
} napier_tensor;

/* Opens the tensors of a folder, or of one file. Close *out with the same context. On an error *out is NULL. Errors:
 * IO_ERROR, CORRUPT_DATA (the message names file, tensor and value), UNSUPPORTED (a big-endian machine). */
napier_status napier_safetensors_open(napier_context *context, const char *folder, napier_safetensors **out);
napier_status napier_safetensors_open_file(napier_context *context, const char *path, napier_safetensors **out);
/* NULL is allowed. */
void napier_safetensors_close(napier_context *context, napier_safetensors *all);

/* The tensor of that name, or NULL. Its dtype may be unsupported. */
const napier_tensor *napier_safetensors_find(const napier_safetensors *all, const char *name);

/* The tensor of that name, aligned. It must have this shape and a supported dtype. Not thread-safe. Errors:
 * CORRUPT_DATA (missing, or another shape), UNSUPPORTED (dtype), OUT_OF_MEMORY. */
napier_status napier_safetensors_get(napier_context *context, napier_safetensors *all, const char *name, int ndim,
                                     const int64_t *shape, const napier_tensor **out);

/* All tensors, sorted by name. */
int64_t napier_safetensors_count(const napier_safetensors *all);
const napier_tensor *napier_safetensors_at(const napier_safetensors *all, int64_t i);

#endif
