/* ops/linear/linear_kernels.inc.h - the table of every kernel of linear, for the instruction set
 * that the including file has chosen. */
#if defined(NAPIER_TABLE)
#include "ops/linear/matmul.inc.h"

const napier_linear_kernels NAPIER_TABLE(napier_linear_kernels) = {.squared_distance = napier_squared_distance,
                                                                   .dot = napier_dot,
                                                                   .product = napier_product,
                                                                   .near_pairs = napier_near_pairs,
                                                                   .box_gap = napier_box_gap,
                                                                   .matmul = NAPIER_PRODUCT_KERNELS};
#endif
