/* bench/umap/napier_worker.c - one fit, timed stage by stage.
 *
 *     napier_worker DATA.npy EMBEDDING.npy THREADS [n_neighbors] [n_epochs]
 *
 * Prints one line of JSON: seconds of each stage and of all, peak memory in bytes. Reading the file is not timed. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <napier/umap.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A version 1 .npy file of little-endian f32, C order. */
static float *read_npy(const char *path, long *rows, long *cols) {
    FILE *file = fopen(path, "rb");
    char header[10];
    if (!file || fread(header, 1, 10, file) != 10) {
        return NULL;
    }
    const size_t length = (size_t)((unsigned char)header[8] | (unsigned char)header[9] << 8);
    char *text = calloc(length + 1, 1);
    if (!text || fread(text, 1, length, file) != length) {
        return NULL;
    }
    const char *shape = strstr(text, "(");
    if (!strstr(text, "'<f4'") || !shape || sscanf(shape, "(%ld, %ld", rows, cols) != 2) {
        return NULL;
    }
    float *x = malloc((size_t)(*rows * *cols) * sizeof *x);
    if (!x || fread(x, sizeof *x, (size_t)(*rows * *cols), file) != (size_t)(*rows * *cols)) {
        return NULL;
    }
    fclose(file);
    free(text);
    return x;
}

static int write_npy(const char *path, napier_const_matrix m) {
    char text[118];
    const int used = snprintf(text, sizeof text, "{'descr': '<f4', 'fortran_order': False, 'shape': (%lld, %lld), }",
                              (long long)m.rows, (long long)m.cols);
    memset(text + used, ' ', sizeof text - (size_t)used);
    text[117] = '\n';
    FILE *file = fopen(path, "wb");
    const char magic[10] = {(char)0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, 118, 0};
    const size_t elements = (size_t)(m.rows * m.cols);
    const int fine = file && fwrite(magic, 1, 10, file) == 10 && fwrite(text, 1, 118, file) == 118 &&
                     fwrite(m.data, sizeof(float), elements, file) == elements;
    return file && fclose(file) == 0 && fine;
}

/* The most memory this process has held; getrusage would count its parent's before exec. */
static long peak_bytes(void) {
    char line[256];
    long kibibytes = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "VmHWM: %ld", &kibibytes) == 1) {
            break;
        }
    }
    if (file) {
        fclose(file);
    }
    return kibibytes * 1024;
}

typedef struct stages {
    const char *name[8];
    double end[8];
    int count;
} stages;

static int note(const char *stage, double done, void *user) {
    stages *s = user;
    (void)done;
    if (s->count == 0 || strcmp(s->name[s->count - 1], stage) != 0) {
        s->name[s->count++ % 8] = stage;
    }
    s->end[(s->count - 1) % 8] = now();
    return 0;
}

int main(int argc, char **argv) {
    long rows, cols;
    if (argc < 4) {
        fprintf(stderr, "napier_worker DATA.npy EMBEDDING.npy THREADS [n_neighbors] [n_epochs]\n");
        return 2;
    }
    float *x = read_npy(argv[1], &rows, &cols);
    if (!x) {
        fprintf(stderr, "napier_worker: cannot read %s\n", argv[1]);
        return 1;
    }
    napier_context_options context_options = NAPIER_CONTEXT_OPTIONS_INIT;
    context_options.threads = atoi(argv[3]);
    napier_context *context = NULL;
    if (napier_context_create(&context, &context_options)) {
        return 1;
    }
    stages s = {.count = 0};
    napier_umap_options options = NAPIER_UMAP_OPTIONS_INIT;
    options.progress = note;
    options.user = &s;
    options.neighbors.n_neighbors = argc > 4 ? atoi(argv[4]) : 15;
    options.n_epochs = argc > 5 ? atoi(argv[5]) : 0;
    napier_umap_model *model = NULL;
    const napier_umap_samples samples = {napier_const_rows_f32(x, rows, cols), NULL};
    const double begin = now();
    if (napier_umap_fit(context, samples, &options, &model)) {
        fprintf(stderr, "napier_worker: %s\n", napier_last_error(context));
        return 1;
    }
    const double end = now();
    printf("{\"total\": %.4f, \"peak_hwm\": %ld", end - begin, peak_bytes());
    double last = begin;
    for (int i = 0; i < s.count && i < 8; i++) {
        printf(", \"%s\": %.4f", s.name[i], s.end[i] - last);
        last = s.end[i];
    }
    printf("}\n");
    const int fine = write_npy(argv[2], napier_umap_model_embedding(model));
    napier_umap_model_destroy(context, model);
    napier_context_destroy(context);
    free(x);
    return fine ? 0 : 1;
}
