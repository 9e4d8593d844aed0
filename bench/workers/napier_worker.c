/* bench/workers/napier_worker.c - Napier itself, and the floors: they share a process because they share its
 * threads. The operations are in the tables of the files napier_*.c. */
#include "napier_cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

napier_context *context;
int context_threads;

static floor_choice choice;
static floor_work work;
static int best_exp, best_row;
static floor_op row_op;
static bool row_bf16;

napier_dtype job_dtype(void) {
    return bench_is("dtype", "bf16") ? NAPIER_BF16 : bench_is("dtype", "f16") ? NAPIER_F16 : NAPIER_F32;
}

static const char *reason(void) {
    const char *const text = napier_last_error(context);
    return text && text[0] ? text : "napier failed";
}

const char *refusal_of(const napier_status status) { return status == NAPIER_OK ? NULL : reason(); }

/* ---- Floors ------------------------------------------------------------------------------------------------------ */

/* Bytes of the cache that a row must stay in to be read from memory only once. */
static size_t level2_bytes(void) {
    long kib = 0;
    FILE *const file = fopen("/sys/devices/system/cpu/cpu0/cache/index2/size", "r");
    if (file && fscanf(file, "%ldK", &kib) != 1) {
        kib = 0;
    }
    if (file) {
        fclose(file);
    }
    return kib > 0 ? (size_t)kib << 10 : (size_t)1 << 20;
}

void choose_floors(const void *in, void *out, size_t rows, size_t row_bytes, size_t out_bytes, bool again) {
    work =
        (floor_work){in, out, rows, row_bytes, out_bytes, again && row_bytes > level2_bytes() ? 2 : 1, context_threads};
    choice = floors_choose(choice.kernels, &work);
}

void choose_floor_row(const floor_op op, const napier_dtype dtype) {
    row_op = op;
    row_bf16 = dtype == NAPIER_BF16;
    best_row = floors_choose_row(choice.kernels, row_op, row_bf16, context_threads);
}

static unsigned run_floor(const char *const variant) {
    if (strcmp(variant, "floor_memory") == 0) {
        floors_memory(&choice, &work);
    } else if (strcmp(variant, "floor_read") == 0) {
        floors_read(&choice, &work);
    } else if (strcmp(variant, "floor_row") == 0) {
        floors_row(choice.kernels, best_row, row_op, row_bf16, context_threads);
    } else {
        floors_exp(choice.kernels, best_exp, context_threads);
    }
    return 0;
}

static void choose_exp(const napier_isa isa) {
    choice.kernels = floors_of(isa);
    double best = 1e9;
    for (int trial = 0; trial < 20 * FLOOR_EXPS; trial++) {
        const double begin = bench_now();
        floors_exp(choice.kernels, trial % FLOOR_EXPS, context_threads);
        const double took = bench_now() - begin;
        if (took < best) {
            best = took, best_exp = trial % FLOOR_EXPS;
        }
    }
}

/* ---- The worker -------------------------------------------------------------------------------------------------- */

static char version[64];

static const char *start(const int threads) {
    napier_context_options options = NAPIER_CONTEXT_OPTIONS_INIT;
    options.threads = context_threads = threads;
    const char *const isa_name = getenv("NAPIER_BENCH_ISA");
    if (isa_name) {
        options.highest_isa = strcmp(isa_name, "avx2") == 0 ? NAPIER_ISA_AVX2 : NAPIER_ISA_AVX512;
    }
    if (napier_context_create(&context, &options) != NAPIER_OK) {
        return "napier_context_create failed";
    }
    const napier_isa isa = napier_context_isa(context);
    snprintf(version, sizeof version, "%s %s", napier_version(), napier_isa_name(isa));
    choose_exp(isa);
    return NULL;
}

/* The clock, so that times can be told in cycles. */
static void clock_figure(void) { bench_figure("ghz", floors_clock()); }

int main(int argc, char **argv) {
    static const bench_case *const tables[] = {
        softmax_cases, token_cases, product_cases, umap_cases,
#ifdef NAPIER_MODEL
        model_cases,
#endif
        NULL,
    };
    bench_peer peer = {"napier", version, tables, start, reason, run_floor, clock_figure};
    return bench_serve(argc, argv, &peer);
}
