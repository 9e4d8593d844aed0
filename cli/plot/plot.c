/* cli/plot/plot.c - the scene, which is everything in a plot that does not depend on the file format; chooses its
 * writer. */
#include "plot.h"

#include "io/format.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The colour of points without a label, or whose category has no colour of its own. */
static const colour grey = {0xb8, 0xbc, 0xc2};

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

/* Chooses the categories with a colour of their own: the largest, and among equals by name. Sets shades[c] = 0 for
 * them, -1 for others. */
static void choose_coloured(plot_scene *s) {
    const labels *const l = s->plot->labels;
    int32_t *const shades = s->category_shades;
    for (int32_t c = 0; c < l->categories; c++) {
        shades[c] = -1;
    }
    s->coloured = l->categories < PALETTE_MOST ? (int)l->categories : PALETTE_MOST;
    for (int chosen = 0; chosen < s->coloured; chosen++) {
        int32_t best = -1;
        for (int32_t c = 0; c < l->categories; c++) {
            if (shades[c] < 0 && (best < 0 || l->sizes[c] > l->sizes[best])) {
                best = c;
            }
        }
        shades[best] = 0;
        s->largest[chosen] = best;
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
    const int coloured = s->coloured;
    int64_t rest = 0;
    int64_t unknown = l->count;
    int used = 0;
    for (int32_t c = 0; c < l->categories; c++) {
        unknown -= l->sizes[c];
        if (shades[c] < 0) {
            shades[c] = coloured;
            rest += l->sizes[c];
            continue;
        }
        shades[c] = used;
        s->shades[used] = palette_category(used, coloured);
        add_entry(s, s->shades[used], *l->names[c] != '\0' ? l->names[c] : "(blank)", l->sizes[c], l->names[c]);
        used++;
    }
    s->shades[coloured] = grey;
    if (l->categories > coloured) {
        char text[PLOT_TEXT];
        snprintf(text, sizeof text, "%" PRId32 " more", l->categories - coloured);
        add_entry(s, grey, text, rest, NULL);
    }
    if (unknown > 0) {
        add_entry(s, grey, "(no label)", unknown, NULL);
    }
    for (int64_t i = 0; i < l->count; i++) {
        s->shade[i] = (uint8_t)(l->codes[i] < 0 ? coloured : shades[l->codes[i]]);
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
        s->shades[0] = palette_category(0, 1);
        s->shades[1] = grey;
        return STATUS_OK;
    }
}

/* ---- Names on the map -------------------------------------------------------------------------------------------- */

static int compare_floats(const void *a, const void *b) {
    const float x = *(const float *)a;
    const float y = *(const float *)b;
    return (x > y) - (x < y);
}

/* The middle and extent of a category: medians, and where the outer twentieths begin, in both directions. */
typedef struct middle {
    double x, y, left, right, top, bottom;
} middle;

static middle find_medians(const plot_scene *s, int32_t category, float *room) {
    const labels *const l = s->plot->labels;
    double found[2][3];
    for (int axis = 0; axis < 2; axis++) {
        const float *const from = axis == 0 ? s->x : s->y;
        int64_t count = 0;
        for (int64_t i = 0; i < l->count; i++) {
            if (l->codes[i] == category) {
                room[count++] = from[i];
            }
        }
        qsort(room, (size_t)count, sizeof *room, compare_floats);
        found[axis][0] = (double)room[count / 20];
        found[axis][1] = (double)room[count / 2];
        found[axis][2] = (double)room[count - 1 - count / 20];
    }
    return (middle){found[0][1], found[1][1], found[0][0], found[0][2], found[1][0], found[1][2]};
}

/* Letters are about 0.6 of their height wide. */
static double half_width(const plot_name *name) { return 0.32 * PLOT_NAME_SIZE * letters_of(name->text) + 4; }

/* Places a name at the point that is nearest to both medians, which is inside the class even if the class is bent. If
 * the name would hide a small class, it is placed above it. */
static void place_name(const plot_scene *s, float *room, plot_name *name) {
    const labels *const l = s->plot->labels;
    const middle m = find_medians(s, name->category, room);
    double best = (double)INFINITY;
    for (int64_t i = 0; i < l->count; i++) {
        const double x = (double)s->x[i] - m.x;
        const double y = (double)s->y[i] - m.y;
        if (l->codes[i] == name->category && x * x + y * y < best) {
            best = x * x + y * y;
            name->x = (double)s->x[i];
            name->y = (double)s->y[i];
            name->point = i;
        }
    }
    const double half = half_width(name);
    if (m.right - m.left < 2 * half + 10 && m.bottom - m.top < 3 * PLOT_NAME_SIZE) {
        name->lift = floor(name->y - m.top) + PLOT_NAME_SIZE;
        name->y -= name->lift;
    }
    name->x = smaller(larger(name->x, s->area_x + half), s->area_x + s->area_width - half);
    name->y = larger(name->y, s->area_y + 0.7 * PLOT_NAME_SIZE);
}

static bool collides(const plot_scene *s, const plot_name *name) {
    for (int i = 0; i < s->name_count; i++) {
        const plot_name *const other = &s->names[i];
        if (fabs(other->x - name->x) < half_width(other) + half_width(name) && fabs(other->y - name->y) < 18) {
            return true;
        }
    }
    return false;
}

/* Places names, the largest categories first. A name that would overlap another is left out, and so are long ones, and
 * those of categories whose points all have no place on the map. */
static int make_names(plot_scene *s) {
    const labels *const l = s->plot->labels;
    enum { LONGEST = 16 };
    if (l->type != LABELS_CATEGORIES || l->categories < 2 || s->plot->components == 1) {
        return STATUS_OK;
    }
    float *const room = malloc((size_t)l->count * sizeof *room);
    if (room == NULL) {
        return out_of_memory("plot");
    }
    for (int i = 0; i < s->coloured && l->sizes[s->largest[i]] > 0; i++) {
        const int32_t best = s->largest[i];
        plot_name name = {.category = best};
        plot_shorten(name.text, l->names[best], LONGEST);
        place_name(s, room, &name);
        if (*name.text != '\0' && letters_of(l->names[best]) <= LONGEST && !collides(s, &name)) {
            s->names[s->name_count++] = name;
        }
    }
    free(room);
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
    const int status = make_legend(s) || make_names(s);
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
