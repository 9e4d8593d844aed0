/* bench/model/napier_worker.c - one process that scores, told what to do on standard input:
 *
 *     napier_worker DIRECTORY f32|bf16 THREADS
 *     score PROMPT RESPONSE G UNSHARED      one prompt of so many tokens, G responses
 *     all TOKENS                            log-probabilities of every position
 *
 * and answers with the seconds of the wall clock and of the processor that the call took, and the log-probabilities.
 * The ids of a line are those of ids.py: what other workers score. */
#define _POSIX_C_SOURCE 200809L

#include <napier/model.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_TOKENS = 1 << 16 };

static double seconds(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct worker {
    napier_context *context;
    napier_model *model;
    int64_t vocabulary;
    uint64_t state;
    int32_t prompt[MOST_TOKENS], response[MOST_TOKENS];
    int64_t offsets[MOST_TOKENS], of[MOST_TOKENS];
    float logprobs[MOST_TOKENS];
} worker;

static void demand(const worker *w, napier_status status, const char *what) {
    if (status != NAPIER_OK) {
        fprintf(stderr, "%s: %s\n", what, napier_last_error(w->context));
        exit(1);
    }
}

static void fill(worker *w, int32_t *ids, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        w->state = w->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        ids[i] = (int32_t)((w->state >> 33) % (uint64_t)w->vocabulary);
    }
}

static void score(worker *w, int64_t prompt, int64_t response, int64_t count, int unshared) {
    const int64_t prompts[] = {0, prompt};
    napier_score_batch batch = NAPIER_SCORE_BATCH_INIT;
    napier_score_options options = NAPIER_SCORE_OPTIONS_INIT;
    napier_score_results results = NAPIER_SCORE_RESULTS_INIT;
    for (int64_t i = 0; i <= count; i++) {
        w->offsets[i] = i * response;
        w->of[i] = 0;
    }
    batch.prompt_ids = napier_indices_i32(w->prompt, prompt);
    batch.prompt_offsets = napier_indices_i64(prompts, 2);
    batch.response_ids = napier_indices_i32(w->response, count * response);
    batch.response_offsets = napier_indices_i64(w->offsets, count + 1);
    batch.prompt_of = napier_indices_i64(w->of, count);
    options.unshared = unshared;
    results.logprobs = napier_array_f32(w->logprobs, count * response);
    demand(w, napier_model_batch_logprobs(w->context, w->model, &batch, &options, &results), "score");
}

/* As separate calls, which is what a caller without a batch would make. */
static void score_one_by_one(worker *w, int64_t prompt, int64_t response, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        score(w, prompt, response, 1, 0);
    }
}

static void answer(const worker *w, double wall, double processor, int64_t tokens) {
    printf("%.6f %.6f", wall, processor);
    for (int64_t i = 0; i < tokens; i++) {
        printf(" %.5f", (double)w->logprobs[i]);
    }
    printf("\n");
}

static int run(worker *w, const char *line) {
    long prompt, response, count, unshared;
    w->state = 0;
    if (sscanf(line, "score %ld %ld %ld %ld", &prompt, &response, &count, &unshared) == 4 &&
        prompt + response * count < MOST_TOKENS) {
        fill(w, w->prompt, prompt);
        fill(w, w->response, response * count);
        const double wall = seconds(CLOCK_MONOTONIC), processor = seconds(CLOCK_PROCESS_CPUTIME_ID);
        if (unshared == 2) {
            score_one_by_one(w, prompt, response, count);
        } else {
            score(w, prompt, response, count, unshared == 1);
        }
        answer(w, seconds(CLOCK_MONOTONIC) - wall, seconds(CLOCK_PROCESS_CPUTIME_ID) - processor, response * count);
        return 1;
    }
    if (sscanf(line, "all %ld", &count) == 1 && count < MOST_TOKENS) {
        char again[64];
        (void)snprintf(again, sizeof again, "score 1 %ld 1 0", count - 1);
        return run(w, again); /* the same ids: a prompt's and its response's follow one another */
    }
    return 0;
}

int main(int argc, char **argv) {
    static worker w;
    char line[256];
    napier_context_options options = NAPIER_CONTEXT_OPTIONS_INIT;
    napier_model_options how = NAPIER_MODEL_OPTIONS_INIT;
    napier_model_info info = NAPIER_MODEL_INFO_INIT;
    if (argc != 4) {
        return 2;
    }
    options.threads = atoi(argv[3]);
    how.compute = strcmp(argv[2], "bf16") == 0 ? NAPIER_COMPUTE_BF16 : NAPIER_COMPUTE_F32;
    if (napier_context_create(&w.context, &options) != NAPIER_OK) {
        return 1;
    }
    demand(&w, napier_model_load(w.context, argv[1], &how, &w.model), argv[1]);
    demand(&w, napier_model_get_info(w.context, w.model, &info), "info");
    w.vocabulary = info.vocabulary;
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) != NULL && run(&w, line)) {
        fflush(stdout);
    }
    napier_model_destroy(w.context, w.model);
    napier_context_destroy(w.context);
    return 0;
}
