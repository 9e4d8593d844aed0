/* cli/program/memory.c - limits on memory. */
#define _POSIX_C_SOURCE 200809L

#include "memory.h"

#include "system.h"

#include <inttypes.h>
#include <string.h>

enum { PATH_ROOM = 4096 };

static void lower(int64_t *limit, uint64_t other) {
    if (other < (uint64_t)*limit) {
        *limit = (int64_t)other;
    }
}

/* ---- Control groups ---------------------------------------------------------------------------------------------- */

/* Reads a limit from a file: a number, or a word ("max"), which means no limit. */
static void lower_by_file(int64_t *limit, const char *folder, const char *name) {
    char path[PATH_ROOM];
    char text[32];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) {
        return;
    }
    FILE *const file = fopen(path, "r");
    if (file == NULL) {
        return;
    }
    if (fgets(text, sizeof text, file) != NULL && text[0] >= '0' && text[0] <= '9') {
        lower(limit, strtoull(text, NULL, 10));
    }
    fclose(file);
}

/* Applies the limits of the group and of all groups that contain it. In a container the path may be the host's, and
 * only the upper groups exist. */
static void lower_by_groups(int64_t *limit, const char *mount, const char *group, const char *const names[2]) {
    char folder[PATH_ROOM];
    if (snprintf(folder, sizeof folder, "%s%s", mount, group) >= (int)sizeof folder) {
        return;
    }
    for (char *end = folder + strlen(folder); end != NULL; end = strrchr(folder + strlen(mount), '/')) {
        *end = '\0';
        lower_by_file(limit, folder, names[0]);
        lower_by_file(limit, folder, names[1]);
    }
    lower_by_file(limit, mount, names[0]);
    lower_by_file(limit, mount, names[1]);
}

/* Whether a list such as "cpu,memory" contains the memory controller. */
static int has_memory(const char *controllers) {
    const char *const found = strstr(controllers, "memory");
    return found != NULL && (found == controllers || found[-1] == ',') && (found[6] == '\0' || found[6] == ',');
}

/* A line of /proc/self/cgroup: "0::/user.slice" of version 2, "9:memory:/docker/1234" of version 1. */
static void lower_by_line(int64_t *limit, const char *root, char *line) {
    static const char *const names_1[] = {"memory.limit_in_bytes", "memory.soft_limit_in_bytes"};
    static const char *const names_2[] = {"memory.max", "memory.high"};
    char mount[PATH_ROOM];
    char *const controllers = strchr(line, ':');
    char *const group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
    if (group == NULL) {
        return;
    }
    *group = '\0';
    group[1 + strcspn(group + 1, "\n")] = '\0';
    const int version_2 = controllers[1] == '\0';
    if (!version_2 && !has_memory(controllers + 1)) {
        return;
    }
    if (snprintf(mount, sizeof mount, "%s/sys/fs/cgroup%s", root, version_2 ? "" : "/memory") < (int)sizeof mount) {
        lower_by_groups(limit, mount, group + 1, version_2 ? names_2 : names_1);
    }
}

static void lower_by_cgroups(int64_t *limit, const char *root) {
    char line[PATH_ROOM];
    snprintf(line, sizeof line, "%s/proc/self/cgroup", root);
    FILE *const file = fopen(line, "r");
    if (file == NULL) {
        return;
    }
    while (fgets(line, sizeof line, file) != NULL) {
        lower_by_line(limit, root, line);
    }
    fclose(file);
}

int64_t memory_limit(const char *root) {
    int64_t limit = system_memory();
    lower_by_cgroups(&limit, root);
    return limit;
}

int64_t memory_usable(void) { return memory_limit("") / 2; }

bool memory_grow(void *array, int64_t *capacity, int64_t wanted, size_t size) {
    void *elements;
    const int64_t more = wanted > 2 * *capacity ? wanted : 2 * *capacity;
    if (wanted <= *capacity) {
        return true;
    }
    memcpy(&elements, array, sizeof elements);
    elements = (uint64_t)more <= SIZE_MAX / 2 / size ? realloc(elements, (size_t)more * size) : NULL;
    if (elements == NULL) {
        return false;
    }
    memcpy(array, &elements, sizeof elements);
    *capacity = more;
    return true;
}
