/* bench/peers/onednn_worker.c - oneDNN: softmax and log_softmax, f32 and bf16, any axis; it has no logsumexp. */
#define _POSIX_C_SOURCE 200809L
#include "worker.h"

#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const char *const variants[] = {"onednn", NULL};
static char version[32], refusal[96];
static dnnl_engine_t engine;
static dnnl_stream_t stream;
static dnnl_primitive_t primitive;
static dnnl_memory_t memory_in, memory_out;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static const char *start(const int threads) {
    (void)threads; /* the driver binds the process to as many cores; oneDNN follows */
    const dnnl_version_t *const v = dnnl_version();
    snprintf(version, sizeof version, "%d.%d.%d", v->major, v->minor, v->patch);
    if (dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success)
        return "dnnl_engine_create failed";
    if (dnnl_stream_create(&stream, engine, dnnl_stream_default_flags) != dnnl_success)
        return "no stream";
    return NULL;
}

static void forget(void) {
    if (primitive)
        dnnl_primitive_destroy(primitive);
    if (memory_in)
        dnnl_memory_destroy(memory_in);
    if (memory_out)
        dnnl_memory_destroy(memory_out);
    primitive = NULL;
    memory_in = memory_out = NULL;
}

static const char *failed(const char *const what, const dnnl_status_t status) {
    snprintf(refusal, sizeof refusal, "%s: status %d", what, (int)status);
    return refusal;
}

static const char *prepare(const bench_job *const job) {
    if (job->op != BENCH_SOFTMAX && job->op != BENCH_LOG_SOFTMAX)
        return "no logsumexp";
    forget();
    const dnnl_dims_t dims = {job->first_axis ? job->cols : job->rows, job->first_axis ? job->rows : job->cols};
    dnnl_memory_desc_t desc;
    dnnl_status_t status = dnnl_memory_desc_create_with_tag(&desc, 2, dims, job->bf16 ? dnnl_bf16 : dnnl_f32, dnnl_ab);
    if (status != dnnl_success)
        return failed("memory descriptor", status);
    dnnl_primitive_desc_t how;
    status = dnnl_softmax_forward_primitive_desc_create(
        &how, engine, dnnl_forward_inference, job->op == BENCH_SOFTMAX ? dnnl_softmax_accurate : dnnl_softmax_log, desc,
        desc, job->first_axis ? 0 : 1, NULL);
    if (status == dnnl_success) {
        status = dnnl_primitive_create(&primitive, how);
        dnnl_primitive_desc_destroy(how);
    }
    if (status == dnnl_success) {
        void *in;
        memcpy(&in, &job->in, sizeof in); /* oneDNN's handle has no const; it only reads here */
        status = dnnl_memory_create(&memory_in, desc, engine, in);
    }
    if (status == dnnl_success)
        status = dnnl_memory_create(&memory_out, desc, engine, job->out);
    dnnl_memory_desc_destroy(desc);
    return status == dnnl_success ? NULL : failed("softmax", status);
}

static double run(const bench_job *const job, const int variant) {
    (void)job;
    (void)variant;
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, memory_in}, {DNNL_ARG_DST, memory_out}};
    const double begin = now();
    if (dnnl_primitive_execute(primitive, stream, 2, args) != dnnl_success)
        return -1;
    if (dnnl_stream_wait(stream) != dnnl_success)
        return -1;
    return now() - begin;
}

int main(int argc, char **argv) {
    bench_peer peer = {"onednn", version, variants, start, prepare, run};
    return bench_serve(argc, argv, &peer);
}
