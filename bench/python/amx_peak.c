/* amx_peak.c - the peak of x86's matrix engine for bf16 (AMX): nanoseconds of a TDPBF16PS on random numbers, alone and with
 * the loads of a product of 2 x 2 tiles, in each of some threads at once; and the price of storing tiles rarely.
 *
 *     cc -O2 -march=sapphirerapids -pthread bench/python/amx_peak.c -o amx_peak && ./amx_peak 2 */
#define _GNU_SOURCE
#include <immintrin.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { TILE = 1024, STEP = 2 * TILE, STEPS = 1 << 15, ROUNDS = 15, CASES = 6, MOST_THREADS = 64 };

typedef struct floor_case {
    const char *name;
    size_t rows, lanes; /* bytes that are read again and again; 0: no loads */
    int store_steps;    /* four tiles are stored each so many steps; 0: never */
    int unread_steps;   /* the same for one tile more */
} floor_case;

static const floor_case cases[CASES] = {
    {"multiplications alone", 0, 0, 0, 0},
    {"both operands in the first-level cache", 16 << 10, 16 << 10, 0, 0},
    {"one in the second-level cache", 16 << 10, 512 << 10, 0, 0},
    {"both in the second-level cache", 512 << 10, 512 << 10, 0, 0},
    {"one in the second, sums stored each 32 steps", 16 << 10, 512 << 10, 32, 0},
    {"the same, and a tile each 4 steps", 16 << 10, 512 << 10, 32, 4},
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

static double measure(const floor_case *f, const char *memory, char *sums) {
    const char *const rows = memory, *const lanes = memory + (1 << 20);
    const double begin = now();
    for (int i = 0; i < STEPS; i++) {
        const char *const r = rows + (f->rows ? (size_t)i * STEP % f->rows : 0);
        const char *const l = lanes + (f->lanes ? (size_t)i * STEP % f->lanes : 0);
        if (f->rows) {
            _tile_loadd(4, r, 64);
            _tile_loadd(6, l, 64);
            _tile_loadd(7, l + TILE, 64);
            _tile_loadd(5, r + TILE, 64);
        }
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
        if (f->unread_steps && (i + 1) % f->unread_steps == 0) {
            _tile_stored(7, sums + 4 * TILE, 64);
        }
        if (f->store_steps && (i + 1) % f->store_steps == 0) {
            _tile_stored(0, sums, 64);
            _tile_stored(1, sums + TILE, 64);
            _tile_stored(2, sums + 2 * TILE, 64);
            _tile_stored(3, sums + 3 * TILE, 64);
        }
    }
    return (now() - begin) / STEPS / 4;
}

static void *work(void *argument) {
    worker *w = argument;
    uint16_t *const memory = aligned_alloc(1 << 21, 1 << 21);
    char *const sums = aligned_alloc(4096, 8 * TILE);
    uint32_t state = 1;
    for (int i = 0; memory && i < 1 << 20; i++) {
        state = state * 1664525u + 1013904223u;
        memory[i] = (uint16_t)((state >> 31) << 15 | (120 + (state >> 20) % 8) << 7 | (state >> 8 & 127));
    }
    if (!memory || !sums) {
        exit(1);
    }
    configure();
    for (int c = 0; c < CASES; c++) {
        pthread_barrier_wait(w->together);
        w->least[c] = 1e9;
        for (int i = 0; i < ROUNDS; i++) {
            _tile_loadd(4, memory, 64);
            _tile_loadd(5, memory + 512, 64);
            _tile_loadd(6, memory + 1024, 64);
            _tile_loadd(7, memory + 1536, 64);
            _tile_zero(0);
            _tile_zero(1);
            _tile_zero(2);
            _tile_zero(3);
            const double ns = measure(&cases[c], (const char *)memory, sums);
            w->least[c] = ns < w->least[c] ? ns : w->least[c];
        }
    }
    _tile_release();
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
