/* napier/umap.h - UMAP: from a matrix to a map, stage by stage or in one call.
 *
 *     nearest_neighbors -> smooth_knn_dist -> fuzzy_simplicial_set -> spectral_layout -> optimize_layout
 *
 * napier_umap_fit runs them all; each is a public call too, named as umap-learn names it, and so are the primitives
 * below it: edge gradients, segmented reduction, negative samples, one epoch of an optimizer, the loss.
 *
 * Bits. For given input and options every result has the same bits for any thread count, instruction set and compiler.
 * Random numbers are counter-based: a draw is a function of (seed, epoch, vertex, number of the draw) and nothing else.
 *
 * Embeddings are f32, contiguous [n, n_components] (row_stride = cols, col_stride = 1), 1 to 50 components; anything
 * else is INVALID_ARGUMENT. Vertices and points count from 0 and are fewer than 2^31. NaN or inf in data, weights,
 * distances or an embedding is INVALID_ARGUMENT, and the text names the place, unless a call says otherwise.
 *
 * Pointers may be NULL only where a comment says so, or where there is nothing to point at; `params` and `options` NULL
 * mean all defaults. What a call makes (`out`) is the caller's, who destroys it with the same context; *out is NULL on
 * an error. Outputs overlap neither inputs nor one another. Thread safety: one context per thread; finished graphs and
 * models may be read by several threads at once. On an error outputs are untouched unless a call says otherwise. Any
 * call that needs memory may return OUT_OF_MEMORY.
 *
 * Source: McInnes, Healy and Melville, "UMAP: Uniform Manifold Approximation and Projection", 2018; docs/umap.md. */
#ifndef NAPIER_UMAP_H
#define NAPIER_UMAP_H

#include <napier/types.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { NAPIER_UMAP_MOST_COMPONENTS = 50 };

/* ---- The curve and the forces ------------------------------------------------------------------------------------
 * In the map, points at distance d are joined with q(d) = 1 / (1 + a d^2b). Forces are displacements: what is added to a
 * point, that is minus the gradient of the loss (napier_umap_loss).
 *     attraction on i along an edge (i, j):    -2 a b d^2(b-1) / (1 + a d^2b) (y_i - y_j), 0 where d = 0
 *     repulsion of i from a sample j:   2 repulsion b / ((epsilon + d^2) (1 + a d^2b)) (y_i - y_j), 0 where d = 0
 * Each component is clipped to +-clip, then, if max_norm is not 0, the vector is shortened to max_norm.
 * Powers are computed in f32 to about 2^-20 relative; sums run in a fixed order. */
typedef struct napier_umap_params {
    size_t struct_size;           /* sizeof(napier_umap_params) */
    float a, b;                   /* both finite and > 0; default: the fit for min_dist 0.1, spread 1 */
    float learning_rate;          /* > 0; default 1 */
    int32_t negative_sample_rate; /* samples per vertex or per edge, 0 to 1000; default 5 */
    float repulsion_strength;     /* gamma, >= 0; default 1 */
    float epsilon;                /* > 0; default 0.001 */
    float clip;                   /* of each component of each force; 0: none; default 4 */
    float max_norm;               /* of each force; 0: none (default) */
} napier_umap_params;

#define NAPIER_UMAP_PARAMS_INIT \
    { sizeof(napier_umap_params), 1.57694346f, 0.895060879f, 1.0f, 5, 1.0f, 0.001f, 4.0f, 0.0f }

/* *a and *b: those whose curve is nearest (least squares on 300 points of [0, 3 spread]) to 1 up to min_dist and
 * exp(-(d - min_dist) / spread) beyond. 0 <= min_dist <= spread, spread > 0, else INVALID_ARGUMENT. Within 2e-4 of
 * umap-learn's find_ab_params. */
NAPIER_API napier_status napier_umap_find_ab_params(napier_context *context, double min_dist, double spread, float *a,
                                                    float *b);

/* ---- Edges -------------------------------------------------------------------------------------------------------*/

typedef struct napier_umap_edge {
    uint32_t source, target; /* one and the same vertex: no force */
    float weight;            /* finite, >= 0; 0 is as good as no edge */
} napier_umap_edge;

/* Sorts by source, then target, then weight: the order in which the calls below want edges, so that the order in which
 * a caller lists them never changes a bit. In place; checks nothing but `edges` and `count`. */
NAPIER_API napier_status napier_umap_sort_edges(napier_context *context, napier_umap_edge *edges, int64_t count);

/* Edge e of vertex v is edges[starts[v] + e], e < counts[v]; both arrays have n elements, vertices without edges
 * included. Errors: edges not sorted, a vertex >= n, a weight that is negative or not finite; the text names the edge. */
NAPIER_API napier_status napier_umap_segments(napier_context *context, const napier_umap_edge *edges, int64_t count,
                                              int64_t n, int64_t *starts, int64_t *counts);

/* A weighted graph in rows (CSR): the neighbours of v are targets[starts[v]] .. targets[starts[v + 1] - 1], ascending. */
typedef struct napier_umap_graph {
    int64_t n;       /* vertices */
    int64_t *starts; /* [n + 1] */
    uint32_t *targets;
    float *weights;
} napier_umap_graph;

/* Sorted edges as a graph, checked as by napier_umap_segments; edges of weight 0 are left out. destroy takes NULL too. */
NAPIER_API napier_status napier_umap_graph_from_edges(napier_context *context, const napier_umap_edge *edges,
                                                      int64_t count, int64_t n, napier_umap_graph **out);
NAPIER_API void napier_umap_graph_destroy(napier_context *context, napier_umap_graph *graph);

/* ---- Primitives --------------------------------------------------------------------------------------------------*/

/* The forces of each edge on its source and on its target (the opposite), times its weight, without the learning rate:
 * both [count, n_components], contiguous f32; either may have data NULL. What optimize_epochs does without storing
 * them. */
NAPIER_API napier_status napier_umap_edge_gradients(napier_context *context, const napier_umap_params *params,
                                                    napier_const_matrix embedding, const napier_umap_edge *edges,
                                                    int64_t count, napier_matrix source_gradients,
                                                    napier_matrix target_gradients);

/* gradients[v] = sum of edge_gradients[starts[v]] .. of vertex v: [n, n_components]. */
NAPIER_API napier_status napier_umap_reduce_segments(napier_context *context, napier_const_matrix edge_gradients,
                                                     const int64_t *starts, const int64_t *counts,
                                                     napier_matrix gradients);

/* The attractive forces on every vertex: of its own edges, and with move_targets also of the edges that end in it (for
 * lists that name each pair once; a symmetric list would count twice). Same bits as the two calls above. */
NAPIER_API napier_status napier_umap_gradients(napier_context *context, const napier_umap_params *params,
                                               napier_const_matrix embedding, const napier_umap_edge *edges,
                                               int64_t count, int move_targets, napier_matrix gradients);

/* embedding += learning_rate * gradients, one fma an element; both [n, n_components]. */
NAPIER_API napier_status napier_umap_apply(napier_context *context, float learning_rate, napier_const_matrix gradients,
                                           napier_matrix embedding);

/* The targets of an epoch: targets[v * rate + s] is draw s of vertex v, evenly from 0 .. n - 1 (it may be v: skipped
 * where it is used). [n, rate]; rate 0 to 1000, epoch 0 to 2^31 - 1. */
NAPIER_API napier_status napier_umap_negative_targets(napier_context *context, uint64_t seed, int64_t epoch, int64_t n,
                                                      int64_t rate, uint32_t *targets);

/* The repulsive forces on every vertex from `rate` targets each ([n, rate]; j = i skipped; j >= n an error), all read
 * from the same embedding. */
NAPIER_API napier_status napier_umap_negative_gradients(napier_context *context, const napier_umap_params *params,
                                                        napier_const_matrix embedding, const uint32_t *targets,
                                                        int64_t rate, napier_matrix gradients);

/* loss = - sum over edges of w log q(d) - repulsion sum over negatives of log(1 - q(d)), where 1 - q is taken at d^2 +
 * epsilon, so that it is not 0. Its gradient is minus the forces, but for their clipping, and for epsilon, which the
 * repulsion has in one of its two factors only. targets [n, rate], or NULL and rate 0. Summed in double. */
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

/* Velocity or moments of n points, and the steps taken; the caller keeps it across calls. A call that is given it
 * changes it: one thread at a time. beta, beta1 and beta2 lie in [0, 1), eps is > 0. */
typedef struct napier_umap_optimizer napier_umap_optimizer;

NAPIER_API napier_status napier_umap_optimizer_create(napier_context *context,
                                                      const napier_umap_optimizer_options *options, int64_t n,
                                                      int64_t n_components, napier_umap_optimizer **out);
NAPIER_API void napier_umap_optimizer_destroy(napier_context *context, napier_umap_optimizer *optimizer);
/* As bytes, little endian, with a checksum: *size is the size, and bytes are written if `capacity` holds them (NULL and
 * 0: to ask for the size). from_bytes: CORRUPT_DATA where they are no optimizer. */
NAPIER_API napier_status napier_umap_optimizer_to_bytes(napier_context *context, const napier_umap_optimizer *optimizer,
                                                        uint8_t *bytes, size_t capacity, size_t *size);
NAPIER_API napier_status napier_umap_optimizer_from_bytes(napier_context *context, const uint8_t *bytes, size_t size,
                                                          napier_umap_optimizer **out);

/* Which edges act in an epoch. */
typedef enum napier_umap_edge_use {
    NAPIER_UMAP_EDGES_WEIGHTED = 0, /* all, each force times weight / largest weight */
    NAPIER_UMAP_EDGES_SAMPLED = 1   /* each in weight / largest weight of the epochs, evenly spread, at full force */
} napier_umap_edge_use;

/* Where all edges act by weight and the rate counts per edge, one sample is drawn for up to four, and counts for them. */
typedef enum napier_umap_rate_per {
    NAPIER_UMAP_RATE_PER_EDGE = 0, /* negative_sample_rate counts for each edge that acts (its share, where weighted) */
    NAPIER_UMAP_RATE_PER_VERTEX = 1 /* for each vertex, in each epoch */
} napier_umap_rate_per;

typedef struct napier_umap_epochs {
    size_t struct_size;
    int64_t first, count,
        total; /* epochs first .. first + count - 1 of total; the rate is learning_rate (1 - epoch / total) */
    uint64_t seed;
    napier_umap_edge_use edge_use;
    napier_umap_rate_per rate_per;
    int move_targets;          /* default 1; 0 for symmetric lists, whose forces then count twice */
    napier_progress *progress; /* may be NULL; stage "layout" */
    void *user;
} napier_umap_epochs;

#define NAPIER_UMAP_EPOCHS_INIT \
    { sizeof(napier_umap_epochs), 0, 1, 1, 42, NAPIER_UMAP_EDGES_WEIGHTED, NAPIER_UMAP_RATE_PER_EDGE, 1, NULL, NULL }

/* Epochs over sorted edges, in place; total is at most 2^22 - 1. All forces of an epoch are computed from the embedding
 * at its start. targets: [n, rate] given by the caller for every epoch (rate per vertex), or NULL: drawn from (seed,
 * epoch). On CANCELLED embedding and optimizer are those after the last whole epoch. */
NAPIER_API napier_status napier_umap_optimize_epochs(napier_context *context, const napier_umap_params *params,
                                                     const napier_umap_epochs *epochs, const napier_umap_edge *edges,
                                                     int64_t count, const uint32_t *targets,
                                                     napier_umap_optimizer *optimizer, napier_matrix embedding);

/* ---- Neighbours --------------------------------------------------------------------------------------------------*/

/* A matrix in rows of (column, value): columns ascending within a row. */
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

/* The names and definitions of umap-learn (and SciPy). Boolean ones look at x != 0. Every value must be finite,
 * whatever the metric, precomputed distances too: NaN or inf is INVALID_ARGUMENT, and the text names row and column. */
typedef enum napier_metric {
    NAPIER_METRIC_EUCLIDEAN = 0,
    NAPIER_METRIC_MANHATTAN = 1,
    NAPIER_METRIC_CHEBYSHEV = 2,
    NAPIER_METRIC_MINKOWSKI = 3, /* p */
    NAPIER_METRIC_COSINE = 4,
    NAPIER_METRIC_CORRELATION = 5,
    NAPIER_METRIC_CANBERRA = 6,
    NAPIER_METRIC_BRAYCURTIS = 7,
    NAPIER_METRIC_HELLINGER = 8,    /* no negative values */
    NAPIER_METRIC_HAVERSINE = 9,    /* two columns: latitude and longitude in radians; an error beyond +-1e6 */
    NAPIER_METRIC_SEUCLIDEAN = 10,  /* variances, > 0; of those from the data, columns that never vary are left out */
    NAPIER_METRIC_MAHALANOBIS = 11, /* inverse covariance; at most 32,768 columns; an error if the data's is singular */
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
    NAPIER_METRIC_PRECOMPUTED = 22 /* samples are an [n, n] matrix of distances; sparse: what is missing is too far */
} napier_metric;

/* "euclidean" and so on, as umap-learn spells them; NULL for no metric. And back: -1 for no name. */
NAPIER_API const char *napier_metric_name(napier_metric metric);
NAPIER_API int napier_metric_from_name(const char *name);
/* The distance of two points that have nothing in common, which napier_umap_fit does not count as neighbours: 1 for
 * jaccard and dice, for hellinger 1 - 2^-18 and for cosine and correlation 2 - 2^-17 (1 and 2 less their rounding),
 * infinity for the others. */
NAPIER_API float napier_metric_disconnection(napier_metric metric);

typedef enum napier_neighbors_method {
    NAPIER_NEIGHBORS_AUTO = 0,      /* exact, or NN-descent where that is faster (docs/umap.md) */
    NAPIER_NEIGHBORS_EXACT = 1,     /* ties by index */
    NAPIER_NEIGHBORS_NN_DESCENT = 2 /* recall 0.99 by its own check of 256 rows; exact where it falls short */
} napier_neighbors_method;

typedef struct napier_neighbors_options {
    size_t struct_size;
    int64_t n_neighbors;  /* 2 to n; the point itself is the first; default 15 */
    napier_metric metric; /* default EUCLIDEAN */
    double p;             /* of minkowski, >= 1; default 2 */
    const float
        *metric_values; /* seuclidean: variances [cols]; mahalanobis: inverse covariance [cols, cols]; NULL: from
                                       the data */
    napier_neighbors_method method; /* default AUTO */
    uint64_t seed;                  /* of NN-descent; default 42 */
    napier_progress *progress;      /* may be NULL; stage "neighbours" */
    void *user;
} napier_neighbors_options;

#define NAPIER_NEIGHBORS_OPTIONS_INIT \
    { sizeof(napier_neighbors_options), 15, NAPIER_METRIC_EUCLIDEAN, 2.0, NULL, NAPIER_NEIGHBORS_AUTO, 42, NULL, NULL }

/* The n_neighbors nearest of every row, nearest first, ties by index, itself first: indices and distances
 * [n, n_neighbors], contiguous. Where fewer are reachable (precomputed sparse): index -1, distance +inf. */
NAPIER_API napier_status napier_nearest_neighbors(napier_context *context, napier_umap_samples samples,
                                                  const napier_neighbors_options *options, int32_t *indices,
                                                  float *distances);
/* The same among `samples` for other rows (`queries`); no row counts as itself, and n_neighbors may be 1. [queries,
 * n_neighbors]. */
NAPIER_API napier_status napier_nearest_neighbors_of(napier_context *context, napier_umap_samples samples,
                                                     napier_umap_samples queries,
                                                     const napier_neighbors_options *options, int32_t *indices,
                                                     float *distances);

/* ---- The fuzzy set and its start ---------------------------------------------------------------------------------*/

/* rhos[i]: distance to the nearest neighbour that counts as connected (local_connectivity, may be fractional);
 * sigmas[i]: the scale at which sum_j exp(-max(0, d_ij - rho_i) / sigma_i) = log2(n_neighbors), by 64 bisections, at
 * least 1e-3 of the mean distance (of the row, or of all where rho is 0). distances [n, n_neighbors], ascending, the
 * first that of the point itself, which is left out of the sum; +inf (no neighbour) is passed over; NaN, negative:
 * INVALID_ARGUMENT. */
NAPIER_API napier_status napier_umap_smooth_knn_dist(napier_context *context, const float *distances, int64_t n,
                                                     int64_t n_neighbors, double local_connectivity, float *rhos,
                                                     float *sigmas);

/* Memberships a_ij = exp(-max(0, d_ij - rho_i) / sigma_i), symmetrised: W = mix (A + A' - A.A') + (1 - mix) A.A', mix
 * being set_op_mix_ratio, 0 to 1; no vertex is joined with itself. indices and distances [n, n_neighbors] as
 * napier_nearest_neighbors gives them: -1 at +inf is no neighbour; one that a row names twice is INVALID_ARGUMENT. */
NAPIER_API napier_status napier_umap_fuzzy_simplicial_set(napier_context *context, const int32_t *indices,
                                                          const float *distances, int64_t n, int64_t n_neighbors,
                                                          double local_connectivity, double set_op_mix_ratio,
                                                          napier_umap_graph **out);

/* Supervision: the graph joined with what is known of the points. Categories: int32 [n], negative = unknown; edges
 * between different known categories weigh exp(-far_dist) of what they did, far_dist = 2.5 / (1 - target_weight), those
 * to an unknown one exp(-1). Numbers: float [n], finite; the fuzzy set of their n_neighbors nearest is joined with the
 * graph by target_weight. 0: the data decides, 1: the targets. Either way each vertex's largest weight is then 1 again.
 * As umap-learn. *graph, symmetric, is replaced; on an error it is as it was. */
NAPIER_API napier_status napier_umap_join_categories(napier_context *context, napier_umap_graph **graph,
                                                     const int32_t *categories, double target_weight);
NAPIER_API napier_status napier_umap_join_numbers(napier_context *context, napier_umap_graph **graph,
                                                  const float *numbers, int64_t n_neighbors, double target_weight);

/* Starts: embedding [n, n_components]; random is even in [-10, 10). The others are scaled so that the largest element is
 * +-10, and carry noise of standard deviation 1e-4 (triangular: the sum of two even draws), so that equal points can
 * part; before the noise the largest element of each component is positive. They always end; one point is at 0.
 * spectral: eigenvectors of the normalised Laplacian, of every connected component by itself; a component of at most
 *     2 n_components vertices is small and random. Up to 2 n_components components lie on the axes, more where the
 *     principal components of the centroids of their data are (or on a grid, where samples have no rows).
 * pca: the first principal components; those that do not exist are random within a tenth of the map. */
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
    NAPIER_UMAP_INIT_GIVEN = 3 /* options->init_embedding, as it is */
} napier_umap_init;

/* umap-learn's names and defaults. */
typedef struct napier_umap_options {
    size_t struct_size;
    napier_neighbors_options
        neighbors;               /* n_neighbors, metric, ...; more neighbours than points: as many as there are */
    const int32_t *knn_indices;  /* precomputed [n, n_neighbors], or NULL; n_neighbors <= n, each point first its own */
    const float *knn_distances;  /* the same; ascending; -1 at +inf is no neighbour */
    int64_t n_components;        /* 1 to 50; default 2 */
    int64_t n_epochs;            /* 0: by size (docs/umap.md) */
    double min_dist, spread;     /* 0.1, 1; ignored if a and b are given */
    double a, b;                 /* 0: fitted */
    double learning_rate;        /* 1 */
    double set_op_mix_ratio;     /* 1 */
    double local_connectivity;   /* 1 */
    double repulsion_strength;   /* 1 */
    double negative_sample_rate; /* 5 */
    napier_umap_init init;
    const float *init_embedding;      /* [n, n_components] */
    uint64_t seed;                    /* 42 */
    uint64_t transform_seed;          /* 42 */
    const int32_t *target_categories; /* [n] or NULL: supervised; negative: not known */
    const float *target_numbers;      /* [n] or NULL; at most one of the two is given */
    int64_t target_n_neighbors;       /* 0: n_neighbors */
    double target_weight;             /* 0.5 */
    int densmap;
    double dens_lambda, dens_frac, dens_var_shift; /* 2, 0.3, 0.1 */
    double disconnection_distance; /* a neighbour this far or farther is none; infinity: all are neighbours; 0
                                          (default): napier_metric_disconnection of the metric */
    napier_progress *progress;     /* stages "neighbours", "fuzzy set", "start", "layout" */
    void *user;
} napier_umap_options;

#define NAPIER_UMAP_OPTIONS_INIT                                                                                     \
    {                                                                                                                \
        sizeof(napier_umap_options), NAPIER_NEIGHBORS_OPTIONS_INIT, NULL, NULL, 2, 0, 0.1, 1.0, 0.0, 0.0, 1.0, 1.0,  \
            1.0, 1.0, 5.0, NAPIER_UMAP_INIT_SPECTRAL, NULL, 42, 42, NULL, NULL, 0, 0.5, 0, 2.0, 0.3, 0.1, 0.0, NULL, \
            NULL                                                                                                     \
    }

/* The layout of a symmetric graph, from the start in `embedding` [n, 1 to 50], in place: the default scheme of
 * napier_umap_fit. Of the options it reads n_epochs, the curve, learning_rate, repulsion_strength,
 * negative_sample_rate, seed and progress (not densmap, which needs distances). On CANCELLED the embedding is that
 * after the last whole epoch. */
NAPIER_API napier_status napier_umap_optimize_layout(napier_context *context, const napier_umap_graph *graph,
                                                     const napier_umap_options *options, napier_matrix embedding);

/* A fitted map: the data (a copy), the embedding and the options. */
typedef struct napier_umap_model napier_umap_model;

/* Fits a map of samples [n, cols], of which it keeps a copy. No points: INVALID_ARGUMENT; one point: at 0; fewer points
 * than n_neighbors: all are neighbours; equal points lie near one another. A point without a neighbour nearer than
 * disconnection_distance, whom no other has as its neighbour, is disconnected: its row is NaN, which is no error
 * (napier_umap_disconnected counts them). Every other element of the result is finite. Data whose distances overflow f32
 * (euclidean: from about 1e19 on) are INVALID_ARGUMENT: divide them by a power of two. */
NAPIER_API napier_status napier_umap_fit(napier_context *context, napier_umap_samples samples,
                                         const napier_umap_options *options, napier_umap_model **out);
NAPIER_API void napier_umap_model_destroy(napier_context *context, napier_umap_model *model);

/* The embedding [n, n_components], valid as long as the model; empty where model is NULL. */
NAPIER_API napier_const_matrix napier_umap_model_embedding(const napier_umap_model *model);
/* How many rows of an embedding (f32, contiguous) are NaN: points of a fit or of transform that are disconnected. 0 for
 * another dtype. */
NAPIER_API int64_t napier_umap_disconnected(napier_const_matrix embedding);
/* The columns that transform expects; 0 where model is NULL. */
NAPIER_API int64_t napier_umap_model_features(const napier_umap_model *model);

/* New points on a fitted map: samples [rows, features], dense or sparse; embedding [rows, n_components]. A row's result
 * depends on the model and that row only: not on the other rows, their number or order. A fitted point comes to lie
 * near its place, not on it; densMAP's forces do not act. A row without a neighbour that is nearer than
 * disconnection_distance and has a place on the map is NaN. UNSUPPORTED for precomputed distances. */
NAPIER_API napier_status napier_umap_transform(napier_context *context, const napier_umap_model *model,
                                               napier_umap_samples samples, napier_matrix embedding);

/* Points of the map [rows, n_components] back to data: samples [rows, features], f32 contiguous: the mean of the data
 * of the n_neighbors fitted points nearest on the map, weighted by their memberships there; points without a place are
 * left out. Each row by itself, as transform. INVALID_ARGUMENT where no point has a place; UNSUPPORTED for models of sparse data or of precomputed distances. */
NAPIER_API napier_status napier_umap_inverse_transform(napier_context *context, const napier_umap_model *model,
                                                       napier_const_matrix points, napier_matrix samples);

/* One file: little endian, with version and checksum, the same bytes on every machine. save writes it beside the path under
 * a name of its own, brings it to the disk and renames it: on an error (IO_ERROR) an older file is as it was, and two
 * writers do not disturb each other. An existing file keeps its mode, a symbolic link keeps pointing to it; a device or a
 * pipe is written where it is. load takes regular files only (IO_ERROR) and checks everything: a damaged or hostile file
 * is CORRUPT_DATA, never a crash. */
NAPIER_API napier_status napier_umap_model_save(napier_context *context, const napier_umap_model *model,
                                                const char *path);
NAPIER_API napier_status napier_umap_model_load(napier_context *context, const char *path, napier_umap_model **out);
/* The same in memory: *size is the size, and bytes are written if `capacity` holds them. */
NAPIER_API napier_status napier_umap_model_to_bytes(napier_context *context, const napier_umap_model *model,
                                                    uint8_t *bytes, size_t capacity, size_t *size);
NAPIER_API napier_status napier_umap_model_from_bytes(napier_context *context, const uint8_t *bytes, size_t size,
                                                      napier_umap_model **out);

/* ---- How good is a map? ------------------------------------------------------------------------------------------*/

typedef struct napier_umap_quality {
    double trustworthiness;       /* Venna and Kaski, 2001: 1 if no false neighbours; as scikit-learn's */
    double neighbor_preservation; /* share of the n_neighbors nearest that are still among the nearest on the map */
    double knn_accuracy;          /* of a vote of the n_neighbors nearest on the map; NaN where labels is NULL */
} napier_umap_quality;

/* Rows of the embedding that are NaN (disconnected points) are left out, of the data too; n counts the others.
 * 1 <= n_neighbors < n / 2, the point itself not counted; labels [n] or NULL. Rows: how many points are asked, spread
 * evenly over all; 0: all, for which the cost grows with n^2. The ranks are exact. */
NAPIER_API napier_status napier_umap_quality_of(napier_context *context, napier_umap_samples samples,
                                                const napier_neighbors_options *options, napier_const_matrix embedding,
                                                const int32_t *labels, int64_t rows, napier_umap_quality *out);

#ifdef __cplusplus
}
#endif
#endif
