/* napier/types.h - status codes, dtypes, array views and the context. Every other header includes this one. */
#ifndef NAPIER_TYPES_H
#define NAPIER_TYPES_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__) || defined(__clang__)
#define NAPIER_API __attribute__((visibility("default")))
#define NAPIER_DEPRECATED(text) __attribute__((deprecated(text))) /* goes with version 2 */
#else
#define NAPIER_API
#define NAPIER_DEPRECATED(text)
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define NAPIER_VERSION_MAJOR 1
#define NAPIER_VERSION_MINOR 0
#define NAPIER_VERSION_PATCH 0
#define NAPIER_VERSION_STRING "1.0.0"

/* The newest version of the results' bits that this library computes. A change of any result's bits comes with a new number,
 * and the versions before it stay (docs/numerics.md). */
#define NAPIER_NUMERICS_VERSION 1

/* The result of a call. Values are never renumbered. */
typedef enum napier_status {
    NAPIER_OK = 0,
    NAPIER_INVALID_ARGUMENT = 1, /* a null pointer, or an invalid shape, stride, dtype or option */
    NAPIER_OUT_OF_MEMORY = 2,    /* the allocator returned NULL, or a size does not fit */
    NAPIER_UNSUPPORTED = 3,      /* this machine or this build lacks an instruction set, a device or a feature */
    NAPIER_STATE_MISMATCH = 4,   /* two states that cannot be merged, or a state that has not been finished */
    NAPIER_CORRUPT_DATA = 5,     /* bytes or a file that do not follow their format */
    NAPIER_CANCELLED = 6,        /* a progress callback or the context's interrupt asked to stop */
    NAPIER_IO_ERROR = 7,         /* a file could not be read or written */
    NAPIER_DEVICE_ERROR = 8      /* a GPU failed, in this call or in earlier work on it */
} napier_status;

/* The name of a status in English, for any value; never NULL. The string is static. */
NAPIER_API const char *napier_status_string(napier_status status);

typedef enum napier_dtype {
    NAPIER_F32 = 1,  /* float */
    NAPIER_F16 = 2,  /* IEEE binary16, held in uint16_t */
    NAPIER_BF16 = 3, /* bfloat16, held in uint16_t */
    NAPIER_F64 = 4   /* double */
} napier_dtype;

/* Bytes per element; 0 for an unknown dtype. */
NAPIER_API size_t napier_dtype_size(napier_dtype dtype);
/* "f32", "f16", "bf16", "f64"; "unknown" for any other value. */
NAPIER_API const char *napier_dtype_name(napier_dtype dtype);

/* Instruction sets. The choice changes the speed and never the bits of a result. */
typedef enum napier_isa {
    NAPIER_ISA_AUTO = 0,
    NAPIER_ISA_SCALAR = 1,
    NAPIER_ISA_NEON = 2,
    NAPIER_ISA_AVX2 = 3,  /* AVX2, FMA and F16C */
    NAPIER_ISA_AVX512 = 4 /* AVX-512 F, BW, DQ and VL */
} napier_isa;

/* "auto", "scalar", "neon", "avx2", "avx512"; "unknown" for any other value. */
NAPIER_API const char *napier_isa_name(napier_isa isa);
/* 1 if this build and this machine can run it, else 0. AUTO and SCALAR are always available. */
NAPIER_API int napier_isa_available(napier_isa isa);

/* ---- Views ------------------------------------------------------------------------------------------------------
 * A view describes memory that the caller owns. Strides count elements. They may be negative, and 0 in a view that is only
 * read (a broadcast). Element (i, j) of a matrix lies at data + (i * row_stride + j * col_stride) * sizeof(element).
 * Pass an n-D array as several 2-D slices. To reduce along the first axis, pass the transposed view.
 * `data` must be aligned to its element. It may be NULL only where the view has no elements. */
typedef struct napier_matrix {
    void *data;
    int64_t rows, cols;
    int64_t row_stride, col_stride;
    napier_dtype dtype;
} napier_matrix;

typedef struct napier_const_matrix {
    const void *data;
    int64_t rows, cols;
    int64_t row_stride, col_stride;
    napier_dtype dtype;
} napier_const_matrix;

typedef struct napier_vector {
    void *data;
    int64_t size, stride;
    napier_dtype dtype;
} napier_vector;

typedef struct napier_const_vector {
    const void *data;
    int64_t size, stride;
    napier_dtype dtype;
} napier_const_vector;

/* Contiguous, row-major views of any dtype. */
static inline napier_matrix napier_rows(void *data, int64_t rows, int64_t cols, napier_dtype dtype) {
    napier_matrix m = {data, rows, cols, cols, 1, dtype};
    return m;
}
static inline napier_const_matrix napier_const_rows(const void *data, int64_t rows, int64_t cols, napier_dtype dtype) {
    napier_const_matrix m = {data, rows, cols, cols, 1, dtype};
    return m;
}
static inline napier_vector napier_array(void *data, int64_t size, napier_dtype dtype) {
    napier_vector v = {data, size, 1, dtype};
    return v;
}
static inline napier_const_vector napier_const_array(const void *data, int64_t size, napier_dtype dtype) {
    napier_const_vector v = {data, size, 1, dtype};
    return v;
}
/* The common case: f32. */
static inline napier_matrix napier_rows_f32(float *data, int64_t rows, int64_t cols) {
    return napier_rows(data, rows, cols, NAPIER_F32);
}
static inline napier_const_matrix napier_const_rows_f32(const float *data, int64_t rows, int64_t cols) {
    return napier_const_rows(data, rows, cols, NAPIER_F32);
}
static inline napier_vector napier_array_f32(float *data, int64_t size) { return napier_array(data, size, NAPIER_F32); }
static inline napier_const_vector napier_const_array_f32(const float *data, int64_t size) {
    return napier_const_array(data, size, NAPIER_F32);
}
/* The same elements with rows and columns exchanged. Use it to reduce along the first axis. */
static inline napier_matrix napier_transposed(napier_matrix m) {
    napier_matrix t = {m.data, m.cols, m.rows, m.col_stride, m.row_stride, m.dtype};
    return t;
}
static inline napier_const_matrix napier_const_transposed(napier_const_matrix m) {
    napier_const_matrix t = {m.data, m.cols, m.rows, m.col_stride, m.row_stride, m.dtype};
    return t;
}
/* A contiguous array of integers that is only read: token ids or offsets. data may be NULL only where size is 0. */
typedef enum napier_index_type {
    NAPIER_I32 = 1, /* int32_t */
    NAPIER_I64 = 2  /* int64_t */
} napier_index_type;

typedef struct napier_indices {
    const void *data;
    int64_t size;
    napier_index_type type;
} napier_indices;

static inline napier_indices napier_indices_i32(const int32_t *data, int64_t size) {
    napier_indices i = {data, size, NAPIER_I32};
    return i;
}
static inline napier_indices napier_indices_i64(const int64_t *data, int64_t size) {
    napier_indices i = {data, size, NAPIER_I64};
    return i;
}

/* The same view, for reading only. */
static inline napier_const_matrix napier_read_only(napier_matrix m) {
    napier_const_matrix c = {m.data, m.rows, m.cols, m.row_stride, m.col_stride, m.dtype};
    return c;
}

/* ---- Structs that grow ------------------------------------------------------------------------------------------
 * A struct that begins with struct_size may get more fields, at its end, in a later version. Initialise it with its macro
 * (NAPIER_CONTEXT_OPTIONS_INIT and so on), which sets the defaults and struct_size, and then set the fields that you need. A
 * program that was compiled with another version's header goes on working:
 *   - Your struct is smaller, because your header is older: the fields that it lacks have their defaults. Of results you get
 *     those that your struct has.
 *   - Your struct is larger, because your header is newer: the call takes it as long as all bytes that this library does not
 *     know are 0. Else the call returns INVALID_ARGUMENT, because it cannot do what you ask for. Results that this library
 *     does not know stay as they are.
 * A struct_size that no version has, such as 0 or one that lacks fields of the first version, is INVALID_ARGUMENT. The text
 * names the argument and the macro. A struct that lies within another (napier_umap_options.neighbors) does not grow: its
 * struct_size is always its sizeof. */

/* ---- Context ----------------------------------------------------------------------------------------------------
 * A context holds the number of threads, the instruction set, the allocator and the text of the last error. The library has
 * no other state. One thread at a time may use a context. Give each of your threads a context of its own.
 * A context with the default allocator keeps up to 64 MB that its calls have freed, for later calls, until it is destroyed.
 * A child of fork may use its parent's contexts and create new ones. All its calls run on one thread, because threads
 * stay with the parent. The results are the same. */
typedef struct napier_context napier_context;

/* `allocate` returns memory aligned to `alignment` (a power of two), or NULL. `deallocate` frees it and never receives NULL.
 * The library calls both only from the thread that called it, never from its workers. */
typedef struct napier_allocator {
    void *(*allocate)(size_t size, size_t alignment, void *user);
    void (*deallocate)(void *memory, void *user);
    void *user;
} napier_allocator;

typedef struct napier_context_options {
    size_t struct_size; /* sizeof(napier_context_options) */
    int threads;        /* worker threads, at most 1024; 0: the processors that the process may use */
    napier_isa
        highest_isa; /* AUTO: the best of this machine, with its matrix engine (AMX) for products of bf16. AVX512 does
                                   not use the engine. UNSUPPORTED if the machine lacks the instruction set */
    napier_allocator allocator; /* both functions NULL: the C library's */
    int64_t numerics;           /* the version of the bits: 1, or 0 for the newest, NAPIER_NUMERICS_VERSION */
} napier_context_options;

/* All defaults, with struct_size set. */
#define NAPIER_CONTEXT_OPTIONS_INIT \
    { sizeof(napier_context_options), 0, NAPIER_ISA_AUTO, {NULL, NULL, NULL}, 0 }

/* Creates a context. `options` NULL means all defaults. On failure *out is NULL.
 * Errors: INVALID_ARGUMENT (out NULL, struct_size, threads < 0 or > 1024, an unknown ISA, only one of the allocator's two
 * functions), UNSUPPORTED (this machine lacks the ISA, or this library that version of the numerics), OUT_OF_MEMORY. */
NAPIER_API napier_status napier_context_create(napier_context **out, const napier_context_options *options);
/* Frees a context. NULL is allowed. */
NAPIER_API void napier_context_destroy(napier_context *context);

/* The text of this context's last error. It names the argument and its value ("probs: row_stride 3 is less than cols 8").
 * "" if the last call succeeded. The text is valid until the next call with this context. */
NAPIER_API const char *napier_last_error(const napier_context *context);

/* Asked by the library whether a long call should stop: 0 to go on, any other value to stop. */
typedef int napier_interrupt(void *user);

/* Sets the interrupt of a context; NULL for none, which is the default. While a call works for long, the library asks the
 * interrupt from the thread that made the call, between pieces of the work and at most ten times a second. If it answers
 * other than 0, the call returns NAPIER_CANCELLED within a fraction of a second; its outputs then have unspecified values, and
 * the next call with the context works as any other. A call that is short may end without having asked. An interrupt must return
 * (no longjmp, no exception of C++), and must not use the context, except by napier_context_progress; other contexts it may
 * use. Not asked: calls of umap.h, which ask their napier_progress, but for transform, inverse_transform and quality_of once
 * they have the neighbours; loading of models and tokenizers; states; calls for a GPU; and within one row of sparsemax,
 * logcumsumexp and kl_full. Other calls that take a napier_progress ask both. */
NAPIER_API void napier_context_set_interrupt(napier_context *context, napier_interrupt *interrupt, void *user);

/* For the interrupt of a context, to show how far the call that asks has come. A call works in loops, one after another. Returns
 * the number of the present loop, from 1, and how many of its items are done, which grows to all of them. A call does not
 * count its later loops in advance, so this is not the share of the whole call. Outside a call, and before its first loop,
 * returns 0, with 0 of 0 items. done and items may be NULL. */
NAPIER_API int64_t napier_context_progress(const napier_context *context, int64_t *done, int64_t *items);

/* For libraries that build on this one, as napier_mpi does: makes `text` the text of the context's last error, cut to 255
 * bytes, and returns `status`. */
NAPIER_API napier_status napier_set_error(napier_context *context, napier_status status, const char *text);

/* The instruction set and the number of threads that this context uses. Never NAPIER_ISA_AUTO, never 0 threads. */
NAPIER_API napier_isa napier_context_isa(const napier_context *context);
/* 1 in a child of fork whose parent had made a context. */
NAPIER_API int napier_context_threads(const napier_context *context);

/* A callback for long work. The library calls it from the caller's thread with the name of the stage ("neighbours") and
 * the part of it that is done, 0 to 1. Return 0 to go on. Any other value stops the work, and the call returns
 * NAPIER_CANCELLED. */
typedef int napier_progress(const char *stage, double done, void *user);

/* NAPIER_VERSION_STRING and NAPIER_NUMERICS_VERSION of the linked library. The header's may differ. */
NAPIER_API const char *napier_version(void);
NAPIER_API int napier_numerics_version(void);

#ifdef __cplusplus
}
#endif
#endif
