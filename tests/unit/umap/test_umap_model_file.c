/* test_umap_model_file - what saving and loading a map does to the file system: modes, links, devices, pipes, folders and
 * failures. */
#define _XOPEN_SOURCE 700
#include "unit/umap/umap_support.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static napier_context *context;
static napier_umap_model *model;
static char folder[] = "/tmp/napier-model-XXXXXX";

enum { POINTS = 12, COLS = 2 };

/* Ends the program where the folder cannot be made: the tests would write into the project's. */
static void start(void) {
    float x[POINTS * COLS];
    napier_umap_options options = NAPIER_UMAP_OPTIONS_INIT;
    options.neighbors.n_neighbors = 4;
    options.n_epochs = 5;
    for (int i = 0; i < POINTS * COLS; i++) {
        x[i] = (float)(i * i % 17);
    }
    if (!mkdtemp(folder) || chdir(folder) != 0 ||
        napier_umap_fit(context, samples_of(x, POINTS, COLS), &options, &model)) {
        print_error("no folder, or no model: %s\n", napier_last_error(context));
        exit(1);
    }
}

static void stop(void) {
    napier_umap_model_destroy(context, model);
    assert_int_equal(rmdir(folder), 0); /* nothing was left in it */
}

static void write_text(const char *path, const char *text) {
    FILE *const file = fopen(path, "wb");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void check_text(const char *path, const char *wanted) {
    char text[64] = "";
    FILE *const file = fopen(path, "rb");
    assert_non_null(file);
    const size_t size = fread(text, 1, sizeof text - 1, file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(size, strlen(wanted));
    assert_string_equal(text, wanted);
}

static void check_model(const char *path) {
    napier_umap_model *read = NULL;
    assert_int_equal(napier_umap_model_load(context, path, &read), NAPIER_OK);
    assert_int_equal(napier_umap_model_embedding(read).rows, POINTS);
    assert_memory_equal(napier_umap_model_embedding(read).data, napier_umap_model_embedding(model).data,
                        POINTS * 2 * sizeof(float));
    napier_umap_model_destroy(context, read);
}

static void check_failure(const char *path, const char *reason) {
    napier_umap_model *read = NULL;
    assert_int_equal(napier_umap_model_load(context, path, &read), NAPIER_IO_ERROR);
    assert_null(read);
    assert_non_null(strstr(napier_last_error(context), reason));
    assert_non_null(strstr(napier_last_error(context), path));
}

static mode_t mode_of(const char *path) {
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    return info.st_mode & 07777;
}

static void test_modes(void) {
    umask(027);
    assert_int_equal(napier_umap_model_save(context, model, "new"), NAPIER_OK);
    assert_int_equal(mode_of("new"), 0640);
    assert_int_equal(chmod("new", 0600), 0);
    assert_int_equal(napier_umap_model_save(context, model, "new"), NAPIER_OK);
    assert_int_equal(mode_of("new"), 0600);
    check_model("new");
    assert_int_equal(unlink("new"), 0);
}

/* A file beside the model is somebody else's, whatever its name; a link to a model stays one. */
static void test_links(void) {
    write_text("other", "precious");
    assert_int_equal(symlink("other", "m.part"), 0);
    assert_int_equal(napier_umap_model_save(context, model, "m"), NAPIER_OK);
    check_text("other", "precious");
    check_model("m");
    assert_int_equal(symlink("m", "link"), 0);
    assert_int_equal(napier_umap_model_save(context, model, "link"), NAPIER_OK);
    struct stat info;
    assert_int_equal(lstat("link", &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    check_model("m");
    const char *const made[] = {"other", "m.part", "m", "link"};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(unlink(made[i]), 0);
    }
}

/* By links, so that a failure replaces no device of this machine. */
static void test_devices(void) {
    struct stat info;
    assert_int_equal(symlink("/dev/null", "null"), 0);
    assert_int_equal(napier_umap_model_save(context, model, "null"), NAPIER_OK);
    assert_int_equal(stat("null", &info), 0);
    assert_true(S_ISCHR(info.st_mode));
    assert_int_equal(unlink("null"), 0);
    if (access("/dev/full", W_OK) == 0) {
        assert_int_equal(symlink("/dev/full", "full"), 0);
        assert_int_equal(napier_umap_model_save(context, model, "full"), NAPIER_IO_ERROR);
        assert_non_null(strstr(napier_last_error(context), "full"));
        assert_int_equal(unlink("full"), 0);
    }
}

static void test_pipes(void) {
    uint8_t bytes[4096];
    size_t size = 0;
    assert_int_equal(napier_umap_model_to_bytes(context, model, NULL, 0, &size), NAPIER_OK);
    assert_true(size <= sizeof bytes);
    assert_int_equal(mkfifo("pipe", 0600), 0);
    check_failure("pipe", "not a regular file"); /* at once: it has no writer */
    const int reader = open("pipe", O_RDONLY | O_NONBLOCK);
    assert_true(reader >= 0);
    assert_int_equal(napier_umap_model_save(context, model, "pipe"), NAPIER_OK);
    assert_int_equal(read(reader, bytes, sizeof bytes), size);
    assert_int_equal(close(reader), 0);
    struct stat info;
    assert_int_equal(stat("pipe", &info), 0);
    assert_true(S_ISFIFO(info.st_mode));
    assert_int_equal(unlink("pipe"), 0);
}

static void test_folders(void) {
    assert_int_equal(mkdir("inside", 0700), 0);
    check_failure("inside", "not a regular file");
    assert_int_equal(napier_umap_model_save(context, model, "inside"), NAPIER_IO_ERROR);
    assert_int_equal(napier_umap_model_save(context, model, "no/such/folder"), NAPIER_IO_ERROR);
    check_failure("/dev/zero", "not a regular file");
    check_failure("missing", strerror(ENOENT));
    assert_int_equal(rmdir("inside"), 0);
}

/* An old file stays as it was, and nothing is left beside it. */
static void test_failures(void) {
    char path[5000];
    memset(path, 'x', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    assert_int_equal(napier_umap_model_save(context, model, path), NAPIER_IO_ERROR);
    path[300] = '\0'; /* of more than a name may have */
    assert_int_equal(napier_umap_model_save(context, model, path), NAPIER_IO_ERROR);
    if (geteuid() != 0) { /* root is refused nothing */
        write_text("old", "precious");
        assert_int_equal(chmod("old", 0400), 0);
        assert_int_equal(napier_umap_model_save(context, model, "old"), NAPIER_IO_ERROR);
        check_text("old", "precious");
        assert_int_equal(unlink("old"), 0);
    }
}

int main(void) {
    return RUN_UMAP_TESTS("umap model file", TEST(start), TEST(test_modes), TEST(test_links), TEST(test_devices),
                          TEST(test_pipes), TEST(test_folders), TEST(test_failures), TEST(stop));
}
