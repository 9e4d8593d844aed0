/* test_umap_stored - maps that earlier versions saved (unit/umap/stored) load, keep their bytes, and place new points where
 * they did. Formats 1 and 2 were written at commit a1c8aa95, whose transform gave these coordinates; format 3, by the first
 * version that has it. Cut off anywhere they are refused, also with a checksum that fits. */
#include "core/base/bytes.h"
#include "unit/umap/umap_support.h"

#include <stdio.h>

static napier_context *context;

enum { POINTS = 24, COLS = 3, NEW = 4, MOST = 8192, MOST_COMPONENTS = 3 };

static const struct {
    const char *name;
    int format, components;
    float places[NEW * MOST_COMPONENTS];
} stored[] = {
    {"plain",
     1,
     2,
     {-0x1.958c12p+2f, -0x1.12b560p+1f, 0x1.13ff18p+2f, 0x1.745ab0p+1f, 0x1.f49b32p+2f, -0x1.106efep+2f,
      -0x1.181996p+3f, -0x1.745178p+1f}},
    {"power",
     1,
     3,
     {-0x1.c2d796p+2f, 0x1.4daf20p+1f, 0x1.1d00cep+0f, -0x1.5efb90p+2f, 0x1.1f2f5ap+1f, 0x1.7af622p+0f, 0x1.1ff0acp+3f,
      0x1.eecd98p+2f, 0x1.47f18ep+2f, -0x1.cedce8p+2f, 0x1.5f1b4ap+1f, 0x1.a404dcp-1f}},
    {"variances",
     1,
     2,
     {0x1.c9442ep+2f, 0x1.43f98ep-1f, -0x1.033b08p+1f, -0x1.9f8cbap+2f, -0x1.63c8aap+1f, -0x1.ebab4ap+1f,
      0x1.0959a6p+3f, 0x1.a3696cp-3f}},
    {"limit",
     2,
     2,
     {-0x1.898df0p+2f, 0x1.9574d2p-1f, 0x1.edb9d2p-2f, -0x1.d3280cp-3f, 0x1.f28bf4p+2f, 0x1.9bff96p+1f, -0x1.4ca73ep+2f,
      0x1.a1afa6p-3f}},
    {"sparse",
     1,
     2,
     {0x1.cf9d04p+2f, -0x1.c637fep+1f, 0x1.aef27ap+2f, -0x1.b0e432p+1f, 0x1.5b4932p+2f, -0x1.41bda6p+2f,
      -0x1.9b7c60p-1f, 0x1.0dc27ap+3f}},
    {"classes",
     1,
     2,
     {-0x1.1d1afcp+3f, -0x1.8d8830p+1f, -0x1.dbde76p-1f, 0x1.d271fep+2f, 0x1.1c0530p+3f, -0x1.617ef4p-1f,
      -0x1.1b8cd6p+3f, -0x1.8671f6p+1f}},
    {"distances",
     1,
     2,
     {-0x1.22d89ep+2f, -0x1.a7cfc2p+1f, 0x1.6d687cp+2f, 0x1.87c6b2p+0f, 0x1.52a872p+2f, -0x1.116816p+1f,
      -0x1.81206ap+2f, -0x1.0b323cp+1f}},
    {"far",
     3,
     2,
     {-0x1.918b5ap+2f, -0x1.c4c03ep+1f, 0x1.1212ccp+2f, 0x1.71b010p+1f, 0x1.19febep+3f, -0x1.dd8ddap+1f,
      -0x1.1de2d4p+3f, -0x1.804ff4p+1f}},
    {"far-rows",
     3,
     2,
     {0x1.969c2ep+2f, 0x1.561780p+3f, 0x1.eb873ep+2f, 0x1.6e22a0p+3f, 0x1.70126ep+2f, -0x1.900ce0p+2f, 0x1.882b0ap+2f,
      -0x1.11a742p+3f}},
};
enum { STORED = sizeof stored / sizeof *stored };

static size_t read_stored(const char *name, uint8_t *bytes) {
    char path[100];
    (void)snprintf(path, sizeof path, "tests/unit/umap/stored/%s.umap", name);
    FILE *const file = fopen(path, "rb");
    assert_non_null(file);
    const size_t size = fread(bytes, 1, MOST, file);
    assert_int_equal(fclose(file), 0);
    return size;
}

/* Row i of the data: the fitted points are rows 0 to 23, the new ones 24 to 27. */
static float cell(int i, int c) { return (float)((i * 37 + c * 101 + i * c * 13) % 64) / 8.0f + 4.0f * (float)(i % 3); }

static double distance(int i, int j) {
    double sum = 0.0;
    for (int c = 0; c < COLS; c++) {
        sum += fabs((double)cell(i, c) - (double)cell(j, c));
    }
    return sum;
}

/* The new points as the model of this name takes them, f64; returns the number of columns. */
static int new_points(const char *name, double *x) {
    const bool measured = strcmp(name, "distances") == 0;
    const int cols = measured ? POINTS : COLS;
    for (int i = 0; i < NEW; i++) {
        for (int c = 0; c < cols; c++) {
            const double own = measured ? distance(POINTS + i, c) : (double)cell(POINTS + i, c);
            x[i * cols + c] = strncmp(name, "far", 3) == 0               ? own / 3.0 + 1e9
                              : strcmp(name, "sparse") == 0 && own < 4.0 ? 0.0
                                                                         : own;
        }
    }
    return cols;
}

static void test_places(void) {
    uint8_t *const bytes = scratch(MOST, 1), *const again = scratch(MOST, 1);
    for (int s = 0; s < STORED; s++) {
        double x[NEW * POINTS];
        float places[NEW * MOST_COMPONENTS];
        napier_umap_model *model = NULL;
        size_t size = read_stored(stored[s].name, bytes), written = 0;
        const int components = stored[s].components, cols = new_points(stored[s].name, x);
        const napier_umap_samples rows = {napier_const_rows(x, NEW, cols, NAPIER_F64), NULL};
        assert_int_equal(bytes[8], stored[s].format);
        must(napier_umap_model_from_bytes(context, bytes, size, &model));
        assert_int_equal(napier_umap_model_features(model), cols);
        must(napier_umap_transform(context, model, rows, napier_rows_f32(places, NEW, components)));
        for (int e = 0; e < NEW * components; e++) {
            expect(memcmp(&places[e], &stored[s].places[e], sizeof *places) == 0, "%s: coordinate %d is %a, was %a",
                   stored[s].name, e, (double)places[e], (double)stored[s].places[e]);
        }
        must(napier_umap_model_to_bytes(context, model, again, MOST, &written));
        assert_int_equal(written, size);
        assert_memory_equal(again, bytes, size);
        napier_umap_model_destroy(context, model);
    }
}

static void test_cut_off(void) {
    uint8_t *const bytes = scratch(MOST, 1);
    for (int s = 0; s < STORED; s++) {
        const size_t size = read_stored(stored[s].name, bytes);
        for (size_t cut = 0; cut < size; cut++) {
            napier_umap_model *model = NULL;
            assert_int_equal(napier_umap_model_from_bytes(context, bytes, cut, &model), NAPIER_CORRUPT_DATA);
            assert_null(model);
            if (cut >= 8) { /* with a checksum that fits */
                uint8_t *const end = bytes + cut - 8;
                uint8_t held[8];
                memcpy(held, end, sizeof held);
                napier_put_u64(end, napier_checksum(bytes, cut - 8));
                assert_int_equal(napier_umap_model_from_bytes(context, bytes, cut, &model), NAPIER_CORRUPT_DATA);
                memcpy(end, held, sizeof held);
            }
        }
    }
}

int main(void) { return RUN_UMAP_TESTS("umap stored", TEST(test_places), TEST(test_cut_off)); }
