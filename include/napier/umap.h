/* napier/umap.h - UMAP: a map (embedding) of the rows of a matrix, stage by stage or in one call.
 *
 *     nearest_neighbors -> smooth_knn_dist -> fuzzy_simplicial_set -> spectral_layout -> optimize_layout
 *
 * napier_umap_fit runs all stages. Each stage is also a public call with umap-learn's name. So are the primitives that
 * the stages use: edge gradients, segmented reduction, negative samples, epochs of an optimizer, the loss.
 *
 * Bits. The same input and options give the same bits for any number of threads, instruction set and compiler. Random
 * numbers are counter-based: a draw depends only on (seed, epoch, vertex, number of the draw).
 *
 * Embeddings are f32, contiguous [n, n_components] (row_stride = cols, col_stride = 1), with 1 to 256 components.
 * Anything else is INVALID_ARGUMENT. Vertices and points are numbered from 0, and there are fewer than 2^31. NaN or inf
 * in data, weights, distances or an embedding is INVALID_ARGUMENT, and the message names the position, unless a call
 * says otherwise.
 *
 * Pointers may be NULL only where a comment says so, or where the array is empty. `params` or `options` NULL: all
 * defaults. The caller owns the objects that a call creates (`out`) and destroys them with the same context. On an
 * error *out is NULL, and other outputs are unchanged unless a call says otherwise. Outputs must not overlap inputs or
 * one another. Any call that needs memory may return OUT_OF_MEMORY. Thread safety: one context per thread; several
 * threads may read a finished graph or model at once.
 *
 * Source: McInnes, Healy and Melville, "UMAP: Uniform Manifold Approximation and Projection", 2018; docs/umap.md. */
#ifndef NAPIER_UMAP_H
#define NAPIER_UMAP_H

#include <napier/types.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { NAPIER_UMAP_MOST_COMPONENTS = 256 };

/* ---- The curve and the forces ------------------------------------------------------------------------------------
 * Two points at distance d on the map are connected with weight q(d) = 1 / (1 + a d^2b). A force is a displacement that
 * is added to a point: minus the gradient of the loss (napier_umap_loss).
 *     attraction on i along an edge (i, j):    -2 a b d^2(b-1) / (1 + a d^2b) (y_i - y_j), 0 where d = 0
 *     repulsion of i from a sample j:   2 repulsion b / ((epsilon + d^2) (1 + a d^2b)) (y_i - y_j), 0 where d = 0
 * Each component is clipped to +-clip. Then, if max_norm is not 0, a longer vector is shortened to max_norm.
 * Powers are computed in f32 with a relative error of about 2^-20. Sums have a fixed order. */
typedef struct napier_umap_params {
    size_t struct_size;           /* sizeof(napier_umap_params) */
    float a, b;                   /* both finite and > 0; default: the fit for min_dist 0.1, spread 1 */
    float learning_rate;          /* > 0; default 1 */
    int32_t negative_sample_rate; /* samples per vertex or per edge, 0 to 1000; default 5 */
    float repulsion_strength;     /* gamma, >= 0; default 1 */
    float epsilon;                /* > 0; default 0.001 */
    float clip;                   /* largest component of each force; 0: no limit; default 4 */
    float max_norm;               /* largest length of each force; 0: no limit (default) */
} napier_umap_params;

#define NAPIER_UMAP_PARAMS_INIT \
    { sizeof(napier_umap_params), 1.57694346f, 0.895060879f, 1.0f, 5, 1.0f, 0.001f, 4.0f, 0.0f }

/* Fits *a and *b: the curve q is the least-squares fit, on 300 points of [0, 3 spread], to 1 up to min_dist and
 * exp(-(d - min_dist) / spread) beyond. Needs 0 <= min_dist <= spread and spread > 0, else INVALID_ARGUMENT. The result
 * is within 2e-4 of umap-learn's find_ab_params. */
NAPIER_API napier_status napier_umap_find_ab_params(napier_context *context, double min_dist, double spread, float *a,
                                                    float *b);

/* ---- Edges -------------------------------------------------------------------------------------------------------*/

typedef struct napier_umap_edge {
    uint32_t source, target; /* an edge from a vertex to itself has no force */
    float weight;            /* finite, >= 0; an edge of weight 0 has no effect */
} napier_umap_edge;

/* Sorts edges in place by source, then target, then weight. The calls below need this order, so the order in which a
 * caller lists the edges does not change the bits. Checks only `edges` and `count`, not the edges themselves. */
NAPIER_API napier_status napier_umap_sort_edges(napier_context *context, napier_umap_edge *edges, int64_t count);

/* Finds each vertex's edges: edge e of vertex v is edges[starts[v] + e], e < counts[v]. Both arrays have n elements,
 * one for each vertex, also for vertices without edges. INVALID_ARGUMENT if the edges are not sorted, a vertex is >= n,
 * or a weight is negative or not finite; the message names the edge. */
NAPIER_API napier_status napier_umap_segments(napier_context *context, const napier_umap_edge *edges, int64_t count,
                                              int64_t n, int64_t *starts, int64_t *counts);

/* A weighted graph in CSR form: the neighbours of v are targets[starts[v]] .. targets[starts[v + 1] - 1], ascending. */
typedef struct napier_umap_graph {
    int64_t n;       /* vertices */
    int64_t *starts; /* [n + 1] */
    uint32_t *targets;
    float *weights;
} napier_umap_graph;

/* Makes a graph of sorted edges, with the checks of napier_umap_segments. Edges of weight 0 are left out. destroy
 * accepts NULL. */
NAPIER_API napier_status napier_umap_graph_from_edges(napier_context *context, const napier_umap_edge *edges,
                                                      int64_t count, int64_t n, napier_umap_graph **out);
NAPIER_API void napier_umap_graph_destroy(napier_context *context, napier_umap_graph *graph);

/* ---- Primitives --------------------------------------------------------------------------------------------------*/

/* The attractive force of each edge on its source, and the opposite force on its target. Both are multiplied by the
 * edge's weight, not by the learning rate. Both outputs are [count, n_components], contiguous f32; either may have data
 * NULL. optimize_epochs computes the same forces without storing them. */
NAPIER_API napier_status napier_umap_edge_gradients(napier_context *context, const napier_umap_params *params,
                                                    napier_const_matrix embedding, const napier_umap_edge *edges,
                                                    int64_t count, napier_matrix source_gradients,
                                                    napier_matrix target_gradients);

/* gradients[v] = sum of edge_gradients[starts[v]] .. of vertex v: [n, n_components]. */
NAPIER_API napier_status napier_umap_reduce_segments(napier_context *context, napier_const_matrix edge_gradients,
                                                     const int64_t *starts, const int64_t *counts,
                                                     napier_matrix gradients);

/* The attractive forces on every vertex: from its own edges and, with move_targets, also from the edges that end in it.
 * Use move_targets for lists that name each pair once; in a symmetric list each force would count twice. Same bits as
 * the two calls above. */
NAPIER_API napier_status napier_umap_gradients(napier_context *context, const napier_umap_params *params,
                                               napier_const_matrix embedding, const napier_umap_edge *edges,
                                               int64_t count, int move_targets, napier_matrix gradients);

/* embedding += learning_rate * gradients, with one fma for each element. Both are [n, n_components]. */
NAPIER_API napier_status napier_umap_apply(napier_context *context, float learning_rate, napier_const_matrix gradients,
                                           napier_matrix embedding);

/* Draws the negative samples of an epoch: targets[v * rate + s] is draw s of vertex v, uniform in 0 .. n - 1. A draw
 * may be v itself; the calls that use it skip it. targets is [n, rate], with rate 0 to 1000 and epoch 0 to 2^31 - 1. */
NAPIER_API napier_status napier_umap_negative_targets(napier_context *context, uint64_t seed, int64_t epoch, int64_t n,
                                                      int64_t rate, uint32_t *targets);

/* The repulsive forces on every vertex from its `rate` targets [n, rate], all computed from the same embedding. A
 * target that is the vertex itself is skipped. A target >= n is INVALID_ARGUMENT. */
NAPIER_API napier_status napier_umap_negative_gradients(napier_context *context, const napier_umap_params *params,
                                                        napier_const_matrix embedding, const uint32_t *targets,
                                                        int64_t rate, napier_matrix gradients);

/* loss = - sum over edges of w log q(d) - repulsion sum over negatives of log(1 - q(d)). 1 - q is computed at d^2 +
 * epsilon, so that it is not 0. The forces are minus the gradient of this loss, with two differences: they are clipped,
 * and the repulsion has epsilon in only one of its two factors. targets is [n, rate], or NULL with rate 0. Sums are in
 * double. */
NAPIER_API napier_status napier_umap_loss(napier_context *context, const napier_umap_params *params,
                                          napier_const_matrix embedding, const napier_umap_edge *edges, int64_t count,
                                          const uint32_t *targets, int64_t rate, double *loss);

/* ---- Optimizers and epochs ---------------------------------------------------------------------------------------*/

typedef enum napier_umap_method {
    NAPIER_UMAP_SGD = 0,      /* y += rate g */
    NAPIER_UMAP_MOMENTUM = 1, /* v = beta v + (1 - beta) g, y += rate v */
    NAPIER_UMAP_ADAM = 2      /* Kingma and Ba, 2015, with bias correction */
} napier_umap_method;

typedef struct napier_umap_optimizer_options {
    size_t struct_size;
    napier_umap_method method; /* default ADAM */
    float beta;                /* of momentum; default 0.9 */
    float beta1, beta2, eps;   /* of Adam; default 0.5, 0.9, 1e-7 */
} napier_umap_optimizer_options;

#define NAPIER_UMAP_OPTIMIZER_OPTIONS_INIT \
    { sizeof(napier_umap_optimizer_options), NAPIER_UMAP_ADAM, 0.9f, 0.5f, 0.9f, 1e-7f }

/* The state of an optimizer for n points: velocity or moments, and the number of steps taken. Keep it from call to
 * call; optimize_epochs changes it, so only one thread may use it at a time. beta, beta1 and beta2 are in [0, 1), eps
 * is > 0. */
typedef struct napier_umap_optimizer napier_umap_optimizer;

NAPIER_API napier_status napier_umap_optimizer_create(napier_context *context,
                                                      const napier_umap_optimizer_options *options, int64_t n,
                                                      int64_t n_components, napier_umap_optimizer **out);
NAPIER_API void napier_umap_optimizer_destroy(napier_context *context, napier_umap_optimizer *optimizer);
/* Converts an optimizer to bytes, little endian, with a checksum. *size is set to the number of bytes. They are written
 * only if `capacity` is large enough; pass NULL and 0 to query the size. from_bytes returns CORRUPT_DATA if the bytes
 * are not a valid optimizer. */
NAPIER_API napier_status napier_umap_optimizer_to_bytes(napier_context *context, const napier_umap_optimizer *optimizer,
                                                        uint8_t *bytes, size_t capacity, size_t *size);
NAPIER_API napier_status napier_umap_optimizer_from_bytes(napier_context *context, const uint8_t *bytes, size_t size,
                                                          napier_umap_optimizer **out);

/* Which edges act in an epoch. */
typedef enum napier_umap_edge_use {
    NAPIER_UMAP_EDGES_WEIGHTED = 0, /* all edges; each force is multiplied by weight / largest weight */
    NAPIER_UMAP_EDGES_SAMPLED = 1   /* an edge acts at full force in a share of weight / largest weight of the epochs,
                                       evenly spread */
} napier_umap_edge_use;

/* What negative_sample_rate counts for. With EDGES_WEIGHTED and RATE_PER_EDGE, one drawn sample stands for up to four:
 * its force is multiplied accordingly. */
typedef enum napier_umap_rate_per {
    NAPIER_UMAP_RATE_PER_EDGE = 0,  /* each edge that acts (with EDGES_WEIGHTED: times weight / largest weight) */
    NAPIER_UMAP_RATE_PER_VERTEX = 1 /* each vertex, in each epoch */
} napier_umap_rate_per;

typedef struct napier_umap_epochs {
    size_t struct_size;
    /* Epochs first .. first + count - 1 of total. The rate in an epoch is learning_rate (1 - epoch / total). */
    int64_t first, count, total;
    uint64_t seed;
    napier_umap_edge_use edge_use;
    napier_umap_rate_per rate_per;
    int move_targets;          /* default 1; with 1 the forces of a symmetric list count twice */
    napier_progress *progress; /* may be NULL; stage "layout" */
    void *user;
} napier_umap_epochs;

#define NAPIER_UMAP_EPOCHS_INIT \
    { sizeof(napier_umap_epochs), 0, 1, 1, 42, NAPIER_UMAP_EDGES_WEIGHTED, NAPIER_UMAP_RATE_PER_EDGE, 1, NULL, NULL }

/* Runs epochs over sorted edges and updates the embedding in place. total is at most 2^22 - 1. All forces of an epoch
 * are computed from the embedding at its start. targets: [n, rate], used in every epoch (only with RATE_PER_VERTEX), or
 * NULL to draw them from (seed, epoch). On CANCELLED the embedding and the optimizer are those after the last complete
 * epoch. */
NAPIER_API napier_status napier_umap_optimize_epochs(napier_context *context, const napier_umap_params *params,
                                                     const napier_umap_epochs *epochs, const napier_umap_edge *edges,
                                                     int64_t count, const uint32_t *targets,
                                                     napier_umap_optimizer *optimizer, napier_matrix embedding);

/* ---- Neighbours --------------------------------------------------------------------------------------------------*/

/* A sparse matrix in CSR form. Columns are ascending within a row. */
typedef struct napier_csr_matrix {
    int64_t rows, cols;
    const int64_t *row_starts; /* [rows + 1] */
    const int32_t *columns;
    const float *values;
} napier_csr_matrix;

/* Points as rows: dense of any dtype and stride, or sparse. */
typedef struct napier_umap_samples {
    napier_const_matrix dense;
    const napier_csr_matrix *sparse; /* not NULL: dense is ignored */
} napier_umap_samples;

/* Names and definitions are those of umap-learn (and SciPy). Boolean metrics use x != 0. Every value must be finite for
 * every metric, precomputed distances included: NaN or inf is INVALID_ARGUMENT, and the message names row and
 * column. */
typedef enum napier_metric {
    NAPIER_METRIC_EUCLIDEAN = 0,
    NAPIER_METRIC_MANHATTAN = 1,
    NAPIER_METRIC_CHEBYSHEV = 2,
    NAPIER_METRIC_MINKOWSKI = 3, /* with exponent p */
    NAPIER_METRIC_COSINE = 4,
    NAPIER_METRIC_CORRELATION = 5,
    NAPIER_METRIC_CANBERRA = 6,
    NAPIER_METRIC_BRAYCURTIS = 7,
    NAPIER_METRIC_HELLINGER = 8,    /* no negative values */
    NAPIER_METRIC_HAVERSINE = 9,    /* two columns: latitude and longitude in radians, each within +-1e6 */
    NAPIER_METRIC_SEUCLIDEAN = 10,  /* given variances must be > 0; without them, constant columns are left out */
    NAPIER_METRIC_MAHALANOBIS = 11, /* at most 32,768 columns; an error if the data's covariance is singular */
    NAPIER_METRIC_HAMMING = 12,
    NAPIER_METRIC_JACCARD = 13,
    NAPIER_METRIC_DICE = 14,
    NAPIER_METRIC_YULE = 15,
    NAPIER_METRIC_RUSSELLRAO = 16,
    NAPIER_METRIC_ROGERSTANIMOTO = 17,
    NAPIER_METRIC_SOKALMICHENER = 18,
    NAPIER_METRIC_SOKALSNEATH = 19,
    NAPIER_METRIC_KULSINSKI = 20,
    NAPIER_METRIC_MATCHING = 21,
    /* Samples are distances [n, n]; sparse: pairs not stored are no neighbours. The diagonal of a dense matrix does not
     * count. A value below 0 by at most 2^-16 of its row's largest counts as 0. */
    NAPIER_METRIC_PRECOMPUTED = 22,
    NAPIER_METRIC_WMINKOWSKI = 23, /* with exponent p: (sum w |x - y|^p)^(1/p); weights >= 0, without them all are 1 */
    NAPIER_METRIC_POINCARE = 24,   /* points of the unit ball: rows shorter than 1 */
    NAPIER_METRIC_SYMMETRIC_KL = 25,      /* of rows x + 1e-11 divided by their sums; no negative values */
    NAPIER_METRIC_LL_DIRICHLET = 26,      /* relative log likelihood of counts, 0 to 2^53 */
    NAPIER_METRIC_SOFTMAX_HELLINGER = 27, /* hellinger of the softmax of the rows */
    NAPIER_METRIC_STRING = 28 /* edit distance of character codes; a row ends at its first negative number */
} napier_metric;

/* A metric's name in umap-learn's spelling, such as "euclidean"; NULL if `metric` is not one. from_name is the inverse;
 * it returns -1 if there is no such name. */
NAPIER_API const char *napier_metric_name(napier_metric metric);
NAPIER_API int napier_metric_from_name(const char *name);
/* The distance from which on napier_umap_fit does not count points as neighbours: the distance of two points that have
 * nothing in common. 1 for jaccard and dice; 1 - 2^-18 for hellinger and 2 - 2^-17 for cosine and correlation (1 and 2
 * less the rounding of these metrics); infinity for the others. */
NAPIER_API float napier_metric_disconnection(napier_metric metric);

typedef enum napier_neighbors_method {
    NAPIER_NEIGHBORS_AUTO = 0,      /* exact, or NN-descent where that is faster (docs/umap.md) */
    NAPIER_NEIGHBORS_EXACT = 1,     /* ties are broken by index */
    NAPIER_NEIGHBORS_NN_DESCENT = 2 /* checks 256 rows; searches exactly if their recall stays below 0.992 */
} napier_neighbors_method;

typedef struct napier_neighbors_options {
    size_t struct_size;
    int64_t n_neighbors;  /* 2 to n, counting the point itself, which is the first; default 15 */
    napier_metric metric; /* default EUCLIDEAN */
    double p;             /* exponent of minkowski and wminkowski, >= 1; default 2 */
    /* seuclidean: variances [cols]; mahalanobis: inverse covariance [cols, cols]; NULL: computed from the data.
     * wminkowski: weights [cols]. string: the largest distance, 1 to 1024, to which longer ones are cut, and a divisor of
     * all distances; NULL: 20 and 1. */
    const float *metric_values;
    napier_neighbors_method method; /* default AUTO */
    uint64_t seed;                  /* of NN-descent; default 42 */
    napier_progress *progress;      /* may be NULL; stage "neighbours" */
    void *user;
} napier_neighbors_options;

#define NAPIER_NEIGHBORS_OPTIONS_INIT \
    { sizeof(napier_neighbors_options), 15, NAPIER_METRIC_EUCLIDEAN, 2.0, NULL, NAPIER_NEIGHBORS_AUTO, 42, NULL, NULL }

/* The n_neighbors nearest rows of every row, nearest first, ties broken by index. The first is the row itself. indices
 * and distances are [n, n_neighbors], contiguous. If a row has fewer neighbours (sparse precomputed distances), the
 * rest are index -1 at distance +inf. A distance that f32 does not hold is INVALID_ARGUMENT, and so are f64 values of which
 * it holds no digits, where they decide a distance: all of them, or as the metric compares them a row, column or value. */
NAPIER_API napier_status napier_nearest_neighbors(napier_context *context, napier_umap_samples samples,
                                                  const napier_neighbors_options *options, int32_t *indices,
                                                  float *distances);
/* The nearest rows of `samples` for each row of `queries`: outputs [queries, n_neighbors]. No query counts as one of
 * the samples, even if it is equal, so n_neighbors may be 1. With precomputed distances the queries are distances [queries,
 * n]; of the samples only the shape is used. */
NAPIER_API napier_status napier_nearest_neighbors_of(napier_context *context, napier_umap_samples samples,
                                                     napier_umap_samples queries,
                                                     const napier_neighbors_options *options, int32_t *indices,
                                                     float *distances);

/* ---- The fuzzy set and its start ---------------------------------------------------------------------------------*/

/* rhos[i]: the distance of the neighbour number local_connectivity, counted among those not at distance 0; a fractional
 * number interpolates between two of them. sigmas[i]: the scale at which sum_j exp(-max(0, d_ij - rho_i) / sigma_i) =
 * log2(n_neighbors), found by 64 bisections, and at least 1e-3 of the mean distance (of the row, or of all rows where
 * rho is 0). distances is [n, n_neighbors], ascending. The first is the point itself, which is left out of the sum.
 * +inf (no neighbour) is skipped. NaN or a negative distance is INVALID_ARGUMENT. */
NAPIER_API napier_status napier_umap_smooth_knn_dist(napier_context *context, const float *distances, int64_t n,
                                                     int64_t n_neighbors, double local_connectivity, float *rhos,
                                                     float *sigmas);

/* Makes the graph of memberships. a_ij = exp(-max(0, d_ij - rho_i) / sigma_i) is symmetrised to W = mix (A + A' - A.A')
 * + (1 - mix) A.A', where mix is set_op_mix_ratio, 0 to 1. No vertex has an edge to itself. indices and distances are
 * [n, n_neighbors], as napier_nearest_neighbors returns them; -1 at +inf is no neighbour. A neighbour that a row names
 * twice is INVALID_ARGUMENT. */
NAPIER_API napier_status napier_umap_fuzzy_simplicial_set(napier_context *context, const int32_t *indices,
                                                          const float *distances, int64_t n, int64_t n_neighbors,
                                                          double local_connectivity, double set_op_mix_ratio,
                                                          napier_umap_graph **out);

/* Supervision: combines the graph with known targets of the points, as umap-learn does.
 * Categories: int32 [n], negative if unknown. The weight of an edge between different known categories is multiplied by
 *     exp(-far_dist), far_dist = 2.5 / (1 - target_weight); that of an edge to an unknown category by exp(-1).
 * Numbers: float [n], finite, or NaN if unknown. The fuzzy set of their n_neighbors nearest numbers is intersected with
 *     the graph, weighted by target_weight. The weight of an edge to an unknown number is multiplied by exp(-1).
 * Distances: those of the targets of each edge's ends, float, one for each edge of the graph in its order, finite and
 *     not negative. The weight of an edge is multiplied by exp(-far_dist distance).
 * With target_weight 0 the data decides, with 1 the targets do. Afterwards each vertex's largest weight is 1 again.
 * *graph must be symmetric. It is replaced; on an error it is unchanged. */
NAPIER_API napier_status napier_umap_join_categories(napier_context *context, napier_umap_graph **graph,
                                                     const int32_t *categories, double target_weight);
NAPIER_API napier_status napier_umap_join_numbers(napier_context *context, napier_umap_graph **graph,
                                                  const float *numbers, int64_t n_neighbors, double target_weight);
NAPIER_API napier_status napier_umap_join_distances(napier_context *context, napier_umap_graph **graph,
                                                    const float *distances, double target_weight);

typedef enum napier_umap_operation {
    NAPIER_UMAP_UNION = 0,        /* l + r - l r */
    NAPIER_UMAP_INTERSECTION = 1, /* l r; an edge that one graph lacks counts there as half of its least weight */
    NAPIER_UMAP_DIFFERENCE = 2    /* l (1 - r) */
} napier_umap_operation;

/* Combines two fuzzy sets of the same points, symmetric graphs. A weight above 1 is INVALID_ARGUMENT. Afterwards each
 * vertex's largest weight is 1 again. weight, 0 to 1, is that of the right set in an intersection: 0 leaves the left set,
 * 1 the right one, 0.5 gives l r. With n_neighbors above 0 its weights are first raised to the power at which they
 * sum to log2(n_neighbors), as a fuzzy set's do. *out is a new graph. */
NAPIER_API napier_status napier_umap_combine(napier_context *context, napier_umap_operation operation,
                                             const napier_umap_graph *left, const napier_umap_graph *right,
                                             double weight, int64_t n_neighbors, napier_umap_graph **out);

/* Starts of the layout: embedding [n, n_components].
 * random: uniform in [-10, 10).
 * spectral: eigenvectors of the normalised Laplacian, computed separately for every connected component. A component of
 *     at most 2 n_components vertices gets a small random layout. Up to 2 n_components components are placed on the
 *     axes. More are placed by the principal components of the centroids of their data, or on a grid if samples have no
 *     rows.
 * pca: the first principal components. Those that do not exist are random within a tenth of the map.
 * spectral and pca are scaled so that the largest element is +-10, and the largest element of each component is
 * positive. Then noise of standard deviation 1e-4 is added (triangular: the sum of two uniform draws), so that equal
 * points can separate. The iterations are bounded. A single point is at 0. */
NAPIER_API napier_status napier_umap_spectral_layout(napier_context *context, const napier_umap_graph *graph,
                                                     napier_umap_samples samples, uint64_t seed,
                                                     napier_matrix embedding);
NAPIER_API napier_status napier_umap_pca_layout(napier_context *context, napier_umap_samples samples, uint64_t seed,
                                                napier_matrix embedding);
NAPIER_API napier_status napier_umap_random_layout(napier_context *context, uint64_t seed, napier_matrix embedding);

/* ---- The whole pipeline ------------------------------------------------------------------------------------------*/

typedef enum napier_umap_init {
    NAPIER_UMAP_INIT_SPECTRAL = 0,
    NAPIER_UMAP_INIT_PCA = 1,
    NAPIER_UMAP_INIT_RANDOM = 2,
    NAPIER_UMAP_INIT_GIVEN = 3 /* options->init_embedding, unchanged */
} napier_umap_init;

/* Names and defaults are umap-learn's. */
typedef struct napier_umap_options {
    size_t struct_size;
    napier_neighbors_options neighbors; /* n_neighbors, metric, ...; an n_neighbors above n counts as n */
    /* Precomputed neighbours, or NULL: indices and distances [n, n_neighbors], n_neighbors <= n, distances ascending.
     * The first of each row is the row itself. Index -1 at +inf is no neighbour. */
    const int32_t *knn_indices;
    const float *knn_distances;
    int64_t n_components;        /* 1 to 256; default 2 */
    int64_t n_epochs;            /* 0: chosen by n (docs/umap.md) */
    double min_dist, spread;     /* 0.1, 1; ignored if a and b are given */
    double a, b;                 /* 0: fitted to min_dist and spread */
    double learning_rate;        /* 1 */
    double set_op_mix_ratio;     /* 1 */
    double local_connectivity;   /* 1 */
    double repulsion_strength;   /* 1 */
    double negative_sample_rate; /* 5 */
    napier_umap_init init;
    const float *init_embedding;      /* [n, n_components] */
    uint64_t seed;                    /* 42 */
    uint64_t transform_seed;          /* 42 */
    const int32_t *target_categories; /* [n] or NULL: supervision by categories; negative: unknown */
    const float *target_numbers;      /* [n] or NULL: supervision by numbers; NaN: unknown. Not both of the two */
    int64_t target_n_neighbors;       /* 0: n_neighbors */
    double target_weight;             /* 0.5 */
    int densmap;
    double dens_lambda, dens_frac, dens_var_shift; /* 2, 0.3, 0.1 */
    /* A point at this distance or farther is no neighbour. infinity: no limit; 0 (default): napier_metric_disconnection
     * of the metric. */
    double disconnection_distance;
    napier_progress *progress; /* stages "neighbours", "fuzzy set", "start", "layout" */
    void *user;
} napier_umap_options;

#define NAPIER_UMAP_OPTIONS_INIT                                                                                     \
    {                                                                                                                \
        sizeof(napier_umap_options), NAPIER_NEIGHBORS_OPTIONS_INIT, NULL, NULL, 2, 0, 0.1, 1.0, 0.0, 0.0, 1.0, 1.0,  \
            1.0, 1.0, 5.0, NAPIER_UMAP_INIT_SPECTRAL, NULL, 42, 42, NULL, NULL, 0, 0.5, 0, 2.0, 0.3, 0.1, 0.0, NULL, \
            NULL                                                                                                     \
    }

/* Runs the layout of napier_umap_fit on a symmetric graph, in place, from the start in `embedding` [n, 1 to 256]. The
 * options it uses are n_epochs, the curve, learning_rate, repulsion_strength, negative_sample_rate, seed, progress, and
 * with densmap dens_lambda, dens_frac, dens_var_shift, and knn_indices and knn_distances [n, n_neighbors], without which
 * densmap does nothing. On CANCELLED the embedding is that after the last complete epoch. */
NAPIER_API napier_status napier_umap_optimize_layout(napier_context *context, const napier_umap_graph *graph,
                                                     const napier_umap_options *options, napier_matrix embedding);

/* A fitted map: the data (a copy), the embedding and the options. */
typedef struct napier_umap_model napier_umap_model;

/* Fits a map of samples [n, cols]. The model keeps a copy of the samples. No points is INVALID_ARGUMENT. A single point
 * is at 0. If there are fewer points than n_neighbors, all are neighbours. Equal points lie near one another on the
 * map. A point is disconnected if no point nearer than disconnection_distance is its neighbour or has it as a
 * neighbour. Its row is NaN, which is not an error; napier_umap_disconnected counts such rows. Every other element of
 * the result is finite. Where values are very large (from 2^52 on), or all very small (below 2^-39), samples are
 * multiplied by a power of two before they are measured, which does not change the map, unless other rows are so small
 * that it would lose their distances. From f64 columns whose middle is 16 times half their range or more, the middle is
 * subtracted before they become f32, if the metric allows it (docs/umap.md).
 * Distances that overflow f32 are INVALID_ARGUMENT, as are f64 values that napier_nearest_neighbors refuses. */
NAPIER_API napier_status napier_umap_fit(napier_context *context, napier_umap_samples samples,
                                         const napier_umap_options *options, napier_umap_model **out);
/* Makes a model of samples [n, cols] and a map that was made elsewhere: embedding [n, n_components], f32 contiguous; a
 * row of NaN is a disconnected point. Of the options it uses what transform needs: neighbors, the curve, learning_rate,
 * negative_sample_rate, repulsion_strength, local_connectivity, transform_seed and disconnection_distance. */
NAPIER_API napier_status napier_umap_model_create(napier_context *context, napier_umap_samples samples,
                                                  const napier_umap_options *options, napier_const_matrix embedding,
                                                  napier_umap_model **out);
NAPIER_API void napier_umap_model_destroy(napier_context *context, napier_umap_model *model);

/* The embedding [n, n_components], valid as long as the model; empty if model is NULL. */
NAPIER_API napier_const_matrix napier_umap_model_embedding(const napier_umap_model *model);
/* The number of NaN rows in an embedding (f32, contiguous), that is of disconnected points of fit or transform. 0 for
 * another dtype. */
NAPIER_API int64_t napier_umap_disconnected(napier_const_matrix embedding);
/* The number of rows of which napier_umap_fit found half of the neighbours or more at distance 0, though the rows differ:
 * f32 does not hold the digits in which they do. 0 where neighbours were given, for a loaded model, and for metrics whose
 * distance of different rows may be 0. */
NAPIER_API int64_t napier_umap_model_indistinct(const napier_umap_model *model);

static inline NAPIER_DEPRECATED("it is napier_umap_model_create") napier_status
    napier_umap_model_of(napier_context *context, napier_umap_samples samples, const napier_umap_options *options,
                         napier_const_matrix embedding, napier_umap_model **out) {
    return napier_umap_model_create(context, samples, options, embedding, out);
}
static inline NAPIER_DEPRECATED("it is napier_umap_model_indistinct") int64_t
    napier_umap_model_lost(const napier_umap_model *model) {
    return napier_umap_model_indistinct(model);
}
/* The number of columns that transform expects; 0 if model is NULL. */
NAPIER_API int64_t napier_umap_model_features(const napier_umap_model *model);

/* Places new points on a fitted map: samples [rows, features], dense or sparse; embedding [rows, n_components]. A row's
 * result depends only on the model and that row, not on the other rows, their number or order. A point that was fitted
 * gets a position near its own, not exactly its own. densMAP's forces do not act. A row is NaN if none of its
 * neighbours has a position on the map and is nearer than disconnection_distance. For a model of precomputed distances,
 * samples are the distances [rows, n] from each new point to the fitted ones; sparse: pairs not stored are no
 * neighbours. */
NAPIER_API napier_status napier_umap_transform(napier_context *context, const napier_umap_model *model,
                                               napier_umap_samples samples, napier_matrix embedding);

/* Maps points of the map [rows, n_components] back to data: samples [rows, features], f32 contiguous. A result is the
 * mean of the data of the n_neighbors fitted points nearest on the map, weighted by their memberships there.
 * Disconnected points are left out. Each row is computed independently, as in transform. INVALID_ARGUMENT if all points
 * are disconnected; UNSUPPORTED for models of precomputed distances. */
NAPIER_API napier_status napier_umap_inverse_transform(napier_context *context, const napier_umap_model *model,
                                                       napier_const_matrix points, napier_matrix samples);

/* Saves and loads a model as one file: little endian, with version and checksum, the same bytes on every machine. save
 * writes a temporary file in the same folder, flushes it to the disk and renames it. So on an error (IO_ERROR) an older
 * file is unchanged, and two processes may save to the same path at the same time. An existing file keeps its mode, and
 * a symbolic link still points to the file. A device or a pipe is written directly. load accepts only regular files
 * (else IO_ERROR) and checks every value: a damaged or hostile file is CORRUPT_DATA, never a crash. */
NAPIER_API napier_status napier_umap_model_save(napier_context *context, const napier_umap_model *model,
                                                const char *path);
NAPIER_API napier_status napier_umap_model_load(napier_context *context, const char *path, napier_umap_model **out);
/* The same in memory. *size is set to the number of bytes; they are written only if `capacity` is large enough. */
NAPIER_API napier_status napier_umap_model_to_bytes(napier_context *context, const napier_umap_model *model,
                                                    uint8_t *bytes, size_t capacity, size_t *size);
NAPIER_API napier_status napier_umap_model_from_bytes(napier_context *context, const uint8_t *bytes, size_t size,
                                                      napier_umap_model **out);

/* ---- Pictures of many points -------------------------------------------------------------------------------------
 * A picture with fewer pixels than points shows a sum over the points of each pixel: their number, or the colours of
 * which the mean is taken. Sums are integers, so they are exact, and the same for any order of the points. */

/* The part of the map that a picture shows, and its size. Row 0 of the picture is at the top. A point on the right or
 * bottom edge belongs to the last column or row. */
typedef struct napier_umap_frame {
    double left, right, bottom, top; /* finite, left < right, bottom < top */
    int64_t width, height;           /* in pixels, 1 to 65,536 */
} napier_umap_frame;

/* For each pixel, sums[row][col][channel] is the sum of amounts[codes[i]][channel] over its points i. amounts is [kinds,
 * channels], for example (1, red, green, blue) for each kind of point; codes NULL: all points are of kind 0. places is
 * [n, 2], f32 contiguous. Points that are NaN, outside of the frame or of a code below 0 are left out; a code >= kinds is
 * INVALID_ARGUMENT. sums is [height, width, channels], with up to 65,536 channels. */
NAPIER_API napier_status napier_umap_raster_points(napier_context *context, const napier_umap_frame *frame,
                                                   napier_const_matrix places, const int32_t *codes,
                                                   const int32_t *amounts, int64_t kinds, int64_t channels,
                                                   int64_t *sums);

/* The same for lines: line i leads from row i of places to row i + 1, and adds amounts[i] to each pixel on it. A row that
 * is NaN or outside of the frame has no line to or from it, so NaN rows separate paths. Where a path goes on, the pixel of
 * a corner counts once, with the line that begins there. A line has one pixel for each row or column of its longer side,
 * and the same pixels in both directions. amounts is [n]; the last one is not used. sums is [height, width]. */
NAPIER_API napier_status napier_umap_raster_lines(napier_context *context, const napier_umap_frame *frame,
                                                  napier_const_matrix places, const int32_t *amounts, int64_t *sums);

/* ---- How good is a map? ------------------------------------------------------------------------------------------*/

typedef struct napier_umap_quality {
    double trustworthiness;       /* Venna and Kaski, 2001, as in scikit-learn; 1 if there are no false neighbours */
    double neighbor_preservation; /* share of the n_neighbors nearest that are also among the nearest on the map */
    double knn_accuracy;          /* share of points whose n_neighbors nearest on the map vote for their label; NaN if
                                     labels is NULL */
} napier_umap_quality;

/* Compares the neighbours of points in the data and on the map. Points whose row of the embedding is NaN (disconnected)
 * are left out; n counts the others. 1 <= n_neighbors < n / 2, not counting the point itself. labels is [n] or NULL.
 * `rows` is the number of points to evaluate, spread evenly over all; 0: all, at a cost that grows with n^2. The ranks
 * are exact. */
NAPIER_API napier_status napier_umap_quality_of(napier_context *context, napier_umap_samples samples,
                                                const napier_neighbors_options *options, napier_const_matrix embedding,
                                                const int32_t *labels, int64_t rows, napier_umap_quality *out);

#ifdef __cplusplus
}
#endif
#endif
