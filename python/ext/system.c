/* system.c - what operating systems do differently: memory in whole pages, and fork. */
#include "ext.h"

#ifdef _WIN32

#include <windows.h>

void *pages_take(size_t bytes) { return VirtualAlloc(NULL, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE); }

void pages_give(void *pages, size_t bytes) {
    (void)bytes;
    VirtualFree(pages, 0, MEM_RELEASE);
}

void pages_idle(void *pages, size_t bytes) {
    (void)pages;
    (void)bytes;
}

size_t machine_bytes(void) {
    MEMORYSTATUSEX status = {.dwLength = sizeof status};
    return GlobalMemoryStatusEx(&status) ? (size_t)status.ullTotalPhys : 0;
}

int watch_forks(void (*before)(void), void (*after)(void), void (*in_child)(void)) {
    (void)before;
    (void)after;
    (void)in_child;
    return 0;
}

#else

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

/* Large blocks lie on huge pages if the system has them. */
void *pages_take(size_t bytes) {
    const size_t room = bytes >= HUGE_PAGE ? bytes + HUGE_PAGE : bytes;
    char *start = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) {
        return NULL;
    }
    if (room > bytes) { /* aligned to huge pages; the rest at both ends is unmapped */
        const size_t ahead = (HUGE_PAGE - (uintptr_t)start % HUGE_PAGE) % HUGE_PAGE;
        if (ahead > 0) {
            munmap(start, ahead);
        }
        munmap(start + ahead + bytes, room - ahead - bytes);
        start += ahead;
#ifdef MADV_HUGEPAGE
        (void)madvise(start, bytes, MADV_HUGEPAGE);
#endif
    }
    return start;
}

void pages_give(void *pages, size_t bytes) { munmap(pages, bytes); }

void pages_idle(void *pages, size_t bytes) {
#ifdef MADV_FREE
    (void)madvise(pages, bytes, MADV_FREE);
#else
    (void)pages;
    (void)bytes;
#endif
}

size_t machine_bytes(void) {
    const long pages = sysconf(_SC_PHYS_PAGES), each = sysconf(_SC_PAGESIZE);
    return pages > 0 && each > 0 ? (size_t)pages * (size_t)each : 0;
}

int watch_forks(void (*before)(void), void (*after)(void), void (*in_child)(void)) {
    return pthread_atfork(before, after, in_child);
}

#endif
