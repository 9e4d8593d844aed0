/* A program and a library whose napier_kl_options differ: once the library has a field more, as if this program had been
 * compiled against an older header, and once (GROWN) the program. tests/CMakeLists.txt makes the header with that field. */
#include <napier/rl.h>
#include <stdio.h>
#include <string.h>

static int failures;

static void expect(int holds, const char *what, const napier_context *context) {
    if (!holds) {
        printf("FAIL  %s: \"%s\"\n", what, napier_last_error(context));
        failures++;
    }
}

int main(void) {
    static const float policy[] = {0, -1, -2}, ref[] = {-1, -1, 0};
    static const int64_t offsets[] = {0, 3};
    float kl = -1;
    napier_context *context = NULL;
    expect(napier_context_create(&context, NULL) == NAPIER_OK, "a context", NULL);
    napier_kl_options o = NAPIER_KL_OPTIONS_INIT;
    o.estimator = NAPIER_KL_K2;
    o.clamp_kl = 0.75;
#define CALL                                                                                           \
    napier_kl_per_response(context, napier_const_array_f32(policy, 3), napier_const_array_f32(ref, 3), \
                           napier_indices_i64(offsets, 2), NULL, &o, napier_array_f32(&kl, 1))
    expect(CALL == NAPIER_OK, "the other's version", context);
    expect(kl == 0.5f + 0.0f + 0.75f, "the result", context);
#if defined(GROWN)
    o.grown = 1;
    expect(CALL == NAPIER_INVALID_ARGUMENT && strstr(napier_last_error(context), "struct_size is 40, and byte 38"),
           "a field that the library does not know", context);
#endif
    napier_context_destroy(context);
    return failures > 0;
}
