/* bench/peers/xnnpack_worker.c - XNNPACK: softmax of f32 along the last axis is all it offers here. */
#define _POSIX_C_SOURCE 200809L
#include "worker.h"

#include <pthreadpool.h>
#include <time.h>
#include <xnnpack.h>

static const char *const variants[] = {"xnnpack", NULL};
static pthreadpool_t pool;
static xnn_operator_t softmax;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static const char *start(const int threads) {
    if (xnn_initialize(NULL) != xnn_status_success)
        return "xnn_initialize failed";
    if (threads > 1) {
        pool = pthreadpool_create((size_t)threads);
        if (!pool)
            return "pthreadpool_create failed";
    }
    return NULL;
}

static const char *prepare(const bench_job *const job) {
    if (job->op != BENCH_SOFTMAX)
        return "softmax only";
    if (job->bf16)
        return "no bf16";
    if (job->first_axis)
        return "last axis only";
    if (softmax)
        xnn_delete_operator(softmax);
    softmax = NULL;
    const size_t cols = (size_t)job->cols;
    if (xnn_create_softmax_nc_f32(cols, cols, cols, 0, &softmax) != xnn_status_success)
        return "cannot create softmax";
    if (xnn_setup_softmax_nc_f32(softmax, (size_t)job->rows, job->in, job->out, pool) != xnn_status_success) {
        return "cannot set up softmax";
    }
    return NULL;
}

static double run(const bench_job *const job, const int variant) {
    (void)job;
    (void)variant;
    const double begin = now();
    if (xnn_run_operator(softmax, pool) != xnn_status_success)
        return -1;
    return now() - begin;
}

int main(int argc, char **argv) {
    bench_peer peer = {"xnnpack", "Debian 2022-02", variants, start, prepare, run};
    return bench_serve(argc, argv, &peer);
}
