/* matmul_worker - napier_matmul for bench_matmul.py: one product for every line read, and its seconds on a line.
 *
 *     matmul_worker M K N f32|bf16 THREADS wall|cpu */
#define _POSIX_C_SOURCE 200809L
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <napier/linear.h>

static double seconds(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *numbers(int64_t count, napier_dtype dtype) {
    const size_t size = napier_dtype_size(dtype);
    unsigned char *x = aligned_alloc(64, ((size_t)count * size + 63) / 64 * 64);
    uint32_t state = 1;
    for (int64_t i = 0; x && i < count; i++) {
        state = state * 1664525u + 1013904223u;
        const float value = (float)(int32_t)state * 0x1p-31f;
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        bits >>= dtype == NAPIER_F32 ? 0 : 16;
        memcpy(x + (size_t)i * size, &bits, size); /* little-endian, as all machines with a peer are */
    }
    return x;
}

int main(int count, char **words) {
    if (count != 7) {
        fprintf(stderr, "matmul_worker M K N f32|bf16 THREADS wall|cpu\n");
        return 2;
    }
    const int64_t m = atoll(words[1]), k = atoll(words[2]), n = atoll(words[3]);
    const napier_dtype dtype = strcmp(words[4], "bf16") == 0 ? NAPIER_BF16 : NAPIER_F32;
    const clockid_t clock = strcmp(words[6], "cpu") == 0 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC;
    napier_context_options options = NAPIER_CONTEXT_OPTIONS_INIT;
    options.threads = atoi(words[5]);
    napier_context *context = NULL;
    void *a = numbers(m * k, dtype), *weights = numbers(n * k, dtype), *product = numbers(m * n, NAPIER_F32);
    if (napier_context_create(&context, &options) || !a || !weights || !product) {
        fprintf(stderr, "matmul_worker: no context or no memory\n");
        return 1;
    }
    char line[16];
    while (fgets(line, sizeof line, stdin)) {
        const double start = seconds(clock);
        if (napier_matmul(context, napier_const_rows(a, m, k, dtype),
                          napier_const_transposed(napier_const_rows(weights, n, k, dtype)),
                          napier_rows_f32(product, m, n))) {
            fprintf(stderr, "matmul_worker: %s\n", napier_last_error(context));
            return 1;
        }
        printf("%.9f\n", seconds(clock) - start);
        fflush(stdout);
    }
    napier_context_destroy(context);
    free(a);
    free(weights);
    free(product);
    return 0;
}
