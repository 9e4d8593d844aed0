/* fuzz_umap_npz - hostile sparse matrices in SciPy's files: a message, or a matrix whose rows lie inside its arrays, their
 * columns in order, which the library then takes or refuses. Raw bytes, or, where the first byte is odd, an archive that is
 * put together here from the input's numbers, with the checksums that a raw one seldom has. */
#include "fuzz_file.h"

#include <napier/umap.h>

#include "program/message.h"
#include "umap/umap_npz.h"

enum { MEMBERS = 5, ROOM = 1 << 14 };

/* An archive of stored members. */
typedef struct zip {
    uint8_t bytes[ROOM], directory[1024];
    size_t size, directory_size;
    int members;
} zip;

/* The checksum of zip archives. */
static uint32_t crc32_of(const uint8_t *bytes, size_t size) {
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < 8 * size; i++) {
        crc ^= i % 8 == 0 ? bytes[i / 8] : 0;
        crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

static void put(uint8_t *to, uint64_t value, int size) {
    for (int i = 0; i < size; i++) {
        to[i] = (uint8_t)(value >> 8 * i);
    }
}

static void add_member(zip *z, const char *name, const uint8_t *bytes, size_t size) {
    uint8_t *const local = z->bytes + z->size, *const entry = z->directory + z->directory_size;
    const size_t name_size = strlen(name);
    REQUIRE(z->size + 30 + name_size + size < ROOM && z->directory_size + 46 + name_size < sizeof z->directory,
            "too much");
    memset(local, 0, 30);
    memset(entry, 0, 46);
    memcpy(local, "PK\3\4", 4);
    put(local + 26, name_size, 2);
    memcpy(local + 30, name, name_size);
    memcpy(local + 30 + name_size, bytes, size);
    memcpy(entry, "PK\1\2", 4);
    put(entry + 16, crc32_of(bytes, size), 4);
    put(entry + 20, size, 4);
    put(entry + 24, size, 4);
    put(entry + 28, name_size, 2);
    put(entry + 42, z->size, 4);
    memcpy(entry + 46, name, name_size);
    z->size += 30 + name_size + size;
    z->directory_size += 46 + name_size;
    z->members++;
}

static void close_zip(zip *z) {
    uint8_t *const end = z->bytes + z->size + z->directory_size;
    memcpy(z->bytes + z->size, z->directory, z->directory_size);
    memset(end, 0, 22);
    memcpy(end, "PK\5\6", 4);
    put(end + 10, (uint64_t)z->members, 2);
    put(end + 16, z->size, 4);
    z->size += z->directory_size + 22;
}

static void add_array(zip *z, const char *name, const char *descr, const void *elements, int64_t count, size_t size) {
    uint8_t bytes[1024];
    char text[128];
    const int written = snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': (%lld,), }\n",
                                 descr, (long long)count);
    memcpy(bytes, "\x93NUMPY\1\0", 8);
    put(bytes + 8, (uint64_t)written, 2);
    memcpy(bytes + 10, text, (size_t)written);
    memcpy(bytes + 10 + written, elements, (size_t)count * size);
    add_member(z, name, bytes, 10 + (size_t)written + (size_t)count * size);
}

/* Up to 8 x 16, nearly right: the input may move any number. */
static void make_archive(zip *z, input *in) {
    int32_t starts[9] = {0}, columns[64], shape[2];
    float values[64];
    *z = (zip){.size = 0};
    shape[0] = 1 + (int32_t)take_below(in, 8);
    shape[1] = 1 + (int32_t)take_below(in, 16);
    for (int32_t row = 0; row < shape[0]; row++) {
        const int32_t count = (int32_t)take_below(in, 9);
        for (int32_t i = 0; i < count; i++) {
            columns[starts[row] + i] = (int32_t)take_within(in, 20) % (shape[1] + 1);
            values[starts[row] + i] = (float)take_within(in, 9) / 4;
        }
        starts[row + 1] = starts[row] + count;
    }
    const int32_t all = starts[shape[0]];
    if (take(in) % 4 == 0) {
        starts[take_below(in, 9)] = (int32_t)take_within(in, 70);
    }
    add_array(z, "format.npy", "|S3", "csr", 1, 3);
    add_array(z, "shape.npy", "<i4", shape, 2, sizeof *shape);
    add_array(z, "data.npy", "<f4", values, all, sizeof *values);
    add_array(z, "indices.npy", "<i4", columns, all, sizeof *columns);
    add_array(z, "indptr.npy", "<i4", starts, shape[0] + 1, sizeof *starts);
    close_zip(z);
}

static void check_matrix(const napier_csr_matrix *m) {
    REQUIRE(m->rows >= 1 && m->cols >= 1 && m->row_starts[0] == 0, "%lld x %lld", (long long)m->rows,
            (long long)m->cols);
    for (int64_t row = 0; row < m->rows; row++) {
        REQUIRE(m->row_starts[row] <= m->row_starts[row + 1], "row %lld", (long long)row);
        for (int64_t i = m->row_starts[row]; i < m->row_starts[row + 1]; i++) {
            REQUIRE(m->columns[i] >= 0 && m->columns[i] < m->cols, "column %ld", (long)m->columns[i]);
            REQUIRE(i == m->row_starts[row] || m->columns[i - 1] <= m->columns[i], "columns out of order");
        }
    }
}

/* The library takes it, or says why not. */
static void find_neighbors(const napier_csr_matrix *m) {
    napier_context *const context = fuzz_context(NAPIER_ISA_AUTO, 1);
    napier_neighbors_options options = NAPIER_NEIGHBORS_OPTIONS_INIT;
    int32_t indices[2 * 64];
    float distances[2 * 64];
    options.n_neighbors = 2;
    if (m->rows < 2 || m->rows > 64) {
        return;
    }
    const napier_umap_samples samples = {{0}, m};
    const napier_status status = napier_nearest_neighbors(context, samples, &options, indices, distances);
    REQUIRE(status == NAPIER_OK || (status == NAPIER_INVALID_ARGUMENT && napier_last_error(context)[0]), "status %d",
            (int)status);
    for (int64_t i = 0; i < 2 * m->rows && status == NAPIER_OK; i++) {
        REQUIRE(indices[i] >= 0 && indices[i] < m->rows && distances[i] >= 0.0f, "%ld at %g", (long)indices[i],
                (double)distances[i]);
    }
}

FUZZ(in) {
    static zip made;
    const uint8_t *bytes = in.at;
    size_t count = in.left;
    const int raw = take(&in) % 2 == 0;
    if (raw) {
        bytes = in.at;
        count = in.left;
    } else {
        make_archive(&made, &in);
        bytes = made.bytes;
        count = made.size;
    }
    const char *const path = fuzz_file(bytes, count);
    sparse_table t;
    if (sparse_read(&t, path) == STATUS_OK) {
        check_matrix(&t.matrix);
        find_neighbors(&t.matrix);
    }
    sparse_free(&t);
    fuzz_file_remove(path);
}
