/* cli/program/system.c - see system.h. POSIX first, then Windows. */
#ifndef _WIN32
#define _DEFAULT_SOURCE /* RLIMIT_DATA is POSIX, RLIMIT_AS too; _SC_PHYS_PAGES is not */
#define _DARWIN_C_SOURCE

#include "system.h"

#include "message.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

/* The library's largest frames are some 50 KB, and those of the program around them as much again. */
static bool has_stack(void) {
    enum { LEAST = 256 << 10, USUAL = 8 << 20 };
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= LEAST) {
        return true;
    }
    limit.rlim_cur =
        limit.rlim_max < USUAL ? limit.rlim_max : USUAL; /* the stack grows up to the limit of the moment */
    if (limit.rlim_cur >= LEAST && setrlimit(RLIMIT_STACK, &limit) == 0) {
        return true;
    }
    message_complain("the stack is limited to %lld KB; 256 are needed (ulimit -s)", (long long)(limit.rlim_cur >> 10));
    return false;
}

/* Each is opened for the wrong direction, so using the stream is an error. */
bool system_start(int *count, char ***words) {
    (void)count;
    (void)words;
    for (int fd = 0; fd < 3; fd++) {
        if (fcntl(fd, F_GETFD) == -1 && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd) {
            return false;
        }
    }
    return has_stack();
}

/* ---- Signals ----------------------------------------------------------------------------------------------------- */

static const int fatal_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGBUS};
enum { FATAL_SIGNALS = sizeof fatal_signals / sizeof fatal_signals[0] };

static void (*remove_all)(void);
static sigset_t before_hold;

static void on_signal(int number) {
    remove_all();
    signal(number, SIG_DFL);
    raise(number);
}

/* SIGBUS occurs when another program shortens a file that is mapped here, or when its disk cannot be read. Several
 * threads can meet it at once. The first one reports it and ends the program; the others wait for that. */
static void on_bus_error(int number) {
    static const char text[] = "napier: a file became shorter while it was read, or its disk failed\n";
    static atomic_flag is_reported = ATOMIC_FLAG_INIT;
    (void)number;
    while (atomic_flag_test_and_set(&is_reported)) {
        pause();
    }
    remove_all();
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0) {
        _exit(STATUS_FAILED);
    }
    _exit(STATUS_FAILED);
}

static void fatal_set(sigset_t *set) {
    sigemptyset(set);
    for (int i = 0; i < FATAL_SIGNALS; i++) {
        sigaddset(set, fatal_signals[i]);
    }
}

void system_handle_signals(void (*remove_files)(void)) {
    struct sigaction action;
    remove_all = remove_files;
    memset(&action, 0, sizeof action);
    fatal_set(&action.sa_mask);
    for (int i = 0; i < FATAL_SIGNALS; i++) {
        struct sigaction before;
        action.sa_handler = fatal_signals[i] == SIGBUS ? on_bus_error : on_signal;
        if (sigaction(fatal_signals[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN) {
            sigaction(fatal_signals[i], &action, NULL);
        }
    }
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
}

void system_hold_signals(void) {
    sigset_t fatal;
    fatal_set(&fatal);
    sigprocmask(SIG_BLOCK, &fatal, &before_hold);
}

void system_release_signals(void) { sigprocmask(SIG_SETMASK, &before_hold, NULL); }

bool system_is_closed_pipe(int error) { return error == EPIPE; }

/* ---- Memory and files -------------------------------------------------------------------------------------------- */

static int64_t machine_memory(void) {
#ifdef _SC_PHYS_PAGES
    const int64_t pages = sysconf(_SC_PHYS_PAGES);
    const int64_t page = sysconf(_SC_PAGESIZE);
    if (pages > 0 && page > 0 && pages < INT64_MAX / page) {
        return pages * page;
    }
#endif
    return (int64_t)2 << 30;
}

static int64_t lowered_by_resource(int64_t limit, int resource) {
    struct rlimit r;
    const bool is_lower =
        getrlimit(resource, &r) == 0 && r.rlim_cur != RLIM_INFINITY && (uint64_t)r.rlim_cur < (uint64_t)limit;
    return is_lower ? (int64_t)r.rlim_cur : limit;
}

int64_t system_memory(void) {
    const int64_t limit = lowered_by_resource(machine_memory(), RLIMIT_DATA);
#ifdef RLIMIT_AS
    return lowered_by_resource(limit, RLIMIT_AS);
#else
    return limit;
#endif
}

bool system_lock(FILE *file) {
    struct flock whole;
    memset(&whole, 0, sizeof whole);
    whole.l_type = F_WRLCK;
    whole.l_whence = SEEK_SET;
    return fcntl(fileno(file), F_SETLK, &whole) == 0 || (errno != EACCES && errno != EAGAIN);
}

const char *system_temporary_directory(void) {
    const char *const directory = getenv("TMPDIR");
    return directory != NULL && *directory != '\0' ? directory : "/tmp";
}

FILE *system_temporary_file(const char *directory) {
    const char template[] = "/napier-XXXXXX";
    const size_t size = strlen(directory) + sizeof template;
    char *const path = malloc(size);
    if (path == NULL) {
        return NULL;
    }
    snprintf(path, size, "%s%s", directory, template);
    const int fd = mkstemp(path);
    FILE *const file = fd >= 0 ? fdopen(fd, "w+b") : NULL;
    const int reason = errno;
    if (fd >= 0) {
        unlink(path);
        if (file == NULL) {
            close(fd);
        }
    }
    free(path);
    errno = reason;
    return file;
}

/* Allocates the disk blocks at once, so that a full disk is an error here instead of a SIGBUS later; not on macOS. */
static int reserve(int fd, off_t size) {
#ifdef __APPLE__ /* macOS has no posix_fallocate */
    return ftruncate(fd, size) == 0 ? 0 : errno;
#else
    return posix_fallocate(fd, 0, size);
#endif
}

void *system_map_new(FILE *file, size_t size) {
    const int error = reserve(fileno(file), (off_t)size);
    if (error != 0) {
        errno = error;
        return NULL;
    }
    void *const map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
    return map == MAP_FAILED ? NULL : map;
}

void system_unmap(void *map, size_t size) { munmap(map, size); }

#else

#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include <shellapi.h>

#include "system.h"

#include <io.h>
#include <signal.h>

/* ---- Arguments and streams --------------------------------------------------------------------------------------- */

/* NULL if there is no memory. The words live as long as the program. */
static char *narrow(const wchar_t *wide) {
    const int size = WideCharToMultiByte(CP_UTF8, 0, wide, -1, NULL, 0, NULL, NULL);
    char *const word = size > 0 ? malloc((size_t)size) : NULL;
    return word != NULL && WideCharToMultiByte(CP_UTF8, 0, wide, -1, word, size, NULL, NULL) == size ? word : NULL;
}

static bool read_words(int *count, char ***words) {
    int n = 0;
    wchar_t **const wide = CommandLineToArgvW(GetCommandLineW(), &n);
    char **const all = wide != NULL ? calloc((size_t)n + 1, sizeof *all) : NULL;
    bool is_good = all != NULL;
    for (int i = 0; is_good && i < n; i++) {
        all[i] = narrow(wide[i]);
        is_good = all[i] != NULL;
    }
    LocalFree(wide);
    *count = is_good ? n : *count;
    *words = is_good ? all : *words;
    return is_good;
}

/* So that the line of progress can erase itself. Not all consoles can. */
static void allow_escapes(DWORD stream) {
    DWORD mode = 0;
    const HANDLE console = GetStdHandle(stream);
    if (GetConsoleMode(console, &mode)) {
        SetConsoleMode(console, mode | ENABLE_VIRTUAL_TERMINAL_PROCESSING);
    }
}

bool system_start(int *count, char ***words) {
    _setmode(STDIN_FILENO, O_BINARY);
    _setmode(STDOUT_FILENO, O_BINARY);
    _setmode(STDERR_FILENO, O_BINARY);
    SetConsoleOutputCP(CP_UTF8);
    allow_escapes(STD_OUTPUT_HANDLE);
    allow_escapes(STD_ERROR_HANDLE);
    return read_words(count, words);
}

/* ---- Signals ----------------------------------------------------------------------------------------------------- */

static void (*remove_all)(void);

static void on_signal(int number) {
    remove_all();
    signal(number, SIG_DFL);
    raise(number);
}

void system_handle_signals(void (*remove_files)(void)) {
    static const int fatal_signals[] = {SIGINT, SIGTERM, SIGBREAK};
    remove_all = remove_files;
    for (size_t i = 0; i < sizeof fatal_signals / sizeof fatal_signals[0]; i++) {
        signal(fatal_signals[i], on_signal);
    }
}

void system_hold_signals(void) {}
void system_release_signals(void) {}

bool system_is_closed_pipe(int error) { return error == EPIPE || error == EINVAL; } /* EINVAL: since Windows 10 */

/* ---- Memory and files -------------------------------------------------------------------------------------------- */

int64_t system_memory(void) {
    MEMORYSTATUSEX memory = {.dwLength = sizeof memory};
    const bool is_known = GlobalMemoryStatusEx(&memory) && memory.ullTotalPhys < INT64_MAX;
    return is_known ? (int64_t)memory.ullTotalPhys : (int64_t)2 << 30;
}

/* Locks on Windows forbid to read, so a byte far behind the end stands for the file. */
bool system_lock(FILE *file) {
    OVERLAPPED place = {.OffsetHigh = 0x40000000};
    const HANDLE handle = (HANDLE)_get_osfhandle(fileno(file));
    return LockFileEx(handle, LOCKFILE_EXCLUSIVE_LOCK | LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &place) ||
           GetLastError() != ERROR_LOCK_VIOLATION;
}

const char *system_temporary_directory(void) {
    static const char *const names[] = {"TMPDIR", "TMP", "TEMP"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *const directory = getenv(names[i]);
        if (directory != NULL && *directory != '\0') {
            return directory;
        }
    }
    return ".";
}

FILE *system_temporary_file(const char *directory) {
    enum { ATTEMPTS = 100, ROOM = 4096 };
    char path[ROOM];
    int fd = -1;
    errno = EEXIST;
    for (unsigned i = 0; i < ATTEMPTS && fd < 0 && errno == EEXIST; i++) {
        const unsigned draw = (unsigned)napier_nanoseconds() * 2654435761u + i;
        if (snprintf(path, sizeof path, "%s\\napier-%08x-%lu", directory, draw, GetCurrentProcessId()) >= ROOM) {
            errno = ENAMETOOLONG;
            return NULL;
        }
        fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_TEMPORARY);
    }
    FILE *const file = fd >= 0 ? fdopen(fd, "w+b") : NULL;
    if (file == NULL && fd >= 0) {
        close(fd);
    }
    return file;
}

void *system_map_new(FILE *file, size_t size) {
    (void)file;
    void *const map = VirtualAlloc(NULL, size, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
    errno = map == NULL ? ENOMEM : errno;
    return map;
}

void system_unmap(void *map, size_t size) {
    (void)size;
    VirtualFree(map, 0, MEM_RELEASE);
}

#endif
