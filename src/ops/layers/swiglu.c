/* ops/layers/swiglu.c - the gated unit and its gradient: checks, and rows cut into parts that fit a first-level cache. */
#include <napier/layers.h>

#include "core/base/parallel.h"
#include "core/base/scope.h"
#include "core/base/stop.h"
#include "core/base/view.h"
#include "ops/layers/layer_rows.h"

typedef struct job {
    const napier_ops_kernels *kernels;
    napier_const_matrix gate, up, grad;
    napier_matrix out, grad_gate, grad_up;
    int64_t parts; /* of a row */
} job;

/* ---- A part of a row --------------------------------------------------------------------------------------------- */

typedef struct part {
    int64_t row, col, cols;
} part;

static part part_of(const job *j, int64_t index) {
    const int64_t col = index % j->parts * NAPIER_LAYER_COLS;
    return (part){index / j->parts, col, napier_least(j->gate.cols - col, NAPIER_LAYER_COLS)};
}

static void forward_part(void *argument, int64_t index) {
    const job *j = argument;
    const part p = part_of(j, index);
    float gate_room[NAPIER_LAYER_COLS], up_room[NAPIER_LAYER_COLS], room[NAPIER_LAYER_COLS];
    const float *gate = napier_layer_in(j->kernels, &j->gate, p.row, p.col, p.cols, gate_room);
    const float *up = napier_layer_in(j->kernels, &j->up, p.row, p.col, p.cols, up_room);
    const napier_layer_place place = napier_layer_out(&j->out, p.row, p.col, room);
    j->kernels->layers->gate(gate, up, p.cols, place.data, place.dtype);
    napier_layer_put(j->kernels, j->out, p.row, p.col, p.cols, &place, room);
}

static void write(const job *j, part p, napier_matrix m, const float *room) {
    if (m.data) {
        j->kernels->core->unpack(room, NAPIER_LAYER_COLS, 1, p.cols, m, p.row, p.col, false);
    }
}

static void backward_part(void *argument, int64_t index) {
    const job *j = argument;
    const part p = part_of(j, index);
    float rooms[5][NAPIER_LAYER_COLS];
    const float *gate = napier_layer_in(j->kernels, &j->gate, p.row, p.col, p.cols, rooms[0]);
    const float *up = napier_layer_in(j->kernels, &j->up, p.row, p.col, p.cols, rooms[1]);
    const float *grad = napier_layer_in(j->kernels, &j->grad, p.row, p.col, p.cols, rooms[2]);
    j->kernels->layers->gate_gradient(gate, up, grad, p.cols, rooms[3], rooms[4]);
    write(j, p, j->grad_gate, rooms[3]);
    write(j, p, j->grad_up, rooms[4]);
}

/* ---- Calls ------------------------------------------------------------------------------------------------------- */

static napier_status run(napier_context *context, job *j, napier_each *each) {
    if (j->gate.rows == 0 || j->gate.cols == 0) {
        return NAPIER_OK;
    }
    j->kernels = napier_ops_kernels_of(context->isa);
    j->parts = napier_round_up(j->gate.cols, NAPIER_LAYER_COLS) / NAPIER_LAYER_COLS;
    NAPIER_MAY_STOP(context);
    napier_parallel_each(context, j->gate.rows * j->parts,
                         napier_layer_chunk(napier_least(j->gate.cols, NAPIER_LAYER_COLS)), each, j);
    return napier_stopped(context);
}

napier_status napier_swiglu(napier_context *context, napier_const_matrix gate, napier_const_matrix up,
                            napier_matrix out) {
    NAPIER_TRY(napier_begin(context));
    const unsigned in = NAPIER_IS_NARROW | NAPIER_MAY_BE_OUT;
    const napier_argument all[] = {
        NAPIER_ARGUMENT("gate", gate, in, gate.rows, gate.cols, NULL),
        NAPIER_ARGUMENT("up", up, in, gate.rows, gate.cols, "gate"),
        NAPIER_ARGUMENT("out", napier_read_only(out), NAPIER_IS_NARROW | NAPIER_IS_OUT, gate.rows, gate.cols, "gate")};
    NAPIER_TRY(napier_check_arguments(context, all, sizeof all / sizeof *all));
    job j = {.gate = gate, .up = up, .out = out};
    return run(context, &j, forward_part);
}

napier_status napier_swiglu_backward(napier_context *context, napier_const_matrix grad_out, napier_const_matrix gate,
                                     napier_const_matrix up, napier_matrix grad_gate, napier_matrix grad_up) {
    NAPIER_TRY(napier_begin(context));
    const unsigned out = NAPIER_IS_NARROW | NAPIER_IS_OUT | NAPIER_MAY_BE_ABSENT;
    const napier_argument all[] = {
        NAPIER_ARGUMENT("gate", gate, NAPIER_IS_NARROW, gate.rows, gate.cols, NULL),
        NAPIER_ARGUMENT("up", up, NAPIER_IS_NARROW, gate.rows, gate.cols, "gate"),
        NAPIER_ARGUMENT("grad_out", grad_out, NAPIER_IS_NARROW, gate.rows, gate.cols, "gate"),
        NAPIER_ARGUMENT("grad_gate", napier_read_only(grad_gate), out, gate.rows, gate.cols, "gate"),
        NAPIER_ARGUMENT("grad_up", napier_read_only(grad_up), out, gate.rows, gate.cols, "gate")};
    NAPIER_TRY(napier_check_arguments(context, all, sizeof all / sizeof *all));
    job j = {.gate = gate, .up = up, .grad = grad_out, .grad_gate = grad_gate, .grad_up = grad_up};
    return grad_gate.data || grad_up.data ? run(context, &j, backward_part) : NAPIER_OK;
}
