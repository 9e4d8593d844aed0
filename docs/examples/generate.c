/* generate - samples continuations of prompts: the functions of napier/generate.h. */
#include "example.h"
#include "support/tiny_model.h"

static const char *directory; /* of a small model with random weights, in place of your own */

static int print_token(int64_t sequence, int64_t index, int64_t id, float logprob, void *user) {
    (void)user;
    printf("sequence %d, token %d: %d, logprob %.3f\n", (int)sequence, (int)index, (int)id, (double)logprob);
    return 0; /* anything else cancels the call */
}

/* Three samples for each of two prompts. A prompt runs through the model once, and each token is seen as it is drawn. */
static void sample_answers(napier_context *context) {
    enum { SEQUENCES = 6, MOST = 4 };
    const int32_t prompts[] = {5, 60, 12, 7, 9}, offsets[] = {0, 3, 5};
    int64_t ids[SEQUENCES][MOST], lengths[SEQUENCES];
    float plain[SEQUENCES][MOST];
    napier_model *model = NULL;
    napier_generate_batch batch = NAPIER_GENERATE_BATCH_INIT;
    batch.prompt_ids = napier_indices_i32(prompts, 5);
    batch.prompt_offsets = napier_indices_i32(offsets, 3);
    batch.samples = 3;
    napier_sample_options sampling = NAPIER_SAMPLE_OPTIONS_INIT;
    sampling.temperature = 0.8;
    sampling.top_p = 0.9;
    napier_generate_options options = NAPIER_GENERATE_OPTIONS_INIT;
    options.max_tokens = MOST;
    options.sampling = &sampling;
    options.on_token = print_token;
    napier_generate_results results = NAPIER_GENERATE_RESULTS_INIT;
    results.ids = ids[0];
    results.lengths = lengths;
    results.plain_logprobs = napier_rows_f32(plain[0], SEQUENCES, MOST);
    EXPECT(napier_model_load(context, directory, NULL, &model) == NAPIER_OK);
    EXPECT(napier_generate(context, model, &batch, &options, &results) == NAPIER_OK);
    EXPECT(lengths[5] == MOST && plain[5][0] < 0);
    napier_model_destroy(context, model);
}

int main(void) {
    tiny_model tiny = TINY_MODEL_INIT;
    tiny_model_write(&tiny);
    directory = tiny.directory;
    const int status = run_examples((example *const[]){sample_answers, NULL});
    tiny_model_remove(&tiny);
    return status;
}
