/* bench/worker.c - the lines between driver and C worker, and the memory both sides agree on; see worker.h.
 * Buffers are private, on 2 MiB boundaries, in huge pages where the system allows, and touched before use. */
#define _GNU_SOURCE
#include "worker.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HUGE_PAGE = 2 << 20, LINE = 4096 };

typedef struct buffer {
    char *data;
    void *map;
    size_t room, map_bytes;
    char source[LINE]; /* the file whose bytes it holds, "" for none */
    bool shared;
} buffer;

static void buffer_free(buffer *const b) {
    if (b->map)
        munmap(b->map, b->map_bytes);
    memset(b, 0, sizeof *b);
}

static bool buffer_map(buffer *const b, const size_t bytes, const int flags, const int file) {
    b->map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, file, 0);
    if (b->map == MAP_FAILED) {
        memset(b, 0, sizeof *b);
        return false;
    }
    b->map_bytes = bytes;
    return true;
}

/* Private memory. Keeps a buffer that is large enough and not much too large. */
static bool buffer_take(buffer *const b, const size_t bytes) {
    const size_t room = (bytes / HUGE_PAGE + 1) * HUGE_PAGE;
    if (!b->shared && b->room >= room && b->room <= 4 * room + ((size_t)64 << 20))
        return true;
    buffer_free(b);
    if (!buffer_map(b, room + HUGE_PAGE, MAP_PRIVATE | MAP_ANONYMOUS, -1))
        return false;
    b->data = (char *)(((uintptr_t)b->map + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
    b->room = room;
    madvise(b->data, room, MADV_HUGEPAGE);
    memset(b->data, 0, room);
    return true;
}

/* A mapping of a file, which must be as large as we need. */
static bool buffer_share(buffer *const b, const size_t bytes, const char *const path) {
    if (b->shared && strcmp(b->source, path) == 0 && b->map_bytes >= bytes)
        return true;
    buffer_free(b);
    const int file = open(path, O_RDWR);
    if (file < 0)
        return false;
    const bool good = buffer_map(b, bytes, MAP_SHARED | MAP_POPULATE, file);
    close(file);
    if (!good)
        return false;
    b->data = b->map;
    b->shared = true;
    strcpy(b->source, path);
    return true;
}

/* A private copy of a file, unless the buffer holds that already. */
static bool buffer_copy(buffer *const b, const size_t bytes, const char *const path) {
    if (!buffer_take(b, bytes))
        return false;
    if (strcmp(b->source, path) == 0)
        return true;
    b->source[0] = 0;
    FILE *const f = fopen(path, "rb");
    if (!f)
        return false;
    const bool whole = fread(b->data, 1, bytes, f) == bytes;
    fclose(f);
    if (whole)
        strcpy(b->source, path);
    return whole;
}

/* The rows k * rows / samples of the result, one after the other. */
static bool write_samples(const char *const path, const bench_job *const job, const int64_t samples) {
    FILE *const f = fopen(path, "wb");
    if (!f)
        return false;
    const char *const out = job->out;
    bool good = true;
    if (job->op == BENCH_LOGSUMEXP_ALL)
        good = fwrite(out, job->item, 1, f) == 1;
    for (int64_t k = 0; good && job->op != BENCH_LOGSUMEXP_ALL && k < samples; k++) {
        const int64_t row = k * job->rows / samples;
        if (job->op == BENCH_LOGSUMEXP) {
            good = fwrite(out + (size_t)row * job->item, job->item, 1, f) == 1;
        } else if (!job->first_axis) {
            good = fwrite(out + (size_t)(row * job->cols) * job->item, job->item, (size_t)job->cols, f) ==
                   (size_t)job->cols;
        } else {
            for (int64_t j = 0; good && j < job->cols; j++) {
                good = fwrite(out + (size_t)(j * job->rows + row) * job->item, job->item, 1, f) == 1;
            }
        }
    }
    return fclose(f) == 0 && good;
}

static bool parse_job(bench_job *const job, const char *const line, char *const in, char *const out) {
    char op[32], dtype[8], axis[8];
    long long rows, cols;
    if (sscanf(line, "prepare %31s %7s %7s %lld %lld %4095s %4095s", op, dtype, axis, &rows, &cols, in, out) != 7) {
        return false;
    }
    static const char *const ops[] = {"softmax", "log_softmax", "logsumexp", "logsumexp_all"};
    int which = 0;
    while (which < 4 && strcmp(op, ops[which]) != 0)
        which++;
    if (which == 4)
        return false;
    job->op = (bench_op)which;
    job->bf16 = strcmp(dtype, "bf16") == 0;
    job->first_axis = strcmp(axis, "first") == 0;
    job->rows = rows;
    job->cols = cols;
    job->item = job->bf16 ? 2 : 4;
    job->in_bytes = (size_t)(rows * cols) * job->item;
    job->out_bytes = job->op == BENCH_LOGSUMEXP       ? (size_t)rows * job->item
                     : job->op == BENCH_LOGSUMEXP_ALL ? job->item
                                                      : job->in_bytes;
    return true;
}

static int variant_of(const bench_peer *const peer, const char *const name) {
    for (int k = 0; peer->variants[k]; k++) {
        if (strcmp(peer->variants[k], name) == 0)
            return k;
    }
    return -1;
}

static void answer_prepare(const bench_peer *const peer, bench_job *const job, buffer *const in, buffer *const out,
                           const char *const line) {
    char in_path[LINE], out_path[LINE];
    if (!parse_job(job, line, in_path, out_path)) {
        puts("skip bad line");
        return;
    }
    const bool share = strcmp(out_path, "-") != 0;
    const bool good = share ? buffer_share(in, job->in_bytes, in_path) && buffer_share(out, job->out_bytes, out_path)
                            : buffer_copy(in, job->in_bytes, in_path) && buffer_take(out, job->out_bytes);
    if (!good) {
        job->in = NULL;
        puts("skip no memory, or the input cannot be read");
        return;
    }
    job->in = in->data;
    job->out = out->data;
    const char *const reason = peer->prepare(job);
    if (reason) {
        printf("skip %s\n", reason);
        return;
    }
    fputs("ready", stdout);
    for (int k = 0; peer->variants[k]; k++)
        printf(" %s", peer->variants[k]);
    puts("");
}

static void answer_check(const bench_peer *const peer, const bench_job *const job, const char *const line) {
    char name[64], path[LINE];
    long long samples;
    if (sscanf(line, "check %63s %lld %4095s", name, &samples, path) != 3 || variant_of(peer, name) < 0) {
        puts("error bad line");
        return;
    }
    const double seconds = peer->run(job, variant_of(peer, name));
    if (seconds < 0)
        puts("error the run failed");
    else if (!write_samples(path, job, samples))
        puts("error cannot write the result");
    else
        printf("done %.9g\n", seconds);
}

static void answer_go(const bench_peer *const peer, const bench_job *const job, const char *const line) {
    char name[64];
    int count;
    if (sscanf(line, "go %63s %d", name, &count) != 2 || variant_of(peer, name) < 0 || count < 1) {
        puts("error bad line");
        return;
    }
    const int variant = variant_of(peer, name);
    double *const times = malloc((size_t)count * sizeof *times);
    bool good = times != NULL && peer->run(job, variant) >= 0; /* one run to wake threads and caches, not counted */
    for (int k = 0; good && k < count; k++)
        good = (times[k] = peer->run(job, variant)) >= 0;
    if (good) {
        fputs("times", stdout);
        for (int k = 0; k < count; k++)
            printf(" %.9g", times[k]);
        puts("");
    } else {
        puts("error the run failed");
    }
    free(times);
}

int bench_serve(const int argc, char **const argv, bench_peer *const peer) {
    bench_job job = {0};
    job.threads = argc > 1 ? atoi(argv[1]) : 1;
    const char *const reason = peer->start(job.threads);
    if (reason) {
        printf("sorry %s\n", reason);
        return 1;
    }
    printf("hello %s %s\n", peer->name, peer->version);
    fflush(stdout);
    static buffer in, out;
    static char line[3 * LINE];
    while (fgets(line, sizeof line, stdin) && strncmp(line, "quit", 4) != 0) {
        if (strncmp(line, "prepare ", 8) == 0) {
            answer_prepare(peer, &job, &in, &out, line);
        } else if (job.in && strncmp(line, "check ", 6) == 0) {
            answer_check(peer, &job, line);
        } else if (job.in && strncmp(line, "go ", 3) == 0) {
            answer_go(peer, &job, line);
        } else if (strncmp(line, "release", 7) == 0) {
            buffer_free(&in);
            buffer_free(&out);
            job.in = NULL;
            puts("done");
        } else {
            puts("error unknown line");
        }
        fflush(stdout);
    }
    buffer_free(&in);
    buffer_free(&out);
    return 0;
}
