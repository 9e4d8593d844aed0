/* core/base/fork.h - whether this process is a child of fork.
 *
 * fork copies only the calling thread. libgomp's threads stay in the parent, and a parallel region in the child would
 * wait for them for ever. So a child works on one thread. */
#ifndef NAPIER_CORE_BASE_FORK_H
#define NAPIER_CORE_BASE_FORK_H

#include <stdbool.h>

/* The first context of a process calls this. It registers a handler by which a child of fork knows that it is one. */
void napier_watch_forks(void);
bool napier_is_child(void);

#endif
