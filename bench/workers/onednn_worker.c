/* bench/workers/onednn_worker.c - oneDNN: softmax and log_softmax, f32 and bf16, any axis; it has no logsumexp. */
#include "worker.h"

#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>

static char version[32], refusal[96];
static dnnl_status_t last;
static dnnl_engine_t engine;
static dnnl_stream_t stream;
static dnnl_primitive_t primitive;
static dnnl_memory_t memory_in, memory_out;

static const char *start(const int threads) {
    (void)threads; /* the driver binds the process to as many cores; oneDNN follows */
    const dnnl_version_t *const v = dnnl_version();
    snprintf(version, sizeof version, "%d.%d.%d", v->major, v->minor, v->patch);
    if (dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success) {
        return "dnnl_engine_create failed";
    }
    if (dnnl_stream_create(&stream, engine, dnnl_stream_default_flags) != dnnl_success) {
        return "no stream";
    }
    return NULL;
}

static void forget(void) {
    if (primitive) {
        dnnl_primitive_destroy(primitive);
    }
    if (memory_in) {
        dnnl_memory_destroy(memory_in);
    }
    if (memory_out) {
        dnnl_memory_destroy(memory_out);
    }
    primitive = NULL;
    memory_in = memory_out = NULL;
}

static const char *failed(const char *const what, const dnnl_status_t status) {
    snprintf(refusal, sizeof refusal, "%s: status %d", what, (int)status);
    return refusal;
}

static const char *reason(void) { return failed("run", last); }

static const char *set_up(const bench_case *const self) {
    const bool first_axis = bench_is("axis", "first"), softmax = self->name[0] == 's';
    const int64_t rows = bench_number("rows"), cols = bench_number("cols");
    const dnnl_dims_t dims = {first_axis ? cols : rows, first_axis ? rows : cols};
    const dnnl_data_type_t dtype = bench_is("dtype", "bf16") ? dnnl_bf16 : dnnl_f32;
    void *const in = (void *)(uintptr_t)bench_input("input"); /* oneDNN's handle has no const; it only reads here */
    dnnl_memory_desc_t desc;
    forget();
    dnnl_status_t status = dnnl_memory_desc_create_with_tag(&desc, 2, dims, dtype, dnnl_ab);
    if (status != dnnl_success) {
        return failed("memory descriptor", status);
    }
    dnnl_primitive_desc_t how;
    status = dnnl_softmax_forward_primitive_desc_create(&how, engine, dnnl_forward_inference,
                                                        softmax ? dnnl_softmax_accurate : dnnl_softmax_log, desc, desc,
                                                        first_axis ? 0 : 1, NULL);
    if (status == dnnl_success) {
        status = dnnl_primitive_create(&primitive, how);
        dnnl_primitive_desc_destroy(how);
    }
    if (status == dnnl_success) {
        status = dnnl_memory_create(&memory_in, desc, engine, in);
    }
    if (status == dnnl_success) {
        status = dnnl_memory_create(&memory_out, desc, engine, bench_result("result", bench_input_bytes("input")));
    }
    dnnl_memory_desc_destroy(desc);
    return status == dnnl_success ? NULL : failed("softmax", status);
}

static unsigned run(const int variant) {
    (void)variant;
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, memory_in}, {DNNL_ARG_DST, memory_out}};
    last = dnnl_primitive_execute(primitive, stream, 2, args);
    if (last == dnnl_success) {
        last = dnnl_stream_wait(stream);
    }
    (void)bench_result("result", 0);
    return (unsigned)last;
}

int main(int argc, char **argv) {
    static const bench_case cases[] = {
        {"softmax", set_up, run, {"onednn"}}, {"log_softmax", set_up, run, {"onednn"}}, {.name = NULL}};
    static const bench_case *const tables[] = {cases, NULL};
    bench_peer peer = {.name = "onednn", .version = version, .tables = tables, .start = start, .reason = reason};
    return bench_serve(argc, argv, &peer);
}
