/* umap/metric/metric_names.c - the names of metrics. */
#include <napier/umap.h>
#include <string.h>

static const struct {
    const char *name;
    napier_metric metric;
} names[] = {
    {"euclidean", NAPIER_METRIC_EUCLIDEAN},
    {"manhattan", NAPIER_METRIC_MANHATTAN},
    {"chebyshev", NAPIER_METRIC_CHEBYSHEV},
    {"minkowski", NAPIER_METRIC_MINKOWSKI},
    {"cosine", NAPIER_METRIC_COSINE},
    {"correlation", NAPIER_METRIC_CORRELATION},
    {"canberra", NAPIER_METRIC_CANBERRA},
    {"braycurtis", NAPIER_METRIC_BRAYCURTIS},
    {"hellinger", NAPIER_METRIC_HELLINGER},
    {"haversine", NAPIER_METRIC_HAVERSINE},
    {"seuclidean", NAPIER_METRIC_SEUCLIDEAN},
    {"mahalanobis", NAPIER_METRIC_MAHALANOBIS},
    {"hamming", NAPIER_METRIC_HAMMING},
    {"jaccard", NAPIER_METRIC_JACCARD},
    {"dice", NAPIER_METRIC_DICE},
    {"yule", NAPIER_METRIC_YULE},
    {"russellrao", NAPIER_METRIC_RUSSELLRAO},
    {"rogerstanimoto", NAPIER_METRIC_ROGERSTANIMOTO},
    {"sokalmichener", NAPIER_METRIC_SOKALMICHENER},
    {"sokalsneath", NAPIER_METRIC_SOKALSNEATH},
    {"kulsinski", NAPIER_METRIC_KULSINSKI},
    {"matching", NAPIER_METRIC_MATCHING},
    {"precomputed", NAPIER_METRIC_PRECOMPUTED},
    {"wminkowski", NAPIER_METRIC_WMINKOWSKI},
    {"poincare", NAPIER_METRIC_POINCARE},
    {"symmetric_kl", NAPIER_METRIC_SYMMETRIC_KL},
    {"ll_dirichlet", NAPIER_METRIC_LL_DIRICHLET},
    {"softmax_hellinger", NAPIER_METRIC_SOFTMAX_HELLINGER},
    {"string", NAPIER_METRIC_STRING},
    /* aliases: */
    {"l2", NAPIER_METRIC_EUCLIDEAN},
    {"l1", NAPIER_METRIC_MANHATTAN},
    {"taxicab", NAPIER_METRIC_MANHATTAN},
    {"cityblock", NAPIER_METRIC_MANHATTAN},
    {"linfinity", NAPIER_METRIC_CHEBYSHEV},
    {"linfty", NAPIER_METRIC_CHEBYSHEV},
    {"linf", NAPIER_METRIC_CHEBYSHEV},
    {"standardised_euclidean", NAPIER_METRIC_SEUCLIDEAN},
    {"standardized_euclidean", NAPIER_METRIC_SEUCLIDEAN},
    {"weighted_minkowski", NAPIER_METRIC_WMINKOWSKI},
    {"myers", NAPIER_METRIC_STRING},
    {"kulsinksi", NAPIER_METRIC_KULSINSKI}, /* as umap-learn spells it for sparse data */
};
enum { NAMES = sizeof names / sizeof *names };

const char *napier_metric_name(napier_metric metric) {
    for (int i = 0; i < NAMES; i++) {
        if (names[i].metric == metric) {
            return names[i].name;
        }
    }
    return NULL;
}

int napier_metric_from_name(const char *name) {
    for (int i = 0; name && i < NAMES; i++) {
        if (strcmp(names[i].name, name) == 0) {
            return (int)names[i].metric;
        }
    }
    return -1;
}
