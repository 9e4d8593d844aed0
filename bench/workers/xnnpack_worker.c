/* bench/workers/xnnpack_worker.c - XNNPACK: softmax of f32 along the last axis is all it offers here. */
#include "worker.h"

#include <pthreadpool.h>
#include <xnnpack.h>

static pthreadpool_t pool;
static xnn_operator_t softmax;

static const char *start(const int threads) {
    if (xnn_initialize(NULL) != xnn_status_success) {
        return "xnn_initialize failed";
    }
    if (threads > 1) {
        pool = pthreadpool_create((size_t)threads);
        if (!pool) {
            return "pthreadpool_create failed";
        }
    }
    return NULL;
}

static const char *reason(void) { return "xnn_run_operator failed"; }

static const char *set_up(const bench_case *const self) {
    (void)self;
    if (bench_is("dtype", "bf16")) {
        return "no bf16";
    }
    if (bench_is("axis", "first")) {
        return "last axis only";
    }
    if (softmax) {
        xnn_delete_operator(softmax);
    }
    softmax = NULL;
    const size_t rows = (size_t)bench_number("rows"), cols = (size_t)bench_number("cols");
    if (xnn_create_softmax_nc_f32(cols, cols, cols, 0, &softmax) != xnn_status_success) {
        return "cannot create softmax";
    }
    float *const out = bench_result("result", bench_input_bytes("input"));
    if (xnn_setup_softmax_nc_f32(softmax, rows, bench_input("input"), out, pool) != xnn_status_success) {
        return "cannot set up softmax";
    }
    return NULL;
}

static unsigned run(const int variant) {
    (void)variant;
    (void)bench_result("result", 0);
    return (unsigned)xnn_run_operator(softmax, pool);
}

int main(int argc, char **argv) {
    static const bench_case cases[] = {{"softmax", set_up, run, {"xnnpack"}}, {.name = NULL}};
    static const bench_case *const tables[] = {cases, NULL};
    bench_peer peer = {
        .name = "xnnpack", .version = "Debian 2022-02", .tables = tables, .start = start, .reason = reason};
    return bench_serve(argc, argv, &peer);
}
