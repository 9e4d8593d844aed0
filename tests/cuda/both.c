/* tests/cuda/both.c - see both.h. */
#include "both.h"

#include <stdio.h>

napier_context *cpu;

int both_run(const char *group, const named_test *tests, size_t count) {
    napier_cuda_context *const device = through_context();
    cpu = context_of(NAPIER_ISA_AUTO, 1);
    after_each_test = arrays_free;
    const int failed = run_named_tests(group, tests, count);
    napier_context_destroy(cpu);
    napier_cuda_context_destroy(device);
    return failed;
}

/* ---- Arrays ------------------------------------------------------------------------------------------------------ */

enum { MOST = 64, POISON = 0xa5 };

typedef struct shared_array {
    unsigned char *memory, *before, *expected;
    size_t bytes;
    int64_t mark; /* of the scratch memory before it */
} shared_array;

static shared_array arrays[MOST];
static int count;

static void add(void *memory, size_t bytes, int64_t mark) {
    assert_true(count < MOST);
    arrays[count++] = (shared_array){.memory = memory, .bytes = bytes, .mark = mark};
    through_know(memory, bytes);
}

void *array_new(size_t bytes) {
    const int64_t mark = scratch_mark();
    void *const memory = scratch((int64_t)bytes + 1, 1);
    memset(memory, POISON, bytes);
    add(memory, bytes, mark);
    return memory;
}

void *array_of(const void *from, size_t bytes) {
    void *const memory = array_new(bytes);
    memcpy(memory, from, bytes);
    return memory;
}

grid grid_new(layout l, int64_t rows, int64_t cols, napier_dtype dtype) {
    const int64_t mark = scratch_mark();
    const grid g = grid_make(l, rows, cols, dtype);
    add(g.memory, g.bytes, mark);
    return g;
}

static void snapshots_free(void) {
    for (int i = 0; i < count; i++) {
        free(arrays[i].before), free(arrays[i].expected);
        arrays[i].before = arrays[i].expected = NULL;
    }
}

int arrays_count(void) { return count; }

void arrays_free_from(int first) {
    snapshots_free();
    if (first < count) {
        scratch_release(arrays[first].mark);
        count = first;
    }
    through_forget(first);
}
void arrays_free(void) { arrays_free_from(0); }

napier_vector vector_new(int64_t size, napier_dtype dtype, int64_t stride) {
    const size_t elements = size > 0 ? (size_t)((size - 1) * stride + 1) : 0;
    return (napier_vector){array_new(elements * napier_dtype_size(dtype)), size, stride, dtype};
}

napier_const_vector vector_of(const float *values, int64_t size, napier_dtype dtype, int64_t stride) {
    const napier_vector v = vector_new(size, dtype, stride);
    for (int64_t i = 0; i < size; i++) {
        element_set(v.data, dtype, i * stride, (double)values[i]);
    }
    return vector_read_only(v);
}

napier_indices indices_of(const int64_t *values, int64_t size, napier_index_type type) {
    void *const memory = array_new((size_t)size * (type == NAPIER_I64 ? 8 : 4));
    for (int64_t i = 0; i < size; i++) {
        if (type == NAPIER_I64) {
            ((int64_t *)memory)[i] = values[i];
        } else {
            ((int32_t *)memory)[i] = (int32_t)values[i];
        }
    }
    return (napier_indices){memory, size, type};
}

/* ---- The comparison ---------------------------------------------------------------------------------------------- */

static char name[200];

void both_case(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(name, sizeof name, format, arguments);
    va_end(arguments);
}

void fine(napier_status status) {
    if (status) {
        fail_msg("%s: status %d: %s", name, (int)status, napier_last_error(cpu));
    }
}

static unsigned char *copy_of(const shared_array *a) {
    return memcpy(room_for((int64_t)a->bytes + 1, 1), a->memory, a->bytes);
}

void both_begin(void) {
    for (int i = 0; i < count; i++) {
        arrays[i].before = copy_of(&arrays[i]);
    }
}

void both_turn(napier_status status) {
    fine(status);
    for (int i = 0; i < count; i++) {
        assert_non_null(arrays[i].before); /* no array is made in between */
        arrays[i].expected = copy_of(&arrays[i]);
        memcpy(arrays[i].memory, arrays[i].before, arrays[i].bytes);
    }
}

void both_end(napier_status status) {
    fine(status);
    for (int i = 0; i < count; i++) {
        const shared_array *const a = &arrays[i];
        for (size_t b = 0; b < a->bytes; b++) {
            if (a->memory[b] != a->expected[b]) {
                const size_t word = b / 4 * 4 + 4 <= a->bytes ? b / 4 : 0;
                fail_msg("%s: array %d of %d: byte %zu of %zu is %02x, not %02x (as f32: %.9g, not %.9g)", name, i,
                         count, b, a->bytes, a->memory[b], a->expected[b],
                         element_get(a->memory, NAPIER_F32, (int64_t)word),
                         element_get(a->expected, NAPIER_F32, (int64_t)word));
            }
        }
    }
    snapshots_free();
}

/* ---- The device alone -------------------------------------------------------------------------------------------- */

static void refused_as(napier_status wanted, napier_status status, const char *text) {
    if (status != wanted || strstr(napier_last_error(cpu), text) == NULL) {
        fail_msg("%s: status %d: '%s', not %d: '%s'", name, (int)status, napier_last_error(cpu), (int)wanted, text);
    }
}
void bad(napier_status status, const char *text) { refused_as(NAPIER_INVALID_ARGUMENT, status, text); }
void unsupported(napier_status status, const char *text) { refused_as(NAPIER_UNSUPPORTED, status, text); }

void all_nan(const void *data, napier_dtype dtype, int64_t size) {
    for (int64_t i = 0; i < size; i++) {
        if (element_bits(data, dtype, i) != dtype_canonical_nan(dtype)) {
            fail_msg("%s: element %lld of %lld is %g, not NaN", name, (long long)i, (long long)size,
                     element_get(data, dtype, i));
        }
    }
}
