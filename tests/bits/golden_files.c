/* golden_files - files of version 1 (bits/v1/files, docs/formats.md): each is read, written again to the same bytes, and used; a
 * line has the hash of what comes out. A file with a newer format is refused, and the text names both. */
#include <napier/softmax.h>
#include <napier/umap.h>
#include <stdio.h>
#include <string.h>

#include "support/golden_table.h"

typedef struct file {
    const char *name;
    const unsigned char *bytes;
    size_t size;
} file;

static void demand_equal(const file *f, const unsigned char *again, size_t size) {
    if (size != f->size || memcmp(f->bytes, again, size) != 0) {
        golden_give_up("is written again with other bytes:", f->name);
    }
}

/* A copy whose number at `at` is 99, a format or a version of the future. */
static const unsigned char *of_the_future(const file *f, size_t at) {
    unsigned char *const copy = golden_room((int64_t)f->size, 1);
    memcpy(copy, f->bytes, f->size);
    copy[at] = 99;
    return copy;
}

static void demand_refused(const file *f, napier_status status, const char *text) {
    if (status == NAPIER_OK || !strstr(napier_last_error(golden_context), text)) {
        golden_give_up("a newer format is not refused by name:", f->name);
    }
}

/* ---- Maps ---------------------------------------------------------------------------------------------------------- */

static void map_file(const file *f) {
    napier_umap_model *model = NULL, *none = NULL;
    golden_demand(napier_umap_model_from_bytes(golden_context, f->bytes, f->size, &model));
    unsigned char *const again = golden_room((int64_t)f->size, 1);
    size_t size = 0;
    golden_demand(napier_umap_model_to_bytes(golden_context, model, again, f->size, &size));
    demand_equal(f, again, size);
    const napier_const_matrix map = napier_umap_model_embedding(model);
    uint64_t hash = hash_elements(GOLDEN_BASIS, map.data, NAPIER_F32, map.rows * map.cols);
    const int64_t features = napier_umap_model_features(model), rows = 3;
    double *const samples = golden_room(rows * features, sizeof *samples);
    float *const placed = golden_room(rows * map.cols, sizeof *placed);
    for (int64_t i = 0; i < rows * features; i++) {
        samples[i] = (double)(i * i % 7) / 4.0;
    }
    const napier_umap_samples given = {{samples, rows, features, features, 1, NAPIER_F64}, NULL};
    golden_demand(napier_umap_transform(golden_context, model, given, napier_rows_f32(placed, rows, map.cols)));
    golden_line(hash_elements(hash, placed, NAPIER_F32, rows * map.cols), "file:%s", f->name);
    napier_umap_model_destroy(golden_context, model);
    demand_refused(f, napier_umap_model_from_bytes(golden_context, of_the_future(f, 8), f->size, &none),
                   "format 99; this library reads 1 to 3");
}

static void optimizer_file(const file *f) {
    napier_umap_optimizer *optimizer = NULL, *none = NULL;
    golden_demand(napier_umap_optimizer_from_bytes(golden_context, f->bytes, f->size, &optimizer));
    unsigned char *const again = golden_room((int64_t)f->size, 1);
    size_t size = 0;
    golden_demand(napier_umap_optimizer_to_bytes(golden_context, optimizer, again, f->size, &size));
    demand_equal(f, again, size);
    static const napier_umap_edge edges[] = {{0, 1, 1.0f}, {1, 2, 0.5f}, {3, 0, 0.75f}};
    float y[] = {0, 1, 2, -1, 0.5f, 3, -2, 0.25f};
    napier_umap_epochs epochs = NAPIER_UMAP_EPOCHS_INIT;
    epochs.count = epochs.total = 3;
    golden_demand(napier_umap_optimize_epochs(golden_context, NULL, &epochs, edges, 3, NULL, optimizer,
                                              napier_rows_f32(y, 4, 2)));
    golden_line(hash_elements(GOLDEN_BASIS, y, NAPIER_F32, 8), "file:%s", f->name);
    napier_umap_optimizer_destroy(golden_context, optimizer);
    demand_refused(f, napier_umap_optimizer_from_bytes(golden_context, of_the_future(f, 8), f->size, &none),
                   "format 99; this library reads 1");
}

/* ---- States -------------------------------------------------------------------------------------------------------- */

static void state_file(const file *f) {
    napier_softmax_state *state = NULL, *none = NULL;
    golden_demand(napier_softmax_state_from_bytes(golden_context, f->bytes, f->size, &state));
    unsigned char *const again = golden_room((int64_t)f->size, 1);
    golden_demand(napier_softmax_state_to_bytes(golden_context, state, again, f->size));
    demand_equal(f, again, napier_softmax_state_size(state));
    double results[2];
    golden_demand(napier_softmax_state_finish_weighted(golden_context, state, &results[0], &results[1]));
    golden_line(hash_elements(GOLDEN_BASIS, results, NAPIER_F64, 2), "file:%s", f->name);
    napier_softmax_state_destroy(state);
    demand_refused(f, napier_softmax_state_from_bytes(golden_context, of_the_future(f, 8), f->size, &none),
                   "format 99; this library reads 1 and 2");
    demand_refused(f, napier_softmax_state_from_bytes(golden_context, of_the_future(f, 12), f->size, &none),
                   "numerics version 99; this library computes version 1 ");
}

static void all_cases(int quick) {
    static const struct {
        const char *name;
        void (*use)(const file *f);
    } all[] = {{"dense.map", map_file},   {"distance.map", map_file},   {"offsets.map", map_file},
               {"sparse.map", map_file},  {"adam.opt", optimizer_file}, {"momentum.opt", optimizer_file},
               {"f32.state", state_file}, {"f64.state", state_file},    {"weighted.state", state_file}};
    (void)quick;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        file f = {all[i].name, NULL, 0};
        f.bytes = golden_file(all[i].name, &f.size);
        all[i].use(&f);
    }
}

int main(int count, char **words) { return golden_main("golden_files", count, words, all_cases); }
