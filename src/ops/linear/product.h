/* ops/linear/product.h - a matrix product in blocks: what napier_matmul and the head of a language model share.
 *
 * The side of the lanes is packed once, as panels, all threads together. A worker takes a range of panels that its
 * second cache holds and passes rows by them. Rows that lie along k, as weights [n, k] do, are used where they are:
 * so weights are best as rows, and activations, few or many, as lanes. Other rows are packed by whoever needs them,
 * 48 rows and 256 k at a time. */
#ifndef NAPIER_OPS_LINEAR_PRODUCT_H
#define NAPIER_OPS_LINEAR_PRODUCT_H

#include "core/base/parallel.h"
#include "ops/isa/ops_kernels.h"

enum {
    NAPIER_LANE_BLOCK = 256,           /* most lanes that a worker takes at a time */
    NAPIER_PANEL_BYTES_MOST = 32 << 20 /* panels of at most so many bytes at a time, or one block of lanes */
};

/* A broadcast view may claim any k. Beyond this nothing can be packed, and sizes below need no care. */
#define NAPIER_K_MOST (INT64_C(1) << 40)

/* The arguments of napier_matmul, with napier_begin: nothing in the matrices is read. */
napier_status napier_matmul_check(napier_context *context, napier_const_matrix a, napier_const_matrix b,
                                  napier_matrix product);

typedef struct napier_product_sides {
    const napier_product_kernels *kernels;
    napier_const_matrix lanes, rows; /* [lanes, k], [rows, k] */
    bool pairs;                      /* in the order of bf16 by bf16 */
    void (*multiply)(const napier_product_block *block);
    bool few;           /* so few lanes that rows are not packed; "panels" are then rows along k */
    bool direct;        /* rows are not packed, and go by more k at a time */
    int64_t k_block;    /* k of a panel at a time */
    int64_t lane_block; /* lanes that a worker takes at a time: panels of up to 512 KB, a block of k */
    int64_t c_step;     /* floats from one row of a strip's products to the next */
    int64_t k;          /* filled up: in pairs to a multiple of 32 */
    float *panels;      /* of lanes first_lane .. first_lane + lane_count - 1; the caller's memory */
    int64_t first_lane, lane_count;
} napier_product_sides;

/* The context's matrix engine has been decided about (ops/linear/amx.h), or is not used. */
napier_product_sides napier_product_sides_of(const napier_context *context, napier_const_matrix lanes,
                                             napier_const_matrix rows);

/* How many lanes are packed at a time: whole blocks of them. */
int64_t napier_lanes_at_a_time(const napier_product_sides *sides);
/* Floats of panels for so many lanes; 0 if that does not fit. */
size_t napier_panel_floats(const napier_product_sides *sides, int64_t lanes);
/* Packs `count` lanes from `first` on into sides->panels, with the context's threads. */
void napier_pack_lanes(const napier_context *context, napier_product_sides *sides, int64_t first, int64_t count);

/* Floats of scratch for a strip of so many rows. */
static inline size_t napier_product_scratch(int64_t rows) {
    return NAPIER_ROW_GROUP * NAPIER_ROW_STEP + (size_t)rows * NAPIER_LANE_BLOCK;
}

static inline int64_t napier_lane_blocks(const napier_product_sides *sides) {
    return (sides->lane_count + sides->lane_block - 1) / sides->lane_block;
}
/* Lanes in block `block` of those that are packed. */
static inline int64_t napier_block_lanes(const napier_product_sides *sides, int64_t block) {
    const int64_t left = sides->lane_count - block * sides->lane_block;
    return left < sides->lane_block ? left : sides->lane_block;
}

/* The products of `rows` rows, from `row` on, with a block of lanes: lane l of row r at
 * result[r * sides->c_step + l]. Returns that result, which lies in scratch. */
const float *napier_product_strip(const napier_product_sides *sides, int64_t block, int64_t row, int64_t rows,
                                  float *scratch);

/* products[i] = sum_k lanes[lane[i]][k] * rows[row[i]][k] for i < count <= NAPIER_LANES: the same bits, one by one.
 * NaN is the canonical one. scratch: napier_product_scratch(NAPIER_LANE_BLOCK) floats. */
void napier_product_ones(const napier_product_sides *sides, const int64_t *lane, const int64_t *row, int count,
                         float *scratch, float products[NAPIER_LANES]);

/* A whole product to `out` [rows, lanes]. add: out is f32 and holds the sums of the k before these. */
typedef struct napier_product_plan {
    napier_product_sides sides;
    napier_matrix out;
    bool add;
    int64_t row_block; /* rows of a unit of work */
    int64_t lanes;     /* packed at a time */
    bool stream;
    float *scratch; /* of each worker */
} napier_product_plan;

/* A unit of its work: a block of lanes by plan->row_block rows from `row` on, or what is left of them. */
typedef struct napier_product_unit {
    int64_t block, row;
} napier_product_unit;
/* How many there are for the lanes that are packed, and which comes when. */
int64_t napier_product_units(const napier_product_plan *plan);
napier_product_unit napier_product_unit_of(const napier_product_plan *plan, int64_t unit);

napier_product_plan napier_product_plan_of(const napier_context *context, napier_const_matrix lanes,
                                           napier_const_matrix rows, napier_matrix out, bool add);
/* Floats of memory that it needs; 0 if that does not fit. */
size_t napier_product_floats(const napier_context *context, const napier_product_plan *plan);
void napier_product_run(const napier_context *context, napier_product_plan *plan, float *memory);

/* ---- Several products of the same lanes --------------------------------------------------------------------------
 * Plans whose lanes have one shape and dtype, and whose rows agree in dtype and in lying along k, pack alike. Where
 * plan->lanes is no less than the lanes there are, one may run on what another has packed, or on panels that were
 * made in place. */

/* Where panel `panel` of a block of lanes begins at k, a multiple of sides->k_block: [k][NAPIER_LANES], k filled up
 * with +0 to sides->k where the order is that of pairs. Lanes beyond the last 16 that are used may hold anything. */
float *napier_panel_at(const napier_product_sides *sides, int64_t block, int64_t panel, int64_t k);
bool napier_product_packs_alike(const napier_product_plan *a, const napier_product_plan *b);
/* scratch: context->threads times napier_product_scratch(plan->row_block) floats. */
void napier_product_run_packed(const napier_context *context, napier_product_plan *plan, float *panels, float *scratch);

#endif
