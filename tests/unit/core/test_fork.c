/* test_fork - a child of fork has none of its parent's threads. Calls there must not wait for them: the parent's context
 * starts new ones, and so does a new context. The bits are the same. */
#define _POSIX_C_SOURCE 200809L
#include "support/check.h"

#include <dirent.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <napier/napier.h>

enum { ROWS = 512, COLS = 1024, THREADS = 4, SECONDS = 20 };

static float logits[ROWS * COLS], wanted[ROWS * COLS], probs[ROWS * COLS];

static napier_context *new_context(void) {
    napier_context_options options = NAPIER_CONTEXT_OPTIONS_INIT;
    napier_context *context = NULL;
    options.threads = THREADS;
    return napier_context_create(&context, &options) == NAPIER_OK ? context : NULL;
}

static int softmax(napier_context *context, float *out) {
    return napier_softmax(context, napier_const_rows_f32(logits, ROWS, COLS), napier_rows_f32(out, ROWS, COLS), NULL) ==
           NAPIER_OK;
}

static int same_bits(napier_context *context) {
    memset(probs, 0, sizeof probs);
    return context && softmax(context, probs) && memcmp(probs, wanted, sizeof probs) == 0;
}

/* The threads of this process; -1 where that is not known. */
static int threads_here(void) {
    DIR *const tasks = opendir("/proc/self/task");
    int count = 0;
    while (tasks && readdir(tasks)) {
        count++;
    }
    if (tasks) {
        closedir(tasks);
    }
    return tasks ? count - 2 : -1; /* "." and ".." */
}

/* In the child: 0 if all is well. */
static int child(napier_context *inherited) {
    alarm(SECONDS);
    if (!same_bits(inherited)) {
        return 1;
    }
    if (threads_here() == 1) {
        return 2;
    }
    napier_context_destroy(inherited);
    napier_context *own = new_context();
    if (!own || napier_context_threads(own) != THREADS || !same_bits(own)) {
        return 3;
    }
    napier_context_destroy(own);
    return threads_here() <= 1 ? 0 : 4;
}

static void test_softmax_in_a_child(void) {
    napier_context *context = new_context();
    assert_non_null(context);
    for (int i = 0; i < ROWS * COLS; i++) {
        logits[i] = (float)(i % 977) * 0.0625f - 30.0f;
    }
    assert_true(softmax(context, wanted)); /* starts its threads */
    const pid_t id = fork();
    assert_true(id >= 0);
    if (id == 0) {
        _exit(child(context));
    }
    int status = -1;
    assert_int_equal(waitpid(id, &status, 0), id);
    assert_false(WIFSIGNALED(status)); /* the alarm: it hung */
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_true(same_bits(context)); /* the parent goes on */
    napier_context_destroy(context);
}

int main(void) { return RUN_TESTS("fork", TEST(test_softmax_in_a_child)); }
