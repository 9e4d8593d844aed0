/* fuzz_state_load - bytes that claim to be a saved state. Raw bytes, or a true state whose bytes are overwritten here and
 * there and whose checksum (the last 8 bytes: FNV-1a of those before) is made right again, so that the checks behind it
 * are reached. What is taken must save as the same bytes, and survive all that is done with a state. */
#include "fuzz.h"

enum { TILE = 1024, MOST_ELEMENTS = 3 * TILE };

static napier_softmax_state *load(napier_context *context, const unsigned char *bytes, size_t size) {
    napier_softmax_state *state = NULL;
    const napier_status status = napier_softmax_state_from_bytes(context, bytes, size, &state);
    (void)MADE(context, status, state != NULL, NAPIER_CORRUPT_DATA, NAPIER_STATE_MISMATCH);
    REQUIRE(state == NULL || napier_last_error(context)[0] == '\0', "a text: %s", napier_last_error(context));
    return state;
}

static void use_weighted(input *in, napier_context *context, napier_softmax_state *state) {
    static float x[64], b[64];
    const int64_t count = napier_softmax_state_count(state);
    double lse = 0, sign = 0;
    fuzz_elements(in, NAPIER_F32, x, 64);
    fuzz_elements(in, NAPIER_F32, b, 64);
    REQUIRE_OK(context, napier_softmax_state_finish_weighted(context, state, &lse, &sign));
    if (napier_softmax_state_update_weighted(context, state, napier_const_array_f32(x, 64),
                                             napier_const_array_f32(b, 64)) == NAPIER_OK) { /* or too many elements */
        REQUIRE(napier_softmax_state_count(state) == count + 64, "count after an update");
        REQUIRE_OK(context, napier_softmax_state_finish_weighted(context, state, &lse, &sign));
    }
}

static void use(input *in, napier_context *context, napier_softmax_state *state, bool wide) {
    static float x[64], y[64];
    static double wide_y[64];
    const int64_t count = napier_softmax_state_count(state);
    const napier_dtype dtype = wide ? NAPIER_F64 : NAPIER_F32;
    void *const out = wide ? (void *)wide_y : (void *)y;
    fuzz_elements(in, NAPIER_F32, x, 64);
    REQUIRE(count >= 0 && napier_softmax_state_first_index(state) >= 0, "count %lld", (long long)count);
    REQUIRE(napier_softmax_state_apply(context, state, NAPIER_KIND_SOFTMAX, napier_const_array_f32(x, 64),
                                       napier_array(out, 64, dtype)) == NAPIER_STATE_MISMATCH,
            "a loaded state counts as finished");
    double lse = 0;
    REQUIRE_OK(context, napier_softmax_state_finish(context, state, &lse));
    for (int kind = 0; kind < 2; kind++) {
        REQUIRE_OK(context, napier_softmax_state_apply(context, state, (napier_softmax_kind)kind,
                                                       napier_const_array_f32(x, 64), napier_array(out, 64, dtype)));
    }
    if (napier_softmax_state_update(context, state, napier_const_array_f32(x, 64)) ==
        NAPIER_OK) { /* or too many elements */
        REQUIRE(napier_softmax_state_count(state) == count + 64, "count after an update");
        REQUIRE_OK(context, napier_softmax_state_finish(context, state, NULL));
    }
}

static void check_taken(input *in, napier_softmax_state *state, const unsigned char *bytes, size_t size) {
    napier_context *const context = fuzz_context(NAPIER_ISA_AUTO, 1);
    REQUIRE(napier_softmax_state_size(state) == size, "size");
    unsigned char *const again = fuzz_allocate(size);
    REQUIRE_OK(context, napier_softmax_state_to_bytes(context, state, again, size));
    REQUIRE(memcmp(bytes, again, size) == 0, "load, save: other bytes");
    REQUIRE(napier_softmax_state_to_bytes(context, state, again, size - 1) == NAPIER_INVALID_ARGUMENT,
            "a byte too few was taken");
    free(again);
    napier_softmax_state *const twin = load(context, bytes, size);
    const napier_status merged = napier_softmax_state_merge(context, twin, state);
    REQUIRE(merged == NAPIER_OK || merged == NAPIER_STATE_MISMATCH || merged == NAPIER_INVALID_ARGUMENT, "status %d",
            (int)merged);
    napier_softmax_state_destroy(twin);
    if (bytes[8] == 2) { /* the format of weighted states */
        use_weighted(in, context, state);
    } else {
        use(in, context, state, size > 9000 || bytes[20] == NAPIER_F64);
    }
}

/* A true state of a part that starts anywhere. */
static unsigned char *true_state(input *in, size_t *size) {
    napier_context *const context = fuzz_context(NAPIER_ISA_AUTO, 1);
    static float x[MOST_ELEMENTS];
    const unsigned kind = take(in);
    const bool weighted = kind & 2;
    const napier_dtype compute = kind & 1 ? NAPIER_F64 : NAPIER_F32;
    const int64_t first = take_below(in, 2 * TILE), n = take_below(in, MOST_ELEMENTS + 1);
    input elements = *in;
    fuzz_elements(&elements, NAPIER_F32, x, n);
    napier_softmax_state *state = NULL;
    const napier_const_vector v = napier_const_array_f32(x, n);
    if (weighted) {
        REQUIRE_OK(context, napier_softmax_state_create_weighted(context, compute, first, NULL, &state));
        REQUIRE_OK(context, napier_softmax_state_update_weighted(context, state, v, v));
    } else {
        REQUIRE_OK(context, napier_softmax_state_create(context, compute, first, NULL, &state));
        REQUIRE_OK(context, napier_softmax_state_update(context, state, v));
    }
    *size = napier_softmax_state_size(state);
    unsigned char *const bytes = fuzz_allocate(*size + 64);
    memset(bytes, 0, *size + 64);
    REQUIRE_OK(context, napier_softmax_state_to_bytes(context, state, bytes, *size));
    napier_softmax_state_destroy(state);
    return bytes;
}

FUZZ(in) {
    napier_context *const context = fuzz_context(NAPIER_ISA_AUTO, 1);
    const unsigned mode = take(&in) % 4;
    if (mode == 0) {
        napier_softmax_state *const state = load(context, in.at, in.left);
        if (state) {
            check_taken(&in, state, in.at, in.left);
        }
        napier_softmax_state_destroy(state);
        return;
    }
    size_t bytes_size;
    unsigned char *const bytes = true_state(&in, &bytes_size);
    for (unsigned patches = take(&in) % 6; patches > 0; patches--) { /* most of them in the header and the sum */
        const size_t place = (size_t)take_below(&in, take(&in) & 1 ? (int64_t)bytes_size : 200) % bytes_size;
        bytes[place] = (unsigned char)(take(&in) & 1 ? take(&in) : bytes[place] ^ 1u << take(&in) % 8);
    }
    if (mode == 3) { /* another length */
        const size_t cut = (size_t)take_below(&in, 64);
        bytes_size = take(&in) & 1 ? bytes_size - cut : bytes_size + cut;
    }
    unsigned char *const exact = fuzz_allocate(bytes_size); /* so that a sanitizer sees a byte too many being read */
    memcpy(exact, bytes, bytes_size);
    fuzz_checksum(exact, bytes_size);
    napier_softmax_state *const state = load(context, exact, bytes_size);
    if (state) {
        check_taken(&in, state, exact, bytes_size);
    }
    napier_softmax_state_destroy(state);
    free(exact);
    free(bytes);
}
