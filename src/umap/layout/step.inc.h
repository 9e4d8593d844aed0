/* umap/layout/step.inc.h - one step of an optimizer, lane by lane. The CPU's kernels (layout.inc.h) and CUDA share
 * it. */
#include "core/math/lanes_math.h"

NAPIER_KERNEL vf napier_sgd_step(vf y, vf g, vf rate) { return vf_add(y, vf_mul(rate, g)); }

NAPIER_KERNEL vf napier_momentum_step(vf y, vf g, vf *velocity, float beta, vf rate) {
    *velocity = vf_add(vf_mul(vf_set(beta), *velocity), vf_mul(vf_set(1.0f - beta), g));
    return vf_add(y, vf_mul(rate, *velocity));
}

/* Constants of Adam's step. correction1 and correction2 are 1 - beta^t. */
typedef struct napier_adam_constants {
    float beta1, beta2, eps, correction1, correction2, rate;
} napier_adam_constants;

NAPIER_KERNEL vf napier_adam_step(vf y, vf g, vf *mean, vf *square, const napier_adam_constants *c) {
    *mean = vf_add(vf_mul(vf_set(c->beta1), *mean), vf_mul(vf_set(1.0f - c->beta1), g));
    *square = vf_add(vf_mul(vf_set(c->beta2), *square), vf_mul(vf_set(1.0f - c->beta2), vf_mul(g, g)));
    const vf root = vf_add(vf_sqrt(vf_div(*square, vf_set(c->correction2))), vf_set(c->eps));
    return vf_add(y, vf_div(vf_mul(vf_set(c->rate), vf_div(*mean, vf_set(c->correction1))), root));
}
