/* ops/softmax/gpu/softmax_f64_cuda.c - runs a job in double precision on a GPU: workspace and launches. */
#include "ops/softmax/gpu/softmax_f64_cuda.h"

NAPIER_CUDA_KERNEL_DECLARE(napier_f64_sums, napier_f64_merge, napier_f64_tile_sums, napier_f64_totals,
                           napier_f64_write);

enum { NAPIER_F64_WAVES = 8 };

static napier_status f64_launch(const napier_cuda_call *gpu, napier_cuda_kernel kernel, int64_t blocks, int threads,
                                int64_t shared, const napier_f64_cuda_job *job) {
    const napier_cuda_shape shape = {.blocks = blocks, .threads = threads, .shared_bytes = shared};
    return napier_cuda_put(gpu, kernel, shape, job, sizeof *job);
}

static bool f64_has_row_sums(const napier_f64_cuda_job *j) {
    return j->result == NAPIER_F64_SOFTMAX_GRADIENT || j->result == NAPIER_F64_LOG_SOFTMAX_GRADIENT ||
           j->result == NAPIER_F64_DOT;
}
/* One result for each line, which the sums give. */
static bool f64_reduces(const napier_f64_cuda_job *j) {
    return j->result == NAPIER_F64_LSE || j->result == NAPIER_F64_STATE || j->result == NAPIER_F64_DOT;
}

static void f64_plan(const napier_cuda_context *context, napier_f64_cuda_job *j) {
    j->lines = j->whole ? 1 : j->x.rows;
    j->size = j->whole ? j->x.rows * j->x.cols : j->x.cols;
    if (j->result != NAPIER_F64_LSE && j->result != NAPIER_F64_DOT && j->size == 0) {
        j->lines = 0;
    }
    j->tiles = j->size / NAPIER_F64_TILE + (j->size % NAPIER_F64_TILE != 0);
    const int64_t blocks = (int64_t)context->processors * NAPIER_F64_WAVES;
    const int64_t most = j->lines > 0 && j->lines < blocks ? blocks / j->lines : 1;
    const int64_t parts = j->tiles < most ? j->tiles : most;
    j->share = parts > 0 ? napier_cuda_tiles(j->tiles, parts) : 1;
    j->parts = j->tiles > 0 ? napier_cuda_tiles(j->tiles, j->share) : 1;
}

static napier_status f64_launch_all(const napier_cuda_call *gpu, const napier_f64_cuda_job *j) {
    const int64_t warps = napier_cuda_tiles(j->lines, 32);
    if (f64_has_row_sums(j)) {
        const int64_t blocks = napier_cuda_blocks(gpu->context, j->lines * j->tiles, 1, NAPIER_F64_WAVES);
        NAPIER_TRY(
            f64_launch(gpu, NAPIER_CUDA_KERNEL(napier_f64_tile_sums), blocks, NAPIER_F64_LANES, NAPIER_F64_ROOM, j));
        NAPIER_TRY(f64_launch(gpu, NAPIER_CUDA_KERNEL(napier_f64_totals), warps, 32, 0, j));
    } else {
        const int64_t blocks = j->sums ? j->lines * j->parts : 0;
        NAPIER_TRY(f64_launch(gpu, NAPIER_CUDA_KERNEL(napier_f64_sums), blocks, NAPIER_F64_LANES, NAPIER_F64_ROOM, j));
        NAPIER_TRY(f64_launch(gpu, NAPIER_CUDA_KERNEL(napier_f64_merge), warps, 32, 0, j));
    }
    if (f64_reduces(j)) {
        return NAPIER_OK;
    }
    const int64_t blocks = napier_cuda_blocks(gpu->context, j->lines * j->size, NAPIER_F64_LANES, NAPIER_F64_WAVES);
    return f64_launch(gpu, NAPIER_CUDA_KERNEL(napier_f64_write), blocks, NAPIER_F64_LANES, 0, j);
}

napier_status napier_f64_cuda_run(const napier_cuda_call *gpu, napier_cuda_workspace *workspace,
                                  napier_f64_cuda_job *job) {
    f64_plan(gpu->context, job);
    const int64_t lines = job->lines;
    const bool sums = f64_has_row_sums(job); /* of the gradients, else those of exponentials */
    const bool summed = sums || (job->states != NULL && job->result != NAPIER_F64_STATE);
    const bool final = !sums && !f64_reduces(job);
    napier_cuda_room room = napier_cuda_room_of(workspace);
    job->sums = summed ? NULL : napier_cuda_take(&room, lines * job->parts, sizeof *job->sums);
    job->finals = napier_cuda_take(&room, final ? lines : 0, sizeof *job->finals);
    job->tile_sums = napier_cuda_take(&room, sums ? lines * job->tiles : 0, sizeof *job->tile_sums);
    job->totals = napier_cuda_take(&room, sums ? lines : 0, sizeof *job->totals);
    NAPIER_CUDA_READY(gpu->context, room);
    return lines == 0 ? NAPIER_OK : f64_launch_all(gpu, job);
}

napier_status napier_f64_cuda_take_states(const napier_cuda_call *gpu, napier_f64_cuda_job *job, const void *sums) {
    job->sums = (napier_f64_sum *)(uintptr_t)sums; /* only read */
    job->clear = sums == NULL;
    return f64_launch(gpu, NAPIER_CUDA_KERNEL(napier_f64_merge), napier_cuda_tiles(job->lines, 32), 32, 0, job);
}
