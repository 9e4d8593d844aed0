/* ops/linear/matmul.c - the matrix product: checks the arguments and chooses the sides. */
#include <inttypes.h>
#include <napier/linear.h>

#include "core/base/view.h"
#include "ops/linear/amx.h"
#include "ops/linear/product.h"

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

static napier_status check_operand(napier_context *context, const char *name, napier_const_matrix m) {
    const napier_status status = napier_check_matrix(context, name, m);
    if (!status && m.dtype == NAPIER_F64) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "%s: dtype f64 is not f32, f16 or bf16", name);
    }
    return status;
}

/* The product may not be computed in place. napier_check_alias accepts two identical views; they begin at the same
 * element, so this rejects them. */
static napier_status check_apart(napier_context *context, napier_matrix product, const char *name,
                                 napier_const_matrix m) {
    const napier_status status = napier_check_alias(context, "product", product, name, m);
    if (!status && product.data == m.data && product.rows * product.cols > 0 && m.rows * m.cols > 0) {
        return napier_fail(context, NAPIER_INVALID_ARGUMENT, "product: data %p is that of %s", product.data, name);
    }
    return status;
}

napier_status napier_matmul_check(napier_context *context, napier_const_matrix a, napier_const_matrix b,
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

/* ---- The product ------------------------------------------------------------------------------------------------- */

/* As rows, matrices that lie along k are cheap; as lanes, matrices that lie across it.
 * So weights stored as [n, k] become rows. */
napier_status napier_matmul(napier_context *context, napier_const_matrix a, napier_const_matrix b,
                            napier_matrix product) {
    const napier_status status = napier_matmul_check(context, a, b, product);
    if (status || product.rows == 0 || product.cols == 0) {
        return status;
    }
    if (a.cols > NAPIER_K_MOST) {
        return napier_fail(context, NAPIER_OUT_OF_MEMORY, "a: cols %" PRId64 " are too many to pack", a.cols);
    }
    if (a.dtype == NAPIER_BF16 && b.dtype == NAPIER_BF16) {
        napier_matrix_engine_decide(context);
    }
    const napier_const_matrix columns = napier_const_transposed(b);
    const bool across = b.row_stride != 1 && b.col_stride == 1 && b.rows > 1;
    napier_product_plan plan = across ? napier_product_plan_of(context, columns, a, product, false)
                                      : napier_product_plan_of(context, a, columns, napier_transposed(product), false);
    const size_t floats = napier_product_floats(context, &plan);
    float *memory = napier_alloc(&context->allocator, floats, sizeof(float));
    if (!memory) {
        return napier_fail(context, NAPIER_OUT_OF_MEMORY,
                           "product: no memory for %" PRId64 " packed columns of k %" PRId64, plan.lanes, a.cols);
    }
    napier_product_run(context, &plan, memory);
    napier_free(&context->allocator, memory);
    return NAPIER_OK;
}
