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

/* A new token of a sequence, the first at index 0. Called in the order of generation, from the calling thread.
 * NAPIER_END_SEQUENCE ends the sequence with this token; any other result that is not 0 cancels the call. */
enum { NAPIER_END_SEQUENCE = 2 };
typedef int napier_token_callback(int64_t sequence, int64_t index, int64_t id, float logprob, void *user);

/* New text of a sequence, in the same order; the pieces of a sequence are its text (see below). A piece ends with a whole
 * character of UTF-8, and nothing in it can still become a part of a stop text. ended: not 0 in the last call for a
 * sequence, whose piece may be empty, or end inside a character. A result that is not 0 cancels the call. */
typedef int napier_text_callback(int64_t sequence, const char *bytes, size_t size, int ended, void *user);

/* The keys and values of a sequence that has ended: of its prompt and of all its tokens but the last. A later call that goes
 * on with the sequence, as the next turn of a conversation, takes them in options->kvs, and runs only what is new. The callee
 * destroys kv, which takes memory besides the model's. A result that is not 0 cancels the call. */
typedef int napier_kv_callback(int64_t sequence, napier_kv *kv, void *user);

/* Asked before each step: how many prompts are there, of the batch's P. Never fewer than before; no step and no further
 * question follow when all that are there have ended. Before it returns, the caller writes the ids of further prompts, their
 * offsets and numbers into the memory of the batch. A negative result cancels the call. */
typedef int64_t napier_arrival_callback(void *user);

/* The text of a sequence is the bytes of its tokens, without those of special tokens. Stop texts are looked for in the
 * bytes with those of special tokens, so one may contain "<|im_end|>", and across tokens. A sequence ends with the token
 * that has the last byte of a stop text. Its text ends before the stop text, while its tokens stay whole. The first stop
 * text that is complete counts; of several that end at the same byte, the longest. */

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
    int64_t
        min_tokens; /* 0 to max_tokens: neither an id of `stop` (whose probability is 0 then, as with keep) nor a stop
                           text ends a sequence with one of its first min_tokens tokens; default 0 */
    const napier_tokenizer *tokenizer; /* the model's; needed for texts. NULL: none */
    const napier_text *stop_texts;     /* [stop_text_count], none empty */
    int64_t stop_text_count;
    napier_text_callback *on_text;       /* NULL: none */
    napier_kv_callback *on_kv;           /* NULL: none */
    napier_arrival_callback *on_arrival; /* NULL: all prompts are there */
    int64_t longest_prompt;              /* with on_arrival: no prompt has more tokens; it determines the memory */
} napier_generate_options;

#define NAPIER_GENERATE_OPTIONS_INIT \
    { .struct_size = sizeof(napier_generate_options), .max_tokens = 16 }

typedef enum napier_finish {
    NAPIER_FINISH_LENGTH = 0, /* max_tokens */
    NAPIER_FINISH_STOP = 1,   /* an id of `stop` */
    NAPIER_FINISH_TEXT = 2,   /* a stop text */
    NAPIER_FINISH_CALLER = 3  /* on_token's NAPIER_END_SEQUENCE */
} napier_finish;

/* Row b belongs to sequence b. Beyond a sequence's length, ids are -1 and numbers 0; one whose prompt has not arrived has
 * length 0. */
typedef struct napier_generate_results {
    size_t struct_size;           /* sizeof(napier_generate_results) */
    int64_t *ids;                 /* [B, max_tokens] */
    int64_t *lengths;             /* [B] */
    napier_finish *finish;        /* [B]; NULL: not wanted */
    napier_matrix logprobs;       /* [B, max_tokens] under the distribution that was sampled; no data: not wanted */
    napier_matrix plain_logprobs; /* [B, max_tokens] without penalties, keep and filters; no data: not wanted */
    napier_matrix entropy;    /* [B, max_tokens] of the distribution of plain_logprobs, as napier_model_batch_logprobs
                                     gives it; no data: not wanted */
    int64_t *argmax;          /* [B, max_tokens] the id with the largest logit; NULL: not wanted */
    int64_t *stop_text;       /* [B] the index of the stop text that ended the sequence, else -1; NULL: not wanted */
    napier_text_buffer *text; /* the texts of all sequences are appended; NULL: not wanted */
    int64_t *text_offsets;    /* [B + 1] text b is the bytes offsets[b] .. offsets[b + 1] - 1 of what was appended;
                                     needed with text */
} napier_generate_results;

#define NAPIER_GENERATE_RESULTS_INIT \
    { .struct_size = sizeof(napier_generate_results) }

/* Generates all sequences. No result may overlap another or an input. Entropies and argmax read the logits once more;
 * texts take some bytes for each sequence and each byte of a stop text. The time of stop texts is linear in the bytes of
 * the tokens; with on_text each token also costs the bytes that are held back because a stop text may begin with them, so
 * a long stop text whose beginning occurs makes it slow. Temperature 0 is greedy (napier/sample.h). The keys and values of
 * the sequences that run together take what the layers leave of the model's memory, and each step as much more as its
 * logits. Dtypes of log-probabilities and entropies: f32, f16 or bf16.
 * Errors: INVALID_ARGUMENT (also where the logits have a NaN or leave no id), OUT_OF_MEMORY (also where not even one
 * sequence fits: the message says how much it needs), CANCELLED. After an error other than those of arguments the results
 * are undefined. */
NAPIER_API napier_status napier_generate(napier_context *context, const napier_model *model,
                                         const napier_generate_batch *batch, const napier_generate_options *options,
                                         const napier_generate_results *results);

#ifdef __cplusplus
}
#endif
#endif
