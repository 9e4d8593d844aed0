/* ops/linear/matmul.c - the matrix product: checks the arguments and chooses the sides. */
#include <inttypes.h>
#include <napier/linear.h>

#include "core/base/scope.h"
#include "core/base/stop.h"
#include "core/base/view.h"
#include "ops/linear/engine.h"
#include "ops/linear/product.h"
#include "ops/linear/strips.h"

napier_status napier_matmul_check(napier_context *context, napier_const_matrix a, napier_const_matrix b,
                                  napier_matrix product) {
    const napier_argument all[] = {
        NAPIER_ARGUMENT("a", a, NAPIER_IS_NARROW, a.rows, a.cols, NULL),
        NAPIER_ARGUMENT("b", b, NAPIER_IS_NARROW, b.rows, b.cols, NULL),
        NAPIER_ARGUMENT("product", napier_read_only(product), NAPIER_IS_NARROW | NAPIER_IS_OUT, a.rows, b.cols, NULL)};
    NAPIER_TRY(napier_begin(context));
    NAPIER_REFUSE_IF(context, b.rows != a.cols, "b: rows %" PRId64 " is not the cols %" PRId64 " of a", b.rows, a.cols);
    return napier_check_arguments(context, all, sizeof all / sizeof *all);
}

/* As rows, matrices that lie along k are cheap; as lanes, matrices that lie across it. So weights stored as [n, k] become
 * rows. Lanes can be split, rows cannot. */
static bool b_is_lanes(napier_const_matrix a, napier_const_matrix b, bool split) {
    const bool across = b.row_stride != 1 && b.col_stride == 1 && b.rows > 1;
    return split && a.dtype != b.dtype ? b.dtype != NAPIER_BF16 : across;
}

static napier_status multiply(napier_context *context, napier_const_matrix a, napier_const_matrix b,
                              napier_matrix product, bool split) {
    if (product.rows == 0 || product.cols == 0) {
        return NAPIER_OK;
    }
    if (a.cols > NAPIER_K_MOST) {
        return napier_fail(context, NAPIER_OUT_OF_MEMORY, "a: cols %" PRId64 " are too many to pack", a.cols);
    }
    if (split || (a.dtype == NAPIER_BF16 && b.dtype == NAPIER_BF16)) {
        napier_matrix_engine_decide(context);
    }
    const napier_const_matrix columns = napier_const_transposed(b);
    napier_product_plan plan =
        b_is_lanes(a, b, split) ? napier_product_plan_of(context, columns, a, product, split, false)
                                : napier_product_plan_of(context, a, columns, napier_transposed(product), split, false);
    napier_strips strips = napier_strips_of(context, a, columns, product);
    const bool in_strips = strips.width > 0;
    const size_t floats = in_strips ? napier_strips_floats(&strips) : napier_product_floats(context, &plan);
    NAPIER_MEMORY(memory, context);
    float *const packed =
        napier_take(&memory, sizeof(float), floats); /* 0 means too many: an element of no size fails */
    NAPIER_TRY(
        napier_taken(&memory, "product: no memory for %" PRId64 " packed columns of k %" PRId64, plan.lanes, a.cols));
    NAPIER_MAY_STOP(context);
    if (in_strips) {
        napier_strips_run(&strips, packed);
    } else {
        napier_product_run(context, &plan, packed);
    }
    return napier_stopped(context);
}

napier_status napier_matmul(napier_context *context, napier_const_matrix a, napier_const_matrix b,
                            napier_matrix product) {
    NAPIER_TRY(napier_matmul_check(context, a, b, product));
    return multiply(context, a, b, product, false);
}

napier_status napier_matmul_split(napier_context *context, napier_const_matrix a, napier_const_matrix b,
                                  napier_matrix product) {
    NAPIER_TRY(napier_matmul_check(context, a, b, product));
    NAPIER_REFUSE_IF(context, a.dtype != NAPIER_BF16 && b.dtype != NAPIER_BF16,
                     "b: dtype %s by %s, but one operand of a split product is bf16; napier_matmul takes any",
                     napier_dtype_name(b.dtype), napier_dtype_name(a.dtype));
    return multiply(context, a, b, product, true);
}
