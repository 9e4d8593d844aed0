/* test_threads - a thread that cannot be made means fewer threads and the same bits; many contexts at once; and the number of
 * threads that affinity and control groups allow. The linker sends pthread_create here (tests/CMakeLists.txt). */
#define _DEFAULT_SOURCE /* setgroups, mkdtemp */
#include "support/check.h"

#include <errno.h>
#include <grp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <napier/napier.h>

#include "core/base/platform.h"

enum { ROWS = 512, COLS = 1024, THREADS = 4, SECONDS = 60 };

/* ---- A pthread_create that refuses ---------------------------------------------------------------------------------- */

static _Atomic int allowed = INT32_MAX; /* threads that may still be made */
static _Atomic int refusals;

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument) {
    if (allowed-- > 0) {
        return __real_pthread_create(thread, attributes, run, argument);
    }
    refusals++;
    return EAGAIN;
}

/* ---- Calls ------------------------------------------------------------------------------------------------------- */

static float logits[ROWS * COLS], wanted[ROWS * COLS], probs[ROWS * COLS];

static bool softmax(napier_context *context, float *out) {
    return napier_softmax(context, napier_const_rows_f32(logits, ROWS, COLS), napier_rows_f32(out, ROWS, COLS), NULL) ==
           NAPIER_OK;
}

static bool same_bits(napier_context *context) {
    memset(probs, 0, sizeof probs);
    return softmax(context, probs) && memcmp(probs, wanted, sizeof probs) == 0;
}

static void make_input(void) {
    for (int i = 0; i < ROWS * COLS; i++) {
        logits[i] = (float)(i % 977) * 0.0625f - 30.0f;
    }
    napier_context *const alone = context_for_test(NAPIER_ISA_AUTO, 1);
    assert_true(softmax(alone, wanted));
}

static void test_threads_are_refused(void) {
    make_input();
    for (int most = 0; most < THREADS; most++) {
        napier_context *const context = context_of(NAPIER_ISA_AUTO, THREADS);
        allowed = most;
        refusals = 0;
        for (int i = 0; i < 3; i++) {
            expect(same_bits(context), "%d threads beside the caller's, call %d: other bits", most, i);
        }
        expect(refusals == (most < THREADS - 1), "%d threads beside the caller's: %d were refused", most,
               (int)refusals);
        expect(napier_context_threads(context) == THREADS, "the number that was asked for has changed");
        allowed = INT32_MAX;
        napier_context_destroy(context);
    }
    no_problems();
}

static void test_many_contexts(void) {
    enum { CONTEXTS = 2000 };
    static napier_context *contexts[CONTEXTS];
    make_input();
    for (int i = 0; i < CONTEXTS; i++) {
        contexts[i] = context_of(NAPIER_ISA_AUTO, 2);
        expect(i % 100 > 0 ? softmax(contexts[i], probs) : same_bits(contexts[i]), "context %d", i);
    }
    for (int i = 0; i < CONTEXTS; i++) {
        expect(i % 100 > 0 || same_bits(contexts[i]), "context %d among many", i);
        napier_context_destroy(contexts[i]);
    }
    no_problems();
}

/* ---- Limits of the system, in a child ------------------------------------------------------------------------------ */

/* RLIMIT_NPROC does not hold for root. */
static bool become_nobody(void) {
    enum { NOBODY = 65534 };
    return geteuid() != 0 || (setgroups(0, NULL) == 0 && setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
}

static int under_limit(int resource, rlim_t most) {
    const struct rlimit limit = {most, most};
    alarm(SECONDS);
    if (setrlimit(resource, &limit) != 0 || (resource == RLIMIT_NPROC && !become_nobody())) {
        return 2;
    }
    napier_context_options options = NAPIER_CONTEXT_OPTIONS_INIT;
    napier_context *context = NULL;
    options.threads = THREADS;
    if (napier_context_create(&context, &options) != NAPIER_OK) {
        return 3;
    }
    const bool good = same_bits(context) && same_bits(context);
    napier_context_destroy(context);
    return good ? 0 : 4;
}

static void expect_under_limit(const char *name, int resource, rlim_t most) {
    const pid_t id = fork();
    assert_true(id >= 0);
    if (id == 0) {
        (void)close(STDERR_FILENO); /* whatever is said there fails the test */
        if (dup2(STDOUT_FILENO, STDERR_FILENO) < 0) {
            _exit(5);
        }
        _exit(under_limit(resource, most));
    }
    int status = -1;
    assert_int_equal(waitpid(id, &status, 0), id);
    expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s: status %d", name, status);
}

static void test_limits(void) {
    make_input();
    expect_under_limit("RLIMIT_NPROC", RLIMIT_NPROC, 1);
#if !NAPIER_SANITIZED /* a sanitizer needs more memory than that */
    expect_under_limit("RLIMIT_DATA", RLIMIT_DATA, 8 << 20);
#endif
    no_problems();
}

/* ---- The default number --------------------------------------------------------------------------------------------- */

/* Files of a control group under a root of the test's own, and the processors that they come to. */
typedef struct group_case {
    const char *name, *groups; /* the latter: /proc/self/cgroup */
    struct {
        const char *path, *text;
    } files[4];
    double processors;
} group_case;

static const char v2[] = "/sys/fs/cgroup/cpu.max", v2_a[] = "/sys/fs/cgroup/a/cpu.max",
                  v2_ab[] = "/sys/fs/cgroup/a/b/cpu.max", v1_quota[] = "/sys/fs/cgroup/cpu/d/cpu.cfs_quota_us",
                  v1_period[] = "/sys/fs/cgroup/cpu/d/cpu.cfs_period_us";

static const group_case group_cases[] = {
    {"none", NULL, {{v2, "150000 100000\n"}}, 0},
    {"no files", "0::/a/b\n", {{NULL, NULL}}, 0},
    {"of a container", "0::/\n", {{v2, "150000 100000\n"}}, 1.5},
    {"no limit", "0::/\n", {{v2, "max 100000\n"}}, 0},
    {"half", "0::/a\n", {{v2_a, "50000 100000\n"}}, 0.5},
    {"around", "0::/a/b\n", {{v2_ab, "max 100000\n"}, {v2_a, "300000 100000\n"}}, 3},
    {"least around", "0::/a/b\n", {{v2_ab, "400000 100000\n"}, {v2_a, "300000 100000\n"}, {v2, "800000 100000"}}, 3},
    {"path of the host", "0::/docker/0123/x\n", {{v2, "250000 100000\n"}}, 2.5},
    {"path outside", "0::/../../x\n", {{v2, "200000 100000\n"}}, 2},
    {"version 1", "5:memory:/d\n4:cpu,cpuacct:/d\n", {{v1_quota, "100000\n"}, {v1_period, "50000\n"}}, 2},
    {"version 1, no limit", "4:cpuacct,cpu:/d\n", {{v1_quota, "-1\n"}, {v1_period, "50000\n"}}, 0},
    {"version 1, no period", "4:cpu:/d\n", {{v1_quota, "100000\n"}}, 0},
    {"version 1, another controller", "4:cpuset:/d\n", {{v1_quota, "100000\n"}, {v1_period, "50000\n"}}, 0},
    {"both versions", "1:cpu:/d\n0::/a\n", {{v1_quota, "100000\n"}, {v1_period, "50000\n"}, {v2_a, "10000 10000"}}, 1},
    {"zero", "0::/\n", {{v2, "0 100000\n"}}, 0},
    {"period of zero", "0::/\n", {{v2, "100000 0\n"}}, 0},
    {"no period", "0::/\n", {{v2, "100000"}}, 0},
    {"negative", "0::/\n", {{v2, "-100000 100000\n"}}, 0},
    {"too large", "0::/\n", {{v2, "99999999999999999999999999999999999999999999999999999999999999999 1\n"}}, 0},
    {"empty", "0::/\n", {{v2, ""}}, 0},
    {"no numbers", "0::/\n", {{v2, "\xff\xfe nothing"}}, 0},
    {"lines without colons", "cpu\n::\n:\n0:\n4:cpu\n0::a\n\n0::/", {{v2, "100000 100000\n"}}, 1},
};

static void write_file(const char *root, const char *path, const char *text) {
    char full[600];
    const int length = snprintf(full, sizeof full, "%s%s", root, path);
    assert_true(length > 0 && (size_t)length < sizeof full);
    for (char *slash = full + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        (void)mkdir(full, 0700);
        *slash = '/';
    }
    FILE *const file = fopen(full, "wb");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void remove_tree(const char *root) {
    char command[700];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", root);
    assert_int_equal(system(command), 0);
}

static void expect_quota(const char *name, const char *groups, const group_case *c, double processors) {
    char root[] = "/tmp/napier-groups-XXXXXX";
    assert_non_null(mkdtemp(root));
    if (groups) {
        write_file(root, "/proc/self/cgroup", groups);
    }
    for (size_t i = 0; i < sizeof c->files / sizeof *c->files && c->files[i].path; i++) {
        write_file(root, c->files[i].path, c->files[i].text);
    }
    const double found = napier_processor_quota(root);
    expect(found == processors, "%s: %g processors, not %g", name, found, processors);
    remove_tree(root);
}

static void test_quota(void) {
    enum { LONG = 20000 };
    static char text[LONG + 1];
#ifdef __linux__
    for (size_t i = 0; i < sizeof group_cases / sizeof *group_cases; i++) {
        expect_quota(group_cases[i].name, group_cases[i].groups, &group_cases[i], group_cases[i].processors);
    }
    memset(text, '/', LONG);
    memcpy(text, "0::", 3);
    expect_quota("a path of slashes", text, &group_cases[2], 1.5);
    memset(text + 4, 'a', LONG - 4);
    expect_quota("a long name", text, &group_cases[2], 1.5);
#endif
    assert_in_range(napier_processors(), 1, INT16_MAX);
    no_problems();
}

int main(void) {
    return RUN_TESTS("threads", TEST(test_threads_are_refused), TEST(test_many_contexts), TEST(test_limits),
                     TEST(test_quota));
}
