/* read FILE THREADS - prints the seconds that so many threads take to read the file, mapped, the fastest of ten. Each reads
 * one contiguous part. decode.py also calls read_seconds, in a shared object. */
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

typedef struct part {
    const uint64_t *begin, *end;
    uint64_t all;
    pthread_t thread;
} part;

static void *read_part(void *argument) {
    part *const p = argument;
    for (const uint64_t *at = p->begin; at < p->end; at++) {
        p->all |= *at;
    }
    return NULL;
}

double read_seconds(const uint64_t *words, int64_t size, int threads) {
    enum { MOST = 1024 };
    static part parts[MOST];
    static volatile uint64_t used;
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (int k = 0; k < threads && k < MOST; k++) {
        parts[k] = (part){words + size * k / threads, words + size * (k + 1) / threads, 0, 0};
        if (pthread_create(&parts[k].thread, NULL, read_part, &parts[k]) != 0) {
            abort();
        }
    }
    for (int k = 0; k < threads && k < MOST; k++) {
        pthread_join(parts[k].thread, NULL);
        used = parts[k].all;
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    return (double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec);
}

int main(int count, char **arguments) {
    struct stat about;
    const int file = count == 3 ? open(arguments[1], O_RDONLY) : -1;
    if (file < 0 || fstat(file, &about) != 0) {
        return 1;
    }
    const uint64_t *words = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    double least = 1e9;
    if (words == MAP_FAILED) {
        return 1;
    }
    for (int i = 0; i < 10; i++) {
        const double seconds = read_seconds(words, about.st_size / 8, atoi(arguments[2]));
        least = seconds < least ? seconds : least;
    }
    printf("%.6f\n", least);
    return 0;
}
