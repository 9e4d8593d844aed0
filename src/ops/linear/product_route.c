/* ops/linear/product_route.c - how a product is computed, and in blocks of which size. None of this changes a bit. */
#include "ops/linear/engine.h"
#include "ops/linear/product_steps.h"

/* Results of this size and larger ones are stored past the caches, because they would not stay in those of a core. */
enum { NAPIER_PRODUCT_STREAM_BYTES = 4 << 20 };

/* How many lanes are multiplied at a time with rows that are read directly: one whole patch, so that sums go from
 * registers to their final place, and the panels leave space for them in the second-level cache. Rows that are widened
 * or turned serve more lanes, so that this pays. Packed rows serve more lanes, and so do short ones. Up to 256 lanes go
 * together, in shares of almost the same number of vectors, if blocks of 64 would leave few: 131 as 3 times 48, not as 64,
 * 64 and 3. */
enum { DIRECT_LANES = 64, CHANGED_LANES = 128, SHORT_K = 512 };
/* A product of one lane waits for memory, which vectors read faster than tiles do. */
enum { FEW_BESIDE_AMX = 1 };
/* The pieces of so many lanes are six whole panels. */
enum { SPLIT_LANES = 64 };

/* For rows that are not packed as f32: blocks of almost the same size, whose panels, 512 KB, stay in the second-level
 * cache. floats: of the panels, for one k. */
static int64_t large_k_block(int64_t k, int64_t floats) {
    enum { FLOATS = 128 << 10 };
    const int64_t most = FLOATS / floats, blocks = k > most ? (k + most - 1) / most : 1;
    return napier_round_up(k > 0 ? (k + blocks - 1) / blocks : 1, NAPIER_PAIRS_BLOCK);
}

/* One lane reads rows of a long k one after the other: on a Zen 5 that is as fast as a plain read. A Granite Rapids reads 16 rows
 * at a time faster. */
static bool is_in_order(const napier_product_sides *s) {
    enum { LONG_K = 512 };
    return s->lanes.rows == 1 && !s->split && s->k >= LONG_K && !s->context->intel;
}

/* add: few lanes are in panels too, because only these start from sums. */
static napier_product_route route_of(const napier_product_sides *s, bool pairs, bool add) {
    const bool tiles = pairs && s->context->engine >= NAPIER_ENGINE_AMX;
    const bool dots = pairs && (s->context->engine == NAPIER_ENGINE_PAIRS || s->context->engine == NAPIER_ENGINE_BOTH);
    const int64_t most = (!tiles ? NAPIER_FEW : dots ? FEW_BESIDE_AMX : 0) / (s->split ? NAPIER_PIECES : 1);
    const bool in_place = s->rows.col_stride == 1 && (!pairs || s->kernels->direct_pairs);
    const bool few = s->lanes.rows <= most && in_place;
    if (few && !add) {
        return !pairs            ? NAPIER_ROUTE_CHAIN_FEW
               : !is_in_order(s) ? (dots ? NAPIER_ROUTE_DOT_FEW : NAPIER_ROUTE_PAIRS_FEW)
                                 : (dots ? NAPIER_ROUTE_DOT_ONE : NAPIER_ROUTE_PAIRS_ONE);
    }
    if (tiles && !few) {
        return NAPIER_ROUTE_TILES;
    }
    if (dots && s->lanes.rows > most) {
        return NAPIER_ROUTE_DOT;
    }
    const bool direct = in_place && s->blocks == NULL;
    return pairs ? (direct ? NAPIER_ROUTE_PAIRS_DIRECT : NAPIER_ROUTE_PAIRS)
                 : (direct ? NAPIER_ROUTE_CHAIN_DIRECT : NAPIER_ROUTE_CHAIN);
}

static napier_product_sides sides_of(const napier_context *context, napier_const_matrix lanes, napier_const_matrix rows,
                                     bool split, bool add) {
    const napier_ops_kernels *all = napier_ops_kernels_of(context->isa);
    napier_product_sides s = {
        .context = context, .kernels = &all->linear->matmul, .core = all->core, .lanes = lanes, .rows = rows};
    s.split = split && lanes.dtype != NAPIER_BF16;
    s.blocks = rows.dtype == NAPIER_BLOCKS ? rows.data : NULL;
    s.rows.dtype = napier_widened(rows.dtype);
    const bool pairs = s.split || (lanes.dtype == NAPIER_BF16 && s.rows.dtype == NAPIER_BF16);
    s.k = pairs ? napier_round_up(lanes.cols, NAPIER_PAIRS_BLOCK) : lanes.cols;
    s.route = route_of(&s, pairs, add);
    s.panel_step = napier_is_narrow(&s) ? NAPIER_LANES / 2 : NAPIER_LANES;
    const bool packs = s.route == NAPIER_ROUTE_CHAIN || s.route == NAPIER_ROUTE_PAIRS; /* rows */
    const bool full = lanes.rows > NAPIER_LANE_BLOCK || (lanes.rows - 1) % DIRECT_LANES >= DIRECT_LANES / 2;
    s.lane_block = s.split                                           ? SPLIT_LANES
                   : packs || s.route == NAPIER_ROUTE_TILES || !full ? NAPIER_LANE_BLOCK
                   : s.rows.dtype == NAPIER_F32 ? (s.k <= SHORT_K ? NAPIER_LANE_BLOCK : DIRECT_LANES)
                                                : CHANGED_LANES;
    const int64_t together = lanes.rows < 1 ? 1 : napier_least(lanes.rows, s.lane_block);
    s.k_block = packs ? NAPIER_K_BLOCK : large_k_block(s.k, napier_panels_of(&s, together) * s.panel_step);
    s.c_step = napier_is_few(&s) ? napier_few_width(lanes.rows) : napier_round_up(together, 16);
    if (napier_is_narrow(&s) && s.c_step == NAPIER_LANE_BLOCK) {
        s.c_step = NAPIER_STRIP_STEP; /* the rows of a tile spread over the sets of a cache */
    }
    s.sum_step = napier_is_few(&s) ? napier_few_width(napier_few_sums(&s, lanes.rows)) : napier_sums_of(&s, s.c_step);
    return s;
}

napier_product_sides napier_product_sides_of(const napier_context *context, napier_const_matrix lanes,
                                             napier_const_matrix rows, bool split) {
    return sides_of(context, lanes, rows, split, false);
}

size_t napier_panel_floats(const napier_product_sides *s, int64_t lanes) {
    const uint64_t panels = (uint64_t)napier_panels_of(s, lanes);
    if (s->k == 0 || panels > SIZE_MAX / sizeof(float) / (uint64_t)NAPIER_LANES / (uint64_t)s->k) {
        return 0;
    }
    return napier_is_few(s) ? NAPIER_FEW * (size_t)napier_round_up(s->k, 16) + 16
                            : (size_t)(panels * (uint64_t)s->k * (uint64_t)s->panel_step);
}

static int64_t lanes_at_a_time(const napier_product_sides *s) {
    const int64_t most = NAPIER_PANEL_BYTES_MOST / (int64_t)sizeof(float) / (s->k > 0 ? napier_lane_floats(s) : 1);
    const int64_t blocks = most / NAPIER_LANE_BLOCK > 0 ? most / NAPIER_LANE_BLOCK : 1;
    const int64_t wanted = napier_round_up(s->lanes.rows, NAPIER_LANE_BLOCK);
    return blocks * NAPIER_LANE_BLOCK < wanted ? blocks * NAPIER_LANE_BLOCK : wanted;
}

/* Chooses enough units for every thread to have a fair share. If the panels must be read
 * again for each unit, a unit has many rows. */
static int64_t row_block_of(const napier_context *context, const napier_product_sides *s, int64_t lanes) {
    enum { UNITS = 8 };
    const int64_t most = s->k_block < s->k ? 8 : 4;
    const int64_t blocks = (lanes + s->lane_block - 1) / s->lane_block;
    const int64_t group =
        napier_is_narrow(s) ? 2 * NAPIER_ROW_GROUP : NAPIER_ROW_GROUP; /* whole tiles, and whole lines of bf16 */
    const int64_t groups = (s->rows.rows + group - 1) / group;
    const int64_t fair = groups / (UNITS * context->threads / blocks + 1) + 1;
    return napier_least(fair, most * NAPIER_ROW_GROUP / group) * group;
}

napier_product_plan napier_product_plan_of(const napier_context *context, napier_const_matrix lanes,
                                           napier_const_matrix rows, napier_matrix out, bool split, bool add) {
    napier_product_plan p = {.sides = sides_of(context, lanes, rows, split, add), .out = out, .add = add};
    p.lanes = lanes_at_a_time(&p.sides);
    p.row_block = row_block_of(context, &p.sides, p.lanes);
    p.stream = !add && out.rows * out.cols >= NAPIER_PRODUCT_STREAM_BYTES / (int64_t)napier_dtype_size(out.dtype);
    return p;
}

size_t napier_product_floats(const napier_context *context, const napier_product_plan *p) {
    const size_t panels = napier_panel_floats(&p->sides, p->lanes);
    return panels > 0 || p->sides.k == 0 ? panels + (size_t)context->threads * napier_product_scratch(p->row_block) : 0;
}

bool napier_product_packs_alike(const napier_product_plan *a, const napier_product_plan *b) {
    const napier_product_sides *s = &a->sides, *t = &b->sides;
    return s->k == t->k && s->route == t->route && s->split == t->split && s->k_block == t->k_block &&
           s->lane_block == t->lane_block && s->lanes.rows == t->lanes.rows && a->lanes >= s->lanes.rows &&
           b->lanes >= s->lanes.rows;
}
