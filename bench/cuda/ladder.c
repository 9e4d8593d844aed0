/* bench/cuda/ladder.c - the kernels of docs/cuda-softmax.md, step by step: each checked against the CPU, then timed.
 *
 *     cuda_ladder [ROUNDS]        default 30
 *
 * Prints the page's table. For each shape: the bytes that must move (each input read once, each result written once),
 * the time in which the device copies as many (its floor), and the median time of every algorithm over ROUNDS
 * launches, measured by events. Inputs rotate through more memory than the L2 cache holds; the algorithms take turns
 * within a round. Status 1: no CUDA device, or a result that is not the CPU's. */
#include "device.h"

#include <napier/cuda/softmax.h>
#include <stdbool.h>
#include <string.h>

enum { ALGORITHMS = 4, COLUMNS = ALGORITHMS + 1, MOST_ROUNDS = 1000, COPY = ALGORITHMS, PATTERN = 3999971 };

static const size_t ROTATE_BYTES = (size_t)256 << 20; /* several times an L2 cache */

typedef enum operation { SOFTMAX, LOG_SOFTMAX, LOGSUMEXP } operation;
static const char *const operation_name[] = {"softmax", "log_softmax", "logsumexp"};

typedef struct shape {
    operation op;
    napier_dtype dtype;
    int64_t rows, cols;
} shape;

static const shape shapes[] = {
    {SOFTMAX, NAPIER_F32, 1048576, 8},      {SOFTMAX, NAPIER_F32, 1048576, 64},
    {SOFTMAX, NAPIER_F32, 65536, 1024},     {SOFTMAX, NAPIER_BF16, 65536, 1024},
    {SOFTMAX, NAPIER_F32, 16384, 4096},     {SOFTMAX, NAPIER_BF16, 16384, 4096},
    {SOFTMAX, NAPIER_F32, 1024, 32768},     {SOFTMAX, NAPIER_BF16, 4096, 32768},
    {SOFTMAX, NAPIER_F32, 512, 151936},     {SOFTMAX, NAPIER_BF16, 1024, 151936},
    {SOFTMAX, NAPIER_BF16, 4096, 50257},    {SOFTMAX, NAPIER_F32, 1, 151936},
    {SOFTMAX, NAPIER_F32, 512, 262144},     {LOG_SOFTMAX, NAPIER_BF16, 1024, 151936},
    {LOGSUMEXP, NAPIER_BF16, 8192, 151936}, {SOFTMAX, NAPIER_F32, 1, 16777216},
    {LOGSUMEXP, NAPIER_F32, 1, 1 << 28},
};

/* ---- One shape --------------------------------------------------------------------------------------------------- */

typedef struct run {
    const shape *s;
    napier_cuda_context *device;
    size_t in_bytes, out_bytes;
    char *in, *out; /* `copies` inputs and results */
    int copies;
    napier_cuda_workspace workspace;
} run;

static napier_status call(run *r, napier_algorithm algorithm, int copy) {
    const shape *const s = r->s;
    const napier_softmax_options o = {sizeof o, 1.0, algorithm, NAPIER_MASKED_NAN};
    const napier_const_matrix x = napier_const_rows(r->in + (size_t)copy * r->in_bytes, s->rows, s->cols, s->dtype);
    char *const y = r->out + (size_t)copy * r->out_bytes;
    switch (s->op) {
    case SOFTMAX:
        return napier_cuda_softmax(r->device, NULL, &r->workspace, x, napier_rows(y, s->rows, s->cols, s->dtype), &o);
    case LOG_SOFTMAX:
        return napier_cuda_log_softmax(r->device, NULL, &r->workspace, x, napier_rows(y, s->rows, s->cols, s->dtype),
                                       &o);
    default: return napier_cuda_logsumexp(r->device, NULL, &r->workspace, x, napier_array(y, s->rows, s->dtype), &o);
    }
}

static void must_call(run *r, napier_algorithm algorithm, int copy) {
    if (call(r, algorithm, copy) != NAPIER_OK) {
        fprintf(stderr, "%s\n", napier_cuda_last_error(r->device));
        exit(1);
    }
}

/* Numbers near a normal distribution, 3 wide, from a small generator: some millions, then the same again, as the device waits. */
static void fill(char *data, napier_dtype dtype, int64_t n) {
    const int64_t made = n < PATTERN ? n : PATTERN;
    const size_t item = napier_dtype_size(dtype), bytes = (size_t)n * item;
    uint64_t state = 88172645463325252u;
    for (int64_t i = 0; i < made; i++) {
        int sum = 0;
        for (int k = 0; k < 4; k++) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            sum += (int)(state & 0xffff) - 32768;
        }
        const float x = (float)sum * (3.0f / 37837.0f);
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        if (dtype == NAPIER_F32) {
            ((uint32_t *)(void *)data)[i] = bits;
        } else {
            ((uint16_t *)(void *)data)[i] = (uint16_t)(bits >> 16);
        }
    }
    for (size_t had = (size_t)made * item; had < bytes; had *= 2) {
        memcpy(data + had, data, had < bytes - had ? had : bytes - had);
    }
}

/* The first row (or, for logsumexp, its result) as the CPU has it, with every algorithm. */
static bool same_as_host(run *r, const void *host_in, napier_context *host) {
    const shape *const s = r->s;
    const size_t row = r->in_bytes / (size_t)s->rows,
                 result = s->op == LOGSUMEXP ? r->out_bytes / (size_t)s->rows : row;
    char *const expected = host_new(result), *const got = host_new(result);
    const napier_const_matrix x = napier_const_rows(host_in, 1, s->cols, s->dtype);
    bool same = true;
    if (s->op == LOGSUMEXP) {
        same = napier_logsumexp(host, x, napier_array(expected, 1, s->dtype), NULL) == NAPIER_OK;
    } else {
        const napier_matrix y = napier_rows(expected, 1, s->cols, s->dtype);
        same = (s->op == SOFTMAX ? napier_softmax : napier_log_softmax)(host, x, y, NULL) == NAPIER_OK;
    }
    for (int a = 0; a < ALGORITHMS && same; a++) {
        must(cudaMemset(r->out, 0xa5, r->out_bytes), "cudaMemset");
        must_call(r, (napier_algorithm)a, 0);
        must(cudaMemcpy(got, r->out, result, cudaMemcpyDeviceToHost), "cudaMemcpy");
        same = memcmp(got, expected, result) == 0;
        if (!same) {
            fprintf(stderr, "algorithm %d: the first row is not the CPU's\n", a);
        }
    }
    free(expected);
    free(got);
    return same;
}

/* Medians of all algorithms and of a copy, in milliseconds. */
static void measure(run *r, int rounds, float *median) {
    static float times[COLUMNS][MOST_ROUNDS];
    const stopwatch watch = stopwatch_new();
    const size_t copied = (r->in_bytes + r->out_bytes) / 2; /* as many bytes read and written */
    for (int round = -3; round < rounds; round++) {         /* the first three warm up */
        for (int a = 0; a < COLUMNS; a++) {
            const int at = (round + 3) * COLUMNS + a, copy = at % r->copies, other = (at + 1) % r->copies;
            stopwatch_start(&watch);
            if (a == COPY) {
                const char *const from = r->in + (size_t)copy * r->in_bytes;
                char *const to =
                    copied <= r->out_bytes ? r->out + (size_t)copy * r->out_bytes : r->in + (size_t)other * r->in_bytes;
                must(cudaMemcpyAsync(to, from, copied, cudaMemcpyDeviceToDevice, NULL), "cudaMemcpyAsync");
            } else {
                must_call(r, (napier_algorithm)a, copy);
            }
            const float ms = stopwatch_stop(&watch);
            if (round >= 0) {
                times[a][round] = ms;
            }
        }
    }
    for (int a = 0; a < COLUMNS; a++) {
        median[a] = median_of(times[a], rounds);
    }
    stopwatch_free(&watch);
}

static size_t largest_workspace(run *r) {
    size_t most = 1;
    for (int a = 0; a < ALGORITHMS; a++) {
        r->workspace = (napier_cuda_workspace){NULL, 0};
        must_call(r, (napier_algorithm)a, 0);
        most = r->workspace.size > most ? r->workspace.size : most;
    }
    return most;
}

static bool climb(const shape *s, napier_cuda_context *device, napier_context *host, int rounds) {
    const size_t item = napier_dtype_size(s->dtype);
    run r = {.s = s, .device = device};
    r.in_bytes = (size_t)(s->rows * s->cols) * item;
    r.out_bytes = s->op == LOGSUMEXP ? (size_t)s->rows * item : r.in_bytes;
    r.copies = 2 + (int)(ROTATE_BYTES / (r.in_bytes + r.out_bytes));
    r.in = device_new(r.in_bytes * (size_t)r.copies);
    r.out = device_new(r.out_bytes * (size_t)r.copies);
    char *const input = host_new(r.in_bytes);
    fill(input, s->dtype, s->rows * s->cols);
    must(cudaMemcpy(r.in, input, r.in_bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
    for (int i = 1; i < r.copies; i++) {
        must(cudaMemcpy(r.in + (size_t)i * r.in_bytes, r.in, r.in_bytes, cudaMemcpyDeviceToDevice), "cudaMemcpy");
    }
    const size_t room = largest_workspace(&r);
    r.workspace = (napier_cuda_workspace){device_new(room), room};
    const bool same = same_as_host(&r, input, host);
    float ms[COLUMNS];
    measure(&r, rounds, ms);
    const float floor = ms[COPY];
    printf("| %s %lld x %lld %s | %.3g | %.4g |", operation_name[s->op], (long long)s->rows, (long long)s->cols,
           napier_dtype_name(s->dtype), (double)(r.in_bytes + r.out_bytes) * 1e-6, (double)floor);
    printf(" %.4g | %.4g | %.4g | %.4g | %.2f |%s\n", (double)ms[NAPIER_ALGORITHM_SAFE],
           (double)ms[NAPIER_ALGORITHM_ONLINE], (double)ms[NAPIER_ALGORITHM_PARALLEL],
           (double)ms[NAPIER_ALGORITHM_AUTO], (double)(ms[NAPIER_ALGORITHM_AUTO] / floor), same ? "" : " WRONG");
    free(input);
    must(cudaFree(r.in), "cudaFree");
    must(cudaFree(r.out), "cudaFree");
    must(cudaFree(r.workspace.data), "cudaFree");
    return same;
}

int main(int argc, char **argv) {
    const int rounds = argc > 1 ? atoi(argv[1]) : 30;
    if (rounds < 1 || rounds > MOST_ROUNDS) {
        fprintf(stderr, "usage: cuda_ladder [ROUNDS: 1 to %d]\n", MOST_ROUNDS);
        return 2;
    }
    if (napier_cuda_device_count() == 0) {
        fprintf(stderr, "no CUDA device\n");
        return 77;
    }
    napier_cuda_context *device = NULL;
    napier_context *host = NULL;
    if (napier_cuda_context_create(&device, -1) != NAPIER_OK || napier_context_create(&host, NULL) != NAPIER_OK) {
        fprintf(stderr, "no context\n");
        return 1;
    }
    bool same = true;
    puts("| | MB | copy, ms | safe | online | parallel | auto | auto / copy |");
    puts("|---|---|---|---|---|---|---|---|");
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        same &= climb(&shapes[i], device, host, rounds);
    }
    napier_context_destroy(host);
    napier_cuda_context_destroy(device);
    return same ? 0 : 1;
}
