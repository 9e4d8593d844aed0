/* cli/plot/plot.c - the scene, which is everything in a plot that does not depend on the file format; chooses its
 * writer. */
#include "plot.h"

#include "io/format.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The colour of points without a label, of noise, and of categories without a shade of their own. */
static const colour grey = {0x8c, 0x92, 0x99};

static double smaller(double a, double b) { return a < b ? a : b; }
static double larger(double a, double b) { return a > b ? a : b; }

/* ---- Text -------------------------------------------------------------------------------------------------------- */

/* 1797 as "1,797". */
static void count_text(char out[32], int64_t count) {
    char digits[24];
    const int size = snprintf(digits, sizeof digits, "%" PRId64, count);
    char *to = out;
    for (int i = 0; i < size; i++) {
        if (i > 0 && (size - i) % 3 == 0) {
            *to++ = ',';
        }
        *to++ = digits[i];
    }
    *to = '\0';
}

/* The byte after the first `letters` characters, at most `most` bytes away. */
static const char *behind(const char *text, int letters, int most) {
    const char *at = text;
    const char *good = text;
    while (*at != '\0' && letters > 0) {
        at++;
        while ((*at & 0xc0) == 0x80) {
            at++;
        }
        if (at - text > most) {
            break;
        }
        good = at;
        letters--;
    }
    return good;
}

void plot_shorten(char out[PLOT_TEXT], const char *text, int letters) {
    const char *end = behind(text, letters, PLOT_TEXT - 4);
    const bool whole = *end == '\0';
    if (!whole) {
        end = behind(text, letters - 1, PLOT_TEXT - 4);
    }
    const size_t size = (size_t)(end - text);
    memcpy(out, text, size);
    memcpy(out + size, whole ? "" : "\xe2\x80\xa6", whole ? 1 : 4);
}

static int letters_of(const char *text) {
    int letters = 0;
    for (; *text != '\0'; text++) {
        letters += (*text & 0xc0) != 0x80;
    }
    return letters;
}

static void make_subtitle(plot_scene *s) {
    const plot *const p = s->plot;
    char count[32], more[64] = "";
    count_text(count, p->count);
    if (p->components > 2) {
        snprintf(more, sizeof more, ", components 1 and 2 of %" PRId64, p->components);
    }
    snprintf(s->subtitle, sizeof s->subtitle, "%s %s%s", count, p->count == 1 ? "point" : "points",
             p->components == 1 ? ", one component; heights are arbitrary" : more);
}

/* ---- Order and place --------------------------------------------------------------------------------------------- */

/* The i-th of a fixed sequence of pseudo-random numbers (splitmix64). */
static uint64_t mixed(uint64_t i) {
    uint64_t z = (i + 1) * 0x9e3779b97f4a7c15U;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9U;
    z = (z ^ z >> 27) * 0x94d049bb133111ebU;
    return z ^ z >> 31;
}

/* The shuffle of Fisher and Yates. */
static void shuffle(uint32_t *order, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        order[i] = (uint32_t)i;
    }
    for (int64_t i = count - 1; i > 0; i--) {
        const int64_t j = (int64_t)(mixed((uint64_t)i) % (uint64_t)(i + 1));
        const uint32_t kept = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
}

typedef struct range {
    double least, most;
} range;

static range range_of(const float *values, int64_t count) {
    range r = {(double)values[0], (double)values[0]};
    for (int64_t i = 1; i < count; i++) {
        r.least = smaller(r.least, (double)values[i]);
        r.most = larger(r.most, (double)values[i]);
    }
    return r;
}

void plot_components(const plot *p, float *x, float *y) {
    for (int64_t i = 0; i < p->count; i++) {
        x[i] = p->map[i * p->components];
        y[i] = p->components > 1 ? p->map[i * p->components + 1] : 0;
    }
    if (p->components == 1) {
        const range width = range_of(x, p->count);
        for (int64_t i = 0; i < p->count; i++) {
            const double height = (double)(mixed((uint64_t)i) >> 40) * 0x1p-24;
            y[i] = (float)(height * 0.125 * (width.most - width.least));
        }
    }
}

/* Uses one scale for both directions; the shorter side gets the length it needs. */
static void place(plot_scene *s) {
    const range x = range_of(s->x, s->plot->count);
    const range y = range_of(s->y, s->plot->count);
    const double inset = 14; /* so that no point is cut off */
    const double room = PLOT_AREA - 2 * inset;
    const double longest = larger(x.most - x.least, y.most - y.least);
    const double scale = longest > 0 ? room / longest : 0;
    s->scale = scale;
    s->area_width = floor(larger((x.most - x.least) * scale + 2 * inset, PLOT_AREA_LEAST) + 0.5);
    s->area_height = floor(larger((y.most - y.least) * scale + 2 * inset, PLOT_AREA_LEAST) + 0.5);
    s->area_x = PLOT_MARGIN;
    s->area_y = s->plot->title != NULL ? 80 : 52;
    const double middle_x = 0.5 * (x.least + x.most);
    const double middle_y = 0.5 * (y.least + y.most);
    for (int64_t i = 0; i < s->plot->count; i++) {
        s->x[i] = (float)(s->area_x + 0.5 * s->area_width + ((double)s->x[i] - middle_x) * scale);
        s->y[i] = (float)(s->area_y + 0.5 * s->area_height - ((double)s->y[i] - middle_y) * scale);
    }
}

/* Radius and opacity fall with the number of points: 2.2 and 0.9 up to 1,000, 0.66 and 0.54 at 100,000. */
static void choose_marks(plot_scene *s) {
    const double ratio = larger((double)s->plot->count / 1000, 1);
    s->radius = larger(2.2 * pow(ratio, -0.26), 0.45);
    s->opacity = larger(0.9 * pow(ratio, -0.11), 0.2);
}

/* ---- Legend ------------------------------------------------------------------------------------------------------ */

static void add_entry(plot_scene *s, colour c, const char *name, int64_t count, const char *whole) {
    plot_entry *const e = &s->entries[s->entry_count++];
    e->colour = c;
    e->whole = whole;
    plot_shorten(e->name, name, 24);
    count_text(e->count, count);
}

bool plot_is_noise(const char *name) {
    return strcmp(name, "-1") == 0 || strncmp(name, "-1_", 3) == 0 || (strlen(name) == 5 && ends_in(name, "noise")) ||
           (strlen(name) == 3 && ends_in(name, "nan"));
}

/* Chooses the categories with a shade of their own: the largest, and among equals by name. Sets shades[c] = 0 for them,
 * -1 for others. */
static void choose_coloured(plot_scene *s) {
    const labels *const l = s->plot->labels;
    int32_t *const shades = s->category_shades;
    int32_t named = 0;
    for (int32_t c = 0; c < l->categories; c++) {
        shades[c] = plot_is_noise(l->names[c]) ? -2 : -1;
        named += shades[c] == -1;
    }
    s->coloured = named < PLOT_COLOURED ? (int)named : PLOT_COLOURED;
    for (int chosen = 0; chosen < s->coloured; chosen++) {
        int32_t best = -1;
        for (int32_t c = 0; c < l->categories; c++) {
            if (shades[c] == -1 && (best < 0 || l->sizes[c] > l->sizes[best])) {
                best = c;
            }
        }
        shades[best] = 0;
        s->largest[chosen] = best;
    }
}

/* Entries of the categories in their order, then of noise, then of points without a label. */
static void list_categories(plot_scene *s) {
    const labels *const l = s->plot->labels;
    int64_t unknown = l->count;
    for (int noise = 0; noise < 2; noise++) {
        for (int32_t c = 0; c < l->categories; c++) {
            const bool is_grey = s->category_shades[c] == s->coloured;
            if (is_grey == (noise == 1) && s->entry_count < PALETTE_MOST + PLOT_NOISE) {
                add_entry(s, s->shades[s->category_shades[c]], *l->names[c] != '\0' ? l->names[c] : "(blank)",
                          l->sizes[c], l->names[c]);
                unknown -= l->sizes[c];
            }
        }
    }
    if (unknown > 0) {
        add_entry(s, grey, "(no label)", unknown, NULL);
    }
}

static int legend_of_categories(plot_scene *s) {
    const labels *const l = s->plot->labels;
    s->category_shades = calloc((size_t)l->categories + 1, sizeof *s->category_shades);
    if (s->category_shades == NULL) {
        return out_of_memory("plot");
    }
    int32_t *const shades = s->category_shades;
    choose_coloured(s);
    int used = 0;
    for (int32_t c = 0; c < l->categories; c++) {
        if (shades[c] < 0) {
            shades[c] = s->coloured;
            continue;
        }
        shades[c] = used;
        s->shades[used] = palette_category(used, false);
        used++;
    }
    s->shades[s->coloured] = grey;
    if (s->coloured <= PALETTE_MOST) {
        list_categories(s);
    }
    for (int64_t i = 0; i < l->count; i++) {
        s->shade[i] = (uint8_t)(l->codes[i] < 0 ? s->coloured : shades[l->codes[i]]);
    }
    return STATUS_OK;
}

/* The least step of 1, 2 or 5 times a power of ten that divides the range into at most five. */
static double nice_step(double length) {
    double power = 1;
    while (power > length && power > 1e-300) {
        power /= 10;
    }
    while (power * 10 <= length) {
        power *= 10;
    }
    const double steps[] = {0.2, 0.5, 1, 2, 5, 10};
    int i = 0;
    while (steps[i] * power * 5 < length) {
        i++;
    }
    return steps[i] * power;
}

static void tick_text(char text[32], double value, double step) {
    int digits = 0;
    double unit = step;
    while (unit < 0.9999 && digits < 6) {
        unit *= 10;
        digits++;
    }
    if ((step > 0 && step < 1e-5) || fabs(value) >= 1e7) {
        snprintf(text, 32, "%.4g", value);
    } else {
        snprintf(text, 32, "%.*f", digits, value == 0 ? 0.0 : value);
    }
}

static void add_ticks(plot_scene *s, double least, double most) {
    if (isinf(most - least)) {
        snprintf(s->ticks[0].text, sizeof s->ticks[0].text, "%.4g", least);
        snprintf(s->ticks[1].text, sizeof s->ticks[1].text, "%.4g", most);
        s->ticks[1].at = 1;
        s->tick_count = 2;
        return;
    }
    if (!(most > least)) {
        s->ticks[0].at = 0.5;
        snprintf(s->ticks[0].text, sizeof s->ticks[0].text, "%.6g", least);
        s->tick_count = 1;
        return;
    }
    const double step = nice_step(most - least);
    const double first = ceil(least / step - 1e-9);
    for (int i = 0; i < PLOT_TICKS; i++) {
        const double value = (first + i) * step;
        if (value > most + 1e-9 * step) {
            break;
        }
        s->ticks[i].at = (value - least) / (most - least);
        tick_text(s->ticks[i].text, value, step);
        s->tick_count = i + 1;
    }
}

static void legend_of_values(plot_scene *s) {
    const labels *const l = s->plot->labels;
    const bool any = l->least <= l->most;
    const double length = l->most / 2 - l->least / 2; /* halves: the whole may be infinite */
    int64_t unknown = 0;
    for (int i = 0; i < PLOT_SHADES - 1; i++) {
        s->shades[i] = palette_value(i / (PLOT_SHADES - 2.0));
    }
    s->shades[PLOT_SHADES - 1] = grey;
    for (int64_t i = 0; i < l->count; i++) {
        const double value = l->numbers[i];
        const bool known = isfinite(value) != 0;
        const double t = known && length > 0 ? (value / 2 - l->least / 2) / length : 0.5;
        unknown += !known;
        s->shade[i] = known ? (uint8_t)floor(smaller(t, 1) * (PLOT_SHADES - 2) + 0.5) : PLOT_SHADES - 1;
    }
    s->has_bar = any;
    if (any) {
        add_ticks(s, l->least, l->most);
    }
    if (unknown > 0) {
        add_entry(s, grey, "(no value)", unknown, NULL);
    }
}

static int make_legend(plot_scene *s) {
    switch (s->plot->labels->type) {
    case LABELS_CATEGORIES: return legend_of_categories(s);
    case LABELS_NUMBERS: legend_of_values(s); return STATUS_OK;
    default:
        s->shades[0] = palette_category(0, false);
        s->shades[1] = grey;
        return STATUS_OK;
    }
}

/* ---- Names on the map -------------------------------------------------------------------------------------------- */

/* The members of each category: those of category c are index[starts[c]] up to starts[c + 1], in ascending order. */
typedef struct members {
    int64_t *starts, *index;
} members;

static int find_members(const labels *l, members *m) {
    m->starts = calloc((size_t)l->categories + 2, sizeof *m->starts);
    m->index = malloc(((size_t)l->count + 1) * sizeof *m->index);
    if (m->starts == NULL || m->index == NULL) {
        return out_of_memory("plot");
    }
    int64_t *const next = m->starts + 1; /* ends as the starts of the categories behind */
    for (int32_t c = 1; c <= l->categories; c++) {
        next[c] = next[c - 1] + l->sizes[c - 1];
    }
    for (int64_t i = 0; i < l->count; i++) {
        if (l->codes[i] >= 0) {
            m->index[next[l->codes[i]]++] = i;
        }
    }
    return STATUS_OK;
}

/* A grid of GRID x GRID cells over the map, and how many members of a category each has. A frame of empty cells is
 * around it. */
enum { GRID = 48, GRID_ROW = GRID + 2 };
typedef struct grid {
    double left, bottom, side;
    int64_t counts[GRID_ROW * GRID_ROW];
} grid;

static grid grid_of(const plot *p) {
    grid g = {.left = (double)INFINITY, .bottom = (double)INFINITY};
    double right = -(double)INFINITY, top = -(double)INFINITY;
    for (int64_t i = 0; i < p->count; i++) {
        const float *const at = p->map + i * p->components;
        g.left = smaller(g.left, (double)at[0]);
        g.bottom = smaller(g.bottom, (double)at[1]);
        right = larger(right, (double)at[0]);
        top = larger(top, (double)at[1]);
    }
    g.side = larger(right - g.left, top - g.bottom) / GRID;
    return g;
}

static int cell_of(double at, double least, double side) {
    const double cell = side > 0 ? floor((at - least) / side) : 0;
    return 1 + (cell < GRID ? (int)cell : GRID - 1);
}

static int grid_cell(const plot *p, const grid *g, int64_t i) {
    const float *const at = p->map + i * p->components;
    return cell_of((double)at[1], g->bottom, g->side) * GRID_ROW + cell_of((double)at[0], g->left, g->side);
}

/* The sum over a cell and the eight around it. */
static int64_t around(const grid *g, int cell) {
    int64_t sum = 0;
    for (int row = cell - GRID_ROW; row <= cell + GRID_ROW; row += GRID_ROW) {
        sum += g->counts[row - 1] + g->counts[row] + g->counts[row + 1];
    }
    return sum;
}

static bool is_around(int cell, int middle) {
    const int rows = cell / GRID_ROW - middle / GRID_ROW;
    const int columns = cell % GRID_ROW - middle % GRID_ROW;
    return rows >= -1 && rows <= 1 && columns >= -1 && columns <= 1;
}

/* The densest point of some: of the 3 x 3 cells with the most of them, the one that is nearest to their mean. The first
 * one among equals. python/napier/_umap/places.py has the same rule. */
static int64_t densest_point(const plot *p, grid *g, const int64_t *index, int64_t count) {
    memset(g->counts, 0, sizeof g->counts);
    for (int64_t k = 0; k < count; k++) {
        g->counts[grid_cell(p, g, index[k])]++;
    }
    int middle = GRID_ROW + 1;
    for (int cell = GRID_ROW + 1; cell < GRID_ROW * (GRID + 1) - 1; cell++) {
        const bool inside = cell % GRID_ROW >= 1 && cell % GRID_ROW <= GRID;
        middle = inside && around(g, cell) > around(g, middle) ? cell : middle;
    }
    double sum_x = 0, sum_y = 0, near = 0;
    for (int64_t k = 0; k < count; k++) {
        if (is_around(grid_cell(p, g, index[k]), middle)) {
            sum_x += (double)p->map[index[k] * p->components];
            sum_y += (double)p->map[index[k] * p->components + 1];
            near++;
        }
    }
    int64_t best = index[0];
    double best_square = (double)INFINITY;
    for (int64_t k = 0; k < count; k++) {
        const double x = (double)p->map[index[k] * p->components] - sum_x / near;
        const double y = (double)p->map[index[k] * p->components + 1] - sum_y / near;
        if (x * x + y * y < best_square) {
            best_square = x * x + y * y;
            best = index[k];
        }
    }
    return best;
}

/* Letters are about 0.6 of their height wide. */
static double half_width(const plot_scene *s, const plot_name *name) {
    return 0.32 * s->name_size * letters_of(name->text) + 4;
}

static bool collides(const plot_scene *s, const plot_name *name) {
    for (int i = 0; i < s->name_count; i++) {
        const plot_name *const other = &s->names[i];
        if (other->shown && fabs(other->x - name->x) < half_width(s, other) + half_width(s, name) &&
            fabs(other->y - name->y) < s->name_size + 4) {
            return true;
        }
    }
    return false;
}

/* Puts a name on its point or, if another one is there, a line above or below. */
static void place_name(const plot_scene *s, plot_name *name) {
    static const int lines[] = {0, -1, 1};
    const double half = half_width(s, name);
    const double left = s->area_x + half, top = s->area_y + 0.7 * s->name_size;
    const double right = s->area_x + s->area_width - half, bottom = s->area_y + s->area_height - 0.7 * s->name_size;
    for (size_t i = 0; i < sizeof lines / sizeof *lines && !name->shown; i++) {
        const double y = (double)s->y[name->point] + lines[i] * (s->name_size + 4);
        name->x = larger(smaller((double)s->x[name->point], right), left);
        name->y = larger(smaller(y, bottom), top);
        name->shown = !collides(s, name);
    }
}

/* Places the names, those of the largest categories first; one for which there is no room is not shown. */
static void place_names(plot_scene *s, const members *m) {
    const plot *const p = s->plot;
    grid g = grid_of(p);
    s->name_size = s->coloured > PALETTE_MOST ? PLOT_SMALL_NAME_SIZE : PLOT_NAME_SIZE;
    for (int i = 0; i < s->coloured; i++) {
        const int32_t c = s->largest[i];
        plot_name name = {.category = c};
        plot_shorten(name.text, p->labels->names[c], PLOT_NAME_LETTERS);
        if (*name.text != '\0' && p->labels->sizes[c] > 0) {
            name.point = densest_point(p, &g, m->index + m->starts[c], p->labels->sizes[c]);
            place_name(s, &name);
            s->names[s->name_count++] = name;
        }
    }
}

static int make_names(plot_scene *s) {
    const labels *const l = s->plot->labels;
    if (l->type != LABELS_CATEGORIES || l->categories < 2 || s->plot->components == 1) {
        return STATUS_OK;
    }
    members m = {0};
    const int status = find_members(l, &m);
    if (status == STATUS_OK) {
        place_names(s, &m);
    }
    free(m.starts);
    free(m.index);
    return status;
}

/* Keeps the order, but the grey points come first, under the others. */
static int put_grey_first(plot_scene *s) {
    const int64_t count = s->plot->count;
    const int last = s->plot->labels->type == LABELS_NUMBERS ? PLOT_SHADES - 1 : s->coloured;
    uint32_t *const sorted = malloc((size_t)count * sizeof *sorted);
    if (sorted == NULL) {
        return out_of_memory("plot");
    }
    int64_t to = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < count; i++) {
            if ((s->shade[s->order[i]] == last) == (pass == 0)) {
                sorted[to++] = s->order[i];
            }
        }
    }
    free(s->order);
    s->order = sorted;
    return STATUS_OK;
}

/* ---- The page ---------------------------------------------------------------------------------------------------- */

double plot_legend_x(const plot_scene *s) { return s->area_x + s->area_width + PLOT_LEGEND_GAP; }

double plot_entry_y(const plot_scene *s, int entry) {
    return s->area_y + 10 + (s->has_bar ? PLOT_BAR_HEIGHT + 14 : 0) + entry * PLOT_ROW;
}

/* The width of the entries, estimated without a font. */
static double legend_width(const plot_scene *s) {
    double widest = s->has_bar ? PLOT_BAR_TOTAL : 0;
    for (int i = 0; i < s->entry_count; i++) {
        const int letters = letters_of(s->entries[i].name) + letters_of(s->entries[i].count);
        widest = larger(widest, 20 + 14 + floor(0.62 * PLOT_LEGEND_SIZE * letters));
    }
    return widest;
}

static void make_page(plot_scene *s) {
    const bool has_legend = s->has_bar || s->entry_count > 0;
    s->legend_width = legend_width(s);
    const double wide = has_legend ? plot_legend_x(s) + s->legend_width : s->area_x + s->area_width;
    const double tall = larger(s->area_y + s->area_height, has_legend ? plot_entry_y(s, s->entry_count) : 0);
    s->width = larger(wide + PLOT_MARGIN, 420);
    s->height = tall + PLOT_MARGIN;
}

static int make_scene(plot_scene *s, const plot *p) {
    memset(s, 0, sizeof *s);
    s->plot = p;
    const size_t count = (size_t)p->count;
    s->x = malloc(count * sizeof *s->x);
    s->y = malloc(count * sizeof *s->y);
    s->shade = calloc(count, sizeof *s->shade);
    s->order = malloc(count * sizeof *s->order);
    if (s->x == NULL || s->y == NULL || s->shade == NULL || s->order == NULL) {
        return out_of_memory("plot");
    }
    shuffle(s->order, p->count);
    plot_components(p, s->x, s->y);
    place(s);
    choose_marks(s);
    make_subtitle(s);
    const int status = make_legend(s) || put_grey_first(s) || make_names(s);
    make_page(s);
    return status;
}

/* ---- The file ---------------------------------------------------------------------------------------------------- */

plot_format plot_format_of(const char *path) {
    if (ends_in(path, ".png")) {
        return PLOT_PNG;
    }
    if (ends_in(path, ".svg")) {
        return PLOT_SVG;
    }
    return ends_in(path, ".html") || ends_in(path, ".htm") ? PLOT_HTML : PLOT_UNKNOWN;
}

int plot_write(const plot *p, const char *path) {
    plot_scene scene;
    buffer page = {0};
    int status = make_scene(&scene, p);
    if (status == STATUS_OK) {
        switch (plot_format_of(path)) {
        case PLOT_PNG: status = plot_png(&scene, &page); break;
        case PLOT_SVG: plot_svg(&scene, &page); break;
        default: status = plot_html(&scene, &page); break;
        }
    }
    status = status || buffer_write(&page, path);
    buffer_free(&page);
    free(scene.x);
    free(scene.y);
    free(scene.shade);
    free(scene.order);
    free(scene.category_shades);
    return status;
}
