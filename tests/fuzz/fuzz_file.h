/* fuzz_file.h - bytes as a file, for what reads a path or a stream; to be included first. Complaints go to standard error: run such fuzzers with
 * -close_fd_mask=2. */
#ifndef NAPIER_TESTS_FUZZ_FILE_H
#define NAPIER_TESTS_FUZZ_FILE_H

#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include <unistd.h>

#include "fuzz.h"

/* A file in the system's folder for such files, with these bytes; one per process, written over each time. */
static inline const char *fuzz_file(const uint8_t *data, size_t size) {
    static char path[64];
    if (path[0] == '\0') {
        snprintf(path, sizeof path, "%s/napier-fuzz-%ld", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp",
                 (long)getpid());
    }
    FILE *const file = fopen(path, "wb");
    REQUIRE(file && fwrite(data, 1, size, file) == size && fclose(file) == 0, "cannot write %s", path);
    return path;
}

/* The bytes as a stream. */
static inline FILE *fuzz_stream(const uint8_t *data, size_t size) {
    FILE *const file = size ? fmemopen((void *)(uintptr_t)data, size, "rb") : fopen("/dev/null", "rb");
    REQUIRE(file, "no stream over %zu bytes", size);
    return file;
}

/* Not to be left behind. */
static inline void fuzz_file_remove(const char *path) { REQUIRE(remove(path) == 0, "cannot remove %s", path); }

#endif
