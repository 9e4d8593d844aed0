/* core/base/platform.c - see platform.h. POSIX first, then Windows. */
#ifndef _WIN32
#ifdef __linux__
#define _GNU_SOURCE /* sched_getaffinity */
#else
#define _DEFAULT_SOURCE /* madvise */
#endif

#include "core/base/platform.h"

#include <ctype.h>
#include <sched.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { HUGE_PAGE = 2 << 20, HUGE_LEAST = 1 << 20, PATH_ROOM = 4096 };

/* Huge pages are contiguous, so they fill the sets of a cache evenly, and have one entry of the TLB for 2 MB. Linux often gives
 * them only to those who ask. */
void *napier_aligned_take(size_t alignment, size_t size) {
    void *memory = NULL;
    const bool huge = size >= HUGE_PAGE && alignment <= HUGE_PAGE;
    if (posix_memalign(&memory, huge ? HUGE_PAGE : alignment, size) != 0) {
        return NULL;
    }
#ifdef MADV_HUGEPAGE
    if (huge) {
        (void)madvise(memory, size / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
    }
#endif
    return memory;
}

void napier_aligned_give(void *memory) { free(memory); }

size_t napier_whole_pages(size_t size) {
    return size < HUGE_LEAST || size > SIZE_MAX - HUGE_PAGE ? size : (size + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
}

uint64_t napier_nanoseconds(void) {
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

int64_t napier_cache_bytes(void) {
#ifdef _SC_LEVEL3_CACHE_SIZE
    const long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return bytes > 0 ? bytes : 0;
#else
    return 0;
#endif
}

/* ---- Processors -------------------------------------------------------------------------------------------------- */

#ifdef __linux__
/* The file's first bytes, as a string; false if there is none. */
static bool read_text(const char *root, const char *path, char *text, size_t room) {
    char full[PATH_ROOM];
    const int length = snprintf(full, sizeof full, "%s%s", root, path);
    const int fd = length > 0 && (size_t)length < sizeof full ? open(full, O_RDONLY | O_CLOEXEC) : -1;
    const ssize_t size = fd >= 0 ? read(fd, text, room - 1) : -1;
    if (fd >= 0) {
        (void)close(fd);
    }
    text[size > 0 ? size : 0] = '\0';
    return size > 0;
}

/* A positive number of microseconds and the end of its digits; 0 for "max", -1 and anything else. */
static double microseconds_at(const char *text, const char **end) {
    double value = 0;
    for (; isdigit((unsigned char)*text); text++) {
        value = value * 10 + (*text - '0');
    }
    *end = text;
    return value < 1e15 ? value : 0;
}

static double ratio(double quota, double period) { return quota > 0 && period > 0 ? quota / period : 0; }
static double lesser(double a, double b) { return b > 0 && (a == 0 || b < a) ? b : a; }

/* The quota that a folder's files state: "150000 100000", or two files with a number each. */
static double quota_in(const char *root, const char *folder) {
    char path[PATH_ROOM], text[64], period[64];
    const char *end = NULL;
    (void)snprintf(path, sizeof path, "%.4000s/cpu.max", folder);
    if (read_text(root, path, text, sizeof text)) {
        const double quota = microseconds_at(text, &end);
        return *end == ' ' ? ratio(quota, microseconds_at(end + 1, &end)) : 0;
    }
    (void)snprintf(path, sizeof path, "%.4000s/cpu.cfs_quota_us", folder);
    const bool has_quota = read_text(root, path, text, sizeof text);
    (void)snprintf(path, sizeof path, "%.4000s/cpu.cfs_period_us", folder);
    return has_quota && read_text(root, path, period, sizeof period)
               ? ratio(microseconds_at(text, &end), microseconds_at(period, &end))
               : 0;
}

/* The least quota of a group and of those around it. In a container the path may be that of the host, so that the groups
 * farther out are all that is found. */
static double least_quota(const char *root, const char *mount, const char *group) {
    char folder[PATH_ROOM];
    double least = 0;
    const int length = snprintf(folder, sizeof folder, "%s%s", mount, group);
    if (length < 0 || (size_t)length >= sizeof folder || strstr(group, "..") != NULL) {
        return quota_in(root, mount);
    }
    while (strlen(folder) > strlen(mount)) {
        least = lesser(least, quota_in(root, folder));
        *strrchr(folder, '/') = '\0';
    }
    return lesser(least, quota_in(root, mount));
}

static bool has_word(const char *list, const char *word) {
    const size_t length = strlen(word);
    const char *at = strstr(list, word);
    return at != NULL && (at == list || at[-1] == ',') && (at[length] == ',' || at[length] == '\0');
}

/* A line is number:controllers:/group, without controllers in version 2. */
static double quota_of_line(const char *root, char *line) {
    char *const controllers = strchr(line, ':'), *const group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (group == NULL || group[1] != '/') {
        return 0;
    }
    *group = '\0';
    if (controllers[1] == '\0') {
        return least_quota(root, "/sys/fs/cgroup", group + 1);
    }
    return has_word(controllers + 1, "cpu") ? least_quota(root, "/sys/fs/cgroup/cpu", group + 1) : 0;
}

double napier_processor_quota(const char *root) {
    char text[2 * PATH_ROOM];
    double least = 0;
    if (!read_text(root, "/proc/self/cgroup", text, sizeof text)) {
        return 0;
    }
    for (char *line = text, *next = NULL; line != NULL; line = next) {
        next = strchr(line, '\n');
        if (next != NULL) {
            *next++ = '\0';
        }
        least = lesser(least, quota_of_line(root, line));
    }
    return least;
}

static int allowed_processors(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
}

int napier_this_processor(void) { return sched_getcpu(); }

void napier_leave_processor(int number) {
    cpu_set_t all, others;
    if (number < 0 || number >= CPU_SETSIZE || number != sched_getcpu() ||
        sched_getaffinity(0, sizeof all, &all) != 0) {
        return;
    }
    others = all;
    CPU_CLR((size_t)number, &others);
    if (CPU_COUNT(&others) > 0 && sched_setaffinity(0, sizeof others, &others) == 0) {
        (void)sched_setaffinity(0, sizeof all, &all);
    }
}
#else
double napier_processor_quota(const char *root) {
    (void)root;
    return 0;
}

static int allowed_processors(void) { return 0; }
int napier_this_processor(void) { return -1; }
void napier_leave_processor(int number) { (void)number; }
#endif

int napier_processors(void) {
    const int allowed = allowed_processors();
    const long count = allowed > 0 ? allowed : sysconf(_SC_NPROCESSORS_ONLN);
    const int processors = count > 0 && count <= INT16_MAX ? (int)count : 1;
    const double quota = napier_processor_quota("");
    const int whole = quota > 0 && quota < processors ? (int)quota : processors;
    return quota > whole ? whole + 1 : whole > 0 ? whole : 1;
}

const char *napier_path_name(const char *path) {
    const char *const slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

const void *napier_map_file(int fd, size_t size) {
    const void *const map = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    return map == MAP_FAILED ? NULL : map;
}

void napier_unmap_file(const void *map, size_t size) { (void)munmap((void *)(uintptr_t)map, size); }

#else

#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include "core/base/platform.h"

#include <io.h>
#include <malloc.h>
#include <string.h>

void *napier_aligned_take(size_t alignment, size_t size) { return _aligned_malloc(size, alignment); }
void napier_aligned_give(void *memory) { _aligned_free(memory); }
size_t napier_whole_pages(size_t size) { return size; }

uint64_t napier_nanoseconds(void) {
    const uint64_t second = UINT64_C(1000000000);
    LARGE_INTEGER ticks, rate;
    QueryPerformanceCounter(&ticks);
    QueryPerformanceFrequency(&rate);
    const uint64_t n = (uint64_t)ticks.QuadPart, r = (uint64_t)rate.QuadPart;
    return n / r * second + n % r * second / r;
}

int napier_processors(void) {
    const DWORD count = GetActiveProcessorCount(ALL_PROCESSOR_GROUPS);
    return count > 0 && count <= INT16_MAX ? (int)count : 1;
}

double napier_processor_quota(const char *root) {
    (void)root;
    return 0;
}

int napier_this_processor(void) { return -1; }
void napier_leave_processor(int number) { (void)number; }

int64_t napier_cache_bytes(void) { return 0; }

const char *napier_path_name(const char *path) {
    const char *name = path;
    for (const char *at = path; *at; at++) {
        name = *at == '/' || *at == '\\' || (*at == ':' && at == path + 1) ? at + 1 : name;
    }
    return name;
}

/* ---- Errors and paths -------------------------------------------------------------------------------------------- */

enum { PATH_ROOM = 4096 }; /* units of a path, UTF-16 or UTF-8 */

/* Sets errno from the last error of Windows; returns -1. */
static int fail(void) {
    static const struct {
        DWORD system;
        int number;
    } known[] = {
        {ERROR_FILE_NOT_FOUND, ENOENT},        {ERROR_PATH_NOT_FOUND, ENOENT},
        {ERROR_INVALID_NAME, ENOENT},          {ERROR_BAD_PATHNAME, ENOENT},
        {ERROR_BAD_NETPATH, ENOENT},           {ERROR_ACCESS_DENIED, EACCES},
        {ERROR_SHARING_VIOLATION, EACCES},     {ERROR_LOCK_VIOLATION, EACCES},
        {ERROR_WRITE_PROTECT, EROFS},          {ERROR_USER_MAPPED_FILE, EBUSY},
        {ERROR_FILE_EXISTS, EEXIST},           {ERROR_ALREADY_EXISTS, EEXIST},
        {ERROR_NOT_ENOUGH_MEMORY, ENOMEM},     {ERROR_OUTOFMEMORY, ENOMEM},
        {ERROR_COMMITMENT_LIMIT, ENOMEM},      {ERROR_FILENAME_EXCED_RANGE, ENAMETOOLONG},
        {ERROR_BUFFER_OVERFLOW, ENAMETOOLONG}, {ERROR_DISK_FULL, ENOSPC},
        {ERROR_HANDLE_DISK_FULL, ENOSPC},      {ERROR_DIRECTORY, ENOTDIR},
        {ERROR_TOO_MANY_OPEN_FILES, EMFILE},   {ERROR_INVALID_HANDLE, EBADF},
        {ERROR_NOT_SAME_DEVICE, EXDEV},
    };
    const DWORD error = GetLastError();
    errno = EIO;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        errno = known[i].system == error ? known[i].number : errno;
    }
    return -1;
}

/* The path in UTF-16; false, and errno, if it is too long or not UTF-8. */
static int widen(const char *path, wchar_t wide[PATH_ROOM]) {
    if (MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, wide, PATH_ROOM) > 0) {
        return 1;
    }
    errno = GetLastError() == ERROR_INSUFFICIENT_BUFFER ? ENAMETOOLONG : ENOENT;
    return 0;
}

/* A folder opens only with backup semantics. */
static HANDLE open_handle(const char *path, DWORD rights, DWORD creation, DWORD attributes) {
    wchar_t wide[PATH_ROOM];
    if (!widen(path, wide)) {
        return INVALID_HANDLE_VALUE;
    }
    const HANDLE file = CreateFileW(wide, rights, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL,
                                    creation, attributes | FILE_FLAG_BACKUP_SEMANTICS, NULL);
    if (file == INVALID_HANDLE_VALUE) {
        (void)fail();
    }
    return file;
}

/* ---- Opening ----------------------------------------------------------------------------------------------------- */

int napier_windows_open(const char *path, int flags, ...) {
    const int access_flags = flags & (O_RDONLY | O_WRONLY | O_RDWR);
    const DWORD rights = access_flags == O_RDONLY   ? GENERIC_READ
                         : access_flags == O_WRONLY ? GENERIC_WRITE
                                                    : GENERIC_READ | GENERIC_WRITE;
    const DWORD creation = flags & O_CREAT   ? (flags & O_EXCL    ? CREATE_NEW
                                                : flags & O_TRUNC ? CREATE_ALWAYS
                                                                  : OPEN_ALWAYS)
                           : flags & O_TRUNC ? TRUNCATE_EXISTING
                                             : OPEN_EXISTING;
    const DWORD attributes =
        FILE_ATTRIBUTE_NORMAL | (flags & O_TEMPORARY ? FILE_FLAG_DELETE_ON_CLOSE | FILE_ATTRIBUTE_TEMPORARY : 0);
    const HANDLE file = open_handle(path, rights, creation, attributes);
    if (file == INVALID_HANDLE_VALUE) {
        return -1;
    }
    const int fd = _open_osfhandle((intptr_t)file, (flags & (O_RDONLY | O_APPEND)) | O_BINARY | O_NOINHERIT);
    if (fd < 0) {
        CloseHandle(file);
    }
    return fd;
}

static unsigned most_at_once(size_t size) {
    const unsigned most = 1u << 30;
    return size < most ? (unsigned)size : most;
}

ssize_t napier_windows_read(int fd, void *bytes, size_t size) { return _read(fd, bytes, most_at_once(size)); }

ssize_t napier_windows_write(int fd, const void *bytes, size_t size) { return _write(fd, bytes, most_at_once(size)); }

FILE *napier_windows_fopen(const char *path, const char *mode) {
    const int update = strchr(mode, '+') != NULL;
    const int flags = mode[0] == 'r' ? (update ? O_RDWR : O_RDONLY) : (update ? O_RDWR : O_WRONLY) | O_CREAT | O_TRUNC;
    const int fd = napier_windows_open(path, flags);
    FILE *const file = fd >= 0 ? fdopen(fd, mode) : NULL;
    if (fd >= 0 && !file) {
        close(fd);
    }
    return file;
}

/* ---- What a path leads to ---------------------------------------------------------------------------------------- */

static int stat_handle(HANDLE file, struct napier_windows_stat *info) {
    BY_HANDLE_FILE_INFORMATION found;
    *info = (struct napier_windows_stat){0};
    switch (GetFileType(file)) {
    case FILE_TYPE_CHAR: info->st_mode = S_IFCHR | 0666; return 0;
    case FILE_TYPE_PIPE: info->st_mode = S_IFIFO | 0666; return 0;
    default: break;
    }
    if (!GetFileInformationByHandle(file, &found)) { /* a stream that tells nothing: to be read to its end */
        info->st_mode = S_IFIFO | 0666;
        return 0;
    }
    const unsigned rights = found.dwFileAttributes & FILE_ATTRIBUTE_READONLY ? 0444 : 0666;
    info->st_mode = rights | (found.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY ? S_IFDIR | 0111 : S_IFREG);
    info->st_dev = found.dwVolumeSerialNumber;
    info->st_ino = (uint64_t)found.nFileIndexHigh << 32 | found.nFileIndexLow;
    info->st_size = (int64_t)((uint64_t)found.nFileSizeHigh << 32 | found.nFileSizeLow);
    return 0;
}

int napier_windows_stat(const char *path, struct napier_windows_stat *info) {
    const HANDLE file = open_handle(path, FILE_READ_ATTRIBUTES, OPEN_EXISTING, 0);
    if (file == INVALID_HANDLE_VALUE) {
        return -1;
    }
    const int result = stat_handle(file, info);
    CloseHandle(file);
    return result;
}

int napier_windows_fstat(int fd, struct napier_windows_stat *info) {
    return stat_handle((HANDLE)_get_osfhandle(fd), info);
}

int napier_windows_access(const char *path, int mode) {
    struct napier_windows_stat info;
    if (napier_windows_stat(path, &info) != 0) {
        return -1;
    }
    const int is_refused = mode & W_OK && !S_ISDIR(info.st_mode) && !(info.st_mode & 0222);
    errno = is_refused ? EACCES : errno;
    return is_refused ? -1 : 0;
}

char *napier_windows_realpath(const char *path, char *out) {
    static const wchar_t prefix[] = L"\\\\?\\"; /* of a path without limits, which older programs cannot use */
    wchar_t wide[PATH_ROOM];
    const HANDLE file = open_handle(path, FILE_READ_ATTRIBUTES, OPEN_EXISTING, 0);
    if (file == INVALID_HANDLE_VALUE) {
        return NULL;
    }
    const DWORD size = GetFinalPathNameByHandleW(file, wide, PATH_ROOM, FILE_NAME_NORMALIZED);
    CloseHandle(file);
    if (size == 0 || size >= PATH_ROOM) {
        (void)fail();
        return NULL;
    }
    const int is_drive = wcsncmp(wide, prefix, 4) == 0 && wide[5] == L':';
    if (WideCharToMultiByte(CP_UTF8, WC_ERR_INVALID_CHARS, wide + (is_drive ? 4 : 0), -1, out, PATH_ROOM, NULL, NULL) ==
        0) {
        errno = ENAMETOOLONG;
        return NULL;
    }
    return out;
}

/* ---- Changes ----------------------------------------------------------------------------------------------------- */

int napier_windows_unlink(const char *path) {
    wchar_t wide[PATH_ROOM];
    return !widen(path, wide) ? -1 : DeleteFileW(wide) ? 0 : fail();
}

int napier_windows_rename(const char *from, const char *to) {
    wchar_t wide_from[PATH_ROOM], wide_to[PATH_ROOM];
    if (!widen(from, wide_from) || !widen(to, wide_to)) {
        return -1;
    }
    return MoveFileExW(wide_from, wide_to, MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH) ? 0 : fail();
}

int napier_windows_fsync(int fd) { return _commit(fd); }

int napier_windows_fchmod(int fd, unsigned mode) {
    (void)fd;
    (void)mode;
    return 0;
}

/* ---- Mapped files ------------------------------------------------------------------------------------------------ */

const void *napier_map_file(int fd, size_t size) {
    const HANDLE section = CreateFileMappingW((HANDLE)_get_osfhandle(fd), NULL, PAGE_READONLY, 0, 0, NULL);
    const void *const map = section ? MapViewOfFile(section, FILE_MAP_READ, 0, 0, size) : NULL;
    if (!map) {
        (void)fail();
    }
    if (section) {
        CloseHandle(section); /* the view keeps it */
    }
    return map;
}

void napier_unmap_file(const void *map, size_t size) {
    (void)size;
    UnmapViewOfFile(map);
}

#endif
