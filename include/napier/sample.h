/* napier/sample.h - draws one token id for each row of logits, and gives its log-probabilities.
 *
 * A row x of V logits becomes a distribution in these steps. Their order is that of Hugging Face's processors.
 *     1. repetition_penalty r: x < 0 ? x r : x / r, for each id of the row's prompt or output   (Hugging Face, vLLM)
 *     2. frequency_penalty f: x - f (times the id is in the row's output)                       (vLLM, OpenAI)
 *        presence_penalty p: x - p, for each id of the row's output                             (vLLM, OpenAI)
 *     3. temperature T: z = x / T
 *     4. keep: z = -inf where it is 0
 *     5. top_k, top_p and min_p, one after the other; each keeps a beginning of the row in the order of ids below
 * Steps 1 to 3 round each operation once, in f32. The distribution is the softmax of what is left.
 *
 * The order of ids: larger z first, and of equal z the lower id first. It decides ties, so
 *     top_k keeps exactly k ids (Hugging Face and vLLM keep all that tie with the last)
 *     top_p keeps the shortest beginning whose probability, after top_k, is at least top_p, and so at least one id
 *     min_p keeps the ids with z - max z >= log(min_p): their probability is at least min_p times the largest
 * vLLM applies min_p before top_k and top_p: then top_p refers to the ids that min_p keeps. The results differ only if both
 * are set.
 *
 * Temperature 0 is greedy: the first id of the order after steps 1, 2 and 4. Its logprob is 0, and its plain_logprob is that
 * at temperature 1.
 *
 * Random numbers. The id is a function of the row's logits, of the options, and of (seed, sample, position). Philox4x32-10
 * (Salmon et al. 2011) has the key {seed low, seed high} and the counter {position low, position high, sample low, sample
 * high}. Its first two words are the number u = word[0] + 2^32 word[1]. There is no state, so the order and the division of a
 * batch do not matter. The id is the inverse of the cumulative distribution in the order of ascending ids, at u / 2^64
 * (docs/sample.md). Its bits are contractual, as those of the log-probabilities are.
 *
 * Log-probabilities.
 *     logprob        under the distribution that the id was drawn from
 *     plain_logprob  of the id under the softmax of the logits / T: without penalties, keep and filters
 * Both have the bits of napier_token_logprobs: logprob for the logits after steps 1 and 2, the temperature, and keep 0 where an
 * id is not kept; plain_logprob for the logits and the temperature.
 *
 * Dtypes: logits and log-probabilities are f32, f16 or bf16; f64 is INVALID_ARGUMENT.
 * Rows without a distribution are INVALID_ARGUMENT: a NaN, +inf or only -inf among the logits / T (also where keep is 0), and
 * among what is left after step 4. A finite logit whose quotient overflows is an infinity there: 50 with T = 1e-37. The
 * message names the lowest such row and the reason. Nothing has been written then. */
#ifndef NAPIER_SAMPLE_H
#define NAPIER_SAMPLE_H

#include <napier/softmax.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct napier_sample_options {
    size_t struct_size;        /* sizeof(napier_sample_options) */
    double temperature;        /* finite and > 0, or 0: greedy; default 1 */
    int64_t top_k;             /* 0, or at least V: no limit; default 0 */
    double top_p;              /* in (0, 1]; 1: no limit (default). Rounded down to a multiple of 2^-64 */
    double min_p;              /* in [0, 1]; 0: no limit (default) */
    double repetition_penalty; /* finite and > 0; default 1: none */
    double presence_penalty;   /* finite; default 0: none */
    double frequency_penalty;  /* finite; default 0: none */
    const uint8_t *keep;       /* one byte per id; a 0 forbids the id; NULL: all may be drawn */
    int64_t keep_stride;       /* bytes from one row of keep to the next; at least V, or 0: all rows share one set */
    napier_indices prompt_ids; /* the rows' prompts, one after the other; only repetition_penalty uses them */
    napier_indices
        prompt_offsets;        /* [N + 1]: row i has prompt_ids offsets[i] .. offsets[i + 1] - 1; size 0: no prompts */
    napier_indices output_ids; /* the tokens that the rows have already generated, in the same way */
    napier_indices output_offsets; /* [N + 1]; size 0: none */
    int64_t seed;                  /* its 64 bits are the key of the random numbers; default 0 */
    napier_indices seeds;          /* [N]: in place of seed, one for each row; size 0: all have seed */
    napier_indices samples;        /* [N]: the number of the sample that the row belongs to; size 0: the row's index */
    napier_indices positions;      /* [N]: the position of the drawn token in its sample; size 0: 0 */
} napier_sample_options;

#define NAPIER_SAMPLE_OPTIONS_INIT \
    { .struct_size = sizeof(napier_sample_options), .temperature = 1.0, .top_p = 1.0, .repetition_penalty = 1.0 }

typedef struct napier_sample_results {
    size_t struct_size;           /* sizeof(napier_sample_results) */
    int64_t *ids;                 /* [N]; must be there */
    napier_vector logprobs;       /* [N]; absent if data is NULL */
    napier_vector plain_logprobs; /* [N]; absent if data is NULL */
} napier_sample_results;

#define NAPIER_SAMPLE_RESULTS_INIT \
    { .struct_size = sizeof(napier_sample_results) }

/* logits is [N, V], V > 0 if N > 0. options NULL: defaults. No output may overlap an input or another output.
 * Each row is read once. Tiles of 1024 columns that penalties, keep or filters concern, and the tile of the drawn id, are read
 * again (docs/sample.md).
 * Memory: 24 bytes for each row; for each thread 40 bytes per 1024 columns and some kilobytes, with filters 4 bytes for each
 * column, with penalties another 4.
 * Errors: INVALID_ARGUMENT, OUT_OF_MEMORY. */
NAPIER_API napier_status napier_sample(napier_context *context, napier_const_matrix logits,
                                       const napier_sample_options *options, const napier_sample_results *results);

#ifdef __cplusplus
}
#endif
#endif
