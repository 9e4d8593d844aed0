/* fuzz.h - what the fuzz targets share: reading decisions from the input's bytes, and saying what went wrong.
 * A target is a FUZZ. With clang's -fsanitize=fuzzer it is a fuzzer; linked with replay.c it is a program
 * that runs the files it is given, with any compiler. */
#ifndef NAPIER_TESTS_FUZZ_H
#define NAPIER_TESTS_FUZZ_H

#include <napier/napier.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Ends the program: that is how a fuzzer learns of a fault. */
#define REQUIRE(condition, ...)                                                      \
    do {                                                                             \
        if (!(condition)) {                                                          \
            fprintf(stderr, "%s:%d: %s is false: ", __FILE__, __LINE__, #condition); \
            fprintf(stderr, __VA_ARGS__);                                            \
            fputc('\n', stderr);                                                     \
            abort();                                                                 \
        }                                                                            \
    } while (0)

/* A call that must succeed. */
#define REQUIRE_OK(context, call) REQUIRE((call) == NAPIER_OK, "%s", napier_last_error(context))

/* The bytes not yet used; beyond the end they are 0, so that short inputs mean simple cases. */
typedef struct input {
    const uint8_t *at;
    size_t left;
} input;

/* The target: `FUZZ(in) { ... }` is the body of a function with this input. */
#define FUZZ(in)                                                   \
    static void fuzz(input in);                                    \
    int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) { \
        fuzz((input){data, size});                                 \
        return 0;                                                  \
    }                                                              \
    static void fuzz(input in)

static inline unsigned take(input *in) {
    if (in->left == 0) {
        return 0;
    }
    in->left--;
    return *in->at++;
}

static inline uint64_t take_bytes(input *in, int count) {
    uint64_t value = 0;
    for (int i = 0; i < count; i++) {
        value |= (uint64_t)take(in) << 8 * i;
    }
    return value;
}

/* 0 .. limit - 1 */
static inline int64_t take_below(input *in, int64_t limit) {
    return (int64_t)(take_bytes(in, limit > 256 ? 2 : 1) % (uint64_t)limit);
}

/* -limit .. limit */
static inline int64_t take_within(input *in, int64_t limit) { return take_below(in, 2 * limit + 1) - limit; }

static inline void *fuzz_allocate(size_t size) {
    void *const memory = malloc(size ? size : 1);
    REQUIRE(memory, "no memory for %zu bytes", size);
    return memory;
}

/* One context for every instruction set of this machine, with `threads` workers; made once, kept to the end. */
enum { FUZZ_ISAS = NAPIER_ISA_AVX512 + 1 };
static inline napier_context *fuzz_context(int isa, int threads) {
    static napier_context *contexts[FUZZ_ISAS][8];
    if (!contexts[isa][threads] && napier_isa_available((napier_isa)isa)) {
        napier_context_options options = NAPIER_CONTEXT_OPTIONS_INIT;
        options.highest_isa = (napier_isa)isa;
        options.threads = threads;
        REQUIRE(napier_context_create(&contexts[isa][threads], &options) == NAPIER_OK, "context, isa %d", isa);
    }
    return contexts[isa][threads];
}

/* True if a call that may fail has succeeded. Otherwise its status must be one of `statuses`. It must have made an object
 * (`made`) just where it succeeded, and have a text where it failed. */
#define MADE(context, status, made, ...)                                   \
    fuzz_made(context, status, made, (const napier_status[]){__VA_ARGS__}, \
              sizeof((const napier_status[]){__VA_ARGS__}) / sizeof(napier_status))
static inline bool fuzz_made(const napier_context *context, napier_status status, bool made,
                             const napier_status *statuses, size_t count) {
    size_t i = 0;
    while (status != NAPIER_OK && i < count && statuses[i] != status) {
        i++;
    }
    REQUIRE(i < count, "status %d: %s", (int)status, napier_last_error(context));
    REQUIRE((status == NAPIER_OK) == made, "status %d, but made is %d", (int)status, made);
    REQUIRE(status == NAPIER_OK || napier_last_error(context)[0] != '\0', "status %d without a text", (int)status);
    return made;
}

/* Makes the last 8 bytes the checksum of those before, as in all that the library saves: FNV-1a. */
static inline void fuzz_checksum(unsigned char *bytes, size_t size) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i + 8 < size; i++) {
        hash = (hash ^ bytes[i]) * 0x100000001b3u;
    }
    for (size_t i = 0; size >= 8 && i < 8; i++) {
        bytes[size - 8 + i] = (unsigned char)(hash >> 8 * i & 0xff);
    }
}

/* Marks every byte of a view's elements in `visits`, whose first byte stands for `origin`; true if one belongs to two. */
static inline bool fuzz_visit(const void *data, napier_dtype dtype, const int64_t sizes[3], const int64_t strides[3],
                              const void *origin, unsigned char *visits) {
    const int64_t size = (int64_t)napier_dtype_size(dtype);
    bool twice = false;
    for (int64_t n = 0; n < sizes[0] * sizes[1] * sizes[2]; n++) {
        const int64_t i = n / sizes[2] / sizes[1], j = n / sizes[2] % sizes[1], k = n % sizes[2];
        const int64_t at =
            (const char *)data - (const char *)origin + (i * strides[0] + j * strides[1] + k * strides[2]) * size;
        for (int64_t b = at; b < at + size; b++) {
            twice = twice || visits[b];
            visits[b] = 1;
        }
    }
    return twice;
}

/* Fills an array with elements that the rest of the input describes: raw bit patterns, small numbers, ties and masks, or
 * numbers that are near one another. */
static inline void fuzz_elements(input *in, napier_dtype dtype, void *data, int64_t count) {
    const size_t size = napier_dtype_size(dtype);
    const unsigned mode = take(in) % 4;
    const uint8_t *const bytes = in->at;
    const size_t period = in->left;
    uint64_t mix = 0x9e3779b97f4a7c15u;
    for (int64_t i = 0; i < count; i++) {
        uint64_t word = 0;
        for (size_t b = 0; b < size; b++) {
            const size_t k = (size_t)i * size + b;
            word = word << 8 | (period ? bytes[k % period] : 0);
        }
        if (period && (size_t)i * size >= period && mode != 0) { /* past the end: no mere repetition */
            mix = (mix ^ word ^ (uint64_t)i) * 0xbf58476d1ce4e5b9u;
            word ^= mix >> 40;
        }
        const int small = (int)(int8_t)(word & 0xff);
        const double value = mode == 1   ? small / 8.0
                             : mode == 2 ? (small < 0 ? -1e9 : small % 3)
                                         : 1e4 + small * 0x1p-10;
        char *const at = (char *)data + (size_t)i * size;
        if (mode == 0 || size == 2) {
            memcpy(at, &word, size); /* the machines these tests run on are little-endian */
        } else if (dtype == NAPIER_F32) {
            const float f = (float)value;
            memcpy(at, &f, size);
        } else {
            memcpy(at, &value, size);
        }
    }
}

#endif
