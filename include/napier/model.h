/* napier/model.h - Qwen3 in C: per-token log-probabilities of responses given prompts.
 *
 * For old and reference log-probabilities, evaluation and judging; not a chat engine. Each distinct prompt runs
 * through the model once, and its keys and values are shared by all of its responses; prompts that begin alike share
 * what is alike; all of a batch goes through a layer together.
 *
 * Bits. A token's results depend on the model, the compute mode, the tokens before it and the temperature: not on
 * what else is in the batch or in what order, on sharing, the memory limit, threads, instruction set or compiler.
 * They are contractual. napier_model_forward and then napier_token_logprobs (or napier_linear_token_logprobs) give
 * the same bits.
 *
 * Compute modes. F32: activations in f32, weights widened exactly. BF16: activations are rounded to bf16 before each
 * product and before attention, as bf16 inference does; all arithmetic, sums and the residual stream are f32. Weights
 * are used as they are stored, bf16, f16 or f32, and never rounded. Products and attention have the orders of
 * napier/linear.h and napier/attention.h; docs/model.md has the rest.
 *
 * Tokens are ids, i32 or i64; a text is encoded by napier/tokenizer.h. Ragged lists: list b is elements offsets[b] ..
 * offsets[b + 1] - 1, the first offset 0, the last the size. Outputs overlap neither inputs nor one another. On an
 * error that is found in the arguments nothing has been written. A model is never changed once loaded: any number of
 * threads may use it, each with a context of its own.
 *
 * These functions are in builds with NAPIER_MODEL, which needs cJSON, PCRE2 and utf8proc. */
#ifndef NAPIER_MODEL_H
#define NAPIER_MODEL_H

#include <napier/rl.h>
#include <napier/tokenizer.h>
#include <napier/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct napier_model napier_model;

typedef enum napier_compute { NAPIER_COMPUTE_F32 = 0, NAPIER_COMPUTE_BF16 = 1 } napier_compute;

typedef struct napier_model_options {
    size_t struct_size; /* sizeof(napier_model_options) */
    napier_compute compute;
    int64_t memory; /* bytes that a call may take beside the weights and its results; 0: 1 GiB (default). Work is cut
                       into chunks that fit, each of which runs its prompts anew; what is too little for the longest
                       sequence is an error that says how much it needs */
} napier_model_options;

#define NAPIER_MODEL_OPTIONS_INIT \
    { sizeof(napier_model_options), NAPIER_COMPUTE_F32, 0 }

/* Loads the model in a directory: config.json, and model.safetensors or its shards. Weights are mapped, not read: the
 * first call reads them, and a file that gets shorter meanwhile ends the program (SIGBUS), so replace files by
 * renaming; tensors at odd places are copied. The caller destroys *out with the same context; NULL on an error. options
 * NULL: defaults. Errors: IO_ERROR (a file cannot be read, or is none but a pipe, a device, ...), CORRUPT_DATA (a file
 * is not what it should be, a tensor is missing or has another shape), UNSUPPORTED (what is not a dense Qwen3, by
 * name), INVALID_ARGUMENT, OUT_OF_MEMORY. */
NAPIER_API napier_status napier_model_load(napier_context *context, const char *directory,
                                           const napier_model_options *options, napier_model **out);
/* NULL is allowed. */
NAPIER_API void napier_model_destroy(napier_context *context, napier_model *model);

typedef struct napier_model_info {
    size_t struct_size; /* sizeof(napier_model_info) */
    int64_t layers, hidden, heads, kv_heads, head_dim, intermediate, vocabulary;
    int64_t positions; /* that the model was made for, which is no limit here; 0: not known */
    int64_t parameters;
    int64_t weight_bytes;
    napier_dtype weights; /* of the embedding */
    int tied;             /* the head is the embedding */
    napier_compute compute;
    int64_t memory;
    int64_t bos, eos; /* ids; -1: not known. eos: the first of them */
} napier_model_info;

#define NAPIER_MODEL_INFO_INIT \
    { .struct_size = sizeof(napier_model_info) }

NAPIER_API napier_status napier_model_get_info(napier_context *context, const napier_model *model,
                                               napier_model_info *info);

/* The head's weights [V, H], for napier_linear_token_logprobs; they live as long as the model. */
NAPIER_API napier_const_matrix napier_model_head(const napier_model *model);

/* ---- All positions ------------------------------------------------------------------------------------------------
 * The states after the last norm, and the logits: ids [N] in ragged sequences (offsets of size 0: one), hidden
 * [N, H] and logits [N, V] of any dtype but f64; either may be absent (data NULL). logits[i] is about token i + 1. In
 * F32 hidden as f32, in BF16 hidden as bf16 or f32 is what the head multiplies, exactly; bf16 weights then want it as
 * bf16.
 * progress may be NULL. Errors: INVALID_ARGUMENT, OUT_OF_MEMORY, CANCELLED (outputs are then undefined). */
NAPIER_API napier_status napier_model_forward(napier_context *context, const napier_model *model, napier_indices ids,
                                              napier_indices offsets, napier_matrix hidden, napier_matrix logits,
                                              napier_progress *progress, void *user);

/* ---- Responses ---------------------------------------------------------------------------------------------------*/

/* P prompts and B responses of T tokens together. */
typedef struct napier_score_batch {
    size_t struct_size;              /* sizeof(napier_score_batch) */
    napier_indices prompt_ids;       /* of all prompts */
    napier_indices prompt_offsets;   /* [P + 1] */
    napier_indices response_ids;     /* [T] */
    napier_indices response_offsets; /* [B + 1] */
    napier_indices prompt_of;        /* [B]: the prompt of each response; size 0: response b has prompt b, P = B */
} napier_score_batch;

#define NAPIER_SCORE_BATCH_INIT \
    { .struct_size = sizeof(napier_score_batch) }

typedef struct napier_score_options {
    size_t struct_size;   /* sizeof(napier_score_options) */
    double temperature;   /* finite and > 0; default 1 */
    int64_t prefix_token; /* stands in for an empty prompt; -1: that is an error (default) */
    int unshared;         /* not 0: each response runs its prompt again, for comparison: the same bits */
    napier_progress *progress;
    void *user;
} napier_score_options;

#define NAPIER_SCORE_OPTIONS_INIT \
    { sizeof(napier_score_options), 1.0, -1, 0, NULL, NULL }

/* Of each token of the responses, in the order of response_ids; data NULL: not wanted. f32, f16 or bf16. With the
 * batch's response_ids and response_offsets they are what napier_kl_per_response, napier_rubric_score and
 * napier_grpo_loss take. */
typedef struct napier_score_results {
    size_t struct_size;     /* sizeof(napier_score_results) */
    napier_vector logprobs; /* [T] */
    napier_vector entropy;  /* [T] of the distribution that the token was drawn from */
    int64_t *argmax;    /* [T] the most probable token, the lowest id among equals; -1 where the logits have a NaN */
    uint8_t *is_greedy; /* [T] 1 where the response has that token, else 0 */
} napier_score_results;

#define NAPIER_SCORE_RESULTS_INIT \
    { .struct_size = sizeof(napier_score_results) }

/* logprobs[t] = log p(token t of the response | its prompt, the tokens of the response before t), from logits divided
 * by the temperature; row i of a forward pass is about token i + 1, so a response's first token is rated by the
 * prompt's last. An empty response gets nothing. Equal prompts are found, whether given once or again; so are common
 * beginnings of 16 tokens and more where they save work. progress is told after each layer ("scoring"). Errors:
 * INVALID_ARGUMENT (an id that the vocabulary has not, offsets that fall, an empty prompt: the text names the index
 * and the value), OUT_OF_MEMORY, CANCELLED (results are then undefined). */
NAPIER_API napier_status napier_model_batch_logprobs(napier_context *context, const napier_model *model,
                                                     const napier_score_batch *batch,
                                                     const napier_score_options *options,
                                                     const napier_score_results *results);
/* The same for one pair: results of size response.size. */
NAPIER_API napier_status napier_model_logprobs_for(napier_context *context, const napier_model *model,
                                                   napier_indices prompt, napier_indices response,
                                                   const napier_score_options *options,
                                                   const napier_score_results *results);

/* What a call of napier_model_batch_logprobs would do. */
typedef struct napier_score_plan {
    size_t struct_size;      /* sizeof(napier_score_plan) */
    int64_t prompts;         /* distinct ones with a response that is not empty */
    int64_t tokens;          /* T */
    int64_t tokens_run;      /* through the layers: prompts and responses, a prompt once for each chunk that it is in */
    int64_t tokens_unshared; /* if each response ran its prompt again */
    int64_t chunks;
    int64_t bytes; /* of memory at most, beside weights and results */
} napier_score_plan;

#define NAPIER_SCORE_PLAN_INIT \
    { .struct_size = sizeof(napier_score_plan) }

NAPIER_API napier_status napier_model_batch_plan(napier_context *context, const napier_model *model,
                                                 const napier_score_batch *batch, const napier_score_options *options,
                                                 napier_score_plan *plan);

/* ---- Judging ------------------------------------------------------------------------------------------------------
 * The model itself as the judge of B responses by C criteria: a prompt for each response and criterion asks for a
 * verdict, and the log-probabilities of given verdicts ("Yes", "No") are the answer. With L_v the sum of the
 * log-probabilities of verdict v's tokens after the prompt, at the temperature of the options,
 *     p_v = exp(L_v) / sum_u exp(L_u)
 *     scores[b][c] = weights[c] * sum_v p_v values[v],  rewards[b] = sum_c scores[b][c],
 * as napier_rubric_score has them; sums in double, ascending. */
typedef struct napier_judge_batch {
    size_t struct_size;             /* sizeof(napier_judge_batch) */
    napier_indices prompt_ids;      /* of all prompts */
    napier_indices prompt_offsets;  /* [B C + 1]: list b C + c asks about response b and criterion c */
    int64_t criteria;               /* C > 0 */
    napier_indices verdict_ids;     /* of all verdicts */
    napier_indices verdict_offsets; /* [V + 1], none empty, V > 0 */
    const double *values;           /* [V] */
    napier_const_vector weights;    /* [C]; data NULL: all 1 */
} napier_judge_batch;

#define NAPIER_JUDGE_BATCH_INIT \
    { .struct_size = sizeof(napier_judge_batch) }

/* scores [B, C], rewards [B], logprobs [B C, V] (L_v); each may be absent (data NULL). Where all L_v are -inf or one is
 * NaN the score is NaN. Errors: as napier_model_batch_logprobs. */
NAPIER_API napier_status napier_model_judge(napier_context *context, const napier_model *model,
                                            const napier_judge_batch *batch, const napier_score_options *options,
                                            napier_matrix scores, napier_vector rewards, napier_matrix logprobs);

/* ---- Texts -------------------------------------------------------------------------------------------------------*/

typedef struct napier_text {
    const char *bytes;
    size_t size;
} napier_text;

/* The lists of ids of `count` texts: each is encoded by itself and appended to ids, and offsets [count + 1] say where
 * it begins, the first offset 0: ids is emptied first. Prompts and responses encoded so make a napier_score_batch.
 * Errors: as napier_tokenizer_encode; the text names the number of the text. */
NAPIER_API napier_status napier_model_encode_texts(napier_context *context, const napier_tokenizer *tokenizer,
                                                   const napier_text *texts, int64_t count,
                                                   const napier_encode_options *options, napier_token_buffer *ids,
                                                   int64_t *offsets);

#ifdef __cplusplus
}
#endif
#endif
