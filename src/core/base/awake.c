/* core/base/awake.c - see awake.h. */
#include "core/base/awake.h"

enum {
    PROMPT = 5 * 1000,     /* nanoseconds: a thread that begins within this was awake */
    SOON = 1000 * 1000,    /* threads that look for work at all still do so this long after a loop */
    SAME_CALL = 1000,      /* no work that asks is done in so short a time */
    OFTEN = 200 * 1000,    /* questions at this distance are those of a loop around small calls */
    MOST_SLOW = 3,         /* a single slow start may be due to another process */
    MOST_REFUSED = 1 << 11 /* four slow starts in so many calls of 20 us are one in 200 of their time */
};

void napier_awake_note(napier_awake *a, uint64_t called, uint64_t began, uint64_t ended) {
    if (a->ended > 0 && called - a->ended < SOON) {
        a->slow = began - called < PROMPT ? 0 : a->slow + 1;
    }
    a->ended = ended;
}

static bool answer_at(napier_awake *a, uint64_t now) {
    const bool soon = a->ended > 0 && now - a->ended < SOON;
    const bool often = a->asked > 0 && now - a->asked < OFTEN;
    if (a->slow >= MOST_SLOW && ++a->refused < MOST_REFUSED) {
        return false;
    }
    if (a->refused > 0) {
        a->slow = a->refused = 0;
    }
    return soon || often;
}

bool napier_awake_ask(napier_awake *a, uint64_t now) {
    if (a->asked == 0 || now - a->asked >= SAME_CALL) {
        a->answer = answer_at(a, now);
    }
    a->asked = now;
    return a->answer;
}
