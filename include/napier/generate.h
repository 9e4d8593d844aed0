/* napier/generate.h - samples continuations of prompts from a model.
 *
 * Every prompt runs through the model once, and all of its samples share its keys and values; prompts with a common
 * beginning share that beginning. Sequences enter and leave the batch at any step, within the model's memory.
 *
 * Bits. A sequence's tokens and log-probabilities depend only on the model, the compute mode, its prompt, the sampling
 * options and its number. They do not depend on the other sequences, their order, the memory limit, keys and values that
 * are kept (napier_kv), threads, instruction set or compiler. They are contractual. napier_model_batch_logprobs with the
 * prompt, the generated tokens and the same temperature gives plain_logprobs, bit for bit; so does a trainer that
 * computes the same forward pass.
 *
 * These functions are in builds with NAPIER_MODEL. */
#ifndef NAPIER_GENERATE_H
#define NAPIER_GENERATE_H

#include <napier/model.h>
#include <napier/sample.h>

#ifdef __cplusplus
extern "C" {
#endif

/* P prompts with S samples each: B = P S sequences. Sequence b is a sample of prompt b / S. */
typedef struct napier_generate_batch {
    size_t struct_size;            /* sizeof(napier_generate_batch) */
    napier_indices prompt_ids;     /* the tokens of all prompts */
    napier_indices prompt_offsets; /* [P + 1]; no prompt is empty */
    int64_t samples;               /* S > 0 */
    napier_indices numbers;        /* [B] the number of each sequence, from which its random numbers are drawn: two
                                      sequences with the same prompt and number are equal. Size 0: b */
} napier_generate_batch;

#define NAPIER_GENERATE_BATCH_INIT \
    { .struct_size = sizeof(napier_generate_batch), .samples = 1 }

/* A new token of a sequence, the first at index 0. Called in the order of generation, from the calling thread. A result
 * that is not 0 cancels the call. */
typedef int napier_token_callback(int64_t sequence, int64_t index, int64_t id, float logprob, void *user);

typedef struct napier_generate_options {
    size_t struct_size;  /* sizeof(napier_generate_options) */
    int64_t max_tokens;  /* of a sequence, > 0; default 16 */
    napier_indices stop; /* ids that end a sequence, which keeps them as its last token; size 0: none */
    const napier_sample_options *sampling; /* NULL: defaults. Temperature, filters, penalties, a keep that all rows
                                              share, and seed; its lists must be empty, since this call fills them */
    const napier_kv *const *kvs; /* [kv_count] of this model; each prompt uses the one that holds the most of it */
    int64_t kv_count;
    napier_token_callback *on_token; /* NULL: none */
    void *user;
} napier_generate_options;

#define NAPIER_GENERATE_OPTIONS_INIT \
    { .struct_size = sizeof(napier_generate_options), .max_tokens = 16 }

typedef enum napier_finish {
    NAPIER_FINISH_LENGTH = 0, /* max_tokens */
    NAPIER_FINISH_STOP = 1    /* an id of `stop` */
} napier_finish;

/* Row b belongs to sequence b. Beyond a sequence's length, ids are -1 and log-probabilities 0. */
typedef struct napier_generate_results {
    size_t struct_size;           /* sizeof(napier_generate_results) */
    int64_t *ids;                 /* [B, max_tokens] */
    int64_t *lengths;             /* [B] */
    napier_finish *finish;        /* [B]; NULL: not wanted */
    napier_matrix logprobs;       /* [B, max_tokens] under the distribution that was sampled; no data: not wanted */
    napier_matrix plain_logprobs; /* [B, max_tokens] without penalties, keep and filters; no data: not wanted */
} napier_generate_results;

#define NAPIER_GENERATE_RESULTS_INIT \
    { .struct_size = sizeof(napier_generate_results) }

/* Generates all sequences. The keys and values of the sequences that run together take what the layers leave of the
 * model's memory, and each step as much more as its logits. Dtypes of log-probabilities: f32, f16 or bf16.
 * Errors: INVALID_ARGUMENT (also where the logits have a NaN or leave no id),
 * OUT_OF_MEMORY (also where not even one sequence fits: the message says how much it needs), CANCELLED. After an error
 * other than those of arguments the results are undefined. */
NAPIER_API napier_status napier_generate(napier_context *context, const napier_model *model,
                                         const napier_generate_batch *batch, const napier_generate_options *options,
                                         const napier_generate_results *results);

#ifdef __cplusplus
}
#endif
#endif
