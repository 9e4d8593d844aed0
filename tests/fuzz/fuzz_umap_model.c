/* fuzz_umap_model - bytes that claim to be a fitted map or an optimizer. Raw bytes, or a true map whose bytes are
 * overwritten here and there and whose checksum is made right again, so that the checks behind it are reached. What is taken
 * must save as the same bytes and place a point. */
#include <napier/umap.h>

#include "fuzz.h"

enum { POINTS = 12, COLS = 3 };

static uint64_t checksum(const unsigned char *bytes, size_t size) {
    uint64_t hash = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < size; i++) {
        hash = (hash ^ bytes[i]) * UINT64_C(1099511628211);
    }
    return hash;
}

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
        REQUIRE(napier_umap_fit(context, samples, &options, &model) == NAPIER_OK, "%s", napier_last_error(context));
        REQUIRE(napier_umap_model_to_bytes(context, model, bytes, sizeof bytes, &made) == NAPIER_OK, "%s",
                napier_last_error(context));
        REQUIRE(made <= sizeof bytes, "%zu bytes", made);
        napier_umap_model_destroy(context, model);
    }
    *size = made;
    return bytes;
}

static void check_map(napier_context *context, const unsigned char *bytes, size_t size) {
    napier_umap_model *model = NULL;
    const napier_status status = napier_umap_model_from_bytes(context, bytes, size, &model);
    REQUIRE(status == NAPIER_OK || status == NAPIER_CORRUPT_DATA || status == NAPIER_OUT_OF_MEMORY, "status %d",
            (int)status);
    REQUIRE((status == NAPIER_OK) == (model != NULL), "status %d, model %p", (int)status, (void *)model);
    if (!model) {
        return;
    }
    size_t again_size = 0;
    unsigned char *const again = fuzz_allocate(size);
    REQUIRE(napier_umap_model_to_bytes(context, model, again, size, &again_size) == NAPIER_OK, "%s",
            napier_last_error(context));
    REQUIRE(again_size == size, "%zu bytes came back as %zu", size, again_size);
    free(again);
    const int64_t cols = napier_umap_model_features(model);
    const napier_const_matrix map = napier_umap_model_embedding(model);
    if (cols <= 64 && map.rows <= 1000) {
        float point[64] = {0.5f}, place[NAPIER_UMAP_MOST_COMPONENTS];
        const napier_umap_samples samples = {napier_const_rows_f32(point, 1, cols), NULL};
        const napier_status placed =
            napier_umap_transform(context, model, samples, napier_rows_f32(place, 1, map.cols));
        REQUIRE(placed == NAPIER_OK || placed == NAPIER_INVALID_ARGUMENT || placed == NAPIER_UNSUPPORTED, "status %d",
                (int)placed);
    }
    napier_umap_model_destroy(context, model);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    napier_context *const context = fuzz_context(NAPIER_ISA_AUTO, 1);
    napier_umap_optimizer *optimizer = NULL;
    check_map(context, data, size);
    if (napier_umap_optimizer_from_bytes(context, data, size, &optimizer) == NAPIER_OK) {
        napier_umap_optimizer_destroy(context, optimizer);
    }
    size_t whole;
    const unsigned char *const map = true_map(context, &whole);
    unsigned char *const bytes = fuzz_allocate(whole);
    memcpy(bytes, map, whole);
    for (size_t i = 0; i + 3 <= size; i += 3) { /* place, place, value */
        bytes[((size_t)data[i] << 8 | data[i + 1]) % (whole - 8)] = data[i + 2];
    }
    const uint64_t sum = checksum(bytes, whole - 8);
    for (int i = 0; i < 8; i++) {
        bytes[whole - 8 + (size_t)i] = (unsigned char)(sum >> 8 * i);
    }
    check_map(context, bytes, whole);
    free(bytes);
    return 0;
}
