/* umap/raster/raster.c - adds up points and lines in the pixels of a picture.
 *
 * The sums are integers, so the order in which points are added does not change them. The rows of the picture are cut
 * into bands. A worker goes through all points, and adds those that lie in its band: no two workers write to the same
 * pixel, and no worker needs a picture of its own. */
#include <math.h>

#include <napier/umap.h>

#include "core/base/parallel.h"
#include "core/base/scope.h"
#include "core/base/view.h"

enum { MOST_PIXELS = 65536 /* in a row or column */, BANDS_PER_WORKER = 4 /* for rows that are unequally full */ };

typedef struct raster {
    napier_umap_frame frame;
    double across, down; /* pixels to a unit of the map */
    const float *places; /* [n][2] */
    int64_t n;
    const int32_t *codes, *amounts;
    int64_t channels;
    int64_t band; /* rows */
    int64_t *sums;
} raster;

typedef struct pixel {
    int64_t row, col;
} pixel;

/* ---- Where a point lies ------------------------------------------------------------------------------------------ */

static inline bool is_inside(const napier_umap_frame *f, const float *place) {
    const double x = (double)place[0], y = (double)place[1];
    return x >= f->left && x <= f->right && y >= f->bottom && y <= f->top; /* false for NaN */
}

/* The pixel at so many pixels from the edge; the far edge belongs to the last pixel. */
static inline int64_t pixel_at(double distance, int64_t pixels) {
    const int64_t at = (int64_t)distance;
    return at < pixels ? at : pixels - 1;
}

static inline int64_t row_of(const raster *r, const float *place) {
    return pixel_at((r->frame.top - (double)place[1]) * r->down, r->frame.height);
}
static inline int64_t col_of(const raster *r, const float *place) {
    return pixel_at(((double)place[0] - r->frame.left) * r->across, r->frame.width);
}

/* ---- Points ------------------------------------------------------------------------------------------------------ */

static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static void clear_rows(const raster *r, int64_t first, int64_t last) {
    const int64_t row = r->frame.width * r->channels;
    for (int64_t i = first * row; i < last * row; i++) {
        r->sums[i] = 0;
    }
}

static void points_of_band(void *argument, int64_t band) {
    const raster *r = argument;
    const int64_t first = band * r->band, last = smaller(first + r->band, r->frame.height);
    clear_rows(r, first, last);
    for (int64_t i = 0; i < r->n; i++) {
        const float *const place = r->places + 2 * i;
        if (!is_inside(&r->frame, place) || (r->codes && r->codes[i] < 0)) {
            continue;
        }
        const int64_t row = row_of(r, place);
        if (row < first || row >= last) {
            continue;
        }
        const int32_t *const amounts = r->amounts + (r->codes ? r->codes[i] : 0) * r->channels;
        int64_t *const sums = r->sums + (row * r->frame.width + col_of(r, place)) * r->channels;
        for (int64_t c = 0; c < r->channels; c++) {
            sums[c] += amounts[c];
        }
    }
}

/* ---- Lines ------------------------------------------------------------------------------------------------------- */

static int64_t quotient_up(int64_t a, int64_t b) { return (a + b - 1) / b; } /* a >= 0 */

/* The line has a pixel for each step along its longer side: at step i of `length` it has gone (2 i side + length) /
 * (2 length) pixels, rounded down, along the shorter one. So row k of a flat line begins at this step: */
static int64_t step_of_row(int64_t k, int64_t wide, int64_t tall) {
    return k > 0 ? quotient_up((2 * k - 1) * wide, 2 * tall) : 0;
}

/* Adds the rows first .. last - 1 of the line. The line is the same in both directions. */
static void add_line(const raster *r, pixel a, pixel b, int32_t amount, int64_t first, int64_t last) {
    const bool swap = b.row < a.row || (b.row == a.row && b.col < a.col);
    const pixel from = swap ? b : a, to = swap ? a : b;
    const int64_t way = to.col < from.col ? -1 : 1, wide = way * (to.col - from.col), tall = to.row - from.row;
    const int64_t end = smaller(to.row + 1, last);
    for (int64_t row = larger(from.row, first); row < end; row++) {
        const int64_t k = row - from.row;
        int64_t *const sums = r->sums + row * r->frame.width + from.col;
        if (wide <= tall) {
            sums[tall > 0 ? way * ((2 * k * wide + tall) / (2 * tall)) : 0] += amount;
            continue;
        }
        const int64_t stop = k < tall ? step_of_row(k + 1, wide, tall) : wide + 1;
        for (int64_t i = step_of_row(k, wide, tall); i < stop; i++) {
            sums[way * i] += amount;
        }
    }
}

static bool crosses(pixel a, pixel b, int64_t first, int64_t last) {
    return larger(a.row, b.row) >= first && smaller(a.row, b.row) < last;
}

static void lines_of_band(void *argument, int64_t band) {
    const raster *r = argument;
    const int64_t first = band * r->band, last = smaller(first + r->band, r->frame.height);
    clear_rows(r, first, last);
    bool begun = false;
    pixel from = {0, 0};
    for (int64_t i = 0; i < r->n; i++) {
        const float *const place = r->places + 2 * i;
        const bool inside = is_inside(&r->frame, place);
        const pixel to = inside ? (pixel){row_of(r, place), col_of(r, place)} : (pixel){0, 0};
        if (begun && inside && crosses(from, to, first, last)) {
            add_line(r, from, to, r->amounts[i - 1], first, last);
            /* The next line begins where this one ends. */
            if (i + 1 < r->n && is_inside(&r->frame, place + 2) && to.row >= first && to.row < last) {
                r->sums[to.row * r->frame.width + to.col] -= r->amounts[i - 1];
            }
        }
        begun = inside;
        from = to;
    }
}

/* ---- The calls --------------------------------------------------------------------------------------------------- */

static napier_status check_side(napier_context *context, const char *low_name, double low, const char *high_name,
                                double high, const char *size_name, int64_t size, double *scale) {
    NAPIER_REFUSE_IF(context, !isfinite(low), "frame.%s: %g is not finite", low_name, low);
    NAPIER_REFUSE_IF(context, !isfinite(high), "frame.%s: %g is not finite", high_name, high);
    NAPIER_REFUSE_IF(context, !(low < high), "frame.%s: %g is not above frame.%s %g", high_name, high, low_name, low);
    NAPIER_REFUSE_IF(context, size < 1 || size > MOST_PIXELS, "frame.%s: %lld is not 1 to %d", size_name,
                     (long long)size, MOST_PIXELS);
    *scale = (double)size / (high - low);
    NAPIER_REFUSE_IF(context, !isfinite(*scale) || !isfinite(high - low),
                     "frame.%s: %g and frame.%s %g are too near or too far for float64", high_name, high, low_name,
                     low);
    return NAPIER_OK;
}

static napier_status check_frame(napier_context *context, const napier_umap_frame *f, raster *r) {
    NAPIER_REFUSE_IF(context, !f, "frame: NULL");
    NAPIER_TRY(check_side(context, "left", f->left, "right", f->right, "width", f->width, &r->across));
    NAPIER_TRY(check_side(context, "bottom", f->bottom, "top", f->top, "height", f->height, &r->down));
    r->frame = *f;
    return NAPIER_OK;
}

static void run_bands(const napier_context *context, raster *r, napier_each *each) {
    const int64_t workers = napier_workers(context, r->frame.height, 1);
    const int64_t bands = workers == 1 ? 1 : smaller(BANDS_PER_WORKER * workers, r->frame.height);
    r->band = quotient_up(r->frame.height, bands);
    napier_parallel_each(context, quotient_up(r->frame.height, r->band), 1, each, r);
}

napier_status napier_umap_raster_points(napier_context *context, const napier_umap_frame *frame,
                                        napier_const_matrix places, const int32_t *codes, const int32_t *amounts,
                                        int64_t kinds, int64_t channels, int64_t *sums) {
    NAPIER_DEFAULT_FENV;
    raster r = {.places = places.data, .n = places.rows, .codes = codes, .amounts = amounts, .sums = sums};
    NAPIER_TRY(napier_begin(context));
    NAPIER_TRY(check_frame(context, frame, &r));
    NAPIER_REFUSE_IF(context, kinds < 1, "kinds: %lld is less than 1", (long long)kinds);
    NAPIER_REFUSE_IF(context, channels < 1 || channels > MOST_PIXELS, "channels: %lld is not 1 to %d",
                     (long long)channels, MOST_PIXELS);
    NAPIER_REFUSE_IF(context, kinds > INT32_MAX, "kinds: %lld is more than %d", (long long)kinds, INT32_MAX);
    const napier_argument all[] = {
        NAPIER_ARGUMENT("places", places, NAPIER_IS_F32, places.rows, 2, NULL),
        napier_integers_argument("codes", codes, places.rows, sizeof *codes, NAPIER_MAY_BE_ABSENT),
        napier_integers_argument("amounts", amounts, kinds * channels, sizeof *amounts, 0),
        napier_integers_argument("sums", sums, r.frame.width * r.frame.height * channels, sizeof *sums, NAPIER_IS_OUT)};
    NAPIER_TRY(napier_check_arguments(context, all, sizeof all / sizeof *all));
    NAPIER_REFUSE_IF(context, places.col_stride != 1 || places.row_stride != 2, "places: not contiguous");
    for (int64_t i = 0; codes && i < places.rows; i++) {
        NAPIER_REFUSE_IF(context, codes[i] >= kinds, "codes: element %lld is %d, which is not below kinds %lld",
                         (long long)i, codes[i], (long long)kinds);
    }
    r.channels = channels;
    run_bands(context, &r, points_of_band);
    return NAPIER_OK;
}

napier_status napier_umap_raster_lines(napier_context *context, const napier_umap_frame *frame,
                                       napier_const_matrix places, const int32_t *amounts, int64_t *sums) {
    NAPIER_DEFAULT_FENV;
    raster r = {.places = places.data, .n = places.rows, .amounts = amounts, .channels = 1, .sums = sums};
    NAPIER_TRY(napier_begin(context));
    NAPIER_TRY(check_frame(context, frame, &r));
    const napier_argument all[] = {
        NAPIER_ARGUMENT("places", places, NAPIER_IS_F32, places.rows, 2, NULL),
        napier_integers_argument("amounts", amounts, places.rows, sizeof *amounts, 0),
        napier_integers_argument("sums", sums, r.frame.width * r.frame.height, sizeof *sums, NAPIER_IS_OUT)};
    NAPIER_TRY(napier_check_arguments(context, all, sizeof all / sizeof *all));
    NAPIER_REFUSE_IF(context, places.col_stride != 1 || places.row_stride != 2, "places: not contiguous");
    run_bands(context, &r, lines_of_band);
    return NAPIER_OK;
}
