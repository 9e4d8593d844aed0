/* tests/cuda/both.h - one comparison for all operations: a call on the CPU and its namesake on the device, from the same
 * memory, leave the same bytes in every array, inputs and the gaps between elements included. */
#ifndef NAPIER_TESTS_CUDA_BOTH_H
#define NAPIER_TESTS_CUDA_BOTH_H

#include "support/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/formats.h"
#include "through/through.h"

extern napier_context *cpu;

/* RUN_TESTS with these contexts; arrays end with their test. Ends the program with 77 if there is no device. */
int both_run(const char *group, const named_test *tests, size_t count);
#define BOTH_TESTS(group_, ...) \
    both_run(group_, (const named_test[]){__VA_ARGS__}, sizeof((const named_test[]){__VA_ARGS__}) / sizeof(named_test))

/* ---- Arrays that take part in the comparison, poisoned or copied; freed by arrays_free or at the test's end. --------- */

void *array_new(size_t bytes);
void *array_of(const void *from, size_t bytes);
grid grid_new(layout l, int64_t rows, int64_t cols, napier_dtype dtype); /* as grid_make; not to be freed by itself */
void arrays_free(void);
/* How many there are; frees those made since there were so many. */
int arrays_count(void);
void arrays_free_from(int first);

/* `size` elements `stride` apart, of these values rounded to the dtype, or poisoned. */
napier_const_vector vector_of(const float *values, int64_t size, napier_dtype dtype, int64_t stride);
napier_vector vector_new(int64_t size, napier_dtype dtype, int64_t stride);
napier_indices indices_of(const int64_t *values, int64_t size, napier_index_type type);

static inline napier_const_vector vector_read_only(napier_vector v) {
    return (napier_const_vector){v.data, v.size, v.stride, v.dtype};
}
/* The vector's elements as rows, `row_stride` elements apart. */
static inline napier_const_matrix as_rows(napier_const_vector v, int64_t rows, int64_t cols, int64_t row_stride) {
    return (napier_const_matrix){v.data, rows, cols, row_stride, v.stride, v.dtype};
}
static inline napier_matrix as_rows_out(napier_vector v, int64_t rows, int64_t cols, int64_t row_stride) {
    return (napier_matrix){v.data, rows, cols, row_stride, v.stride, v.dtype};
}

/* ---- The comparison -------------------------------------------------------------------------------------------------- */

/* Names the case for the messages of failures. */
__attribute__((format(printf, 1, 2))) void both_case(const char *format, ...);

/* The steps: keeps what is in the arrays; keeps the CPU's results and puts back what was there; compares. A call that
 * fails fails the test. */
void both_begin(void);
void both_turn(napier_status status);
void both_end(napier_status status);

/* The CPU's call against another that is made on the device. The arrays exist before: each argument is evaluated twice. */
#define BOTH(on_cpu, on_device) (both_begin(), both_turn(on_cpu), both_end(on_device))
/* The CPU's call against its namesake. */
#define SAME(call, ...) BOTH(napier_##call(cpu, __VA_ARGS__), through_##call(cpu, __VA_ARGS__))

/* ---- Calls on the device alone --------------------------------------------------------------------------------------- */

/* A call that succeeds; one that is refused as an invalid argument, or otherwise, by a message that contains the text. */
void fine(napier_status status);
void bad(napier_status status, const char *text);
void unsupported(napier_status status, const char *text);
/* All these elements, f32 or 16 bits wide, are the canonical NaN. */
void all_nan(const void *data, napier_dtype dtype, int64_t count);

#endif
