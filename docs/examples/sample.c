/* sample - draws a token for each row of logits: the functions of napier/sample.h. */
#include "example.h"

/* Temperature 0 takes the most probable token. */
static void most_probable_token(napier_context *context) {
    const float logits[2][4] = {{0, 3, 1, 2}, {5, 3, 1, 2}};
    int64_t ids[2];
    napier_sample_options options = NAPIER_SAMPLE_OPTIONS_INIT;
    options.temperature = 0;
    napier_sample_results results = NAPIER_SAMPLE_RESULTS_INIT;
    results.ids = ids;
    EXPECT(napier_sample(context, napier_const_rows_f32(logits[0], 2, 4), &options, &results) == NAPIER_OK);
    EXPECT(ids[0] == 1 && ids[1] == 0);
}

/* A draw depends on the seed, the number of the sample and the position, not on the batch: a row drawn alone gives the
 * same token. Its log-probability comes under the filtered distribution, and under the plain one. */
static void draw_with_filters(napier_context *context) {
    const float logits[3][4] = {{0, 3, 1, 2}, {0, 3, 1, 2}, {0, 3, 1, 2}};
    const int32_t samples[] = {0, 1, 2}, positions[] = {17, 17, 17};
    int64_t ids[3], alone;
    float logprobs[3], plain[3];
    napier_sample_options options = NAPIER_SAMPLE_OPTIONS_INIT;
    options.temperature = 0.8;
    options.top_k = 2;
    options.seed = 7;
    options.samples = napier_indices_i32(samples, 3);
    options.positions = napier_indices_i32(positions, 3);
    napier_sample_results results = NAPIER_SAMPLE_RESULTS_INIT;
    results.ids = ids;
    results.logprobs = napier_array_f32(logprobs, 3);
    results.plain_logprobs = napier_array_f32(plain, 3);
    EXPECT(napier_sample(context, napier_const_rows_f32(logits[0], 3, 4), &options, &results) == NAPIER_OK);
    EXPECT((ids[2] == 1 || ids[2] == 3) && logprobs[2] > plain[2]);

    options.samples = napier_indices_i32(&samples[2], 1);
    options.positions = napier_indices_i32(&positions[2], 1);
    napier_sample_results one = NAPIER_SAMPLE_RESULTS_INIT;
    one.ids = &alone;
    EXPECT(napier_sample(context, napier_const_rows_f32(logits[2], 1, 4), &options, &one) == NAPIER_OK);
    EXPECT(alone == ids[2]);
}

int main(void) { return run_examples((example *const[]){most_probable_token, draw_with_filters, NULL}); }
