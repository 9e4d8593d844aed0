/* ops/softmax/gpu/softmax_f64_cuda.c - runs a job in double precision on a GPU: workspace and launches. */
#include "ops/softmax/gpu/softmax_f64_cuda.h"

#include "core/gpu/launch.h"

NAPIER_CUDA_KERNEL_DECLARE(napier_f64_sums);
NAPIER_CUDA_KERNEL_DECLARE(napier_f64_merge);
NAPIER_CUDA_KERNEL_DECLARE(napier_f64_tile_sums);
NAPIER_CUDA_KERNEL_DECLARE(napier_f64_totals);
NAPIER_CUDA_KERNEL_DECLARE(napier_f64_write);

enum { NAPIER_F64_WAVES = 8 };

/* A job with where it runs. */
typedef struct napier_f64_call {
    napier_cuda_context *context;
    struct CUstream_st *stream;
    const char *name;
    const napier_f64_cuda_job *job;
} napier_f64_call;

static napier_status napier_f64_launch(const napier_f64_call *c, napier_cuda_kernel kernel, int64_t blocks, int threads,
                                       int64_t shared) {
    const napier_cuda_shape shape = {.blocks = blocks, .threads = threads, .shared_bytes = shared};
    return napier_cuda_launch(c->context, c->stream, c->name, kernel, &shape, c->job, sizeof *c->job);
}

static bool napier_f64_has_row_sums(const napier_f64_cuda_job *j) {
    return j->result == NAPIER_F64_SOFTMAX_GRADIENT || j->result == NAPIER_F64_LOG_SOFTMAX_GRADIENT;
}

static void napier_f64_plan(const napier_cuda_context *context, napier_f64_cuda_job *j) {
    j->lines = j->whole ? 1 : j->x.rows;
    j->size = j->whole ? j->x.rows * j->x.cols : j->x.cols;
    if (j->result != NAPIER_F64_LSE && j->size == 0) {
        j->lines = 0;
    }
    j->tiles = j->size / NAPIER_F64_TILE + (j->size % NAPIER_F64_TILE != 0);
    const int64_t blocks = (int64_t)context->processors * NAPIER_F64_WAVES;
    const int64_t most = j->lines > 0 && j->lines < blocks ? blocks / j->lines : 1;
    const int64_t parts = j->tiles < most ? j->tiles : most;
    j->share = parts > 0 ? (j->tiles + parts - 1) / parts : 1;
    j->parts = j->tiles > 0 ? (j->tiles + j->share - 1) / j->share : 1;
}

static napier_status napier_f64_launch_all(const napier_f64_call *c) {
    const napier_f64_cuda_job *const j = c->job;
    const int64_t warps = (j->lines + 31) / 32;
    napier_status status;
    if (napier_f64_has_row_sums(j)) {
        status = napier_f64_launch(c, NAPIER_CUDA_KERNEL(napier_f64_tile_sums),
                                   napier_cuda_blocks(c->context, j->lines * j->tiles, 1, NAPIER_F64_WAVES),
                                   NAPIER_F64_LANES, NAPIER_F64_ROOM);
        if (!status)
            status = napier_f64_launch(c, NAPIER_CUDA_KERNEL(napier_f64_totals), warps, 32, 0);
    } else {
        status = napier_f64_launch(c, NAPIER_CUDA_KERNEL(napier_f64_sums), j->sums ? j->lines * j->parts : 0,
                                   NAPIER_F64_LANES, NAPIER_F64_ROOM);
        if (!status)
            status = napier_f64_launch(c, NAPIER_CUDA_KERNEL(napier_f64_merge), warps, 32, 0);
    }
    if (!status && j->result != NAPIER_F64_LSE && j->result != NAPIER_F64_STATE) {
        const int64_t blocks = napier_cuda_blocks(c->context, j->lines * j->size, NAPIER_F64_LANES, NAPIER_F64_WAVES);
        status = napier_f64_launch(c, NAPIER_CUDA_KERNEL(napier_f64_write), blocks, NAPIER_F64_LANES, 0);
    }
    return status;
}

napier_status napier_f64_cuda_run(napier_cuda_context *context, struct CUstream_st *stream,
                                  napier_cuda_workspace *workspace, const char *name, napier_f64_cuda_job *job) {
    napier_status status = NAPIER_OK;
    napier_f64_plan(context, job);
    const int64_t lines = job->lines;
    const bool sums = napier_f64_has_row_sums(job); /* of the gradients, else those of exponentials */
    const bool summed = sums || (job->states != NULL && job->result != NAPIER_F64_STATE);
    const bool final = !sums && job->result != NAPIER_F64_LSE && job->result != NAPIER_F64_STATE;
    napier_cuda_room room = napier_cuda_room_of(workspace);
    job->sums = summed ? NULL : napier_cuda_take(&room, lines * job->parts, sizeof *job->sums);
    job->finals = napier_cuda_take(&room, final ? lines : 0, sizeof *job->finals);
    job->tile_sums = napier_cuda_take(&room, sums ? lines * job->tiles : 0, sizeof *job->tile_sums);
    job->totals = napier_cuda_take(&room, sums ? lines : 0, sizeof *job->totals);
    if (!napier_cuda_room_ready(context, &room, &status) || lines == 0) {
        return status;
    }
    const napier_f64_call call = {context, stream, name, job};
    return napier_f64_launch_all(&call);
}

napier_status napier_f64_cuda_take_states(napier_cuda_context *context, struct CUstream_st *stream, const char *name,
                                          napier_f64_cuda_job *job, const void *sums) {
    const napier_f64_call call = {context, stream, name, job};
    job->sums = (napier_f64_sum *)(uintptr_t)sums; /* only read */
    job->clear = sums == NULL;
    return napier_f64_launch(&call, NAPIER_CUDA_KERNEL(napier_f64_merge), (job->lines + 31) / 32, 32, 0);
}
