/* umap - maps of data, in one call or stage by stage: the functions of napier/umap.h. */
#include "example.h"

/* Three groups of ten points in four dimensions. */
enum { POINTS = 30, COLUMNS = 4, NEIGHBORS = 5 };
static float data[POINTS][COLUMNS];

static napier_umap_samples samples_of(const float *rows, int64_t count) {
    const napier_umap_samples samples = {.dense = napier_const_rows_f32(rows, count, COLUMNS)};
    return samples;
}

static napier_umap_options few_neighbors(void) {
    napier_umap_options options = NAPIER_UMAP_OPTIONS_INIT;
    options.neighbors.n_neighbors = NEIGHBORS;
    options.n_epochs = 50;
    return options;
}

static napier_umap_model *fit(napier_context *context) {
    const napier_umap_options options = few_neighbors();
    napier_umap_model *model = NULL;
    EXPECT(napier_umap_fit(context, samples_of(data[0], POINTS), &options, &model) == NAPIER_OK);
    return model;
}

/* A map in one call. How good it is: the share of neighbours that are neighbours on the map too, and so on. */
static void map_in_one_call(napier_context *context) {
    napier_umap_options umap = NAPIER_UMAP_OPTIONS_INIT;
    umap.neighbors.n_neighbors = NEIGHBORS;
    napier_umap_model *model = NULL;
    EXPECT(napier_umap_fit(context, samples_of(data[0], POINTS), &umap, &model) == NAPIER_OK);
    const napier_const_matrix embedding = napier_umap_model_embedding(model);
    napier_umap_quality quality;
    EXPECT(embedding.rows == POINTS && embedding.cols == 2 && napier_umap_disconnected(embedding) == 0 &&
           napier_umap_model_indistinct(model) == 0);
    napier_neighbors_options options = NAPIER_NEIGHBORS_OPTIONS_INIT;
    options.n_neighbors = NEIGHBORS;
    EXPECT(napier_umap_quality_of(context, samples_of(data[0], POINTS), &options, embedding, NULL, 0, &quality) ==
           NAPIER_OK);
    printf("trustworthiness %.2f\n", quality.trustworthiness);
    EXPECT(quality.trustworthiness > 0.8);
    napier_umap_model_destroy(context, model);
}

/* New points on a fitted map: a point lands near its group. The way back gives a mean of the data there. */
static void new_points_on_a_map(napier_context *context) {
    napier_umap_model *const model = fit(context);
    float place[2], back[COLUMNS];
    EXPECT(napier_umap_model_features(model) == COLUMNS);
    EXPECT(napier_umap_transform(context, model, samples_of(data[12], 1), napier_rows_f32(place, 1, 2)) == NAPIER_OK);
    EXPECT(napier_umap_inverse_transform(context, model, napier_const_rows_f32(place, 1, 2),
                                         napier_rows_f32(back, 1, COLUMNS)) == NAPIER_OK);
    EXPECT(fabsf(back[0] - data[12][0]) < 2);
    napier_umap_model_destroy(context, model);
}

/* A map as a file, and as bytes in memory. The same bytes on every machine. */
static void save_and_load_a_map(napier_context *context) {
    napier_umap_model *const model = fit(context);
    napier_umap_model *loaded = NULL, *copy = NULL;
    EXPECT(napier_umap_model_save(context, model, "example_umap.map") == NAPIER_OK);
    EXPECT(napier_umap_model_load(context, "example_umap.map", &loaded) == NAPIER_OK);
    remove("example_umap.map");

    size_t size;
    EXPECT(napier_umap_model_to_bytes(context, loaded, NULL, 0, &size) == NAPIER_OK);
    uint8_t *const bytes = malloc(size);
    EXPECT(bytes && napier_umap_model_to_bytes(context, loaded, bytes, size, &size) == NAPIER_OK);
    EXPECT(napier_umap_model_from_bytes(context, bytes, size, &copy) == NAPIER_OK);
    EXPECT(memcmp(napier_umap_model_embedding(copy).data, napier_umap_model_embedding(model).data,
                  POINTS * 2 * sizeof(float)) == 0);
    free(bytes);
    napier_umap_model_destroy(context, copy);
    napier_umap_model_destroy(context, loaded);
    napier_umap_model_destroy(context, model);
}

/* A map that was made elsewhere becomes a model, so that it can place new points. */
static void model_of_a_given_map(napier_context *context) {
    const napier_umap_options options = few_neighbors();
    float embedding[POINTS][2], place[2];
    for (int i = 0; i < POINTS; i++) {
        embedding[i][0] = data[i][0], embedding[i][1] = data[i][1];
    }
    napier_umap_model *model = NULL;
    EXPECT(napier_umap_model_create(context, samples_of(data[0], POINTS), &options,
                                    napier_const_rows_f32(embedding[0], POINTS, 2), &model) == NAPIER_OK);
    EXPECT(napier_umap_transform(context, model, samples_of(data[3], 1), napier_rows_f32(place, 1, 2)) == NAPIER_OK);
    EXPECT(fabsf(place[0] - data[3][0]) < 5);
    napier_umap_model_destroy(context, model);
}

/* Metrics have umap-learn's names. From some distance on, points with nothing in common are no neighbours. */
static void look_up_metrics(napier_context *context) {
    EXPECT(napier_metric_from_name("cosine") == NAPIER_METRIC_COSINE && napier_metric_from_name("cosinus") == -1);
    EXPECT(strcmp(napier_metric_name(NAPIER_METRIC_HAVERSINE), "haversine") == 0);
    EXPECT(napier_metric_disconnection(NAPIER_METRIC_JACCARD) == 1);
}

/* The nearest points of points: of the data's own rows each is its first neighbour, of new rows none is. */
static void nearest_points(napier_context *context) {
    napier_neighbors_options options = NAPIER_NEIGHBORS_OPTIONS_INIT;
    options.n_neighbors = 2;
    int32_t indices[POINTS][2], nearest[2];
    float distances[POINTS][2], far[2];
    EXPECT(napier_nearest_neighbors(context, samples_of(data[0], POINTS), &options, indices[0], distances[0]) ==
           NAPIER_OK);
    EXPECT(indices[7][0] == 7 && distances[7][0] == 0 && indices[7][1] != 7);
    const float query[COLUMNS] = {0, 0, 0, 0};
    EXPECT(napier_nearest_neighbors_of(context, samples_of(data[0], POINTS), samples_of(query, 1), &options, nearest,
                                       far) == NAPIER_OK);
    EXPECT(nearest[0] < 10 && far[0] <= far[1]); /* in the first group */
}

/* The stages, one after the other. With the same options they give the bits of napier_umap_fit. */
static void map_in_stages(napier_context *context) {
    const napier_umap_options options = few_neighbors();
    int32_t indices[POINTS][NEIGHBORS];
    float distances[POINTS][NEIGHBORS], embedding[POINTS][2];
    const napier_matrix map = napier_rows_f32(embedding[0], POINTS, 2);
    napier_umap_graph *graph = NULL;
    EXPECT(napier_nearest_neighbors(context, samples_of(data[0], POINTS), &options.neighbors, indices[0],
                                    distances[0]) == NAPIER_OK);
    EXPECT(napier_umap_fuzzy_simplicial_set(context, indices[0], distances[0], POINTS, NEIGHBORS, 1, 1, &graph) ==
           NAPIER_OK);
    EXPECT(napier_umap_spectral_layout(context, graph, samples_of(data[0], POINTS), options.seed, map) == NAPIER_OK);
    EXPECT(napier_umap_optimize_layout(context, graph, &options, map) == NAPIER_OK);
    napier_umap_graph_destroy(context, graph);

    napier_umap_model *const model = fit(context);
    EXPECT(memcmp(embedding, napier_umap_model_embedding(model).data, sizeof embedding) == 0);
    napier_umap_model_destroy(context, model);
}

/* Other starts of a layout: the first principal components, or random places. */
static void other_starts(napier_context *context) {
    float components[POINTS][2], places[POINTS][2];
    EXPECT(napier_umap_pca_layout(context, samples_of(data[0], POINTS), 42,
                                  napier_rows_f32(components[0], POINTS, 2)) == NAPIER_OK);
    EXPECT(napier_umap_random_layout(context, 42, napier_rows_f32(places[0], POINTS, 2)) == NAPIER_OK);
    EXPECT(fabsf(components[5][0]) < 10.01F && fabsf(places[5][0]) <= 10);
}

/* A point's own scale: sigma is such that the memberships of its neighbours add up to log2(n_neighbors). */
static void scale_of_a_point(napier_context *context) {
    const float distances[] = {0, 1, 2, 3};
    float rho, sigma;
    EXPECT(napier_umap_smooth_knn_dist(context, distances, 1, 4, 1, &rho, &sigma) == NAPIER_OK);
    EXPECT(rho == 1 && fabs(1 + exp(-1 / (double)sigma) + exp(-2 / (double)sigma) - 2) < 1e-4);
}

/* Known labels, numbers, or distances between targets pull the graph apart where the targets differ. A label below 0 is
 * unknown. */
static void join_targets(napier_context *context) {
    const napier_umap_edge edges[] = {{0, 1, 1}, {0, 2, 1}, {1, 0, 1}, {2, 0, 1}, {2, 3, 1}, {3, 2, 1}};
    const int32_t labels[] = {0, 0, 1, -1};
    const float numbers[] = {1, 1.5F, 8, 9}, distances[] = {0, 3, 0, 3, 0, 0};
    napier_umap_graph *graph = NULL;
    EXPECT(napier_umap_graph_from_edges(context, edges, 6, 4, &graph) == NAPIER_OK);
    EXPECT(napier_umap_join_distances(context, &graph, distances, 0.5) == NAPIER_OK);
    EXPECT(napier_umap_join_categories(context, &graph, labels, 0.5) == NAPIER_OK);
    EXPECT(graph->weights[0] == 1 && graph->weights[1] < 0.01F); /* from 0 to 1, and from 0 to 2 */
    EXPECT(napier_umap_join_numbers(context, &graph, numbers, 2, 0.5) == NAPIER_OK);
    napier_umap_graph_destroy(context, graph);
}

/* Two views of the same points in one graph: what either holds to be near. */
static void combine_two_views(napier_context *context) {
    const napier_umap_edge one[] = {{0, 1, 1}, {1, 0, 1}}, two[] = {{1, 2, 1}, {2, 1, 1}};
    napier_umap_graph *left = NULL, *right = NULL, *both = NULL;
    EXPECT(napier_umap_graph_from_edges(context, one, 2, 3, &left) == NAPIER_OK);
    EXPECT(napier_umap_graph_from_edges(context, two, 2, 3, &right) == NAPIER_OK);
    EXPECT(napier_umap_combine(context, NAPIER_UMAP_UNION, left, right, 0.5, 0, &both) == NAPIER_OK);
    EXPECT(both->starts[3] == 4 && both->weights[0] == 1);
    napier_umap_graph_destroy(context, both);
    napier_umap_graph_destroy(context, right);
    napier_umap_graph_destroy(context, left);
}

/* The parameters of the curve, from the two numbers that users choose. */
static void curve_of_min_dist(napier_context *context) {
    napier_umap_params params = NAPIER_UMAP_PARAMS_INIT;
    EXPECT(napier_umap_find_ab_params(context, 0.1, 1, &params.a, &params.b) == NAPIER_OK);
    EXPECT(fabsf(params.a - 1.577F) < 1e-3F && fabsf(params.b - 0.895F) < 1e-3F);
}

/* Own edges in own loops: the forces along edges, their sums for each vertex, and one step of the map. The two calls in
 * the middle are what napier_umap_gradients does at once. */
static void attract_along_edges(napier_context *context) {
    napier_umap_edge edges[] = {{1, 0, 1}, {0, 1, 1}};
    float embedding[2][2] = {{0, 0}, {1, 0}}, forces[2][2], sums[2][2], gradients[2][2];
    int64_t starts[2], counts[2];
    const napier_matrix map = napier_rows_f32(embedding[0], 2, 2), no_forces = {.dtype = NAPIER_F32};
    EXPECT(napier_umap_sort_edges(context, edges, 2) == NAPIER_OK);
    EXPECT(napier_umap_segments(context, edges, 2, 2, starts, counts) == NAPIER_OK);
    EXPECT(napier_umap_edge_gradients(context, NULL, napier_read_only(map), edges, 2, napier_rows_f32(forces[0], 2, 2),
                                      no_forces) == NAPIER_OK);
    EXPECT(napier_umap_reduce_segments(context, napier_const_rows_f32(forces[0], 2, 2), starts, counts,
                                       napier_rows_f32(sums[0], 2, 2)) == NAPIER_OK);
    EXPECT(napier_umap_gradients(context, NULL, napier_read_only(map), edges, 2, 0,
                                 napier_rows_f32(gradients[0], 2, 2)) == NAPIER_OK);
    EXPECT(sums[0][0] > 0 && memcmp(sums, gradients, sizeof sums) == 0);
    EXPECT(napier_umap_apply(context, 0.1F, napier_const_rows_f32(gradients[0], 2, 2), map) == NAPIER_OK);
    EXPECT(embedding[1][0] - embedding[0][0] < 1);
}

/* Negative samples push points apart, and the loss says how well a map fits its graph. */
static void repel_from_samples(napier_context *context) {
    enum { RATE = 3 };
    const napier_umap_edge edges[] = {{0, 1, 1}, {1, 0, 1}};
    const float embedding[3][2] = {{0, 0}, {1, 0}, {5, 5}};
    uint32_t targets[3][RATE];
    float gradients[3][2];
    double loss;
    const napier_const_matrix map = napier_const_rows_f32(embedding[0], 3, 2);
    EXPECT(napier_umap_negative_targets(context, 42, 0, 3, RATE, targets[0]) == NAPIER_OK);
    EXPECT(napier_umap_negative_gradients(context, NULL, map, targets[0], RATE, napier_rows_f32(gradients[0], 3, 2)) ==
           NAPIER_OK);
    EXPECT(napier_umap_loss(context, NULL, map, edges, 2, targets[0], RATE, &loss) == NAPIER_OK);
    EXPECT(gradients[2][0] >= 0 && loss > 0);
}

/* Epochs with an optimizer whose state is kept. As bytes it can wait in a checkpoint: the second half goes on as if
 * there had been no pause. */
static void optimize_in_two_halves(napier_context *context) {
    const napier_umap_edge edges[] = {{0, 1, 1}, {1, 0, 1}};
    float embedding[2][2] = {{0, 0}, {5, 0}};
    napier_umap_optimizer *optimizer = NULL, *restored = NULL;
    napier_umap_epochs epochs = NAPIER_UMAP_EPOCHS_INIT;
    epochs.total = 20;
    epochs.count = 10;
    const napier_matrix map = napier_rows_f32(embedding[0], 2, 2);
    EXPECT(napier_umap_optimizer_create(context, NULL, 2, 2, &optimizer) == NAPIER_OK);
    EXPECT(napier_umap_optimize_epochs(context, NULL, &epochs, edges, 2, NULL, optimizer, map) == NAPIER_OK);

    uint8_t bytes[256];
    size_t size;
    EXPECT(napier_umap_optimizer_to_bytes(context, optimizer, bytes, sizeof bytes, &size) == NAPIER_OK);
    EXPECT(size <= sizeof bytes && napier_umap_optimizer_from_bytes(context, bytes, size, &restored) == NAPIER_OK);
    epochs.first = 10;
    EXPECT(napier_umap_optimize_epochs(context, NULL, &epochs, edges, 2, NULL, restored, map) == NAPIER_OK);
    EXPECT(fabsf(embedding[1][0] - embedding[0][0]) < 5);
    napier_umap_optimizer_destroy(context, restored);
    napier_umap_optimizer_destroy(context, optimizer);
}

/* A picture of more points than pixels: how many points, and how many of each kind, a pixel has. Lines add their amount to
 * each pixel on them. */
static void picture_of_points(napier_context *context) {
    const napier_umap_frame frame = {.left = 0, .right = 2, .bottom = 0, .top = 2, .width = 2, .height = 2};
    const float places[3][2] = {{0.5F, 0.5F}, {0.6F, 0.4F}, {1.5F, 1.5F}};
    const int32_t kinds[] = {0, 1, 1}, amounts[2][2] = {{1, 0}, {0, 1}}, weights[] = {5, 7, 0};
    int64_t counts[2][2][2], lines[2][2]; /* row 0 is at the top */
    const napier_const_matrix map = napier_const_rows_f32(places[0], 3, 2);
    EXPECT(napier_umap_raster_points(context, &frame, map, kinds, amounts[0], 2, 2, counts[0][0]) == NAPIER_OK);
    EXPECT(counts[1][0][0] == 1 && counts[1][0][1] == 1 && counts[0][1][1] == 1 && counts[0][0][1] == 0);
    EXPECT(napier_umap_raster_lines(context, &frame, map, weights, lines[0]) == NAPIER_OK);
    EXPECT(lines[0][1] == 7 && lines[1][1] == 0);
}

int main(void) {
    for (int i = 0; i < POINTS * COLUMNS; i++) {
        data[i / COLUMNS][i % COLUMNS] = (float)(10 * (i / COLUMNS / 10)) + (float)(i * 37 % 17) / 17;
    }
    return run_examples((example *const[]){
        map_in_one_call, new_points_on_a_map, save_and_load_a_map, model_of_a_given_map, look_up_metrics,
        nearest_points, map_in_stages, other_starts, scale_of_a_point, join_targets, combine_two_views,
        curve_of_min_dist, attract_along_edges, repel_from_samples, optimize_in_two_halves, picture_of_points, NULL});
}
