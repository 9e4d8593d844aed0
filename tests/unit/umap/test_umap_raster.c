/* test_umap_raster - points and lines in the pixels of a picture, against sums that are taken pixel by pixel; the same
 * bits for every instruction set and number of threads; what is outside; what is refused. */
#include "unit/umap/umap_support.h"

static napier_context *context;

/* Scales are powers of two, so that it is plain in which pixel a point lies. */
enum { WIDE = 64, HIGH = 32, POINTS = 5000, KINDS = 5, CHANNELS = 4 };
static const napier_umap_frame frame = {-4.0, 4.0, 1.0, 3.0, WIDE, HIGH};

static float places[2 * POINTS];
static int32_t codes[POINTS], amounts[POINTS];
static int64_t sums[WIDE * HIGH * CHANNELS], wanted[WIDE * HIGH * CHANNELS];

/* Points all over the frame, and one in four outside; some on the edges of pixels and of the frame. */
static void make_places(void) {
    for (int i = 0; i < POINTS; i++) {
        places[2 * i] = 5.0f * umap_float();
        places[2 * i + 1] = 2.0f + 1.25f * umap_float();
        if (i % 3 == 0) {
            places[2 * i] = floorf(8.0f * places[2 * i]) / 8.0f;
            places[2 * i + 1] = floorf(16.0f * places[2 * i + 1]) / 16.0f;
        }
        codes[i] = i % (KINDS + 1) - 1;
        amounts[i] = (int32_t)(1000.0f * umap_float());
    }
    const float odd[][2] = {{NAN, 2.0f},  {1.0f, NAN},   {INFINITY, 2.0f}, {1.0f, -INFINITY},
                            {4.0f, 1.0f}, {-4.0f, 3.0f}, {3e38f, 2.0f}};
    for (int i = 0; i < 7; i++) {
        places[2 * (i * 11)] = odd[i][0];
        places[2 * (i * 11) + 1] = odd[i][1];
    }
}

/* Returns -1 if the place is not in the frame. */
static int pixel_of(const float *place) {
    const float x = place[0], y = place[1];
    if (!(x >= -4.0f && x <= 4.0f && y >= 1.0f && y <= 3.0f)) {
        return -1;
    }
    const int col = x < 4.0f ? (int)floor(8.0 * ((double)x + 4.0)) : WIDE - 1;
    const int row = y > 1.0f ? (int)floor(16.0 * (3.0 - (double)y)) : HIGH - 1;
    return row * WIDE + col;
}

static bool same_sums(int64_t count, const char *what) {
    for (int64_t i = 0; i < count; i++) {
        if (sums[i] != wanted[i]) {
            problem("%s: sum %lld is %lld, not %lld", what, (long long)i, (long long)sums[i], (long long)wanted[i]);
            return false;
        }
    }
    return true;
}

/* ---- Points -------------------------------------------------------------------------------------------------------- */

static void want_points(const int32_t *kinds_of, int64_t channels) {
    memset(wanted, 0, sizeof wanted);
    for (int i = 0; i < POINTS; i++) {
        const int at = pixel_of(places + 2 * i);
        const int kind = kinds_of ? kinds_of[i] : 0;
        for (int64_t c = 0; at >= 0 && kind >= 0 && c < channels; c++) {
            wanted[at * channels + c] += amounts[kind * channels + c];
        }
    }
}

static void test_points(void) {
    make_places();
    napier_context *c;
    for (int run = 0; (c = context_of_run(run)) != NULL; run++) {
        memset(sums, 0x5a, sizeof sums);
        want_points(codes, CHANNELS);
        works(napier_umap_raster_points, c, &frame, napier_const_rows_f32(places, POINTS, 2), codes, amounts, KINDS,
              CHANNELS, sums);
        same_sums(WIDE * HIGH * CHANNELS, "kinds");
        want_points(NULL, 1);
        works(napier_umap_raster_points, c, &frame, napier_const_rows_f32(places, POINTS, 2), NULL, amounts, 1, 1,
              sums);
        same_sums(WIDE * HIGH, "one kind");
    }
}

static void test_no_points(void) {
    memset(sums, 0x5a, sizeof sums);
    memset(wanted, 0, sizeof wanted);
    must(napier_umap_raster_points(context, &frame, napier_const_rows_f32(NULL, 0, 2), NULL, amounts, 1, 1, sums));
    same_sums(WIDE * HIGH, "no points");
}

/* ---- Lines --------------------------------------------------------------------------------------------------------- */

/* Adds the pixels of a line one by one: the other coordinate is rounded to the nearest, and up at one half. */
static void want_line(int from, int to, int32_t amount) {
    const int a = from < to ? from : to, b = from < to ? to : from; /* the upper one, or the left one */
    const int wide = b % WIDE - a % WIDE, high = b / WIDE - a / WIDE;
    const int steps = abs(wide) > high ? abs(wide) : high;
    for (int i = 0; i <= steps; i++) {
        const double share = steps > 0 ? (double)i / steps : 0.0;
        const int col = (int)floor(share * abs(wide) + 0.5 + 1e-9) * (wide < 0 ? -1 : 1);
        wanted[a + (int)floor(share * high + 0.5 + 1e-9) * WIDE + col] += amount;
    }
}

static void want_lines(void) {
    memset(wanted, 0, sizeof wanted);
    for (int i = 0; i + 1 < POINTS; i++) {
        const int from = pixel_of(places + 2 * i), to = pixel_of(places + 2 * i + 2);
        if (from < 0 || to < 0) {
            continue;
        }
        want_line(from, to, amounts[i]);
        if (i + 2 < POINTS && pixel_of(places + 2 * i + 4) >= 0) {
            wanted[to] -= amounts[i];
        }
    }
}

static void test_lines(void) {
    make_places();
    want_lines();
    napier_context *c;
    for (int run = 0; (c = context_of_run(run)) != NULL; run++) {
        memset(sums, 0x5a, sizeof sums);
        works(napier_umap_raster_lines, c, &frame, napier_const_rows_f32(places, POINTS, 2), amounts, sums);
        same_sums(WIDE * HIGH, "lines");
    }
}

/* 5 x 4 pixels: a path of two lines, a gap, and a steep line from below. */
static void test_a_picture(void) {
    const napier_umap_frame small = {0.0, 5.0, 0.0, 4.0, 5, 4};
    const float path[] = {0.5f, 3.5f, 4.5f, 2.5f, 4.5f, 0.5f, NAN, NAN, 1.5f, 0.5f, 2.5f, 3.5f, 2.5f, 3.5f};
    const int32_t weights[] = {1, 20, 300, 300, 300, 4000, 4000};
    const int64_t picture[] = {1, 1, 300, 0, 0, /**/ 0, 0, 301, 1, 20, /**/ 0, 300, 0, 0, 20, /**/ 0, 300, 0, 0, 20};
    for (int i = 0; i < 20; i++) {
        wanted[i] = picture[i] + (i == 2 ? 4000 - 300 : 0); /* the corner belongs to the line that begins there */
    }
    must(napier_umap_raster_lines(context, &small, napier_const_rows_f32(path, 7, 2), weights, sums));
    same_sums(20, "picture");
}

/* ---- Refusals ------------------------------------------------------------------------------------------------------ */

static void test_refusals(void) {
    const napier_const_matrix some = napier_const_rows_f32(places, 10, 2);
    const struct {
        napier_umap_frame frame;
        const char *words[2];
    } frames[] = {
        {{(double)NAN, 1, 0, 1, 8, 8}, {"frame.left", "nan is not finite"}},
        {{0, 1, 0, (double)INFINITY, 8, 8}, {"frame.top", "inf is not finite"}},
        {{1, 1, 0, 1, 8, 8}, {"frame.right", "1 is not above frame.left 1"}},
        {{0, 1, 2, 1, 8, 8}, {"frame.top", "1 is not above frame.bottom 2"}},
        {{0, 1, 0, 1, 0, 8}, {"frame.width", "0 is not 1 to 65536"}},
        {{0, 1, 0, 1, 8, 65537}, {"frame.height", "65537 is not 1 to 65536"}},
        {{-1e308, 1e308, 0, 1, 8, 8}, {"frame.right", "too far"}},
        {{0, 1e-320, 0, 1, 8, 8}, {"frame.right", "too near"}},
    };
    for (size_t i = 0; i < sizeof frames / sizeof *frames; i++) {
        const napier_umap_frame *const f = &frames[i].frame;
        invalid(context, napier_umap_raster_points(context, f, some, NULL, amounts, 1, 1, sums), frames[i].words[0],
                frames[i].words[1]);
        invalid(context, napier_umap_raster_lines(context, f, some, amounts, sums), frames[i].words[0],
                frames[i].words[1]);
    }
    const int32_t high[10] = {0, 0, 0, 7};
    invalid(context, napier_umap_raster_points(context, &frame, some, high, amounts, 7, 1, sums), "codes", "element 3",
            "7", "kinds");
    invalid(context, napier_umap_raster_points(context, NULL, some, NULL, amounts, 1, 1, sums), "frame", "NULL");
    invalid(context, napier_umap_raster_points(context, &frame, some, NULL, amounts, 0, 1, sums), "kinds", "0");
    invalid(context, napier_umap_raster_points(context, &frame, some, NULL, amounts, 1, 0, sums), "channels", "0");
    invalid(context, napier_umap_raster_points(context, &frame, some, NULL, NULL, 1, 1, sums), "amounts", "NULL");
    invalid(context, napier_umap_raster_points(context, &frame, some, NULL, amounts, 1, 1, NULL), "sums", "NULL");
    invalid(context,
            napier_umap_raster_points(context, &frame, napier_const_rows_f32(places, 5, 3), NULL, amounts, 1, 1, sums),
            "places", "3");
    invalid(context,
            napier_umap_raster_lines(context, &frame, napier_const_transposed(napier_const_rows_f32(places, 2, 9)),
                                     amounts, sums),
            "places", "contiguous");
    invalid(context,
            napier_umap_raster_lines(context, &frame, napier_const_rows_f32((const float *)sums, 9, 2), amounts, sums),
            "sums", "places");
}

int main(void) {
    return RUN_UMAP_TESTS("umap_raster", TEST(test_points), TEST(test_no_points), TEST(test_lines),
                          TEST(test_a_picture), TEST(test_refusals));
}
