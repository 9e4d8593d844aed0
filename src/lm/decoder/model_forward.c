/* lm/decoder/model_forward.c - states and logits of all positions, for as many sequences at a time as memory allows. */
#include <inttypes.h>
#include <napier/model.h>
#include <string.h>

#include "core/base/scope.h"
#include "core/base/stop.h"
#include "core/base/view.h"
#include "ops/isa/ops_kernels.h"
#include "ops/linear/engine.h"
#include "lm/decoder/layers.h"
#include "lm/decoder/project.h"
#include "ops/tokens/responses.h"

enum { LOGIT_ROWS = 256 }; /* rows that the head multiplies at a time */

typedef struct forward {
    napier_context *context;
    const napier_model *model;
    napier_indices ids, offsets;
    int64_t sequences;
    napier_matrix hidden, logits;
    napier_progress *progress;
    void *user;
    napier_layers layers;
    float *memory; /* for the head's product, or for a row */
} forward;

static int64_t begin_of(const forward *f, int64_t s) {
    return f->offsets.size > 0 ? napier_index_at(f->offsets, s) : s > 0 ? f->ids.size : 0;
}

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

static napier_status check(forward *f) {
    const napier_model_config *c = &f->model->config;
    f->sequences = f->offsets.size > 0 ? f->offsets.size - 1 : 1;
    NAPIER_TRY(napier_check_ids(f->context, "ids", f->ids, f->ids.size, c->vocab_size));
    if (f->offsets.size > 0) {
        NAPIER_TRY(napier_check_offsets(f->context, f->offsets, f->ids.size));
    }
    const unsigned out = NAPIER_IS_OUT | NAPIER_IS_NARROW | (f->ids.size > 0 ? NAPIER_MAY_BE_ABSENT : 0u);
    const napier_argument all[] = {
        NAPIER_ARGUMENT("hidden", napier_read_only(f->hidden), out, f->ids.size, c->hidden_size, NULL),
        NAPIER_ARGUMENT("logits", napier_read_only(f->logits), out, f->ids.size, f->model->head.rows, NULL),
        napier_row_argument("ids", napier_indices_bytes(f->ids), NAPIER_MAY_BE_ABSENT, f->ids.size),
        napier_row_argument("offsets", napier_indices_bytes(f->offsets), NAPIER_MAY_BE_ABSENT, f->offsets.size)};
    return napier_check_arguments(f->context, all, sizeof all / sizeof *all);
}

/* ---- Chunks ------------------------------------------------------------------------------------------------------ */

static napier_ragged_size with(const forward *f, napier_ragged_size size, int64_t s) {
    const int64_t tokens = begin_of(f, s + 1) - begin_of(f, s);
    size.tokens += tokens;
    size.sequences++;
    size.positions = tokens > size.positions ? tokens : size.positions;
    return size;
}

/* Plans for as many sequences from s on as fit, but at least one. Returns the first that does not fit. */
static int64_t next_chunk(const forward *f, int64_t s, napier_layers_plan *plan) {
    *plan = (napier_layers_plan){0};
    napier_layers_plan_for(f->context, f->model, with(f, plan->size, s), plan);
    while (++s < f->sequences) {
        napier_layers_plan more = *plan;
        napier_layers_plan_for(f->context, f->model, with(f, plan->size, s), &more);
        if (more.bytes > f->model->memory) {
            break;
        }
        *plan = more;
    }
    return s;
}

/* Checks that every chunk fits. Only a chunk of one sequence can be too large. */
static napier_status check_chunks(const forward *f) {
    for (int64_t s = 0; s < f->sequences;) {
        napier_layers_plan plan;
        const int64_t end = next_chunk(f, s, &plan);
        NAPIER_TRY(napier_model_check_length(f->context, f->model, "ids", plan.size.positions));
        if (plan.bytes > f->model->memory) {
            return napier_fail(f->context, NAPIER_OUT_OF_MEMORY,
                               "memory: %" PRId64 " bytes are too few for sequence %" PRId64 " of %" PRId64
                               " tokens, which needs %" PRId64,
                               f->model->memory, s, plan.size.tokens, plan.bytes);
        }
        s = end;
    }
    return NAPIER_OK;
}

/* ---- A chunk ----------------------------------------------------------------------------------------------------- */

/* Writes `hidden` and `logits` from `row` on. */
static void write_states(const forward *f, int64_t row, int64_t rows) {
    const napier_core_kernels *kernels = napier_ops_kernels_of(f->context->isa)->core;
    const napier_const_matrix states = napier_layers_states(&f->layers, rows);
    const int64_t width = (states.cols + 15) / 16 * 16;
    for (int64_t i = 0; i < rows; i++) {
        kernels->pack(&states, i, 1, 0, states.cols, false, f->memory, width, width);
        kernels->unpack(f->memory, width, 1, states.cols, f->hidden, row + i, 0, false);
    }
}

static void write_logits(const forward *f, int64_t row, int64_t rows) {
    const napier_const_matrix states = napier_layers_states(&f->layers, rows);
    const int64_t in = (int64_t)napier_dtype_size(states.dtype), out = (int64_t)napier_dtype_size(f->logits.dtype);
    for (int64_t first = 0; first < rows; first += LOGIT_ROWS) {
        napier_const_matrix x = states;
        napier_matrix logits = f->logits;
        x.rows = logits.rows = rows - first < LOGIT_ROWS ? rows - first : LOGIT_ROWS;
        x.data = (const char *)x.data + first * x.row_stride * in;
        logits.data = (char *)logits.data + (row + first) * logits.row_stride * out;
        const napier_projection head = {f->model->head, logits};
        napier_project(f->context, x, &head, 1, napier_model_splits(f->model), f->memory);
    }
}

static napier_status allocate(forward *f, napier_memory *memory, const napier_layers_plan *plan) {
    const int64_t rows = plan->size.tokens < LOGIT_ROWS ? plan->size.tokens : LOGIT_ROWS;
    const napier_const_matrix head = f->model->head;
    const napier_const_matrix x = napier_const_rows(NULL, rows, head.cols, napier_model_activations(f->model));
    const size_t row = (size_t)head.cols + 16;
    const size_t all =
        f->logits.data ? napier_project_most_floats(f->context, x, head, napier_model_splits(f->model)) : 0;
    f->memory = napier_take(memory, (int64_t)(all > row ? all : row), sizeof *f->memory);
    NAPIER_TRY(napier_taken(memory, "logits: no memory for a product of %" PRId64 " rows", rows));
    NAPIER_TRY(napier_layers_allocate(memory, plan, &f->layers));
    f->layers.progress = f->progress;
    f->layers.user = f->user;
    return NAPIER_OK;
}

/* Runs sequences s .. end - 1. */
static napier_status run_chunk(forward *f, int64_t s, int64_t end, const napier_layers_plan *plan) {
    const int64_t tokens = plan->size.tokens;
    NAPIER_MEMORY(memory, f->context);
    NAPIER_TRY(allocate(f, &memory, plan));
    for (int64_t i = s; i < end; i++) {
        const int64_t begin = begin_of(f, i), stop = begin_of(f, i + 1);
        napier_ragged_add(&f->layers.batch, f->ids, begin, stop, 0, (napier_key_rows){0, 0}, stop - begin);
    }
    f->layers.done = (double)begin_of(f, s) / (double)f->ids.size;
    f->layers.share = (double)tokens / (double)f->ids.size;
    NAPIER_TRY(napier_layers_run(f->context, &f->layers));
    if (f->hidden.data) {
        write_states(f, begin_of(f, s), tokens);
    }
    NAPIER_MAY_STOP(f->context);
    if (f->logits.data) {
        write_logits(f, begin_of(f, s), tokens);
    }
    return napier_stopped(f->context);
}

static napier_status run_all(forward *f) {
    napier_layers_plan plan;
    NAPIER_TRY(check_chunks(f));
    for (int64_t s = 0, end; s < f->sequences; s = end) {
        end = next_chunk(f, s, &plan);
        NAPIER_TRY(plan.size.tokens > 0 ? run_chunk(f, s, end, &plan) : NAPIER_OK);
    }
    return NAPIER_OK;
}

napier_status napier_model_forward(napier_context *context, const napier_model *model, napier_indices ids,
                                   napier_indices offsets, napier_matrix hidden, napier_matrix logits,
                                   napier_progress *progress, void *user) {
    NAPIER_DEFAULT_FENV;
    NAPIER_TRY(napier_begin(context));
    NAPIER_REFUSE_IF(context, !model, "model: NULL");
    forward f = {.context = context,
                 .model = model,
                 .ids = ids,
                 .offsets = offsets,
                 .hidden = hidden,
                 .logits = logits,
                 .progress = progress,
                 .user = user};
    NAPIER_TRY(check(&f));
    if (model->compute != NAPIER_COMPUTE_F32) {
        napier_matrix_engine_decide(context);
    }
    return run_all(&f);
}
