/* ops/losses/losses_kernels.inc.h - the table of every kernel of losses, for the instruction set
 * that the including file has chosen. */
#if defined(NAPIER_TABLE)
#include "ops/losses/grpo.inc.h"
#include "ops/losses/kl.inc.h"
#include "ops/losses/rubric.inc.h"

const napier_kl_kernels NAPIER_TABLE(napier_kl_kernels) = {.tile = napier_kl_tile,
                                                           .tile_gradient = napier_kl_tile_gradient,
                                                           .full_row = napier_kl_full_row,
                                                           .full_row_gradient = napier_kl_full_row_gradient};

const napier_rubric_kernels NAPIER_TABLE(napier_rubric_kernels) = {.tile = napier_rubric_tile,
                                                                   .tile_gradient = napier_rubric_tile_gradient};

const napier_grpo_kernels NAPIER_TABLE(napier_grpo_kernels) = {
    .scan = napier_grpo_scan_tile, .tile = napier_grpo_tile, .entropy_gradient = napier_grpo_entropy_gradient};
#endif
