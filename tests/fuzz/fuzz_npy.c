/* fuzz_npy - hostile .npy files: a header is refused with a reason, or what it says is consistent; its elements convert
 * inside their memory; and what the program writes for the same shape reads back. */
#include "io/npy.h"
#include "fuzz.h"

static bool printable_text(const char *text) {
    for (; *text; text++) {
        if ((unsigned char)*text < ' ' || (unsigned char)*text > '~') {
            return false;
        }
    }
    return true;
}

static void check_shape(const npy_header *h) {
    REQUIRE(h->shape.dims >= 0 && h->shape.dims <= ARRAY_MAX_DIMS, "%d dimensions", h->shape.dims);
    int64_t count = 1;
    for (int i = 0; i < h->shape.dims; i++) {
        REQUIRE(h->shape.dim[i] >= 0, "dimension %d", i);
        count = h->shape.dim[i] ? count * h->shape.dim[i] : 0; /* no overflow: count was accepted */
    }
    REQUIRE(count == h->count && count <= INT64_MAX / 8, "count %lld", (long long)h->count);
}

/* Reads as the program does: the raw elements at the end of the room their numbers will take. */
static void convert(const npy_header *h, const uint8_t *raw, size_t size) {
    const size_t fit = size / h->element.size;
    const int64_t count = h->count < (int64_t)fit ? h->count : (int64_t)fit;
    const napier_dtype dtype = element_dtype(h->element);
    const size_t room = (size_t)count * napier_dtype_size(dtype), stored = (size_t)count * h->element.size;
    REQUIRE(room >= stored, "elements of %zu bytes grow smaller", h->element.size);
    char *const out = fuzz_allocate(room), *const apart = fuzz_allocate(room);
    memcpy(out + room - stored, raw, stored);
    elements_convert(h->element, out + room - stored, out, count);
    elements_convert(h->element, raw, apart, count);
    REQUIRE(memcmp(out, apart, room) == 0, "in place and apart differ");
    volatile double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        sum = sum + element_value(dtype, out + (size_t)i * napier_dtype_size(dtype));
    }
    free(out);
    free(apart);
}

static void write_and_read(const npy_header *h) {
    char bytes[NPY_WRITTEN_MAX], error[NPY_ERROR_SIZE];
    const napier_dtype dtype = element_dtype(h->element);
    const size_t size = npy_write_header(bytes, dtype, &h->shape);
    npy_header again;
    REQUIRE(size <= NPY_WRITTEN_MAX && size % 64 == 0, "a header of %zu bytes", size);
    REQUIRE(npy_parse(bytes, size, &again, error), "%s", error);
    REQUIRE(again.count == h->count && again.offset == (int64_t)size && element_dtype(again.element) == dtype &&
                again.shape.dims == h->shape.dims && again.shape.fortran == h->shape.fortran &&
                memcmp(again.shape.dim, h->shape.dim, (size_t)h->shape.dims * sizeof *h->shape.dim) == 0,
            "written and read: another array");
}

FUZZ(in) {
    npy_header h;
    char error[NPY_ERROR_SIZE] = "";
    if (!npy_parse(in.at, in.left, &h, error)) {
        REQUIRE(error[0] && memchr(error, 0, sizeof error) && printable_text(error), "a reason nobody can read");
        return;
    }
    REQUIRE(h.offset >= 10 && h.offset <= (int64_t)in.left, "offset %lld of %zu", (long long)h.offset, in.left);
    check_shape(&h);
    convert(&h, in.at + h.offset, in.left - (size_t)h.offset);
    write_and_read(&h);
    npy_header shorter;
    REQUIRE(!npy_parse(in.at, (size_t)h.offset - 1, &shorter, error), "a header without its last byte was taken");
}
