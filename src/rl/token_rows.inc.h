/* rl/token_rows.inc.h - rows of logits in memory: long ones tile by tile, short ones in groups. Included after
 * token_tile.inc.h, once per instruction set.
 *
 * A tile is looked at (maximum, minimum, NaN; widening on the way) two tiles before it is summed, in the loop that sums
 * another one, as in softmax/long_rows.inc.h: what memory takes to arrive is spent on exps. */

/* A tile between its look and its sum. */
typedef struct napier_token_ahead {
    napier_looked looked;
    int n;
    float max;
    bool fused;    /* looked at in the loop that summed another: bf16 is turned, and NaN may be left to the spread */
    bool turned;   /* every 32 elements as the 16 even ones, then the 16 odd ones */
    bool ordinary; /* full, within the cutoff, its maximum not big; without NaN, or the spread will tell */
} napier_token_ahead;

/* Columns [begin, end) of a row as tiles on their way. */
typedef struct napier_token_run {
    const napier_token_job *job;
    int64_t row, begin, end, count;
    bool plain; /* contiguous f32 or bf16 that is z already */
    napier_token_ahead ahead[NAPIER_AHEAD_SLOTS];
    float *room; /* a tile for each, and one more */
} napier_token_run;

static int64_t napier_token_column(const napier_token_run *run, int64_t p) { return run->begin + p * NAPIER_TILE; }

static float *napier_token_room(const napier_token_run *run, int64_t p) {
    return run->room + p % NAPIER_AHEAD_SLOTS * (NAPIER_TILE + 16);
}

static void napier_token_keep_look(napier_token_run *run, int64_t p, napier_looked looked, int n, bool fused) {
    const float max = vf_hmax(looked.range.max), min = -vf_hmax(vf_sub(vf_zero(), looked.range.min));
    const bool clean =
        fabsf(max) <= NAPIER_BIG && min >= max - NAPIER_CUTOFF && !vm_any(napier_range_nan(looked.range));
    const bool turned = fused && run->job->x.dtype == NAPIER_BF16;
    run->ahead[p % NAPIER_AHEAD_SLOTS] = (napier_token_ahead){looked, n, max, fused, turned, clean && n == NAPIER_TILE};
}

static void napier_token_look_ahead(napier_token_run *run, int64_t p) {
    if (p < run->count) {
        const int64_t column = napier_token_column(run, p);
        const int n = napier_tile_at(column, run->end);
        napier_token_keep_look(run, p, napier_token_look(run->job, run->row, column, n, napier_token_room(run, p)), n,
                               false);
    }
}

/* 16 elements into a range; nan: a NaN must be noticed here. */
NAPIER_KERNEL void napier_token_into_range(napier_range *r, vf v, bool nan) {
    r->max = vf_max(v, r->max);
    r->min = vf_min(v, r->min);
    if (nan) {
        r->sum = vf_add(r->sum, v);
    }
}

/* Looks at 32 elements. Those of bf16 go to z, even ones first: a shift and a mask widen them, where they lie. */
NAPIER_KERNEL void napier_token_look32(napier_dtype dtype, bool nan, const char *x, float *z, napier_range *r) {
    vf u, v;
    __builtin_prefetch(x + NAPIER_PREFETCH_BYTES);
    if (dtype == NAPIER_F32) {
        __builtin_prefetch(x + NAPIER_PREFETCH_BYTES + 64);
        u = vf_load((const float *)(const void *)x);
        v = vf_load((const float *)(const void *)x + 16);
    } else {
        const vi pairs = vi_load((const int32_t *)(const void *)x);
        u = vf_from_bits(vi_shl(pairs, 16));
        v = vf_from_bits(vi_and(pairs, vi_set((int32_t)0xffff0000u)));
        vf_store(z, u);
        vf_store(z + 16, v);
    }
    napier_token_into_range(r, u, nan);
    napier_token_into_range(r, v, nan);
}

/* The lanes of a tile, folded. Of one that is turned, lanes 2 i and 2 i + 1 lie 16 apart: folding 256 to 32 is the same, and
 * from there the even ones and the odd ones fold by themselves; their sum is the last step. */
NAPIER_KERNEL float napier_token_fold_tile(vf *lane, bool turned) {
    if (!turned) {
        return vf_hadd(napier_fold_lanes(lane, 16));
    }
    NAPIER_UNROLL
    for (int half = 8; half > 1; half /= 2) {
        NAPIER_UNROLL
        for (int v = 0; v < half; v++) {
            lane[v] = vf_add(lane[v], lane[v + half]);
        }
    }
    return vf_hadd(lane[0]) + vf_hadd(lane[1]);
}

/* Sums the ordinary tile p and looks at tile p + 2, a full one. */
NAPIER_KERNEL napier_token_parts napier_token_two_tiles(napier_dtype dtype, bool entropy, bool turned,
                                                        napier_token_run *run, int64_t p) {
    const napier_token_ahead *t = &run->ahead[p % NAPIER_AHEAD_SLOTS];
    const napier_const_matrix *x = &run->job->x;
    const int64_t column = napier_token_column(run, p + NAPIER_AHEAD);
    const char *look_x = (const char *)napier_at(x->data, dtype, run->row * x->row_stride + column);
    float *look_z = napier_token_room(run, p + NAPIER_AHEAD);
    const int bytes = dtype == NAPIER_F32 ? 4 : 2;
    napier_range range = napier_no_range();
    const napier_adder a = napier_adder_of(t->max, napier_term_magic(napier_exp_parts_small(t->max).n));
    const float *z = t->looked.z;
    vf sum[16], spread[16];
    vi below = vi_set(0);
    for (int v = 0; v < 16; v++) {
        vf s = vf_zero(), u = vf_zero();
        napier_token_look32(dtype, !entropy, look_x + v * 64 * bytes, look_z + v * 64, &range);
        napier_token_step4(&a, z + v * 16, entropy, &s, &u, &below);
        napier_token_look32(dtype, !entropy, look_x + (v * 64 + 32) * bytes, look_z + v * 64 + 32, &range);
        sum[v] = s;
        spread[v] = u;
    }
    const napier_token_parts parts = {t->max, napier_token_count(NAPIER_TILE, below),
                                      napier_token_fold_tile(sum, turned),
                                      entropy ? napier_token_fold_tile(spread, turned) : 0.0f};
    const float *next = dtype == NAPIER_F32 ? (const float *)(const void *)look_x : look_z;
    napier_token_keep_look(run, p + NAPIER_AHEAD, (napier_looked){next, range}, NAPIER_TILE, true);
    return parts;
}

static napier_token_parts napier_token_together(napier_token_run *run, int64_t p) {
    const bool entropy = run->job->wants.entropy;
    if (run->job->x.dtype == NAPIER_F32) {
        return entropy ? napier_token_two_tiles(NAPIER_F32, true, false, run, p)
                       : napier_token_two_tiles(NAPIER_F32, false, false, run, p);
    }
    if (run->ahead[p % NAPIER_AHEAD_SLOTS].turned) {
        return entropy ? napier_token_two_tiles(NAPIER_BF16, true, true, run, p)
                       : napier_token_two_tiles(NAPIER_BF16, false, true, run, p);
    }
    return entropy ? napier_token_two_tiles(NAPIER_BF16, true, false, run, p)
                   : napier_token_two_tiles(NAPIER_BF16, false, false, run, p);
}

/* Does what may be seen in a tile depend on where its elements stand? */
static bool napier_token_order_matters(const napier_token_wants *wants, const napier_token_seen *seen, int64_t column,
                                       float max) {
    bool order = wants->total || (wants->argmax && max >= seen->max) ||
                 (wants->top_k > 0 && (seen->top_count < wants->top_k || max >= seen->top[0].z));
    for (int64_t k = 0; k < wants->ranks && !order; k++) {
        order = seen->ids[k] >= column && seen->ids[k] < column + NAPIER_TILE;
    }
    return order;
}

static void napier_token_next(napier_token_run *run, int64_t p, const napier_token_slots *slots,
                              napier_token_seen *seen) {
    const napier_token_wants *wants = &run->job->wants;
    const int64_t column = napier_token_column(run, p), ahead = napier_token_column(run, p + NAPIER_AHEAD);
    napier_token_ahead t = run->ahead[p % NAPIER_AHEAD_SLOTS];
    napier_token_parts parts = {.spread = 0.0f};
    const bool together = run->plain && t.ordinary && ahead + NAPIER_TILE <= run->end;
    if (together) {
        parts = napier_token_together(run, p);
    }
    const bool alone = !together || parts.spread != parts.spread;
    if (t.fused && (alone || (t.turned && napier_token_order_matters(wants, seen, column, t.max)))) {
        t.looked =
            napier_token_look(run->job, run->row, column, t.n, run->room + NAPIER_AHEAD_SLOTS * (NAPIER_TILE + 16));
    }
    if (alone) {
        parts = napier_token_parts_of(t.looked, t.n, wants->entropy);
    }
    const uint8_t *keep = napier_token_keep(&run->job->rules, run->row, column);
    napier_token_tile_done(wants, t.looked.z, keep, t.n, column / NAPIER_TILE, &parts, slots, seen);
    if (!together) {
        napier_token_look_ahead(run, p + NAPIER_AHEAD);
    }
}

static void napier_token_range(const napier_token_job *job, int64_t row, int64_t begin, int64_t end,
                               const napier_token_slots *slots, napier_token_seen *seen, float *scratch) {
    napier_token_run run = {.job = job, .row = row, .begin = begin, .end = end, .room = scratch};
    run.count = napier_token_tiles(end - begin);
    run.plain = job->x.col_stride == 1 && job->x.dtype != NAPIER_F16 && job->rules.temperature == 1.0f &&
                job->rules.softcap == 0.0f && !job->rules.keep;
    for (int64_t p = 0; p < NAPIER_AHEAD; p++) {
        napier_token_look_ahead(&run, p);
    }
    for (int64_t p = 0; p < run.count; p++) {
        napier_token_next(&run, p, slots, seen);
    }
}

/* ---- Short rows: a group, one row per lane, is finished at once -------------------------------------------------- */

typedef struct napier_token_group {
    napier_looked looked[NAPIER_GROUP];
    vf maxima[NAPIER_GROUP], minima[NAPIER_GROUP]; /* minima with their sign changed */
    vf rest[NAPIER_GROUP], below[NAPIER_GROUP], spread[NAPIER_GROUP];
    float max[NAPIER_GROUP], reach[NAPIER_GROUP], magic[NAPIER_GROUP];
    vf max_lanes, p_lanes;
} napier_token_group;

static void napier_token_group_look(const napier_token_job *job, int64_t row, int rows, napier_token_group *g,
                                    float *scratch) {
    const int n = (int)job->x.cols, room = (n + 31) / 16 * 16;
    for (int r = 0; r < rows; r++) {
        g->looked[r] = napier_token_look(job, row + r, 0, n, scratch + r * room);
        g->maxima[r] = g->looked[r].range.max;
        g->minima[r] = vf_sub(vf_zero(), g->looked[r].range.min);
    }
    for (int r = rows; r < NAPIER_GROUP; r++) {
        g->maxima[r] = g->minima[r] = g->rest[r] = g->below[r] = g->spread[r] = vf_zero();
    }
    const vf found = vf_hmax16(g->maxima), least = vf_sub(vf_zero(), vf_hmax16(g->minima));
    const vm small = vf_le(vf_from_bits(vi_and(vf_bits(found), vi_set(0x7fffffff))), vf_set(NAPIER_BIG));
    g->max_lanes = vf_keep(small, found);
    const napier_maxima m = napier_maxima_of(g->max_lanes);
    g->p_lanes = m.p;
    vf_store(g->max, vf_select(small, found, vf_canonical_nan()));
    vf_store(g->reach, vf_sub(found, least));
    vf_store(g->magic, m.magic);
}

/* A row that is not ordinary, by the way of long rows. */
static napier_token_final napier_token_alone(const napier_token_job *job, napier_looked looked, const uint8_t *keep,
                                             napier_token_seen *seen) {
    float room[NAPIER_TOKEN_SLOT_ARRAYS * 16];
    const napier_token_slots slots = napier_token_slots_of(room, 1);
    const int n = (int)job->x.cols;
    const napier_token_parts parts = napier_token_parts_of(looked, n, job->wants.entropy);
    napier_token_tile_done(&job->wants, looked.z, keep, n, 0, &parts, &slots, seen);
    return napier_token_finish(&job->wants, &slots, 1);
}

static void napier_token_group_sum(const napier_token_job *job, int rows, napier_token_group *g) {
    const int n = (int)job->x.cols;
    for (int r = 0; r < rows; r++) {
        const napier_adder a = napier_adder_of(g->max[r], g->magic[r]);
        const float *z = g->looked[r].z;
        const bool cut = !(g->reach[r] <= NAPIER_CUTOFF);
        const napier_token_lanes lanes = cut                  ? napier_token_sum(z, n, &a, true, true)
                                         : job->wants.entropy ? napier_token_sum(z, n, &a, false, true)
                                                              : napier_token_sum(z, n, &a, false, false);
        g->rest[r] = lanes.rest;
        g->spread[r] = lanes.spread;
        g->below[r] = vf_from_int(lanes.below); /* how many are */
    }
}

/* napier_final_outputs and napier_token_entropy, 16 rows at a time. */
static void napier_token_group_finish(const napier_token_wants *wants, int n, int rows, const napier_token_group *g,
                                      napier_token_final *finals) {
    float log_sum[16], lse[16], max_prob[16], scale[16], entropy[16];
    double exponent[16];
    const vf count = vf_max(vf_sub(vf_set((float)n), vf_hadd16(g->below)), vf_set(1.0f)), rest = vf_hadd16(g->rest);
    const napier_finals l = napier_finish16(NAPIER_OP_LOGSUMEXP, g->max_lanes, g->p_lanes, count, rest);
    const napier_finals s = napier_finish16(NAPIER_OP_SOFTMAX, g->max_lanes, g->p_lanes, count, rest);
    vf_store(log_sum, l.log_sum);
    vf_store(lse, l.lse);
    vf_store(max_prob, s.max_prob);
    vf_store(scale, s.scale);
    if (wants->entropy) {
        const vd unit = vd_set(0x1p-64), one = vd_set(1.0), p = vd_from_vf(g->p_lanes), c = vd_from_vf(count);
        const vd r = vd_mul(vd_from_vf(rest), unit), spread = vd_mul(vd_from_vf(vf_hadd16(g->spread)), unit);
        const vd logs = vd_log1p(vd_add(vd_sub(c, one), vd_div(r, p)));
        vf_store(entropy, vd_to_vf(vd_add(logs, vd_mul(spread, vd_div(one, vd_add(vd_mul(c, p), r))))));
    }
    vd_store(exponent, vd_from_vf(vf_sub(vf_set(NAPIER_ROUND_MAGIC + NAPIER_TERM_SCALE), vf_load(g->magic))));
    for (int i = 0; i < rows; i++) {
        finals[i] = (napier_token_final){.entropy = wants->entropy ? entropy[i] : 0.0f};
        finals[i].row = (napier_final){.kind = NAPIER_ROW_FINITE,
                                       .max = g->max[i] + 0.0f,
                                       .lse = lse[i],
                                       .log_sum = -(0.0f - log_sum[i]), /* as napier_final_log */
                                       .max_prob = max_prob[i],
                                       .scale = scale[i],
                                       .factor = 1.0f,
                                       .exponent = (int64_t)exponent[i]};
    }
}

static void napier_token_rows(const napier_token_job *job, int64_t row, int rows, napier_token_seen *seen,
                              napier_token_final *finals, float *scratch) {
    const int n = (int)job->x.cols;
    napier_token_group g;
    napier_token_group_look(job, row, rows, &g, scratch);
    napier_token_group_sum(job, rows, &g);
    napier_token_group_finish(&job->wants, n, rows, &g, finals);
    for (int r = 0; r < rows; r++) {
        const uint8_t *keep = napier_token_keep(&job->rules, row + r, 0);
        const float *z = g.looked[r].z;
        if (g.max[r] != g.max[r] || vm_any(napier_range_nan(g.looked[r].range))) {
            finals[r] = napier_token_alone(job, g.looked[r], keep, &seen[r]);
            continue;
        }
        if (job->wants.total) {
            finals[r].total = (double)napier_token_total(z, keep, n);
        }
        napier_token_see(&job->wants, z, n, 0, g.max[r], &seen[r]);
    }
}
