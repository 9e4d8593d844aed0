/* ops/linear/strips.c - see ops/linear/strips.h. */
#include "ops/linear/strips.h"

#include "core/base/parallel.h"
#include "core/base/sizes.h"
#include "core/base/stop.h"
#include "ops/isa/ops_kernels.h"
#include "ops/linear/amx.h"
#include "ops/linear/engine.h"
#include "ops/linear/product.h"

enum { SQUARE = 2 * NAPIER_ENGINE_LANES, SOME_ROWS = 512 };

/* Strips of almost the same size, as many for each thread: 512 KB, those of two products together, which leave space in the
 * second-level cache, 2 MB where there is an engine, for the rows that pass. Of a long k there is one block after the other;
 * then the sums of a unit's rows lie there too. More rows than that cache holds pass less often by strips of 1 MB. If strips
 * are few, the rows are divided as well. */
static napier_strips strips_of(const napier_context *context, napier_const_matrix a, napier_const_matrix b,
                               int products) {
    enum { STRIP_BYTES = 512 << 10, LONG_K = 2048, BLOCK = 1024, LEAST = 128 };
    enum { FEW_ROWS = 80, PART_ROWS = 256, PART_ROWS_MOST = 512 };
    napier_strips s = {.context = context, .a = a, .b = b, .products = products};
    const int64_t element = sizeof(uint16_t), k = napier_round_up(a.cols, NAPIER_PAIRS_BLOCK);
    if (a.dtype != NAPIER_BF16 || b.dtype != NAPIER_BF16 || context->engine < NAPIER_ENGINE_AMX ||
        (a.col_stride != 1 && a.row_stride != 1) || a.rows <= FEW_ROWS || k == 0 ||
        k > NAPIER_PANEL_BYTES_MOST / element / SQUARE) {
        return s;
    }
    s.core = napier_ops_kernels_of(context->isa)->core;
    s.k = k;
    s.k_block = k <= BLOCK || (a.rows > SOME_ROWS && k <= LONG_K) ? k : BLOCK;
    const int64_t strip_bytes = a.rows > SOME_ROWS && s.k_block == k ? 2 * STRIP_BYTES : STRIP_BYTES;
    const int64_t most = strip_bytes / element / products / s.k_block / SQUARE * SQUARE;
    const int64_t strips = napier_round_up((b.rows + most - 1) / most, context->threads);
    const int64_t fair = napier_round_up((b.rows + strips - 1) / strips, SQUARE);
    s.width = fair < LEAST ? LEAST : fair;
    s.some_rows =
        napier_least(napier_round_up(a.rows, SQUARE), NAPIER_PANEL_BYTES_MOST / element / k / SQUARE * SQUARE);
    const int64_t units = (b.rows + s.width - 1) / s.width, wanted = (context->threads + units - 1) / units;
    const int64_t parts = napier_least(wanted, (a.rows + PART_ROWS - 1) / PART_ROWS);
    const int64_t least = s.k_block < k ? (s.some_rows + PART_ROWS_MOST - 1) / PART_ROWS_MOST : 1;
    s.parts = parts < least ? least : parts;
    return s;
}

napier_strips napier_strips_of(const napier_context *context, napier_const_matrix a, napier_const_matrix b,
                               napier_matrix out) {
    enum { STREAM_BYTES = 4 << 20 };
    napier_strips s = strips_of(context, a, b, 1);
    s.out = out;
    s.stream = out.rows * out.cols >= STREAM_BYTES / (int64_t)napier_dtype_size(out.dtype);
    return s;
}

napier_strips napier_strips_of_two(const napier_context *context, napier_const_matrix a, napier_const_matrix b,
                                   napier_const_matrix also) {
    napier_strips s = strips_of(context, a, b, 2);
    s.also = also;
    s.width = also.dtype == NAPIER_BF16 ? s.width : 0;
    return s;
}

/* A worker's sums, of one panel of 32 rows or of all those of a unit, and its strip; of each product. */
static int64_t panel_floats(const napier_strips *s) { return SQUARE * (s->width + NAPIER_ENGINE_LANES); }
static int64_t sums_of(const napier_strips *s) {
    return (s->k_block < s->k ? (s->some_rows / SQUARE + s->parts - 1) / s->parts : 1) * panel_floats(s);
}
static int64_t strip_floats(const napier_strips *s) { return s->width * s->k_block / 2; }
static int64_t scratch_of(const napier_strips *s) {
    return s->products * (sums_of(s) + strip_floats(s)) + 2 * SQUARE * SQUARE;
}

size_t napier_strips_floats(const napier_strips *s) {
    return (size_t)(s->some_rows * s->k / 2 + s->context->threads * scratch_of(s));
}

/* A tile of 16 rows, from `row` on, by 32 k. The rows are neighbours in memory: their pairs of k are packed as lanes, and turned. */
static void pack_tile_across(const napier_strips *s, int64_t row, int64_t k, uint16_t *tile) {
    enum { ROWS = NAPIER_ENGINE_LANES, PAIRS = NAPIER_PAIRS_BLOCK / 2 };
    const int64_t left = s->first_row + s->row_count - row, rows = left < 0 ? 0 : napier_least(left, ROWS);
    uint32_t pairs[PAIRS * ROWS];
    if (rows == ROWS && k + NAPIER_PAIRS_BLOCK <= s->a.cols) {
        napier_engine_pack_neighbours((const uint16_t *)s->a.data + row + k * s->a.col_stride, s->a.col_stride, 1,
                                      PAIRS, pairs, 0);
    } else {
        napier_engine_pack_lanes(&s->a, row, rows, k, napier_least(s->a.cols - k, NAPIER_PAIRS_BLOCK),
                                 NAPIER_PAIRS_BLOCK, pairs);
    }
    const napier_const_matrix turned = {pairs, ROWS, PAIRS, 1, ROWS, NAPIER_F32};
    s->core->pack(&turned, 0, ROWS, 0, PAIRS, false, (float *)(void *)tile, PAIRS, PAIRS);
}

static void pack_panel_across(const napier_strips *s, int64_t row, uint16_t *tiles) {
    enum { TILE = NAPIER_ENGINE_LANES * NAPIER_PAIRS_BLOCK };
    for (int64_t k = 0; k < s->k; k += NAPIER_PAIRS_BLOCK, tiles += 2 * TILE) {
        pack_tile_across(s, row, k, tiles);
        pack_tile_across(s, row + NAPIER_ENGINE_LANES, k, tiles + TILE);
    }
}

static void pack_panel_along(const napier_strips *s, int64_t row, uint16_t *tiles) {
    const napier_engine_block b = {.rows = (const uint16_t *)s->a.data + row * s->a.row_stride,
                                   .row_count = napier_least(s->first_row + s->row_count - row, SQUARE),
                                   .row_step = s->a.row_stride,
                                   .cols = s->a.cols,
                                   .k = s->k};
    napier_engine_pack_tiles(&b, tiles);
}

static void pack_tiles(void *argument, int worker, int64_t begin, int64_t end) {
    const napier_strips *s = argument;
    (void)worker;
    for (int64_t i = s->in_place / SQUARE + begin; i < s->in_place / SQUARE + end; i++) {
        (s->a.col_stride == 1 ? pack_panel_along : pack_panel_across)(s, s->first_row + i * SQUARE,
                                                                      s->tiles + i * SQUARE * s->k);
    }
}

/* Packs `cols` k, from k on, of a strip of b. */
static void pack_strip(const napier_strips *s, const napier_const_matrix *b, int64_t column, int64_t k, int64_t cols,
                       uint32_t *strip) {
    enum { LANES = NAPIER_ENGINE_LANES };
    const int64_t columns = napier_least(b->rows - column, s->width), end = napier_round_up(columns, SQUARE);
    int64_t neighbours = 0, whole = 0;
    if (b->row_stride == 1) {
        neighbours = columns / LANES * LANES;
        whole = napier_least(b->cols - k, cols) / NAPIER_PAIRS_BLOCK * NAPIER_PAIRS_BLOCK;
        napier_engine_pack_neighbours((const uint16_t *)b->data + column + k * b->col_stride, b->col_stride,
                                      neighbours / LANES, whole / 2, strip, LANES * cols / 2);
    }
    for (int64_t c = whole < cols ? 0 : neighbours; c < end; c += LANES) {
        const int64_t first = c < neighbours ? whole : 0, left = columns - c;
        napier_product_pack_group(s->core, b, column + c, left < 0 ? 0 : napier_least(left, LANES), k + first,
                                  cols - first, strip + (c * cols + first * LANES) / 2);
    }
}

/* Writes a panel of results that do not lie side by side. */
static void write(const napier_strips *s, const napier_engine_strip *e, int64_t row, int64_t column) {
    if (s->taker) {
        s->taker(s->argument, e->c, s->products > 1 ? e->c + sums_of(s) : NULL, e->c_step, row, e->row_count, column,
                 e->lane_count);
    } else {
        s->core->unpack(e->c, e->c_step, e->row_count, e->lane_count, s->out, row, column, s->stream);
    }
}

/* Where the engine writes a panel's results by itself. */
static napier_engine_out out_at(const napier_strips *s, int64_t row, int64_t column) {
    napier_engine_out out = {.step = s->out.row_stride, .wide = s->out.dtype == NAPIER_F32, .stream = s->stream};
    if (!s->taker && s->out.dtype != NAPIER_F16 && s->out.col_stride == 1) {
        out.data = (char *)s->out.data + (row * out.step + column) * (int64_t)napier_dtype_size(s->out.dtype);
    }
    return out;
}

static bool is_in_place(const napier_strips *s, int64_t panel) { return panel * SQUARE < s->in_place; }

/* The panel's rows, from k on. */
static const uint16_t *rows_at(const napier_strips *s, int64_t panel, int64_t k) {
    const int64_t row = panel * SQUARE;
    return is_in_place(s, panel) ? (const uint16_t *)s->a.data + (s->first_row + row) * s->a.row_stride + k
                                 : s->tiles + row * s->k + k * SQUARE;
}

/* One panel; row and column of its first result. ends: these are the last k. */
static void multiply_panel(const napier_strips *s, napier_engine_strip *e, int64_t row, int64_t column, bool ends) {
    if (ends) {
        e->out = out_at(s, row, column);
    }
    napier_engine_multiply_strip(e);
    if (s->products > 1) {
        napier_engine_strip other = *e;
        other.next = NULL;
        other.c += sums_of(s);
        other.lanes += strip_floats(s);
        napier_engine_multiply_strip(&other);
    }
    if (ends && !e->out.data) {
        write(s, e, row, column);
    }
}

/* A strip of columns and a part of the rows, from k on. Every second one meets the rows in the opposite order, so that it begins
 * with those that the second-level cache still holds. Few rows all stay there. */
static void multiply_block(const napier_strips *s, int64_t unit, int64_t k, float *sums) {
    enum { STAYING_BYTES = 512 << 10 };
    const int64_t column = unit / s->parts * s->width, part = unit % s->parts;
    const int64_t panels = (s->row_count + SQUARE - 1) / SQUARE;
    const int64_t first = panels * part / s->parts, last = panels * (part + 1) / s->parts - 1;
    const bool back = (unit / s->parts + k / s->k_block) % 2 == 1;
    const bool stay = s->row_count * s->k * (int64_t)sizeof(uint16_t) <= STAYING_BYTES;
    uint32_t *const strip = (uint32_t *)(void *)(sums + s->products * sums_of(s));
    napier_engine_square square = {.sums = (float *)(void *)(strip + s->products * strip_floats(s))};
    napier_engine_strip e = {.lanes = strip,
                             .lane_count = napier_least(s->b.rows - column, s->width),
                             .k = napier_least(s->k - k, s->k_block),
                             .c_step = s->width + NAPIER_ENGINE_LANES,
                             .first = k == 0,
                             .last = &square};
    pack_strip(s, &s->b, column, k, e.k, strip);
    if (s->products > 1) {
        pack_strip(s, &s->also, column, k, e.k, strip + strip_floats(s));
    }
    napier_engine_begin();
    for (int64_t i = first; i <= last && napier_goes_on(s->context); i++) {
        const int64_t panel = back ? first + last - i : i, next = back ? panel - 1 : panel + 1;
        const int64_t row = s->first_row + panel * SQUARE;
        e.rows = rows_at(s, panel, k);
        e.row_step = is_in_place(s, panel) ? s->a.row_stride : 0;
        e.next = stay || i == last || is_in_place(s, next) != is_in_place(s, panel) ? NULL : rows_at(s, next, k);
        e.row_count = napier_least(s->first_row + s->row_count - row, SQUARE);
        e.c = sums + (s->k_block < s->k ? (panel - first) * panel_floats(s) : 0);
        multiply_panel(s, &e, row, column, k + e.k == s->k);
    }
    napier_engine_write_square(&square);
    napier_engine_end();
}

static void multiply_units(void *argument, int worker, int64_t begin, int64_t end) {
    const napier_strips *s = argument;
    for (int64_t i = begin; i < end; i++) {
        for (int64_t k = 0; k < s->k && napier_goes_on(s->context); k += s->k_block) {
            multiply_block(s, i, k, s->scratch + worker * scratch_of(s));
        }
    }
}

/* How many rows are read in place. For few columns and rows packing takes longer than it gains. The rows must be whole lines, and
 * must not all map to the same sets of the caches. */
static int64_t rows_in_place(const napier_strips *s) {
    enum { FEW_COLUMNS = 1024, LINE = 64, SETS_BYTES = 4096 };
    const uintptr_t bytes = (uintptr_t)s->a.row_stride * sizeof(uint16_t);
    const bool are_lines = s->a.cols == s->k && (uintptr_t)s->a.data % LINE == 0 && bytes % LINE == 0;
    const bool spread = s->a.col_stride == 1 && s->a.row_stride >= s->k && bytes % SETS_BYTES != 0;
    const bool fits = are_lines && spread && s->b.rows <= FEW_COLUMNS && s->a.rows <= SOME_ROWS;
    return fits ? s->row_count / SQUARE * SQUARE : 0;
}

void napier_strips_run(napier_strips *s, float *memory) {
    s->scratch = memory;
    s->tiles = (uint16_t *)(void *)(memory + s->context->threads * scratch_of(s));
    for (s->first_row = 0; s->first_row < s->a.rows; s->first_row += s->some_rows) {
        s->row_count = napier_least(s->a.rows - s->first_row, s->some_rows);
        s->in_place = rows_in_place(s);
        napier_parallel(s->context, (s->row_count - s->in_place + SQUARE - 1) / SQUARE, 1, pack_tiles, s);
        napier_parallel(s->context, (s->b.rows + s->width - 1) / s->width * s->parts, 1, multiply_units, s);
    }
}
