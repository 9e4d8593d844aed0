/* cli/program/memory.h - how much memory this process may use. */
#ifndef NAPIER_CLI_MEMORY_H
#define NAPIER_CLI_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The least of the machine's memory, the limits of the cgroups of the process (versions 1 and 2), RLIMIT_AS and
 * RLIMIT_DATA. `root` is a prefix of the paths of /proc and /sys: "" except in tests. */
int64_t memory_limit(const char *root);

/* Half of that limit. The program uses slower methods, or refuses, rather than take more. */
int64_t memory_usable(void);

/* Makes space in an array for `wanted` elements of `size` bytes, at least doubling it. `array` points to the pointer to
 * the elements. Returns false if there is no memory; the array stays as it is. */
bool memory_grow(void *array, int64_t *capacity, int64_t wanted, size_t size);

#endif
