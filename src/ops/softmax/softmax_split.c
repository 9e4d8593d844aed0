/* ops/softmax/softmax_split.c - divides a job over threads. Partial sums merge exactly, so any division gives the same
 * bits, and everything here is chosen for speed. */
#include "ops/softmax/softmax_split.h"

#include "core/base/parallel.h"
#include "core/base/scope.h"
#include "core/base/stop.h"
#include "ops/isa/ops_kernels.h"

enum {
    NAPIER_PIECE_LEAST = 8192,  /* elements: they take as long as the start of a thread that is awake */
    NAPIER_PIECE_ALONE = 65536, /* fewer are left to one thread if the others sleep: to wake them takes longer */
    NAPIER_LIGHT_LEAST = 65536, /* of a softmax, whose elements take a fraction of a nanosecond: 20 microseconds */
    NAPIER_LIGHT_ALONE = 2 * NAPIER_LIGHT_LEAST,
    NAPIER_LIGHT_AWAKE = 32768, /* from here on a thread that is awake helps */
    NAPIER_PIECE = 1024 * 1024, /* about 250 microseconds; the start and end of a piece cost a few batches, or a row */
    NAPIER_ROW_MOST = 1 << 26,  /* longer rows are split also where there are many, so that a stop is soon */
    NAPIER_KEEP_COLS =
        2048 * 1024,          /* up to here the terms of a row stay in a cache: cheaper than to compute them again */
    NAPIER_COLUMN_ROWS = 8,   /* fewer neighbouring rows do not fill the lanes: they are gathered */
    NAPIER_FEW_ROWS = 16,     /* fewer long rows are transposed, ... */
    NAPIER_FEW_MOST = 1 << 24 /* ... up to so many elements: 64 MB */
};

static int64_t chunk_of(const napier_context *context, int64_t rows, int64_t cols, int64_t granule, int64_t least) {
    const int64_t elements = rows * cols, threads = context->threads;
    const int64_t wanted = threads * (1 + elements / (threads * NAPIER_PIECE));
    const int64_t pieces = napier_least(wanted, 1 + elements / least);
    const int64_t chunk = (rows + pieces - 1) / pieces;
    return (chunk + granule - 1) / granule * granule;
}

int64_t napier_row_chunk(const napier_context *context, int64_t rows, int64_t cols, int64_t granule) {
    const int64_t elements = rows * cols;
    const bool small = elements >= NAPIER_PIECE_LEAST && elements < NAPIER_PIECE_ALONE;
    return chunk_of(context, rows, cols, granule, small && !napier_helps_now(context) ? INT64_MAX : NAPIER_PIECE_LEAST);
}

/* The same where an element takes a fraction of a nanosecond. */
static int64_t light_chunk(const napier_context *context, int64_t rows, int64_t cols, int64_t granule) {
    return chunk_of(context, rows, cols, granule, rows * cols < NAPIER_LIGHT_ALONE ? INT64_MAX : NAPIER_LIGHT_LEAST);
}

/* The same, and other threads help with less work if they are awake. */
static int64_t awake_chunk(const napier_context *context, int64_t rows, int64_t cols, int64_t granule) {
    const int64_t elements = rows * cols;
    const bool small = elements >= NAPIER_LIGHT_AWAKE && elements < NAPIER_LIGHT_ALONE;
    return small && napier_helps_now(context) ? chunk_of(context, rows, cols, granule, NAPIER_LIGHT_AWAKE / 2)
                                              : light_chunk(context, rows, cols, granule);
}

static int64_t tile_chunk(const napier_context *context, int64_t tiles) {
    return light_chunk(context, tiles, NAPIER_TILE, 1);
}

/* The data that the workers share. All tasks of this file get one. */
typedef struct split {
    const napier_softmax_job *job;
    const napier_softmax_kernels *kernels;
    napier_algorithm algorithm;
    float *scratch;
    int64_t scratch_floats; /* per worker */
    bool together;          /* a row is written while the next one is summed */
    bool keep; /* a row that is split over threads keeps its terms between sum and write, where its results go */
    napier_kept_tile *kept; /* [workers, kept_slots] if `together`, [tiles of a row] if a row is split */
    napier_sum *sums;       /* [workers, rows in progress] */
    int64_t row;            /* first row in progress */
    int rows;               /* rows in progress: 1, or those of a strip */
    const napier_final *finals;
    napier_const_vector factor; /* data NULL: none */
} split;

static float *scratch_of(const split *s, int worker) { return s->scratch + s->scratch_floats * worker; }

/* Are neighbouring rows neighbours in memory, in the input and in the output? */
static bool is_columns(const napier_softmax_job *job) {
    const bool in = job->x.row_stride == 1 && job->x.col_stride != 1 && job->x.rows >= NAPIER_COLUMN_ROWS;
    return in && (job->op == NAPIER_OP_LOGSUMEXP || job->y.row_stride == 1);
}

static int64_t tiles_of(int64_t cols) { return (cols + NAPIER_TILE - 1) / NAPIER_TILE; }

/* The kept tiles of a worker: those of a row and one more, and never in a cache line with those of another worker. With a line
 * in common, two threads were hardly faster than one (bf16, 8192 x 2048). */
static int64_t kept_slots(int64_t cols) {
    enum { LINES = 32 }; /* so many kept tiles are whole cache lines */
    return (tiles_of(cols) + LINES) / LINES * LINES;
}
_Static_assert(32 * sizeof(napier_kept_tile) % NAPIER_ALIGNMENT == 0, "whole cache lines");

static napier_status take(napier_memory *memory, split *s, int workers, int64_t floats, int rows, int64_t kept) {
    s->scratch_floats = floats;
    s->scratch = napier_take(memory, workers * floats, sizeof(float));
    s->sums = rows > 0 ? napier_take(memory, (int64_t)workers * rows, sizeof(napier_sum)) : NULL;
    s->kept = kept > 0 ? napier_take(memory, kept, sizeof(napier_kept_tile)) : NULL;
    return napier_taken(memory, "scratch: no memory for %d workers", workers);
}

/* ---- Short rows ---------------------------------------------------------------------------------------------------- */

static void short_rows_task(void *argument, int worker, int64_t begin, int64_t end) {
    const split *s = argument;
    s->kernels->short_rows(s->job, begin, end, scratch_of(s, worker));
}

static void short_columns_task(void *argument, int worker, int64_t begin, int64_t end) {
    const split *s = argument;
    s->kernels->short_columns(s->job, begin, end, scratch_of(s, worker));
}

/* Few and narrow rows, for which an allocation takes longer than the work. */
static napier_status run_narrow(napier_context *context, split *s) {
    _Alignas(64) float scratch[NAPIER_NARROW_SCRATCH];
    s->scratch = scratch;
    s->scratch_floats = NAPIER_NARROW_SCRATCH;
    napier_parallel(context, s->job->x.rows, s->job->x.rows, short_rows_task, s);
    return napier_stopped(context);
}

static napier_status run_short(napier_context *context, split *s) {
    const bool columns = is_columns(s->job);
    const int64_t granule = columns ? NAPIER_STRIP : s->job->x.cols <= NAPIER_TINY_COLS ? 256 : NAPIER_GROUP;
    const int64_t rows = s->job->x.rows, chunk = awake_chunk(context, rows, s->job->x.cols, granule);
    const int workers = napier_workers(context, rows, chunk);
    if (workers == 1 && !columns && rows * s->job->x.cols < NAPIER_LIGHT_LEAST &&
        s->job->x.cols <= NAPIER_NARROW_COLS) {
        return run_narrow(context, s);
    }
    NAPIER_MEMORY(memory, context);
    NAPIER_TRY(take(&memory, s, workers, columns ? NAPIER_COLUMNS_SCRATCH : NAPIER_ROWS_SCRATCH, 0, 0));
    napier_parallel(context, rows, chunk, columns ? short_columns_task : short_rows_task, s);
    return napier_stopped(context);
}

/* ---- Long rows, whole rows to a thread ----------------------------------------------------------------------------- */

/* Stores the factor of a gradient in the row's final. */
static napier_final finish_row(const split *s, const napier_sum *sum, int64_t row) {
    napier_final final = s->kernels->finish(sum);
    if (s->factor.data) {
        float g;
        const char *at =
            (const char *)s->factor.data + row * s->factor.stride * (s->factor.dtype == NAPIER_F32 ? 4 : 2);
        s->kernels->pack(at, s->factor.dtype, 1, 1, 1.0f, &g);
        final.factor = g / s->job->temperature;
    }
    return final;
}

static void finish_to(const split *s, const napier_sum *sum, int64_t row, napier_final *final) {
    *final = finish_row(s, sum, row);
    if (s->job->op == NAPIER_OP_LOGSUMEXP) {
        s->kernels->store_lse(s->job, row, final->lse);
    }
}

/* One row, its passes one after the other. */
static void long_row(const split *s, int64_t row, int worker) {
    const napier_softmax_kernels *k = s->kernels;
    const int64_t cols = s->job->x.cols;
    float *scratch = scratch_of(s, worker);
    napier_sum sum;
    napier_sum_init(&sum);
    if (s->algorithm == NAPIER_ALGORITHM_SAFE) {
        napier_sum_raise(&sum, k->max_of_range(s->job, row, 0, cols, scratch));
    }
    k->sum_range(s->job, row, 0, cols, &sum, scratch);
    napier_final final;
    finish_to(s, &sum, row, &final);
    if (s->job->op != NAPIER_OP_LOGSUMEXP) {
        k->write_range(s->job, row, 0, cols, &final, scratch);
    }
}

static void long_rows_task(void *argument, int worker, int64_t begin, int64_t end) {
    const split *s = argument;
    if (s->together) {
        float *scratch = scratch_of(s, worker);
        float *terms = s->job->op == NAPIER_OP_SOFTMAX ? scratch + NAPIER_ROWS_SCRATCH : NULL;
        s->kernels->long_rows(s->job, begin, end, terms, s->kept + worker * kept_slots(s->job->x.cols), scratch);
        return;
    }
    for (int64_t row = begin; row < end; row++) {
        long_row(s, row, worker);
    }
}

static void strips_task(void *argument, int worker, int64_t begin, int64_t end) {
    const split *s = argument;
    const napier_softmax_job *job = s->job;
    float *scratch = scratch_of(s, worker);
    napier_sum *sums = s->sums + (int64_t)worker * NAPIER_STRIP;
    napier_final finals[NAPIER_STRIP];
    for (int64_t row = begin; row < end; row += NAPIER_STRIP) {
        const int rows = (int)napier_least(end - row, NAPIER_STRIP);
        for (int r = 0; r < rows; r++) {
            napier_sum_init(&sums[r]);
        }
        s->kernels->sum_strip(job, row, rows, 0, job->x.cols, sums, scratch);
        for (int r = 0; r < rows; r++) {
            finish_to(s, &sums[r], row + r, &finals[r]);
        }
        if (job->op != NAPIER_OP_LOGSUMEXP) {
            s->kernels->write_strip(job, row, rows, 0, job->x.cols, finals, scratch);
        }
    }
}

/* May a row be written while the next one is summed? For softmax this keeps a row's terms,
 * which saves an exp if they stay in a cache. */
static bool can_go_together(const split *s) {
    const bool rows = s->algorithm != NAPIER_ALGORITHM_SAFE && !s->factor.data;
    return rows && (s->job->op != NAPIER_OP_SOFTMAX || s->job->x.cols <= NAPIER_KEEP_COLS);
}

static napier_status run_by_rows(napier_context *context, split *s) {
    const bool columns = is_columns(s->job);
    const int64_t rows = s->job->x.rows, tiles = tiles_of(s->job->x.cols);
    const int64_t chunk = columns ? NAPIER_STRIP : awake_chunk(context, rows, s->job->x.cols, 1);
    const int workers = napier_workers(context, rows, chunk);
    int64_t floats = NAPIER_COLUMNS_SCRATCH;
    if (!columns) {
        s->together = can_go_together(s);
        floats = NAPIER_ROWS_SCRATCH;
        if (s->together && s->job->op == NAPIER_OP_SOFTMAX) {
            /* the last tile of the terms is only fetched: it must not belong to the next worker */
            floats += (napier_terms_in_result(s->job) ? 2 : tiles + 2) * NAPIER_TILE;
        }
    }
    const int64_t kept = s->together ? workers * kept_slots(s->job->x.cols) : 0;
    NAPIER_MEMORY(memory, context);
    NAPIER_TRY(take(&memory, s, workers, floats, columns ? NAPIER_STRIP : 0, kept));
    napier_parallel(context, rows, chunk, columns ? strips_task : long_rows_task, s);
    return napier_stopped(context);
}

/* ---- Long rows, each split over all threads ------------------------------------------------------------------------ */

static bool keeps_in_result(const split *s) {
    return napier_terms_in_result(s->job) && s->algorithm != NAPIER_ALGORITHM_SAFE && !s->factor.data;
}

static float *terms_of(const split *s) { return (float *)s->job->y.data + s->row * s->job->y.row_stride; }

static void sum_tiles_task(void *argument, int worker, int64_t begin, int64_t end) {
    const split *s = argument;
    const int64_t first = begin * NAPIER_TILE, last = napier_least(end * NAPIER_TILE, s->job->x.cols);
    napier_sum *sums = s->sums + (int64_t)worker * s->rows;
    float *scratch = scratch_of(s, worker);
    if (s->rows > 1) {
        s->kernels->sum_strip(s->job, s->row, s->rows, first, last, sums, scratch);
    } else if (s->keep) {
        s->kernels->keep_range(s->job, s->row, first, last, sums, terms_of(s), s->kept, scratch);
    } else {
        s->kernels->sum_range(s->job, s->row, first, last, sums, scratch);
    }
}

static void write_tiles_task(void *argument, int worker, int64_t begin, int64_t end) {
    const split *s = argument;
    const int64_t first = begin * NAPIER_TILE, last = napier_least(end * NAPIER_TILE, s->job->x.cols);
    float *scratch = scratch_of(s, worker);
    if (s->rows > 1) {
        s->kernels->write_strip(s->job, s->row, s->rows, first, last, s->finals, scratch);
    } else if (s->keep) {
        s->kernels->write_kept(s->job, s->row, first, last, s->finals, terms_of(s), s->kept, scratch);
    } else {
        s->kernels->write_range(s->job, s->row, first, last, s->finals, scratch);
    }
}

/* Sums the rows in progress with all workers, and merges the sums. */
static void sum_in_flight(napier_context *context, split *s, int workers, napier_task *task, int64_t items,
                          int64_t chunk) {
    for (int i = 0; i < workers * s->rows; i++) {
        napier_sum_init(&s->sums[i]);
    }
    napier_parallel(context, items, chunk, task, s);
    for (int w = 1; w < workers; w++) {
        for (int r = 0; r < s->rows; r++) {
            s->kernels->merge(&s->sums[r], &s->sums[w * s->rows + r]);
        }
    }
}

static napier_status run_by_tiles(napier_context *context, split *s) {
    const napier_softmax_job *job = s->job;
    const bool columns = is_columns(job);
    const int64_t tiles = tiles_of(job->x.cols);
    const int64_t chunk = columns ? 1 : tile_chunk(context, tiles);
    const int workers = napier_workers(context, tiles, chunk);
    const int step = columns ? NAPIER_STRIP : 1;
    napier_final finals[NAPIER_STRIP];
    s->keep = !columns && keeps_in_result(s);
    NAPIER_MEMORY(memory, context);
    NAPIER_TRY(
        take(&memory, s, workers, columns ? NAPIER_COLUMNS_SCRATCH : NAPIER_ROWS_SCRATCH, step, s->keep ? tiles : 0));
    s->finals = finals;
    for (s->row = 0; s->row < job->x.rows; s->row += step) {
        s->rows = (int)napier_least(job->x.rows - s->row, step);
        sum_in_flight(context, s, workers, sum_tiles_task, tiles, chunk);
        for (int r = 0; r < s->rows; r++) {
            finish_to(s, &s->sums[r], s->row + r, &finals[r]);
        }
        if (job->op != NAPIER_OP_LOGSUMEXP) {
            napier_parallel(context, tiles, chunk, write_tiles_task, s);
        }
    }
    return napier_stopped(context);
}

/* ---- Entry --------------------------------------------------------------------------------------------------------- */

static split split_of(const napier_context *context, const napier_softmax_job *job, napier_algorithm algorithm) {
    return (split){.job = job, .kernels = napier_ops_kernels_of(context->isa)->softmax, .algorithm = algorithm};
}

static napier_status run_as_they_lie(napier_context *context, split *s) {
    const int64_t pieces = is_columns(s->job) ? (s->job->x.rows + NAPIER_STRIP - 1) / NAPIER_STRIP : s->job->x.rows;
    const int64_t tiles = tiles_of(s->job->x.cols);
    const bool divides = is_columns(s->job) || tile_chunk(context, tiles) < tiles; /* a row, over threads */
    const bool enough_rows = pieces >= context->threads || !divides;
    const bool alone = s->job->x.rows == 1 && keeps_in_result(s); /* nothing to sum while it is written */
    const bool endless = s->job->x.cols > NAPIER_ROW_MOST;
    const bool by_rows = s->algorithm != NAPIER_ALGORITHM_PARALLEL && enough_rows && !alone && !endless;
    return by_rows ? run_by_rows(context, s) : run_by_tiles(context, s);
}

/* ---- A few long rows that are neighbours in memory: transposed ------------------------------------------------------- */

typedef struct few_rows {
    const napier_softmax_job *job;
    const napier_softmax_kernels *kernels;
    float *z; /* [rows][ld] */
    int64_t ld;
    bool back; /* the results are written to y; otherwise x is packed */
} few_rows;

static void few_task(void *argument, int worker, int64_t begin, int64_t end) {
    (void)worker;
    const few_rows *f = argument;
    if (f->back) {
        f->kernels->unpack_few(f->job, begin, end, f->z, f->ld);
    } else {
        f->kernels->pack_few(f->job, begin, end, f->z, f->ld);
    }
}

static bool are_few(const split *s) {
    const napier_const_matrix *x = &s->job->x;
    const bool few = x->row_stride == 1 && x->col_stride != 1 && x->rows > 1 && x->rows < NAPIER_FEW_ROWS;
    return few && x->cols <= NAPIER_FEW_MOST / x->rows && !s->factor.data;
}

static napier_status run_few(napier_context *context, const split *s) {
    const napier_softmax_job *job = s->job;
    const int64_t rows = job->x.rows, cols = job->x.cols;
    const int64_t chunk = light_chunk(context, cols, rows, NAPIER_TILE);
    const bool back = job->op != NAPIER_OP_LOGSUMEXP && job->y.row_stride == 1;
    /* ld: not a multiple of a large power of two, because rows would then share cache sets */
    few_rows few = {job, s->kernels, NULL, (cols + 31) / 16 * 16, false};
    NAPIER_MEMORY(memory, context);
    few.z = napier_take(&memory, rows * few.ld, sizeof(float));
    NAPIER_TRY(napier_taken(&memory, "scratch: no memory for %lld transposed rows", (long long)rows));
    napier_parallel(context, cols, chunk, few_task, &few);
    napier_softmax_job along = *job;
    along.x = (napier_const_matrix){few.z, rows, cols, few.ld, 1, NAPIER_F32};
    along.temperature = 1.0f;
    if (back) {
        along.y = (napier_matrix){few.z, rows, cols, few.ld, 1, NAPIER_F32};
        along.stream = false;
    }
    split t = *s;
    t.job = &along;
    NAPIER_TRY(run_as_they_lie(context, &t));
    if (back) {
        few.back = true;
        napier_parallel(context, cols, chunk, few_task, &few);
    }
    return napier_stopped(context);
}

static napier_status run_long(napier_context *context, split *s) {
    return are_few(s) ? run_few(context, s) : run_as_they_lie(context, s);
}

napier_status napier_softmax_split(napier_context *context, const napier_softmax_job *job, napier_algorithm algorithm) {
    NAPIER_DEFAULT_FENV; /* workers set their own; rows are also finished on this thread */
    NAPIER_MAY_STOP(context);
    split s = split_of(context, job, algorithm);
    if (job->x.cols > 0) {
        return job->x.cols <= NAPIER_TILE ? run_short(context, &s) : run_long(context, &s);
    }
    for (int64_t row = 0; row < job->x.rows; row++) {
        s.kernels->store_lse(job, row, -INFINITY);
    }
    return NAPIER_OK;
}

napier_status napier_scaled_softmax(napier_context *context, const napier_softmax_job *job,
                                    napier_const_vector factor) {
    NAPIER_DEFAULT_FENV;
    NAPIER_MAY_STOP(context);
    split s = split_of(context, job, NAPIER_ALGORITHM_AUTO);
    s.factor = factor;
    return run_long(context, &s);
}

/* ---- The whole array as one row ------------------------------------------------------------------------------------ */

/* Elements [first, first + n) of a view in row-major order, as contiguous z. */
static void pack_elements(const split *s, int64_t first, int n, float *z) {
    const napier_const_matrix x = s->job->x;
    const int64_t size = x.dtype == NAPIER_F32 ? 4 : 2;
    int64_t row = first / x.cols, col = first % x.cols;
    for (int done = 0; done < n; row++, col = 0) {
        const int64_t part = napier_least(x.cols - col, n - done);
        const char *at = (const char *)x.data + (row * x.row_stride + col * x.col_stride) * size;
        s->kernels->pack(at, x.dtype, x.col_stride, part, s->job->temperature, z + done);
        done += (int)part;
    }
}

static void sum_elements_task(void *argument, int worker, int64_t begin, int64_t end) {
    const split *s = argument;
    const int64_t elements = s->job->x.rows * s->job->x.cols;
    float *z = scratch_of(s, worker);
    for (int64_t i = begin * NAPIER_TILE; i < end * NAPIER_TILE && i < elements; i += NAPIER_TILE) {
        const int n = (int)napier_least(elements - i, NAPIER_TILE);
        napier_tile_sum t;
        pack_elements(s, i, n, z);
        s->kernels->tile_sum(z, n, &t);
        napier_sum_add_tile(s->sums + worker, &t);
    }
}

static napier_status sum_all(napier_context *context, const napier_softmax_job *job, napier_sum *sum) {
    split s = split_of(context, job, NAPIER_ALGORITHM_AUTO);
    const int64_t tiles = tiles_of(job->x.rows * job->x.cols);
    const int64_t chunk = tile_chunk(context, tiles);
    const int workers = napier_workers(context, tiles, chunk);
    NAPIER_MEMORY(memory, context);
    NAPIER_TRY(take(&memory, &s, workers, NAPIER_ROWS_SCRATCH, 1, 0));
    s.rows = 1;
    sum_in_flight(context, &s, workers, sum_elements_task, tiles, chunk);
    *sum = s.sums[0];
    return napier_stopped(context);
}

static void write_rows_task(void *argument, int worker, int64_t begin, int64_t end) {
    const split *s = argument;
    for (int64_t row = begin; row < end; row++) {
        s->kernels->write_range(s->job, row, 0, s->job->x.cols, s->finals, scratch_of(s, worker));
    }
}

napier_status napier_logsumexp_of_all(napier_context *context, const napier_softmax_job *job) {
    NAPIER_DEFAULT_FENV;
    NAPIER_MAY_STOP(context);
    napier_sum sum;
    NAPIER_TRY(sum_all(context, job, &sum));
    const napier_softmax_kernels *kernels = napier_ops_kernels_of(context->isa)->softmax;
    kernels->store_lse(job, 0, kernels->finish(&sum).lse);
    return NAPIER_OK;
}

napier_status napier_scaled_softmax_all(napier_context *context, const napier_softmax_job *job,
                                        napier_const_vector factor) {
    NAPIER_DEFAULT_FENV;
    NAPIER_MAY_STOP(context);
    napier_sum sum;
    NAPIER_TRY(sum_all(context, job, &sum));
    split s = split_of(context, job, NAPIER_ALGORITHM_AUTO);
    s.factor = factor;
    const napier_final final = finish_row(&s, &sum, 0);
    s.finals = &final;
    const int64_t chunk = light_chunk(context, job->x.rows, job->x.cols, 1);
    NAPIER_MEMORY(memory, context);
    NAPIER_TRY(take(&memory, &s, napier_workers(context, job->x.rows, chunk), NAPIER_ROWS_SCRATCH, 0, 0));
    napier_parallel(context, job->x.rows, chunk, write_rows_task, &s);
    return napier_stopped(context);
}
