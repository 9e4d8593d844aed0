/* cli/program/files.c - finds out whether two paths lead to one file, and whether files can be written. */
#define _POSIX_C_SOURCE 200809L

#include "command.h"

#include "message.h"
#include "system.h"

#include <string.h>

/* A file that the command line names. An existing one is identified by its device and number, and a new one by its
 * folder's device and number and its name. */
typedef struct named_file {
    const char *option; /* NULL: the input */
    const char *path;
    bool is_written;
    bool is_known, exists, is_folder; /* not known: "-", a device, a pipe, a file in no folder */
    struct stat info, folder;
} named_file;

enum { MOST_FILES = OPTION_MOST + OPTION_MOST_FILES };

typedef struct file_list {
    named_file files[MOST_FILES];
    int count;
} file_list;

bool is_standard(const char *path) { return path != NULL && strcmp(path, "-") == 0; }

/* The folder of a path; NULL if memory is short. Free it. */
static char *folder_of(const char *path) {
    const size_t size = (size_t)(napier_path_name(path) - path);
    char *const folder = malloc(size + 2);
    if (folder != NULL) {
        memcpy(folder, size > 0 ? path : ".", size > 0 ? size : 1);
        folder[size > 0 ? size : 1] = '\0';
    }
    return folder;
}

static void add_file(file_list *l, const char *name, const char *path, bool is_written) {
    named_file *const f = &l->files[l->count];
    if (path == NULL) {
        return;
    }
    *f = (named_file){.option = name, .path = path, .is_written = is_written};
    l->count++;
    if (is_standard(path)) {
        return;
    }
    char *const folder = folder_of(path);
    f->exists = stat(path, &f->info) == 0;
    f->is_folder = f->exists && S_ISDIR(f->info.st_mode);
    f->is_known =
        (!f->exists || f->is_folder || S_ISREG(f->info.st_mode)) && folder != NULL && stat(folder, &f->folder) == 0;
    free(folder);
}

static void list_files(file_list *l, const command *c, const base_request *q) {
    add_file(l, NULL, q->in_path, false);
    for (const option_group *g = c->groups; g->options != NULL; g++) {
        for (const option *o = g->options; o->name != NULL; o++) {
            const char *const *const paths = (const char *const *)(const void *)((const char *)q + o->offset);
            if (o->kind == OPTION_READ || o->kind == OPTION_WRITE) {
                add_file(l, o->name, paths[0], o->kind == OPTION_WRITE);
            }
            for (int i = 0; o->kind == OPTION_WRITES && paths[i] != NULL; i++) {
                add_file(l, o->name, paths[i], true);
            }
        }
    }
}

static bool same_inode(const struct stat *a, const struct stat *b) {
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static bool same_file(const named_file *a, const named_file *b) {
    if (!a->is_known || !b->is_known || a->exists != b->exists) {
        return false;
    }
    return a->exists ? same_inode(&a->info, &b->info)
                     : same_inode(&a->folder, &b->folder) &&
                           strcmp(napier_path_name(a->path), napier_path_name(b->path)) == 0;
}

static bool lies_in(const named_file *f, const named_file *folder) {
    return f->is_known && f->exists && folder->is_folder && same_inode(&f->folder, &folder->info);
}

static int check_pair(const named_file *written, const named_file *other) {
    const bool is_same = same_file(written, other);
    if (!is_same && (other->is_written || !lies_in(written, other))) {
        return STATUS_OK;
    }
    return misuse("--%s would replace %s%s%s: %s%s", written->option, is_same ? "" : "a file of ",
                  other->option != NULL ? "--" : "the ", other->option != NULL ? other->option : "input",
                  is_same ? "both are " : "", written->path);
}

static int check_place(const char *path) {
    struct stat info;
    char *const folder = folder_of(path);
    int reason = 0;
    if (stat(path, &info) == 0) {
        reason = S_ISDIR(info.st_mode) ? EISDIR : access(path, W_OK) != 0 ? errno : 0;
    } else {
        reason = folder == NULL ? ENOMEM : access(folder, W_OK | X_OK) != 0 ? errno : 0;
    }
    free(folder);
    return reason == 0 ? STATUS_OK : complain("%s: %s", *path != '\0' ? path : "''", strerror(reason));
}

int files_check(const command *c, const base_request *q) {
    file_list l = {.count = 0};
    int inputs = 0, results = q->out_path == NULL && !c->may_print_nothing, status = STATUS_OK;
    list_files(&l, c, q);
    for (int i = 0; i < l.count; i++) {
        inputs += is_standard(l.files[i].path) && !l.files[i].is_written;
        results += is_standard(l.files[i].path) && l.files[i].is_written;
    }
    if (inputs > 1) {
        return misuse("only one of the files can be standard input");
    }
    if (results > 1) {
        return misuse("only one of the results can go to standard output%s",
                      q->out_path == NULL ? ": -o FILE moves the first" : "");
    }
    for (int i = 0; i < l.count && !c->is_in_place; i++) {
        for (int k = 0; k < l.count && l.files[i].is_written && status == STATUS_OK; k++) {
            status = k != i ? check_pair(&l.files[i], &l.files[k]) : STATUS_OK;
        }
    }
    for (int i = 0; i < l.count && status == STATUS_OK; i++) {
        const named_file *const f = &l.files[i];
        status = f->is_written && !is_standard(f->path) ? check_place(f->path) : STATUS_OK;
    }
    return status;
}
