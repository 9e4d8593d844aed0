/* cli/program/scratch.c - memory, or a file instead. */
#define _POSIX_C_SOURCE 200809L

#include "scratch.h"

#include "memory.h"
#include "message.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

FILE *scratch_file(void) {
    const char *directory = getenv("TMPDIR");
    if (directory == NULL || *directory == '\0') {
        directory = "/tmp";
    }
    const char template[] = "/napier-XXXXXX";
    const size_t size = strlen(directory) + sizeof template;
    char *const path = malloc(size);
    if (path == NULL) {
        message_complain("out of memory");
        return NULL;
    }
    snprintf(path, size, "%s%s", directory, template);
    const int fd = mkstemp(path);
    FILE *const file = fd >= 0 ? fdopen(fd, "w+b") : NULL;
    if (file == NULL) {
        message_complain("no temporary file in %s (TMPDIR): %s", directory, strerror(errno));
    }
    if (fd >= 0) {
        unlink(path);
        if (file == NULL) {
            close(fd);
        }
    }
    free(path);
    return file;
}

/* Allocates the disk blocks at once, so that a full disk is an error here instead of a SIGBUS later. */
static int reserve(int fd, off_t size) {
#ifdef __APPLE__ /* macOS has no posix_fallocate */
    return ftruncate(fd, size) == 0 ? 0 : errno;
#else
    return posix_fallocate(fd, 0, size);
#endif
}

static int new_in_file(scratch *s, const char *advice) {
    FILE *const file = scratch_file();
    if (file == NULL) {
        return STATUS_FAILED;
    }
    const int error = reserve(fileno(file), (off_t)s->size);
    void *const data =
        error == 0 ? mmap(NULL, s->size, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0) : MAP_FAILED;
    const int reason = error != 0 ? error : errno;
    fclose(file); /* the mapping keeps the file */
    if (data == MAP_FAILED) {
        return complain("%zu bytes in a temporary file (TMPDIR): %s%s", s->size, strerror(reason), advice);
    }
    s->data = data;
    s->in_file = true;
    return STATUS_OK;
}

int scratch_new(scratch *s, int64_t bytes, const char *advice) {
    memset(s, 0, sizeof *s);
    if (bytes <= 0) {
        return STATUS_OK;
    }
    s->size = (size_t)bytes;
    if (bytes > memory_usable()) {
        return new_in_file(s, advice);
    }
    const int error = posix_memalign(&s->data, 64, s->size);
    if (error != 0) {
        s->data = NULL;
        return complain("%" PRId64 " bytes of memory: %s%s", bytes, strerror(error), advice);
    }
    return STATUS_OK;
}

void scratch_free(scratch *s) {
    if (s->in_file) {
        munmap(s->data, s->size);
    } else {
        free(s->data);
    }
    memset(s, 0, sizeof *s);
}
