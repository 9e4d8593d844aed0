/* core/base/pool.c - threads that wait for work. POSIX's threads or those of Windows; C11's are missing on macOS.
 *
 * A run offers as many places as it wants threads. A thread that is free takes one, works, and leaves. Threads that come too
 * late are not waited for, and neither is one that the system has given no processor yet. So a busy machine costs a run no
 * more than the chunks that its threads have in hand. */
#ifndef _WIN32
#define _POSIX_C_SOURCE 200809L
#endif

#include "core/base/pool.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/platform.h"

/* ---- The system's threads ---------------------------------------------------------------------------------------- */

/* Stacks are as large on all systems. macOS would give half a megabyte. */
enum { STACK_BYTES = 1 << 20 };

enum { BRIEFLY = 50 }; /* milliseconds */

#if defined(_WIN32)

#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include <process.h>

typedef SRWLOCK lock_type;
typedef CONDITION_VARIABLE condition;
typedef HANDLE thread_handle;
typedef unsigned thread_result;
#define THREAD_CALL __stdcall

static void lock_create(lock_type *l) { InitializeSRWLock(l); }
static void lock_destroy(lock_type *l) { (void)l; }
static void lock_take(lock_type *l) { AcquireSRWLockExclusive(l); }
static void lock_give(lock_type *l) { ReleaseSRWLockExclusive(l); }
static void condition_create(condition *c) { InitializeConditionVariable(c); }
static void condition_destroy(condition *c) { (void)c; }
static void condition_wait(condition *c, lock_type *l) { SleepConditionVariableSRW(c, l, INFINITE, 0); }
static void condition_wait_briefly(condition *c, lock_type *l) { SleepConditionVariableSRW(c, l, BRIEFLY, 0); }
static void condition_wake(condition *c) { WakeConditionVariable(c); }
static void condition_wake_all(condition *c) { WakeAllConditionVariable(c); }

static bool thread_start(thread_handle *t, thread_result(THREAD_CALL *run)(void *), void *argument) {
    *t = (HANDLE)_beginthreadex(NULL, STACK_BYTES, run, argument, STACK_SIZE_PARAM_IS_A_RESERVATION, NULL);
    return *t != NULL;
}

static void thread_join(thread_handle t) {
    WaitForSingleObject(t, INFINITE);
    CloseHandle(t);
}

enum { forks = 0 }; /* Windows has no fork */
static void watch_forks(void) {}

#else

#include <pthread.h>
#include <signal.h>
#include <time.h>

typedef pthread_mutex_t lock_type;
typedef pthread_cond_t condition;
typedef pthread_t thread_handle;
typedef void *thread_result;
#define THREAD_CALL

static void lock_create(lock_type *l) { (void)pthread_mutex_init(l, NULL); }
static void lock_destroy(lock_type *l) { (void)pthread_mutex_destroy(l); }
static void lock_take(lock_type *l) { (void)pthread_mutex_lock(l); }
static void lock_give(lock_type *l) { (void)pthread_mutex_unlock(l); }
static void condition_create(condition *c) { (void)pthread_cond_init(c, NULL); }
static void condition_destroy(condition *c) { (void)pthread_cond_destroy(c); }
static void condition_wait(condition *c, lock_type *l) { (void)pthread_cond_wait(c, l); }
static void condition_wait_briefly(condition *c, lock_type *l) {
    enum { MILLISECOND = 1000 * 1000, SECOND = 1000 * MILLISECOND };
    struct timespec end = {0};
    (void)clock_gettime(CLOCK_REALTIME, &end);
    end.tv_nsec += BRIEFLY * MILLISECOND;
    end.tv_sec += end.tv_nsec / SECOND;
    end.tv_nsec %= SECOND;
    (void)pthread_cond_timedwait(c, l, &end);
}
static void condition_wake(condition *c) { (void)pthread_cond_signal(c); }
static void condition_wake_all(condition *c) { (void)pthread_cond_broadcast(c); }

/* A thread holds the signals that its maker held. So those of the process are left to the program's own threads; faults are a
 * thread's own. */
static void hold_signals(sigset_t *before) {
    static const int faults[] = {SIGBUS, SIGFPE, SIGILL, SIGSEGV};
    sigset_t held;
    (void)sigfillset(&held);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        (void)sigdelset(&held, faults[i]);
    }
    (void)pthread_sigmask(SIG_SETMASK, &held, before);
}

static bool thread_start(thread_handle *t, thread_result (*run)(void *), void *argument) {
    pthread_attr_t attributes;
    sigset_t before;
    if (pthread_attr_init(&attributes) != 0) {
        return false;
    }
    (void)pthread_attr_setstacksize(&attributes, STACK_BYTES);
    hold_signals(&before);
    const bool is_started = pthread_create(t, &attributes, run, argument) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attributes);
    return is_started;
}

static void thread_join(thread_handle t) { (void)pthread_join(t, NULL); }

/* The only state outside a context. Written in a child's only thread, before it can start others. */
static unsigned forks;

static void count_fork(void) { forks++; }
static void watch(void) { (void)pthread_atfork(NULL, NULL, count_fork); } /* fails only without memory */

static void watch_forks(void) {
    static pthread_once_t watching = PTHREAD_ONCE_INIT;
    (void)pthread_once(&watching, watch);
}

#endif

/* ---- The pool ---------------------------------------------------------------------------------------------------- */

struct napier_pool {
    _Atomic uint32_t state; /* places that are free, times PLACE, and the threads at work */
    _Atomic int sleeping;
    _Atomic bool caller_sleeps, is_over;
    atomic_flag is_running;
    int processor, workers; /* from here to `argument`: of a run, written while no thread is at work */
    napier_pool_job *job;
    void *argument;
    unsigned process;           /* `forks` of the process that has the threads */
    int started, most, refused; /* threads beside the caller's; runs until a refused one is asked for again */
    lock_type lock;             /* held for a moment before each sleep and each waking, so that none is missed */
    condition work, done;
    thread_handle threads[];
};

enum { PLACE = 1 << 16, AT_WORK = PLACE - 1, REFUSED_RUNS = 1000 };

static bool has_places(const napier_pool *p) { return p->state >= PLACE; }
static bool is_wanted(const napier_pool *p) { return has_places(p) || p->is_over; }
static bool is_idle(const napier_pool *p) { return p->state == 0; }

static void pause_briefly(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Nanoseconds for which a thread looks for work before it sleeps, and the caller for the end of others' work. Waking a thread
 * takes some 20 us, and a system may wake it on the processor of its caller. Measured (bench/python/busy.py): calls at a
 * distance of 0.4 ms are 10 % slower with a spin of 0.1 ms, which helps no call beside two and four busy processes. */
enum { SPIN = 1000 * 1000, PAUSES = 32 };

static bool comes_soon(const napier_pool *p, bool (*has_come)(const napier_pool *), uint64_t since) {
    do {
        for (int i = 0; i < PAUSES; i++) {
            if (has_come(p)) {
                return true;
            }
            pause_briefly();
        }
    } while (napier_nanoseconds() - since < SPIN);
    return false;
}

/* Each thread that wakes wakes two more, so that the caller need not wake them all before it works itself. */
static void wake_two(napier_pool *p) {
    const uint32_t places = p->state / PLACE;
    const int sleeping = p->sleeping;
    if (places > 0 && sleeping > 0) {
        lock_take(&p->lock);
        lock_give(&p->lock);
        condition_wake(&p->work);
        if (places > 1 && sleeping > 1) {
            condition_wake(&p->work);
        }
    }
}

static void sleep_until_wanted(napier_pool *p) {
    lock_take(&p->lock);
    p->sleeping++;
    while (!is_wanted(p)) {
        condition_wait(&p->work, &p->lock);
    }
    p->sleeping--;
    lock_give(&p->lock);
}

/* The number of the worker that this thread becomes; 0 if all places are taken. */
static int take_place(napier_pool *p) {
    uint32_t state = p->state;
    while (state >= PLACE) {
        if (atomic_compare_exchange_weak(&p->state, &state, state - PLACE + 1)) {
            return p->workers - (int)(state / PLACE);
        }
    }
    return 0;
}

/* Takes the free places away too: no work is left. */
static void leave_place(napier_pool *p) {
    atomic_fetch_and(&p->state, AT_WORK);
    if (atomic_fetch_sub(&p->state, 1) == 1 && p->caller_sleeps) {
        lock_take(&p->lock);
        lock_give(&p->lock);
        condition_wake(&p->done);
    }
}

static thread_result THREAD_CALL run_thread(void *pool) {
    napier_pool *const p = pool;
    uint64_t since = napier_nanoseconds(); /* when it had work */
    while (!p->is_over) {
        if (!comes_soon(p, is_wanted, since)) {
            sleep_until_wanted(p);
        }
        const int worker = take_place(p);
        if (worker > 0) {
            napier_leave_processor(p->processor); /* a system may wake a thread where its caller runs */
            wake_two(p);
            p->job(p->argument, worker);
            leave_place(p);
            since = napier_nanoseconds();
        }
    }
    return 0;
}

/* A thread that the system refuses is missing: the others do its work. */
static void start_threads(napier_pool *p, int wanted) {
    p->refused -= p->refused > 0;
    while (p->started < wanted && p->started < p->most && p->refused == 0) {
        if (thread_start(&p->threads[p->started], run_thread, p)) {
            p->started++;
        } else {
            p->refused = REFUSED_RUNS;
        }
    }
}

size_t napier_pool_size(int threads) { return sizeof(napier_pool) + (size_t)(threads - 1) * sizeof(thread_handle); }

void napier_pool_create(napier_pool *p, int threads) {
    watch_forks();
    atomic_init(&p->state, 0);
    atomic_init(&p->sleeping, 0);
    atomic_init(&p->caller_sleeps, false);
    atomic_init(&p->is_over, false);
    atomic_flag_clear(&p->is_running);
    p->process = forks;
    p->started = p->refused = 0;
    p->most = threads - 1;
    lock_create(&p->lock);
    condition_create(&p->work);
    condition_create(&p->done);
}

static void begin(napier_pool *p, int workers, napier_pool_job *job, void *argument) {
    p->job = job;
    p->argument = argument;
    p->workers = workers;
    p->processor = napier_this_processor();
    p->state = (uint32_t)(workers - 1) * PLACE;
    start_threads(p, workers - 1);
    wake_two(p);
}

static void end(napier_pool *p, napier_pool_ask *ask) {
    atomic_fetch_and(&p->state, AT_WORK);
    if (comes_soon(p, is_idle, napier_nanoseconds())) {
        return;
    }
    lock_take(&p->lock);
    p->caller_sleeps = true;
    while (!is_idle(p)) {
        condition_wait_briefly(&p->done, &p->lock);
        lock_give(&p->lock);
        if (ask != NULL) {
            ask(p->argument);
        }
        lock_take(&p->lock);
    }
    p->caller_sleeps = false;
    lock_give(&p->lock);
}

void napier_pool_run(napier_pool *p, int workers, napier_pool_job *job, napier_pool_ask *ask, void *argument) {
    if (p->process != forks) {
        napier_pool_create(p, p->most + 1);
    }
    if (workers <= 1 || atomic_flag_test_and_set(&p->is_running)) {
        job(argument, 0);
        return;
    }
    begin(p, workers, job, argument);
    job(argument, 0);
    end(p, ask);
    atomic_flag_clear(&p->is_running);
}

void napier_pool_destroy(napier_pool *p) {
    if (p->process != forks) { /* the parent has the threads */
        return;
    }
    lock_take(&p->lock);
    p->is_over = true;
    condition_wake_all(&p->work);
    lock_give(&p->lock);
    for (int i = 0; i < p->started; i++) {
        thread_join(p->threads[i]);
    }
    condition_destroy(&p->work);
    condition_destroy(&p->done);
    lock_destroy(&p->lock);
}
