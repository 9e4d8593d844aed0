/* cli/io/source.c - opens files to read. */
#define _POSIX_C_SOURCE 200809L

#include "source.h"

#include "program/memory.h"
#include "program/message.h"
#include "program/system.h"

#include <inttypes.h>
#include <string.h>

/* Returns NULL, or why a file cannot be read. An empty device such as /dev/null can be read. */
static const char *fault_of(FILE *file) {
    struct stat info;
    if (fstat(fileno(file), &info) != 0) {
        return strerror(errno);
    }
    if (S_ISDIR(info.st_mode)) {
        return strerror(EISDIR);
    }
    const bool is_device = S_ISCHR(info.st_mode) || S_ISBLK(info.st_mode);
    if (is_device && !isatty(fileno(file)) && getc(file) != EOF) {
        return "a device, which may have no end, not a file";
    }
    return NULL;
}

const char *source_name(const char *path) {
    return strcmp(path, "-") == 0 ? "standard input" : *path != '\0' ? path : "''";
}

FILE *source_open(const char *path, const char **name) {
    const bool standard = strcmp(path, "-") == 0;
    *name = source_name(path);
    FILE *const file = standard ? stdin : fopen(path, "rb");
    const char *const fault = file != NULL ? fault_of(file) : strerror(errno);
    if (fault == NULL) {
        return file;
    }
    message_complain("%s: %s", *name, fault);
    source_close(file);
    return NULL;
}

void source_close(FILE *file) {
    if (file != NULL && file != stdin) {
        fclose(file);
    }
}

int64_t source_size(FILE *file) {
    struct stat info;
    return fstat(fileno(file), &info) == 0 && S_ISREG(info.st_mode) ? (int64_t)info.st_size : -1;
}

/* ---- Whole files ------------------------------------------------------------------------------------------------- */

static int read_to_end(whole_file *f, FILE *file, int64_t most) {
    int64_t capacity = 0;
    int64_t wanted =
        source_size(file) > 0 ? source_size(file) + 2 : 1 << 16; /* the end is seen, and a '\0' has space */
    do {
        if (wanted - 2 > most) {
            return complain("%s: more than %" PRId64 " bytes, half of the memory that this program may use", f->name,
                            most);
        }
        if (!memory_grow(&f->bytes, &capacity, wanted, 1)) {
            return out_of_memory(f->name);
        }
        f->size += fread(f->bytes + f->size, 1, (size_t)capacity - 1 - f->size, file);
        f->bytes[f->size] = '\0';
        wanted = 2 * capacity;
    } while ((int64_t)f->size == capacity - 1);
    return ferror(file) ? complain("%s: %s", f->name, strerror(errno)) : STATUS_OK;
}

int whole_file_read(whole_file *f, const char *path) {
    memset(f, 0, sizeof *f);
    FILE *const file = source_open(path, &f->name);
    if (file == NULL) {
        return STATUS_FAILED;
    }
    const int status = read_to_end(f, file, memory_usable());
    source_close(file);
    return status;
}

void whole_file_free(whole_file *f) {
    free(f->bytes);
    memset(f, 0, sizeof *f);
}
