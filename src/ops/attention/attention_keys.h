/* ops/attention/attention_keys.h - packs keys and values for the products.
 *
 * They are packed a chunk of sequences and heads at a time, so that memory is bounded and packed data stay in the
 * caches. The whole panels of a prefix are packed once for all consecutive sequences that share it. All threads pack a
 * chunk together, or each worker packs its own. */
#ifndef NAPIER_OPS_ATTENTION_ATTENTION_KEYS_H
#define NAPIER_OPS_ATTENTION_ATTENTION_KEYS_H

#include "ops/attention/attention_plan.h"

/* Panels of NAPIER_LANES keys that follow one another in memory. */
typedef struct napier_key_segment {
    int64_t first, panels;
} napier_key_segment;

typedef struct napier_packed_sequence {
    napier_key_segment shared, own;
    int64_t shared_panels; /* how many of the shared panels belong to this sequence; its other keys are in `own` */
    int64_t first_tile;
} napier_packed_sequence;

/* Where the keys of a panel come from. */
typedef struct napier_key_panel {
    int64_t sequence, place;
    napier_key_segment segment;
} napier_key_panel;

typedef struct napier_key_chunk {
    const napier_attention_plan *plan;
    int64_t floats, heads_most;
    int64_t sequence, sequences; /* the first one, and how many */
    int64_t head, heads;         /* of k */
    int64_t panel_count;
    bool once;                      /* each panel is used once, so a block of keys takes the place of the one before */
    napier_packed_sequence *packed; /* [sequences] */
    napier_key_panel *panels;       /* [panel_count] */
    unsigned char *special;         /* [heads][panel_count]: the panel's values have an inf or a NaN */
    float *keys;                    /* [heads][panel_count][dim][NAPIER_LANES], or as attention_engine.h packs them */
    float *values;                  /* [heads], then segments: [columns / NAPIER_LANES][keys][NAPIER_LANES], or so */
    float *turned;                  /* [workers][NAPIER_LANES][dim, filled up]: of k, for an engine of k or v */
} napier_key_chunk;

/* Packed keys and values of a chunk take at most so many floats, or are those of one head of one sequence. */
enum { NAPIER_CHUNK_FLOATS = 6 << 20 };

/* The sizes of a plan's chunks. A chunk has up to `floats` floats, or up to NAPIER_CHUNK_FLOATS if its sequences share
 * a prefix, and up to heads_most heads. */
typedef struct napier_key_chunks {
    int64_t count;     /* of ranges of sequences; each is packed once for every `heads_most` heads or fewer */
    int64_t sequences; /* the most of any chunk */
    int64_t panels;    /* of one head: the most of any chunk */
    int64_t all;       /* of all heads of a chunk: the most of any chunk */
} napier_key_chunks;

napier_key_chunks napier_key_chunks_of(const napier_attention_plan *plan, int64_t floats, int64_t heads_most);
/* starts[i]: the first sequence of range i; starts[count]: sequences. */
void napier_key_chunk_starts(const napier_attention_plan *plan, int64_t floats, int64_t heads_most, int64_t *starts);

/* Takes so many chunks, each with memory for any chunk of the plan, to be packed by `workers` workers. */
napier_key_chunk *napier_key_chunks_take(napier_memory *memory, const napier_attention_plan *plan, int64_t floats,
                                         int64_t heads_most, int chunks, int workers);

/* Goes to the next chunk (at first to the first one) and packs it with all threads. Returns false after the last. */
bool napier_key_chunk_next(napier_key_chunk *chunk);
/* Prepares one head of the sequences first .. end - 1, a range of napier_key_chunk_starts. This thread packs each panel
 * when it is first needed, so the panel is read from the second-level cache even if all panels would not fit there. */
void napier_key_chunk_load(napier_key_chunk *chunk, int64_t first, int64_t end, int64_t head);
/* After napier_key_chunk_load of one sequence, for whom goes through its keys only once, a whole NAPIER_KEY_BLOCK after the
 * other: the panels of a block are gone when the next one is packed. */
void napier_key_chunk_use_once(napier_key_chunk *chunk);

static inline int64_t napier_value_columns(const napier_attention_plan *plan) {
    return napier_round_up(plan->v.dim, NAPIER_LANES);
}
/* Floats of a panel's keys, and of NAPIER_LANES columns of its values. An engine's are bf16 (attention_engine.h). */
static inline int64_t napier_panel_keys(const napier_attention_plan *plan) {
    return NAPIER_LANES * napier_plan_dim(plan, plan->k.dim) / (napier_plan_engine(plan) ? 2 : 1);
}
static inline int64_t napier_panel_square(const napier_attention_plan *plan) {
    return NAPIER_LANES * NAPIER_LANES / (napier_plan_engine(plan) ? 2 : 1);
}
static inline int64_t napier_panel_values(const napier_attention_plan *plan) {
    return napier_value_columns(plan) / NAPIER_LANES * napier_panel_square(plan);
}
static inline int64_t napier_panel_floats_of(const napier_attention_plan *plan) {
    return napier_panel_keys(plan) + napier_panel_values(plan);
}

/* Consecutive keys: places place .. place + count - 1 of a sequence, in one segment. */
typedef struct napier_key_run {
    const float *keys;   /* the panel that begins with the first place */
    const float *values; /* the row of the first place in the first panel of columns */
    int64_t value_step;  /* to the next panel of columns; half of it: to the next group of an engine */
    int64_t count;
    const unsigned char *special; /* of the first panel */
} napier_key_run;

/* The run from `place` on, a multiple of NAPIER_LANES, of at most `count` keys. */
napier_key_run napier_key_run_of(napier_key_chunk *chunk, const napier_packed_sequence *s, int64_t head, int64_t place,
                                 int64_t count);

#endif
