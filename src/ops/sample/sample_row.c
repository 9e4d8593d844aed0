/* ops/sample/sample_row.c - the draw of one row. The scan has left the sums of its tiles. They are corrected for tiles that
 * penalties, keep or filters change, and give the logsumexp and the weights. Filters compare single elements, but only of
 * tiles whose maximum is large enough. */
#include "ops/sample/sample_row.h"

#include <float.h>

#include "core/base/sizes.h"
#include "ops/sample/search.h"
#include "ops/tokens/token_row.h"

#define MARKED 0x80000000u

/* A row in work. */
typedef struct drawing {
    const napier_sample_call *call;
    const napier_ops_kernels *kernels;
    const napier_sample_desk *desk;
    int64_t row;
    float max; /* of what is left; filters keep it */
} drawing;

static const napier_token_wants no_wants = {.entropy = false};

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

enum { TILE_FLOATS = NAPIER_TILE + 16 };

int64_t napier_sample_desk_floats(const napier_sample_call *call) {
    const int64_t values = call->filters ? napier_round_up(call->logits.cols + 16, 16) : 0;
    return 2 * napier_token_slot_floats(call->tiles) + NAPIER_TOKEN_SCRATCH + 2 * TILE_FLOATS + values;
}

napier_sample_desk napier_sample_desk_of(const napier_sample_call *call, float *floats, uint32_t *marks,
                                         uint8_t *marked) {
    const int64_t slots = napier_token_slot_floats(call->tiles);
    napier_sample_desk desk = {.scanned = napier_token_slots_of(floats, call->tiles),
                               .slots = napier_token_slots_of(floats + slots, call->tiles),
                               .scratch = floats + 2 * slots,
                               .marks = marks,
                               .marked = marked};
    desk.tile = desk.scratch + NAPIER_TOKEN_SCRATCH;
    desk.terms = desk.tile + TILE_FLOATS;
    desk.values = desk.terms + TILE_FLOATS;
    return desk;
}

static void copy_slots(const napier_token_slots *from, const napier_token_slots *to, int64_t tiles) {
    memcpy(to->max, from->max, (size_t)napier_token_slot_floats(tiles) * sizeof(float));
}

/* ---- Penalties --------------------------------------------------------------------------------------------------- */

static void mark(const napier_sample_desk *desk, napier_indices ids, napier_indices offsets, int64_t row,
                 uint32_t one) {
    const int64_t end = offsets.size > 0 ? napier_index_at(offsets, row + 1) : 0;
    for (int64_t i = offsets.size > 0 ? napier_index_at(offsets, row) : 0; i < end; i++) {
        const int64_t id = napier_index_at(ids, i);
        desk->marks[id] = (desk->marks[id] | MARKED) + one;
        desk->marked[id / NAPIER_TILE] = 1;
    }
}

static void unmark(const napier_sample_desk *desk, napier_indices ids, napier_indices offsets, int64_t row) {
    const int64_t end = offsets.size > 0 ? napier_index_at(offsets, row + 1) : 0;
    for (int64_t i = offsets.size > 0 ? napier_index_at(offsets, row) : 0; i < end; i++) {
        const int64_t id = napier_index_at(ids, i);
        desk->marks[id] = 0;
        desk->marked[id / NAPIER_TILE] = 0;
    }
}

static void penalize(const napier_sample_call *call, const uint32_t *marks, int n, float *x) {
    enum { BLOCK = 16 };
    for (int begin = 0; begin < n; begin += BLOCK) {
        const int end = (int)napier_least(begin + BLOCK, n);
        uint32_t any = 0;
        for (int i = begin; i < end; i++) {
            any |= marks[i];
        }
        for (int i = begin; i < end && any > 0; i++) {
            const uint32_t count = marks[i] & ~MARKED;
            x[i] = marks[i] == 0
                       ? x[i]
                       : napier_sample_penalized(x[i], call->repetition, call->frequency, call->presence, count);
        }
    }
}

/* ---- Tiles ------------------------------------------------------------------------------------------------------- */

static int tile_size(const drawing *d, int64_t tile) {
    return (int)napier_least(d->call->logits.cols - tile * NAPIER_TILE, NAPIER_TILE);
}

/* Does what is left of a tile before the filters differ from the logits / T? */
static bool is_changed(const drawing *d, int64_t tile) {
    return d->call->rules.keep || (d->call->penalties && d->desk->marked[tile]);
}

/* What is left of the first n elements of a tile, before the filters: the logits themselves, or in desk->tile. */
static const float *load(const drawing *d, int64_t tile, int n) {
    const napier_const_matrix *x = &d->call->logits;
    const int64_t column = tile * NAPIER_TILE, at = d->row * x->row_stride + column * x->col_stride;
    const void *const from = (const char *)x->data + at * (int64_t)napier_dtype_size(x->dtype);
    const uint8_t *const keep = napier_token_keep(&d->call->rules, d->row, column);
    const napier_token_rules none = {.temperature = 1.0f};
    float *const z = d->desk->tile;
    const bool marked = d->call->penalties && d->desk->marked[tile];
    if (!marked && x->dtype == NAPIER_F32 && x->col_stride == 1 && d->call->rules.temperature == 1.0f && !keep) {
        return from;
    }
    if (!marked) {
        d->kernels->tokens->token_z(&d->call->rules, from, x->dtype, x->col_stride, keep, n, z);
        return z;
    }
    d->kernels->tokens->token_z(&none, from, x->dtype, x->col_stride, NULL, n, z);
    penalize(d->call, d->desk->marks + column, n, z);
    if (keep || d->call->rules.temperature != 1.0f) {
        d->kernels->tokens->token_z(&d->call->rules, z, NAPIER_F32, 1, keep, n, z);
    }
    return z;
}

static const float *load_tile(const drawing *d, int64_t tile) { return load(d, tile, tile_size(d, tile)); }

/* The same, after the filters, in desk->tile. */
static const float *load_cut_tile(const drawing *d, int64_t tile, napier_sample_cut cut) {
    const float *const loaded = load_tile(d, tile);
    const int n = tile_size(d, tile);
    const int64_t last = cut.last - tile * NAPIER_TILE;
    float *const z = d->desk->tile;
    if (loaded != z) {
        memcpy(z, loaded, (size_t)n * sizeof *z);
    }
    if (cut.least > -INFINITY) {
        d->kernels->sample->cut(z, n, cut.least, last < 0 ? 0 : (int)napier_least(last, n - 1) + 1);
    }
    return z;
}

static void sum_tile(const drawing *d, int64_t tile, const float *z) {
    napier_token_seen unused = {.max = 0};
    d->kernels->tokens->token_tile(&no_wants, z, NULL, tile_size(d, tile), tile, &d->desk->slots, &unused);
}

static uint64_t tile_weight(const drawing *d, int64_t tile) {
    const napier_token_slots *s = &d->desk->slots;
    return s->max[tile] == -INFINITY
               ? 0
               : napier_sample_tile_weight(s->max[tile], s->count[tile], s->rest[tile], d->max, d->call->bits);
}

static uint64_t row_weight(const drawing *d) {
    uint64_t sum = 0;
    for (int64_t t = 0; t < d->call->tiles; t++) {
        sum += tile_weight(d, t);
    }
    return sum;
}

/* ---- Filters ----------------------------------------------------------------------------------------------------- */

static const napier_sample_cut no_cut = {-INFINITY, INT64_MAX};

/* Collects the elements >= least that an earlier filter left, from every step-th tile. */
static int64_t collect(const drawing *d, float least, napier_sample_cut cut, int64_t step) {
    const float limit = least > -FLT_MAX ? least : -FLT_MAX;
    int64_t count = 0;
    for (int64_t t = 0; t < d->call->tiles; t += step) {
        if (d->desk->slots.max[t] >= limit) {
            const float *const z = load_cut_tile(d, t, cut);
            count += d->kernels->sample->collect(z, tile_size(d, t), limit, d->desk->values + count);
        }
    }
    return count;
}

/* Is the tile's maximum above the cut, and the cut at none of its elements? */
static bool is_cut_evenly(const drawing *d, int64_t tile, napier_sample_cut cut) {
    const float max = d->desk->slots.max[tile];
    return max > cut.least && !napier_is_big(max) && tile != cut.last / NAPIER_TILE;
}

/* Corrects the sum of a tile for the cut. */
static void cut_tile(const drawing *d, int64_t tile, napier_sample_cut cut) {
    const napier_token_slots *s = &d->desk->slots;
    if (!is_cut_evenly(d, tile, cut)) {
        sum_tile(d, tile, load_cut_tile(d, tile, cut));
        return;
    }
    const bool ties = tile * NAPIER_TILE < cut.last; /* are those that equal least kept? */
    const float least = ties ? cut.least : napier_of_rising(napier_rising(cut.least) + 1);
    s->rest[tile] = d->kernels->sample->rest(load_tile(d, tile), tile_size(d, tile), s->max[tile], least);
}

/* The cut behind `ties` of the elements that equal `least`. Corrects the sums of all tiles for it. */
static napier_sample_cut narrow(const drawing *d, float least, int64_t ties) {
    napier_sample_cut cut = {least, INT64_MAX};
    const napier_token_slots *s = &d->desk->slots;
    for (int64_t t = 0; t < d->call->tiles; t++) {
        if (!(s->max[t] >= least)) {
            s->max[t] = -INFINITY;
            s->count[t] = s->rest[t] = 0.0f;
            continue;
        }
        if (cut.last == INT64_MAX && ties < INT64_MAX) {
            int64_t left = ties;
            const int end = d->kernels->sample->ties(load_tile(d, t), tile_size(d, t), least, &left);
            cut.last = left == 0 ? t * NAPIER_TILE + end - 1 : INT64_MAX;
            ties = left;
        }
        cut_tile(d, t, cut);
    }
    return cut;
}

static bool search(const drawing *d, bool weights, int64_t n, uint64_t goal, float *least, int64_t *ties) {
    const napier_sample_measure measure = {d->kernels->sample, weights, d->max, d->call->bits};
    return n > 0 && napier_sample_search(&measure, d->desk->values, n, goal, least, ties);
}

/* Filters search in few elements. A bound, below which a filter keeps nothing, is one way. The other is a guess from a
 * part of the row: two values between which the edge lies. One pass adds up what is above the upper value, and collects
 * what is between them. A guess that was wrong is noticed, and the search is repeated without it. So the result does not
 * depend on bounds and guesses. */
enum {
    GUESS_TILES = 16, /* at least, of a row */
    GUESS_BITS = 47,  /* at most, of weights */
    GUESS_STEP = 2,   /* a part of every second tile */
    GUESS_PART = 64,
    FEW_STEP = 8, /* from every 8th tile, ... */
    FEW = 512     /* ... at most so many elements: then all can be searched in */
};

/* Collects what guesses look at; *looked: its columns. */
static int64_t collect_parts(const drawing *d, int64_t *looked) {
    int64_t count = 0;
    *looked = 0;
    for (int64_t t = 0; t < d->call->tiles; t += GUESS_STEP) {
        const int n = (int)napier_least(tile_size(d, t), GUESS_PART);
        *looked += n;
        if (d->desk->slots.max[t] > -INFINITY) {
            count += d->kernels->sample->collect(load(d, t, n), n, -FLT_MAX, d->desk->values + count);
        }
    }
    return count;
}

/* Guesses between which values the edge lies; false if that is not possible. share: as for napier_sample_bracket, of the
 * whole row. */
static bool guess(const drawing *d, napier_sample_bands *bands, double share, float floor) {
    const napier_sample_measure measure = {d->kernels->sample, bands->weights, d->max, d->call->bits};
    int64_t looked = 0;
    if (d->call->tiles < GUESS_TILES || d->call->bits > GUESS_BITS || napier_is_big(d->max)) {
        return false;
    }
    const int64_t n = collect_parts(d, &looked);
    if (n == 0) {
        return false;
    }
    share *= (double)looked / (double)d->call->logits.cols;
    napier_sample_bracket(&measure, d->desk->values, n, share, floor, &bands->low, &bands->high);
    int64_t above = 0;
    for (int64_t i = 0; i < n; i++) {
        above += d->desk->values[i] > bands->high ? 1 : 0;
    }
    bands->most = above > n / 2;
    bands->even = napier_sample_weight(napier_sample_term(bands->high, d->max), d->call->bits) >> 25 > 0;
    return true;
}

/* Searches between guessed values for the edge of the beginning that counts at least `goal`. Below `floor` there is no
 * edge. */
static bool find_by_guess(const drawing *d, bool weights, double share, uint64_t goal, float floor, float *least,
                          int64_t *ties) {
    napier_sample_bands bands = {.weights = weights, .max = d->max, .bits = d->call->bits};
    uint64_t above = 0;
    int64_t n = 0;
    if (!guess(d, &bands, share, floor)) {
        return false;
    }
    for (int64_t t = 0; t < d->call->tiles; t++) {
        if (d->desk->slots.max[t] >= bands.low) {
            n += d->kernels->sample->split(&bands, load_tile(d, t), tile_size(d, t), d->desk->values + n, &above);
        }
    }
    return above < goal && search(d, weights, n, goal - above, least, ties);
}

/* k tiles have an element as large as the k-th of their maxima. */
static float top_k_bound(const drawing *d, int64_t k) {
    float least = -INFINITY;
    int64_t ties;
    memcpy(d->desk->values, d->desk->slots.max, (size_t)d->call->tiles * sizeof(float));
    search(d, false, d->call->tiles, (uint64_t)k, &least, &ties);
    return least;
}

static bool find_top_k(const drawing *d, int64_t k, float *least, int64_t *ties) {
    const uint64_t goal = (uint64_t)k;
    if (k <= d->call->tiles) {
        return search(d, false, collect(d, top_k_bound(d, k), no_cut, 1), goal, least, ties);
    }
    return find_by_guess(d, false, (double)k, goal, -FLT_MAX, least, ties) ||
           search(d, false, collect(d, -INFINITY, no_cut, 1), goal, least, ties);
}

/* All elements below this bound together have at most the probability 1 - top_p. */
static float top_p_bound(const drawing *d, double top_p, uint64_t whole) {
    const double log_sum = napier_f64_log((double)whole) - napier_f64_log(napier_f64_power_of_two(d->call->bits));
    const double log_share = napier_f64_log((1.0 - top_p) / (double)d->call->logits.cols);
    return (float)((double)d->max + (log_sum + log_share) - 1.0);
}

/* If few elements are above the bound: a higher one, from every 8th tile, below which the weight is half of what it may
 * be. */
static bool find_in_few(const drawing *d, double top_p, uint64_t whole, float bound, float *least, int64_t *ties) {
    const double spare = 0.5 * (1.0 - top_p) * (double)whole / FEW_STEP;
    double part = 0;
    float higher = bound;
    const int64_t n = d->call->tiles < GUESS_TILES ? INT64_MAX : collect(d, bound, no_cut, FEW_STEP);
    if (n > FEW) {
        return false;
    }
    for (int64_t t = 0; t < d->call->tiles; t += FEW_STEP) {
        part += (double)tile_weight(d, t);
    }
    if (!search(d, true, n, part > spare ? (uint64_t)(part - spare) : 1, &higher, ties)) {
        higher = bound;
    }
    return search(d, true, collect(d, higher, no_cut, 1), napier_sample_goal(whole, top_p), least, ties) ||
           search(d, true, collect(d, bound, no_cut, 1), napier_sample_goal(whole, top_p), least, ties);
}

static bool find_top_p(const drawing *d, double top_p, napier_sample_cut cut, float *least, int64_t *ties) {
    const uint64_t whole = row_weight(d), goal = napier_sample_goal(whole, top_p);
    if (cut.least > -INFINITY) {
        return search(d, true, collect(d, cut.least, cut, 1), goal, least, ties);
    }
    const float bound = top_p_bound(d, top_p, whole);
    return find_in_few(d, top_p, whole, bound, least, ties) ||
           find_by_guess(d, true, (double)(whole - goal), goal, bound, least, ties) ||
           search(d, true, collect(d, bound, cut, 1), goal, least, ties) ||
           search(d, true, collect(d, -INFINITY, cut, 1), goal, least, ties);
}

/* Finds what top_k, top_p and min_p keep, and corrects the sums of the tiles for it. */
static napier_sample_cut filter(const drawing *d) {
    const napier_sample_options *o = &d->call->options;
    napier_sample_cut cut = no_cut;
    float least;
    int64_t ties;
    if (o->top_k > 0 && o->top_k < d->call->logits.cols && find_top_k(d, o->top_k, &least, &ties)) {
        cut = narrow(d, least, ties);
    }
    const bool by_p = o->top_p < 1.0 && find_top_p(d, o->top_p, cut, &least, &ties);
    const float lowest = o->min_p > 0.0 ? napier_sample_min_p_least(d->max, o->min_p) : -INFINITY;
    if (lowest > (by_p ? least : cut.least)) {
        return narrow(d, lowest, INT64_MAX);
    }
    return by_p ? narrow(d, least, ties) : cut;
}

/* ---- The draw ---------------------------------------------------------------------------------------------------- */

static uint64_t row_number(const drawing *d) {
    const napier_sample_options *o = &d->call->options;
    const int64_t seed = o->seeds.size > 0 ? napier_index_at(o->seeds, d->row) : o->seed;
    const int64_t sample = o->samples.size > 0 ? napier_index_at(o->samples, d->row) : d->row;
    const int64_t position = o->positions.size > 0 ? napier_index_at(o->positions, d->row) : 0;
    return napier_sample_number((uint64_t)seed, (uint64_t)sample, (uint64_t)position);
}

/* An id and its z. */
typedef napier_token_top choice;

static choice choose_inside(const drawing *d, int64_t tile, napier_sample_cut cut, uint64_t rest, uint64_t weight) {
    const float *const z = load_cut_tile(d, tile, cut);
    const int n = tile_size(d, tile);
    uint64_t inside = 0;
    d->kernels->sample->terms(z, n, d->desk->slots.max[tile], d->desk->terms);
    for (int i = 0; i < n; i++) {
        inside += napier_sample_weight(d->desk->terms[i], NAPIER_SAMPLE_TILE_BITS);
    }
    const uint64_t target = napier_sample_inside(rest, weight, inside);
    uint64_t before = 0;
    int i = 0;
    while (i < n - 1 && (before += napier_sample_weight(d->desk->terms[i], NAPIER_SAMPLE_TILE_BITS)) <= target) {
        i++;
    }
    return (choice){z[i], tile * NAPIER_TILE + i};
}

static choice choose(const drawing *d, napier_sample_cut cut) {
    const uint64_t target = napier_sample_part(row_weight(d), row_number(d));
    uint64_t before = 0;
    int64_t tile = 0;
    for (; tile < d->call->tiles - 1; tile++) {
        const uint64_t weight = tile_weight(d, tile);
        if (before + weight > target) {
            break;
        }
        before += weight;
    }
    return choose_inside(d, tile, cut, target - before, tile_weight(d, tile));
}

/* The first of the largest elements. */
static choice choose_greedily(const drawing *d) {
    int64_t tile = 0;
    while (d->desk->slots.max[tile] != d->max) {
        tile++;
    }
    const float *const z = load_tile(d, tile);
    int i = 0;
    while (z[i] != d->max) {
        i++;
    }
    return (choice){z[i], tile * NAPIER_TILE + i};
}

static float plain_z(const drawing *d, int64_t id) {
    const napier_const_matrix *x = &d->call->logits;
    const int64_t at = d->row * x->row_stride + id * x->col_stride;
    float z;
    d->kernels->tokens->token_z(&d->call->plain, (const char *)x->data + at * (int64_t)napier_dtype_size(x->dtype),
                                x->dtype, 1, NULL, 1, &z);
    return z;
}

/* ---- The row ----------------------------------------------------------------------------------------------------- */

static napier_sample_flaw flaw_of(napier_row_kind kind, bool late) {
    return kind == NAPIER_ROW_FINITE ? NAPIER_SAMPLE_FINE
           : kind == NAPIER_ROW_NAN  ? (late ? NAPIER_SAMPLE_LATE_NAN : NAPIER_SAMPLE_NAN)
           : kind == NAPIER_ROW_PINF ? (late ? NAPIER_SAMPLE_LATE_PINF : NAPIER_SAMPLE_PINF)
                                     : (late ? NAPIER_SAMPLE_NONE : NAPIER_SAMPLE_MINF);
}

void napier_sample_scan(const napier_sample_call *call, const napier_ops_kernels *kernels, int64_t row, int64_t begin,
                        int64_t end, const napier_token_slots *scanned, float *scratch) {
    const napier_token_job job = {call->logits, call->plain, no_wants};
    napier_token_seen unused = {.max = 0};
    kernels->tokens->token_range(&job, row, begin * NAPIER_TILE, napier_least(end * NAPIER_TILE, call->logits.cols),
                                 scanned, &unused, scratch);
}

static napier_token_final finish(const drawing *d, const napier_token_slots *slots) {
    return d->kernels->tokens->token_finish(&no_wants, slots, d->call->tiles);
}

/* Draws from a row whose marks are set and whose plain distribution is *plain. */
static napier_sample_drawn draw(drawing *d, const napier_token_final *plain) {
    napier_token_final final = *plain;
    bool changed = false;
    for (int64_t t = 0; t < d->call->tiles; t++) {
        if (is_changed(d, t)) {
            sum_tile(d, t, load_tile(d, t));
            changed = true;
        }
    }
    if (changed) {
        copy_slots(&d->desk->slots, &d->desk->scanned, d->call->tiles); /* finish changes its slots */
        final = finish(d, &d->desk->scanned);
    }
    napier_sample_drawn drawn = {.flaw = flaw_of(final.row.kind, true)};
    if (drawn.flaw) {
        return drawn;
    }
    d->max = final.row.max;
    const napier_sample_cut cut = d->call->filters ? filter(d) : no_cut;
    const choice chosen = d->call->greedy ? choose_greedily(d) : choose(d, cut);
    if (cut.least > -INFINITY) {
        final = finish(d, &d->desk->slots);
    }
    drawn.id = chosen.id;
    drawn.logprob = d->call->greedy ? 0.0f : napier_token_logprob(&final, chosen.z);
    drawn.plain_logprob = napier_token_logprob(plain, plain_z(d, chosen.id));
    return drawn;
}

napier_sample_drawn napier_sample_row(const napier_sample_call *call, const napier_ops_kernels *kernels,
                                      const napier_sample_desk *desk, int64_t row) {
    const napier_sample_options *o = &call->options;
    drawing d = {call, kernels, desk, row, 0.0f};
    copy_slots(&desk->scanned, &desk->slots, call->tiles);
    const napier_token_final plain = finish(&d, &desk->scanned);
    const napier_sample_drawn flawed = {.flaw = flaw_of(plain.row.kind, false)};
    if (flawed.flaw || !call->penalties) {
        return flawed.flaw ? flawed : draw(&d, &plain);
    }
    mark(desk, o->prompt_ids, o->prompt_offsets, row, 0);
    mark(desk, o->output_ids, o->output_offsets, row, 1);
    const napier_sample_drawn drawn = draw(&d, &plain);
    unmark(desk, o->prompt_ids, o->prompt_offsets, row);
    unmark(desk, o->output_ids, o->output_offsets, row);
    return drawn;
}
