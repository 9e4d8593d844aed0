/* lm/decoder/experts.c - see experts.h. Rows are sorted by expert, so that an expert's weights are read once for all of
 * its rows. Each expert adds its results to the rows' sums before the next one runs. */
#include "lm/decoder/experts.h"

#include <napier/softmax.h>
#include <string.h>

#include "core/base/parallel.h"
#include "core/base/stop.h"
#include "ops/softmax/softmax_kernels.h"

enum { SOME_ROWS = 16 }; /* rows that a thread takes at a time */

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

/* An entry is a row with one of its experts: entry row * count + rank. */
typedef struct mixture {
    const napier_model *model;
    napier_const_matrix x; /* [rows, hidden] */
    napier_matrix out;
    int64_t experts, count; /* of the model; of a row */
    int64_t *offsets;       /* [experts + 1]: the entries of expert e are members[offsets[e]] .. */
    int64_t *members;       /* [rows * count] */
    int64_t *chosen;        /* [rows * count]: the expert of an entry */
    float *shares;          /* [rows * count] */
    float *probs;           /* [rows, experts] */
    float *sums;            /* [rows, hidden + PADDING]: one expert's results */
    char *gathered;         /* [rows, hidden + PADDING]: one expert's rows */
    int64_t first;          /* index in members of the expert that runs */
} mixture;

enum { PARTS = 7, PADDING = 32 /* elements, as in layers.c */ };

typedef struct part {
    void **at;
    int64_t bytes;
} part;

/* The limits of config.json and of the rows of a block keep these products below 2^40. */
static void list_parts(mixture *e, int64_t rows, part parts[PARTS]) {
    const int64_t entries = rows * e->count, width = e->model->config.hidden_size + PADDING;
    const int64_t each = napier_model_activation_bytes(e->model);
    const part all[PARTS] = {{(void **)&e->offsets, (e->experts + 1) * (int64_t)sizeof *e->offsets},
                             {(void **)&e->members, entries * (int64_t)sizeof *e->members},
                             {(void **)&e->chosen, entries * (int64_t)sizeof *e->chosen},
                             {(void **)&e->shares, entries * (int64_t)sizeof *e->shares},
                             {(void **)&e->probs, rows * e->experts * (int64_t)sizeof *e->probs},
                             {(void **)&e->sums, rows * width * (int64_t)sizeof *e->sums},
                             {(void **)&e->gathered, rows * width * each}};
    memcpy(parts, all, sizeof all);
}

static int64_t padded(int64_t bytes) { return (bytes + 63) / 64 * 64; }

static mixture mixture_of(const napier_model *model) {
    return (mixture){.model = model, .experts = model->config.num_experts, .count = model->config.num_experts_per_tok};
}

int64_t napier_experts_bytes(const napier_context *context, const napier_model *model, int64_t rows) {
    mixture e = mixture_of(model);
    part parts[PARTS];
    if (e.experts == 0) {
        return 0;
    }
    list_parts(&e, rows, parts);
    int64_t bytes = context->threads * (int64_t)NAPIER_ROWS_SCRATCH * (int64_t)sizeof(float); /* of the softmax */
    for (int i = 0; i < PARTS; i++) {
        bytes += padded(parts[i].bytes);
    }
    return bytes;
}

static void place(mixture *e, char *room) {
    part parts[PARTS];
    list_parts(e, e->x.rows, parts);
    for (int i = 0; i < PARTS; i++) {
        *parts[i].at = room;
        room += padded(parts[i].bytes);
    }
}

/* ---- The experts of each row ------------------------------------------------------------------------------------- */

static bool precedes(const float *p, int64_t a, int64_t b) { return p[a] > p[b] || (p[a] == p[b] && a < b); }

/* The expert that follows `last` in the order of ranks; last -1: the first. If all are NaN, the next index. */
static int64_t next_expert(const float *p, int64_t experts, int64_t last) {
    int64_t best = -1;
    for (int64_t i = 0; i < experts; i++) {
        if ((last < 0 || precedes(p, last, i)) && (best < 0 || precedes(p, i, best))) {
            best = i;
        }
    }
    return best >= 0 ? best : last + 1;
}

static void choose_task(void *argument, int worker, int64_t begin, int64_t end) {
    const mixture *e = argument;
    (void)worker;
    for (int64_t row = begin; row < end; row++) {
        const float *const p = e->probs + row * e->experts;
        int64_t *const chosen = e->chosen + row * e->count;
        float *const shares = e->shares + row * e->count, sum = 0;
        for (int64_t k = 0; k < e->count; k++) {
            chosen[k] = next_expert(p, e->experts, k > 0 ? chosen[k - 1] : -1);
            shares[k] = p[chosen[k]];
            sum += shares[k];
        }
        for (int64_t k = 0; k < e->count && e->model->config.norm_topk_prob; k++) {
            shares[k] /= sum;
        }
    }
}

/* Lists the entries of each expert, in the order of their rows. */
static void group(const mixture *e) {
    const int64_t entries = e->x.rows * e->count;
    memset(e->offsets, 0, (size_t)(e->experts + 1) * sizeof *e->offsets);
    for (int64_t i = 0; i < entries; i++) {
        e->offsets[e->chosen[i]]++;
    }
    for (int64_t k = 0, end = 0; k <= e->experts; k++) {
        end += e->offsets[k];
        e->offsets[k] = end; /* where it ends; below it moves to where it begins */
    }
    for (int64_t i = entries - 1; i >= 0; i--) {
        e->members[--e->offsets[e->chosen[i]]] = i;
    }
}

static napier_status route(napier_context *context, const mixture *e, const napier_layer *layer, float *memory) {
    const napier_matrix probs = napier_rows_f32(e->probs, e->x.rows, e->experts);
    const napier_projection router = {layer->router, probs};
    napier_project(context, e->x, &router, 1, napier_model_splits(e->model), memory);
    NAPIER_TRY(napier_softmax(context, napier_read_only(probs), probs, NULL));
    napier_parallel(context, e->x.rows, SOME_ROWS, choose_task, (void *)(uintptr_t)e);
    NAPIER_TRY(napier_stopped(context)); /* choices may be unwritten */
    group(e);
    return NAPIER_OK;
}

/* ---- An expert's rows -------------------------------------------------------------------------------------------- */

static int64_t row_of(const mixture *e, int64_t i) { return e->members[e->first + i] / e->count; }

static void gather_task(void *argument, int worker, int64_t begin, int64_t end) {
    const mixture *e = argument;
    const int64_t each = (int64_t)napier_dtype_size(e->x.dtype);
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const char *const from = (const char *)e->x.data + row_of(e, i) * e->x.row_stride * each;
        memcpy(e->gathered + i * (e->x.cols + PADDING) * each, from, (size_t)(e->x.cols * each));
    }
}

/* A row occurs once among an expert's, so no two workers write one row. */
static void add_task(void *argument, int worker, int64_t begin, int64_t end) {
    const mixture *e = argument;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const float share = e->shares[e->members[e->first + i]];
        const float *const sums = e->sums + i * (e->x.cols + PADDING);
        float *const out = (float *)e->out.data + row_of(e, i) * e->out.row_stride;
        for (int64_t c = 0; c < e->x.cols; c++) {
            out[c] += share * sums[c];
        }
    }
}

static void run_expert(napier_context *context, mixture *e, const napier_gated *weights, int64_t rows, float *memory) {
    const int64_t stride = e->x.cols + PADDING;
    const napier_const_matrix x = {e->gathered, rows, e->x.cols, stride, 1, e->x.dtype};
    napier_parallel(context, rows, SOME_ROWS, gather_task, e);
    const napier_matrix sums = {e->sums, rows, e->x.cols, stride, 1, NAPIER_F32};
    napier_project_gated(context, x, weights, sums, napier_model_splits(e->model), memory);
    napier_parallel(context, rows, SOME_ROWS, add_task, e);
}

napier_status napier_experts_run(napier_context *context, const napier_model *model, const napier_layer *layer,
                                 napier_const_matrix x, napier_matrix out, void *room, float *memory) {
    mixture e = mixture_of(model);
    e.x = x;
    e.out = out;
    place(&e, room);
    NAPIER_TRY(route(context, &e, layer, memory));
    for (int64_t row = 0; row < x.rows; row++) {
        memset((float *)out.data + row * out.row_stride, 0, (size_t)x.cols * sizeof(float));
    }
    for (int64_t k = 0; k < e.experts; k++) {
        const int64_t rows = e.offsets[k + 1] - e.offsets[k];
        e.first = e.offsets[k];
        if (rows > 0) {
            run_expert(context, &e, &layer->experts[k], rows, memory);
        }
    }
    return NAPIER_OK;
}
