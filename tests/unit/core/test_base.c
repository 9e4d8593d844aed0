/* The base: contexts and their options, memory, status texts, views and their messages, overlap of any two views
 * against a map of bytes, work over threads, and the floating-point state. */
#include "support/check.h"

#include <fenv.h>
#include <stdlib.h>
#include <string.h>

#include <napier/opencl.h>

#include "core/base/awake.h"
#include "core/base/fenv.h"
#include "core/base/parallel.h"
#include "core/base/view.h"

/* ---- Names and versions ------------------------------------------------------------------------------------------ */

static void test_names(void) {
    assert_string_equal(napier_status_string(NAPIER_OK), "ok");
    for (int s = 0; s <= NAPIER_DEVICE_ERROR; s++) {
        assert_non_null(napier_status_string((napier_status)s));
        assert_string_not_equal(napier_status_string((napier_status)s), napier_status_string((napier_status)99));
        for (int t = 0; t < s; t++) {
            assert_string_not_equal(napier_status_string((napier_status)s), napier_status_string((napier_status)t));
        }
    }
    assert_string_equal(napier_dtype_name(NAPIER_BF16), "bf16");
    assert_string_equal(napier_dtype_name((napier_dtype)0), "unknown");
    assert_int_equal(napier_dtype_size(NAPIER_F32), 4);
    assert_int_equal(napier_dtype_size(NAPIER_F16), 2);
    assert_int_equal(napier_dtype_size(NAPIER_BF16), 2);
    assert_int_equal(napier_dtype_size(NAPIER_F64), 8);
    assert_int_equal(napier_dtype_size((napier_dtype)5), 0);
    assert_string_equal(napier_isa_name(NAPIER_ISA_AVX512), "avx512");
    assert_string_equal(napier_isa_name((napier_isa)77), "unknown");
    assert_int_equal(napier_isa_available(NAPIER_ISA_AUTO), 1);
    assert_int_equal(napier_isa_available(NAPIER_ISA_SCALAR), 1);
    assert_int_equal(napier_isa_available((napier_isa)77), 0);
    assert_string_equal(napier_version(), NAPIER_VERSION_STRING);
    assert_int_equal(napier_numerics_version(), NAPIER_NUMERICS_VERSION);
}

/* Where there is no GPU, or none in this build, a text says so. */
static void test_no_device(void) {
    char text[300] = "";
    napier_cuda_context *context = NULL;
    if (napier_cuda_device_count() > 0) {
        skip();
    }
    assert_int_equal(napier_cuda_context_create(&context, 0), NAPIER_UNSUPPORTED);
    assert_null(context);
    assert_int_equal(napier_cuda_device_status(0, text, sizeof text), NAPIER_UNSUPPORTED);
    assert_memory_equal(text, "device: ", 8);
    assert_int_equal(napier_opencl_context_create(NULL, NULL, NULL, NULL, NULL, NULL, 0), NAPIER_INVALID_ARGUMENT);
    assert_int_equal(napier_opencl_copy(NULL, text, text, 1), NAPIER_INVALID_ARGUMENT);
    assert_string_equal(napier_opencl_device_name(NULL), "");
    const napier_status status = napier_opencl_context_create(&context, NULL, NULL, NULL, NULL, text, sizeof text);
    if (status == NAPIER_UNSUPPORTED) { /* else this machine has one */
        assert_null(context);
        assert_memory_equal(text, "device: ", 8);
    }
    napier_cuda_context_destroy(context);
}

/* ---- Contexts ---------------------------------------------------------------------------------------------------- */

typedef struct counter {
    int allocated, freed;
    size_t alignment;
} counter;

static void *count_allocate(size_t size, size_t alignment, void *user) {
    counter *c = user;
    c->allocated++;
    c->alignment = alignment;
    return aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

static void count_free(void *memory, void *user) {
    counter *c = user;
    assert_non_null(memory);
    c->freed++;
    free(memory);
}

static void *refuse(size_t size, size_t alignment, void *user) {
    (void)size;
    (void)alignment;
    (void)user;
    return NULL;
}

static napier_status create_with(napier_context_options options) {
    napier_context *context = (napier_context *)&options; /* anything but NULL */
    const napier_status status = napier_context_create(&context, &options);
    if (status == NAPIER_OK) {
        napier_context_destroy(context);
    } else {
        assert_null(context);
    }
    return status;
}

static void test_context_options(void) {
    assert_int_equal(napier_context_create(NULL, NULL), NAPIER_INVALID_ARGUMENT);
    napier_context_options o = NAPIER_CONTEXT_OPTIONS_INIT;
    assert_int_equal(create_with(o), NAPIER_OK);
    o.struct_size--;
    assert_int_equal(create_with(o), NAPIER_INVALID_ARGUMENT);
    o = (napier_context_options)NAPIER_CONTEXT_OPTIONS_INIT;
    const int threads[] = {-1, 1025, 1, 1024, 0};
    for (int i = 0; i < 5; i++) {
        o.threads = threads[i];
        assert_int_equal(create_with(o), i < 2 ? NAPIER_INVALID_ARGUMENT : NAPIER_OK);
    }
    for (int isa = -1; isa <= NAPIER_ISA_AVX512 + 1; isa++) {
        o.highest_isa = (napier_isa)isa;
        const bool known = isa >= NAPIER_ISA_AUTO && isa <= NAPIER_ISA_AVX512;
        const bool there = known && napier_isa_available((napier_isa)isa);
        assert_int_equal(create_with(o), there ? NAPIER_OK : known ? NAPIER_UNSUPPORTED : NAPIER_INVALID_ARGUMENT);
    }
    o = (napier_context_options)NAPIER_CONTEXT_OPTIONS_INIT;
    for (int numerics = -1; numerics <= NAPIER_NUMERICS_VERSION + 1; numerics++) {
        o.numerics = numerics;
        const bool known = numerics >= 0 && numerics <= NAPIER_NUMERICS_VERSION;
        assert_int_equal(create_with(o), known ? NAPIER_OK : NAPIER_UNSUPPORTED);
    }
    o = (napier_context_options)NAPIER_CONTEXT_OPTIONS_INIT;
    o.allocator.allocate = refuse;
    assert_int_equal(create_with(o), NAPIER_INVALID_ARGUMENT);
    o.allocator.deallocate = count_free;
    assert_int_equal(create_with(o), NAPIER_OUT_OF_MEMORY);
    o.allocator.allocate = NULL;
    assert_int_equal(create_with(o), NAPIER_INVALID_ARGUMENT);
}

static void test_context(void) {
    counter c = {0};
    napier_context_options o = NAPIER_CONTEXT_OPTIONS_INIT;
    o.threads = 3;
    o.allocator = (napier_allocator){count_allocate, count_free, &c};
    napier_context *context;
    assert_int_equal(napier_context_create(&context, &o), NAPIER_OK);
    assert_int_equal(c.allocated, 1);
    assert_int_equal(c.alignment, NAPIER_ALIGNMENT);
    assert_string_equal(napier_last_error(context), "");
    assert_int_not_equal(napier_context_isa(context), NAPIER_ISA_AUTO);
    assert_true(napier_isa_available(napier_context_isa(context)));
    assert_int_equal(napier_context_threads(context), 3);
    assert_int_equal(napier_fail(context, NAPIER_CORRUPT_DATA, "size %d", 7), NAPIER_CORRUPT_DATA);
    assert_string_equal(napier_last_error(context), "size 7");
    char text[2 * NAPIER_ERROR_TEXT];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    (void)napier_fail(context, NAPIER_CORRUPT_DATA, "%s", text);
    assert_int_equal(strlen(napier_last_error(context)), NAPIER_ERROR_TEXT - 1);
    assert_int_equal(napier_begin(context), NAPIER_OK);
    assert_string_equal(napier_last_error(context), "");
    assert_int_equal(napier_begin(NULL), NAPIER_INVALID_ARGUMENT);
    assert_int_equal(napier_fail(NULL, NAPIER_IO_ERROR, "x"), NAPIER_IO_ERROR);
    napier_context_destroy(context);
    assert_int_equal(c.freed, 1);
    napier_context_destroy(NULL);

    assert_int_equal(napier_context_create(&context, NULL), NAPIER_OK);
    assert_in_range(napier_context_threads(context), 1, 1024);
    napier_context_destroy(context);
}

static void test_allocation(void) {
    napier_context *context = context_for_test(NAPIER_ISA_SCALAR, 1);
    const napier_allocator *a = &context->allocator;
    assert_null(napier_alloc(a, 0, 8));
    assert_null(napier_alloc(a, SIZE_MAX / 8 + 1, 8));
    assert_null(napier_alloc(a, SIZE_MAX, 1)); /* rounding it up would overflow */
    for (size_t size = 1; size < 300; size += 7) {
        unsigned char *memory = napier_alloc(a, 1, size);
        assert_non_null(memory);
        assert_int_equal((uintptr_t)memory % NAPIER_ALIGNMENT, 0);
        memset(memory, 1, size);
        napier_free(a, memory);
    }
    napier_free(a, NULL);
}

enum { KB = 1024, MB = 1024 * 1024 };

/* Takes `count` blocks and frees them; returns the first. */
static void *take_and_free(napier_context *context, int count, int64_t bytes) {
    napier_memory taken = {.context = context};
    void *const first = napier_take(&taken, bytes, 1);
    for (int i = 1; i < count; i++) {
        (void)napier_take(&taken, bytes, 1);
    }
    assert_false(taken.missing);
    napier_memory_free(&taken);
    return first;
}

static void test_spares(void) {
    napier_context *context = context_for_test(NAPIER_ISA_SCALAR, 1);
    napier_spares *const spares = &context->spares;
    if (NAPIER_SANITIZED) {
        skip();
    }
    napier_spares_free(spares, &context->allocator);
    (void)take_and_free(context, 3, 31 * KB);
    assert_int_equal(spares->count, 0);
    void *const first = take_and_free(context, 1, 100 * KB);
    assert_int_equal(spares->count, 1);
    assert_ptr_equal(take_and_free(context, 1, 50 * KB), first);
    assert_ptr_not_equal(take_and_free(context, 1, 49 * KB), first); /* less than half of it */
    assert_int_equal(spares->count, 2);
    (void)take_and_free(context, NAPIER_SPARES, 200 * KB);
    assert_int_equal(spares->count, NAPIER_SPARES);
    assert_int_equal(spares->bytes, NAPIER_SPARES * 200 * KB);
    (void)take_and_free(context, 4, 20 * MB);
    assert_int_equal(spares->count, 3);
    assert_in_range(spares->bytes, 60 * MB, 64 * MB);
    (void)take_and_free(context, 1, 65 * MB);
    assert_int_equal(spares->count, 3);

    napier_memory taken = {.context = context};
    void *const block = napier_take(&taken, 20 * MB, 1);
    assert_ptr_equal(napier_let_go(&taken, block), block);
    assert_null(napier_take(&taken, INT64_MAX, 1)); /* frees the spares, and tries again */
    assert_true(taken.missing);
    napier_memory_free(&taken);
    assert_int_equal(spares->count, 0);
    assert_int_equal(spares->bytes, 0);
    napier_free(&context->allocator, block);
}

/* An allocator of the caller's gets back what a call frees, at once. */
static void test_no_spares(void) {
    counter c = {0};
    napier_context_options o = NAPIER_CONTEXT_OPTIONS_INIT;
    o.allocator = (napier_allocator){count_allocate, count_free, &c};
    napier_context *context;
    assert_int_equal(napier_context_create(&context, &o), NAPIER_OK);
    (void)take_and_free(context, 5, MB);
    assert_int_equal(c.allocated, 6);
    assert_int_equal(c.freed, 5);
    napier_context_destroy(context);
    assert_int_equal(c.freed, 6);
}

/* ---- One view ---------------------------------------------------------------------------------------------------- */

static float memory[64];

static napier_matrix matrix(int64_t rows, int64_t cols, int64_t row_stride, int64_t col_stride) {
    return (napier_matrix){memory + 32, rows, cols, row_stride, col_stride, NAPIER_F32};
}

static void test_views_that_cannot_be(napier_context *c) {
    napier_const_matrix m = napier_read_only(matrix(2, 3, 3, 1));
    assert_int_equal(napier_check_matrix(c, "logits", m), NAPIER_OK);
    m.dtype = (napier_dtype)9;
    invalid(c, napier_check_matrix(c, "logits", m), "logits", "dtype", "9");
    m = napier_read_only(matrix(-2, 3, 3, 1));
    invalid(c, napier_check_matrix(c, "logits", m), "logits", "rows -2");
    m = napier_read_only(matrix(2, -3, 3, 1));
    invalid(c, napier_check_matrix(c, "logits", m), "logits", "cols -3");
    m = (napier_const_matrix){NULL, 2, 3, 3, 1, NAPIER_F32};
    invalid(c, napier_check_matrix(c, "logits", m), "logits", "NULL", "6 elements");
    m.rows = 0; /* without elements nothing else matters */
    m.row_stride = INT64_MIN;
    assert_int_equal(napier_check_matrix(c, "logits", m), NAPIER_OK);
    m = napier_read_only(matrix(2, 3, 3, 1));
    m.data = (const char *)m.data + 2;
    invalid(c, napier_check_matrix(c, "logits", m), "logits", "not aligned", "f32");

    const int64_t big = INT64_MAX;
    m = napier_read_only(matrix(big, 3, 0, 0)); /* a broadcast that nobody could count */
    invalid(c, napier_check_matrix(c, "logits", m), "logits", "rows 9223372036854775807");
    const int64_t strides[][2] = {{big, 1}, {1, big}, {big / 8, big / 8}, {INT64_MIN, 1}, {big / 4, -big / 4 - 1}};
    for (size_t i = 0; i < sizeof strides / sizeof strides[0]; i++) {
        m = napier_read_only(matrix(3, 3, strides[i][0], strides[i][1]));
        invalid(c, napier_check_matrix(c, "logits", m), "logits", "address space", "row_stride");
    }
    m = napier_read_only(matrix(1, 3, INT64_MIN, 1)); /* a stride that is never taken */
    assert_int_equal(napier_check_matrix(c, "logits", m), NAPIER_OK);
    m = napier_read_only(matrix(3, 1, -1, INT64_MAX));
    assert_int_equal(napier_check_matrix(c, "logits", m), NAPIER_OK);

    const napier_const_vector v = {memory, 5, INT64_MAX / 4, NAPIER_F32};
    invalid(c, napier_check_vector(c, "lse", v), "lse", "size 5", "stride");
    const napier_const_vector w = {memory, -5, 1, NAPIER_F32};
    invalid(c, napier_check_vector(c, "lse", w), "lse", "size -5");
}

static void test_views_to_write(napier_context *c) {
    invalid(c, napier_check_matrix_out(c, "probs", matrix(2, 8, 3, 1)), "probs", "row_stride 3 is less than cols 8");
    invalid(c, napier_check_matrix_out(c, "probs", matrix(8, 2, 1, -3)), "probs", "col_stride -3", "rows 8");
    invalid(c, napier_check_matrix_out(c, "probs", matrix(2, 2, 0, 1)), "probs", "row_stride 0");
    invalid(c, napier_check_matrix_out(c, "probs", matrix(2, 2, 1, 0)), "probs", "col_stride 0");
    invalid(c, napier_check_matrix_out(c, "probs", matrix(3, 4, 6, 4)), "probs", "row_stride 6", "col_stride 4");
    assert_int_equal(napier_check_matrix_out(c, "probs", matrix(3, 3, 6, 4)), NAPIER_OK);
    assert_int_equal(napier_check_matrix_out(c, "probs", matrix(1, 1, 0, 0)), NAPIER_OK);
    assert_int_equal(napier_check_matrix_out(c, "probs", matrix(2, 1, 1, 0)), NAPIER_OK);
    const napier_vector v = {memory, 2, 0, NAPIER_F32};
    invalid(c, napier_check_vector_out(c, "lse", v), "lse", "stride 0");
    const napier_vector w = {memory, 1, 0, NAPIER_F32};
    assert_int_equal(napier_check_vector_out(c, "lse", w), NAPIER_OK);

    /* Every small view against counting. */
    for (int64_t rows = 0; rows <= 4; rows++) {
        for (int64_t cols = 0; cols <= 4; cols++) {
            for (int64_t row = -5; row <= 5; row++) {
                for (int64_t col = -5; col <= 5; col++) {
                    int taken[64] = {0};
                    bool twice = false;
                    for (int64_t i = 0; i < rows; i++) {
                        for (int64_t j = 0; j < cols; j++) {
                            twice |= taken[32 + i * row + j * col]++ > 0;
                        }
                    }
                    const napier_status status = napier_check_matrix_out(c, "m", matrix(rows, cols, row, col));
                    expect((status != NAPIER_OK) == twice, "%lld x %lld, strides %lld, %lld: status %d",
                           (long long)rows, (long long)cols, (long long)row, (long long)col, (int)status);
                }
            }
        }
    }
}

/* ---- Two views --------------------------------------------------------------------------------------------------- */

enum { ARENA = 8192 };
static _Alignas(64) unsigned char arena[ARENA];

static int64_t byte_of(napier_const_matrix m, int64_t i, int64_t j) {
    const int64_t size = (int64_t)napier_dtype_size(m.dtype);
    const int64_t at = (const unsigned char *)m.data - arena + (i * m.row_stride + j * m.col_stride) * size;
    assert_in_range(at, 0, ARENA - size);
    return at;
}

static void mark(napier_const_matrix m, unsigned char *map) {
    for (int64_t i = 0; i < m.rows; i++) {
        for (int64_t j = 0; j < m.cols; j++) {
            memset(map + byte_of(m, i, j), 1, napier_dtype_size(m.dtype));
        }
    }
}

/* Has one of the view's bytes been marked? */
static bool meets(napier_const_matrix m, const unsigned char *map) {
    for (int64_t i = 0; i < m.rows; i++) {
        for (int64_t j = 0; j < m.cols; j++) {
            if (memchr(map + byte_of(m, i, j), 1, napier_dtype_size(m.dtype)) != NULL) {
                return true;
            }
        }
    }
    return false;
}

static napier_matrix random_view(rng *r) {
    const napier_dtype dtypes[] = {NAPIER_F16, NAPIER_F32, NAPIER_F64};
    napier_matrix m = {.dtype = dtypes[rng_below(r, 3)]};
    m.rows = 1 + rng_below(r, 7);
    m.cols = 1 + rng_below(r, 7);
    const int64_t reach = 1 + rng_below(r, 24);
    m.row_stride = rng_below(r, 2 * reach + 1) - reach;
    m.col_stride = rng_below(r, 2) ? 1 : rng_below(r, 2 * reach + 1) - reach;
    const int64_t size = (int64_t)napier_dtype_size(m.dtype);
    m.data = arena + ARENA / 2 + size * (rng_below(r, 41) - 20);
    return m;
}

static void test_overlap_against_a_map(napier_context *c) {
    rng r = rng_make(5);
    int apart = 0, met = 0, woven = 0;
    for (int trial = 0; trial < 200000; trial++) {
        napier_matrix out = random_view(&r);
        napier_matrix in = random_view(&r);
        if (rng_below(&r, 4) == 0) { /* often the same strides, or transposed: the usual ways to share an array */
            in.dtype = out.dtype;
            const bool turned = rng_below(&r, 2) == 0;
            in.row_stride = turned ? out.col_stride : out.row_stride;
            in.col_stride = turned ? out.row_stride : out.col_stride;
        }
        unsigned char map[ARENA] = {0};
        mark(napier_read_only(out), map);
        const bool truth = meets(napier_read_only(in), map);
        const bool same = out.data == in.data && out.dtype == in.dtype && out.rows == in.rows && out.cols == in.cols &&
                          (out.rows == 1 || out.row_stride == in.row_stride) &&
                          (out.cols == 1 || out.col_stride == in.col_stride);
        const napier_status status = napier_check_alias(c, "probs", out, "logits", napier_read_only(in));
        const napier_status wanted = truth && !same ? NAPIER_INVALID_ARGUMENT : NAPIER_OK;
        expect(status == wanted,
               "trial %d: %lld x %lld (%lld, %lld) %s at %td and %lld x %lld (%lld, %lld) %s at %td: status %d", trial,
               (long long)out.rows, (long long)out.cols, (long long)out.row_stride, (long long)out.col_stride,
               napier_dtype_name(out.dtype), (unsigned char *)out.data - arena, (long long)in.rows, (long long)in.cols,
               (long long)in.row_stride, (long long)in.col_stride, napier_dtype_name(in.dtype),
               (unsigned char *)in.data - arena, (int)status);
        apart += !truth;
        met += truth;
        woven += !truth && out.rows > 2 && in.rows > 2 && llabs((long long)((char *)out.data - (char *)in.data)) < 8;
    }
    assert_true(apart > 1000 && met > 1000 && woven > 100);
}

static void expect_alias(napier_context *c, napier_matrix out, napier_matrix in, bool overlaps, const char *what) {
    const napier_status status = napier_check_alias(c, "probs", out, "logits", napier_read_only(in));
    expect((status != NAPIER_OK) == overlaps, "%s: status %d (%s)", what, (int)status, napier_last_error(c));
}

/* Large views, as callers make them: decided at once, whatever their size. The addresses are never touched. */
static void test_large_overlaps(napier_context *c) {
    float *const base = (float *)(uintptr_t)0x100000000000;
    const int64_t n = 1 << 20, w = 1000;
    const napier_matrix left = {base, n, w / 2, w, 1, NAPIER_F32};
    const napier_matrix right = {base + w / 2, n, w / 2, w, 1, NAPIER_F32};
    const napier_matrix even = {base, n, w / 2, w, 2, NAPIER_F32}, odd = {base + 1, n, w / 2, w, 2, NAPIER_F32};
    const napier_matrix all = {base, n, w, w, 1, NAPIER_F32};
    const napier_matrix turned = {base, w, n, 1, w, NAPIER_F32};
    const napier_matrix upwards = {base + (n - 1) * w, n, w / 2, -w, 1, NAPIER_F32};
    expect_alias(c, left, right, false, "left and right half");
    expect_alias(c, right, upwards, false, "right half and left half from below");
    expect_alias(c, left, upwards, true, "left half and itself from below");
    expect_alias(c, even, odd, false, "even and odd columns");
    expect_alias(c, even, all, true, "even columns and all");
    expect_alias(c, all, all, false, "in place");
    expect_alias(c, turned, all, true, "in place, transposed");
    const napier_matrix column = {base + 7, 1, n, 0, w, NAPIER_F32};
    const napier_matrix without = {base + 8, n, w - 8, w, 1, NAPIER_F32};
    expect_alias(c, column, without, false, "a column and those right of it");
    expect_alias(c, column, left, true, "a column of it");
    const napier_matrix halves = {(uint16_t *)(void *)base + 1, n, w / 2, 2 * w, 4, NAPIER_F16};
    expect_alias(c, halves, odd, false, "f16 inside the even columns, f32 in the odd ones");
    expect_alias(c, halves, even, true, "f16 inside the even columns");
    /* Row strides 6 and 4 with an odd distance, and 6 and 4 with even: nothing but gcd tells. */
    const napier_matrix six = {base, n, 1, 6, 1, NAPIER_F32};
    const napier_matrix four = {base + 2 * n + 1, n / 2, 1, 4, 1, NAPIER_F32};
    const napier_matrix four_met = {base + 2 * n + 2, n / 2, 1, 4, 1, NAPIER_F32};
    expect_alias(c, six, four, false, "every sixth and every fourth, apart");
    expect_alias(c, six, four_met, true, "every sixth and every fourth");
}

/* ---- Work -------------------------------------------------------------------------------------------------------- */

typedef struct work {
    int *done;
    int64_t items, chunk;
    int workers;
    int wrong; /* written by tasks only where something is wrong */
    const napier_context *inner;
} work;

static void mark_done(void *argument, int worker, int64_t begin, int64_t end) {
    work *w = argument;
    const bool fits = begin >= 0 && begin < end && end <= w->items && begin % w->chunk == 0 &&
                      (end - begin == w->chunk || end == w->items) && worker >= 0 && worker < w->workers;
    const volatile float tiny = 0x1p-126f, one = 1.0f;
    const bool kept = tiny * 0.5f > 0, nearest = one + tiny == one && -one - tiny == -one;
    if (!fits || !kept || !nearest) {
        w->wrong = 1;
    }
    for (int64_t i = begin; i < end; i++) {
        w->done[i]++;
    }
}

static void mark_nested(void *argument, int worker, int64_t begin, int64_t end) {
    const work *w = argument;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        work inner = {w->done + 10 * i, 10, 3, napier_workers(w->inner, 10, 3), 0, NULL};
        napier_parallel(w->inner, 10, 3, mark_done, &inner);
    }
}

static void test_parallel(void) {
    const int64_t items[] = {0, 1, 2, 7, 100, 1001}, chunks[] = {1, 3, 64, 5000};
    for (int threads = 1; threads <= 7; threads += 3) {
        napier_context *c = context_for_test(NAPIER_ISA_SCALAR, threads);
        for (int i = 0; i < 6; i++) {
            for (int j = 0; j < 4; j++) {
                int done[1001] = {0};
                work w = {done, items[i], chunks[j], napier_workers(c, items[i], chunks[j]), 0, NULL};
                assert_in_range(w.workers, 1, threads);
                napier_parallel(c, items[i], chunks[j], mark_done, &w);
                assert_int_equal(w.wrong, 0);
                for (int64_t k = 0; k < 1001; k++) {
                    assert_int_equal(done[k], k < items[i]);
                }
            }
        }
        int done[100] = {0};
        work w = {done, 10, 1, threads, 0, c};
        napier_parallel(c, 10, 1, mark_nested, &w);
        for (int k = 0; k < 100; k++) {
            assert_int_equal(done[k], 1);
        }
    }
}

/* A loop of 10 us that is called at `at`, and that the last thread began `late` microseconds later. Returns its end. */
static uint64_t loop_at(napier_awake *a, uint64_t at, uint64_t late) {
    napier_awake_note(a, at, at + late * 1000, at + 10 * 1000);
    return at + 10 * 1000;
}

/* Small calls, one right after the other, which are divided or not. Returns how many were. */
static int small_calls(napier_awake *a, uint64_t *now, int calls, uint64_t late) {
    int divided = 0;
    for (int i = 0; i < calls; i++) {
        if (napier_awake_ask(a, *now)) {
            divided++;
            *now = loop_at(a, *now, late);
        } else {
            *now += 20 * 1000;
        }
    }
    return divided;
}

static void test_awake_threads(void) {
    enum { SECOND = 1000 * 1000 * 1000 };
    napier_awake a = {.ended = 0};
    uint64_t now = 1;
    for (int i = 0; i < 10; i++) { /* single calls are left to one thread */
        assert_false(napier_awake_ask(&a, now += SECOND));
    }
    now += SECOND;
    assert_int_equal(small_calls(&a, &now, 1000, 1), 999); /* the second call of a loop wakes the threads */
    assert_false(napier_awake_ask(&a, now += SECOND));
    now = loop_at(&a, now += SECOND, 40); /* a large call wakes them too, whatever that takes */
    assert_int_equal(small_calls(&a, &now, 1000, 1), 1000);
    now = loop_at(&a, now, 40); /* one slow start */
    assert_int_equal(small_calls(&a, &now, 1000, 1), 1000);
    now += SECOND;
    assert_in_range(small_calls(&a, &now, 2000, 40), 3, 5);       /* threads that sleep at once: one thread, ... */
    assert_in_range(small_calls(&a, &now, 10000, 1), 7000, 9999); /* ... until a trial finds them awake */
}

static void test_floating_point_state(void) {
    napier_context *c = context_for_test(NAPIER_ISA_SCALAR, 3);
    int done[100] = {0};
    work w = {done, 100, 1, 3, 0, NULL};
    assert_int_equal(fesetround(FE_UPWARD), 0);
    (void)feraiseexcept(FE_INVALID);
#if defined(__SSE2__)
    _mm_setcsr(_mm_getcsr() | 0x8040u); /* flush to zero, denormals are zero */
    const unsigned before = _mm_getcsr();
#endif
    napier_parallel(c, 100, 1, mark_done, &w);
    work alone = {done, 100, 100, 1, 0, NULL};
    napier_parallel(c, 100, 100, mark_done, &alone);
#if defined(__SSE2__)
    const unsigned after = _mm_getcsr();
    _mm_setcsr(0x1f80u);
    assert_int_equal(before, after);
#endif
    assert_int_equal(w.wrong + alone.wrong, 0);
#if !defined(__SSE2__)
    assert_int_equal(fegetround(), FE_UPWARD);
#endif
    assert_int_equal(fesetround(FE_TONEAREST), 0);
}

int main(void) {
    return RUN_TESTS("base", TEST(test_names), TEST(test_no_device), TEST(test_context_options), TEST(test_context),
                     TEST(test_allocation), TEST(test_spares), TEST(test_no_spares), TEST_1(test_views_that_cannot_be),
                     TEST_1(test_views_to_write), TEST_1(test_overlap_against_a_map), TEST_1(test_large_overlaps),
                     TEST(test_parallel), TEST(test_awake_threads), TEST(test_floating_point_state));
}
