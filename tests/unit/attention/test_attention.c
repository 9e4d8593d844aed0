/* Attention, forward: bit for bit against the order of docs/attention.md written out on one row, for every instruction
 * set, thread count, stride, dtype, mask and batch; within the promised error of double precision; prefixes shared or
 * not; rows that see nothing, NaN and infinities, seen and hidden; arguments that cannot be. */
#include "attention_support.h"

#include <stdio.h>

#include "support/memory.h"

/* ---- The orders, one row ----------------------------------------------------------------------------------------- */

typedef struct ordered_row {
    float exponent, sums[16];
    float *outputs;
} ordered_row;

static void raise(ordered_row *row, float exponent, int64_t v_dim, bool narrow) {
    if (!(exponent > row->exponent)) {
        return;
    }
    const float change = row->exponent - exponent;
    const float factor = change < -126.0f ? 0.0f : ldexpf(1.0f, (int)change);
    for (int i = 0; i < 16 && row->exponent > -INFINITY; i++) {
        row->sums[i] *= factor;
    }
    for (int64_t i = 0; i < v_dim && row->exponent > -INFINITY; i++) {
        row->outputs[i] = narrow ? flushed(row->outputs[i] * factor) : row->outputs[i] * factor;
    }
    row->exponent = exponent;
}

/* Adds the values of some places of a block, whose weights are rounded, 32 at a time. */
static void add_rounded(const batch *b, int64_t token, int64_t head, int64_t begin, int64_t end, const float *weights,
                        float *outputs) {
    for (int64_t i = 0; i < b->s.v_dim; i++) {
        for (int64_t first = begin; first < end; first += 32) {
            float values[32] = {0.0f};
            for (int64_t j = 0; j < 32 && first + j < end; j++) {
                if (mask_value(b, token, head, first + j) > -INFINITY) {
                    const int64_t row = key_row(b, sequence_of(b, token), first + j);
                    values[j] = (float)heads_get(&b->v, row, head / b->s.group, i);
                }
            }
            outputs[i] = add_pairs(outputs[i], weights + (first - begin), values, end - first < 32 ? end - first : 32);
        }
    }
}

static void ordered_block(const batch *b, int64_t token, int64_t head, int64_t begin, int64_t end, ordered_row *row) {
    float scores[256], most = -INFINITY;
    const int64_t sequence = sequence_of(b, token);
    for (int64_t place = begin; place < end; place++) {
        scores[place - begin] = ordered_score(b, token, head, place, b->s.bf16_weights);
        most = scores[place - begin] > most ? scores[place - begin] : most;
    }
    raise(row, rintf(most), b->s.v_dim, b->s.bf16_weights);
    const float level = row->exponent == -INFINITY ? 0.0f : row->exponent;
    for (int64_t place = begin; place < end; place++) {
        const float exact = weight(scores[place - begin] - level), w = b->s.bf16_weights ? bf16_of(exact) : exact;
        row->sums[(place - begin) % 16] += w;
        scores[place - begin] = w;
        for (int64_t i = 0; i < b->s.v_dim && !b->s.bf16_weights && mask_value(b, token, head, place) > -INFINITY;
             i++) {
            const float v = (float)heads_get(&b->v, key_row(b, sequence, place), head / b->s.group, i);
            row->outputs[i] = fmaf(w, v, row->outputs[i]);
        }
    }
    if (b->s.bf16_weights) {
        add_rounded(b, token, head, begin, end, scores, row->outputs);
    }
}

static void ordered_output(const batch *b, int64_t token, int64_t head, double masked, double *out) {
    ordered_row row = {-INFINITY, {0}, scratch(b->s.v_dim + 1, sizeof(float))};
    const int64_t keys = sequence_keys(b, sequence_of(b, token));
    memset(row.outputs, 0, (size_t)b->s.v_dim * sizeof *row.outputs);
    for (int64_t begin = 0; begin < keys; begin += 256) {
        ordered_block(b, token, head, begin, begin + 256 < keys ? begin + 256 : keys, &row);
    }
    for (int half = 8; half > 0; half /= 2) {
        for (int i = 0; i < half; i++) {
            row.sums[i] += row.sums[i + half];
        }
    }
    const float factor = 1.0f / row.sums[0];
    for (int64_t i = 0; i < b->s.v_dim; i++) {
        out[i] = row.sums[0] == 0.0f ? masked : (double)((row.outputs[i] + 0.0f) * factor);
    }
}

/* Every `step`th row against the order. */
static void check_rows(const batch *b, const outcome *o, double masked, const char *what, int64_t step) {
    double *wanted = scratch(b->s.v_dim, sizeof *wanted);
    const int64_t heads = b->s.heads * b->s.group;
    int64_t differ = 0;
    for (int64_t r = 0; r < b->queries * heads; r += step) {
        ordered_output(b, r / heads, r % heads, masked, wanted);
        for (int64_t i = 0; i < b->s.v_dim; i++) {
            const napier_dtype dtype = o->output.view.dtype;
            const uint64_t bits = isnan(wanted[i]) ? dtype_canonical_nan(dtype) : dtype_bits(dtype, wanted[i]);
            differ += heads_bits(&o->output, r / heads, r % heads, i) != bits;
        }
    }
    expect(differ == 0, "%s: %lld elements differ from the order", what, (long long)differ);
}

/* The scalar build against the order; everything else against the scalar build. */
static void check_batch(const batch *b, layout l, napier_dtype out, const char *name, int64_t step) {
    const shape *const s = &b->s;
    outcome first = outcome_make(b, out, l, !s->head_major);
    napier_context *context = NULL;
    for (int run = 0; (context = context_of_run(run)) != NULL; run++) {
        outcome o = outcome_make(b, out, l, !s->head_major);
        char what[120];
        snprintf(what, sizeof what, "%s, %s, %d threads", name, napier_isa_name(napier_context_isa(context)),
                 napier_context_threads(context));
        if (run_forward(context, b, run == 0 ? &first : &o, what) && run == 0) {
            check_rows(b, &first, (double)NAN, what, step);
        } else {
            const size_t bytes = (size_t)(b->queries * s->heads * s->group) * sizeof(float);
            expect(heads_differ(&o.output, &first.output) == 0, "%s: other bits than scalar", what);
            expect(memcmp(o.lse, first.lse, bytes) == 0, "%s: another lse than scalar", what);
            expect(grid_damage(&o.output.g) == 0, "%s: wrote outside of the output", what);
        }
    }
}

static void check_order(const shape *s, layout l, napier_dtype out, uint64_t seed, int64_t step) {
    batch b;
    char name[32];
    batch_make(&b, s, seed);
    snprintf(name, sizeof name, "seed %d", (int)seed);
    check_batch(&b, l, out, name, step);
}

static void sizes_have_the_bits_of_the_order(void) {
    static const int64_t sizes[][6] = {/* heads of k, group, dim, v_dim, queries, keys */
                                       {1, 1, 1, 1, 1, 1},      {2, 1, 16, 16, 5, 7},    {1, 2, 33, 17, 40, 257},
                                       {2, 3, 64, 64, 30, 300}, {1, 5, 48, 20, 50, 50},  {1, 1, 300, 290, 13, 40},
                                       {1, 30, 8, 8, 9, 31},    {3, 1, 128, 128, 1, 600}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (int causal = 0; causal < 2; causal++) {
            const int64_t *const n = sizes[i];
            shape s = one_sequence(n[0], n[1], n[2], n[3], n[4], n[5]);
            s.causal = causal;
            check_order(&s, LAYOUT_CONTIGUOUS, NAPIER_F32, 10 + i, i < 2 ? 1 : 7);
        }
    }
}

/* Sequences of all sorts: without queries, without keys, without a prefix, with more queries than keys. */
static const shape ragged = {.heads = 2,
                             .group = 2,
                             .dim = 24,
                             .v_dim = 40,
                             .sequences = 7,
                             .queries = {12, 3, 0, 9, 20, 0, 5},
                             .own = {12, 3, 4, 9, 0, 0, 7},
                             .prefix_begin = {0, 0, 0, 30, 10, 0, 5},
                             .prefix_end = {300, 300, 64, 70, 17, 0, 5},
                             .causal = 1,
                             .dtype = NAPIER_F32};

static void options_layouts_and_dtypes_have_the_bits_of_the_order(void) {
    static const napier_dtype dtypes[] = {NAPIER_F32, NAPIER_F16, NAPIER_BF16};
    for (int i = 0; i < LAYOUTS; i++) {
        shape s = ragged;
        s.mask = (mask_kind)(i % 3);
        s.causal = i / 3 % 2;
        s.scale = i % 4 == 3 ? -0.3 : 0.0;
        s.dtype = dtypes[i / 2 % 3];
        s.l = (layout)i;
        s.head_major = i % 2 == 1;
        s.scattered = i % 4 < 2;
        check_order(&s, (layout)((i + 4) % LAYOUTS), dtypes[i % 3], 100 + (uint64_t)i, 5);
    }
}

/* One query a sequence, as in a decode step: keys and values are read in place. Prefixes end within a block of 32. */
static void one_query_a_sequence_has_the_bits_of_the_order(void) {
    static const napier_dtype dtypes[] = {NAPIER_F32, NAPIER_F16, NAPIER_BF16};
    static const int64_t groups[] = {1, 2, 3, 5, 8, 9}, dims[] = {16, 24, 33, 128, 64, 8};
    for (int i = 0; i < 36; i++) {
        shape s = {.heads = i % 18 == 4 ? 11 : 1 + i % 3, /* 11 heads of 8 rows: in parts, even by one thread */
                   .group = groups[i % 6],
                   .dim = dims[i % 6],
                   .v_dim = dims[(i + i / 6) % 6],
                   .sequences = 6,
                   .queries = {1, 1, 0, 1, 1, 1},
                   .own = {40, 300, 5, 1, 0, 513},
                   .prefix_begin = {0, 30, 0, 10, 10, 0},
                   .prefix_end = {300, 70, 0, 17, 10, 0},
                   .causal = i % 2};
        s.scale = i % 18 == 7 ? -40.0 : 0.0;
        s.bf16_weights = i >= 18;
        s.dtype = s.bf16_weights ? NAPIER_BF16 : dtypes[i / 2 % 3];
        s.l = i % 4 == 3 ? LAYOUT_PADDED : LAYOUT_CONTIGUOUS;
        s.head_major = i % 4 == 1;
        s.scattered = i % 3 == 0;
        check_order(&s, i % 5 ? LAYOUT_CONTIGUOUS : LAYOUT_TRANSPOSED, dtypes[i % 3], 150 + (uint64_t)i, 3);
    }
}

/* Scores far apart and rising: exponents change from block to block, and weights fall out of range. */
static void large_scores_have_the_bits_of_the_order(void) {
    static const double scales[] = {3.0, -40.0, 2000.0, 1e7, 1e30, 1e-30};
    for (int i = 0; i < 6; i++) {
        shape s = one_sequence(1, 2, 16, 16, 20, 800);
        s.causal = i % 2;
        s.scale = scales[i];
        check_order(&s, LAYOUT_CONTIGUOUS, NAPIER_F32, 200 + (uint64_t)i, 9);
    }
}

/* ---- Weights of bf16 --------------------------------------------------------------------------------------------- */

static void bf16_weights_have_the_bits_of_their_order(void) {
    static const int64_t sizes[][6] = {/* heads of k, group, dim, v_dim, queries, keys */
                                       {1, 1, 1, 1, 1, 1},         {2, 1, 16, 16, 5, 7},     {1, 2, 33, 17, 40, 257},
                                       {2, 3, 64, 64, 30, 300},    {1, 5, 48, 20, 50, 33},   {1, 1, 300, 290, 13, 40},
                                       {1, 30, 8, 8, 9, 31},       {3, 1, 128, 128, 1, 600}, {2, 2, 128, 96, 70, 580},
                                       {2, 2, 128, 128, 130, 128}, {1, 4, 31, 130, 3, 513}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (int causal = 0; causal < 2; causal++) {
            const int64_t *const n = sizes[i];
            shape s = one_sequence(n[0], n[1], n[2], n[3], n[4], n[5]);
            s.causal = causal;
            s.dtype = NAPIER_BF16;
            s.bf16_weights = true;
            check_order(&s, LAYOUT_CONTIGUOUS, i % 2 ? NAPIER_F32 : NAPIER_BF16, 1000 + i, i < 2 ? 1 : 23);
        }
    }
}

static void bf16_weights_in_any_batch_and_layout(void) {
    static const napier_dtype dtypes[] = {NAPIER_F32, NAPIER_F16, NAPIER_BF16};
    static const double scales[] = {0.0, 3.0, -0.3, 2000.0, 1e30, 1e-30};
    for (int i = 0; i < 3 * LAYOUTS; i++) {
        shape s = ragged;
        s.mask = (mask_kind)(i % 3);
        s.causal = i / 3 % 2;
        s.scale = scales[i % 6];
        s.dtype = NAPIER_BF16;
        s.l = (layout)(i % LAYOUTS);
        s.head_major = i % 2 == 1;
        s.scattered = i % 4 < 2;
        s.bf16_weights = true;
        s.dim = i % 5 == 1 ? 33 : s.dim;
        if (i % 4 == 3) { /* one query a sequence, as in a decode step */
            for (int64_t j = 0; j < s.sequences; j++) {
                s.queries[j] = s.queries[j] > 0;
            }
        }
        check_order(&s, (layout)((i + 4) % LAYOUTS), dtypes[i % 3], 1100 + (uint64_t)i, 5);
    }
}

/* Values around the smallest normal numbers: products and sums of weights and values are flushed, and so are outputs that
 * a new exponent makes subnormal. */
static void bf16_weights_of_tiny_values(void) {
    for (int i = 0; i < 16; i++) {
        shape s = one_sequence(1, 1 + i / 2 % 2, 16, 24, i < 8 ? 20 : 1, 700);
        s.causal = i % 2;
        s.scale = i % 8 < 4 ? 2.0 : 40.0;
        s.dtype = NAPIER_BF16;
        s.bf16_weights = true;
        batch b;
        batch_make(&b, &s, 1200 + (uint64_t)i);
        rng r = rng_make(1300 + (uint64_t)i);
        for (int64_t t = 0; t < 700; t++) {
            for (int64_t d = 0; d < 24; d++) {
                heads_set(&b.v, t, 0, d, ldexp(rng_normal(&r), -(int)rng_below(&r, 140)));
                heads_set(&b.k, t, 0, d % 16, ldexp(rng_normal(&r), d % 3 == 0 ? -130 : (int)(t / 256)));
            }
        }
        check_batch(&b, LAYOUT_CONTIGUOUS, NAPIER_F32, "tiny values", 3);
    }
}

/* ---- Truth ------------------------------------------------------------------------------------------------------- */

/* The bounds of napier/attention.h. Tells the largest part of them that was used. */
static void check_truth(const shape *s, uint64_t seed) {
    batch b;
    batch_make(&b, s, seed);
    napier_context *context = context_for_test(NAPIER_ISA_AUTO, 2);
    outcome o = outcome_make(&b, NAPIER_F32, LAYOUT_CONTIGUOUS, false);
    const int64_t heads = s->heads * s->group;
    double worst = 0.0, largest = 0.0;
    if (run_forward(context, &b, &o, "truth")) {
        for (int64_t r = 0; r < b.queries * heads; r += 3) {
            truth t = truth_of(&b, r / heads, r % heads);
            const double scores = (double)(s->dim + 4) * t.size;
            const double rounded = s->bf16_weights ? 0x1p-8 + 0x1p-15 : 0.0;
            const double lse_bound = (scores + (double)t.keys / 16 + 12) * 0x1p-24 + fabs(t.lse) * 0x1p-23 + rounded;
            for (int64_t i = 0; i < s->v_dim && t.lse > -HUGE_VAL; i++) {
                double most = 0.0;
                for (int64_t place = 0; place < t.keys; place++) {
                    const int64_t row = key_row(&b, sequence_of(&b, r / heads), place);
                    most = fmax(most, fabs(heads_get(&b.v, row, r % heads / s->group, i)));
                }
                const double error =
                    fabs(heads_get(&o.output, r / heads, r % heads, i) - true_output(&b, &t, r / heads, r % heads, i));
                worst = fmax(worst, error / (((2 * scores + (double)t.keys + 12) * 0x1p-24 + rounded) * most));
                largest = fmax(largest, error / most);
            }
            if (t.lse > -HUGE_VAL) {
                worst = fmax(worst, fabs((double)o.lse[r] - t.lse) / lse_bound);
            } else {
                expect(o.lse[r] == -INFINITY, "row %d sees nothing, its lse is %g", (int)r, (double)o.lse[r]);
            }
        }
    }
    expect(worst <= 1.0, "seed %d: %.3g times the bound", (int)seed, worst);
    print_message("seed %d: at most %.3g of the bound, %.2g of the largest value\n", (int)seed, worst, largest);
}

static void errors_are_within_the_bound(void) {
    for (int mask = 0; mask < 3; mask++) {
        shape s = ragged;
        s.mask = (mask_kind)mask;
        check_truth(&s, 300 + (uint64_t)mask);
        s.scale = 5.0;
        s.dtype = mask == 1 ? NAPIER_F16 : NAPIER_BF16;
        check_truth(&s, 310 + (uint64_t)mask);
        s.dtype = NAPIER_BF16;
        s.bf16_weights = true;
        check_truth(&s, 330 + (uint64_t)mask);
        s.scale = 0.0;
        check_truth(&s, 340 + (uint64_t)mask);
    }
    shape long_one = one_sequence(1, 1, 64, 8, 30, 3000);
    long_one.causal = 1;
    check_truth(&long_one, 320);
    long_one.dtype = NAPIER_BF16;
    long_one.bf16_weights = true;
    check_truth(&long_one, 350);
}

/* ---- Batches ----------------------------------------------------------------------------------------------------- */

/* Lays out the same keys without sharing: every sequence has its own copy. */
static void shared_is_unshared(void) {
    for (int run = 0; run < 6; run++) {
        const int threads = 1 + run % 3;
        batch shared, own;
        shape s = ragged;
        s.dtype = run < 3 ? NAPIER_F32 : NAPIER_BF16;
        s.bf16_weights = run >= 3;
        batch_make(&shared, &s, 400);
        memset(s.prefix_begin, 0, sizeof s.prefix_begin);
        memset(s.prefix_end, 0, sizeof s.prefix_end);
        for (int64_t i = 0; i < s.sequences; i++) {
            s.own[i] = sequence_keys(&shared, i);
        }
        batch_make(&own, &s, 400); /* the same queries: they are drawn first */
        for (int64_t i = 0; i < s.sequences; i++) {
            for (int64_t p = 0; p < s.own[i] * s.heads; p++) {
                const int64_t to = own.key_offsets[i] + p / s.heads, from = key_row(&shared, i, p / s.heads);
                for (int64_t d = 0; d < s.v_dim; d++) {
                    heads_set(&own.v, to, p % s.heads, d, heads_get(&shared.v, from, p % s.heads, d));
                    if (d < s.dim) {
                        heads_set(&own.k, to, p % s.heads, d, heads_get(&shared.k, from, p % s.heads, d));
                    }
                }
            }
        }
        napier_context *context = context_for_test(NAPIER_ISA_AUTO, threads);
        outcome a = outcome_make(&shared, NAPIER_F32, LAYOUT_CONTIGUOUS, false);
        outcome b = outcome_make(&own, NAPIER_F32, LAYOUT_CONTIGUOUS, false);
        run_forward(context, &shared, &a, "shared");
        run_forward(context, &own, &b, "unshared");
        expect(heads_differ(&a.output, &b.output) == 0, "shared and unshared outputs differ");
        expect(memcmp(a.lse, b.lse, (size_t)(shared.queries * 4) * sizeof(float)) == 0, "their lse differ");
    }
}

/* Each sequence by itself, and a mask that says what causal says. */
static void a_sequence_does_not_know_its_batch(napier_context *context) {
    batch b;
    shape with_mask = ragged;
    with_mask.causal = 0;
    with_mask.mask = MASK_BYTES;
    batch_make(&b, &ragged, 500);
    outcome all = outcome_make(&b, NAPIER_F32, LAYOUT_CONTIGUOUS, false);
    outcome one = outcome_make(&b, NAPIER_F32, LAYOUT_CONTIGUOUS, false);
    run_forward(context, &b, &all, "batch");
    for (int64_t i = 0; i < ragged.sequences; i++) {
        const int64_t queries[2] = {0, ragged.queries[i]};
        napier_attention_options options = b.options;
        napier_const_heads q = read_only(b.q.view);
        napier_heads out = one.output.view;
        napier_matrix none = {.dtype = NAPIER_F32};
        options.sequences = 1;
        options.query_offsets = queries;
        options.key_offsets = b.key_offsets + i;
        options.prefix_begin += i;
        options.prefix_end += i;
        q.tokens = out.tokens = queries[1];
        q.data = (const float *)q.data + b.query_offsets[i] * q.token_stride;
        out.data = (float *)out.data + b.query_offsets[i] * out.token_stride;
        works(napier_attention, context, q, read_only(b.k.view), read_only(b.v.view), out, none, &options);
    }
    expect(heads_differ(&all.output, &one.output) == 0, "a sequence by itself has other bits");
    batch m;
    batch_make(&m, &with_mask, 500);
    for (int64_t r = 0; r < m.queries * 4; r++) {
        for (int64_t place = 0; place < m.most_keys; place++) {
            const int64_t keys = sequence_keys(&b, sequence_of(&b, r / 4));
            ((unsigned char *)m.mask)[r * m.most_keys + place] =
                place < keys && mask_value(&b, r / 4, r % 4, place) > -INFINITY;
        }
    }
    run_forward(context, &m, &one, "masked");
    expect(heads_differ(&all.output, &one.output) == 0, "a triangular mask is not causal");
}

/* ---- Special rows ------------------------------------------------------------------------------------------------ */

/* NaN and infinities among keys and values, some of them hidden: what is not seen leaves no trace. */
static void odd_values_touch_only_rows_that_see_them(void) {
    static const double odd[] = {(double)NAN, HUGE_VAL, -HUGE_VAL};
    for (int run = 0; run < 36; run++) {
        const int kind = run % 12;
        const bool step = run >= 24; /* of decoding: one query, without a mask */
        shape s = one_sequence(1, 2, 16, 20, step ? 1 : 40, 45);
        s.causal = 1;
        s.mask = step ? MASK_NONE : (mask_kind)(kind % 3);
        s.dtype = run < 12 ? NAPIER_F32 : NAPIER_BF16;
        s.bf16_weights = run >= 12;
        batch b;
        batch_make(&b, &s, 600 + (uint64_t)kind);
        heads_set(kind % 2 ? &b.k : &b.v, 20, 0, 3, odd[kind / 4]);
        heads_set(kind % 2 ? &b.v : &b.k, 44, 0, 3, odd[kind / 4]);
        heads_set(&b.q, step ? 0 : 7, 1, 2, odd[kind / 4]);
        napier_isa isas[ISA_LIMIT];
        for (int i = available_isas(isas) - 1; i >= 0; i--) {
            napier_context *context = context_for_test(isas[i], 2);
            outcome o = outcome_make(&b, NAPIER_F32, LAYOUT_CONTIGUOUS, false);
            run_forward(context, &b, &o, "odd values");
            check_rows(&b, &o, (double)NAN, napier_isa_name(isas[i]), 1);
        }
        check_batch(&b, LAYOUT_CONTIGUOUS, NAPIER_F32, "odd values", 1);
    }
}

/* A NaN of the mask has any bits, and stays a NaN when it is rounded. */
static void a_mask_may_be_nan(void) {
    for (int run = 0; run < 2; run++) {
        shape s = one_sequence(1, 1, 16, 16, 10, 70);
        s.mask = MASK_FLOATS;
        s.dtype = NAPIER_BF16;
        s.bf16_weights = run == 1;
        batch b;
        batch_make(&b, &s, 650);
        const uint32_t all = 0xffffffffu, positive = 0x7fffffffu;
        memcpy(b.mask + 3 * b.most_keys + 40, &all, sizeof all);
        memcpy(b.mask + 5 * b.most_keys + 40, &positive, sizeof positive);
        check_batch(&b, LAYOUT_CONTIGUOUS, NAPIER_F32, "a mask of NaN", 1);
    }
}

static void rows_that_see_nothing(napier_context *context) {
    shape s = ragged; /* sequence 4 has 20 queries and 7 keys */
    batch b;
    batch_make(&b, &s, 700);
    for (int zero = 0; zero < 2; zero++) {
        outcome o = outcome_make(&b, NAPIER_BF16, LAYOUT_CONTIGUOUS, false);
        b.options.masked_rows = zero ? NAPIER_MASKED_ZERO : NAPIER_MASKED_NAN;
        run_forward(context, &b, &o, "masked rows");
        check_rows(&b, &o, zero ? 0.0 : (double)NAN, "masked rows", 1);
        const uint64_t bits = heads_bits(&o.output, b.query_offsets[4], 1, 5);
        expect(bits == (zero ? 0 : dtype_canonical_nan(NAPIER_BF16)), "a masked row has bits %llx",
               (unsigned long long)bits);
        expect(o.lse[b.query_offsets[4] * 4] == -INFINITY, "its lse is not -inf");
    }
}

/* ---- What cannot be ---------------------------------------------------------------------------------------------- */

typedef struct call {
    napier_const_heads q, k, v;
    napier_heads output;
    napier_matrix lse;
    napier_attention_options options;
} call;

static float memory[4096];

static call good_call(void) {
    static const int64_t queries[3] = {0, 2, 4}, keys[3] = {0, 3, 6}, begin[2] = {0, 1}, end[2] = {2, 4};
    call c = {.q = {memory, 4, 4, 8, 32, 8, 1, NAPIER_F32},
              .k = {memory + 200, 6, 2, 8, 16, 8, 1, NAPIER_F32},
              .v = {memory + 400, 6, 2, 4, 8, 4, 1, NAPIER_F32},
              .output = {memory + 600, 4, 4, 4, 16, 4, 1, NAPIER_F32},
              .lse = {memory + 800, 4, 4, 4, 1, NAPIER_F32},
              .options = NAPIER_ATTENTION_OPTIONS_INIT};
    c.options.sequences = 2;
    c.options.query_offsets = queries;
    c.options.key_offsets = keys;
    c.options.prefix_begin = begin;
    c.options.prefix_end = end;
    return c;
}

static napier_status make_call(napier_context *context, const call *c) {
    return napier_attention(context, c->q, c->k, c->v, c->output, c->lse, &c->options);
}

static void wrong_views_are_named(napier_context *context) {
    const call good = good_call();
    succeeded(context, make_call(context, &good), "a good call");
    REFUSED(c.q.dtype = NAPIER_F64, "q", "f64");
    REFUSED(c.q.tokens = -1, "q", "tokens -1");
    REFUSED(c.k.heads = 0, "k", "heads 0");
    REFUSED(c.v.dim = 0, "v", "dim 0");
    REFUSED(c.q.heads = 3, "q", "heads 3", "2");
    REFUSED(c.k.dim = 7, "k", "dim 7", "8");
    REFUSED(c.v.tokens = 5, "v", "5 x 2");
    REFUSED(c.v.data = NULL, "v", "NULL");
    REFUSED(c.k.data = (char *)memory + 2, "k", "aligned");
    REFUSED(c.k.token_stride = INT64_MAX, "k", "address space");
    REFUSED(c.k.head_stride = INT64_MIN, "k", "address space");
    REFUSED(c.output.dim = 5, "output", "4 x 4 x 5");
    REFUSED(c.output.token_stride = 0, "output", "overlap");
    REFUSED(c.output.head_stride = 3, "output", "overlap");
    REFUSED(c.output.data = memory + 100, "output", "overlaps q");
    REFUSED(c.output.data = memory + 220, "output", "overlaps k");
    REFUSED(c.output.data = memory + 440, "output", "overlaps v");
    REFUSED(c.lse.data = memory + 610, "lse", "overlaps output");
    REFUSED(c.lse.dtype = NAPIER_F16, "lse", "f16");
    REFUSED(c.lse.cols = 3, "lse", "4 x 3");
    expect(napier_attention(NULL, good.q, good.k, good.v, good.output, good.lse, NULL) == NAPIER_INVALID_ARGUMENT,
           "no context is no error");
    /* Interleaved, but apart: outputs between the heads of q. */
    call c = good_call();
    c.q = (napier_const_heads){memory, 4, 4, 8, 48, 12, 1, NAPIER_F32};
    c.output = (napier_heads){memory + 8, 4, 4, 4, 48, 12, 1, NAPIER_F32};
    succeeded(context, make_call(context, &c), "interleaved");
}

static void wrong_options_are_named(napier_context *context) {
    static const int64_t falling[3] = {0, 3, 2}, late[3] = {1, 2, 4}, short_one[3] = {0, 2, 3}, beyond[3] = {0, 3, 7};
    static const int64_t below[3] = {-1, 3, 6}, two[2] = {2, 5}, huge[2] = {0, INT64_MAX}, end[2] = {2, 4};
    REFUSED(c.options.struct_size = 3, "struct_size is 3");
    REFUSED(c.options.scale = (double)NAN, "scale");
    REFUSED(c.options.scale = 1e39, "scale 1e+39");
    REFUSED(c.options.bf16_weights = 1, "q: dtype f32", "bf16_weights");
    REFUSED((c.options.bf16_weights = 1, c.q.dtype = c.v.dtype = NAPIER_BF16), "k: dtype f32", "bf16_weights");
    REFUSED((c.options.bf16_weights = -1, c.q.dtype = c.k.dtype = NAPIER_BF16, c.v.dtype = NAPIER_F16), "v: dtype f16",
            "bf16_weights");
    REFUSED(c.options.masked_rows = (napier_masked_rows)7, "masked_rows 7");
    REFUSED(c.options.sequences = -2, "sequences -2");
    REFUSED(c.options.sequences = INT64_MAX, "sequences");
    REFUSED(c.options.query_offsets = NULL, "query_offsets");
    REFUSED(c.options.query_offsets = falling, "query_offsets[2]", "2");
    REFUSED(c.options.query_offsets = late, "query_offsets[0]", "1");
    REFUSED(c.options.query_offsets = short_one, "query_offsets[2]", "3", "4");
    REFUSED(c.options.key_offsets = beyond, "key_offsets[2]", "7", "6");
    REFUSED(c.options.key_offsets = below, "key_offsets[0]", "-1");
    REFUSED(c.options.prefix_end = NULL, "prefix_begin", "prefix_end");
    REFUSED(c.options.prefix_begin = two, "prefix_begin[1] 5");
    REFUSED((c.options.key_end = end, c.options.prefix_begin = c.options.prefix_end = NULL), "prefix_begin",
            "prefix_end");
    REFUSED((c.options.key_end = end, c.options.key_offsets = two), "key_offsets[1] 5", "key_end[1] 4");
    REFUSED(c.options.key_end = huge, "key_end[1] 9223372036854775807", "6");
    REFUSED(c.options.prefix_end = huge, "prefix_end[1] 9223372036854775807", "6");
    REFUSED((c.options.mask = memory + 1000, c.options.mask_keys = 4), "mask_keys 4", "5", "sequence 0");
    REFUSED((c.options.mask = memory + 1000, c.options.mask_keys = -4), "mask_keys -4");
    REFUSED((c.options.mask = (char *)memory + 1001, c.options.mask_keys = 6), "mask", "aligned");
    REFUSED((c.options.mask = memory + 1000, c.options.mask_keys = 6, c.options.mask_token_stride = INT64_MAX), "mask",
            "address space");
    REFUSED((c.options.mask = memory + 610, c.options.mask_keys = 6), "output", "options: mask");
}

/* Hostile sizes that strides of 0 allow: refused before anything is written. */
static void endless_views_are_refused(void) {
    ledger l = LEDGER_INIT;
    napier_context *context = ledger_context(&l, 0);
    call c = good_call();
    c.options.sequences = 0;
    c.k = (napier_const_heads){memory, INT64_MAX, 2, 8, 0, 0, 0, NAPIER_F32};
    c.v = (napier_const_heads){memory, INT64_MAX, 2, 4, 0, 0, 0, NAPIER_F32};
    refused(context, make_call(context, &c), NAPIER_OUT_OF_MEMORY, "too many", NULL);
    c.k.tokens = c.v.tokens = INT64_C(1) << 39;
    refused(context, make_call(context, &c), NAPIER_OUT_OF_MEMORY, "no memory", NULL);
    napier_context_destroy(context);
}

int main(void) {
    return RUN_TESTS("attention", TEST(sizes_have_the_bits_of_the_order),
                     TEST(options_layouts_and_dtypes_have_the_bits_of_the_order),
                     TEST(one_query_a_sequence_has_the_bits_of_the_order),
                     TEST(large_scores_have_the_bits_of_the_order), TEST(bf16_weights_have_the_bits_of_their_order),
                     TEST(bf16_weights_in_any_batch_and_layout), TEST(bf16_weights_of_tiny_values),
                     TEST(a_mask_may_be_nan), TEST(errors_are_within_the_bound), TEST(shared_is_unshared),
                     TEST_2(a_sequence_does_not_know_its_batch), TEST(odd_values_touch_only_rows_that_see_them),
                     TEST_2(rows_that_see_nothing), TEST_1(wrong_views_are_named), TEST_1(wrong_options_are_named),
                     TEST(endless_views_are_refused));
}
