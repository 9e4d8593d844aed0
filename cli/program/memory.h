/* cli/program/memory.h - how much memory this process may have. */
#ifndef NAPIER_CLI_MEMORY_H
#define NAPIER_CLI_MEMORY_H

#include <stdint.h>

/* The least of the machine's memory, the limits of the cgroups that the process is in (versions 1 and 2), RLIMIT_AS and
 * RLIMIT_DATA. `root` stands before the paths of /proc and /sys: "" but in tests. */
int64_t memory_limit(const char *root);

/* Half of that: what the program takes before it goes slower ways or refuses. */
int64_t memory_usable(void);

#endif
