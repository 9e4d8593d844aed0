/* cli/output.c - writes results beside their place, then renames. */
#define _POSIX_C_SOURCE 200809L
#define _XOPEN_SOURCE 700 /* realpath */

#include "output.h"

#include "message.h"
#include "npy.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- A signal removes the temporary file ------------------------------------------------------------------------- */

static const int fatal_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGBUS};
enum { FATAL_SIGNALS = sizeof fatal_signals / sizeof fatal_signals[0] };

/* The temporary file's path; changed only while the signals are blocked. */
static char *volatile signal_path;

/* SIGBUS comes when another program shortens a mapped file. Only async-signal-safe calls here. */
static void on_signal(int number) {
    char *const path = signal_path;
    if (path != NULL) {
        unlink(path);
    }
    signal(number, SIG_DFL);
    raise(number);
}

static void fatal_set(sigset_t *set) {
    sigemptyset(set);
    for (int i = 0; i < FATAL_SIGNALS; i++) {
        sigaddset(set, fatal_signals[i]);
    }
}

/* A signal that was ignored when the program started (nohup) stays ignored. A full pipe or file limit is an error of
 * write, not a signal. */
static void install_handlers(void) {
    struct sigaction action = {.sa_handler = on_signal};
    fatal_set(&action.sa_mask);
    for (int i = 0; i < FATAL_SIGNALS; i++) {
        struct sigaction before;
        if (sigaction(fatal_signals[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN) {
            sigaction(fatal_signals[i], &action, NULL);
        }
    }
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
}

/* ---- Opening ----------------------------------------------------------------------------------------------------- */

file_format output_format(const char *path, file_format input_format) {
    const bool is_stdout = path == NULL || strcmp(path, "-") == 0;
    const file_format named = is_stdout ? FORMAT_AUTO : format_of_name(path);
    if (named != FORMAT_AUTO) {
        return named;
    }
    if (is_stdout && isatty(STDOUT_FILENO) && input_format == FORMAT_NPY) {
        return FORMAT_CSV;
    }
    return input_format;
}

static int write_error(const output *out) {
    /* The reader of a pipe has gone: it has seen enough, there is nothing to say. */
    return errno == EPIPE ? STATUS_FAILED : complain("%s: %s", out->name, strerror(errno));
}

/* The path with symbolic links resolved, so that a link keeps pointing to the file and the file is replaced. */
static char *resolved(const char *path) {
    char *const real = realpath(path, NULL);
    if (real != NULL) {
        return real;
    }
    char *const copy = malloc(strlen(path) + 1);
    return copy != NULL ? strcpy(copy, path) : NULL;
}

static mode_t default_mode(void) {
    const mode_t mask = umask(0);
    umask(mask);
    return 0666 & ~mask;
}

/* Makes the temporary file in the directory of the place. The handlers know it from the moment it exists. */
static int open_beside(output *out, mode_t mode) {
    static const char name[] = ".napier-XXXXXX";
    const char *const slash = strrchr(out->place, '/');
    const size_t directory = slash != NULL ? (size_t)(slash - out->place) + 1 : 0;
    out->temporary = malloc(directory + sizeof name);
    if (out->temporary == NULL) {
        return complain("%s: out of memory", out->name);
    }
    memcpy(out->temporary, out->place, directory);
    memcpy(out->temporary + directory, name, sizeof name);
    sigset_t fatal;
    sigset_t before;
    fatal_set(&fatal);
    sigprocmask(SIG_BLOCK, &fatal, &before);
    const int fd = mkstemp(out->temporary);
    const int reason = errno;
    signal_path = fd >= 0 ? out->temporary : NULL;
    sigprocmask(SIG_SETMASK, &before, NULL);
    errno = reason;
    if (fd < 0) {
        free(out->temporary);
        out->temporary = NULL;
        return write_error(out);
    }
    if (fchmod(fd, mode) != 0 || (out->file = fdopen(fd, "wb")) == NULL) {
        const int status = write_error(out);
        close(fd);
        return status;
    }
    return STATUS_OK;
}

static int open_named(output *out, const char *path) {
    struct stat info;
    const bool exists = stat(path, &info) == 0;
    if (exists && S_ISDIR(info.st_mode)) {
        return complain("%s: %s", path, strerror(EISDIR));
    }
    if (exists && access(path, W_OK) != 0) {
        return write_error(out);
    }
    if (exists && !S_ISREG(info.st_mode)) { /* /dev/null, a fifo */
        out->file = fopen(path, "wb");
        return out->file != NULL ? STATUS_OK : write_error(out);
    }
    out->place = resolved(path);
    if (out->place == NULL) {
        return complain("%s: out of memory", out->name);
    }
    return open_beside(out, exists ? info.st_mode & 07777 : default_mode());
}

int output_open(output *out, const char *path) {
    memset(out, 0, sizeof *out);
    install_handlers();
    if (path == NULL || strcmp(path, "-") == 0) {
        out->name = "standard output";
        out->file = stdout;
        return STATUS_OK;
    }
    out->name = *path != '\0' ? path : "''";
    return open_named(out, path);
}

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

int output_begin(output *out, file_format format, napier_dtype dtype, const array_shape *shape, const char *header) {
    out->format = format;
    out->dtype = dtype;
    out->columns = shape->dims > 1 ? shape->dim[shape->dims - 1] : 1;
    out->column = 0;
    if (format == FORMAT_NPY) {
        char bytes[NPY_WRITTEN_MAX];
        const size_t size = npy_write_header(bytes, dtype, shape);
        return fwrite(bytes, 1, size, out->file) == size ? STATUS_OK : write_error(out);
    }
    if (header != NULL && fprintf(out->file, "%s\n", header) < 0) {
        return write_error(out);
    }
    return STATUS_OK;
}

static int write_text(output *out, const char *elements, int64_t count) {
    const size_t size = napier_dtype_size(out->dtype);
    const char separator = format_separator(out->format);
    for (int64_t i = 0; i < count; i++) {
        char text[TEXT_NUMBER_MAX + 1];
        const int length = text_number(text, out->dtype, elements + (size_t)i * size);
        out->column++;
        text[length] = out->column == out->columns ? '\n' : separator;
        if (out->column == out->columns) {
            out->column = 0;
        }
        if (fwrite(text, 1, (size_t)length + 1, out->file) != (size_t)length + 1) {
            return write_error(out);
        }
    }
    return STATUS_OK;
}

int output_write(output *out, void *elements, int64_t count) {
    if (out->format != FORMAT_NPY) {
        return write_text(out, elements, count);
    }
    const size_t size = napier_dtype_size(out->dtype);
    if (machine_is_big_endian()) {
        bytes_swap(elements, size, count);
    }
    return fwrite(elements, size, (size_t)count, out->file) == (size_t)count ? STATUS_OK : write_error(out);
}

/* After a crash of the machine either the old or the new file is there: the directory's entry goes to the disk too.
 * Where a directory cannot be opened or synchronised there is nothing more to do. */
static void sync_directory(const output *out) {
    const char *const slash = strrchr(out->place, '/');
    char *const directory = slash != NULL && slash != out->place ? malloc((size_t)(slash - out->place) + 1) : NULL;
    if (directory != NULL) {
        memcpy(directory, out->place, (size_t)(slash - out->place));
        directory[slash - out->place] = '\0';
    }
    const int fd = open(directory != NULL ? directory : slash != NULL ? "/" : ".", O_RDONLY);
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
    free(directory);
}

static int close_file(output *out) {
    FILE *const file = out->file;
    out->file = NULL;
    if (fflush(file) != 0 || (out->place != NULL && fsync(fileno(file)) != 0)) {
        const int status = write_error(out);
        fclose(file);
        return status;
    }
    return fclose(file) == 0 ? STATUS_OK : write_error(out);
}

int output_commit(output *out) {
    const int status = close_file(out);
    if (status != STATUS_OK || out->place == NULL) {
        return status;
    }
    sigset_t fatal;
    sigset_t before;
    fatal_set(&fatal);
    sigprocmask(SIG_BLOCK, &fatal, &before);
    const bool moved = rename(out->temporary, out->place) == 0;
    const int reason = errno;
    if (moved) {
        signal_path = NULL;
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (!moved) {
        errno = reason;
        return write_error(out);
    }
    free(out->temporary);
    out->temporary = NULL;
    sync_directory(out);
    return STATUS_OK;
}

void output_discard(output *out) {
    if (out->file != NULL && out->file != stdout) {
        fclose(out->file);
    }
    if (out->temporary != NULL) {
        unlink(out->temporary);
        signal_path = NULL; /* a signal in between finds nothing to remove */
        free(out->temporary);
    }
    free(out->place);
    memset(out, 0, sizeof *out);
}
