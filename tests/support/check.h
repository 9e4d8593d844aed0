/* support/check.h - for all unit tests: contexts, views in every layout with poisoned gaps, one function for all
 * forward operations, and failures that are collected and printed in full before a test fails. */
#ifndef NAPIER_TESTS_CHECK_H
#define NAPIER_TESTS_CHECK_H

/* cmocka.h needs these four before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <napier/softmax.h>
#include <stdbool.h>

#include "core/base/memory.h"
#include "support/rows.h"

/* With NAPIER_SANITIZED the kernels are about ten times slower, so long tests then take only samples. */

/* ---- Failures: a test calls problem() as often as it likes and ends with no_problems(). */
__attribute__((format(printf, 1, 2))) void problem(const char *format, ...);
void no_problems(void);
/* True if the condition holds; otherwise reports a problem with the text. */
#define expect(condition, ...) ((condition) ? true : (problem(__VA_ARGS__), false))

/* ---- Tests. Each has its own context, and its grids and its scratch memory are freed when it ends; so are problems
 * reported. */
typedef struct named_test {
    const char *name;
    void (*alone)(void); /* either of the two */
    void (*run)(napier_context *context);
    int threads;   /* of its context */
    bool each_isa; /* runs once for every instruction set of the machine; otherwise for the best */
} named_test;

#define TEST(function_) \
    { .name = #function_, .alone = function_ }
#define TEST_1(function_) \
    { .name = #function_, .run = function_, .threads = 1 }
#define TEST_2(function_) \
    { .name = #function_, .run = function_, .threads = 2 }
#define TEST_EACH_ISA(threads_, function_) \
    { .name = #function_, .run = function_, .threads = threads_, .each_isa = true }

/* What else each test ends with; may be set. */
extern void (*after_each_test)(void);

/* Returns the number of tests that failed. */
int run_named_tests(const char *group, const named_test *tests, size_t count);
#define RUN_TESTS(group_, ...)                                 \
    run_named_tests(group_, (const named_test[]){__VA_ARGS__}, \
                    sizeof((const named_test[]){__VA_ARGS__}) / sizeof(named_test))

/* ---- Contexts. Each fails the test if it cannot be made. The caller destroys context_of's; test_context's is destroyed
 * when the test ends. */
napier_context *context_of(napier_isa isa, int threads);
napier_context *context_for_test(napier_isa isa, int threads);
/* Contexts that must give the same bits: each instruction set on one thread, SCALAR first, then the best one on 2 and on 7
 * threads; NULL when `run` is past them. Destroyed when the test ends. */
napier_context *context_of_run(int run);
/* Does the same for programs with an emulated engine, which only contexts of NAPIER_ISA_AUTO use: one of these on 7
 * threads, then the best instruction set on one thread. The same tests without the emulated engine run the other contexts. */
napier_context *context_of_engine_run(int run);
#if defined TEST_ENGINE || defined TEST_PAIRS
#define context_of_run context_of_engine_run
#endif
/* The instruction sets of this machine, SCALAR first; returns their number. */
enum { ISA_LIMIT = 5 };
int available_isas(napier_isa isas[ISA_LIMIT]);

/* Checks for status OK; otherwise reports a problem with the context's text. */
bool succeeded(const napier_context *context, napier_status status, const char *what);
/* Checks for status `wanted`, and that the context's text contains each of the words (NULL ends the list). */
bool refused(const napier_context *context, napier_status status, napier_status wanted, const char *word, ...);

/* A call that must succeed: works(napier_softmax, context, ...). */
#define works(function_, context_, ...) \
    succeeded(context_, function_(context_, __VA_ARGS__), #function_ "(" #__VA_ARGS__ ")")
/* An argument that must be refused, by a text with these words. */
#define invalid(context_, status_, ...) \
    refused(context_, status_, NAPIER_INVALID_ARGUMENT, __VA_ARGS__, (const char *)NULL)

/* ---- Memory that aborts the test rather than returning NULL. The caller frees room_for's; scratch is freed when the
 * test ends. */
void *room_for(int64_t count, size_t size);
void *scratch(int64_t count, size_t size);
/* Frees the scratch memory, and the grids, since the mark: loops would use much. */
int64_t scratch_mark(void);
void scratch_release(int64_t mark);

/* ---- Grids: a matrix in a layout, in memory of its own, whose bytes outside the elements are poisoned. RUN_TESTS frees
 * those that a test leaves; a loop frees its own. */
typedef enum layout {
    LAYOUT_CONTIGUOUS,
    LAYOUT_PADDED,            /* 3 elements between rows */
    LAYOUT_TRANSPOSED,        /* columns contiguous: a reduction along the first axis */
    LAYOUT_TRANSPOSED_PADDED, /* the same with 5 elements between columns */
    LAYOUT_EVERY_OTHER,       /* column stride 2 */
    LAYOUT_ROWS_REVERSED,     /* negative row stride */
    LAYOUT_COLUMNS_REVERSED,  /* negative column stride */
    LAYOUT_BOTH_REVERSED,
    LAYOUT_OFFSET, /* contiguous, starting one element past a cache line's boundary */
    LAYOUTS
} layout;

const char *layout_name(layout l);

typedef struct grid {
    unsigned char *memory;
    size_t bytes;
    napier_matrix view;
} grid;

grid grid_make(layout l, int64_t rows, int64_t cols, napier_dtype dtype);
static inline grid grid_plain(int64_t rows, int64_t cols, napier_dtype dtype) {
    return grid_make(LAYOUT_CONTIGUOUS, rows, cols, dtype);
}
void grid_free(grid *g);
double grid_get(const grid *g, int64_t row, int64_t col);
uint64_t grid_bits(const grid *g, int64_t row, int64_t col);
void grid_set(grid *g, int64_t row, int64_t col, double value);
void grid_set_row(grid *g, int64_t row, const double *values);
void grid_get_row(const grid *g, int64_t row, double *values);
/* Fills row i with the given kind and seed + i. If the kind is ROW_KINDS, row i has kind (i + seed) mod ROW_KINDS. */
void grid_fill(grid *g, row_kind kind, uint64_t seed);
void grid_copy(grid *to, const grid *from);
/* The number of bytes outside the elements that are no longer poison. */
int64_t grid_damage(const grid *g);
/* The number of elements whose bits differ; reports the first one as a problem with `what`. */
int64_t grid_differences(const grid *got, const grid *expected, const char *what);
static inline napier_const_matrix grid_input(const grid *g) { return napier_read_only(g->view); }

/* Views that say "absent". */
#define NO_VECTOR ((napier_vector){NULL, 0, 0, NAPIER_F32})
#define NO_CONST_VECTOR ((napier_const_vector){NULL, 0, 0, NAPIER_F32})
#define NO_MATRIX ((napier_matrix){NULL, 0, 0, 0, 0, NAPIER_F32})

/* ---- The forward operations behind one call. LOGSUMEXP writes column 0 of `out` (rows x 1), LOGSUMEXP_ALL [0, 0]. */
typedef enum operation { OP_SOFTMAX, OP_LOG_SOFTMAX, OP_LOGSUMEXP, OP_LOGSUMEXP_ALL, OPERATIONS } operation;

const char *operation_name(operation op);
napier_status operation_run(napier_context *context, operation op, napier_const_matrix logits, napier_matrix out,
                            const napier_softmax_options *options);
/* The shape of the result. */
int64_t operation_rows(operation op, int64_t rows);
int64_t operation_cols(operation op, int64_t cols);

napier_softmax_options options_of(double temperature, napier_algorithm algorithm, napier_masked_rows masked_rows);

#endif
