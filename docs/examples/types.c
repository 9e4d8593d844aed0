/* types - contexts, errors, dtypes and versions: the functions of napier/types.h. */
#include "example.h"

#include <signal.h>

/* Every call takes a context, which holds the number of threads and the instruction set. Neither changes a result. */
static void create_a_context(napier_context *context) {
    napier_context_options options = NAPIER_CONTEXT_OPTIONS_INIT;
    options.threads = 2;
    options.highest_isa = napier_isa_available(NAPIER_ISA_AVX2) ? NAPIER_ISA_AVX2 : NAPIER_ISA_AUTO;
    napier_context *own = NULL;
    EXPECT(napier_context_create(&own, &options) == NAPIER_OK);
    printf("%d threads, %s\n", napier_context_threads(own), napier_isa_name(napier_context_isa(own)));
    EXPECT(napier_context_threads(own) == 2 && napier_context_isa(own) != NAPIER_ISA_AUTO);
    napier_context_destroy(own);
}

/* A call that fails says why in its context: the text names the argument and its value. */
static void read_the_text_of_an_error(napier_context *context) {
    const float logits[] = {1, 2, 3};
    float lse[2];
    const napier_status status =
        napier_logsumexp(context, napier_const_rows_f32(logits, 1, 3), napier_array_f32(lse, 2), NULL);
    EXPECT(status == NAPIER_INVALID_ARGUMENT);
    fprintf(stderr, "%s: %s\n", napier_status_string(status), napier_last_error(context));
    EXPECT(strstr(napier_last_error(context), "lse") != NULL);
}

/* A library that is built on Napier reports its own errors in the same way. */
static void report_an_error_of_your_own(napier_context *context) {
    const napier_status status = napier_set_error(context, NAPIER_INVALID_ARGUMENT, "rank: 4 is not below 4");
    EXPECT(status == NAPIER_INVALID_ARGUMENT);
    EXPECT(strcmp(napier_last_error(context), "rank: 4 is not below 4") == 0);
}

/* A long call ends with NAPIER_CANCELLED where the interrupt answers other than 0, as for a key that was pressed. */
static int was_asked_to_stop(void *user) { return *(const volatile sig_atomic_t *)user != 0; }

static void let_a_call_be_interrupted(napier_context *context) {
    volatile sig_atomic_t stop = 0; /* a signal handler sets it */
    float probs[3] = {1.0f, 2.0f, 3.0f};
    napier_context_set_interrupt(context, was_asked_to_stop, (void *)(uintptr_t)&stop);
    const napier_status status =
        napier_softmax(context, napier_const_rows_f32(probs, 1, 3), napier_rows_f32(probs, 1, 3), NULL);
    EXPECT(status == NAPIER_OK);
    int64_t done = 0, items = 0; /* how far a call has come: for its interrupt */
    EXPECT(napier_context_progress(context, &done, &items) == 0);
    napier_context_set_interrupt(context, NULL, NULL);
}

/* A view has a dtype; its size says how many bytes an array of it needs. */
static void allocate_for_a_dtype(napier_context *context) {
    const size_t bytes = 1024 * napier_dtype_size(NAPIER_BF16);
    printf("1024 elements of %s: %zu bytes\n", napier_dtype_name(NAPIER_BF16), bytes);
    EXPECT(bytes == 2048 && strcmp(napier_dtype_name(NAPIER_BF16), "bf16") == 0);
}

/* The linked library may be newer than the header. While the numerics version is the same, so are the bits. */
static void compare_versions(napier_context *context) {
    printf("header %s, library %s\n", NAPIER_VERSION_STRING, napier_version());
    EXPECT(napier_numerics_version() == NAPIER_NUMERICS_VERSION);
}

int main(void) {
    return run_examples((example *const[]){create_a_context, read_the_text_of_an_error, report_an_error_of_your_own,
                                           let_a_call_be_interrupted, allocate_for_a_dtype, compare_versions, NULL});
}
