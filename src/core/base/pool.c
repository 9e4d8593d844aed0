/* core/base/pool.c - threads that wait for work. POSIX's threads or those of Windows; C11's are missing on macOS. */
#if defined(NAPIER_POOL)

#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* sched_getaffinity */
#endif

#include "core/base/pool.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* ---- The system's threads ---------------------------------------------------------------------------------------- */

/* Stacks are as large on all systems. macOS would give half a megabyte. */
enum { STACK_BYTES = 8 << 20 };

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
static void condition_wake(condition *c) { WakeAllConditionVariable(c); }

static bool thread_start(thread_handle *t, thread_result(THREAD_CALL *run)(void *), void *argument) {
    *t = (HANDLE)_beginthreadex(NULL, STACK_BYTES, run, argument, STACK_SIZE_PARAM_IS_A_RESERVATION, NULL);
    return *t != NULL;
}

static void thread_join(thread_handle t) {
    WaitForSingleObject(t, INFINITE);
    CloseHandle(t);
}

int napier_pool_processors(void) {
    const DWORD count = GetActiveProcessorCount(ALL_PROCESSOR_GROUPS);
    return count > 0 && count <= INT16_MAX ? (int)count : 1;
}

#else

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

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
static void condition_wake(condition *c) { (void)pthread_cond_broadcast(c); }

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

int napier_pool_processors(void) {
#if defined(__linux__)
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) {
        return CPU_COUNT(&set);
    }
#endif
    const long count = sysconf(_SC_NPROCESSORS_ONLN);
    return count > 0 && count <= INT16_MAX ? (int)count : 1;
}

#endif

/* ---- The pool ---------------------------------------------------------------------------------------------------- */

typedef struct pool_thread {
    napier_pool *pool;
    int worker;
    unsigned seen; /* the last run that it knows of */
    thread_handle handle;
} pool_thread;

struct napier_pool {
    lock_type lock; /* of all below but the atomics, which are also read without it */
    condition work, done;
    atomic_flag is_running;
    _Atomic unsigned run;   /* counts runs */
    _Atomic unsigned ended; /* the last run whose caller takes no more workers */
    _Atomic int active;     /* workers that have begun and not ended */
    _Atomic bool is_over;
    int workers;
    napier_pool_job *job;
    void *argument;
    int started, most; /* threads beside the callers */
    pool_thread threads[];
};

/* The next run often comes within microseconds; waking a thread takes longer. */
enum { SPINS = 2000 };

static void pause_briefly(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Waits for a run and takes part in it; false if the pool ends. */
static bool work(napier_pool *p, pool_thread *t) {
    for (int i = 0; i < SPINS && p->run == t->seen && !p->is_over; i++) {
        pause_briefly();
    }
    lock_take(&p->lock);
    while (p->run == t->seen && !p->is_over) {
        condition_wait(&p->work, &p->lock);
    }
    t->seen = p->run;
    napier_pool_job *const job = p->job;
    void *const argument = p->argument;
    const bool is_over = p->is_over, takes_part = !is_over && p->ended != t->seen && t->worker < p->workers;
    p->active += takes_part;
    lock_give(&p->lock);
    if (takes_part) {
        job(argument, t->worker);
        lock_take(&p->lock);
        p->active--;
        condition_wake(&p->done);
        lock_give(&p->lock);
    }
    return !is_over;
}

static thread_result THREAD_CALL run_thread(void *argument) {
    pool_thread *const t = argument;
    while (work(t->pool, t)) {
    }
    return 0;
}

/* With the lock. */
static void start_threads(napier_pool *p, int wanted) {
    while (p->started < wanted && p->started < p->most) {
        pool_thread *const t = &p->threads[p->started];
        *t = (pool_thread){.pool = p, .worker = p->started + 1, .seen = p->run};
        if (!thread_start(&t->handle, run_thread, t)) {
            return;
        }
        p->started++;
    }
}

size_t napier_pool_size(int threads) { return sizeof(napier_pool) + (size_t)(threads - 1) * sizeof(pool_thread); }

void napier_pool_create(napier_pool *p, int threads) {
    lock_create(&p->lock);
    condition_create(&p->work);
    condition_create(&p->done);
    atomic_flag_clear(&p->is_running);
    atomic_init(&p->run, 0);
    atomic_init(&p->ended, 0);
    atomic_init(&p->active, 0);
    atomic_init(&p->is_over, false);
    p->workers = 1;
    p->job = NULL;
    p->argument = NULL;
    p->started = 0;
    p->most = threads - 1;
}

static void begin(napier_pool *p, int workers, napier_pool_job *job, void *argument) {
    lock_take(&p->lock);
    start_threads(p, workers - 1);
    p->job = job;
    p->argument = argument;
    p->workers = workers;
    p->run++;
    condition_wake(&p->work);
    lock_give(&p->lock);
}

static void end(napier_pool *p) {
    lock_take(&p->lock);
    p->ended = p->run;
    lock_give(&p->lock);
    for (int i = 0; i < SPINS && p->active > 0; i++) {
        pause_briefly();
    }
    lock_take(&p->lock);
    while (p->active > 0) {
        condition_wait(&p->done, &p->lock);
    }
    lock_give(&p->lock);
}

void napier_pool_run(napier_pool *p, int workers, napier_pool_job *job, void *argument) {
    if (workers <= 1 || atomic_flag_test_and_set(&p->is_running)) {
        job(argument, 0);
        return;
    }
    begin(p, workers, job, argument);
    job(argument, 0);
    end(p);
    atomic_flag_clear(&p->is_running);
}

void napier_pool_destroy(napier_pool *p) {
    lock_take(&p->lock);
    p->is_over = true;
    condition_wake(&p->work);
    lock_give(&p->lock);
    for (int i = 0; i < p->started; i++) {
        thread_join(p->threads[i].handle);
    }
    condition_destroy(&p->work);
    condition_destroy(&p->done);
    lock_destroy(&p->lock);
}

#else
typedef int napier_no_pool; /* ISO C wants a declaration */
#endif
