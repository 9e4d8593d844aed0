/* read FILE THREADS - prints the seconds that so many threads take to read the file, mapped, the fastest of ten. Each reads
 * one contiguous part. decode.py also calls read_seconds, in a shared object. */
#include <fcntl.h>
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

double read_seconds(const uint64_t *words, int64_t size, int threads) {
    static volatile uint64_t used;
    const double start = omp_get_wtime();
    uint64_t all = 0;
#pragma omp parallel for num_threads(threads) schedule(static) reduction(| : all)
    for (int64_t at = 0; at < size; at++) {
        all |= words[at];
    }
    used = all;
    return omp_get_wtime() - start;
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
