/* test_safetensors - single files and shards, made here byte by byte: what is right is read where it lies, and what is
 * not is refused by name. */
#define _POSIX_C_SOURCE 200809L
#define _DEFAULT_SOURCE /* mkdtemp */

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/bytes.h"
#include "lm/decoder/safetensors.h"
#include "support/memory.h"
#include "unit/lm/lm_support.h"

static napier_context *context;
static char folder[] = "/tmp/napier-safetensors-XXXXXX";

/* ---- Files to read ----------------------------------------------------------------------------------------------- */

static const char *path_of(const char *name) {
    static char paths[4][256];
    static int next;
    char *const path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void write_bytes(const char *name, const void *bytes, size_t size) { file_write(path_of(name), bytes, size); }
static void remove_file(const char *name) { assert_int_equal(remove(path_of(name)), 0); }

/* A header and `data` bytes 0, 1, 2, ... behind it. The header is padded to a multiple of 8, as writers do. */
static void write_tensors(const char *name, const char *header, size_t data) {
    const size_t length = strlen(header), padded = (length + 7) / 8 * 8;
    uint8_t *const bytes = scratch((int64_t)(8 + padded + data), 1);
    napier_put_u64(bytes, padded);
    memcpy(bytes + 8, header, length);
    memset(bytes + 8 + length, ' ', padded - length);
    for (size_t i = 0; i < data; i++) {
        bytes[8 + padded + i] = (uint8_t)i;
    }
    write_bytes(name, bytes, 8 + padded + data);
}

/* ---- What is right ----------------------------------------------------------------------------------------------- */

static void one_file(void) {
    napier_safetensors *all = NULL;
    const napier_tensor *t = NULL;
    write_tensors("model.safetensors",
                  "{\"__metadata__\": {\"format\": \"pt\"},"
                  "\"b\": {\"dtype\": \"BF16\", \"shape\": [2, 3], \"data_offsets\": [16, 28]},"
                  "\"a\": {\"dtype\": \"F32\", \"shape\": [4], \"data_offsets\": [0, 16]},"
                  "\"scalar\": {\"dtype\": \"F64\", \"shape\": [], \"data_offsets\": [32, 40]},"
                  "\"empty\": {\"dtype\": \"F16\", \"shape\": [0, 7], \"data_offsets\": [28, 28]},"
                  "\"mask\": {\"dtype\": \"BOOL\", \"shape\": [3], \"data_offsets\": [40, 43]},"
                  "\"new\": {\"dtype\": \"F4\", \"shape\": [16], \"data_offsets\": [44, 52]}}",
                  60);
    if (succeeded(context, napier_safetensors_open(context, folder, &all), "open")) {
        expect(napier_safetensors_count(all) == 6, "%lld tensors", (long long)napier_safetensors_count(all));
        expect(strcmp(napier_safetensors_at(all, 0)->name, "a") == 0, "the first is not a");
        expect(napier_safetensors_find(all, "c") == NULL && napier_safetensors_find(all, "__metadata__") == NULL, "c");
        const int64_t shape[] = {2, 3}, other[] = {3, 2}, none[] = {0, 7}, three[] = {3}, sixteen[] = {16};
        if (succeeded(context, napier_safetensors_get(context, all, "b", 2, shape, &t), "b")) {
            expect(t->dtype == NAPIER_BF16 && t->elements == 6 && *(const uint8_t *)t->data == 16, "b is another");
        }
        succeeded(context, napier_safetensors_get(context, all, "empty", 2, none, &t), "empty");
        succeeded(context, napier_safetensors_get(context, all, "scalar", 0, NULL, &t), "scalar");
        refused(context, napier_safetensors_get(context, all, "b", 2, other, &t), NAPIER_CORRUPT_DATA, "b:", "[2, 3]",
                "[3, 2]", NULL);
        refused(context, napier_safetensors_get(context, all, "b", 1, shape, &t), NAPIER_CORRUPT_DATA, "[2]", NULL);
        refused(context, napier_safetensors_get(context, all, "c", 1, shape, &t), NAPIER_CORRUPT_DATA, "c:", NULL);
        refused(context, napier_safetensors_get(context, all, "mask", 1, three, &t), NAPIER_UNSUPPORTED, "dtype", NULL);
        refused(context, napier_safetensors_get(context, all, "new", 1, sixteen, &t), NAPIER_UNSUPPORTED, "dtype",
                NULL);
    }
    napier_safetensors_close(context, all);
    napier_safetensors_close(context, NULL);
    if (succeeded(context, napier_safetensors_open_file(context, path_of("model.safetensors"), &all), "the file")) {
        napier_safetensors_close(context, all);
    }
    remove_file("model.safetensors");
}

static const char a_in_one[] = "{\"a\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [0, 8]},"
                               " \"spare\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [8, 12]}}";
static const char b_in_two[] = "{\"b\": {\"dtype\": \"F32\", \"shape\": [3], \"data_offsets\": [0, 12]}}";

static void write_shards(void) {
    static const char index[] = "{\"metadata\": {\"total_size\": 20}, \"weight_map\":"
                                "{\"b\": \"two.safetensors\", \"a\": \"one.safetensors\"}}";
    write_tensors("one.safetensors", a_in_one, 12);
    write_tensors("two.safetensors", b_in_two, 12);
    write_bytes("model.safetensors.index.json", index, sizeof index - 1);
}

static void remove_shards(void) {
    remove_file("one.safetensors");
    remove_file("two.safetensors");
    remove_file("model.safetensors.index.json");
}

static void shards(void) {
    napier_safetensors *all = NULL;
    write_shards();
    if (succeeded(context, napier_safetensors_open(context, folder, &all), "open")) {
        expect(napier_safetensors_count(all) == 2, "%lld tensors", (long long)napier_safetensors_count(all));
        const napier_tensor *const b = napier_safetensors_find(all, "b");
        expect(b != NULL && b->elements == 3 && ((const uint8_t *)b->data)[1] == 1, "b is not there");
        expect(napier_safetensors_find(all, "spare") == NULL, "a tensor that the index does not name");
    }
    napier_safetensors_close(context, all);
    remove_shards();
}

/* ---- What is not ------------------------------------------------------------------------------------------------- */

#define TENSOR(dtype, shape, offsets) "{\"dtype\": \"" dtype "\", \"shape\": " shape ", \"data_offsets\": " offsets "}"

static const struct {
    const char *header;
    const char *word;
} bad_headers[] = {
    {"", "not JSON"},
    {"[]", "not an object"},
    {"{\"a\": 3}", "a: is no tensor"},
    {"{\"a\": {}}", "a: dtype"},
    {"{\"a\": {\"dtype\": 3}}", "dtype: 3"},
    {"{\"a\": {\"dtype\": \"F32\"}}", "a: shape is nothing"},
    {"{\"a\": " TENSOR("F32", "3", "[0, 12]") "}", "a: shape is 3"},
    {"{\"a\": " TENSOR("F32", "[3.5]", "[0, 12]") "}", "a: shape has 3.5"},
    {"{\"a\": " TENSOR("F32", "[-3]", "[0, 12]") "}", "a: shape has -3"},
    {"{\"a\": " TENSOR("F32", "[\"3\"]", "[0, 12]") "}", "a: shape has \"3\""},
    {"{\"a\": " TENSOR("F32", "[1e300]", "[0, 12]") "}", "a: shape has 1"},
    {"{\"a\": " TENSOR("F32", "[4294967296, 4294967296]", "[0, 0]") "}", "more elements"},
    {"{\"a\": " TENSOR("F32", "[4294967296, 2097152]", "[0, 0]") "}", "bytes for"},
    {"{\"a\": " TENSOR("F32", "[1,1,1,1,1,1,1,1,1]", "[0, 4]") "}", "too many dimensions"},
    {"{\"a\": " TENSOR("F32", "[3]", "[0, 8]") "}", "a: 8 bytes for 3 elements of F32"},
    {"{\"a\": " TENSOR("F32", "[3]", "[0, 16]") "}", "16 bytes for 3"},
    {"{\"a\": " TENSOR("F32", "[3]", "[12, 0]") "}", "a: data_offsets end before"},
    {"{\"a\": " TENSOR("F32", "[3]", "[56, 68]") "}", "outside of the file: 68"},
    {"{\"a\": " TENSOR("F32", "[3]", "[-4, 8]") "}", "outside of the file: -4"},
    {"{\"a\": " TENSOR("F32", "[3]", "[1e18, 1e18]") "}", "outside of the file"},
    {"{\"a\": " TENSOR("F32", "[3]", "[0]") "}", "not two numbers"},
    {"{\"a\": " TENSOR("F32", "[3]", "[0, 12, 13]") "}", "not two numbers"},
    {"{\"a\": " TENSOR("F32", "[3]", "12") "}", "not two numbers but 12"},
    {"{\"a\": " TENSOR("F32", "[3]", "[0, 12]") ", \"b\": " TENSOR("F32", "[3]", "[8, 20]") "}", "a and b overlap"},
    {"{\"a\": " TENSOR("F32", "[3]", "[0, 12]") ", \"b\": " TENSOR("F32", "[3]", "[0, 12]") "}", "overlap"},
    {"{\"a\": " TENSOR("F32", "[3]", "[0, 12]") ", \"b\": " TENSOR("F32", "[0]", "[4, 4]") "}", "overlap"},
    {"{\"a\": " TENSOR("F32", "[3]", "[0, 12]") ", \"a\": " TENSOR("F32", "[3]", "[12, 24]") "}", "a: given twice"},
    {"{\"a\": {\"shape\": [1], \"shape\": [1], \"dtype\": \"F32\", \"data_offsets\": [0, 4]}}", "shape: given 2"},
    {"{\"a\\u0000\": " TENSOR("F32", "[3]", "[0, 12]") "}", "\\u0000"},
};

static void check_bad_file(const char *word) {
    napier_safetensors *all = (napier_safetensors *)&all;
    refused(context, napier_safetensors_open_file(context, path_of("bad.safetensors"), &all), NAPIER_CORRUPT_DATA,
            "bad.safetensors", word, NULL);
    expect(all == NULL, "%s: tensors all the same", word);
    remove_file("bad.safetensors");
}

static void headers(void) {
    for (size_t i = 0; i < sizeof bad_headers / sizeof bad_headers[0]; i++) {
        write_tensors("bad.safetensors", bad_headers[i].header, 64);
        check_bad_file(bad_headers[i].word);
    }
    uint8_t bytes[32] = {0};
    write_bytes("bad.safetensors", bytes, 7);
    check_bad_file("7 bytes, where the length of the header takes 8");
    napier_put_u64(bytes, 25);
    write_bytes("bad.safetensors", bytes, 32);
    check_bad_file("a header of 25 bytes in a file of 32");
    napier_put_u64(bytes, UINT64_MAX);
    write_bytes("bad.safetensors", bytes, 32);
    check_bad_file("a header of 18446744073709551615 bytes");
}

/* Data that do not lie on a multiple of their element are as they are in the file, but aligned. */
static void alignment(void) {
    static const uint8_t wanted[12] = {2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13};
    napier_safetensors *all = NULL;
    const napier_tensor *t = NULL, *again = NULL;
    const int64_t three[] = {3}, six[] = {6};
    write_tensors("model.safetensors",
                  "{\"a\": " TENSOR("F32", "[3]", "[2, 14]") ", \"b\": " TENSOR("BF16", "[6]", "[15, 27]") "}", 27);
    if (succeeded(context, napier_safetensors_open(context, folder, &all), "open") &&
        succeeded(context, napier_safetensors_get(context, all, "a", 1, three, &t), "a")) {
        expect((uintptr_t)t->data % 4 == 0 && memcmp(t->data, wanted, 12) == 0, "a is another, or lies askew");
        succeeded(context, napier_safetensors_get(context, all, "a", 1, three, &again), "a again");
        expect(again == t && again->data == t->data, "a second copy");
        succeeded(context, napier_safetensors_get(context, all, "b", 1, six, &t), "b");
        expect((uintptr_t)t->data % 2 == 0 && *(const uint8_t *)t->data == 15, "b is another, or lies askew");
    }
    napier_safetensors_close(context, all);
    remove_file("model.safetensors");
}

static void indexes(void) {
    static const struct {
        const char *index;
        napier_status status;
        const char *word;
    } cases[] = {
        {"{}", NAPIER_CORRUPT_DATA, "weight_map: nothing"},
        {"{\"weight_map\": []}", NAPIER_CORRUPT_DATA, "weight_map: an array"},
        {"{\"weight_map\": {\"a\": 3}}", NAPIER_CORRUPT_DATA, "a: its shard"},
        {"{\"weight_map\": {\"a\": \"\"}}", NAPIER_CORRUPT_DATA, "a: its shard"},
        {"{\"weight_map\": {\"a\": \"../one.safetensors\"}}", NAPIER_CORRUPT_DATA, "\"../one.safetensors\""},
        {"{\"weight_map\": {\"a\": \"/etc/passwd\"}}", NAPIER_CORRUPT_DATA, "/etc/passwd"},
        {"{\"weight_map\": {\"a\": \"..\"}}", NAPIER_CORRUPT_DATA, "a: its shard"},
        {"{\"weight_map\": {\"b\": \"one.safetensors\"}}", NAPIER_CORRUPT_DATA, "b: not in its shard, one"},
        {"{\"weight_map\": {\"a\": \"one.safetensors\", \"a\": \"one.safetensors\"}}", NAPIER_CORRUPT_DATA, "a"},
        {"{\"weight_map\": {\"a\": \"none.safetensors\"}}", NAPIER_IO_ERROR, "none.safetensors"},
        {"{\"weight_map\": {\"a\": \"one.safetensors\"}", NAPIER_CORRUPT_DATA, "not JSON"},
    };
    napier_safetensors *all = NULL;
    write_tensors("one.safetensors", a_in_one, 12);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_bytes("model.safetensors.index.json", cases[i].index, strlen(cases[i].index));
        refused(context, napier_safetensors_open(context, folder, &all), cases[i].status, cases[i].word, NULL);
        expect(all == NULL, "case %zu: tensors all the same", i);
    }
    remove_file("one.safetensors");
    remove_file("model.safetensors.index.json");
}

/* A header of 9 MB with more tensors than any model has: refused before memory is taken for them. */
static void too_many(void) {
    enum { COUNT = (1 << 20) + 1 };
    napier_safetensors *all = NULL;
    char *const header = scratch(9 * (int64_t)COUNT, 1);
    for (size_t i = 0; i < COUNT; i++) {
        memcpy(header + 6 * i, i == 0 ? "{\"\":0 " : ",\"\":0 ", 6);
    }
    memcpy(header + 6 * (size_t)COUNT, "}", 2);
    write_tensors("bad.safetensors", header, 8);
    refused(context, napier_safetensors_open_file(context, path_of("bad.safetensors"), &all), NAPIER_UNSUPPORTED,
            "1048577 tensors", NULL);
    remove_file("bad.safetensors");
}

static void no_files(void) {
    napier_safetensors *all = NULL;
    refused(context, napier_safetensors_open(context, folder, &all), NAPIER_IO_ERROR, folder, "neither", NULL);
    refused(context, napier_safetensors_open(context, "/nowhere", &all), NAPIER_IO_ERROR, "/nowhere", NULL);
    refused(context, napier_safetensors_open_file(context, folder, &all), NAPIER_IO_ERROR, "a folder", NULL);
    refused(context, napier_safetensors_open_file(context, "/dev/zero", &all), NAPIER_IO_ERROR, "a device", NULL);
    write_bytes("empty.safetensors", "", 0);
    refused(context, napier_safetensors_open_file(context, path_of("empty.safetensors"), &all), NAPIER_CORRUPT_DATA,
            "0 bytes", NULL);
    remove_file("empty.safetensors");
}

/* Nobody writes into these pipes: whoever waits for them waits for ever, and ctest ends it. */
static void pipes(void) {
    napier_safetensors *all = NULL;
    napier_tokenizer *tokenizer = NULL;
    napier_model *model = NULL;
    assert_int_equal(mkfifo(path_of("pipe"), 0600), 0);
    refused(context, napier_safetensors_open_file(context, path_of("pipe"), &all), NAPIER_IO_ERROR, "pipe: a pipe",
            NULL);
    refused(context, napier_tokenizer_load(context, path_of("pipe"), &tokenizer), NAPIER_IO_ERROR, "pipe: a pipe",
            NULL);
    assert_int_equal(rename(path_of("pipe"), path_of("model.safetensors.index.json")), 0);
    refused(context, napier_safetensors_open(context, folder, &all), NAPIER_IO_ERROR, "index.json: a pipe", NULL);
    assert_int_equal(rename(path_of("model.safetensors.index.json"), path_of("config.json")), 0);
    refused(context, napier_model_load(context, folder, NULL, &model), NAPIER_IO_ERROR, "config.json: a pipe", NULL);
    remove_file("config.json");
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

static napier_status open_and_close(napier_context *c, void *unused) {
    napier_safetensors *all = NULL;
    const napier_status status = napier_safetensors_open(c, folder, &all);
    expect((status == NAPIER_OK) == (all != unused), "status %d, tensors %p", (int)status, (void *)all);
    napier_safetensors_close(c, all);
    return status;
}

static void memory(void) {
    write_shards();
    check_allocations("open", open_and_close, NULL);
    remove_shards();
}

int main(void) {
    assert_non_null(mkdtemp(folder));
    context = context_of(NAPIER_ISA_AUTO, 1);
    const int failed = RUN_TESTS("safetensors", TEST(one_file), TEST(shards), TEST(headers), TEST(alignment),
                                 TEST(indexes), TEST(too_many), TEST(no_files), TEST(pipes), TEST(memory));
    napier_context_destroy(context);
    return failed + (rmdir(folder) != 0); /* each test removes its files */
}
