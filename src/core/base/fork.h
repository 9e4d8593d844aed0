/* core/base/fork.h - whether this process is a child of fork.
 *
 * fork copies the calling thread only. libgomp's team stays behind in the parent, and a parallel region in the child
 * would wait for it for ever. So a child works on one thread. */
#ifndef NAPIER_CORE_BASE_FORK_H
#define NAPIER_CORE_BASE_FORK_H

#include <stdbool.h>

/* A process's first context calls this: from then on children of fork are known. */
void napier_watch_forks(void);
bool napier_is_child(void);

#endif
