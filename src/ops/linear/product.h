/* ops/linear/product.h - a matrix product in blocks, which napier_matmul and the head of a language model share.
 *
 * All threads together pack the side of the lanes once, as panels. A worker takes a range of panels that fits its
 * second-level cache, and multiplies rows with them. Rows that lie along k, as weights [n, k] do, are read in place. So
 * weights are best as rows, and activations, few or many, as lanes. Other rows are packed by the worker that needs
 * them, 48 rows and 256 k at a time. */
#ifndef NAPIER_OPS_LINEAR_PRODUCT_H
#define NAPIER_OPS_LINEAR_PRODUCT_H

#include "core/base/parallel.h"
#include "ops/isa/ops_kernels.h"

enum {
    NAPIER_LANE_BLOCK = 256,                    /* most lanes that a worker takes at a time */
    NAPIER_STRIP_STEP = NAPIER_LANE_BLOCK + 16, /* c_step of a whole block on the engine */
    NAPIER_PANEL_BYTES_MOST =
        32 << 20 /* panels of at most so many bytes are packed at a time, but at least one block of lanes */
};

/* A broadcast view may have any k. Products with more k than this are refused, so the sizes below cannot overflow. */
#define NAPIER_K_MOST (INT64_C(1) << 40)

/* Calls napier_begin and checks the arguments of napier_matmul. Reads nothing in the matrices. */
napier_status napier_matmul_check(napier_context *context, napier_const_matrix a, napier_const_matrix b,
                                  napier_matrix product);

/* How a product is computed: the order of its sums, the instructions, and how lanes and rows lie in memory. */
typedef enum napier_product_route {
    NAPIER_ROUTE_CHAIN,        /* one chain over k: lanes in panels of f32, and rows are packed as f32 */
    NAPIER_ROUTE_CHAIN_DIRECT, /* the same, but rows are read in place */
    NAPIER_ROUTE_CHAIN_FEW, /* so few lanes that `panels` holds [k][width] (napier_few_block); rows are read in place */
    NAPIER_ROUTE_PAIRS,     /* in the order of bf16 by bf16, as are all that follow: the same three ... */
    NAPIER_ROUTE_PAIRS_DIRECT,
    NAPIER_ROUTE_PAIRS_FEW,
    NAPIER_ROUTE_PAIRS_ONE, /* ... and one lane, by one row after the other */
    NAPIER_ROUTE_DOT,       /* with vdpbf16ps (ops/linear/bf16_pairs.h): panels hold bf16 */
    NAPIER_ROUTE_DOT_FEW,
    NAPIER_ROUTE_DOT_ONE,
    NAPIER_ROUTE_TILES /* on the matrix engine (ops/linear/amx.h): panels hold bf16 */
} napier_product_route;

typedef struct napier_product_sides {
    const napier_context *context; /* may stop the work */
    const napier_product_kernels *kernels;
    const napier_core_kernels *core;
    napier_const_matrix lanes, rows; /* [lanes, k], [rows, k] */
    const napier_blocks *blocks;     /* NULL, or what the rows, f32, are stored as; rows.data is the same pointer */
    bool split; /* each lane is three lanes of bf16, its pieces, whose products are added up; never by one chain */
    napier_product_route route;
    int64_t panel_step; /* floats of a panel for one k */
    int64_t k_block;    /* size of a block of k; larger if rows are read in place */
    int64_t lane_block; /* lanes that a worker takes at a time: panels of up to 512 KB for a block of k */
    int64_t c_step;     /* floats from one row of a strip's products to the next */
    int64_t sum_step;   /* the same before the pieces' products are added up */
    int64_t k;          /* rounded up; with pairs to a multiple of 32 */
    float *panels;      /* of lanes first_lane .. first_lane + lane_count - 1; the caller's memory */
    int64_t first_lane, lane_count;
} napier_product_sides;

static inline bool napier_is_pairs(const napier_product_sides *sides) { return sides->route >= NAPIER_ROUTE_PAIRS; }
static inline bool napier_is_few(const napier_product_sides *sides) {
    const napier_product_route r = sides->route;
    return r == NAPIER_ROUTE_CHAIN_FEW || r == NAPIER_ROUTE_PAIRS_FEW || r == NAPIER_ROUTE_PAIRS_ONE ||
           r == NAPIER_ROUTE_DOT_FEW || r == NAPIER_ROUTE_DOT_ONE;
}
/* True if panels hold bf16. */
static inline bool napier_is_narrow(const napier_product_sides *sides) {
    return sides->route == NAPIER_ROUTE_DOT || sides->route == NAPIER_ROUTE_TILES;
}

/* split: rows are bf16, and lanes are split unless they are bf16 too (napier_matmul_split).
 * The context must have decided how it multiplies bf16 (ops/linear/engine.h). */
napier_product_sides napier_product_sides_of(const napier_context *context, napier_const_matrix lanes,
                                             napier_const_matrix rows, bool split);

/* The sums that so many lanes have in panels: those of split lanes are pieces 0, 1 and 2 of the first 16 lanes, then of
 * the next 16. */
static inline int64_t napier_sums_of(const napier_product_sides *sides, int64_t lanes) {
    return sides->split ? NAPIER_PIECES * napier_round_up(lanes, NAPIER_PIECE_LANES) : lanes;
}

/* For the matrix engine: `cols` k of 16 lanes or fewer as pairs (ops/linear/amx.h), filled up with +0. */
void napier_product_pack_group(const napier_core_kernels *core, const napier_const_matrix *m, int64_t lane,
                               int64_t lanes, int64_t k, int64_t cols, uint32_t *out);
/* Floats of the panels of so many lanes; 0 if the size overflows. */
size_t napier_panel_floats(const napier_product_sides *sides, int64_t lanes);
/* Packs `count` lanes from `first` on into sides->panels, with the context's threads. */
void napier_pack_lanes(const napier_context *context, napier_product_sides *sides, int64_t first, int64_t count);

/* Packs few lanes as napier_few_block.lane_data, filled up with 0 to k and to the width. Up to 16 floats after them are
 * overwritten. */
void napier_pack_few(const napier_core_kernels *core, const napier_const_matrix *lanes, int64_t first, int64_t count,
                     bool flush, int64_t k, float *out);

/* Floats of scratch for a strip of so many rows. */
static inline size_t napier_product_scratch(int64_t rows) {
    return NAPIER_ROW_GROUP * NAPIER_ROW_STEP + (size_t)rows * NAPIER_STRIP_STEP;
}

static inline int64_t napier_lane_blocks(const napier_product_sides *sides) {
    return (sides->lane_count + sides->lane_block - 1) / sides->lane_block;
}
/* The number of lanes in block `block` of those that are packed. */
static inline int64_t napier_block_lanes(const napier_product_sides *sides, int64_t block) {
    const int64_t left = sides->lane_count - block * sides->lane_block;
    return left < sides->lane_block ? left : sides->lane_block;
}

/* Multiplies `rows` rows, from `row` on, with a block of lanes. Returns the result, which is in scratch: lane l of row
 * r is at result[r * sides->c_step + l]. */
const float *napier_product_strip(const napier_product_sides *sides, int64_t block, int64_t row, int64_t rows,
                                  float *scratch);

/* Writes such a result for few lanes, or one made of such results, to rows row .. row + rows - 1 of out [rows, lanes]. */
void napier_product_write(const napier_product_sides *sides, const float *result, int64_t row, int64_t rows,
                          napier_matrix out);

/* products[i] = sum_k lanes[lane[i]][k] * rows[row[i]][k] for i < count <= NAPIER_LANES: single elements of the
 * product, with the same bits. NaN is the canonical one. scratch: napier_product_scratch(NAPIER_LANE_BLOCK) floats. */
void napier_product_ones(const napier_product_sides *sides, const int64_t *lane, const int64_t *row, int count,
                         float *scratch, float products[NAPIER_LANES]);

/* Floats of a lane in panels. */
static inline int64_t napier_lane_floats(const napier_product_sides *sides) {
    return sides->k * (sides->split ? NAPIER_PIECES : 1);
}

/* A whole product to `out` [rows, lanes]. add: out is f32 and already holds the sums over earlier k; not if split. */
typedef struct napier_product_plan {
    napier_product_sides sides;
    napier_matrix out;
    bool add;
    int64_t row_block; /* rows of a unit of work */
    int64_t lanes;     /* packed at a time */
    bool stream;
    float *scratch; /* of each worker */
} napier_product_plan;

/* A unit of work: a block of lanes by plan->row_block rows from `row` on, or by the remaining rows. */
typedef struct napier_product_unit {
    int64_t block, row;
} napier_product_unit;
/* The number of units for the lanes that are packed, and the unit with a given number. */
int64_t napier_product_units(const napier_product_plan *plan);
napier_product_unit napier_product_unit_of(const napier_product_plan *plan, int64_t unit);

napier_product_plan napier_product_plan_of(const napier_context *context, napier_const_matrix lanes,
                                           napier_const_matrix rows, napier_matrix out, bool split, bool add);
/* Floats of memory that the plan needs; 0 if the size overflows. */
size_t napier_product_floats(const napier_context *context, const napier_product_plan *plan);
void napier_product_run(const napier_context *context, napier_product_plan *plan, float *memory);

/* ---- Several products of the same lanes --------------------------------------------------------------------------
 * Plans whose lanes have one shape and dtype, and whose rows agree in dtype and in lying along k, pack alike. Where
 * plan->lanes is no less than the lanes there are, one may run on what another has packed, or on panels that were
 * made in place. */

/* Where panel `panel` of a block of lanes begins at k, a multiple of sides->k_block: [k][NAPIER_LANES], unless the
 * engine uses it. In the order of pairs k is filled up with +0 to sides->k. Lanes beyond the last 16 that are used may
 * have any values. */
float *napier_panel_at(const napier_product_sides *sides, int64_t block, int64_t panel, int64_t k);
/* Writes values [lanes of the block] to the panels of a block at k: bf16, or f32 if the lanes are split. */
void napier_panel_write_row(const napier_product_sides *sides, int64_t block, int64_t k, const void *values);
bool napier_product_packs_alike(const napier_product_plan *a, const napier_product_plan *b);
/* scratch: context->threads times napier_product_scratch(plan->row_block) floats. */
void napier_product_run_packed(const napier_context *context, napier_product_plan *plan, float *panels, float *scratch);

/* ---- Few lanes: all rows in stretches, one for a thread at a time ------------------------------------------------- */

typedef struct napier_product_stretch {
    int64_t begin, end; /* rows */
} napier_product_stretch;
/* count: of rows such as `rows`, which may be those of several products. */
int64_t napier_product_stretches(const napier_context *context, const napier_const_matrix *rows, int64_t count);
napier_product_stretch napier_product_stretch_of(const napier_context *context, const napier_const_matrix *rows,
                                                 int64_t count, int64_t index);

/* Runs plans with few lanes that pack alike, together, on panels that one of them has packed. scratch: for each thread
 * napier_product_scratch of the largest row_block. */
void napier_product_run_few(const napier_context *context, napier_product_plan *plans, int count, float *panels,
                            float *scratch);

#endif
