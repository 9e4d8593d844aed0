/* cli/rl/rl_batch.h - the responses that grpo, kl and rubric work on: numbers for each token, from JSON Lines or
 * arrays. */
#ifndef NAPIER_CLI_RL_BATCH_H
#define NAPIER_CLI_RL_BATCH_H

#include "io/array.h"

#include <napier/rl.h>

#include <stdio.h>

/* The fields of a response, in the order of rl_fields. */
typedef enum rl_field {
    RL_LOGPROBS,
    RL_OLD_LOGPROBS,
    RL_REF_LOGPROBS,
    RL_SAMPLER_LOGPROBS,
    RL_ENTROPIES,
    RL_ADVANTAGES, /* the last field of numbers */
    RL_MASK,
    RL_TOKEN_IDS,
    RL_FIELDS
} rl_field;

/* A set of fields is the sum of these bits. */
#define RL_BIT(field) (1U << (field))

typedef struct rl_field_names {
    const char *json, *option;
} rl_field_names;
extern const rl_field_names rl_fields[RL_FIELDS];

/* An array that grows: of float, of uint8_t for the mask, of int64_t for ids. */
typedef struct rl_column {
    void *data;
    int64_t count, capacity;
} rl_column;

typedef struct rl_batch {
    unsigned wanted, required; /* sets of fields: required ones must be there, others than wanted are ignored */
    unsigned have;             /* the fields that are there */
    int64_t responses, tokens;
    rl_column columns[RL_FIELDS]; /* a number per token; advantages may also be one per response */
    rl_column offsets;            /* int64_t, one more than there are responses */
    array_shape shape;            /* of results with a number per token: that of the log-probs */
    bool advantages_per_token;
} rl_batch;

/* Reads all lines of a JSON Lines file, or of an open one. Free the batch even after a failure. */
int rl_batch_read_lines(rl_batch *batch, const char *path);
int rl_batch_read_stream(rl_batch *batch, FILE *file, const char *name);

/* Reads arrays from paths[field], NULL for none. One-dimensional arrays need offsets; each row of a table is a
 * response. */
int rl_batch_read_arrays(rl_batch *batch, const char *const paths[RL_FIELDS], const char *offsets_path);

void rl_batch_free(rl_batch *batch);

/* Shared by the readers. Returns NULL, or what is wrong with the number, as in "mask[2] is 3, which ...". */
const char *rl_column_add(rl_column *column, rl_field field, double value);
int rl_offsets_add(rl_batch *batch, int64_t offset);

/* Views for the library; data NULL where the batch has none. */
napier_const_vector rl_batch_numbers(const rl_batch *batch, rl_field field);
const uint8_t *rl_batch_mask(const rl_batch *batch);
napier_indices rl_batch_ids(const rl_batch *batch);
napier_indices rl_batch_offsets(const rl_batch *batch);

#endif
