/* bench/peers/napier_worker.c - Napier itself, and the floors: they share a process because they share OpenMP's threads. */
#include "floors/floors.h"
#include "worker.h"

#include <napier/napier.h>
#include <stdio.h>
#include <string.h>

enum { NAPIER, FLOOR_MEMORY, FLOOR_READ, FLOOR_EXP, CLOCK };
static const char *const variants[] = {"napier", "floor_memory", "floor_read", "floor_exp", "clock", NULL};

static napier_context *context;
static floor_choice choice;
static floor_work work;
static int best_exp;
static char version[64];
static char refusal[256 + 64];

static const char *start(const int threads) {
    napier_context_options options = NAPIER_CONTEXT_OPTIONS_INIT;
    options.threads = threads;
    if (napier_context_create(&context, &options) != NAPIER_OK)
        return "napier_context_create failed";
    static const char *const names[] = {"auto", "scalar", "neon", "avx2", "avx512"};
    const napier_isa isa = napier_context_isa(context);
    snprintf(version, sizeof version, "%s %s", napier_version(),
             (size_t)isa < sizeof names / sizeof *names ? names[isa] : "unknown");
    choice.kernels = floors_of(isa);

    double best = 1e9;
    for (int k = 0; k < FLOOR_EXPS; k++) {
        for (int trial = 0; trial < 20; trial++) {
            const double begin = floors_now();
            floors_exp(choice.kernels, k, threads);
            const double took = floors_now() - begin;
            if (took < best)
                best = took, best_exp = k;
        }
    }
    return NULL;
}

static napier_status call(const bench_job *const job) {
    const napier_dtype dtype = job->bf16 ? NAPIER_BF16 : NAPIER_F32;
    napier_const_matrix in = napier_const_rows(job->in, job->rows, job->cols, dtype);
    napier_matrix out = napier_rows(job->out, job->rows, job->cols, dtype);
    if (job->first_axis) {
        in = napier_const_transposed(napier_const_rows(job->in, job->cols, job->rows, dtype));
        out = napier_transposed(napier_rows(job->out, job->cols, job->rows, dtype));
    }
    switch (job->op) {
    case BENCH_SOFTMAX: return napier_softmax(context, in, out, NULL);
    case BENCH_LOG_SOFTMAX: return napier_log_softmax(context, in, out, NULL);
    case BENCH_LOGSUMEXP: return napier_logsumexp(context, in, napier_array(job->out, job->rows, dtype), NULL);
    case BENCH_LOGSUMEXP_ALL: return napier_logsumexp_all(context, in, napier_array(job->out, 1, dtype), NULL);
    }
    return NAPIER_INVALID_ARGUMENT;
}

/* Bytes of the cache that a row must stay in to be read from memory only once. */
static size_t level2_bytes(void) {
    static size_t bytes;
    if (bytes)
        return bytes;
    long kib = 0;
    FILE *const f = fopen("/sys/devices/system/cpu/cpu0/cache/index2/size", "r");
    if (f) {
        if (fscanf(f, "%ldK", &kib) != 1)
            kib = 0;
        fclose(f);
    }
    return bytes = kib > 0 ? (size_t)kib << 10 : (size_t)1 << 20;
}

static const char *prepare(const bench_job *const job) {
    const napier_status status = call(job);
    if (status != NAPIER_OK) {
        snprintf(refusal, sizeof refusal, "%s: %s", napier_status_string(status), napier_last_error(context));
        return refusal;
    }
    const floor_work last = work;
    const size_t row_bytes = (size_t)job->cols * job->item;
    const bool writes_all = job->op == BENCH_SOFTMAX || job->op == BENCH_LOG_SOFTMAX;
    work = (floor_work){job->in, job->out, (size_t)job->rows, row_bytes, job->out_bytes, 1, job->threads};
    if (writes_all && row_bytes > level2_bytes())
        work.reads = 2;
    if (memcmp(&last, &work, sizeof work) != 0)
        choice = floors_choose(choice.kernels, &work);
    return NULL;
}

static double run(const bench_job *const job, const int variant) {
    const double begin = floors_now();
    switch (variant) {
    case NAPIER:
        if (call(job) != NAPIER_OK)
            return -1;
        break;
    case FLOOR_MEMORY: floors_memory(&choice, &work); break;
    case FLOOR_READ: floors_read(&choice, &work); break;
    case FLOOR_EXP: floors_exp(choice.kernels, best_exp, job->threads); break;
    case CLOCK: return floors_clock();
    default: return -1;
    }
    return floors_now() - begin;
}

int main(int argc, char **argv) {
    bench_peer peer = {"napier", version, variants, start, prepare, run};
    return bench_serve(argc, argv, &peer);
}
