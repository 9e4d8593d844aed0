/* tests/cuda/emulator/emulator.c - see emulator.h. A coroutine per thread of a cluster of blocks, on a stack of its
 * own; clusters run one after another. */
#define _GNU_SOURCE
#include "emulator.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "emulated_kernel.h"

enum { STACK = 256 << 10, WARP = 32, MOST_THREADS = 16 * 1024, SLOT = 64, COPIES = 256 };

typedef struct barrier {
    int expected, arrived;
    uint64_t generation;
    const char *what;
} barrier;

typedef struct warp {
    barrier all;
    unsigned char slots[2][WARP * SLOT];
} warp;

typedef struct copy {
    void *to;
    const void *from;
    int bytes; /* the rest of 16 becomes 0 */
    int64_t group;
} copy;

typedef struct thread {
    emulated_self self;
    void *stack;         /* lowest address */
    void *stack_pointer; /* while it does not run */
    const barrier *waits_for;
    uint64_t generation; /* of that barrier when it began to wait */
    bool finished;
    warp *warp;
    barrier *block;
    copy copies[COPIES];
    int copy_count;
    int64_t copy_group;
} thread;

static struct {
    const char *what;
    const emulated_launch *launch;
    thread *threads; /* made when first needed, and kept */
    int made;
    thread *running;
    void *stack_pointer; /* the scheduler's */
    barrier cluster;
    uint64_t seed, random;
} machine;

emulated_self *emulated;

static _Noreturn void fail(const char *text) {
    fprintf(stderr, "emulated device: %s: %s (block %u, thread %u)\n", machine.what, text,
            emulated ? emulated->block.x : 0, emulated ? emulated->thread.x : 0);
    abort();
}

/* ---- Coroutines ------------------------------------------------------------------------------------------------------ */

/* Saves the callee's registers and the stack pointer at *from, and goes on where `to` was saved. */
void emulated_switch(void **from, void *to);

#if defined(__x86_64__)
__asm__(".text\n"
        ".globl emulated_switch\n"
        "emulated_switch:\n"
        "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n    pushq %r13\n    pushq %r14\n    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n    popq %r14\n    popq %r13\n    popq %r12\n    popq %rbx\n    popq %rbp\n"
        "    ret\n");
enum { SAVED_WORDS = 6 };
#elif defined(__aarch64__)
__asm__(
    ".text\n"
    ".globl emulated_switch\n"
    "emulated_switch:\n"
    "    sub sp, sp, #160\n"
    "    stp x19, x20, [sp]\n    stp x21, x22, [sp, #16]\n    stp x23, x24, [sp, #32]\n    stp x25, x26, [sp, #48]\n"
    "    stp x27, x28, [sp, #64]\n    stp x29, x30, [sp, #80]\n    stp d8, d9, [sp, #96]\n    stp d10, d11, [sp, "
    "#112]\n"
    "    stp d12, d13, [sp, #128]\n    stp d14, d15, [sp, #144]\n"
    "    mov x9, sp\n    str x9, [x0]\n    mov sp, x1\n"
    "    ldp x19, x20, [sp]\n    ldp x21, x22, [sp, #16]\n    ldp x23, x24, [sp, #32]\n    ldp x25, x26, [sp, #48]\n"
    "    ldp x27, x28, [sp, #64]\n    ldp x29, x30, [sp, #80]\n    ldp d8, d9, [sp, #96]\n    ldp d10, d11, [sp, "
    "#112]\n"
    "    ldp d12, d13, [sp, #128]\n    ldp d14, d15, [sp, #144]\n"
    "    add sp, sp, #160\n"
    "    ret\n");
#else
#error "the emulated device switches stacks by hand: x86-64 and AArch64 only"
#endif

static void pause_thread(void) { emulated_switch(&machine.running->stack_pointer, machine.stack_pointer); }

/* What a coroutine runs; it never returns. */
static void thread_main(void) {
    machine.launch->kernel(machine.launch->job);
    if (machine.running->copy_count > 0) {
        fail("the thread ends before its asynchronous copies were waited for");
    }
    machine.running->finished = true;
    pause_thread();
    abort();
}

static void thread_begin(thread *t) {
    void **top = (void **)((char *)t->stack + STACK);
    void (*const start)(void) = thread_main;
#if defined(__x86_64__)
    *--top = NULL; /* where thread_main would return to; keeps the stack on 16 bytes at its call */
    memcpy(--top, &start, sizeof start);
    top -= SAVED_WORDS;
    memset(top, 0, SAVED_WORDS * sizeof *top);
#else
    top -= 20;
    memset(top, 0, 20 * sizeof *top);
    memcpy(&top[11], &start, sizeof start); /* x30 */
#endif
    t->stack_pointer = top;
    t->waits_for = NULL;
    t->finished = false;
    t->copy_count = 0;
    t->copy_group = 0;
}

static void make_threads(int count) {
    if (machine.threads == NULL) {
        machine.threads = calloc(MOST_THREADS, sizeof *machine.threads);
    }
    if (machine.threads == NULL || count > MOST_THREADS) {
        fail("too many threads for the emulated device");
    }
    for (; machine.made < count; machine.made++) {
        void *const stack =
            mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stack == MAP_FAILED) {
            fail("no memory for stacks");
        }
        machine.threads[machine.made].stack = stack;
    }
}

/* ---- Barriers --------------------------------------------------------------------------------------------------------- */

static void wait_at(barrier *b, const char *what) {
    if (b->arrived > 0 && strcmp(b->what, what) != 0) {
        fprintf(stderr, "emulated device: %s meets %s\n", what, b->what);
        fail("threads that must do the same together do not");
    }
    b->what = what;
    if (++b->arrived == b->expected) {
        b->arrived = 0;
        b->generation++;
        return;
    }
    thread *const t = machine.running;
    t->waits_for = b;
    t->generation = b->generation;
    pause_thread();
    t->waits_for = NULL;
}

void emulated_sync_block(void) { wait_at(machine.running->block, "__syncthreads"); }
void emulated_sync_cluster(void) { wait_at(&machine.cluster, "cluster_sync"); }

const void *emulated_exchange(const char *what, const void *mine, size_t size) {
    warp *const w = machine.running->warp;
    unsigned char *const all = w->slots[w->all.generation % 2];
    memcpy(all + SLOT * (machine.running->self.thread.x % WARP), mine, size);
    wait_at(&w->all, what);
    return all;
}

void *emulated_cluster_shared(void *p, int rank) {
    const thread *const t = machine.running;
    if (rank < 0 || rank >= t->self.cluster_size) {
        fail("no such block in the cluster");
    }
    const ptrdiff_t at = (unsigned char *)p - t->self.shared;
    const int first = rank * machine.launch->threads;
    return machine.threads[first].self.shared + at;
}

void emulated_check_threads(const char *kernel, int most) {
    machine.what = kernel;
    if ((int)emulated->block_size.x > most) {
        fail("more threads in the block than the kernel is for");
    }
}

void emulated_check_16(const char *what, const void *p) {
    if ((uintptr_t)p % 16 != 0) {
        fail(what);
    }
}

/* ---- Asynchronous copies ---------------------------------------------------------------------------------------------- */

void cuda_copy_async_16(void *shared, const void *global) { cuda_copy_async_part(shared, global, 16); }

void cuda_copy_async_part(void *shared, const void *global, int bytes) {
    thread *const t = machine.running;
    emulated_check_16("cuda_copy_async: shared is not on 16 bytes", shared);
    emulated_check_16("cuda_copy_async: global is not on 16 bytes", global);
    if (bytes < 0 || bytes > 16) {
        fail("cuda_copy_async_part: bytes outside 0..16");
    }
    if (t->copy_count == COPIES) {
        fail("more asynchronous copies in flight than the emulated device has room for");
    }
    t->copies[t->copy_count++] = (copy){shared, global, bytes, t->copy_group};
}

void cuda_copy_commit(void) { machine.running->copy_group++; }

void cuda_copy_wait(int groups) {
    thread *const t = machine.running;
    int kept = 0;
    for (int i = 0; i < t->copy_count; i++) {
        if (t->copies[i].group < t->copy_group - groups) {
            memset(t->copies[i].to, 0, 16);
            memcpy(t->copies[i].to, t->copies[i].from, (size_t)t->copies[i].bytes);
        } else {
            t->copies[kept++] = t->copies[i];
        }
    }
    t->copy_count = kept;
}

/* ---- Tensor cores -------------------------------------------------------------------------------------------------------- */

static double bf16_value(uint32_t half) {
    const uint32_t bits = half << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return (double)x;
}

static double f16_value(uint32_t half) {
    const int exponent = (int)(half >> 10 & 31), mantissa = (int)(half & 1023);
    const double magnitude = exponent == 31  ? (double)(mantissa ? NAN : INFINITY)
                             : exponent == 0 ? ldexp(mantissa, -24)
                                             : ldexp(1024 + mantissa, exponent - 25);
    return half & 0x8000 ? -magnitude : magnitude;
}

typedef struct fragments {
    uint32_t a[4], b[2];
} fragments;

/* Lane 4 g + t of mma.m16n8k16 holds a: rows g, g + 8 and columns 2t, 2t + 1, 2t + 8, 2t + 9; b: column g and rows as
 * a's columns; d: rows g, g + 8 and columns 2t, 2t + 1. */
static void mma(float d[4], const uint32_t a[4], const uint32_t b[2], const char *what, double (*value)(uint32_t)) {
    fragments mine;
    memcpy(mine.a, a, sizeof mine.a);
    memcpy(mine.b, b, sizeof mine.b);
    const char *const all = emulated_exchange(what, &mine, sizeof mine);
    const int g = emulated_lane() / 4, t = emulated_lane() % 4;
    for (int i = 0; i < 4; i++) {
        const int row_half = i / 2, column = 2 * t + i % 2;
        double sum = (double)d[i];
        for (int k = 0; k < 16; k++) {
            const int word = k / 8, pair = k % 8 / 2;
            fragments left, right;
            memcpy(&left, all + SLOT * (4 * g + pair), sizeof left);
            memcpy(&right, all + SLOT * (4 * column + pair), sizeof right);
            const int shift = 16 * (k % 2);
            sum += value(left.a[2 * word + row_half] >> shift & 0xffff) * value(right.b[word] >> shift & 0xffff);
        }
        d[i] = (float)sum;
    }
}

void cuda_mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2]) { mma(d, a, b, "mma bf16", bf16_value); }
void cuda_mma_f16(float d[4], const uint32_t a[4], const uint32_t b[2]) { mma(d, a, b, "mma f16", f16_value); }

/* Four matrices of 8 x 8: lane 8 m + r names row r of matrix m; lane 4 g + t receives of each row g, columns 2t, 2t + 1. */
static void ldmatrix(uint32_t out[4], const void *row, const char *what, bool turned) {
    emulated_check_16(what, row);
    uint16_t mine[8];
    memcpy(mine, row, sizeof mine);
    const char *const all = emulated_exchange(what, mine, sizeof mine);
    const int g = emulated_lane() / 4, t = emulated_lane() % 4;
    for (int m = 0; m < 4; m++) {
        uint16_t pair[2];
        for (int i = 0; i < 2; i++) {
            const int r = turned ? 2 * t + i : g, c = turned ? g : 2 * t + i;
            memcpy(&pair[i], all + SLOT * (8 * m + r) + 2 * c, sizeof pair[i]);
        }
        out[m] = pair[0] | (uint32_t)pair[1] << 16;
    }
}

void cuda_ldmatrix_x4(uint32_t out[4], const void *row) { ldmatrix(out, row, "ldmatrix", false); }
void cuda_ldmatrix_x4_turned(uint32_t out[4], const void *row) { ldmatrix(out, row, "ldmatrix turned", true); }

/* ---- The schedule ---------------------------------------------------------------------------------------------------------- */

static uint64_t next_random(void) {
    machine.random = machine.random * 6364136223846793005u + 1442695040888963407u;
    return machine.random >> 33;
}

void emulated_order(uint64_t seed) {
    machine.seed = seed;
    machine.random = seed;
}

/* order[0..n) := 0..n-1, as the seed says. */
static void put_in_order(int64_t *order, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        order[i] = machine.seed == 1 ? n - 1 - i : i;
    }
    for (int64_t i = n - 1; i > 0 && machine.seed > 1; i--) {
        const int64_t j = (int64_t)(next_random() % (uint64_t)(i + 1)), swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
}

static bool can_run(const thread *t) {
    return !t->finished && (t->waits_for == NULL || t->waits_for->generation != t->generation);
}

/* Runs `count` threads until all have ended. */
static void run_threads(int count) {
    static int64_t order[MOST_THREADS];
    for (int left = count; left > 0;) {
        bool moved = false;
        put_in_order(order, count);
        for (int i = 0; i < count; i++) {
            thread *const t = &machine.threads[order[i]];
            if (can_run(t)) {
                machine.running = t;
                emulated = &t->self;
                emulated_switch(&machine.stack_pointer, t->stack_pointer);
                left -= t->finished;
                moved = true;
            }
        }
        if (!moved) {
            fail("threads wait for others that have ended, or wait elsewhere");
        }
    }
}

typedef struct emulated_block {
    barrier all;
    warp *warps;
    unsigned char *shared;
} emulated_block;

static void *claim(size_t size) {
    void *memory = NULL;
    if (posix_memalign(&memory, 128, size > 0 ? size : 1) != 0) {
        fail("no memory");
    }
    return memory;
}

static void block_begin(emulated_block *b, int rank, uint32_t x, uint32_t y) {
    const emulated_launch *const l = machine.launch;
    const int warps = l->threads / WARP;
    memset(&b->all, 0, sizeof b->all);
    b->all.expected = l->threads;
    for (int i = 0; i < warps; i++) {
        memset(&b->warps[i], 0, sizeof b->warps[i]);
        b->warps[i].all.expected = WARP;
    }
    memset(b->shared, 0xcb, (size_t)l->shared_bytes);
    for (int i = 0; i < l->threads; i++) {
        thread *const t = &machine.threads[rank * l->threads + i];
        t->self = (emulated_self){.thread = {(uint32_t)i, 0, 0},
                                  .block = {x, y, 0},
                                  .block_size = {(uint32_t)l->threads, 1, 1},
                                  .grid_size = {(uint32_t)l->blocks, (uint32_t)l->blocks_y, 1},
                                  .shared = b->shared,
                                  .cluster_rank = rank,
                                  .cluster_size = l->cluster};
        t->warp = &b->warps[i / WARP];
        t->block = &b->all;
        thread_begin(t);
    }
}

void emulated_run(const char *what, const emulated_launch *l) {
    machine.what = what;
    machine.launch = l;
    if (l->threads <= 0 || l->threads > 1024 || l->threads % WARP != 0 || l->blocks % l->cluster != 0) {
        fail("a block of no, too many or not whole warps of threads, or a grid of no whole clusters");
    }
    make_threads(l->cluster * l->threads);
    emulated_block *const blocks = claim((size_t)l->cluster * sizeof *blocks);
    for (int i = 0; i < l->cluster; i++) {
        blocks[i].warps = claim((size_t)(l->threads / WARP) * sizeof *blocks[i].warps);
        blocks[i].shared = claim((size_t)l->shared_bytes); /* no byte more: AddressSanitizer sees the end */
    }
    const int64_t clusters = l->blocks / l->cluster * l->blocks_y;
    int64_t *const order = claim((size_t)clusters * sizeof *order);
    put_in_order(order, clusters);
    for (int64_t c = 0; c < clusters; c++) {
        const int64_t first = order[c] * l->cluster;
        memset(&machine.cluster, 0, sizeof machine.cluster);
        machine.cluster.expected = l->cluster * l->threads;
        for (int i = 0; i < l->cluster; i++) {
            block_begin(&blocks[i], i, (uint32_t)((first + i) % l->blocks), (uint32_t)(first / l->blocks));
        }
        run_threads(l->cluster * l->threads);
    }
    for (int i = 0; i < l->cluster; i++) {
        free(blocks[i].warps);
        free(blocks[i].shared);
    }
    free(blocks);
    free(order);
    emulated = NULL;
}
