/* umap/options/curve.c - a and b of the curve 1 / (1 + a d^2b) from min_dist and spread.
 *
 * The target is 1 up to min_dist and exp(-(d - min_dist) / spread) beyond. The fit is least squares on 300 points of
 * [0, 3 spread]. Distances are in units of the spread, so the fit depends only on min_dist / spread and never handles
 * large or small numbers; a then follows from a d^2b = a spread^2b (d / spread)^2b.
 * The method is Levenberg and Marquardt's on (log a, b), in double, with our own exp and log: the same bits
 * everywhere. */
#include <float.h>
#include <math.h>

#include <napier/umap.h>

#include "core/base/context.h"
#include "core/base/scope.h"
#include "core/math/f64.h"

enum { POINTS = 300, MOST_STEPS = 200 };

typedef struct curve {
    double log_a, b;
} curve;

static double grid_point(int i) { return 3.0 * (double)i / (double)(POINTS - 1); }

static double wanted(double d, double min_dist) { return d <= min_dist ? 1.0 : napier_f64_exp(min_dist - d); }

/* The sum of squared errors, and the terms of a step: J'J (three numbers) and J'r. */
typedef struct normal_equations {
    double error, aa, ab, bb, ar, br;
} normal_equations;

static normal_equations equations_at(curve c, double min_dist) {
    normal_equations e = {0};
    for (int i = 0; i < POINTS; i++) {
        const double d = grid_point(i);
        double q = 1.0, by_log_a = 0.0, by_b = 0.0;
        if (i > 0) {
            const double log_d = napier_f64_log(d);
            const double power = napier_f64_exp(c.log_a + 2.0 * c.b * log_d); /* a d^2b */
            q = 1.0 / (1.0 + power);
            by_log_a = -power * q * q;
            by_b = 2.0 * log_d * by_log_a;
        }
        const double missing = wanted(d, min_dist) - q;
        e.error += missing * missing;
        e.aa += by_log_a * by_log_a;
        e.ab += by_log_a * by_b;
        e.bb += by_b * by_b;
        e.ar += by_log_a * missing;
        e.br += by_b * missing;
    }
    return e;
}

static curve step_from(curve c, const normal_equations *e, double damping) {
    const double aa = e->aa * (1.0 + damping), bb = e->bb * (1.0 + damping);
    const double determinant = aa * bb - e->ab * e->ab;
    if (!(determinant > 0.0)) {
        return c;
    }
    const double by_log_a = (e->ar * bb - e->br * e->ab) / determinant;
    const double by_b = (e->br * aa - e->ar * e->ab) / determinant;
    return (curve){c.log_a + by_log_a, c.b + by_b};
}

static curve fit(double min_dist) {
    curve c = {0.0, 1.0};
    normal_equations e = equations_at(c, min_dist);
    double damping = 1e-3;
    for (int step = 0; step < MOST_STEPS && damping < 1e12; step++) {
        const curve next = step_from(c, &e, damping);
        const normal_equations there = equations_at(next, min_dist);
        if (!(there.error < e.error) || !(next.b > 0.0)) {
            damping *= 10.0;
            continue;
        }
        const double moved = fabs(next.log_a - c.log_a) + fabs(next.b - c.b);
        c = next;
        e = there;
        damping = damping > 1e-12 ? damping * 0.1 : damping;
        if (moved < 1e-13) {
            break;
        }
    }
    return c;
}

napier_status napier_umap_find_ab_params(napier_context *context, double min_dist, double spread, float *a, float *b) {
    NAPIER_DEFAULT_FENV;
    NAPIER_TRY(napier_begin(context));
    NAPIER_REFUSE_IF(context, !a || !b, "%s: NULL", a ? "b" : "a");
    NAPIER_REFUSE_IF(context, a == b, "b: the same memory as a");
    NAPIER_REFUSE_IF(context, !(spread > 0.0) || isinf(spread), "spread: %g is not a finite number above 0", spread);
    NAPIER_REFUSE_IF(context, !(min_dist >= 0.0) || !(min_dist <= spread), "min_dist: %g is not from 0 to spread %g",
                     min_dist, spread);
    const curve c = fit(min_dist / spread);
    const double scaled = napier_f64_exp(c.log_a - 2.0 * c.b * napier_f64_log(spread));
    NAPIER_REFUSE_IF(context, !(scaled >= (double)FLT_MIN) || !(scaled <= (double)FLT_MAX),
                     "spread: %g gives a curve whose a is %g, no f32", spread, scaled);
    *a = (float)scaled;
    *b = (float)c.b;
    return NAPIER_OK;
}
