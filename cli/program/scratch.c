/* cli/program/scratch.c - memory, or a file instead. */
#define _POSIX_C_SOURCE 200809L

#include "scratch.h"

#include "memory.h"
#include "message.h"
#include "system.h"

#include <inttypes.h>
#include <string.h>

FILE *scratch_file(void) {
    const char *const directory = system_temporary_directory();
    FILE *const file = system_temporary_file(directory);
    if (file == NULL) {
        message_complain("no temporary file in %s (TMPDIR): %s", directory, strerror(errno));
    }
    return file;
}

static int new_in_file(scratch *s, const char *advice) {
    FILE *const file = scratch_file();
    if (file == NULL) {
        return STATUS_FAILED;
    }
    s->data = system_map_new(file, s->size);
    s->in_file = s->data != NULL;
    const int reason = errno;
    fclose(file);
    return s->in_file ? STATUS_OK
                      : complain("%zu bytes in a temporary file (TMPDIR): %s%s", s->size, strerror(reason), advice);
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
    s->data = napier_aligned_take(64, s->size);
    return s->data != NULL ? STATUS_OK : complain("%" PRId64 " bytes of memory: %s%s", bytes, strerror(ENOMEM), advice);
}

void scratch_free(scratch *s) {
    if (s->in_file) {
        system_unmap(s->data, s->size);
    } else {
        napier_aligned_give(s->data);
    }
    memset(s, 0, sizeof *s);
}
