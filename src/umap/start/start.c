/* umap/start/start.c - starts of a layout: the random one, and the scale and noise of the others.
 * Source of both: umap-learn. Its starts are in [-10, 10], with noise of 1e-4 so that equal points can separate. */
#include "umap/start/start.h"

#include <napier/umap.h>

#include "core/base/parallel.h"
#include "umap/options/params.h"

#define EXTENT 10.0
#define NOISE 1e-4
#define ROOT_6 0x1.3988e1409212ep+1

enum { ROW_CHUNK = 4096 };

/* The sum of two uniform draws from [-1/2, 1/2) has variance 1/6. */
static double noise(uint64_t seed, int64_t vertex, int64_t component) {
    uint32_t random[2];
    napier_random(seed, NAPIER_STREAM_JITTER, (uint32_t)vertex, (uint32_t)component, random);
    return NOISE * ROOT_6 * (napier_random_unit(random[0]) + napier_random_unit(random[1]) - 1.0);
}

void napier_start_finish(float *y, int64_t n, int64_t components, uint64_t seed) {
    const double largest = napier_start_largest(y, n * components);
    const double scale = largest > 0.0 ? EXTENT / largest : 0.0;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t c = 0; c < components; c++) {
            float *x = &y[i * components + c];
            *x = n == 1 ? 0.0f : (float)((double)*x * scale + noise(seed, i, c));
        }
    }
}

typedef struct random_task {
    float *y;
    int64_t components;
    uint64_t seed;
} random_task;

static void random_rows(void *argument, int64_t i) {
    const random_task *t = argument;
    for (int64_t c = 0; c < t->components; c++) {
        t->y[i * t->components + c] = (float)(EXTENT * napier_start_number(t->seed, NAPIER_STREAM_RANDOM_START, i, c));
    }
}

napier_status napier_umap_random_layout(napier_context *context, uint64_t seed, napier_matrix embedding) {
    NAPIER_TRY(napier_begin(context));
    NAPIER_TRY(napier_umap_check_result(context, "embedding", embedding, embedding.rows, embedding.cols));
    random_task t = {embedding.data, embedding.cols, seed};
    napier_parallel_each(context, embedding.rows, ROW_CHUNK, random_rows, &t);
    return NAPIER_OK;
}
