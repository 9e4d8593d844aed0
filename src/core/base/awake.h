/* core/base/awake.h - whether the other threads of a context would begin at once.
 *
 * A thread without work looks for some in a loop for a millisecond, then it sleeps. One that looks begins within 2 us, unless
 * another process has its processor; one that sleeps takes 15 to 50 us. So work of 20 us gains by a second thread only if that
 * one is awake, and only a measurement tells: how long threads took to begin a loop that came soon after another one. */
#ifndef NAPIER_CORE_BASE_AWAKE_H
#define NAPIER_CORE_BASE_AWAKE_H

#include <stdbool.h>
#include <stdint.h>

/* Atomic, because threads of a loop may run loops of their own. */
typedef struct napier_awake {
    _Atomic uint64_t ended; /* nanoseconds: the last loop over threads; 0: none yet */
    _Atomic uint64_t asked; /* the last question; 0: none yet */
    _Atomic int slow;       /* successive loops that a thread began late although they came soon after another one */
    _Atomic int refused;    /* questions since these were too many */
    _Atomic bool answer;    /* to the last question */
} napier_awake;

/* A loop over threads was called, the last of them began, and the loop ended at these times. */
void napier_awake_note(napier_awake *a, uint64_t called, uint64_t began, uint64_t ended);

/* Should work of some 20 us be divided now? Also true where that may show whether threads sleep: in the second of two calls
 * that follow closely, and again after many were refused. A call may ask twice: within a microsecond the answer is the same. */
bool napier_awake_ask(napier_awake *a, uint64_t now);

#endif
