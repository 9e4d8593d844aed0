/* ops/softmax/gpu/part_cuda.c - parts of rows that begin and end anywhere, on a GPU: a batch of states in the portable byte
 * form.
 *
 * To save, the whole tiles of the part go into sums as in state_cuda.c, and a kernel writes these and the elements at both
 * ends as bytes. To load, a kernel reads the sums of each part back, and copies the elements at its ends to a matrix z.
 * The parts follow one another, so each tile is whole there, and the tiles of z are added like other columns. */
#include "ops/softmax/gpu/part_cuda.h"

#include "core/base/sizes.h"
#include "core/base/view.h"
#include "core/gpu/launch.h"
#include "core/math/f64.h"
#include "ops/softmax/arguments.h"
#include "ops/softmax/gpu/softmax_cuda.h"
#include "ops/softmax/state/state.h"

NAPIER_CUDA_KERNEL_DECLARE(napier_part_save, napier_part_load);

/* The state that the CPU would have for these columns, without its elements. */
static napier_softmax_state fields_of(napier_dtype compute, int64_t first, int64_t cols,
                                      const napier_softmax_options *o) {
    const int64_t to_tile = (NAPIER_TILE - first % NAPIER_TILE) % NAPIER_TILE, head = napier_least(cols, to_tile);
    return (napier_softmax_state){.compute = compute,
                                  .temperature = o->temperature,
                                  .masked_rows = o->masked_rows,
                                  .first = first,
                                  .end = first + cols,
                                  .count = cols,
                                  .head_size = (int32_t)head,
                                  .tail_size = (int32_t)((cols - head) % NAPIER_TILE)};
}

static bool is_part(napier_dtype compute, int64_t first, int64_t cols) {
    return (compute == NAPIER_F32 || compute == NAPIER_F64) && first >= 0 && cols >= 0 && cols < NAPIER_SUM_MOST &&
           first <= INT64_MAX - NAPIER_SUM_MOST;
}

size_t napier_cuda_softmax_part_size(napier_dtype compute, int64_t first_index, int64_t cols) {
    const napier_softmax_options none = NAPIER_SOFTMAX_OPTIONS_INIT;
    if (!is_part(compute, first_index, cols)) {
        return 0;
    }
    const napier_softmax_state fields = fields_of(compute, first_index, cols, &none);
    return napier_softmax_state_size(&fields);
}

static napier_status check_part(napier_cuda_context *context, const char *name, napier_dtype compute, int64_t rows,
                                const napier_cuda_softmax_part *part) {
    const size_t size = napier_cuda_softmax_part_size(compute, part->first_index, part->cols);
    NAPIER_REFUSE_IF(context->host, size == 0, "%s: first_index %lld and cols %lld are out of range", name,
                     (long long)part->first_index, (long long)part->cols);
    NAPIER_REFUSE_IF(context->host, rows > 0 && (part->data == NULL || (uintptr_t)part->data % 8 != 0),
                     "%s: %p is not memory on a boundary of 8 bytes", name, part->data);
    NAPIER_REFUSE_IF(context->host, part->stride % 8 != 0 || part->stride < (int64_t)size,
                     "%s: stride %lld is not a multiple of 8 from %zu on", name, (long long)part->stride, size);
    NAPIER_REFUSE_IF(context->host, rows > 0 && part->stride > INT64_MAX / rows, "%s: stride %lld is too large", name,
                     (long long)part->stride);
    return NAPIER_OK;
}

/* What both kernels need. */
static napier_part_cuda_job job_of(napier_dtype compute, int64_t rows, const napier_cuda_softmax_part *part,
                                   const napier_softmax_options *o, void *sums) {
    const napier_softmax_state fields = fields_of(compute, part->first_index, part->cols, o);
    napier_part_cuda_job job = {.compute = compute,
                                .rows = rows,
                                .head = fields.head_size,
                                .tail = fields.tail_size,
                                .bytes = part->data,
                                .stride = part->stride,
                                .sums = sums};
    unsigned char header[NAPIER_STATE_HEADER];
    napier_state_put_header(header, &fields);
    memcpy(job.header, header, sizeof header);
    return job;
}

static napier_cuda_shape shape_of(int64_t rows) {
    return (napier_cuda_shape){.blocks = rows, .threads = NAPIER_PART_THREADS, .shared_bytes = sizeof(int32_t)};
}

/* A call's own memory comes first, then that of the call it makes: `inner`, which has asked for its size. */
static napier_cuda_workspace *take_inner(napier_cuda_room *room, napier_cuda_workspace *inner) {
    inner->data = napier_cuda_take(room, (int64_t)inner->size, 1);
    return inner->size > 0 ? inner : NULL;
}

/* ---- Save -------------------------------------------------------------------------------------------------------- */

/* The columns that are whole tiles. */
static napier_const_matrix whole_tiles(napier_const_matrix x, const napier_part_cuda_job *job) {
    const int64_t stored = job->head + job->tail;
    if (x.cols > stored) {
        x.data = (const char *)x.data + job->head * x.col_stride * (int64_t)napier_dtype_size(x.dtype);
    }
    x.cols -= stored;
    return x;
}

napier_status napier_cuda_softmax_part_save(napier_cuda_context *context, struct CUstream_st *stream,
                                            napier_cuda_workspace *workspace, napier_dtype compute,
                                            napier_const_matrix logits, const napier_softmax_options *options,
                                            napier_cuda_softmax_part part) {
    napier_softmax_options o;
    NAPIER_TRY(napier_cuda_begin(context));
    NAPIER_TRY(napier_check_matrix(context->host, "logits", logits));
    NAPIER_TRY(napier_softmax_cuda_check_states(context, "part", part.data, logits.rows, compute));
    NAPIER_REFUSE_IF(context->host, logits.dtype == NAPIER_F64 && compute != NAPIER_F64,
                     "logits: dtype f64 does not go with f32 states");
    NAPIER_TRY(check_part(context, "part", compute, logits.rows, &part));
    NAPIER_REFUSE_IF(context->host, part.cols != logits.cols, "part: cols %lld is not that of logits, %lld",
                     (long long)part.cols, (long long)logits.cols);
    NAPIER_TRY(napier_softmax_options_read(context->host, options, compute, &o));
    const napier_cuda_call gpu = {context, stream, "part"};
    napier_cuda_room room = napier_cuda_room_of(workspace);
    napier_cuda_workspace inner = {NULL, 0};
    napier_part_cuda_job job = job_of(compute, logits.rows, &part, &o, NULL);
    const napier_const_matrix tiles = whole_tiles(logits, &job);
    NAPIER_TRY(napier_softmax_cuda_states_update(gpu, &inner, NULL, compute, tiles, o.temperature));
    job.sums = napier_cuda_take(&room, logits.rows, napier_cuda_softmax_state_size(compute));
    napier_cuda_workspace *const rest = take_inner(&room, &inner);
    NAPIER_CUDA_READY(context, room);
    if (logits.rows == 0) {
        return NAPIER_OK;
    }
    job.x = logits;
    job.temperature = o.temperature;
    NAPIER_TRY(napier_softmax_cuda_states_take(gpu, job.sums, NULL, logits.rows, compute));
    NAPIER_TRY(napier_softmax_cuda_states_update(gpu, rest, job.sums, compute, tiles, o.temperature));
    return NAPIER_CUDA_PUT(&gpu, napier_part_save, shape_of(logits.rows), &job);
}

/* ---- Update ------------------------------------------------------------------------------------------------------ */

static napier_status check_parts(napier_cuda_context *context, int64_t rows, napier_dtype compute,
                                 const napier_cuda_softmax_part *parts, int64_t count) {
    NAPIER_REFUSE_IF(context->host, count < 0 || (count > 0 && parts == NULL), "parts: %lld at %p", (long long)count,
                     (const void *)parts);
    for (int64_t i = 0; i < count; i++) {
        const int64_t begin = i > 0 ? parts[i - 1].first_index + parts[i - 1].cols : parts[0].first_index;
        NAPIER_TRY(check_part(context, "parts", compute, rows, &parts[i]));
        NAPIER_REFUSE_IF(context->host, parts[i].first_index != begin,
                         "parts: %lld begins at %lld, not where the one before it ends, %lld", (long long)i,
                         (long long)parts[i].first_index, (long long)begin);
    }
    NAPIER_REFUSE_IF(context->host, count > 0 && parts[0].first_index % NAPIER_TILE != 0,
                     "parts: the first begins at %lld, which is not a multiple of %d", (long long)parts[0].first_index,
                     NAPIER_TILE);
    return NAPIER_OK;
}

/* The elements that the parts hold beside their sums. They follow one another in tiles, because each part begins where the
 * one before it ends. */
static int64_t stored_elements(const napier_cuda_softmax_part *parts, int64_t count) {
    const napier_softmax_options none = NAPIER_SOFTMAX_OPTIONS_INIT;
    int64_t stored = 0;
    for (int64_t i = 0; i < count; i++) {
        const napier_softmax_state fields = fields_of(NAPIER_F32, parts[i].first_index, parts[i].cols, &none);
        stored += fields.head_size + fields.tail_size;
    }
    return stored;
}

typedef struct update_call {
    napier_cuda_call gpu;
    void *states, *sums; /* sums: of one part */
    napier_matrix z;
    napier_dtype compute;
} update_call;

/* Adds the sum of each part, and leaves its elements in z. */
static napier_status take_parts(const update_call *c, const napier_cuda_softmax_part *parts, int64_t count,
                                const napier_softmax_options *o) {
    int64_t at = 0;
    for (int64_t i = 0; i < count; i++) {
        napier_part_cuda_job job = job_of(c->compute, c->z.rows, &parts[i], o, c->sums);
        job.z = c->z.data;
        job.z_stride = c->z.row_stride;
        job.head_at = at;
        job.tail_at = at + job.head;
        job.faults = c->gpu.context->faults;
        at = job.tail_at + job.tail;
        NAPIER_TRY(NAPIER_CUDA_PUT(&c->gpu, napier_part_load, shape_of(job.rows), &job));
        NAPIER_TRY(napier_softmax_cuda_states_take(c->gpu, c->states, c->sums, job.rows, c->compute));
    }
    return NAPIER_OK;
}

napier_status napier_cuda_softmax_part_update(napier_cuda_context *context, struct CUstream_st *stream,
                                              napier_cuda_workspace *workspace, void *states, int64_t rows,
                                              napier_dtype compute, const napier_cuda_softmax_part *parts,
                                              int64_t count, const napier_softmax_options *options) {
    napier_softmax_options o;
    NAPIER_TRY(napier_cuda_begin(context));
    NAPIER_TRY(napier_softmax_cuda_check_states(context, "states", states, rows, compute));
    NAPIER_TRY(check_parts(context, rows, compute, parts, count));
    NAPIER_TRY(napier_softmax_options_read(context->host, options, compute, &o));
    update_call c = {.gpu = {context, stream, "states"}, .states = states, .compute = compute};
    const int64_t stored = stored_elements(parts, count), row_stride = (stored + 3) / 4 * 4;
    napier_cuda_room room = napier_cuda_room_of(workspace);
    napier_cuda_workspace inner = {NULL, 0};
    c.z = (napier_matrix){NULL, rows, stored, row_stride, 1, compute};
    NAPIER_TRY(napier_softmax_cuda_states_update(c.gpu, &inner, NULL, compute, napier_read_only(c.z), 1.0));
    c.sums = napier_cuda_take(&room, count > 0 ? rows : 0, napier_cuda_softmax_state_size(compute));
    c.z.data = napier_cuda_take(&room, row_stride, (size_t)rows * napier_state_element(compute));
    napier_cuda_workspace *const rest = take_inner(&room, &inner);
    NAPIER_CUDA_READY(context, room);
    if (rows == 0) {
        return NAPIER_OK;
    }
    NAPIER_TRY(take_parts(&c, parts, count, &o));
    return napier_softmax_cuda_states_update(c.gpu, rest, states, compute, napier_read_only(c.z), 1.0);
}
