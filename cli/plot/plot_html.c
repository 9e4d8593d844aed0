/* cli/plot/plot_html.c - writes the scene as one HTML file: inserts the title and the data into plot_page.html, which
 * the build turns into plot_page.h. */
#include "plot.h"

#include "io/array.h"

/* A build without CMake has no page. */
#if defined(__has_include)
#if __has_include("plot_page.h")
#include "plot_page.h"
#define PLOT_HAS_PAGE 1
#endif
#endif
#if !defined(PLOT_HAS_PAGE)
#define PLOT_HAS_PAGE 0
static const unsigned char plot_page[] = "@TITLE@@DATA@";
#endif

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Adds numbers of `size` bytes, little-endian, as a JSON string. Changes their byte order in place on a big-endian
 * machine. */
static void add_wide_numbers(buffer *b, const char *name, void *numbers, size_t size, int64_t count) {
    if (machine_is_big_endian()) {
        bytes_swap(numbers, size, count);
    }
    buffer_print(b, ",\n\"%s\":\"", name);
    buffer_base64(b, numbers, size * (size_t)count);
    buffer_text(b, "\"");
}

static void add_numbers(buffer *b, const char *name, void *numbers, int64_t count) {
    add_wide_numbers(b, name, numbers, 4, count);
}

static void add_places(const plot_scene *s, buffer *b, float *room) {
    const int64_t count = s->plot->count;
    float *const x = room + 2 * count, *const y = room + 3 * count;
    plot_components(s->plot, x, y);
    for (int64_t i = 0; i < count; i++) {
        room[2 * i] = x[i];
        room[2 * i + 1] = y[i];
    }
    add_numbers(b, "xy", room, 2 * count);
}

static void add_colour_list(buffer *b, const char *name, const colour *colours, int count) {
    buffer_print(b, ",\n\"%s\":[", name);
    for (int i = 0; i < count; i++) {
        buffer_print(b, "%s\"#%02x%02x%02x\"", i > 0 ? "," : "", colours[i].red, colours[i].green, colours[i].blue);
    }
    buffer_text(b, "]");
}

/* Adds the colours of categories on white and on dark paper. The last one, the grey, is the same on both. */
static void add_colours(const plot_scene *s, buffer *b, int count) {
    colour dark[PLOT_COLOURED + 1];
    for (int i = 0; i < count; i++) {
        dark[i] = i < count - 1 ? palette_category(i, true) : s->shades[i];
    }
    add_colour_list(b, "colours", s->shades, count);
    add_colour_list(b, "dark", dark, count);
}

/* Adds "NAME":[...], the names of all categories. */
static void add_names(buffer *b, const char *name, const labels *l) {
    buffer_print(b, ",\n\"%s\":[", name);
    for (int32_t c = 0; c < l->categories; c++) {
        buffer_text(b, c > 0 ? "," : "");
        buffer_json(b, l->names[c]);
    }
    buffer_text(b, "]");
}

static void add_codes(buffer *b, const char *name, const labels *l, int32_t *room) {
    memcpy(room, l->codes, (size_t)l->count * sizeof *room);
    add_numbers(b, name, room, l->count);
}

static void add_categories(const plot_scene *s, buffer *b, int32_t *room) {
    const labels *const l = s->plot->labels;
    add_codes(b, "codes", l, room);
    add_names(b, "names", l);
    buffer_text(b, ",\n\"sizes\":[");
    for (int32_t c = 0; c < l->categories; c++) {
        buffer_print(b, "%s%" PRId64, c > 0 ? "," : "", l->sizes[c]);
    }
    buffer_text(b, "],\n\"shades\":[");
    for (int32_t c = 0; c < l->categories; c++) {
        buffer_print(b, "%s%" PRId32, c > 0 ? "," : "", s->category_shades[c]);
    }
    buffer_text(b, "],\n\"noise\":[");
    bool first = true;
    for (int32_t c = 0; c < l->categories; c++) {
        if (plot_is_noise(l->names[c])) {
            buffer_print(b, "%s%" PRId32, first ? "" : ",", c);
            first = false;
        }
    }
    buffer_text(b, "]");
    add_colours(s, b, s->coloured + 1);
}

/* Adds values as floats, or as doubles if the range of float is too small. */
static void add_values(const plot_scene *s, buffer *b, void *room) {
    const labels *const l = s->plot->labels;
    const bool any = l->least <= l->most;
    const bool wide = any && (l->most > (double)FLT_MAX || l->least < -(double)FLT_MAX);
    for (int64_t i = 0; i < l->count; i++) {
        const double value = isfinite(l->numbers[i]) ? l->numbers[i] : (double)NAN;
        if (wide) {
            ((double *)room)[i] = value;
        } else {
            ((float *)room)[i] = (float)value;
        }
    }
    add_wide_numbers(b, "values", room, wide ? sizeof(double) : sizeof(float), l->count);
    buffer_text(b, wide ? ",\n\"wide\":true" : "");
    buffer_print(b, ",\n\"least\":%.17g,\"most\":%.17g", any ? l->least : 0, any ? l->most : 0);
    add_colour_list(b, "colours", s->shades, PLOT_SHADES);
}

static void add_marks(const plot_scene *s, buffer *b) {
    buffer_text(b, ",\n\"marks\":[");
    for (int i = 0; i < s->name_count; i++) {
        const plot_name *const name = &s->names[i];
        buffer_print(b, "%s[%" PRId32 ",%" PRId64 "]", i > 0 ? "," : "", name->category, name->point);
    }
    buffer_text(b, "],\n\"ticks\":[");
    for (int i = 0; i < s->tick_count; i++) {
        buffer_print(b, "%s[%.6f,", i > 0 ? "," : "", s->ticks[i].at);
        buffer_json(b, s->ticks[i].text);
        buffer_text(b, "]");
    }
    buffer_text(b, "]");
}

static void add_data(const plot_scene *s, buffer *b, void *room) {
    static const char *const kinds[] = {"none", "categories", "numbers"};
    const plot *const p = s->plot;
    buffer_print(b, "{\"count\":%" PRId64 ",\"kind\":\"%s\",\"flat\":%s", p->count, kinds[p->labels->type],
                 p->components == 1 ? "true" : "false");
    buffer_text(b, ",\n\"title\":");
    buffer_json(b, p->title != NULL ? p->title : "");
    buffer_text(b, ",\"subtitle\":");
    buffer_json(b, s->subtitle);
    buffer_print(b, ",\n\"radius\":%.4f,\"opacity\":%.4f,\"fit\":%.9g", s->radius, s->opacity,
                 s->scale > 0 ? s->scale : 1.0);
    add_places(s, b, room);
    if (p->labels->type == LABELS_CATEGORIES) {
        add_categories(s, b, room);
    } else if (p->labels->type == LABELS_NUMBERS) {
        add_values(s, b, room);
    } else {
        add_colours(s, b, 2);
    }
    if (p->hover->type == LABELS_CATEGORIES) {
        add_codes(b, "hover", p->hover, room);
        add_names(b, "texts", p->hover);
    }
    add_marks(s, b);
    buffer_text(b, "}");
}

/* Adds the page up to a mark and moves *from behind it. */
static void add_up_to(buffer *b, const char **from, const char *mark) {
    const char *const found = strstr(*from, mark);
    buffer_add(b, *from, (size_t)(found - *from));
    *from = found + strlen(mark);
}

int plot_html(const plot_scene *s, buffer *b) {
    if (!PLOT_HAS_PAGE) {
        return complain("plot: this program was built without CMake, which puts the page of .html plots into it");
    }
    void *const room = malloc(4 * (size_t)s->plot->count * sizeof(float));
    if (room == NULL) {
        return out_of_memory("plot");
    }
    const char *from = (const char *)plot_page;
    add_up_to(b, &from, "@TITLE@");
    buffer_xml(b, s->plot->title != NULL ? s->plot->title : s->subtitle);
    add_up_to(b, &from, "@DATA@");
    add_data(s, b, room);
    buffer_text(b, from);
    free(room);
    return STATUS_OK;
}
