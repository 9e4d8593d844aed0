/* fuzz_umap_model - bytes that claim to be a fitted map or an optimizer. Raw bytes, or a true map whose bytes are
 * overwritten here and there and whose checksum is made right again, so that the checks behind it are reached. What is taken
 * must save as the same bytes and place a point. */
#include <napier/umap.h>

#include "fuzz.h"

enum { POINTS = 12, COLS = 3 };

/* A fitted map of a dozen points, as bytes; made once. */
static const unsigned char *true_map(napier_context *context, size_t *size) {
    static unsigned char bytes[4096];
    static size_t made;
    if (made == 0) {
        float x[POINTS * COLS];
        for (int i = 0; i < POINTS * COLS; i++) {
            x[i] = (float)((i * 37) % 11);
        }
        napier_umap_options options = NAPIER_UMAP_OPTIONS_INIT;
        options.neighbors.n_neighbors = 4;
        options.n_epochs = 5;
        napier_umap_model *model = NULL;
        const napier_umap_samples samples = {napier_const_rows_f32(x, POINTS, COLS), NULL};
        REQUIRE_OK(context, napier_umap_fit(context, samples, &options, &model));
        REQUIRE_OK(context, napier_umap_model_to_bytes(context, model, bytes, sizeof bytes, &made));
        REQUIRE(made <= sizeof bytes, "%zu bytes", made);
        napier_umap_model_destroy(context, model);
    }
    *size = made;
    return bytes;
}

static void check_map(napier_context *context, const unsigned char *bytes, size_t size) {
    napier_umap_model *model = NULL;
    const napier_status status = napier_umap_model_from_bytes(context, bytes, size, &model);
    if (!MADE(context, status, model != NULL, NAPIER_CORRUPT_DATA, NAPIER_OUT_OF_MEMORY)) {
        return;
    }
    size_t again_size = 0;
    unsigned char *const again = fuzz_allocate(size);
    REQUIRE_OK(context, napier_umap_model_to_bytes(context, model, again, size, &again_size));
    REQUIRE(again_size == size, "%zu bytes came back as %zu", size, again_size);
    free(again);
    const int64_t cols = napier_umap_model_features(model);
    const napier_const_matrix map = napier_umap_model_embedding(model);
    if (cols <= 64 && map.rows <= 1000) {
        float point[NAPIER_UMAP_MOST_COMPONENTS] = {0.5f}, place[NAPIER_UMAP_MOST_COMPONENTS];
        const napier_umap_samples samples = {napier_const_rows_f32(point, 1, cols), NULL};
        const napier_status placed =
            napier_umap_transform(context, model, samples, napier_rows_f32(place, 1, map.cols));
        REQUIRE(placed == NAPIER_OK || placed == NAPIER_INVALID_ARGUMENT || placed == NAPIER_UNSUPPORTED, "status %d",
                (int)placed);
    }
    napier_umap_model_destroy(context, model);
}

FUZZ(in) {
    napier_context *const context = fuzz_context(NAPIER_ISA_AUTO, 1);
    napier_umap_optimizer *optimizer = NULL;
    check_map(context, in.at, in.left);
    if (napier_umap_optimizer_from_bytes(context, in.at, in.left, &optimizer) == NAPIER_OK) {
        napier_umap_optimizer_destroy(context, optimizer);
    }
    size_t whole;
    const unsigned char *const map = true_map(context, &whole);
    unsigned char *const bytes = fuzz_allocate(whole);
    memcpy(bytes, map, whole);
    for (size_t i = 0; i + 3 <= in.left; i += 3) { /* place, place, value */
        bytes[((size_t)in.at[i] << 8 | in.at[i + 1]) % (whole - 8)] = in.at[i + 2];
    }
    fuzz_checksum(bytes, whole);
    check_map(context, bytes, whole);
    free(bytes);
}
