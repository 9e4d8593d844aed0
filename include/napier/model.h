/* napier/model.h - language models in C: Qwen3, dense and as a mixture of experts; Qwen2 and 2.5, Llama, Mistral.
 * Per-token log-probabilities of responses given prompts, and rewards.
 *
 * These calls compute old and reference log-probabilities, evaluations and judgements. napier/generate.h samples. Each
 * distinct prompt runs through the model once, and all of its responses share its keys and values. Prompts with a common
 * beginning share that beginning. All tokens of a batch go through a layer together.
 *
 * Bits. A token's results depend only on the model, the compute mode, the tokens before it and the temperature. They do
 * not depend on the other members of the batch or their order, sharing, the memory limit, threads, instruction set or
 * compiler. They are contractual. napier_model_forward followed by napier_token_logprobs (or by
 * napier_linear_token_logprobs) gives the same bits.
 *
 * Compute modes. F32: activations are f32, and weights are widened exactly. BF16: activations are rounded to bf16
 * before each product, and so are the inputs and the weights of attention (bf16_weights in napier/attention.h), as in bf16
 * inference; all arithmetic, sums and the residual stream are f32.
 * SPLIT: as F32, but a product with weights is that of napier_matmul_split, which has F32's accuracy and runs on matrix
 * engines for bf16. It needs matrices of bf16.
 * In all modes the weights are used as they are stored (bf16, f16 or f32) and never rounded. Products and attention
 * have the order of operations of napier/linear.h and napier/attention.h. docs/model.md defines the other steps.
 *
 * Tokens are ids, i32 or i64; napier/tokenizer.h encodes text. Ragged lists: list b has the elements offsets[b] ..
 * offsets[b + 1] - 1; the first offset is 0 and the last is the number of elements. An output must not overlap an input
 * or another output. If a call finds an error in its arguments, it has written nothing. Only napier_model_update changes
 * a model. So any number of threads may use it between updates, each with its own context.
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

typedef enum napier_compute {
    NAPIER_COMPUTE_F32 = 0,
    NAPIER_COMPUTE_BF16 = 1,
    NAPIER_COMPUTE_SPLIT = 2
} napier_compute;

typedef struct napier_model_options {
    size_t struct_size; /* sizeof(napier_model_options) */
    napier_compute compute;
    int64_t memory; /* bytes that a call may use besides the weights and its results; 0: 1 GiB (default). Calls divide
                       their work into chunks that fit, and each chunk runs its prompts again. If even the longest
                       sequence does not fit, the call fails with a message that says how much it needs */
} napier_model_options;

#define NAPIER_MODEL_OPTIONS_INIT \
    { sizeof(napier_model_options), NAPIER_COMPUTE_F32, 0 }

/* Loads the model in a directory: config.json, and model.safetensors or its shards; or the one in a GGUF file of llama.cpp,
 * if the path is a file (docs/model.md lists the types of tensors). options NULL: defaults. The caller destroys *out with
 * the same context. On an error *out is NULL. Quantised weights become f32 in mode F32, and bf16 in the others.
 * The weights are memory-mapped, so the first call that uses them reads them from the file. If another program
 * truncates a mapped file, this program dies with SIGBUS; so replace model files by renaming. Tensors that are not
 * aligned are copied.
 * Errors: IO_ERROR (a file cannot be read, or is a pipe, a device or anything else but a regular file), CORRUPT_DATA (a
 * file has the wrong format, a tensor is missing, has the wrong shape or is none that the config describes), UNSUPPORTED
 * (a model of another family, or a computation that docs/model.md does not list; the message names the field of
 * config.json), INVALID_ARGUMENT, OUT_OF_MEMORY. */
NAPIER_API napier_status napier_model_load(napier_context *context, const char *directory,
                                           const napier_model_options *options, napier_model **out);

/* Appends a document that a GGUF file says in its own way: "config.json", "tokenizer.json" or "tokenizer_config.json", which
 * has the chat template. napier_model_load, napier_tokenizer_load and napier_chat_format_load read these.
 * Errors: IO_ERROR, CORRUPT_DATA, UNSUPPORTED (what Napier lacks; the message names the key), INVALID_ARGUMENT,
 * OUT_OF_MEMORY. */
NAPIER_API napier_status napier_gguf_document(napier_context *context, const char *path, const char *document,
                                              napier_text_buffer *json);

/* A tensor in the caller's memory, such as an entry of PyTorch's state dict. */
typedef struct napier_named_tensor {
    const char *name;     /* as in a checkpoint: "model.layers.0.mlp.up_proj.weight" */
    const void *data;     /* row-major without gaps, at a multiple of its element's size */
    const int64_t *shape; /* [ndim] */
    int64_t ndim;
    napier_dtype dtype; /* f32, f16 or bf16; each tensor may have another */
} napier_named_tensor;

/* Makes a model from a config.json [config_size bytes] and tensors in memory, without copying them: it copies only
 * names, norms and biases. The tensors' memory must outlive the model. The bits are those of the same weights in files.
 * Each tensor that the config describes must be among them, once, and no other may be: one that went unused would be a
 * weight that the caller expects to count. With tied embeddings lm_head.weight may be left out; if it is there, it must
 * have the values of model.embed_tokens.weight. options NULL: defaults. On an error *out is NULL.
 * Errors: CORRUPT_DATA (the config), UNSUPPORTED (as napier_model_load), INVALID_ARGUMENT (a tensor is missing, unknown,
 * given twice, not aligned, or has another shape than the config says; the message names it), OUT_OF_MEMORY. */
NAPIER_API napier_status napier_model_from_tensors(napier_context *context, const char *config, size_t config_size,
                                                   const napier_named_tensor *tensors, int64_t count,
                                                   const napier_model_options *options, napier_model **out);

/* Takes changed weights, as after each step of a training loop: tensors with the names, shapes and dtypes of the model's.
 * count 0: the model's own tensors, whose values have changed in place. If a model from files gets tensors, it reads memory
 * from then on, and its files are closed. A mixture's experts may be one tensor each or fused, whatever they were.
 * A change in place shows in the next call, but not in norms and biases, which the model keeps in f32, nor in a
 * napier_kv. So after a change call this before anything else uses the model. Every napier_kv of the model becomes stale:
 * calls refuse it. On an error the model is as before.
 * context: the one that made the model. No other call may use the model meanwhile.
 * Errors: as napier_model_from_tensors; INVALID_ARGUMENT also for another dtype. */
NAPIER_API napier_status napier_model_update(napier_context *context, napier_model *model,
                                             const napier_named_tensor *tensors, int64_t count);

/* Frees a model. NULL is allowed. */
NAPIER_API void napier_model_destroy(napier_context *context, napier_model *model);

typedef struct napier_model_info {
    size_t struct_size; /* sizeof(napier_model_info) */
    int64_t layers, hidden, heads, kv_heads, head_dim, intermediate, vocabulary;
    int64_t positions; /* the context length the model was trained for, which these calls do not enforce; 0: unknown.
                          With a sliding window at most that window, which they do enforce */
    int64_t parameters;
    int64_t weight_bytes;
    napier_dtype weights; /* the dtype of the embedding */
    int tied;             /* 1: the head uses the weights of the embedding */
    napier_compute compute;
    int64_t memory;
    int64_t bos, eos;   /* ids; -1: unknown. eos is the first if the model has several */
    const char *family; /* model_type of config.json: "qwen3", "qwen2", "llama", "mistral" or "qwen3_moe"; a
                           constant */
    int64_t labels;     /* of a reward model (ForSequenceClassification); 0: a language model (ForCausalLM) */
    int64_t experts;    /* of a layer with a mixture of experts; 0: a dense model, also in the next two */
    int64_t experts_per_token, expert_intermediate;
    const int64_t
        *eos_ids; /* [eos_count] all of eos_token_id, of which eos is the first: at most 16. A chat model's turns
                               may end with any of them. Valid as long as the model */
    int64_t eos_count;
} napier_model_info;

#define NAPIER_MODEL_INFO_INIT \
    { .struct_size = sizeof(napier_model_info) }

NAPIER_API napier_status napier_model_get_info(napier_context *context, const napier_model *model,
                                               napier_model_info *info);

/* The head's weights [V, H], for napier_linear_token_logprobs; of a reward model [labels, H]. The view is valid as long as
 * the model. Quantised weights of mode F32 are widened at the first call; without memory for that the view is empty. */
NAPIER_API napier_const_matrix napier_model_head(const napier_model *model);

/* The model's tensors as they are stored, sorted by name: to list them, or to compare them with another copy. NULL has none.
 * *out is valid until the model is updated or destroyed. Tensors that the model does not use are listed too, with dtype 0
 * where it is one that Napier lacks. Their data may lie at any address.
 * Quantised ones of mode F32 are widened at the first call. Errors: INVALID_ARGUMENT (an index outside [0, count)), OUT_OF_MEMORY. */
NAPIER_API int64_t napier_model_tensor_count(const napier_model *model);
NAPIER_API napier_status napier_model_tensor(napier_context *context, const napier_model *model, int64_t index,
                                             napier_named_tensor *out);

/* ---- All positions ------------------------------------------------------------------------------------------------
 * The states after the last norm (hidden [N, H]) and the logits [N, V] of the tokens ids [N], which form ragged
 * sequences (offsets of size 0: one sequence). Row i of the logits predicts token i + 1. Either output may be absent
 * (data NULL), and may have any dtype but f64. The logits of a reward model are [N, labels].
 * The head multiplies exactly the values of hidden if it is f32 in mode F32 or SPLIT, or bf16 or f32 in mode BF16. To multiply
 * them yourself by bf16 weights in mode BF16, ask for bf16, since napier_matmul uses another order for bf16 by bf16.
 * progress may be NULL. Errors: INVALID_ARGUMENT, UNSUPPORTED (a sequence longer than the model's sliding window),
 * OUT_OF_MEMORY, CANCELLED (outputs are then undefined). */
NAPIER_API napier_status napier_model_forward(napier_context *context, const napier_model *model, napier_indices ids,
                                              napier_indices offsets, napier_matrix hidden, napier_matrix logits,
                                              napier_progress *progress, void *user);

/* ---- Responses ---------------------------------------------------------------------------------------------------*/

/* P prompts, and B responses with T tokens in total. */
typedef struct napier_score_batch {
    size_t struct_size;              /* sizeof(napier_score_batch) */
    napier_indices prompt_ids;       /* the tokens of all prompts */
    napier_indices prompt_offsets;   /* [P + 1] */
    napier_indices response_ids;     /* [T] */
    napier_indices response_offsets; /* [B + 1] */
    napier_indices prompt_of;        /* [B]: the prompt of each response; size 0: response b has prompt b, P = B */
} napier_score_batch;

#define NAPIER_SCORE_BATCH_INIT \
    { .struct_size = sizeof(napier_score_batch) }

/* The keys and values of a beginning that many calls share, such as a system prompt: it runs through the model once, not
 * once a call. A prompt that begins with its tokens, or with some of them, uses it; the bits are the same with and without.
 * It takes napier_kv_bytes of memory besides the model's. Any number of threads may use it. After napier_model_update a call
 * refuses it: destroy it, and make it again. */
typedef struct napier_kv napier_kv;

/* Runs ids [N], N > 0, through the model. The caller destroys *out with the same context, and before the model. progress
 * may be NULL. Errors: INVALID_ARGUMENT, OUT_OF_MEMORY, CANCELLED; then *out is NULL. */
NAPIER_API napier_status napier_kv_create(napier_context *context, const napier_model *model, napier_indices ids,
                                          napier_progress *progress, void *user, napier_kv **out);
/* The same of kv's tokens and ids [N], N > 0, behind them: only ids run. kv stays as it is. */
NAPIER_API napier_status napier_kv_extend(napier_context *context, const napier_kv *kv, napier_indices ids,
                                          napier_progress *progress, void *user, napier_kv **out);
/* Frees it. NULL is allowed. */
NAPIER_API void napier_kv_destroy(napier_context *context, napier_kv *kv);
/* The number of its tokens, and of its bytes. NULL: 0. */
NAPIER_API int64_t napier_kv_tokens(const napier_kv *kv);
NAPIER_API int64_t napier_kv_bytes(const napier_kv *kv);

typedef struct napier_score_options {
    size_t struct_size;   /* sizeof(napier_score_options) */
    double temperature;   /* finite and > 0; default 1 */
    int64_t prefix_token; /* replaces an empty prompt; -1: an empty prompt is an error (default) */
    int unshared;         /* not 0: run the prompt again for each response, for comparison; the bits are the same */
    napier_progress *progress;
    void *user;
    const napier_kv *const *kvs; /* [kv_count] of this model; each prompt uses the one that holds the most of its
                                    beginning. Not used if `unshared` */
    int64_t kv_count;
} napier_score_options;

#define NAPIER_SCORE_OPTIONS_INIT \
    { sizeof(napier_score_options), 1.0, -1, 0, NULL, NULL, NULL, 0 }

/* Results for each token of the responses, in the order of response_ids. Leave data NULL for those you do not want. The
 * vectors are f32, f16 or bf16. Together with the batch's response_ids and response_offsets they are the input of
 * napier_kl_per_response, napier_rubric_score and napier_grpo_loss. */
typedef struct napier_score_results {
    size_t struct_size;     /* sizeof(napier_score_results) */
    napier_vector logprobs; /* [T] */
    napier_vector entropy;  /* [T]: of the distribution that the token was drawn from */
    int64_t *argmax;        /* [T]: the most probable token, the lowest id if equal; -1 where the logits have a NaN */
    uint8_t *is_greedy;     /* [T]: 1 where the response has that token, else 0 */
} napier_score_results;

#define NAPIER_SCORE_RESULTS_INIT \
    { .struct_size = sizeof(napier_score_results) }

/* logprobs[t] = log p(token t of the response | its prompt, the tokens of the response before t), from logits divided
 * by the temperature. Row i of a forward pass predicts token i + 1, so the last row of the prompt rates the first token
 * of a response. An empty response has no results. The call finds equal prompts, whether prompt_of refers to one prompt
 * or the batch repeats it. It also finds common beginnings of at least 16 tokens, and shares them where that saves
 * work. It calls progress after each layer (stage "scoring").
 * Errors: INVALID_ARGUMENT (an id outside the vocabulary, offsets that decrease, an empty prompt; the message names the
 * index and the value; a reward model), UNSUPPORTED (a sequence longer than the model's sliding window), OUT_OF_MEMORY,
 * CANCELLED (results are then undefined). */
NAPIER_API napier_status napier_model_batch_logprobs(napier_context *context, const napier_model *model,
                                                     const napier_score_batch *batch,
                                                     const napier_score_options *options,
                                                     const napier_score_results *results);
/* The same for one prompt and one response. The results have size response.size. */
NAPIER_API napier_status napier_model_logprobs_for(napier_context *context, const napier_model *model,
                                                   napier_indices prompt, napier_indices response,
                                                   const napier_score_options *options,
                                                   const napier_score_results *results);

/* The work that a call of napier_model_batch_logprobs would do. */
typedef struct napier_score_plan {
    size_t struct_size;      /* sizeof(napier_score_plan) */
    int64_t prompts;         /* distinct prompts with at least one response that is not empty */
    int64_t tokens;          /* T */
    int64_t tokens_run;      /* tokens run through the layers: responses, and a prompt once for each of its chunks */
    int64_t tokens_unshared; /* the same if each response ran its prompt again */
    int64_t chunks;
    int64_t bytes; /* upper bound of memory, besides weights and results */
} napier_score_plan;

#define NAPIER_SCORE_PLAN_INIT \
    { .struct_size = sizeof(napier_score_plan) }

NAPIER_API napier_status napier_model_batch_plan(napier_context *context, const napier_model *model,
                                                 const napier_score_batch *batch, const napier_score_options *options,
                                                 napier_score_plan *plan);

/* ---- Rewards ------------------------------------------------------------------------------------------------------
 * The outputs of a reward model's head (ForSequenceClassification): rewards [B, labels], of any dtype but f64. Row b is
 * about prompt and response b: the head, without bias, at their last token, which is the prompt's if the response is
 * empty. There is no padding, so no token is left out. The batch, sharing, memory and kvs are as in
 * napier_model_batch_logprobs; the temperature is not used.
 * Bits: a reward depends on the model, the compute mode and the tokens. napier_model_forward gives the same in the last
 * row of its logits. They are contractual.
 * Errors: as napier_model_batch_logprobs; INVALID_ARGUMENT if the model is a language model. */
NAPIER_API napier_status napier_model_rewards(napier_context *context, const napier_model *model,
                                              const napier_score_batch *batch, const napier_score_options *options,
                                              napier_matrix rewards);

/* ---- Judging ------------------------------------------------------------------------------------------------------
 * The model judges B responses by C criteria. One prompt for each response and criterion asks for a verdict, and the
 * log-probabilities of the given verdicts ("Yes", "No") are the answer. L_v is the sum of the log-probabilities of
 * verdict v's tokens after the prompt, at the temperature of the options. Then
 *     p_v = exp(L_v) / sum_u exp(L_u)
 *     scores[b][c] = weights[c] * sum_v p_v values[v],  rewards[b] = sum_c scores[b][c],
 * like the scores and rewards of napier_rubric_score. Sums are in double, in ascending order. */
typedef struct napier_judge_batch {
    size_t struct_size;             /* sizeof(napier_judge_batch) */
    napier_indices prompt_ids;      /* the tokens of all prompts */
    napier_indices prompt_offsets;  /* [B C + 1]: list b C + c asks about response b and criterion c */
    int64_t criteria;               /* C > 0 */
    napier_indices verdict_ids;     /* the tokens of all verdicts */
    napier_indices verdict_offsets; /* [V + 1]; V > 0, and no verdict is empty */
    const double *values;           /* [V] */
    napier_const_vector weights;    /* [C]; data NULL: all 1 */
} napier_judge_batch;

#define NAPIER_JUDGE_BATCH_INIT \
    { .struct_size = sizeof(napier_judge_batch) }

/* scores [B, C], rewards [B], logprobs [B C, V] (L_v). Each may be absent (data NULL). A score is NaN where all L_v are
 * -inf or one is NaN. Errors: as napier_model_batch_logprobs. */
NAPIER_API napier_status napier_model_judge(napier_context *context, const napier_model *model,
                                            const napier_judge_batch *batch, const napier_score_options *options,
                                            napier_matrix scores, napier_vector rewards, napier_matrix logprobs);

/* ---- Texts -------------------------------------------------------------------------------------------------------*/

typedef struct napier_text {
    const char *bytes;
    size_t size;
} napier_text;

/* Encodes `count` texts, each on its own, into one ragged list. The call empties ids, appends the ids of all texts, and
 * sets offsets [count + 1]: text i has the ids offsets[i] .. offsets[i + 1] - 1. Prompts and responses encoded this way
 * make a napier_score_batch. Errors: as napier_tokenizer_encode; the message names the number of the text. */
NAPIER_API napier_status napier_model_encode_texts(napier_context *context, const napier_tokenizer *tokenizer,
                                                   const napier_text *texts, int64_t count,
                                                   const napier_encode_options *options, napier_token_buffer *ids,
                                                   int64_t *offsets);

#ifdef __cplusplus
}
#endif
#endif
