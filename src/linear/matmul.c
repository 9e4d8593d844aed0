/* linear/matmul.c - the matrix product: check the arguments, choose the sides, share out blocks of the result. How work is
 * split never changes a bit: an element of the product has a chain of its own. */
#include <inttypes.h>
#include <napier/linear.h>

#include "base/view.h"
#include "linear/product.h"

/* Results larger than this are stored past the caches. */
enum { NAPIER_PRODUCT_STREAM_BYTES = 12 << 20 };

/* ---- Arguments ------------------------------------------------------------------------------------------------------- */

static napier_status check_operand(napier_context *context, const char *name, napier_const_matrix m) {
    const napier_status status = napier_check_matrix(context, name, m);
    if (!status && m.dtype == NAPIER_F64) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "%s: dtype f64 is not f32, f16 or bf16", name);
    }
    return status;
}

/* Views with elements that begin at the same place share that one, so being the same view is no way out. */
static napier_status check_apart(napier_context *context, napier_matrix product, const char *name,
                                 napier_const_matrix m) {
    const napier_status status = napier_check_alias(context, "product", product, name, m);
    if (!status && product.data == m.data && product.rows * product.cols > 0 && m.rows * m.cols > 0) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "product: data %p is that of %s", product.data, name);
    }
    return status;
}

static napier_status check_arguments(napier_context *context, napier_const_matrix a, napier_const_matrix b,
                                     napier_matrix product) {
    napier_status status = napier_begin(context);
    if (!status) {
        status = check_operand(context, "a", a);
    }
    if (!status) {
        status = check_operand(context, "b", b);
    }
    if (!status) {
        status = napier_check_matrix_out(context, "product", product);
    }
    if (!status) {
        status = check_operand(context, "product", napier_read_only(product));
    }
    if (!status && b.rows != a.cols) {
        status = napier_fail(context, NAPIER_INVALID_ARGUMENT, "b: rows %" PRId64 " is not the cols %" PRId64 " of a",
                             b.rows, a.cols);
    }
    if (!status && (product.rows != a.rows || product.cols != b.cols)) {
        status = napier_fail(context, NAPIER_INVALID_ARGUMENT,
                             "product: shape %" PRId64 " x %" PRId64 " is not %" PRId64 " x %" PRId64, product.rows,
                             product.cols, a.rows, b.cols);
    }
    if (!status) {
        status = check_apart(context, product, "a", a);
    }
    return status ? status : check_apart(context, product, "b", b);
}

/* ---- The product ----------------------------------------------------------------------------------------------------- */

typedef struct product_task {
    napier_product_sides sides;
    napier_matrix out; /* [rows, lanes] */
    int64_t row_block; /* rows of a unit of work, a multiple of NAPIER_ROW_GROUP */
    bool stream;
    float *scratch;
} product_task;

static void multiply_block(const product_task *t, int64_t block, int64_t row, float *scratch) {
    const napier_product_sides *s = &t->sides;
    const int64_t rows = s->rows.rows - row < t->row_block ? s->rows.rows - row : t->row_block;
    const float *c = napier_product_strip(s, block, row, rows, scratch);
    s->kernels->unpack(c, NAPIER_LANE_BLOCK, rows, napier_block_lanes(s, block), t->out, row,
                       s->first_lane + block * NAPIER_LANE_BLOCK, t->stream);
}

/* Units follow one another over the lanes, so that rows are still in a cache when the next block wants them. */
static void multiply_units(void *argument, int worker, int64_t begin, int64_t end) {
    const product_task *t = argument;
    const int64_t blocks = napier_lane_blocks(&t->sides);
    for (int64_t unit = begin; unit < end; unit++) {
        multiply_block(t, unit % blocks, unit / blocks * t->row_block,
                       t->scratch + (size_t)worker * napier_product_scratch(t->row_block));
    }
}

static napier_status multiply(napier_context *context, product_task *t) {
    napier_product_sides *s = &t->sides;
    const int64_t lanes = napier_lanes_at_a_time(s);
    const size_t panels = s->k > 0 ? napier_panel_floats(s, lanes) : 0;
    const size_t scratch = (size_t)context->threads * napier_product_scratch(t->row_block);
    float *memory = NULL;
    if (panels > 0 || s->k == 0) {
        memory = napier_alloc(&context->allocator, scratch + panels, sizeof(float));
    }
    if (!memory) {
        return napier_fail(context, NAPIER_OUT_OF_MEMORY,
                           "product: no memory for %" PRId64 " packed columns of k %" PRId64, lanes, s->k);
    }
    t->scratch = memory;
    s->panels = memory + scratch;
    for (int64_t lane = 0; lane < s->lanes.rows; lane += lanes) {
        const int64_t left = s->lanes.rows - lane;
        napier_pack_lanes(context, s, lane, left < lanes ? left : lanes);
        const int64_t rows = (s->rows.rows + t->row_block - 1) / t->row_block;
        napier_parallel(context, rows * napier_lane_blocks(s), 1, multiply_units, t);
    }
    napier_free(&context->allocator, memory);
    return NAPIER_OK;
}

/* Enough units for every thread to have a fair share, of many rows each: the next ones are fetched while these go by. */
static int64_t row_block_of(const napier_context *context, const napier_product_sides *s) {
    enum { UNITS = 8, GROUPS = 10 };
    const int64_t blocks = (napier_lanes_at_a_time(s) + NAPIER_LANE_BLOCK - 1) / NAPIER_LANE_BLOCK;
    const int64_t groups = (s->rows.rows + NAPIER_ROW_GROUP - 1) / NAPIER_ROW_GROUP;
    const int64_t fair = groups * blocks / (UNITS * context->threads) + 1;
    return (fair < GROUPS ? fair : GROUPS) * NAPIER_ROW_GROUP;
}

/* Rows that lie along k are cheap to pack, lanes that lie across it: weights stored as [n, k] are rows. */
napier_status napier_matmul(napier_context *context, napier_const_matrix a, napier_const_matrix b,
                            napier_matrix product) {
    const napier_status status = check_arguments(context, a, b, product);
    if (status || product.rows == 0 || product.cols == 0) {
        return status;
    }
    const napier_const_matrix columns = napier_const_transposed(b);
    const bool across = b.row_stride != 1 && b.col_stride == 1 && b.rows > 1;
    const int64_t bytes = (int64_t)napier_dtype_size(product.dtype);
    product_task task = {.stream = product.rows * product.cols > NAPIER_PRODUCT_STREAM_BYTES / bytes};
    task.sides =
        across ? napier_product_sides_of(context->isa, columns, a) : napier_product_sides_of(context->isa, a, columns);
    task.row_block = row_block_of(context, &task.sides);
    task.out = across ? product : napier_transposed(product);
    return multiply(context, &task);
}
