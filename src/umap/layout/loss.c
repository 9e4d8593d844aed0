/* umap/layout/loss.c - the fuzzy-set cross-entropy of an embedding, over given edges and samples. It uses double, the
 * exp and log of core/math/f64.h, and blocks of a fixed size whose sums are added in order. */
#include "core/base/parallel.h"
#include "core/base/scope.h"
#include "core/math/f64.h"
#include "umap/graph/graph.h"
#include "umap/options/params.h"

enum { NAPIER_LOSS_BLOCK = 1024 };

typedef struct loss_task {
    const napier_umap_params *params;
    const float *y;
    int64_t components, count;
    const napier_umap_edge *edges; /* for the attraction; if NULL: */
    const uint32_t *targets;       /* for the repulsion */
    int64_t rate;
    double *sums; /* one for each block */
} loss_task;

static double squared_gap(const float *y, const float *z, int64_t components) {
    double d2 = 0.0;
    for (int64_t d = 0; d < components; d++) {
        const double gap = (double)y[d] - (double)z[d];
        d2 += gap * gap;
    }
    return d2;
}

/* a (d2)^b */
static double curve(const napier_umap_params *p, double d2) {
    return d2 > 0.0 ? (double)p->a * napier_f64_exp((double)p->b * napier_f64_log(d2)) : 0.0;
}

/* - w log q */
static double edge_loss(const loss_task *t, int64_t e) {
    const napier_umap_edge *edge = &t->edges[e];
    const double d2 = squared_gap(t->y + (int64_t)edge->source * t->components,
                                  t->y + (int64_t)edge->target * t->components, t->components);
    return edge->weight > 0.0f ? (double)edge->weight * napier_f64_log1p(curve(t->params, d2)) : 0.0;
}

/* - repulsion log(1 - q) */
static double sample_loss(const loss_task *t, int64_t i) {
    const int64_t v = i / t->rate, j = t->targets[i];
    if (v == j) {
        return 0.0;
    }
    const double d2 = squared_gap(t->y + v * t->components, t->y + j * t->components, t->components);
    const double away = curve(t->params, d2 + (double)t->params->epsilon);
    return (double)t->params->repulsion_strength * napier_f64_log1p(1.0 / away);
}

static void blocks_task(void *argument, int worker, int64_t begin, int64_t end) {
    const loss_task *t = argument;
    (void)worker;
    for (int64_t block = begin; block < end; block++) {
        const int64_t first = block * NAPIER_LOSS_BLOCK;
        const int64_t last = t->count - first < NAPIER_LOSS_BLOCK ? t->count : first + NAPIER_LOSS_BLOCK;
        double sum = 0.0;
        for (int64_t i = first; i < last; i++) {
            sum += t->edges ? edge_loss(t, i) : sample_loss(t, i);
        }
        t->sums[block] = sum;
    }
}

static napier_status add_loss(napier_context *context, loss_task *task, double *loss) {
    const int64_t blocks = (task->count + NAPIER_LOSS_BLOCK - 1) / NAPIER_LOSS_BLOCK;
    if (blocks == 0) {
        return NAPIER_OK;
    }
    task->sums = napier_alloc(&context->allocator, (size_t)blocks, sizeof *task->sums);
    if (!task->sums) {
        return napier_fail(context, NAPIER_OUT_OF_MEMORY, "loss: no memory for %lld sums", (long long)blocks);
    }
    napier_parallel(context, blocks, 4, blocks_task, task);
    for (int64_t block = 0; block < blocks; block++) {
        *loss += task->sums[block];
    }
    napier_free(&context->allocator, task->sums);
    return NAPIER_OK;
}

napier_status napier_umap_loss(napier_context *context, const napier_umap_params *params, napier_const_matrix embedding,
                               const napier_umap_edge *edges, int64_t count, const uint32_t *targets, int64_t rate,
                               double *loss) {
    NAPIER_DEFAULT_FENV;
    napier_umap_params p;
    napier_forces forces;
    napier_status status = napier_begin(context);
    if (!status && !loss)
        status = napier_fail(context, NAPIER_INVALID_ARGUMENT, "loss: NULL");
    if (!status)
        status = napier_umap_check_params(context, params, &p, &forces);
    if (!status)
        status = napier_umap_check_embedding(context, "embedding", embedding);
    if (!status)
        status = napier_umap_check_edges(context, edges, count, embedding.rows);
    if (!status)
        status = napier_umap_check_targets(context, targets, rate, embedding.rows);
    if (status) {
        return status;
    }
    double sum = 0.0;
    loss_task task = {&p, embedding.data, embedding.cols, count, edges, NULL, 0, NULL};
    status = add_loss(context, &task, &sum);
    if (!status && targets) {
        task.edges = NULL;
        task.targets = targets;
        task.rate = rate;
        task.count = embedding.rows * rate;
        status = add_loss(context, &task, &sum);
    }
    if (!status) {
        *loss = sum;
    }
    return status;
}
