/* read FILE THREADS - prints the seconds that so many threads take to read the file, mapped, the fastest of ten. Each reads
 * one contiguous part. */
#include <fcntl.h>
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

int main(int count, char **arguments) {
    struct stat about;
    const int file = count == 3 ? open(arguments[1], O_RDONLY) : -1;
    if (file < 0 || fstat(file, &about) != 0) {
        return 1;
    }
    const uint64_t *words = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    const int threads = atoi(arguments[2]);
    const int64_t size = about.st_size / 8;
    double least = 1e9;
    uint64_t all = 0;
    if (words == MAP_FAILED) {
        return 1;
    }
    for (int i = 0; i < 10; i++) {
        const double start = omp_get_wtime();
#pragma omp parallel for num_threads(threads) schedule(static) reduction(| : all)
        for (int64_t at = 0; at < size; at++) {
            all |= words[at];
        }
        const double seconds = omp_get_wtime() - start;
        least = seconds < least ? seconds : least;
    }
    printf("%.6f\n", all ? least : 0.0);
    return 0;
}
