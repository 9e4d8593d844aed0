/* ops/softmax/softmax_kernels.inc.h - the table of every kernel of softmax, for the instruction set
 * that the including file has chosen. */
#if defined(NAPIER_TABLE)
#include "ops/softmax/f64/tile_f64.inc.h"
#include "ops/softmax/gradient.inc.h"

const napier_softmax_kernels NAPIER_TABLE(napier_softmax_kernels) = {
    .short_rows = NAPIER_TABLE(napier_softmax_short_rows),
    .short_columns = short_columns,
    .long_rows = long_rows,
    .keep_range = keep_range,
    .write_kept = write_kept,
    .max_of_range = max_of_range,
    .sum_range = sum_range,
    .write_range = write_range,
    .sum_strip = sum_strip,
    .write_strip = write_strip,
    .pack_few = pack_few,
    .unpack_few = unpack_few,
    .merge = napier_sum_merge,
    .finish = napier_sum_finish,
    .store_lse = store_lse,
    .tile_sum = tile_sum_of,
    .pack = pack_row,
    .write = write_row,
    .weighted_look = weighted_look_at,
    .weighted_rest = weighted_rest,
    .weighted_ties = weighted_ties,
    .f64_tile = f64_tile,
    .f64_apply = f64_apply,
    .f64_weighted_look = f64_weighted_look,
    .f64_weighted_rest = f64_weighted_rest,
    .gradient_sums = gradient_sums,
    .gradient = softmax_gradient};
#endif
