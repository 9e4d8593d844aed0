/* fuzz_safetensors - bytes that claim to be a safetensors file: as they are, or as the header of a file whose length is
 * right, with some data behind it. What is taken lies in the file: every byte of every tensor is read. */
#include "fuzz_file.h"

#include "lm/decoder/safetensors.h"

enum { DATA = 256 };

static unsigned sum_of(const napier_tensor *t) {
    const uint8_t *const bytes = t->data;
    const size_t size = napier_dtype_size(t->dtype);
    unsigned sum = 0;
    for (int64_t i = 0; i < t->elements * (int64_t)size; i++) {
        sum += bytes[i];
    }
    return sum;
}

static void check_file(napier_context *context, const uint8_t *data, size_t size) {
    const char *const path = fuzz_file(data, size);
    napier_safetensors *all = NULL;
    const napier_status status = napier_safetensors_open_file(context, path, &all);
    const bool made = MADE(context, status, all != NULL, NAPIER_CORRUPT_DATA, NAPIER_IO_ERROR);
    unsigned sum = 0;
    for (int64_t i = 0; made && i < napier_safetensors_count(all); i++) {
        const napier_tensor *const t = napier_safetensors_at(all, i), *got = NULL;
        REQUIRE(napier_safetensors_find(all, t->name) == t, "tensor %lld is not found by its name", (long long)i);
        REQUIRE(t->ndim >= 0 && t->ndim <= NAPIER_TENSOR_DIMS, "%d dimensions", t->ndim);
        if (napier_safetensors_get(context, all, t->name, t->ndim, t->shape, &got) == NAPIER_OK) {
            sum += sum_of(got);
        }
    }
    REQUIRE(sum < UINT32_MAX, "a sum that is used");
    napier_safetensors_close(context, all);
    fuzz_file_remove(path);
}

FUZZ(in) {
    napier_context *const context = fuzz_context(NAPIER_ISA_AUTO, 1);
    if (in.left > 0 && *in.at != '{') {
        check_file(context, in.at, in.left);
        return;
    }
    uint8_t *const file = fuzz_allocate(8 + in.left + DATA);
    for (int i = 0; i < 8; i++) {
        file[i] = (uint8_t)((uint64_t)in.left >> 8 * i);
    }
    if (in.left > 0) {
        memcpy(file + 8, in.at, in.left);
    }
    memset(file + 8 + in.left, 1, DATA);
    check_file(context, file, 8 + in.left + DATA);
    free(file);
}
