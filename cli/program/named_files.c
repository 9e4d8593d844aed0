/* cli/program/named_files.c - finds out whether two paths lead to one file. */
#define _POSIX_C_SOURCE 200809L

#include "named_files.h"

#include "message.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Identifies an existing file by its device and number, and a new one by its folder's device and number and its
 * name. */
typedef struct identity {
    bool is_known, exists, is_folder;
    dev_t device;
    ino_t number;
    dev_t folder_device;
    ino_t folder_number;
    const char *name;
} identity;

static const char *name_of(const char *path) {
    const char *const slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* Returns false if there is no such folder; opening the file will report it. */
static bool stat_folder(const char *path, struct stat *info) {
    const size_t size = (size_t)(name_of(path) - path);
    char *const folder = malloc(size + 2);
    if (folder == NULL) {
        return false;
    }
    memcpy(folder, size > 0 ? path : ".", size > 0 ? size : 1);
    folder[size > 0 ? size : 1] = '\0';
    const bool found = stat(folder, info) == 0;
    free(folder);
    return found;
}

static identity identity_of(const char *path) {
    identity id = {.is_known = false};
    struct stat info;
    if (path == NULL || strcmp(path, "-") == 0) {
        return id;
    }
    id.name = name_of(path);
    id.exists = stat(path, &info) == 0;
    id.is_folder = id.exists && S_ISDIR(info.st_mode);
    id.is_known = !id.exists || id.is_folder || S_ISREG(info.st_mode);
    if (id.exists) {
        id.device = info.st_dev;
        id.number = info.st_ino;
    }
    if (stat_folder(path, &info)) {
        id.folder_device = info.st_dev;
        id.folder_number = info.st_ino;
    } else {
        id.is_known = false;
    }
    return id;
}

static bool same_file(const identity *a, const identity *b) {
    if (!a->is_known || !b->is_known || a->exists != b->exists) {
        return false;
    }
    if (a->exists) {
        return a->device == b->device && a->number == b->number;
    }
    return a->folder_device == b->folder_device && a->folder_number == b->folder_number &&
           strcmp(a->name, b->name) == 0;
}

static bool lies_in(const identity *file, const identity *folder) {
    return file->is_known && file->exists && folder->is_folder && file->folder_device == folder->device &&
           file->folder_number == folder->number;
}

int named_files_check(const char *command, const named_file *files, int count) {
    for (int i = 0; i < count; i++) {
        const identity written = identity_of(files[i].path);
        for (int k = 0; k < count && files[i].is_written; k++) {
            const identity other = identity_of(files[k].path);
            if (k != i && same_file(&written, &other)) {
                return misuse(command, "%s would replace %s: both are %s", files[i].what, files[k].what, files[i].path);
            }
            if (!files[k].is_written && lies_in(&written, &other)) {
                return misuse(command, "%s would replace a file of %s: %s", files[i].what, files[k].what,
                              files[i].path);
            }
        }
    }
    return STATUS_OK;
}
