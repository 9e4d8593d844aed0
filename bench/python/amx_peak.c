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

enum { TILE = 1024, STEP = 2 * TILE, STEPS = 1 << 13, ROUNDS = 40, CASES = 9, MOST_THREADS = 64 };
enum { ROW = 32, ROWS = 32, PANEL_ROW = 272, PANEL = ROWS * PANEL_ROW, OUT_BYTES = 16 << 20 };

/* How results are rounded and written: those of 8 squares at once, or a row in each step of the next square. */
typedef enum writing { NEVER, PANELS, NEXT } writing;

typedef struct peak_case {
    const char *name;
    size_t rows, lanes; /* bytes that are read again and again; 0: no loads */
    bool stream;        /* the first-level cache keeps other data first */
    int square;         /* sums are stored each so many steps; 0: never */
    bool again;         /* and every second time they go on */
    writing results;
} peak_case;

static const peak_case cases[CASES] = {
    {"multiplications alone", 0, 0, false, 0, false, NEVER},
    {"operands from the first-level cache", 16 << 10, 16 << 10, false, 0, false, NEVER},
    {"one of them from the second-level cache", 32 << 10, 512 << 10, false, 0, false, NEVER},
    {"the same, streaming", 32 << 10, 512 << 10, true, 0, false, NEVER},
    {"both from there, streaming", 512 << 10, 512 << 10, true, 0, false, NEVER},
    {"one from there, sums in tiles over 512 k", 32 << 10, 512 << 10, true, 16, true, NEVER},
    {"half of the other too, over 1024 k", 64 << 10, 512 << 10, true, 32, false, NEVER},
    {"the same, rounded panel by panel", 64 << 10, 512 << 10, true, 32, false, PANELS},
    {"the same, a row rounded in each step", 64 << 10, 512 << 10, true, 32, false, NEXT},
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

/* Rounds a row of 32 sums. */
static void write_row(const float *sums, char *out) {
    const __m512bh both = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(sums + ROW / 2), _mm512_loadu_ps(sums));
    _mm512_stream_si512((void *)out, (__m512i)both);
}

/* The results of 8 squares side by side. Rows of the result are 8 KB apart. */
static void write_panel(const float *panel, char *out) {
    for (int r = 0; r < ROWS; r++) {
        for (int i = 0; i < 8; i++) {
            write_row(panel + r * PANEL_ROW + i * ROW, out + r * 8192 + i * 64);
        }
    }
}

static inline __attribute__((always_inline)) double measure(const peak_case f, const char *memory, float *sums,
                                                            char *out) {
    const char *const rows = memory, *const lanes = memory + (1 << 20);
    float *const square = sums + PANEL;
    char *const unread = (char *)(square + 2 * ROWS * ROW);
    const double begin = now();
    size_t at = 0;
    for (int i = 0, n = 0; i < STEPS; i++) {
        const char *const r = rows + (f.rows ? (size_t)i * STEP % f.rows : 0);
        const char *const l = lanes + (f.lanes ? (size_t)i * STEP % f.lanes : 0);
        if (f.rows) {
            const bool stays = f.rows <= 32 << 10 || (f.rows == 64 << 10 && i % 32 < 16);
            if (stays) {
                _tile_loadd(4, r, 64);
                _tile_loadd(5, r + TILE, 64);
            } else {
                _tile_stream_loadd(4, r, 64);
                _tile_stream_loadd(5, r + TILE, 64);
            }
            if (f.stream) {
                _tile_stream_loadd(6, l, 64);
                _tile_stream_loadd(7, l + TILE, 64);
            } else {
                _tile_loadd(6, l, 64);
                _tile_loadd(7, l + TILE, 64);
            }
        }
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
        if (f.results == NEXT) {
            write_row(square + (n + 1) % 2 * ROWS * ROW + i % f.square * ROW, out + at + (size_t)(i % f.square) * 8192);
        }
        if (f.square && i % 4 == 3) {
            _tile_stored(7, unread, 64);
        }
        if (f.square && (i + 1) % f.square == 0) {
            float *const c = f.results == NEXT ? square + n % 2 * ROWS * ROW : sums + n % 8 * ROW;
            const size_t step = f.results == NEXT ? ROW : PANEL_ROW;
            _tile_stored(0, c, step * 4);
            _tile_stored(1, c + 16, step * 4);
            _tile_stored(2, c + 16 * step, step * 4);
            _tile_stored(3, c + 16 * step + 16, step * 4);
            n++;
            if (f.again && n % 16 >= 8) {
                const float *const next = sums + n % 8 * ROW;
                _tile_loadd(0, next, PANEL_ROW * 4);
                _tile_loadd(1, next + 16, PANEL_ROW * 4);
                _tile_loadd(2, next + 16 * PANEL_ROW, PANEL_ROW * 4);
                _tile_loadd(3, next + 16 * PANEL_ROW + 16, PANEL_ROW * 4);
            } else {
                _tile_zero(0);
                _tile_zero(1);
                _tile_zero(2);
                _tile_zero(3);
            }
            if (f.results == PANELS && n % 8 == 0) {
                write_panel(sums, out + at - 7 * 64);
            }
            at += 64;
            at = at % 8192 == 0 ? (at + 31 * 8192) % OUT_BYTES : at;
        }
    }
    return (now() - begin) / STEPS / 4;
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
    case 6: return measure(cases[6], memory, sums, out);
    case 7: return measure(cases[7], memory, sums, out);
    default: return measure(cases[8], memory, sums, out);
    }
}

static void *work(void *argument) {
    worker *w = argument;
    uint16_t *const memory = aligned_alloc(1 << 21, 1 << 21);
    float *const sums = aligned_alloc(4096, 64 << 10);
    char *const out = aligned_alloc(4096, OUT_BYTES);
    uint32_t state = 1;
    for (int i = 0; memory && i < 1 << 20; i++) {
        state = state * 1664525u + 1013904223u;
        memory[i] = (uint16_t)((state >> 31) << 15 | (120 + (state >> 20) % 8) << 7 | (state >> 8 & 127));
    }
    if (!memory || !sums || !out) {
        exit(1);
    }
    memset(sums, 0, 64 << 10);
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
        printf("%-46s", cases[c].name);
        for (int i = 0; i < threads; i++) {
            printf(" %6.2f", workers[i].least[c]);
        }
        puts(" ns");
    }
    return 0;
}
