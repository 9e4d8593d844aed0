/* amx_peak.c - the peak of x86's matrix engine for bf16 (AMX): nanoseconds of a TDPBF16PS on random numbers, alone and with
 * what a product of 2 x 2 tiles does besides, in each of some threads at once. The cases take turns, so that all meet the same
 * clock.
 *
 *     cc -O2 -march=sapphirerapids -pthread bench/python/amx_peak.c -o amx_peak && ./amx_peak 2 */
#define _GNU_SOURCE
#include <immintrin.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { TILE = 1024, STEP = 2 * TILE, SQUARES = 256, ROUNDS = 40, CASES = 7, MOST_THREADS = 64 };
/* A square has 32 x 32 sums of 32 steps of 32 k. Rows of the result are 8 KB apart. */
enum { SIDE = 32, STEPS = 32, OUT_ROW = 8192, OUT_BYTES = SQUARES / 4 * OUT_ROW };

typedef struct peak_case {
    const char *name;
    size_t rows, lanes; /* bytes that are read again and again; 0: no loads */
    bool stream;        /* the first-level cache keeps other data first */
    bool sums;          /* they are stored after a square */
    bool results;       /* a row of the square before is rounded and written in each step */
} peak_case;

static const peak_case cases[CASES] = {
    {"multiplications alone", 0, 0, false, false, false},
    {"operands from the first-level cache", 16 << 10, 16 << 10, false, false, false},
    {"one of them from the second-level cache", 32 << 10, 512 << 10, false, false, false},
    {"the same, streaming", 32 << 10, 512 << 10, true, false, false},
    {"both from there, streaming", 512 << 10, 512 << 10, true, false, false},
    {"one from there and half of the other, sums stored", 64 << 10, 512 << 10, true, true, false},
    {"the same, results rounded and written", 64 << 10, 512 << 10, true, true, true},
};

typedef struct worker {
    pthread_t thread;
    pthread_barrier_t *together;
    double least[CASES]; /* ns for a multiplication */
} worker;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void configure(void) {
    uint8_t config[64] __attribute__((aligned(64))) = {1};
    for (int tile = 0; tile < 8; tile++) {
        config[16 + 2 * tile] = 64;
        config[48 + tile] = 16;
    }
    __asm__ volatile("" : : "r"(config) : "memory");
    _tile_loadconfig(config);
}

/* Rounds a row of sums. */
static inline void write_row(const float *sums, char *out) {
    const __m512bh both = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(sums + SIDE / 2), _mm512_loadu_ps(sums));
    _mm512_stream_si512((void *)out, (__m512i)both);
}

/* 32 k of a square. */
static inline __attribute__((always_inline)) void multiply(const peak_case f, const char *rows, const char *lanes,
                                                           int square, int step) {
    const size_t at = (size_t)(square * STEPS + step) * STEP;
    const char *const r = rows + (f.rows ? at % f.rows : 0), *const l = lanes + (f.lanes ? at % f.lanes : 0);
    const bool stays = f.rows <= 32 << 10 || (f.rows == 64 << 10 && step < STEPS / 2);
    if (f.rows && stays) {
        _tile_loadd(4, r, 64);
    } else if (f.rows) {
        _tile_stream_loadd(4, r, 64);
    }
    if (f.lanes && f.stream) {
        _tile_stream_loadd(6, l, 64);
        _tile_stream_loadd(7, l + TILE, 64);
    } else if (f.lanes) {
        _tile_loadd(6, l, 64);
        _tile_loadd(7, l + TILE, 64);
    }
    if (f.rows && stays) {
        _tile_loadd(5, r + TILE, 64);
    } else if (f.rows) {
        _tile_stream_loadd(5, r + TILE, 64);
    }
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
}

static inline __attribute__((always_inline)) void store(float *sums) {
    _tile_stored(0, sums, SIDE * sizeof *sums);
    _tile_stored(1, sums + SIDE / 2, SIDE * sizeof *sums);
    _tile_stored(2, sums + SIDE / 2 * SIDE, SIDE * sizeof *sums);
    _tile_stored(3, sums + SIDE / 2 * SIDE + SIDE / 2, SIDE * sizeof *sums);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}

/* sums: of two squares. A tile that nobody reads is stored in every fourth step (docs/linear.md says why). */
static inline __attribute__((always_inline)) double measure(const peak_case f, const char *memory, float *sums,
                                                            char *out) {
    const char *const rows = memory, *const lanes = memory + (1 << 20);
    char *const unread = (char *)(sums + 2 * SIDE * SIDE);
    const double begin = now();
    for (int square = 0; square < SQUARES; square++) {
        float *const these = sums + square % 2 * SIDE * SIDE, *const before = sums + (square + 1) % 2 * SIDE * SIDE;
        const size_t across = (size_t)square * 2 * SIDE;
        char *const to = out + across / OUT_ROW * SIDE * OUT_ROW + across % OUT_ROW;
        for (int quad = 0; quad < STEPS; quad += 4) {
#pragma GCC unroll 4
            for (int step = quad; step < quad + 4; step++) {
                multiply(f, rows, lanes, square, step);
                if (f.results) {
                    write_row(before + step * SIDE, to + (size_t)step * OUT_ROW);
                }
            }
            if (f.sums) {
                _tile_stored(7, unread, 64);
            }
        }
        if (f.sums) {
            store(these);
        }
    }
    return (now() - begin) / SQUARES / STEPS / 4;
}

/* Each call has a constant case, so that the loop holds no decisions. */
static double measure_case(int c, const char *memory, float *sums, char *out) {
    switch (c) {
    case 0: return measure(cases[0], memory, sums, out);
    case 1: return measure(cases[1], memory, sums, out);
    case 2: return measure(cases[2], memory, sums, out);
    case 3: return measure(cases[3], memory, sums, out);
    case 4: return measure(cases[4], memory, sums, out);
    case 5: return measure(cases[5], memory, sums, out);
    default: return measure(cases[6], memory, sums, out);
    }
}

static void *work(void *argument) {
    worker *w = argument;
    uint16_t *const memory = aligned_alloc(1 << 21, 1 << 21);
    float *const sums = aligned_alloc(4096, 16 << 10);
    char *const out = aligned_alloc(4096, OUT_BYTES);
    uint32_t state = 1;
    for (int i = 0; memory && i < 1 << 20; i++) {
        state = state * 1664525u + 1013904223u;
        memory[i] = (uint16_t)((state >> 31) << 15 | (120 + (state >> 20) % 8) << 7 | (state >> 8 & 127));
    }
    if (!memory || !sums || !out) {
        exit(1);
    }
    memset(sums, 0, 16 << 10);
    memset(out, 0, OUT_BYTES);
    configure();
    for (int i = 0; i < ROUNDS * CASES; i++) {
        const int c = i % CASES;
        pthread_barrier_wait(w->together);
        _tile_loadd(4, memory, 64);
        _tile_loadd(5, memory + 512, 64);
        _tile_loadd(6, memory + 1024, 64);
        _tile_loadd(7, memory + 1536, 64);
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        const double ns = measure_case(c, (const char *)memory, sums, out);
        w->least[c] = i < CASES || ns < w->least[c] ? ns : w->least[c];
    }
    _tile_release();
    free(out);
    free(sums);
    free(memory);
    return NULL;
}

int main(int count, char **arguments) {
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XTILEDATA = 18 };
    const int wanted = count > 1 ? (int)strtol(arguments[1], NULL, 10) : 1;
    const int threads = wanted < 1 ? 1 : wanted > MOST_THREADS ? MOST_THREADS : wanted;
    if (syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XTILEDATA) != 0) {
        fputs("no matrix engine\n", stderr);
        return 1;
    }
    static worker workers[MOST_THREADS];
    pthread_barrier_t together;
    pthread_barrier_init(&together, NULL, (unsigned)threads);
    for (int i = 0; i < threads; i++) {
        workers[i].together = &together;
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0) {
            return 1;
        }
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(workers[i].thread, NULL);
    }
    for (int c = 0; c < CASES; c++) {
        printf("%-50s", cases[c].name);
        for (int i = 0; i < threads; i++) {
            printf(" %6.2f", workers[i].least[c]);
        }
        puts(" ns");
    }
    return 0;
}
