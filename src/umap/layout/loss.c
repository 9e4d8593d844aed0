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

static void blocks_task(void *argument, int64_t block) {
    const loss_task *t = argument;
    const int64_t first = block * NAPIER_LOSS_BLOCK;
    const int64_t last = t->count - first < NAPIER_LOSS_BLOCK ? t->count : first + NAPIER_LOSS_BLOCK;
    double sum = 0.0;
    for (int64_t i = first; i < last; i++) {
        sum += t->edges ? edge_loss(t, i) : sample_loss(t, i);
    }
    t->sums[block] = sum;
}

static napier_status add_loss(napier_context *context, loss_task task, double *loss) {
    const int64_t blocks = (task.count + NAPIER_LOSS_BLOCK - 1) / NAPIER_LOSS_BLOCK;
    NAPIER_MEMORY(memory, context);
    task.sums = napier_take(&memory, blocks, sizeof *task.sums);
    NAPIER_TRY(napier_taken(&memory, "loss: no memory for %lld sums", (long long)blocks));
    napier_parallel_each(context, blocks, 4, blocks_task, &task);
    for (int64_t block = 0; block < blocks; block++) {
        *loss += task.sums[block];
    }
    return NAPIER_OK;
}

napier_status napier_umap_loss(napier_context *context, const napier_umap_params *params, napier_const_matrix embedding,
                               const napier_umap_edge *edges, int64_t count, const uint32_t *targets, int64_t rate,
                               double *loss) {
    NAPIER_DEFAULT_FENV;
    napier_umap_params p;
    napier_forces forces;
    NAPIER_TRY(napier_begin(context));
    NAPIER_REFUSE_IF(context, !loss, "loss: NULL");
    NAPIER_TRY(napier_umap_check_params(context, params, &p, &forces));
    NAPIER_TRY(napier_umap_check_embedding(context, "embedding", embedding));
    NAPIER_TRY(napier_umap_check_edges(context, edges, count, embedding.rows));
    NAPIER_TRY(napier_umap_check_targets(context, targets, rate, embedding.rows));
    double sum = 0.0;
    loss_task task = {.params = &p, .y = embedding.data, .components = embedding.cols, .count = count, .edges = edges};
    NAPIER_TRY(add_loss(context, task, &sum));
    if (targets) {
        task.edges = NULL;
        task.targets = targets;
        task.rate = rate;
        task.count = embedding.rows * rate;
        NAPIER_TRY(add_loss(context, task, &sum));
    }
    *loss = sum;
    return NAPIER_OK;
}
