/* softmax/lanes.inc.h - 16 rows in the 16 lanes of one vector: for rows of a few columns (after a transpose) and for rows
 * that are columns in memory. Element i of the 16 rows is the vector at z + i * ld. Included by the kernels of one
 * instruction set, after softmax.inc.h; the same operations per row as there. */

/* What sixteen rows come to before they are finished. Rows that are not ordinary (a NaN, a maximum beyond 2^20 or
 * infinite) stand alone: they are done one by one. */
typedef struct napier_sixteen {
    vf max, min, rest, count;
    napier_maxima maxima;
    vm alone;
} napier_sixteen;

NAPIER_KERNEL void napier_sixteen_start(napier_sixteen *s, napier_range range) {
    const vf size = vf_from_bits(vi_and(vf_bits(range.max), vi_set(0x7fffffff)));
    s->alone = vm_or(napier_range_nan(range), vf_lt(vf_set(NAPIER_BIG), size));
    s->max = vf_select(s->alone, vf_zero(), range.max);
    s->min = vf_select(s->alone, vf_zero(), range.min);
    s->maxima = napier_maxima_of(s->max);
}

/* Every element of all 16 rows within `reach` of its row's maximum? */
NAPIER_KERNEL bool napier_sixteen_within(const napier_sixteen *s, float reach) {
    return vm_all(vf_ge(s->min, vf_sub(s->max, vf_set(reach))));
}

/* One element of each row: its term if it is below the maximum, else 0; as napier_terms16. */
NAPIER_KERNEL vf napier_sixteen_term(const napier_sixteen *s, vf z, bool cut, vi *below, vf *term) {
    *term = vf_exp_scaled(z, s->maxima.magic);
    if (cut) {
        *term = vf_keep(vf_ge(z, vf_sub(s->max, vf_set(NAPIER_CUTOFF))), *term);
    }
    const vi sign = vi_sar(vf_bits(vf_sub(z, s->max)), 31);
    *below = vi_add(*below, sign);
    return vf_from_bits(vi_and(vf_bits(*term), sign));
}

/* Rows that stand alone may have counted nonsense. */
NAPIER_KERNEL vf napier_sixteen_count(int n, vi below) {
    return vf_max(vf_add(vf_set((float)n), vf_from_int(below)), vf_set(1.0f));
}

NAPIER_KERNEL napier_writer napier_sixteen_writer(const napier_sixteen *s, const napier_finals *f, bool care) {
    napier_writer w = {s->max, f->log_sum, f->scale, f->max_prob, vf_zero(), vf_zero()};
    if (care) {
        w.scale_up = vf_mul(f->scale, vf_set(0x1p64f));
        w.smallest = vf_div(vf_set(0x1.fffffp-63f), w.scale_up);
    }
    return w;
}

/* A row on its own from contiguous z: its result into out[0 .. n) (or out[0] for logsumexp). */
static void napier_row_by_definition(napier_softmax_op op, napier_masked_rows masked, const float *z, int n,
                                     float *out) {
    napier_sum sum;
    napier_tile_sum t;
    napier_sum_init(&sum);
    napier_tile_by_definition(z, n, &t);
    napier_sum_add_tile(&sum, &t);
    const napier_final final = napier_sum_finish(&sum);
    if (op == NAPIER_OP_LOGSUMEXP) {
        out[0] = final.lse;
    } else {
        napier_write_by_definition(op, &final, masked, z, n, out);
    }
}

/* ---- Tiny rows: up to 16 columns ----------------------------------------------------------------------------------- */

/* 16 rows of n <= width columns, column i in v[i], which receives the results; width is a constant power of two.
 * care: some results may be subnormal or cut off. Returns the logsumexps, if that is the operation. */
NAPIER_KERNEL vf napier_tiny_sixteen(napier_softmax_op op, int width, int n, bool care, const napier_sixteen *s,
                                     vf *v) {
    vf acc[NAPIER_TINY_COLS], term[NAPIER_TINY_COLS];
    vi below = vi_set(0);
    NAPIER_UNROLL
    for (int i = 0; i < width; i++) {
        acc[i] = term[i] = vf_zero();
        if (i < n) {
            acc[i] = napier_sixteen_term(s, v[i], care, &below, &term[i]);
        }
    }
    NAPIER_UNROLL
    for (int half = 8; half > 0; half /= 2) {
        NAPIER_UNROLL
        for (int i = 0; i < half; i++) {
            if (i + half < width) {
                acc[i] = vf_add(acc[i], acc[i + half]);
            }
        }
    }
    const napier_finals f = napier_finish16(op, s->max, s->maxima.p, napier_sixteen_count(n, below), acc[0]);
    if (op != NAPIER_OP_LOGSUMEXP) {
        const napier_writer w = napier_sixteen_writer(s, &f, care);
        NAPIER_UNROLL
        for (int i = 0; i < width; i++) {
            if (i < n) {
                v[i] = napier_result16(op, &w, op == NAPIER_OP_SOFTMAX ? term[i] : v[i], care);
            }
        }
    }
    return f.lse;
}

/* The rows among 16 that stand alone, from their z to their results, each by itself. */
static void napier_tiny_alone(napier_softmax_op op, napier_masked_rows masked, int n, vm alone, const vf *z,
                              vf *results, vf *lse) {
    float which[16], columns[NAPIER_TINY_COLS][16], out[NAPIER_TINY_COLS][16], sums[16];
    vf_store(which, vf_keep(alone, vf_set(1.0f)));
    vf_store(sums, *lse);
    for (int i = 0; i < n; i++) {
        vf_store(columns[i], z[i]);
        vf_store(out[i], results[i]);
    }
    for (int j = 0; j < 16; j++) {
        if (which[j] == 0.0f) {
            continue;
        }
        float row[NAPIER_TINY_COLS], result[NAPIER_TINY_COLS];
        for (int i = 0; i < n; i++) {
            row[i] = columns[i][j];
        }
        napier_row_by_definition(op, masked, row, n, result);
        sums[j] = result[0];
        for (int i = 0; i < n && op != NAPIER_OP_LOGSUMEXP; i++) {
            out[i][j] = result[i];
        }
    }
    *lse = vf_load(sums);
    for (int i = 0; i < n; i++) {
        results[i] = vf_load(out[i]);
    }
}

/* Sixteen rows of which some need care or stand alone. */
static vf napier_tiny_with_care(napier_softmax_op op, int n, napier_masked_rows masked, const napier_sixteen *s,
                                vf *v) {
    vf z[NAPIER_TINY_COLS];
    memcpy(z, v, (size_t)n * sizeof *v);
    vf lse = napier_tiny_sixteen(op, NAPIER_TINY_COLS, n, true, s, v);
    if (vm_any(s->alone)) {
        napier_tiny_alone(op, masked, n, s->alone, z, v, &lse);
    }
    return lse;
}

NAPIER_KERNEL vf napier_tiny_group(napier_softmax_op op, int width, int n, napier_masked_rows masked, vf *v) {
    napier_range range = napier_no_range();
    NAPIER_UNROLL
    for (int i = 0; i < width; i++) {
        if (i < n) {
            range = napier_range_add(range, v[i]);
        }
    }
    napier_sixteen s;
    napier_sixteen_start(&s, range);
    if (vm_any(s.alone) || !napier_sixteen_within(&s, 80.0f)) { /* exp(-80) / 16 is a normal number */
        return napier_tiny_with_care(op, n, masked, &s, v);
    }
    return napier_tiny_sixteen(op, width, n, false, &s, v);
}

/* Rows of n floats, `width` floats apart in 16 vectors; each store's tail is overwritten by the next row. */
NAPIER_KERNEL void napier_tiny_spread(const float *x, int n, int width, float *spread) {
    const int rows = 256 / width;
    for (int r = 0; r < rows; r++) {
        const int left = (rows - r) * n;
        vf_store(spread + r * width, left >= 16 ? vf_load(x + r * n) : vf_load_part(x + r * n, left, vf_zero()));
    }
}

/* 256 / width contiguous rows. A transpose of 16 x 16 floats puts element 16 j + k in lane j of vector k: lane j of
 * vectors g width .. g width + width - 1 is row j (16 / width) + g. scratch: NAPIER_ROWS_SCRATCH floats. */
NAPIER_KERNEL void napier_tiny_block(napier_softmax_op op, int width, const napier_softmax_job *job, int64_t first,
                                     float *scratch) {
    const int n = (int)job->x.cols, rows = 256 / width, groups = 16 / width;
    float *packed = scratch, *spread = scratch + 320;
    const float *x = (const float *)napier_row(job, first);
    if (job->x.dtype != NAPIER_F32 || job->temperature != 1.0f) {
        x = napier_look(x, job->x.dtype, 1, job->temperature, rows * n, packed).z;
    }
    if (n != width) {
        napier_tiny_spread(x, n, width, spread);
        x = spread;
    }
    vf v[16];
    NAPIER_UNROLL
    for (int k = 0; k < 16; k++) {
        __builtin_prefetch((const char *)(x + 16 * k) + NAPIER_PREFETCH_BYTES);
        v[k] = vf_load(x + 16 * k);
    }
    vf_transpose(v);
    for (int g = 0; g < groups; g++) {
        const vf lse = napier_tiny_group(op, width, n, job->masked_rows, v + g * width);
        if (op == NAPIER_OP_LOGSUMEXP) {
            vf_store(spread + 16 * g, lse);
        }
    }
    if (op == NAPIER_OP_LOGSUMEXP) {
        for (int g = 0; g < groups; g++) {
            for (int j = 0; j < 16; j++) {
                packed[j * groups + g] = spread[16 * g + j];
            }
        }
        napier_scatter(packed, rows, napier_row_out(job, first), job->y.dtype, job->y.row_stride, false);
        return;
    }
    vf_transpose(v);
    char *y = napier_row_out(job, first);
    const bool run = job->y.col_stride == 1 && job->y.row_stride == n;
    if (run && n == width && job->y.dtype == NAPIER_F32 && (!job->stream || ((uintptr_t)y & 63) == 0)) {
        NAPIER_UNROLL
        for (int k = 0; k < 16; k++) {
            if (job->stream) {
                vf_stream((float *)(void *)y + 16 * k, v[k]);
            } else {
                vf_store((float *)(void *)y + 16 * k, v[k]);
            }
        }
        return;
    }
    NAPIER_UNROLL
    for (int k = 0; k < 16; k++) {
        vf_store(spread + 16 * k, v[k]);
    }
    if (!run) {
        for (int r = 0; r < rows; r++) {
            napier_scatter(spread + r * width, n, napier_row_out(job, first + r), job->y.dtype, job->y.col_stride,
                           false);
        }
        return;
    }
    const float *result = spread;
    if (n != width) {
        for (int r = 0; r < rows; r++) {
            vf_store(packed + r * n, vf_load(spread + r * width));
        }
        result = packed;
    }
    napier_scatter(result, rows * n, y, job->y.dtype, 1, job->stream);
}

#define NAPIER_TINY_WIDTHS(op)                              \
    do {                                                    \
        if (n <= 2) {                                       \
            napier_tiny_block(op, 2, job, first, scratch);  \
        } else if (n <= 4) {                                \
            napier_tiny_block(op, 4, job, first, scratch);  \
        } else if (n <= 8) {                                \
            napier_tiny_block(op, 8, job, first, scratch);  \
        } else {                                            \
            napier_tiny_block(op, 16, job, first, scratch); \
        }                                                   \
    } while (0)

/* Rows of up to 16 contiguous columns, one after the other in memory; what does not fill a block goes the usual way. */
static void napier_tiny_rows(const napier_softmax_job *job, int64_t begin, int64_t end, float *scratch) {
    const int n = (int)job->x.cols;
    const int width = n <= 2 ? 2 : n <= 4 ? 4 : n <= 8 ? 8 : 16;
    int64_t first = begin;
    for (; first + 256 / width <= end; first += 256 / width) {
        switch (job->op) {
        case NAPIER_OP_SOFTMAX: NAPIER_TINY_WIDTHS(NAPIER_OP_SOFTMAX); break;
        case NAPIER_OP_LOG_SOFTMAX: NAPIER_TINY_WIDTHS(NAPIER_OP_LOG_SOFTMAX); break;
        default: NAPIER_TINY_WIDTHS(NAPIER_OP_LOGSUMEXP); break;
        }
    }
    napier_short_rows(job, first, end, scratch);
}

static void napier_short_or_tiny_rows(const napier_softmax_job *job, int64_t begin, int64_t end, float *scratch) {
    if (job->x.cols <= NAPIER_TINY_COLS && job->x.col_stride == 1 && job->x.row_stride == job->x.cols) {
        napier_tiny_rows(job, begin, end, scratch);
    } else {
        napier_short_rows(job, begin, end, scratch);
    }
    if (job->stream) {
        vf_stream_fence();
    }
}

/* ---- Columns: rows that are neighbours in memory ------------------------------------------------------------------- */

/* Elements [begin, begin + n) of `rows` neighbouring rows into z, element by element, NAPIER_STRIP floats apart. */
NAPIER_KERNEL void napier_pack_strip_as(const napier_softmax_job *job, napier_dtype dtype, int64_t row, int rows,
                                        int64_t begin, int n, float *z) {
    const bool divide = job->temperature != 1.0f;
    const vf t = vf_set(job->temperature);
    const char *x = (const char *)napier_at(job->x.data, dtype, row + begin * job->x.col_stride);
    const ptrdiff_t step = (const char *)napier_at(job->x.data, dtype, job->x.col_stride) - (const char *)job->x.data;
    for (int i = 0; i < n; i++, x += step, z += NAPIER_STRIP) {
        int r = 0;
        for (; r + 16 <= rows; r += 16) {
            const vf v = napier_load16(napier_at(x, dtype, r), dtype);
            vf_store(z + r, divide ? vf_div(v, t) : v);
        }
        if (r < rows) {
            const vf v = napier_load_part(napier_at(x, dtype, r), dtype, rows - r, vf_zero());
            vf_store(z + r, divide ? vf_div(v, t) : v);
        }
    }
}

static void napier_pack_strip(const napier_softmax_job *job, int64_t row, int rows, int64_t begin, int n, float *z) {
    switch (job->x.dtype) {
    case NAPIER_F32: napier_pack_strip_as(job, NAPIER_F32, row, rows, begin, n, z); break;
    case NAPIER_BF16: napier_pack_strip_as(job, NAPIER_BF16, row, rows, begin, n, z); break;
    default: napier_pack_strip_as(job, NAPIER_F16, row, rows, begin, n, z); break;
    }
}

static void napier_unpack_strip(const napier_softmax_job *job, int64_t row, int rows, int64_t begin, int n,
                                const float *z) {
    for (int i = 0; i < n; i++) {
        void *y = napier_at_out(job->y.data, job->y.dtype, row + (begin + i) * job->y.col_stride);
        napier_scatter(z + (int64_t)i * NAPIER_STRIP, rows, y, job->y.dtype, 1, job->stream);
    }
}

NAPIER_KERNEL napier_range napier_strip_range(const float *z, int n) {
    napier_range range = napier_no_range();
    for (int i = 0; i < n; i++) {
        range = napier_range_add(range, vf_load(z + i * NAPIER_STRIP));
    }
    return range;
}

/* rest and count of 16 rows; the terms go where z was, if they are kept. acc: 256 vectors. */
NAPIER_KERNEL void napier_strip_sum_as(napier_sixteen *s, float *z, int n, bool cut, bool keep, float *acc) {
    vi below = vi_set(0);
    vf term;
    for (int i = 0; i < n; i++) {
        float *at = z + i * NAPIER_STRIP, *lane = acc + 16 * (i % NAPIER_TILE_LANES);
        const vf t = napier_sixteen_term(s, vf_load(at), cut, &below, &term);
        vf_store(lane, i < NAPIER_TILE_LANES ? t : vf_add(vf_load(lane), t));
        if (keep) {
            vf_store(at, term);
        }
    }
    const int lanes = n < NAPIER_TILE_LANES ? n : NAPIER_TILE_LANES;
    for (int half = NAPIER_TILE_LANES / 2; half > 0; half /= 2) {
        for (int i = 0; i < half && i + half < lanes; i++) {
            vf_store(acc + 16 * i, vf_add(vf_load(acc + 16 * i), vf_load(acc + 16 * (i + half))));
        }
    }
    s->rest = vf_load(acc);
    s->count = napier_sixteen_count(n, below);
}

static void napier_strip_sum(napier_sixteen *s, float *z, int n, bool keep, float *acc) {
    if (!napier_sixteen_within(s, NAPIER_CUTOFF)) {
        if (keep) {
            napier_strip_sum_as(s, z, n, true, true, acc);
        } else {
            napier_strip_sum_as(s, z, n, true, false, acc);
        }
    } else if (keep) {
        napier_strip_sum_as(s, z, n, false, true, acc);
    } else {
        napier_strip_sum_as(s, z, n, false, false, acc);
    }
}

/* Results in place of the values: terms for softmax, z for log_softmax. */
NAPIER_KERNEL void napier_strip_results(napier_softmax_op op, const napier_writer *w, float *z, int n, bool care) {
    for (int i = 0; i < n; i++) {
        float *at = z + i * NAPIER_STRIP;
        vf_store(at, napier_result16(op, w, vf_load(at), care));
    }
}

/* Whole rows of up to one tile, 16 of them. Rows that stand alone are computed from the input again. */
NAPIER_KERNEL void napier_short_columns_group(napier_softmax_op op, const napier_softmax_job *job, int64_t row,
                                              int rows, float *z, float *acc) {
    const int n = (int)job->x.cols;
    napier_sixteen s;
    napier_sixteen_start(&s, napier_strip_range(z, n));
    napier_strip_sum(&s, z, n, op == NAPIER_OP_SOFTMAX, acc);
    const napier_finals f = napier_finish16(op, s.max, s.maxima.p, s.count, s.rest);
    float alone[16], lse[16];
    vf_store(alone, vf_keep(s.alone, vf_set(1.0f)));
    if (op == NAPIER_OP_LOGSUMEXP) {
        vf_store(lse, f.lse);
    } else if (op == NAPIER_OP_SOFTMAX && !napier_sixteen_within(&s, 80.0f)) {
        const napier_writer w = napier_sixteen_writer(&s, &f, true);
        napier_strip_results(op, &w, z, n, true);
    } else {
        const napier_writer w = napier_sixteen_writer(&s, &f, false);
        napier_strip_results(op, &w, z, n, false);
    }
    for (int r = 0; r < rows; r++) {
        if (alone[r] != 0.0f) {
            float line[NAPIER_TILE], result[NAPIER_TILE];
            const napier_looked looked = napier_look_row(job, row + r, 0, n, line);
            napier_row_by_definition(op, job->masked_rows, looked.z, n, result);
            if (op == NAPIER_OP_LOGSUMEXP) {
                lse[r] = result[0];
            } else {
                napier_scatter(result, n, z + r, NAPIER_F32, NAPIER_STRIP, false);
            }
        }
    }
    if (op == NAPIER_OP_LOGSUMEXP) {
        napier_scatter(lse, rows, napier_row_out(job, row), job->y.dtype, job->y.row_stride, false);
    }
}

static void napier_short_columns(const napier_softmax_job *job, int64_t begin, int64_t end, float *scratch) {
    const int n = (int)job->x.cols;
    float *z = scratch, *acc = scratch + NAPIER_STRIP * NAPIER_TILE;
    for (int64_t first = begin; first < end; first += NAPIER_STRIP) {
        const int rows = end - first < NAPIER_STRIP ? (int)(end - first) : NAPIER_STRIP;
        napier_pack_strip(job, first, rows, 0, n, z);
        for (int r = 0; r < rows; r += 16) {
            const int part = rows - r < 16 ? rows - r : 16;
            switch (job->op) {
            case NAPIER_OP_SOFTMAX:
                napier_short_columns_group(NAPIER_OP_SOFTMAX, job, first + r, part, z + r, acc);
                break;
            case NAPIER_OP_LOG_SOFTMAX:
                napier_short_columns_group(NAPIER_OP_LOG_SOFTMAX, job, first + r, part, z + r, acc);
                break;
            default: napier_short_columns_group(NAPIER_OP_LOGSUMEXP, job, first + r, part, z + r, acc); break;
            }
        }
        if (job->op != NAPIER_OP_LOGSUMEXP) {
            napier_unpack_strip(job, first, rows, 0, n, z);
        }
    }
    if (job->stream) {
        vf_stream_fence();
    }
}

/* One row of a strip as contiguous floats. */
static void napier_strip_line(const float *z, int n, float *line) {
    for (int i = 0; i < n; i++) {
        line[i] = z[i * NAPIER_STRIP];
    }
}

static void napier_sum_strip(const napier_softmax_job *job, int64_t row, int rows, int64_t begin, int64_t end,
                             napier_sum *sums, float *scratch) {
    float *z = scratch, *acc = scratch + NAPIER_STRIP * NAPIER_TILE;
    for (int64_t i = begin; i < end; i += NAPIER_TILE) {
        const int n = napier_tile_at(i, end);
        napier_pack_strip(job, row, rows, i, n, z);
        for (int r = 0; r < rows; r += 16) {
            const napier_range range = napier_strip_range(z + r, n);
            napier_sixteen s;
            napier_sixteen_start(&s, range);
            napier_strip_sum(&s, z + r, n, false, acc);
            float alone[16], max[16], min[16], rest[16], count[16];
            vf_store(alone, vf_keep(s.alone, vf_set(1.0f)));
            vf_store(max, s.max);
            vf_store(min, s.min);
            vf_store(rest, s.rest);
            vf_store(count, s.count);
            for (int j = 0; j < 16 && r + j < rows; j++) {
                napier_tile_sum t = {max[j], min[j], rest[j], (int32_t)count[j], false};
                if (alone[j] != 0.0f) {
                    float line[NAPIER_TILE];
                    napier_strip_line(z + r + j, n, line);
                    napier_tile_by_definition(line, n, &t);
                }
                napier_sum_add_tile(&sums[r + j], &t);
            }
        }
    }
}

/* Results of one tile of 16 rows in place of its z. */
NAPIER_KERNEL void napier_write_sixteen(napier_softmax_op op, const napier_final *finals, int rows,
                                        napier_masked_rows masked, float *z, int n) {
    float max[16] = {0}, log_sum[16] = {0}, scale[16], max_prob[16] = {0}, magic[16];
    bool alone[16] = {false};
    bool any = false;
    for (int j = 0; j < 16; j++) {
        const napier_final *f = &finals[j < rows ? j : 0];
        alone[j] = j < rows && (f->kind != NAPIER_ROW_FINITE || napier_is_big(f->max) || f->factor != 1.0f);
        any |= alone[j];
        const bool use = j < rows && !alone[j];
        max[j] = use ? f->max : 0.0f;
        log_sum[j] = use ? f->log_sum : 0.0f;
        scale[j] = use ? f->scale : 0x1p-64f;
        max_prob[j] = use ? f->max_prob : 1.0f;
        magic[j] = napier_term_magic(use ? f->exponent : 0);
    }
    float line[NAPIER_TILE];
    napier_sixteen s = {.max = vf_load(max), .maxima = {vf_zero(), vf_load(magic)}};
    const napier_finals f = {vf_zero(), vf_load(log_sum), vf_load(max_prob), vf_load(scale)};
    const napier_writer w = napier_sixteen_writer(&s, &f, true);
    for (int j = 0; any && j < rows; j++) { /* their results wait in the strip's own lane, as nothing else reads it */
        if (alone[j]) {
            napier_strip_line(z + j, n, line);
            if (finals[j].kind != NAPIER_ROW_FINITE || napier_is_big(finals[j].max)) {
                napier_write_by_definition(op, &finals[j], masked, line, n, line);
            } else {
                for (int i = 0; i < n; i++) {
                    line[i] = napier_softmax_of(&finals[j], line[i]);
                }
            }
            for (int i = 0; i < n; i++) {
                const float v = finals[j].factor != 1.0f ? line[i] * finals[j].factor : line[i];
                z[i * NAPIER_STRIP + j] = v != v ? napier_float_of_bits(0x7fc00000u) : v;
            }
        }
    }
    float keep[16];
    for (int j = 0; j < 16; j++) {
        keep[j] = alone[j] ? 1.0f : 0.0f;
    }
    const vm done = vf_gt(vf_load(keep), vf_zero());
    const vf cutoff = vf_sub(s.max, vf_set(NAPIER_CUTOFF));
    for (int i = 0; i < n; i++) {
        float *at = z + i * NAPIER_STRIP;
        const vf v = vf_load(at);
        vf value = v;
        if (op == NAPIER_OP_SOFTMAX) {
            value = vf_keep(vf_ge(v, cutoff), vf_exp_scaled(v, s.maxima.magic));
        }
        vf_store(at, vf_select(done, v, napier_result16(op, &w, value, true)));
    }
}

static void napier_write_strip(const napier_softmax_job *job, int64_t row, int rows, int64_t begin, int64_t end,
                               const napier_final *finals, float *scratch) {
    float *z = scratch;
    for (int64_t i = begin; i < end; i += NAPIER_TILE) {
        const int n = napier_tile_at(i, end);
        napier_pack_strip(job, row, rows, i, n, z);
        for (int r = 0; r < rows; r += 16) {
            const int part = rows - r < 16 ? rows - r : 16;
            if (job->op == NAPIER_OP_SOFTMAX) {
                napier_write_sixteen(NAPIER_OP_SOFTMAX, finals + r, part, job->masked_rows, z + r, n);
            } else {
                napier_write_sixteen(NAPIER_OP_LOG_SOFTMAX, finals + r, part, job->masked_rows, z + r, n);
            }
        }
        napier_unpack_strip(job, row, rows, i, n, z);
    }
    if (job->stream) {
        vf_stream_fence();
    }
}
