/* ops/layers/layer_kernels.inc.h - the table of every kernel of layers, for the instruction set
 * that the including file has chosen. */
#if defined(NAPIER_TABLE)
#include "ops/layers/layers.inc.h"

const napier_layer_kernels NAPIER_TABLE(napier_layer_kernels) = {.add = napier_add_row,
                                                                 .norm = napier_norm_row,
                                                                 .norm_factor = napier_norm_factor,
                                                                 .norm_gradient = napier_norm_gradient,
                                                                 .add_weight_gradient = napier_add_weight_gradient,
                                                                 .rotate = napier_rotate_row,
                                                                 .rotate_pairs = napier_rotate_pairs,
                                                                 .gate = napier_gate_row,
                                                                 .gate_gradient = napier_gate_gradient};
#endif
