/* bench/floors/floors.c - see floors.h. */
#include "floors.h"

#include "core/base/parallel.h"
#include "workers/napier_cases.h"

#include <string.h>

enum { PIECE = 1024, TRIES = 5 };

static volatile float float_sink;
static volatile int int_sink;

const floor_kernels *floors_of(const napier_isa isa) {
    if (isa == NAPIER_ISA_AVX512) {
        return &floor_avx512;
    }
    if (isa == NAPIER_ISA_AVX2) {
        return &floor_avx2;
    }
    if (isa == NAPIER_ISA_NEON) {
        return &floor_neon;
    }
    return &floor_scalar;
}

/* The share of thread k of `threads` in `bytes`, in pieces of 1 KiB; the last few bytes go to nobody, which no clock
 * notices: buffers are rounded up to a piece anyway. */
static size_t share(const size_t bytes, const int k, const int threads) {
    const size_t pieces = (bytes + PIECE - 1) / PIECE;
    return pieces * (size_t)k / (size_t)threads * PIECE;
}

/* One row after the other, each read first and then copied: the second read may find it in a cache, as it would for a
 * softmax. A single row is split over threads. */
static void read_then_copy(const floor_choice *c, const floor_work *w, const size_t begin, const size_t end) {
    const floor_kernels *const f = c->kernels;
    const size_t step = w->rows > 1 ? (w->row_bytes + PIECE - 1) / PIECE * PIECE : end - begin;
    for (size_t at = begin; at < end; at += step) {
        const size_t bytes = end - at < step ? end - at : step;
        const char *const from = (const char *)w->in + at;
        if (w->reads > 1) {
            int_sink = f->read[c->read](from, bytes);
        }
        f->copy[c->copy]((char *)w->out + at, from, bytes);
    }
}

/* What the threads of the context share: thread k of `threads` has part k. */
typedef struct floor_job {
    const floor_choice *choice;
    const floor_work *work;
    const floor_kernels *kernels;
    int which;
    floor_op op;
    bool bf16;
} floor_job;

static void memory_part(void *const argument, const int64_t part) {
    const floor_choice *const c = ((const floor_job *)argument)->choice;
    const floor_work *const w = ((const floor_job *)argument)->work;
    const int k = (int)part;
    const size_t in_bytes = w->rows * w->row_bytes;
    const size_t begin = share(in_bytes, k, w->threads), end = share(in_bytes, k + 1, w->threads);
    if (w->out_bytes == in_bytes) {
        if (w->reads > 1) {
            read_then_copy(c, w, begin, end);
        } else {
            c->kernels->copy[c->copy]((char *)w->out + begin, (const char *)w->in + begin, end - begin);
        }
    } else {
        const size_t out_begin = share(w->out_bytes, k, w->threads), out_end = share(w->out_bytes, k + 1, w->threads);
        int_sink = c->kernels->read[c->read]((const char *)w->in + begin, end - begin);
        c->kernels->fill[c->fill]((char *)w->out + out_begin, out_end - out_begin);
    }
}

void floors_memory(const floor_choice *const c, const floor_work *const w) {
    floor_job job = {.choice = c, .work = w};
    napier_parallel_each(context, w->threads, 1, memory_part, &job);
}

static void read_part(void *const argument, const int64_t part) {
    const floor_choice *const c = ((const floor_job *)argument)->choice;
    const floor_work *const w = ((const floor_job *)argument)->work;
    const size_t bytes = w->rows * w->row_bytes;
    const size_t begin = share(bytes, (int)part, w->threads), end = share(bytes, (int)part + 1, w->threads);
    int_sink = c->kernels->read[c->read]((const char *)w->in + begin, end - begin);
}

void floors_read(const floor_choice *const c, const floor_work *const w) {
    floor_job job = {.choice = c, .work = w};
    napier_parallel_each(context, w->threads, 1, read_part, &job);
}

static void exp_part(void *const argument, const int64_t part) {
    const floor_job *const job = argument;
    _Alignas(64) float x[4096];
    (void)part;
    for (int i = 0; i < 4096; i++) {
        x[i] = -0.02f * (float)i;
    }
    for (int i = 0; i < 256; i++) {
        float_sink = job->kernels->exp_sum[job->which](x, 4096);
    }
}

void floors_exp(const floor_kernels *const kernels, const int which, const int threads) {
    floor_job job = {.kernels = kernels, .which = which};
    napier_parallel_each(context, threads, 1, exp_part, &job);
}

static void row_part(void *const argument, const int64_t part) {
    const floor_job *const job = argument;
    _Alignas(64) float x[FLOOR_ROW], y[FLOOR_ROW];
    (void)part;
    for (int i = 0; i < FLOOR_ROW; i++) {
        x[i] = -0.02f * (float)i;
    }
    if (job->bf16) {
        for (int i = 0; i < FLOOR_ROW; i++) {
            memmove((char *)x + 2 * i, (const char *)x + 4 * i + 2, 2); /* the upper half of each float */
        }
    }
    for (int i = 0; i < 1024; i++) {
        float_sink = job->kernels->row[job->which](job->op, job->bf16, x, y);
    }
}

void floors_row(const floor_kernels *const kernels, const int which, const floor_op op, const bool bf16,
                const int threads) {
    floor_job job = {.kernels = kernels, .which = which, .op = op, .bf16 = bf16};
    napier_parallel_each(context, threads, 1, row_part, &job);
}

int floors_choose_row(const floor_kernels *const kernels, const floor_op op, const bool bf16, const int threads) {
    double best = 1e9;
    int winner = 0;
    for (int trial = 0; trial < TRIES * FLOOR_ROWS; trial++) {
        const double start = bench_now();
        floors_row(kernels, trial / TRIES, op, bf16, threads);
        const double took = bench_now() - start;
        if (took < best) {
            best = took, winner = trial / TRIES;
        }
    }
    return winner;
}

/* Replaces *slot (a field of *c) by the candidate of which a run takes least. */
static void choose(floor_choice *const c, int *const slot, const int candidates,
                   void (*run)(const floor_choice *, const floor_work *), const floor_work *const w) {
    double best = 1e9;
    int winner = 0;
    for (int trial = 0; trial < TRIES * candidates; trial++) {
        *slot = trial / TRIES;
        const double start = bench_now();
        run(c, w);
        const double took = bench_now() - start;
        if (took < best) {
            best = took, winner = *slot;
        }
    }
    *slot = winner;
}

floor_choice floors_choose(const floor_kernels *const kernels, const floor_work *const w) {
    floor_choice c = {kernels, 0, 0, 0};
    choose(&c, &c.read, FLOOR_READS, floors_read, w);
    if (w->out_bytes == w->rows * w->row_bytes) {
        choose(&c, &c.copy, FLOOR_COPIES, floors_memory, w);
    } else {
        choose(&c, &c.fill, FLOOR_FILLS, floors_memory, w);
    }
    return c;
}

double floors_clock(void) {
#if defined(__x86_64__) || defined(__aarch64__)
    double best = 0;
    for (int trial = 0; trial < 10; trial++) {
        unsigned long a = 1;
        const double start = bench_now();
        for (int i = 0; i < 250000; i++) {
#if defined(__x86_64__)
            /* recent processors add constants without an instruction of their own */
            __asm__ volatile("rol $7,%0\n\trol $7,%0\n\trol $7,%0\n\trol $7,%0" : "+r"(a));
#else
            __asm__ volatile("add %0,%0,#1\n\tadd %0,%0,#1\n\tadd %0,%0,#1\n\tadd %0,%0,#1" : "+r"(a));
#endif
        }
        const double ghz = 1e6 / (bench_now() - start) * 1e-9;
        if (ghz > best) {
            best = ghz;
        }
    }
    return best;
#else
    return 0;
#endif
}
