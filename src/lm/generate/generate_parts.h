/* lm/generate/generate_parts.h - what generate.c uses: which sequences run in a step, and where their keys are
 * (generate_schedule.c); the texts of sequences (generate_text.c). */
#ifndef NAPIER_LM_GENERATE_GENERATE_PARTS_H
#define NAPIER_LM_GENERATE_GENERATE_PARTS_H

#include <napier/generate.h>
#include <stdbool.h>

#include "core/base/scope.h"
#include "lm/decoder/kv.h"
#include "lm/text/buffer.h"

/* ---- A schedule --------------------------------------------------------------------------------------------------
 *
 * The rows of a store belong to prompts and to sequences. A prompt's rows are followed by the own rows of one sequence,
 * so a prompt that has entered can always finish: its sequences use those rows one after the other, and any others that
 * are free. Prompts enter in order, and their rows are given back after their last sequence.
 *
 * A step runs the last token of each running sequence, and as many tokens of prompts as fit. The last row of a prompt
 * gives the first token of all its sequences. */

/* A prompt whose rows are in the store. */
typedef struct napier_live_prompt {
    int64_t prompt;       /* index in the batch; -1: this place is free */
    napier_key_rows rows; /* [tokens] of the prompt, then those of one sequence */
    int64_t size, done;   /* its tokens, and how many have been run */
    int64_t next;         /* the next of its samples that will run */
    int64_t running;      /* sequences */
    bool own_taken;       /* a sequence uses the rows after the prompt's */
} napier_live_prompt;

/* A sequence that runs: it has `length` tokens, the last of which has not been run. */
typedef struct napier_live_sequence {
    int64_t sequence, live; /* index in the batch, and of its live prompt */
    int64_t own;            /* its first row */
    int64_t length;
} napier_live_sequence;

typedef struct napier_schedule {
    napier_indices prompt_ids, prompt_offsets;
    int64_t prompts, samples, max_tokens;
    const napier_kv *const *kvs;
    int64_t kv_count;
    const int64_t *ids, *lengths; /* [B, max_tokens] and [B]: what has been generated */
    const unsigned char *ended;   /* [B]: no more tokens are wanted */

    int64_t most;          /* live prompts and running sequences, of each */
    int64_t step_tokens;   /* at most, in a step */
    napier_kv_store store; /* of keys and values */
    int64_t next_prompt, live_count, running_count, used_count;
    napier_live_prompt *live;      /* [most] */
    napier_live_sequence *running; /* [most] */
    napier_key_rows *used;         /* [2 most] ranges of the store, ascending */
    int64_t *wanted;               /* [2 most] row i of the states is of running sequence wanted[i], or of live prompt
                                      -1 - wanted[i] */
} napier_schedule;

/* Bytes of the lists. */
int64_t napier_schedule_bytes(int64_t most);
/* The caller has set what precedes `most`, that, and step_tokens. It frees `memory` after the last use. */
napier_status napier_schedule_allocate(napier_memory *memory, napier_schedule *s);

/* Fills the batch of the next step: false if nothing is left to do. */
bool napier_schedule_step(napier_schedule *s, napier_ragged *batch);
/* After a step: removes the sequences that have ended, and prompts without more sequences. */
void napier_schedule_finish_step(napier_schedule *s);

/* The rows of a sequence that has ended in this step: those of its prompt, and its own. */
void napier_schedule_rows(const napier_schedule *s, int64_t sequence, napier_key_rows *prompt, napier_key_rows *own);

/* The rows that a sequence keeps besides its prompt's: its last token is never run. */
static inline int64_t napier_own_rows(int64_t max_tokens) { return max_tokens - 1; }

/* ---- Texts -------------------------------------------------------------------------------------------------------
 *
 * A text grows by the bytes of each token. Each stop text has an automaton (Knuth, Morris and Pratt 1977), whose state in
 * a sequence is the number of its bytes that the text ends with. So stop texts are found across tokens, and no byte is
 * looked at again. on_text gets bytes as soon as no stop text can begin before them. */

/* A byte of a text, with TEXT_HIDDEN if its token is special. */
typedef uint16_t napier_text_unit;

typedef struct napier_generated_texts {
    napier_context *context;
    const napier_tokenizer *tokenizer;
    napier_text_callback *on_text;
    void *user;
    int64_t min_tokens;
    int64_t count, longest; /* stop texts, and bytes of the longest */
    int64_t *starts;        /* [count + 1] of the stop texts in `bytes` and `borders` */
    unsigned char *bytes;
    int64_t *borders; /* after i + 1 bytes of a stop text: the length of its longest beginning that they also end with,
                         except themselves */

    /* Of each sequence. */
    int64_t *sizes;      /* [B] bytes so far, with those of special tokens and of the stop text */
    int64_t *stopped;    /* [B] the stop text that ended it, or -1 */
    int64_t *matched;    /* [B, count] the states */
    int64_t *held_count; /* [B] */
    int64_t held_most;
    napier_text_unit *held; /* [B, held_most] what on_text has not got yet */

    napier_scratch units;     /* held units and those of a token */
    napier_text_buffer shown; /* what on_text gets */
} napier_generated_texts;

/* Checks what the options say of texts. `wanted`: the results have texts. */
napier_status napier_texts_check(napier_context *context, const napier_generate_options *options, bool wanted);
/* The caller ends `texts`, which was zero before, with napier_texts_end, also after a failure. */
napier_status napier_texts_start(napier_memory *memory, napier_generated_texts *texts,
                                 const napier_generate_options *options, int64_t sequences);
void napier_texts_end(napier_generated_texts *texts);

/* Adds token `index` of sequence b, and gives on_text what it may have. *ended: the sequence ends; set for a stop text. */
napier_status napier_texts_add(napier_generated_texts *texts, int64_t b, int64_t index, int64_t id, bool *ended);
/* Appends the whole text of sequence b. */
napier_status napier_texts_append(const napier_generated_texts *texts, int64_t b, const int64_t *ids, int64_t count,
                                  napier_text_buffer *text);

#endif
