/* core/base/fork.c - whether this process is a child of fork. */
#include "core/base/context.h"

#if (defined(_OPENMP) || defined(NAPIER_POOL)) && (defined(__unix__) || defined(__APPLE__))
#include <pthread.h>
#define NAPIER_MAY_FORK 1
#endif

#if defined(NAPIER_MAY_FORK)
static bool is_child; /* written in a child's only thread, before it can start others */
static pthread_once_t watching = PTHREAD_ONCE_INIT;

static void note_child(void) { is_child = true; }
static void watch(void) { (void)pthread_atfork(NULL, NULL, note_child); } /* fails only without memory */

void napier_watch_forks(void) { (void)pthread_once(&watching, watch); }
bool napier_is_child(void) { return is_child; }
#else
void napier_watch_forks(void) {}
bool napier_is_child(void) { return false; }
#endif
