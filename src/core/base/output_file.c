/* core/base/output_file.c - writes a temporary file in the same directory, then renames it. */
#define _XOPEN_SOURCE 700 /* realpath, fchmod */

#include "core/base/output_file.h"

#include <string.h>

#include "core/base/platform.h"

/* The path without symbolic links, or unchanged if the file does not exist yet. */
static int resolve(const char *path, char place[NAPIER_PATH_ROOM]) {
    if (strlen(path) >= (size_t)NAPIER_PATH_ROOM) {
        return ENAMETOOLONG;
    }
    if (!realpath(path, place)) {
        strcpy(place, path);
    }
    return 0;
}

int napier_output_file_place(napier_output_file *file, const char *path) {
    struct stat info;
    const int exists = stat(path, &info) == 0;
    const int too_long = !exists && errno == ENAMETOOLONG; /* the name beside it is short: it would fail when renamed */
    file->fd = -1;
    file->mode = 0;
    file->temporary[0] = '\0';
    file->is_moved = !exists || S_ISREG(info.st_mode);
    if (!*path) {
        return ENOENT;
    }
    if (too_long) {
        return ENAMETOOLONG;
    }
    if (exists && S_ISDIR(info.st_mode)) {
        return EISDIR;
    }
    if (exists && access(path, W_OK) != 0) {
        return errno;
    }
    file->mode = (mode_t)(exists ? info.st_mode & 07777 : 0);
    return resolve(path, file->place);
}

/* The length of the directory part of the path, including the slash. */
static size_t directory_size(const char *place) { return (size_t)(napier_path_name(place) - place); }

/* A number that differs between processes, files and moments, which makes a
 * clash of names rare. O_EXCL detects a clash. */
static uint32_t draw(const napier_output_file *file, unsigned attempt) {
    uint64_t x = napier_nanoseconds() ^ (uint64_t)getpid() << 32 ^ (uint64_t)(uintptr_t)file ^ attempt;
    x *= 0x9e3779b97f4a7c15u;
    return (uint32_t)(x >> 32);
}

/* A new file gets the mode 0666 less umask. A file that replaces another starts as 0600, so that nobody else can read
 * it before it has the old file's mode. */
static int open_beside(napier_output_file *file) {
    enum { ATTEMPTS = 100 };
    const size_t directory = directory_size(file->place);
    if (directory + sizeof ".napier-00000000" > (size_t)NAPIER_PATH_ROOM) {
        return ENAMETOOLONG;
    }
    int error = EEXIST;
    for (unsigned attempt = 0; attempt < ATTEMPTS && error == EEXIST; attempt++) {
        memcpy(file->temporary, file->place, directory);
        snprintf(file->temporary + directory, sizeof ".napier-00000000", ".napier-%08lx",
                 (unsigned long)draw(file, attempt));
        file->fd = open(file->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, file->mode ? 0600 : 0666);
        error = file->fd < 0 ? errno : 0;
    }
    if (error) {
        file->temporary[0] = '\0';
        return error;
    }
    return file->mode && fchmod(file->fd, file->mode) != 0 ? errno : 0;
}

int napier_output_file_open(napier_output_file *file) {
    if (file->is_moved) {
        return open_beside(file);
    }
    file->fd = open(file->place, O_WRONLY | O_CLOEXEC);
    return file->fd < 0 ? errno : 0;
}

int napier_output_file_sync(const napier_output_file *file) {
    return file->is_moved && fsync(file->fd) != 0 ? errno : 0;
}

int napier_output_file_close(napier_output_file *file) {
    const int error = napier_output_file_sync(file);
    const int closed = close(file->fd) == 0 ? 0 : errno;
    file->fd = -1;
    return error ? error : closed;
}

/* Synchronises the directory, so that after a crash of the machine either the old file or the new one exists. If the
 * directory cannot be opened or synchronised, there is nothing more to do. */
static void sync_directory(const char *place) {
    char directory[NAPIER_PATH_ROOM] = ".";
    const size_t size = directory_size(place);
    if (size > 0) {
        memcpy(directory, place, size);
        directory[size] = '\0';
    }
    const int fd = open(directory, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
}

int napier_output_file_move(napier_output_file *file) {
    if (!file->is_moved) {
        return 0;
    }
    if (rename(file->temporary, file->place) != 0) {
        return errno;
    }
    file->temporary[0] = '\0';
    sync_directory(file->place);
    return 0;
}

void napier_output_file_discard(napier_output_file *file) {
    if (file->fd >= 0) {
        close(file->fd);
        file->fd = -1;
    }
    if (file->temporary[0]) {
        unlink(file->temporary);
        file->temporary[0] = '\0';
    }
}
