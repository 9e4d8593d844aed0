/* attention_worker - napier_attention and its backward for bench_attention.py, driven by lines on stdin.
 *
 *     attention_worker FOLDER QUERIES KEYS HEADS KV_HEADS DIM CAUSAL THREADS
 *
 * FOLDER holds q, k, v and grad as f32, [heads, tokens, dim]. A line `forward` or `backward` is one call, answered by its
 * seconds by the clock and of processor time; `write` puts output, grad_q, grad_k and grad_v into FOLDER; `peak` answers
 * the most memory of the process, in bytes. */
#define _GNU_SOURCE
#include <malloc.h>
#include <napier/attention.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *folder;

static _Noreturn void give_up(const char *what, const char *detail) {
    fprintf(stderr, "attention_worker: %s %s\n", what, detail);
    exit(1);
}

static FILE *open_file(const char *name, const char *mode) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *const file = fopen(path, mode);
    if (!file) {
        give_up("cannot open", path);
    }
    return file;
}

static napier_heads heads_of(int64_t heads, int64_t tokens, int64_t dim) {
    float *const data = aligned_alloc(64, (size_t)(heads * tokens * dim) * sizeof *data / 64 * 64 + 64);
    if (!data) {
        give_up("out of", "memory");
    }
    memset(data, 0, (size_t)(heads * tokens * dim) * sizeof *data);
    return (napier_heads){data, tokens, heads, dim, dim, tokens * dim, 1, NAPIER_F32};
}

static size_t count_of(napier_heads x) { return (size_t)(x.tokens * x.heads * x.dim); }

static napier_const_heads read_heads(const char *name, int64_t heads, int64_t tokens, int64_t dim) {
    const napier_heads x = heads_of(heads, tokens, dim);
    FILE *const file = open_file(name, "rb");
    if (fread(x.data, sizeof(float), count_of(x), file) != count_of(x)) {
        give_up("too short:", name);
    }
    fclose(file);
    return (napier_const_heads){x.data, x.tokens, x.heads, x.dim, x.token_stride, x.head_stride, x.dim_stride, x.dtype};
}

static void write_heads(const char *name, napier_heads x) {
    FILE *const file = open_file(name, "wb");
    if (fwrite(x.data, sizeof(float), count_of(x), file) != count_of(x) || fclose(file) != 0) {
        give_up("cannot write", name);
    }
}

static double seconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

typedef struct job {
    napier_context *context;
    napier_const_heads q, k, v, grad;
    napier_heads output, grad_q, grad_k, grad_v;
    napier_matrix lse;
    napier_attention_options options;
} job;

static napier_const_heads read_only(napier_heads h) {
    return (napier_const_heads){h.data, h.tokens, h.heads, h.dim, h.token_stride, h.head_stride, h.dim_stride, h.dtype};
}

static void run(const job *j, int backward) {
    const double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
    const napier_status status =
        backward ? napier_attention_backward(j->context, j->grad, j->q, j->k, j->v, read_only(j->output),
                                             napier_read_only(j->lse), j->grad_q, j->grad_k, j->grad_v, &j->options)
                 : napier_attention(j->context, j->q, j->k, j->v, j->output, j->lse, &j->options);
    if (status) {
        give_up(napier_status_string(status), napier_last_error(j->context));
    }
    printf("%.9f %.9f\n", seconds(CLOCK_MONOTONIC) - wall, seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu);
}

static long long peak_bytes(void) {
    char line[256];
    long long kib = 0;
    FILE *const status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status)) {
        sscanf(line, "VmHWM: %lld", &kib);
    }
    if (status) {
        fclose(status);
    }
    return 1024 * kib;
}

static job job_of(char **words) {
    const int64_t queries = atoll(words[0]), keys = atoll(words[1]), heads = atoll(words[2]);
    const int64_t kv_heads = atoll(words[3]), dim = atoll(words[4]);
    napier_context_options context_options = NAPIER_CONTEXT_OPTIONS_INIT;
    const napier_attention_options options = NAPIER_ATTENTION_OPTIONS_INIT;
    job j = {.q = read_heads("q", heads, queries, dim),
             .k = read_heads("k", kv_heads, keys, dim),
             .v = read_heads("v", kv_heads, keys, dim),
             .grad = read_heads("grad", heads, queries, dim),
             .output = heads_of(heads, queries, dim),
             .grad_q = heads_of(heads, queries, dim),
             .grad_k = heads_of(kv_heads, keys, dim),
             .grad_v = heads_of(kv_heads, keys, dim),
             .lse = napier_rows_f32(heads_of(heads, queries, 1).data, queries, heads),
             .options = options};
    j.options.causal = atoi(words[5]);
    context_options.threads = atoi(words[6]);
    if (napier_context_create(&j.context, &context_options)) {
        give_up("no", "context");
    }
    return j;
}

int main(int count, char **words) {
    char line[64];
    if (count != 9) {
        give_up("wrong number of", "arguments");
    }
    mallopt(M_MMAP_THRESHOLD, 1 << 30); /* as PyTorch, keep and reuse memory between calls */
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    folder = words[1];
    const job j = job_of(words + 2);
    while (fgets(line, sizeof line, stdin)) {
        if (strcmp(line, "write\n") == 0) {
            write_heads("output", j.output);
            write_heads("grad_q", j.grad_q);
            write_heads("grad_k", j.grad_k);
            write_heads("grad_v", j.grad_v);
            printf("done\n");
        } else if (strcmp(line, "peak\n") == 0) {
            printf("%lld\n", peak_bytes());
        } else {
            run(&j, line[0] == 'b');
        }
        fflush(stdout);
    }
    napier_context_destroy(j.context);
    return 0;
}
