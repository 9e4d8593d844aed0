/* bench/workers/worker.c - the lines between the driver and a C worker, and its memory; see worker.h. */
#define _GNU_SOURCE
#include "worker.h"

#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { HUGE_PAGE = 2 << 20, LINE = 4096, ARRAYS = 24, FIGURES = 16 };

typedef struct array {
    char name[32];
    char *data;
    size_t bytes;
    void *map;
    size_t map_bytes;
    bool result, shared, used; /* used: asked for in the last run */
} array;

static array arrays[ARRAYS];
static const bench_case *current;
static char job[LINE]; /* the prepare line */
static struct {
    const char *name;
    double value;
} figures[FIGURES];
static int figure_count;
static long long resident; /* bytes at the last `fresh` */

static double seconds(const clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double bench_now(void) { return seconds(CLOCK_MONOTONIC); }

/* ---- Arrays ------------------------------------------------------------------------------------------------------ */

static void array_free(array *const a) {
    if (a->map) {
        munmap(a->map, a->map_bytes);
    }
    memset(a, 0, sizeof *a);
}

static array *array_named(const char *const name) {
    for (int k = 0; k < ARRAYS; k++) {
        if (strcmp(arrays[k].name, name) == 0 && arrays[k].name[0]) {
            return &arrays[k];
        }
    }
    return NULL;
}

/* An array of that name without memory, in place of the one that has it now. */
static array *array_new(const char *const name) {
    array *a = array_named(name);
    for (int k = 0; !a && k < ARRAYS; k++) {
        if (!arrays[k].name[0]) {
            a = &arrays[k];
        }
    }
    if (a) {
        array_free(a);
        snprintf(a->name, sizeof a->name, "%s", name);
    }
    return a;
}

static bool array_map(array *const a, const size_t bytes, const int flags, const int file) {
    void *const map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, file, 0);
    if (map == MAP_FAILED) {
        return false;
    }
    a->map = map;
    a->map_bytes = bytes;
    a->data = map;
    return true;
}

/* Private memory, touched, and whole kibibytes as the floors want them. */
static bool array_take(array *const a, const size_t bytes) {
    const size_t size = (bytes / HUGE_PAGE + 1) * HUGE_PAGE;
    if (!array_map(a, size + HUGE_PAGE, MAP_PRIVATE | MAP_ANONYMOUS, -1)) {
        return false;
    }
    a->data = (char *)(((uintptr_t)a->map + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
    a->bytes = bytes;
    madvise(a->data, size, MADV_HUGEPAGE);
    memset(a->data, 0, size);
    return true;
}

static bool array_read(array *const a, const size_t bytes, const int file) {
    if (!array_take(a, bytes)) {
        return false;
    }
    for (size_t done = 0; done < bytes;) {
        const ssize_t part = read(file, a->data + done, bytes - done);
        if (part <= 0) {
            return false;
        }
        done += (size_t)part;
    }
    return true;
}

static bool array_share(array *const a, const size_t bytes, const int file) {
    a->bytes = bytes;
    a->shared = true;
    return array_map(a, bytes, MAP_SHARED | MAP_POPULATE, file);
}

static bool array_write(const array *const a, const char *const prefix) {
    char path[LINE + 64];
    snprintf(path, sizeof path, "%s.%.31s", prefix, a->name);
    FILE *const file = fopen(path, "wb");
    const bool good = file && fwrite(a->data, 1, a->bytes, file) == a->bytes;
    return file && fclose(file) == 0 && good;
}

static void forget_results(void) {
    for (int k = 0; k < ARRAYS; k++) {
        if (arrays[k].result && !arrays[k].shared) {
            array_free(&arrays[k]);
        }
    }
}

/* ---- For cases --------------------------------------------------------------------------------------------------- */

const char *bench_text(const char *const key) {
    static char values[4][256];
    static int next;
    char *const value = values[next++ % 4];
    const size_t length = strlen(key);
    value[0] = 0;
    for (const char *at = strchr(job, ' '); at; at = strchr(at + 1, ' ')) {
        if (strncmp(at + 1, key, length) == 0 && at[1 + length] == '=') {
            sscanf(at + length + 2, "%255s", value);
        }
    }
    return value;
}

int64_t bench_number(const char *const key) { return strtoll(bench_text(key), NULL, 10); }

bool bench_is(const char *const key, const char *const value) { return strcmp(bench_text(key), value) == 0; }

const void *bench_input(const char *const name) {
    const array *const a = array_named(name);
    return a ? a->data : NULL;
}

size_t bench_input_bytes(const char *const name) {
    const array *const a = array_named(name);
    return a ? a->bytes : 0;
}

void *bench_result(const char *const name, const size_t bytes) {
    array *a = array_named(name);
    if (!a) {
        a = array_new(name);
        if (!a || !array_take(a, bytes)) {
            return NULL;
        }
    }
    a->result = a->used = true;
    return a->data;
}

void bench_figure(const char *const name, const double value) {
    int k = 0;
    while (k < figure_count && strcmp(figures[k].name, name) != 0) {
        k++;
    }
    if (k == FIGURES) {
        return;
    }
    figures[k].name = name;
    figures[k].value = value;
    figure_count = k < figure_count ? figure_count : k + 1;
}

/* ---- Lines ------------------------------------------------------------------------------------------------------- */

/* A line of /proc/self/status in bytes. */
static long long own_memory(const char *const what) {
    char line[256];
    long long kib = 0;
    FILE *const file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, what, strlen(what)) == 0) {
            kib = atoll(line + strlen(what));
        }
    }
    if (file) {
        fclose(file);
    }
    return kib * 1024;
}

static void answer_load(const char *const line, const bool share) {
    char name[32], path[LINE];
    struct stat about;
    if (sscanf(line, "%*s %31s %4095s", name, path) != 2) {
        puts("error bad line");
        return;
    }
    array *const a = array_new(name);
    const int file = open(path, share ? O_RDWR : O_RDONLY);
    const bool good = a && file >= 0 && fstat(file, &about) == 0 &&
                      (share ? array_share : array_read)(a, (size_t)about.st_size, file);
    if (file >= 0) {
        close(file);
    }
    if (a && !good) {
        array_free(a);
    }
    puts(good ? "done" : "error no memory, or the file cannot be read");
}

static void answer_prepare(const bench_peer *const peer, const char *const line) {
    char name[64] = "";
    forget_results();
    current = NULL;
    figure_count = 0;
    job[0] = 0;
    sscanf(line, "%4095[^\n]", job);
    sscanf(line, "prepare %63s", name);
    for (int t = 0; peer->tables[t]; t++) {
        for (const bench_case *c = peer->tables[t]; c->name; c++) {
            if (strcmp(c->name, name) == 0) {
                current = c;
            }
        }
    }
    const char *const reason = current ? current->set_up(current) : "no such operation";
    if (reason) {
        current = NULL;
        printf("skip %s\n", reason);
        return;
    }
    fputs("ready", stdout);
    for (int k = 0; k < BENCH_VARIANTS && current->variants[k]; k++) {
        printf(" %s", current->variants[k]);
    }
    puts("");
}

static int variant_of(const char *const name) {
    for (int k = 0; current && k < BENCH_VARIANTS && current->variants[k]; k++) {
        if (strcmp(current->variants[k], name) == 0) {
            return k;
        }
    }
    return -1;
}

/* One run, with its seconds by the clock and of the processor. */
static bool timed(const bench_peer *const peer, const int variant, double *const wall, double *const processor) {
    const char *const name = current->variants[variant];
    for (int k = 0; k < ARRAYS; k++) {
        arrays[k].used = false;
    }
    const bool is_floor = peer->floor && strncmp(name, "floor_", 6) == 0;
    const double processor_start = seconds(CLOCK_PROCESS_CPUTIME_ID), start = bench_now();
    const unsigned status = is_floor ? peer->floor(name) : current->run(variant);
    *wall = bench_now() - start;
    *processor = seconds(CLOCK_PROCESS_CPUTIME_ID) - processor_start;
    return status == 0;
}

static void answer_check(const bench_peer *const peer, const char *const line) {
    char name[64], prefix[LINE];
    double wall, processor;
    const int variant = sscanf(line, "check %63s %4095s", name, prefix) == 2 ? variant_of(name) : -1;
    if (variant < 0 || !timed(peer, variant, &wall, &processor)) {
        printf("error %s\n", variant < 0 ? "bad line" : peer->reason());
        return;
    }
    for (int k = 0; k < ARRAYS; k++) {
        if (arrays[k].used && !arrays[k].shared && !array_write(&arrays[k], prefix)) {
            puts("error a result cannot be written");
            return;
        }
    }
    bench_figure("highest", (double)own_memory("VmHWM:"));
    printf("done %.9g %.9g", wall, processor);
    for (int k = 0; k < ARRAYS; k++) {
        if (arrays[k].used) {
            printf(" %s", arrays[k].name);
        }
    }
    puts("");
}

/* Memory that was freed must not pass for memory that is not needed; the high-water mark starts again. */
static void answer_fresh(void) {
    FILE *const reset = fopen("/proc/self/clear_refs", "w");
    if (reset) {
        fputs("5", reset);
        fclose(reset);
    }
    malloc_trim(0);
    resident = own_memory("VmRSS:");
    puts("done");
}

/* Runs for 10 ms, at least once: threads that have slept may share a processor for some milliseconds. */
static bool warmed(const bench_peer *const peer, const int variant) {
    double wall, processor;
    for (double left = 0.010; left > 0; left -= wall) {
        if (!timed(peer, variant, &wall, &processor)) {
            return false;
        }
    }
    return true;
}

static void answer_go(const bench_peer *const peer, const char *const line) {
    char name[64];
    int count, warm;
    const int variant = sscanf(line, "go %63s %d %d", name, &count, &warm) == 3 ? variant_of(name) : -1;
    double *const times = variant < 0 || count < 1 ? NULL : malloc(2 * (size_t)count * sizeof *times);
    bool good = times && (!warm || warmed(peer, variant));
    for (int k = 0; good && k < count; k++) {
        good = timed(peer, variant, &times[2 * k], &times[2 * k + 1]);
    }
    if (good) {
        fputs("times", stdout);
        for (int k = 0; k < 2 * count; k++) {
            printf(" %.9g", times[k]);
        }
        puts("");
        const double highest = (double)own_memory("VmHWM:");
        double results = 0;
        for (int k = 0; k < ARRAYS; k++) {
            results += arrays[k].used ? (double)arrays[k].bytes : 0;
        }
        bench_figure("highest", highest);
        bench_figure("taken", highest - (double)resident);
        bench_figure("results", results);
    } else {
        printf("error %s\n", times ? peer->reason() : "bad line");
    }
    free(times);
}

static void answer_figures(const bench_peer *const peer) {
    if (peer->figures) {
        peer->figures();
    }
    fputs("figures {", stdout);
    for (int k = 0; k < figure_count; k++) {
        printf("%s\"%s\": %.9g", k ? ", " : "", figures[k].name, figures[k].value);
    }
    puts("}");
}

static void answer_clear(void) {
    for (int k = 0; k < ARRAYS; k++) {
        array_free(&arrays[k]);
    }
    current = NULL;
    puts("done");
}

static void answer(const bench_peer *const peer, const char *const line) {
    char word[16] = "";
    sscanf(line, "%15s", word);
    if (strcmp(word, "load") == 0 || strcmp(word, "share") == 0) {
        answer_load(line, word[0] == 's');
    } else if (strcmp(word, "prepare") == 0) {
        answer_prepare(peer, line);
    } else if (strcmp(word, "check") == 0) {
        answer_check(peer, line);
    } else if (strcmp(word, "fresh") == 0) {
        answer_fresh();
    } else if (strcmp(word, "go") == 0) {
        answer_go(peer, line);
    } else if (strcmp(word, "figures") == 0) {
        answer_figures(peer);
    } else if (strcmp(word, "clear") == 0) {
        answer_clear();
    } else {
        puts("error unknown line");
    }
}

int bench_serve(const int argc, char **const argv, bench_peer *const peer) {
    static char line[2 * LINE];
    const char *const reason = peer->start(argc > 1 ? atoi(argv[1]) : 1);
    if (reason) {
        printf("sorry %s\n", reason);
        return 1;
    }
    printf("hello %s %s\n", peer->name, peer->version);
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) && strncmp(line, "quit", 4) != 0) {
        answer(peer, line);
        fflush(stdout);
    }
    return 0;
}
