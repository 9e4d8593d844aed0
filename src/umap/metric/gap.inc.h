/* umap/metric/gap.inc.h - what a column adds to the distance of two rows (distance_kernels.h), lane by lane. The
 * CPU's kernels and CUDA share it. */
#include "core/math/lanes_math.h"
#include "umap/metric/distance_kernels.h"

NAPIER_KERNEL vf vf_size(const vf v) { return vf_from_bits(vi_and(vf_bits(v), vi_set(0x7fffffff))); }

/* Adds 16 columns of two rows. */
NAPIER_KERNEL void napier_gap_step(const napier_gap gap, const vf x, const vf y, vf *sum, vf *other) {
    const vf size = vf_size(vf_sub(x, y));
    switch (gap) {
    case NAPIER_GAP_LARGEST: *sum = vf_max(size, *sum); break;
    case NAPIER_GAP_CANBERRA: {
        const vf whole = vf_add(vf_size(x), vf_size(y));
        *sum = vf_add(*sum, vf_div(size, vf_select(vf_gt(whole, vf_zero()), whole, vf_set(1.0f))));
        break;
    }
    case NAPIER_GAP_RATIO:
        *sum = vf_add(*sum, size);
        *other = vf_add(*other, vf_size(vf_add(x, y)));
        break;
    case NAPIER_GAP_UNEQUAL: *sum = vf_add(*sum, vf_select(vf_eq(x, y), vf_zero(), vf_set(1.0f))); break;
    case NAPIER_GAP_COUNTS:
        *sum = vf_fma(x, y, *sum);
        *other = vf_add(*other, y);
        break;
    default: *sum = vf_add(*sum, size); break;
    }
}
