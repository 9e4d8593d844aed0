/* model/project.c - see project.h. Weights lie along k: they are the side that is passed by; activations are packed. */
#include "model/project.h"

#include "linear/product.h"

static napier_product_plan plan_of(const napier_context *context, napier_const_matrix x, napier_const_matrix weights,
                                   napier_matrix out) {
    return napier_product_plan_of(context, x, weights, napier_transposed(out), false);
}

size_t napier_project_floats(const napier_context *context, napier_const_matrix x, napier_const_matrix weights) {
    const napier_product_plan plan = plan_of(context, x, weights, napier_rows_f32(NULL, x.rows, weights.rows));
    return napier_product_floats(context, &plan);
}

void napier_project(const napier_context *context, napier_const_matrix x, napier_const_matrix weights,
                    napier_matrix out, float *memory) {
    if (out.rows > 0) {
        napier_product_plan plan = plan_of(context, x, weights, out);
        napier_product_run(context, &plan, memory);
    }
}
