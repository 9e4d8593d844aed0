/* umap/options/fit_options.c - the options of a fit. */
#include "umap/options/params.h"

#include <math.h>

#include "core/base/scope.h"
#include "core/base/struct_size.h"

/* umap-learn's numbers of epochs. */
enum { NAPIER_UMAP_SMALL = 10000, NAPIER_UMAP_EPOCHS_SMALL = 500, NAPIER_UMAP_EPOCHS_LARGE = 200 };

static napier_status check_counts(napier_context *context, const napier_umap_options *o, int64_t n) {
    NAPIER_REFUSE_IF(context, o->neighbors.n_neighbors < 2, "options: n_neighbors %lld is less than 2",
                     (long long)o->neighbors.n_neighbors);
    NAPIER_REFUSE_IF(context, o->n_components < 1 || o->n_components > NAPIER_UMAP_MOST_COMPONENTS,
                     "options: n_components %lld is not 1 to %d", (long long)o->n_components,
                     NAPIER_UMAP_MOST_COMPONENTS);
    NAPIER_REFUSE_IF(context, n >= ((int64_t)1 << 31) / o->n_components,
                     "samples: %lld points in %lld components are 2^31 or more", (long long)n,
                     (long long)o->n_components);
    NAPIER_REFUSE_IF(context, o->n_epochs < 0 || o->n_epochs > 1000000, "options: n_epochs %lld is not 0 to 1000000",
                     (long long)o->n_epochs);
    NAPIER_REFUSE_IF(context,
                     (int)o->init < 0 || (int)o->init > NAPIER_UMAP_INIT_GIVEN ||
                         (o->init == NAPIER_UMAP_INIT_GIVEN && !o->init_embedding),
                     "options: init %d is none, or its embedding is NULL", (int)o->init);
    NAPIER_REFUSE_IF(context, (o->knn_indices == NULL) != (o->knn_distances == NULL),
                     "options: of knn_indices and knn_distances one is NULL");
    NAPIER_REFUSE_IF(context, o->knn_indices && o->neighbors.n_neighbors > n,
                     "options: n_neighbors %lld is more than the %lld points that knn_indices can name",
                     (long long)o->neighbors.n_neighbors, (long long)n);
    NAPIER_REFUSE_IF(context, o->target_categories && o->target_numbers,
                     "options: target_categories and target_numbers are both given");
    return NAPIER_OK;
}

static napier_status check_numbers(napier_context *context, const napier_umap_options *o) {
    const struct {
        const char *name;
        double value, least, most;
    } numbers[] = {
        {"spread", o->spread, 1e-6, 1e6},
        {"min_dist", o->min_dist, 0.0, o->spread},
        {"a", o->a, 0.0, 1e6},
        {"b", o->b, 0.0, 100.0},
        {"learning_rate", o->learning_rate, 1e-6, 1e6},
        {"set_op_mix_ratio", o->set_op_mix_ratio, 0.0, 1.0},
        {"local_connectivity", o->local_connectivity, 0.0, 1e6},
        {"repulsion_strength", o->repulsion_strength, 0.0, 1e6},
        {"negative_sample_rate", o->negative_sample_rate, 0.0, 1000.0},
        {"target_weight", o->target_weight, 0.0, 1.0},
        {"dens_lambda", o->dens_lambda, 0.0, 1e6},
        {"dens_frac", o->dens_frac, 0.0, 1.0},
        {"dens_var_shift", o->dens_var_shift, 0.0, 1e6},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const double x = numbers[i].value;
        NAPIER_REFUSE_IF(context, !isfinite(x) || x < numbers[i].least || x > numbers[i].most,
                         "options: %s %g is not %g to %g", numbers[i].name, x, numbers[i].least, numbers[i].most);
    }
    NAPIER_REFUSE_IF(context, !(o->disconnection_distance >= 0.0),
                     "options: disconnection_distance %g is not 0 (by the metric) or more", o->disconnection_distance);
    NAPIER_REFUSE_IF(context, (o->a > 0.0) != (o->b > 0.0), "options: of a %g and b %g one is 0", o->a, o->b);
    return NAPIER_OK;
}

napier_status napier_umap_check_options(napier_context *context, const napier_umap_options *options, int64_t n,
                                        napier_umap_options *checked) {
    *checked = (napier_umap_options)NAPIER_UMAP_OPTIONS_INIT;
    NAPIER_TRY(napier_read_options(context, "options",
                                   NAPIER_STRUCT(napier_umap_options, NAPIER_UMAP_OPTIONS_INIT, dens_lambda), options,
                                   checked));
    NAPIER_TRY(napier_check_inner_struct(context, "options: neighbors", "NAPIER_NEIGHBORS_OPTIONS_INIT",
                                         &checked->neighbors, sizeof checked->neighbors));
    NAPIER_TRY(check_counts(context, checked, n));
    NAPIER_TRY(check_numbers(context, checked));
    if (checked->a == 0.0) {
        float a, b;
        NAPIER_TRY(napier_umap_find_ab_params(context, checked->min_dist, checked->spread, &a, &b));
        checked->a = (double)a;
        checked->b = (double)b;
    }
    if (checked->n_epochs == 0) {
        checked->n_epochs = n <= NAPIER_UMAP_SMALL ? NAPIER_UMAP_EPOCHS_SMALL : NAPIER_UMAP_EPOCHS_LARGE;
    }
    if (checked->neighbors.n_neighbors > n) {
        checked->neighbors.n_neighbors = n;
    }
    return NAPIER_OK;
}

float napier_metric_disconnection(napier_metric metric) {
    const float rounding = 0x1p-18f; /* of distances in f32 of rows of up to about 2^17 numbers */
    switch (metric) {
    case NAPIER_METRIC_JACCARD:
    case NAPIER_METRIC_DICE: return 1.0f;
    case NAPIER_METRIC_HELLINGER: return 1.0f - rounding;
    case NAPIER_METRIC_COSINE:
    case NAPIER_METRIC_CORRELATION: return 2.0f - 2.0f * rounding;
    default: return INFINITY;
    }
}

float napier_umap_disconnection_of(const napier_umap_options *o) {
    return o->disconnection_distance > 0.0 ? (float)o->disconnection_distance
                                           : napier_metric_disconnection(o->neighbors.metric);
}

napier_status napier_umap_params_of(napier_context *context, const napier_umap_options *o, napier_umap_params *params,
                                    napier_forces *forces) {
    *params = (napier_umap_params)NAPIER_UMAP_PARAMS_INIT;
    params->a = (float)o->a;
    params->b = (float)o->b;
    params->learning_rate = (float)o->learning_rate;
    params->repulsion_strength = (float)o->repulsion_strength;
    return napier_umap_check_params(context, params, params, forces);
}
