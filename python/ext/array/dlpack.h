/* dlpack.h - the DLPack ABI, version 1, with which array libraries exchange tensors (github.com/dmlc/dlpack). It has
 * only what this package uses. The layout is that of the ABI and must not change. */
#ifndef NAPIER_PYTHON_DLPACK_H
#define NAPIER_PYTHON_DLPACK_H

#include <stdint.h>

enum { DLPACK_CPU = 1, DLPACK_CUDA_HOST = 3 };      /* device types whose memory a CPU can read */
enum { DLPACK_CUDA = 2, DLPACK_CUDA_MANAGED = 13 }; /* whose memory a GPU can read */
enum { DLPACK_INT = 0, DLPACK_UINT = 1, DLPACK_FLOAT = 2, DLPACK_BFLOAT = 4, DLPACK_BOOL = 6 }; /* type codes */
enum { DLPACK_READ_ONLY = 1 };                                                                  /* flags */

typedef struct dlpack_version {
    uint32_t major, minor;
} dlpack_version;

typedef struct dlpack_tensor {
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides; /* strides in elements; NULL before version 1.2: contiguous */
    uint64_t byte_offset;
} dlpack_tensor;

/* The struct in a capsule "dltensor", and that in "dltensor_versioned". */
typedef struct dlpack_managed {
    dlpack_tensor tensor;
    void *manager;
    void (*deleter)(struct dlpack_managed *self);
} dlpack_managed;

typedef struct dlpack_managed_versioned {
    dlpack_version version;
    void *manager;
    void (*deleter)(struct dlpack_managed_versioned *self);
    uint64_t flags;
    dlpack_tensor tensor;
} dlpack_managed_versioned;

/* The exchange that a tensor type may offer as __dlpack_c_exchange_api__, a capsule "dlpack_exchange_api": DLPack
 * without Python objects. Its functions return 0, or -1 with a Python error set. */
typedef struct dlpack_exchange {
    dlpack_version version;
    struct dlpack_exchange *previous;
    int (*allocate)(dlpack_tensor *prototype, dlpack_managed_versioned **out, void *error,
                    void (*set_error)(void *error, const char *kind, const char *message));
    int (*from_object)(void *object, dlpack_managed_versioned **out);
    int (*to_object)(dlpack_managed_versioned *tensor, void **out);
    int (*view_of_object)(void *object, dlpack_tensor *out); /* borrowed while the object lives; may be NULL */
    int (*current_stream)(int32_t device_type, int32_t device_id, void **out);
} dlpack_exchange;

#endif
