/* An allocator that fails at the k-th allocation, for every k: each call gives OUT_OF_MEMORY, loses nothing, leaves
 * its context usable, and succeeds with the same bits once memory is there. The same allocator counts what is not
 * given back, and checks that every block is aligned and freed once. */
#include "support/check.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "support/formats.h"

/* ---- The allocator ----------------------------------------------------------------------------------------------- */

enum { BLOCKS = 64 };

typedef struct ledger {
    int64_t calls, fails_at; /* the allocation with this number fails; -1: none */
    bool fails_after;        /* and every later one */
    void *live[BLOCKS];
    int live_count;
} ledger;

static void *ledger_allocate(size_t size, size_t alignment, void *user) {
    ledger *const l = user;
    const int64_t call = l->calls++;
    if (l->fails_at >= 0 && (call == l->fails_at || (l->fails_after && call > l->fails_at))) {
        return NULL;
    }
    expect(size > 0, "an allocation of nothing");
    expect(alignment && (alignment & (alignment - 1)) == 0, "alignment %zu is no power of two", alignment);
    expect(l->live_count < BLOCKS, "more than %d blocks at a time", BLOCKS);
    void *const memory = aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
    if (memory && l->live_count < BLOCKS) {
        memset(memory, 0xa5, size); /* what is used without being set shows */
        l->live[l->live_count++] = memory;
    }
    return memory;
}

static void ledger_deallocate(void *memory, void *user) {
    ledger *const l = user;
    for (int i = 0; i < l->live_count; i++) {
        if (l->live[i] == memory) {
            l->live[i] = l->live[--l->live_count];
            free(memory);
            return;
        }
    }
    problem("%p was freed, but is not allocated", memory);
}

static napier_status context_on(ledger *l, int threads, napier_context **context) {
    napier_context_options options = NAPIER_CONTEXT_OPTIONS_INIT;
    options.threads = threads;
    options.allocator = (napier_allocator){ledger_allocate, ledger_deallocate, l};
    return napier_context_create(context, &options);
}

/* ---- The calls --------------------------------------------------------------------------------------------------- */

/* Everything a call may need memory for. `result` receives what it wrote. */
typedef struct job {
    const char *name;
    int which;
    layout in_layout, out_layout;
    int64_t rows, cols;
    napier_dtype in, out;
    napier_algorithm algorithm;
} job;

enum { JOB_SOFTMAX_BACKWARD = OPERATIONS, JOB_LOG_SOFTMAX_BACKWARD, JOB_LSE_BACKWARD, JOB_ALL_BACKWARD, JOB_WEIGHTED };

static const job jobs[] = {
    {"tiny rows", OP_SOFTMAX, LAYOUT_CONTIGUOUS, LAYOUT_CONTIGUOUS, 50, 7, NAPIER_F32, NAPIER_F32,
     NAPIER_ALGORITHM_AUTO},
    {"rows", OP_LOG_SOFTMAX, LAYOUT_PADDED, LAYOUT_CONTIGUOUS, 9, 1500, NAPIER_F32, NAPIER_BF16, NAPIER_ALGORITHM_AUTO},
    {"strided rows", OP_SOFTMAX, LAYOUT_EVERY_OTHER, LAYOUT_COLUMNS_REVERSED, 9, 1500, NAPIER_F16, NAPIER_F32,
     NAPIER_ALGORITHM_ONLINE},
    {"first axis", OP_SOFTMAX, LAYOUT_TRANSPOSED, LAYOUT_TRANSPOSED, 300, 200, NAPIER_F32, NAPIER_F32,
     NAPIER_ALGORITHM_AUTO},
    {"first axis, long", OP_LOG_SOFTMAX, LAYOUT_TRANSPOSED, LAYOUT_TRANSPOSED, 20, 9000, NAPIER_BF16, NAPIER_BF16,
     NAPIER_ALGORITHM_SAFE},
    {"one long row", OP_SOFTMAX, LAYOUT_CONTIGUOUS, LAYOUT_CONTIGUOUS, 1, 100000, NAPIER_F32, NAPIER_F32,
     NAPIER_ALGORITHM_PARALLEL},
    {"one long strided row", OP_SOFTMAX, LAYOUT_EVERY_OTHER, LAYOUT_EVERY_OTHER, 1, 100000, NAPIER_F32, NAPIER_F32,
     NAPIER_ALGORITHM_PARALLEL},
    {"logsumexp", OP_LOGSUMEXP, LAYOUT_CONTIGUOUS, LAYOUT_CONTIGUOUS, 100, 5000, NAPIER_F32, NAPIER_F32,
     NAPIER_ALGORITHM_AUTO},
    {"logsumexp, first axis", OP_LOGSUMEXP, LAYOUT_TRANSPOSED, LAYOUT_CONTIGUOUS, 500, 300, NAPIER_F32, NAPIER_F32,
     NAPIER_ALGORITHM_PARALLEL},
    {"logsumexp of all", OP_LOGSUMEXP_ALL, LAYOUT_CONTIGUOUS, LAYOUT_CONTIGUOUS, 100, 1000, NAPIER_F32, NAPIER_F32,
     NAPIER_ALGORITHM_AUTO},
    {"logsumexp of all, transposed", OP_LOGSUMEXP_ALL, LAYOUT_TRANSPOSED_PADDED, LAYOUT_CONTIGUOUS, 100, 1000,
     NAPIER_F16, NAPIER_F32, NAPIER_ALGORITHM_AUTO},
    {"f64", OP_SOFTMAX, LAYOUT_TRANSPOSED, LAYOUT_TRANSPOSED, 30, 3000, NAPIER_F64, NAPIER_F64, NAPIER_ALGORITHM_AUTO},
    {"f64 of all", OP_LOGSUMEXP_ALL, LAYOUT_PADDED, LAYOUT_CONTIGUOUS, 30, 3000, NAPIER_F64, NAPIER_F64,
     NAPIER_ALGORITHM_PARALLEL},
    {"logsumexp_weighted", JOB_WEIGHTED, LAYOUT_EVERY_OTHER, LAYOUT_CONTIGUOUS, 2, 20000, NAPIER_F32, NAPIER_F32,
     NAPIER_ALGORITHM_PARALLEL},
    {"softmax_backward", JOB_SOFTMAX_BACKWARD, LAYOUT_TRANSPOSED, LAYOUT_TRANSPOSED, 100, 1500, NAPIER_F32, NAPIER_F32,
     NAPIER_ALGORITHM_AUTO},
    {"log_softmax_backward", JOB_LOG_SOFTMAX_BACKWARD, LAYOUT_EVERY_OTHER, LAYOUT_CONTIGUOUS, 10, 4000, NAPIER_BF16,
     NAPIER_F32, NAPIER_ALGORITHM_AUTO},
    {"log_softmax_backward in f64", JOB_LOG_SOFTMAX_BACKWARD, LAYOUT_TRANSPOSED, LAYOUT_TRANSPOSED, 10, 4000,
     NAPIER_F64, NAPIER_F64, NAPIER_ALGORITHM_AUTO},
    {"logsumexp_backward", JOB_LSE_BACKWARD, LAYOUT_TRANSPOSED, LAYOUT_TRANSPOSED, 100, 1500, NAPIER_F32, NAPIER_F32,
     NAPIER_ALGORITHM_AUTO},
    {"logsumexp_all_backward", JOB_ALL_BACKWARD, LAYOUT_TRANSPOSED, LAYOUT_CONTIGUOUS, 100, 1500, NAPIER_F32,
     NAPIER_F32, NAPIER_ALGORITHM_AUTO},
};

static napier_status run_job(napier_context *context, const job *j, const grid *in, grid *out) {
    const napier_softmax_options options = options_of(0.8, j->algorithm, NAPIER_MASKED_NAN);
    const float ones[512] = {1, 2, 3};
    const napier_const_matrix logits = grid_input(in);
    switch (j->which) {
    case JOB_SOFTMAX_BACKWARD: return napier_softmax_backward(context, logits, logits, out->view, &options);
    case JOB_LOG_SOFTMAX_BACKWARD: return napier_log_softmax_backward(context, logits, logits, out->view, &options);
    case JOB_LSE_BACKWARD:
        return napier_logsumexp_backward(context, logits, napier_const_array_f32(ones, j->rows), out->view, &options);
    case JOB_ALL_BACKWARD:
        return napier_logsumexp_all_backward(context, logits, napier_const_array_f32(ones, 1), out->view, &options);
    case JOB_WEIGHTED: {
        const napier_vector lse = {out->view.data, out->view.rows, out->view.row_stride, out->view.dtype}, none = {0};
        return napier_logsumexp_weighted(context, logits, logits, lse, none, &options);
    }
    default: return operation_run(context, (operation)j->which, logits, out->view, &options);
    }
}

/* Fails at allocation k of the call for k = 0, 1, ... until the call needs no more. */
static int64_t failures_met;

static void check_job(const job *j, int threads, bool fails_after) {
    const bool reduces = j->which == OP_LOGSUMEXP || j->which == OP_LOGSUMEXP_ALL || j->which == JOB_WEIGHTED;
    const int64_t out_rows = j->which == OP_LOGSUMEXP_ALL ? 1 : j->rows, out_cols = reduces ? 1 : j->cols;
    grid in = grid_make(j->in_layout, j->rows, j->cols, j->in);
    grid expected = grid_plain(out_rows, out_cols, j->out);
    grid_fill(&in, ROW_NORMAL, 1);
    napier_context *const plain = context_for_test(NAPIER_ISA_AUTO, threads);
    succeeded(plain, run_job(plain, j, &in, &expected), j->name);

    ledger l = {.fails_at = -1};
    napier_context *context = NULL;
    if (!expect(context_on(&l, threads, &context) == NAPIER_OK, "no context")) {
        return;
    }
    const int held = l.live_count;
    napier_status status = NAPIER_OUT_OF_MEMORY;
    for (int64_t k = 0; k < 200 && status == NAPIER_OUT_OF_MEMORY; k++) {
        grid out = grid_make(j->out_layout, out_rows, out_cols, j->out);
        l.calls = 0;
        l.fails_at = k;
        l.fails_after = fails_after;
        status = run_job(context, j, &in, &out);
        l.fails_at = -1;
        expect(l.live_count == held, "%s, allocation %lld fails: %d blocks lost", j->name, (long long)k,
               l.live_count - held);
        if (status == NAPIER_OUT_OF_MEMORY) {
            failures_met++;
            expect(napier_last_error(context)[0] != '\0', "%s: no text for OUT_OF_MEMORY", j->name);
            succeeded(context, run_job(context, j, &in, &out), "with memory again");
        } else {
            expect(l.calls <= k || status == NAPIER_OK, "%s: %s", j->name, napier_status_string(status));
        }
        expect(grid_differences(&out, &expected, j->name) == 0 && grid_damage(&out) == 0,
               "%s, allocation %lld failed: other bits afterwards", j->name, (long long)k);
        grid_free(&out);
    }
    expect(status == NAPIER_OK, "%s never succeeds: %s", j->name, napier_status_string(status));
    napier_context_destroy(context);
    expect(l.live_count == 0, "%s: %d blocks left after the context", j->name, l.live_count);
    grid_free(&in);
    grid_free(&expected);
}

static void test_operations(void) {
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        for (int threads = 1; threads <= 2; threads++) {
            check_job(&jobs[i], threads, false);
            check_job(&jobs[i], threads, true);
        }
    }
    expect(failures_met > 0, "no call allocated anything: the test tested nothing");
}

/* ---- Context and state ------------------------------------------------------------------------------------------- */

static void test_context(void) {
    napier_status status = NAPIER_OUT_OF_MEMORY;
    for (int64_t k = 0; k < 20 && status != NAPIER_OK; k++) {
        ledger l = {.fails_at = k};
        napier_context *context = (napier_context *)(uintptr_t)1;
        status = context_on(&l, 2, &context);
        if (status == NAPIER_OK) {
            napier_context_destroy(context);
        } else {
            expect(status == NAPIER_OUT_OF_MEMORY, "%s", napier_status_string(status));
            expect(context == NULL, "*out is not NULL");
        }
        expect(l.live_count == 0, "%d blocks lost", l.live_count);
    }
    expect(status == NAPIER_OK, "a context can never be made");
}

/* The whole life of two states; returns the first status that is not OK. Whatever fails, all is given back. */
static napier_status live_through(napier_context *context, napier_dtype compute, const float *x, int64_t n, double *lse,
                                  float *probs) {
    napier_softmax_state *a = NULL, *b = NULL, *loaded = NULL;
    const int64_t cut = n / 2 + 3;
    static unsigned char bytes[32 * 1024];
    napier_status status = napier_softmax_state_create(context, compute, 0, NULL, &a);
    if (status == NAPIER_OK) {
        status = napier_softmax_state_create(context, compute, cut, NULL, &b);
    }
    if (status == NAPIER_OK) {
        status = napier_softmax_state_update(context, a, napier_const_array_f32(x, cut));
    }
    if (status == NAPIER_OK) {
        status = napier_softmax_state_update(context, b, napier_const_array_f32(x + cut, n - cut));
    }
    if (status == NAPIER_OK) {
        status = napier_softmax_state_save(context, b, bytes, sizeof bytes);
    }
    if (status == NAPIER_OK) {
        status = napier_softmax_state_load(context, bytes, napier_softmax_state_size(b), &loaded);
        expect((status == NAPIER_OK) == (loaded != NULL), "a failed load left a state");
    }
    if (status == NAPIER_OK) {
        status = napier_softmax_state_merge(context, a, loaded);
    }
    if (status == NAPIER_OK) {
        status = napier_softmax_state_finish(context, a, lse);
    }
    if (status == NAPIER_OK) {
        status = napier_softmax_state_apply(context, a, NAPIER_KIND_SOFTMAX, napier_const_array_f32(x, n),
                                            napier_array_f32(probs, n));
    }
    napier_softmax_state_destroy(a);
    napier_softmax_state_destroy(b);
    napier_softmax_state_destroy(loaded);
    return status;
}

static void test_states(void) {
    enum { N = 5000 };
    static double wide[N];
    static float x[N], probs[N], expected[N];
    row_fill_f32(ROW_NORMAL, 3, x, wide, N);
    for (int d = 0; d < 2; d++) {
        const napier_dtype compute = d ? NAPIER_F64 : NAPIER_F32;
        ledger l = {.fails_at = -1};
        napier_context *context = NULL;
        if (!expect(context_on(&l, 2, &context) == NAPIER_OK, "no context")) {
            continue;
        }
        const int held = l.live_count;
        double wanted = 0, lse = 0;
        expect(live_through(context, compute, x, N, &wanted, expected) == NAPIER_OK, "with memory");
        napier_status status = NAPIER_OUT_OF_MEMORY;
        for (int64_t k = 0; k < 200 && status == NAPIER_OUT_OF_MEMORY; k++) {
            l.calls = 0;
            l.fails_at = k;
            status = live_through(context, compute, x, N, &lse, probs);
            expect(l.live_count == held, "allocation %lld fails: %d blocks lost", (long long)k, l.live_count - held);
        }
        expect(status == NAPIER_OK && lse == wanted && memcmp(probs, expected, sizeof probs) == 0,
               "%s: %s, logsumexp %.17g, expected %.17g", napier_dtype_name(compute), napier_status_string(status), lse,
               wanted);
        napier_context_destroy(context);
        expect(l.live_count == 0, "%d blocks left after the context", l.live_count);
    }
}

int main(void) { return RUN_TESTS("allocation", TEST(test_context), TEST(test_operations), TEST(test_states)); }
