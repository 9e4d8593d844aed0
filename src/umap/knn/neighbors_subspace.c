/* umap/knn/neighbors_subspace.c - principal directions of a sample, and rows projected on them.
 *
 * Directions: block power iteration (Halko, Martinsson and Tropp, "Finding structure with randomness", 2011) on 2048
 * rows spread evenly over all: Y <- X'(X Y), orthonormalised. The number of directions for all pairs is chosen by
 * counting, for 32 probes, how many pairs each number would leave. If rows are long, the remaining pairs are first
 * bounded with all directions, and measured only if they may still be near. This affects only the speed, not the
 * result.
 *
 * Rounding. Let u = 2^-24, g(k) = (k + 8) u: a chain of k fma errs by less than g(k) times the sum of its terms' sizes.
 *   - Coordinates. A row's coordinates and rest differ from those of exact arithmetic, for some exactly orthonormal
 *     directions, by at most e = [sqrt(size) (2 g(chunk) + g(size) + 8 u) + 2 u] |x|: the products' own errors (chunks
 *     of 128 columns, added in double), directions rounded to float, the centring. Without directions e = 2 u |x|.
 *   - A pair at the scaled distance D has coordinates no farther apart than D + e_i + e_j, and
 *     (D + e_i + e_j)^2 <= (1 + t) D^2 + (1 + 1 / t) 2 (e_i^2 + e_j^2). With t = 2^-9 the first factor goes into the
 *     limit, the rest into the slack of either point.
 *   - The product of near_pairs errs by at most g(coordinates) (|z_i|^2 + |z_j|^2): into the slack as well. */
#include "umap/knn/neighbors_subspace.h"

#include <math.h>
#include <string.h>

#include "core/base/parallel.h"
#include "core/math/random.h"

enum {
    SAMPLE_ROWS = 2048,      /* rows in the sample from which directions are found */
    SAMPLE_FLOATS = 1 << 23, /* and at most so many floats, but */
    SAMPLE_LEAST = 256,      /* no fewer rows */
    LEAST_ROWS = 4096,       /* with fewer points, directions do not pay */
    LEAST_COLS = 48,
    MOST_DIRECTIONS = 128,
    STEPS = 5,   /* steps of the power iteration */
    CHUNK = 128, /* columns in one chain of a projection */
    PROBES = NAPIER_PANEL,
    PROBE_ROWS = 4096, /* rows among which the probes' neighbours are counted */
    SIZES = 7,
    RANDOM_STREAM = 0x5375 /* stream of the random start */
};
static const int64_t sizes[SIZES] = {16, 32, 48, 64, 80, 96, 128};

#define ROUNDING 0x1p-24
#define SPREAD 0x1p-9        /* t above */
#define OUT_OF_MEASURE 1e30f /* the slack of a row whose lengths would overflow */

static double chain_error(int64_t k) { return (double)(k + 8) * ROUNDING; }

/* The number of directions that are removed from a row before its rest is measured. */
static int64_t measured_directions(const napier_subspace *u) { return u->fine > 0 ? u->fine : u->size; }

/* ---- Rows, centred ----------------------------------------------------------------------------------------------- */

void napier_subspace_centre(const napier_subspace *u, const float *row, float *out) {
    const float *mean = u->mean;
    const float scale = u->scale;
    const int64_t width = u->width;
    for (int64_t i = 0; i < width; i++) {
        out[i] = (row[i] - mean[i]) * scale;
    }
}

/* Row `index` of a sample of `count` rows spread evenly over n. */
static int64_t spread_row(int64_t index, int64_t count, int64_t n) {
    return (int64_t)((double)index * (double)n / (double)count);
}

/* The mean of a sample, and a scale after which no coordinate of it exceeds 1. */
static void fit_mean(napier_subspace *u, const napier_points *points, int64_t sample, double *sums) {
    double most = 0;
    memset(sums, 0, (size_t)u->width * sizeof *sums);
    for (int64_t r = 0; r < sample; r++) {
        const float *row = points->rows + spread_row(r, sample, points->n) * u->width;
        for (int64_t i = 0; i < u->width; i++) {
            sums[i] += (double)row[i];
        }
    }
    for (int64_t i = 0; i < u->width; i++) {
        u->mean[i] = (float)(sums[i] / (double)sample);
    }
    for (int64_t r = 0; r < sample; r++) {
        const float *row = points->rows + spread_row(r, sample, points->n) * u->width;
        for (int64_t i = 0; i < u->width; i++) {
            const double size = fabs((double)row[i] - (double)u->mean[i]);
            most = size > most ? size : most;
        }
    }
    int exponent = 0;
    if (most > 0) {
        (void)frexp(most, &exponent);
    }
    exponent = exponent < -120 ? -120 : exponent > 120 ? 120 : exponent;
    u->scale = (float)ldexp(1.0, -exponent);
}

/* ---- Products over threads --------------------------------------------------------------------------------------- */

/* out[q] = a * in[q] for panels q: [rows, k] times [k, NAPIER_PANEL]. */
typedef struct panel_products {
    const napier_linear_kernels *kernels;
    const float *a;
    int64_t lda, rows, k, pieces;
    const float *in;
    float *out;
} panel_products;

enum { PIECE_ROWS = 96 };

static void panel_products_task(void *argument, int64_t item) {
    const panel_products *t = argument;
    const int64_t q = item / t->pieces, first = item % t->pieces * PIECE_ROWS;
    const int64_t rows = napier_least(t->rows - first, PIECE_ROWS);
    t->kernels->product(t->a + first * t->lda, t->lda, rows, t->in + q * t->k * NAPIER_PANEL, t->k,
                        t->out + (q * t->rows + first) * NAPIER_PANEL, NAPIER_PANEL);
}

static void multiply_panels(const napier_context *context, const napier_linear_kernels *kernels, const float *a,
                            int64_t lda, int64_t rows, int64_t k, const float *in, int64_t panels, float *out) {
    panel_products t = {kernels, a, lda, rows, k, (rows + PIECE_ROWS - 1) / PIECE_ROWS, in, out};
    napier_parallel_each(context, panels * t.pieces, 1, panel_products_task, &t);
}

/* ---- Directions -------------------------------------------------------------------------------------------------- */

/* Eight partial sums, folded at the end, an order that compilers can vectorise. n is a multiple of 8. */
static double dot_of_doubles(const double *a, const double *b, int64_t n) {
    double sum[8] = {0};
    for (int64_t i = 0; i < n; i += 8) {
        for (int j = 0; j < 8; j++) {
            sum[j] += a[i + j] * b[i + j];
        }
    }
    return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
}

static void subtract(double *a, const double *b, double factor, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        a[i] -= factor * b[i];
    }
}

/* Modified Gram-Schmidt. A direction that depends on those before it becomes 0 and then has no effect. */
static void orthonormalise(double *directions, int64_t count, int64_t width, int passes) {
    for (int64_t j = 0; j < count; j++) {
        double *own = directions + j * width;
        const double before = dot_of_doubles(own, own, width);
        for (int pass = 0; pass < passes; pass++) {
            for (int64_t i = 0; i < j; i++) {
                const double *other = directions + i * width;
                subtract(own, other, dot_of_doubles(own, other, width), width);
            }
        }
        const double after = dot_of_doubles(own, own, width);
        const double factor = after > 1e-20 * before && after > 1e-60 ? 1 / sqrt(after) : 0.0;
        for (int64_t i = 0; i < width; i++) {
            own[i] *= factor;
        }
    }
}

/* Direction j in panels: its element i is at i * NAPIER_PANEL. */
static float *packed(float *panels, int64_t j, int64_t width) {
    return panels + j / NAPIER_PANEL * width * NAPIER_PANEL + j % NAPIER_PANEL;
}

static void unpack_directions(float *panels, int64_t count, int64_t width, double *directions) {
    for (int64_t e = 0; e < count * width; e++) {
        directions[e] = (double)packed(panels, e / width, width)[e % width * NAPIER_PANEL];
    }
}

static void pack_directions(const double *directions, int64_t count, int64_t width, float *panels) {
    for (int64_t e = 0; e < count * width; e++) {
        packed(panels, e / width, width)[e % width * NAPIER_PANEL] = (float)directions[e];
    }
}

static void random_directions(double *directions, int64_t count, int64_t cols, int64_t width) {
    const uint32_t key = napier_random_key(0, RANDOM_STREAM);
    for (int64_t j = 0; j < count; j++) {
        for (int64_t i = 0; i < width; i++) {
            uint32_t draw[2];
            napier_philox(key, (uint32_t)j, (uint32_t)i, draw);
            directions[j * width + i] = i < cols ? napier_random_unit(draw[0]) - 0.5 : 0.0;
        }
    }
}

/* The data of the iteration: the sample and its transpose, its image, and the directions in double. */
typedef struct iteration {
    int64_t sample;
    float *rows, *turned; /* [sample, width], [width, sample] */
    float *images;        /* [panels][sample][NAPIER_PANEL] */
    double *directions;   /* [panels * NAPIER_PANEL, width] */
} iteration;

static int64_t sample_rows(const napier_points *points) {
    int64_t rows = SAMPLE_FLOATS / points->width / 16 * 16;
    rows = rows > SAMPLE_ROWS ? SAMPLE_ROWS : rows < SAMPLE_LEAST ? SAMPLE_LEAST : rows;
    return napier_least(rows, points->n);
}

static void take_sample(const napier_subspace *u, const napier_points *points, iteration *it) {
    for (int64_t r = 0; r < it->sample; r++) {
        float *row = it->rows + r * u->width;
        napier_subspace_centre(u, points->rows + spread_row(r, it->sample, points->n) * u->width, row);
        for (int64_t i = 0; i < u->width; i++) {
            it->turned[i * it->sample + r] = row[i];
        }
    }
}

/* Finds `count` directions, strongest first, and writes them to u->basis. */
static napier_status find_directions(const napier_search *s, napier_subspace *u, int64_t count) {
    const napier_linear_kernels *kernels = u->kernels->linear;
    NAPIER_MEMORY(memory, s->context);
    iteration it = {.sample = sample_rows(s->samples)};
    it.rows = napier_take(&memory, it.sample, (size_t)u->width * sizeof(float));
    it.turned = napier_take(&memory, it.sample, (size_t)u->width * sizeof(float));
    it.images = napier_take(&memory, u->panels * it.sample, NAPIER_PANEL * sizeof(float));
    it.directions = napier_take(&memory, u->panels * NAPIER_PANEL, (size_t)u->width * sizeof(double));
    NAPIER_TRY(napier_search_memory(s, memory.missing, "directions"));
    take_sample(u, s->samples, &it);
    random_directions(it.directions, count, u->cols, u->width);
    pack_directions(it.directions, count, u->width, u->basis);
    for (int step = 0; step < STEPS; step++) {
        multiply_panels(s->context, kernels, it.rows, u->width, it.sample, u->width, u->basis, u->panels, it.images);
        multiply_panels(s->context, kernels, it.turned, it.sample, u->width, it.sample, it.images, u->panels, u->basis);
        unpack_directions(u->basis, count, u->width, it.directions);
        orthonormalise(it.directions, count, u->width, step + 1 < STEPS ? 1 : 2);
        pack_directions(it.directions, count, u->width, u->basis);
    }
    return NAPIER_OK;
}

/* ---- How many directions? ---------------------------------------------------------------------------------------- */

/* Squared distances of PROBE_ROWS rows from the probes, and their bounds for each number of directions. */
typedef struct probing {
    const napier_subspace *u;
    const napier_points *points;
    int64_t rows, counted; /* rows; sizes that are tried */
    float *probes;         /* [width][NAPIER_PANEL], centred */
    float *probe_lengths;  /* [PROBES] squared */
    float *probe_places;   /* [PROBES][panels * NAPIER_PANEL] */
    float *full;           /* [rows][PROBES] */
    float *bounds;         /* [rows][PROBES][SIZES] */
    float *scratch;        /* per worker: a row, its coordinates, its products */
} probing;

static int64_t probing_scratch(const napier_subspace *u) { return u->width + u->panels * NAPIER_PANEL + NAPIER_PANEL; }

static void project_row(const napier_subspace *u, const float *centred, float *out) {
    for (int64_t q = 0; q < u->panels; q++) {
        u->kernels->linear->product(centred, u->width, 1, u->basis + q * u->width * NAPIER_PANEL, u->width,
                                    out + q * NAPIER_PANEL, NAPIER_PANEL);
    }
}

static void bound_pair(const probing *t, const float *a, float length_a, const float *b, float length_b,
                       float *bounds) {
    float near = 0, used_a = 0, used_b = 0;
    for (int64_t i = 0, level = 0; level < t->counted; level++) {
        for (; i < sizes[level]; i++) {
            near += (a[i] - b[i]) * (a[i] - b[i]);
            used_a += a[i] * a[i];
            used_b += b[i] * b[i];
        }
        const float rest_a = length_a > used_a ? sqrtf(length_a - used_a) : 0.0f;
        const float rest_b = length_b > used_b ? sqrtf(length_b - used_b) : 0.0f;
        bounds[level] = near + (rest_a - rest_b) * (rest_a - rest_b);
    }
}

static void probe_task(void *argument, int worker, int64_t begin, int64_t end) {
    const probing *t = argument;
    const napier_subspace *u = t->u;
    const napier_linear_kernels *kernels = u->kernels->linear;
    float *row = t->scratch + (int64_t)worker * probing_scratch(u);
    float *places = row + u->width, *products = places + u->panels * NAPIER_PANEL;
    for (int64_t r = begin; r < end; r++) {
        napier_subspace_centre(u, t->points->rows + spread_row(r, t->rows, t->points->n) * u->width, row);
        const float length = kernels->dot(row, row, u->width);
        project_row(u, row, places);
        kernels->product(row, u->width, 1, t->probes, u->width, products, NAPIER_PANEL);
        for (int64_t p = 0; p < PROBES; p++) {
            const float full = length + t->probe_lengths[p] - 2 * products[p];
            t->full[r * PROBES + p] = full > 0 ? full : 0;
            bound_pair(t, places, length, t->probe_places + p * u->panels * NAPIER_PANEL, t->probe_lengths[p],
                       t->bounds + (r * PROBES + p) * SIZES);
        }
    }
}

/* Probe p is a row in the middle of its share of all rows, so that it is seldom one of the rows that it is compared
 * with. */
static void take_probes(const probing *t) {
    const napier_subspace *u = t->u;
    float *row = t->scratch;
    for (int64_t p = 0; p < PROBES; p++) {
        const int64_t index = spread_row(p, PROBES, t->points->n) + t->points->n / PROBES / 2 + 1;
        napier_subspace_centre(u, t->points->rows + (index < t->points->n ? index : p) * u->width, row);
        t->probe_lengths[p] = u->kernels->linear->dot(row, row, u->width);
        project_row(u, row, t->probe_places + p * u->panels * NAPIER_PANEL);
        for (int64_t i = 0; i < u->width; i++) {
            t->probes[i * NAPIER_PANEL + p] = row[i];
        }
    }
}

static double bound_steps(double coordinates) { return coordinates / 16; }
static double look_steps(int64_t fine_width) { return 20 + (double)fine_width / 8; }
static double pair_steps(int64_t width) { return 100 + (double)width / 4; }

double napier_subspace_bound_steps(const napier_subspace *u) {
    return bound_steps((double)napier_subspace_coordinates(u));
}
double napier_subspace_look_steps(const napier_subspace *u) { return look_steps(u->fine_width); }
double napier_subspace_pair_steps(const napier_subspace *u) { return pair_steps(u->width); }

/* The cost for each pair of points: the product, pairs that get the tighter bound, and pairs that are measured. */
static double cost_of(double coordinates, double share_looked_at, int64_t fine_width, double share_measured,
                      int64_t width) {
    const double look = fine_width > 0 ? share_looked_at * look_steps(fine_width) : 0.0;
    return bound_steps(coordinates) + look + share_measured * pair_steps(width);
}

/* The share of pairs for which a bound lies below the distance of the probe's own last neighbour. */
static double share_within(const probing *t, int64_t level, const float *radii) {
    int64_t count = 0;
    for (int64_t i = 0; i < t->rows * PROBES; i++) {
        count += t->bounds[i * SIZES + level] <= radii[i % PROBES];
    }
    return (double)count / (double)(t->rows * PROBES);
}

static void find_radii(const probing *t, int64_t rank, uint64_t *heap, float *radii) {
    for (int64_t p = 0; p < PROBES; p++) {
        napier_heap_clear(heap, rank);
        for (int64_t r = 0; r < t->rows; r++) {
            const float distance = t->full[r * PROBES + p];
            napier_heap_offer(heap, rank, napier_near_of(distance < 1e30f ? distance : 1e30f, (uint32_t)r));
        }
        radii[p] = napier_near_distance(heap[0]);
    }
}

/* The cheapest number of directions; 0 if using all columns is cheaper. */
static int64_t cheapest_size(const napier_search *s, const probing *t, uint64_t *heap, int64_t rank) {
    float radii[PROBES];
    find_radii(t, rank, heap, radii);
    const double neighbours = (double)s->wanted / (double)s->samples->n;
    double least = 0.8 * cost_of((double)t->u->cols, 0, 0, 2 * neighbours, t->u->width);
    int64_t size = 0;
    const double finest = share_within(t, t->counted - 1, radii);
    for (int64_t level = 0; level < t->counted; level++) {
        const double share = share_within(t, level, radii);
        const int64_t fine_width = sizes[level] < t->u->fine ? t->u->fine_width : 0;
        const double cost = cost_of((double)sizes[level] + 1, 2 * share, fine_width,
                                    2 * (fine_width > 0 ? finest : share), t->u->width);
        if (cost < least) {
            least = cost;
            size = sizes[level];
        }
    }
    return size;
}

static napier_status choose_size(const napier_search *s, const napier_subspace *u, int64_t directions, int64_t *size) {
    probing t = {.u = u, .points = s->samples, .rows = PROBE_ROWS, .counted = 0};
    while (t.counted < SIZES && sizes[t.counted] <= directions) {
        t.counted++;
    }
    const int64_t share = (int64_t)((double)s->wanted * (double)t.rows / (double)s->samples->n + 0.5);
    const int64_t rank = share < 1 ? 1 : share > t.rows ? t.rows : share;
    const int workers = napier_workers(s->context, t.rows, NAPIER_PANEL);
    NAPIER_MEMORY(memory, s->context);
    t.probes = napier_take(&memory, u->width, PROBES * sizeof(float));
    t.probe_lengths = napier_take(&memory, PROBES, sizeof(float));
    t.probe_places = napier_take(&memory, PROBES, (size_t)(u->panels * NAPIER_PANEL) * sizeof(float));
    t.full = napier_take(&memory, t.rows, PROBES * sizeof(float));
    t.bounds = napier_take(&memory, t.rows, PROBES * SIZES * sizeof(float));
    t.scratch = napier_take(&memory, workers, (size_t)probing_scratch(u) * sizeof(float));
    uint64_t *heap = napier_take(&memory, rank, sizeof *heap);
    NAPIER_TRY(napier_search_memory(s, memory.missing, "probes"));
    take_probes(&t);
    napier_parallel(s->context, t.rows, NAPIER_PANEL, probe_task, &t);
    *size = cheapest_size(s, &t, heap, rank);
    return NAPIER_OK;
}

/* ---- Creation ---------------------------------------------------------------------------------------------------- */

/* The chosen directions as rows: back[panel of columns][direction][column]. */
static napier_status turn_back(napier_memory *memory, const napier_search *s, napier_subspace *u) {
    const int64_t measured = measured_directions(u);
    u->back_panels = (u->width + NAPIER_PANEL - 1) / NAPIER_PANEL;
    u->back = napier_take(memory, u->back_panels * measured, NAPIER_PANEL * sizeof(float));
    NAPIER_TRY(napier_search_memory(s, memory->missing, "directions"));
    memset(u->back, 0, (size_t)(u->back_panels * measured) * NAPIER_PANEL * sizeof(float));
    for (int64_t j = 0; j < measured; j++) {
        const float *panel = packed(u->basis, j, u->width);
        for (int64_t i = 0; i < u->width; i++) {
            u->back[(i / NAPIER_PANEL * measured + j) * NAPIER_PANEL + i % NAPIER_PANEL] = panel[i * NAPIER_PANEL];
        }
    }
    return NAPIER_OK;
}

/* The tighter bound pays if it reads much less than a row. */
static void set_fine(napier_subspace *u, int64_t directions) {
    const int64_t fine_width = napier_round_up(directions + 1, 16);
    if (2 * fine_width <= u->width) {
        u->fine = directions;
        u->fine_width = fine_width;
    }
}

static napier_status find_subspace(napier_memory *memory, const napier_search *s, napier_subspace *u) {
    const int64_t directions = napier_least(napier_round_up(u->cols / 2, NAPIER_PANEL), MOST_DIRECTIONS);
    u->panels = directions / NAPIER_PANEL;
    const int64_t floats = u->panels * u->width * NAPIER_PANEL;
    u->basis = napier_take(memory, floats, sizeof(float));
    NAPIER_TRY(napier_search_memory(s, memory->missing, "directions"));
    memset(u->basis, 0, (size_t)floats * sizeof(float));
    NAPIER_TRY(find_directions(s, u, directions));
    set_fine(u, directions);
    NAPIER_TRY(choose_size(s, u, directions, &u->size));
    u->outline = u->size == 0 ? NAPIER_PANEL : 0;
    if (u->size == 0 || u->size >= u->fine) {
        u->fine = u->fine_width = 0;
        u->panels = (u->size + u->outline + NAPIER_PANEL - 1) / NAPIER_PANEL;
    }
    return u->size == 0 ? NAPIER_OK : turn_back(memory, s, u);
}

static bool is_worth_it(const napier_search *s) {
    return s->samples->cols > LEAST_COLS && s->samples->n >= LEAST_ROWS && s->queries->n >= LEAST_ROWS / 8;
}

napier_status napier_subspace_create(napier_memory *memory, const napier_search *s, napier_subspace *u) {
    const napier_points *points = s->samples;
    /* Transformed rows may have one more column (points.c). */
    *u = (napier_subspace){.kernels = points->kernels,
                           .cols = points->kind == NAPIER_POINTS_EUCLIDEAN ? points->cols : points->width,
                           .width = points->width};
    NAPIER_MEMORY(own, s->context);
    u->mean = napier_take(memory, u->width, sizeof(float));
    double *sums = napier_take(&own, u->width, sizeof *sums);
    NAPIER_TRY(napier_search_memory(s, memory->missing || own.missing, "coordinates"));
    fit_mean(u, points, sample_rows(points), sums);
    return is_worth_it(s) ? find_subspace(memory, s, u) : NAPIER_OK;
}

/* ---- Panels ------------------------------------------------------------------------------------------------------ */

/* Scratch: rows [NAPIER_PANEL][width], coordinates [NAPIER_PANEL][panels * NAPIER_PANEL], one product of each, and sums
 * in double. */
static int64_t directions_width(const napier_subspace *u) { return u->panels * NAPIER_PANEL; }

int64_t napier_subspace_scratch(const napier_subspace *u) {
    return NAPIER_PANEL * (u->width + directions_width(u) + NAPIER_PANEL) + 2 * NAPIER_PANEL * NAPIER_PANEL;
}

/* z = U x for all rows: chains of at most CHUNK columns, their results added in double. */
static void project(const napier_subspace *u, const float *centred, int count, float *z, float *product, double *sums) {
    for (int64_t q = 0; q < u->panels; q++) {
        memset(sums, 0, NAPIER_PANEL * NAPIER_PANEL * sizeof *sums);
        for (int64_t first = 0; first < u->width; first += CHUNK) {
            const int64_t k = u->width - first < CHUNK ? u->width - first : CHUNK;
            u->kernels->linear->product(centred + first, u->width, count,
                                        u->basis + (q * u->width + first) * NAPIER_PANEL, k, product, NAPIER_PANEL);
            for (int i = 0; i < count * NAPIER_PANEL; i++) {
                sums[i] += (double)product[i];
            }
        }
        for (int r = 0; r < count; r++) {
            for (int j = 0; j < NAPIER_PANEL; j++) {
                z[r * directions_width(u) + q * NAPIER_PANEL + j] = (float)sums[r * NAPIER_PANEL + j];
            }
        }
    }
}

/* |x - U'z|^2 of every row. */
static void measure_rests(const napier_subspace *u, const float *centred, int count, const float *z, float *product,
                          double *rests) {
    memset(rests, 0, NAPIER_PANEL * sizeof *rests);
    const int64_t measured = measured_directions(u);
    for (int64_t panel = 0; panel < u->back_panels; panel++) {
        const int64_t first = panel * NAPIER_PANEL;
        const int64_t columns = u->width - first < NAPIER_PANEL ? u->width - first : NAPIER_PANEL;
        u->kernels->linear->product(z, directions_width(u), count, u->back + panel * measured * NAPIER_PANEL, measured,
                                    product, NAPIER_PANEL);
        for (int r = 0; r < count; r++) {
            for (int64_t j = 0; j < columns; j++) {
                product[r * NAPIER_PANEL + j] = centred[r * u->width + first + j] - product[r * NAPIER_PANEL + j];
            }
            rests[r] +=
                (double)u->kernels->linear->dot(product + r * NAPIER_PANEL, product + r * NAPIER_PANEL, columns);
        }
    }
}

/* The relative error e / |x| of a row's coordinates with this number of directions. */
static double coordinate_error(int64_t measured) {
    if (measured == 0) {
        return 2 * ROUNDING;
    }
    return sqrt((double)measured) * (2 * chain_error(CHUNK) + chain_error(measured) + 8 * ROUNDING) + 4 * ROUNDING;
}

/* Half the squared length, minus the slack. A row that is too large to be measured counts as near to all rows. */
static void finish_point(const napier_subspace *u, float *panel, float *fine, int j, double squared_length, float *half,
                         float *slack) {
    const int64_t coordinates = napier_subspace_coordinates(u);
    double squared = 0;
    for (int64_t i = 0; i < coordinates; i++) {
        squared += (double)panel[i * NAPIER_PANEL + j] * (double)panel[i * NAPIER_PANEL + j];
    }
    if (!(squared < 1e24 && squared_length < 1e24)) {
        for (int64_t i = 0; i < coordinates; i++) {
            panel[i * NAPIER_PANEL + j] = 0;
        }
        if (u->fine > 0) {
            memset(fine + j * u->fine_width, 0, (size_t)u->fine_width * sizeof *fine);
        }
        *half = -OUT_OF_MEASURE;
        *slack = OUT_OF_MEASURE;
        return;
    }
    const double error = coordinate_error(measured_directions(u)), outline_error = coordinate_error(u->outline);
    const double taken =
        (chain_error(coordinates) + 4 * ROUNDING) * squared + (1 + 1 / SPREAD) * error * error * squared_length;
    *half = (float)(squared / 2 - taken);
    *slack = (float)((taken + (1 + 1 / SPREAD) * outline_error * outline_error * squared_length) * (1 + 4 * ROUNDING));
}

/* Writes row j of a panel and of the tighter bound, from a row's coordinates z and the squared length of its rest. */
static void place_directions(const napier_subspace *u, const float *z, double rest, float *panel, int j, float *fine) {
    if (u->fine > 0) {
        float *own = fine + j * u->fine_width;
        memset(own, 0, (size_t)u->fine_width * sizeof *own);
        memcpy(own, z, (size_t)u->fine * sizeof *own);
        own[u->fine] = (float)sqrt(rest);
        for (int64_t i = u->size; i < u->fine; i++) { /* the directions left out belong to the rest */
            rest += (double)z[i] * (double)z[i];
        }
    }
    for (int64_t i = 0; i < u->size; i++) {
        panel[i * NAPIER_PANEL + j] = z[i];
    }
    panel[u->size * NAPIER_PANEL + j] = (float)sqrt(rest);
}

void napier_subspace_panel(const napier_subspace *u, const napier_points *points, const uint32_t *rows, int count,
                           float *scratch, float *panel, float *fine, float *outline, float *halves, float *slacks) {
    float *centred = scratch, *z = centred + NAPIER_PANEL * u->width;
    float *product = z + NAPIER_PANEL * directions_width(u);
    double *sums = (double *)(void *)(product + NAPIER_PANEL * NAPIER_PANEL);
    double rests[NAPIER_PANEL];
    const int64_t coordinates = napier_subspace_coordinates(u);
    for (int r = 0; r < count; r++) {
        napier_subspace_centre(u, points->rows + (int64_t)rows[r] * u->width, centred + r * u->width);
    }
    if (u->panels > 0) {
        project(u, centred, count, z, product, sums);
    }
    if (u->size > 0) {
        measure_rests(u, centred, count, z, product, rests);
    }
    memset(panel, 0, (size_t)(coordinates * NAPIER_PANEL) * sizeof *panel);
    for (int r = 0; r < NAPIER_PANEL; r++) {
        halves[r] = HUGE_VALF;
        slacks[r] = 0;
    }
    for (int r = 0; r < count; r++) {
        const float *row = centred + r * u->width;
        if (u->size > 0) {
            place_directions(u, z + r * directions_width(u), rests[r], panel, r, fine);
        } else {
            for (int64_t i = 0; i < coordinates; i++) {
                panel[i * NAPIER_PANEL + r] = row[i];
            }
        }
        const double squared_length = (double)u->kernels->linear->dot(row, row, u->width);
        finish_point(u, panel, fine, r, 1.001 * squared_length, &halves[r], &slacks[r]);
        for (int64_t i = 0; i < u->outline; i++) {
            outline[i * NAPIER_PANEL + r] = slacks[r] < OUT_OF_MEASURE ? z[r * directions_width(u) + i] : 0.0f;
        }
    }
}

float napier_subspace_limit(const napier_subspace *u, napier_points_kind kind, float distance) {
    const double d = (double)distance, scale = (double)u->scale;
    double squared = kind == NAPIER_POINTS_HALF ? 2 * d : kind == NAPIER_POINTS_HALF_ROOT ? 2 * d * d : d * d;
    squared *= 1 + 16 * ROUNDING; /* rounding of roots and halves */
    /* The measured squared distance may be less than the true one by rounding or underflow. */
    squared = (squared + (double)(u->width + 4) * 0x1p-148) * (1 + 2 * chain_error(u->width / 64 + 16));
    const double limit = -0.5 * squared * scale * scale * (1 + SPREAD) * (1 + 4 * ROUNDING);
    return limit < -3e38 ? -HUGE_VALF : (float)limit - 0x1p-126f;
}
