/* test_cli_memory - the limits on memory that the program minds: cgroups of both versions, in made-up /proc and /sys, and
 * those of the process. */
#define _XOPEN_SOURCE 700
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "program/memory.h"
#include "support/check.h"

static char root[] = "/tmp/napier-memory-XXXXXX";

/* A file below the root, with the folders above it. */
static void put(const char *path, const char *text) {
    char command[256];
    snprintf(command, sizeof command, "mkdir -p \"$(dirname %s)\"", path);
    assert_int_equal(system(command), 0);
    FILE *const file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void begin(void) { assert_int_equal(system("rm -rf proc sys"), 0); }

static int64_t limit(void) { return memory_limit(root); }

static void test_none(void) {
    begin();
    const int64_t machine = limit();
    assert_true(machine > 64 << 20);
    put("proc/self/cgroup", "0::/user.slice\n");
    put("sys/fs/cgroup/user.slice/memory.max", "max\n");
    put("sys/fs/cgroup/user.slice/memory.high", "max\n");
    assert_int_equal(limit(), machine);
    put("proc/self/cgroup", "nonsense\n\n:\n0\n9:memory\n");
    assert_int_equal(limit(), machine);
}

static void test_version_2(void) {
    begin();
    put("proc/self/cgroup", "0::/a/b\n");
    put("sys/fs/cgroup/a/b/memory.max", "50000000\n");
    assert_int_equal(limit(), 50000000);
    put("sys/fs/cgroup/a/memory.high", "40000000\n"); /* of a group around it */
    assert_int_equal(limit(), 40000000);
    put("sys/fs/cgroup/memory.max", "30000000\n"); /* a container's own */
    assert_int_equal(limit(), 30000000);
    put("proc/self/cgroup", "0::/not/here\n");
    assert_int_equal(limit(), 30000000);
    put("proc/self/cgroup", "0::/\n");
    assert_int_equal(limit(), 30000000);
}

static void test_version_1(void) {
    begin();
    put("proc/self/cgroup", "12:cpu,cpuacct:/x\n9:memory:/docker/1\n0::/\n");
    put("sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes", "60000000\n");
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "1\n"); /* of another controller's group */
    assert_int_equal(limit(), 60000000);
    put("proc/self/cgroup", "9:hugetlb,memory:/docker/1\n");
    assert_int_equal(limit(), 60000000);
}

/* In a process of its own, for a limit cannot be raised again. */
static void check_resource(int resource) {
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const struct rlimit r = {(rlim_t)1 << 30, (rlim_t)1 << 30};
        const int64_t wanted = (int64_t)1 << 30;
        _exit(setrlimit(resource, &r) != 0 ? 2 : memory_limit(root) == wanted && memory_usable() <= wanted / 2 ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_resources(void) {
    begin();
    if (NAPIER_SANITIZED) {
        skip(); /* AddressSanitizer reserves terabytes of addresses, more than any limit */
    }
    check_resource(RLIMIT_AS);
    check_resource(RLIMIT_DATA);
}

int main(void) {
    if (!mkdtemp(root) || chdir(root)) {
        return 2;
    }
    const int failed =
        RUN_TESTS("cli_memory", TEST(test_none), TEST(test_version_2), TEST(test_version_1), TEST(test_resources));
    return system("rm -rf proc sys") || rmdir(root) || failed;
}
