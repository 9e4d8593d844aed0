/* lm/text/file.c - opens and reads regular files. */
#define _POSIX_C_SOURCE 200809L

#include "lm/text/file.h"

#include <string.h>

#include "core/base/platform.h"

/* A message shows only the end of a long path. */
static napier_status fail(napier_context *context, const char *path, const char *why) {
    const size_t length = strlen(path), most = 160;
    return napier_fail(context, NAPIER_IO_ERROR, "%s%s: %s", length > most ? "..." : "",
                       path + (length > most ? length - most : 0), why);
}

static const char *kind_of(mode_t mode) {
    return S_ISDIR(mode)    ? "a folder, not a regular file"
           : S_ISFIFO(mode) ? "a pipe, not a regular file"
           : S_ISSOCK(mode) ? "a socket, not a regular file"
                            : "a device, not a regular file";
}

napier_status napier_open_file(napier_context *context, const char *path, int *fd, size_t *size) {
    struct stat info;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK); /* without O_NONBLOCK, opening a pipe without a
                                                                       writer would block */
    if (*fd < 0) {
        return fail(context, path, strerror(errno));
    }
    const char *const why = fstat(*fd, &info) != 0                                 ? strerror(errno)
                            : !S_ISREG(info.st_mode)                               ? kind_of(info.st_mode)
                            : (uintmax_t)info.st_size > (uintmax_t)PTRDIFF_MAX / 2 ? "too large for this machine"
                                                                                   : NULL;
    if (why != NULL) {
        close(*fd);
        *fd = -1;
        return fail(context, path, why);
    }
    *size = (size_t)info.st_size;
    return NAPIER_OK;
}

napier_status napier_join_path(napier_memory *memory, const char *folder, const char *name, char **path) {
    const size_t size = strlen(folder) + strlen(name) + 2;
    *path = napier_take(memory, (int64_t)size, 1);
    NAPIER_TRY(napier_taken(memory, "no memory for the path of %.64s", name));
    (void)snprintf(*path, size, "%s/%s", folder, name);
    return NAPIER_OK;
}

/* Reads exactly `size` bytes. Data that another program appends in the meantime is left out. */
static napier_status read_exactly(napier_context *context, const char *path, int fd, char *bytes, size_t size) {
    for (size_t done = 0; done < size;) {
        const ssize_t got = read(fd, bytes + done, size - done);
        if (got == 0) {
            return fail(context, path, "has become shorter while it was read");
        }
        if (got < 0 && errno != EINTR) {
            return fail(context, path, strerror(errno));
        }
        done += got > 0 ? (size_t)got : 0;
    }
    bytes[size] = '\0';
    return NAPIER_OK;
}

static napier_status read_open(napier_context *context, const char *path, int fd, size_t most, size_t size,
                               char **bytes) {
    if (size > most) {
        char why[80];
        snprintf(why, sizeof why, "%zu bytes, more than the %zu that are read", size, most);
        return fail(context, path, why);
    }
    *bytes = napier_alloc(&context->allocator, size + 1, 1);
    if (*bytes == NULL) {
        return napier_fail(context, NAPIER_OUT_OF_MEMORY, "%s: no memory for %zu bytes", path, size);
    }
    const napier_status status = read_exactly(context, path, fd, *bytes, size);
    if (status) {
        napier_free(&context->allocator, *bytes);
        *bytes = NULL;
    }
    return status;
}

napier_status napier_read_file(napier_context *context, const char *path, size_t most, char **bytes, size_t *size) {
    int fd;
    *bytes = NULL;
    napier_status status = napier_open_file(context, path, &fd, size);
    if (!status) {
        status = read_open(context, path, fd, most, *size, bytes);
        close(fd);
    }
    return status;
}
