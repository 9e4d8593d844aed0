/* cli/plot/plot_png.c - writes the scene as PNG. This file paints points, legend marks and the bar in floating point:
 * many faint discs over one another keep their shades, which 8 bits would round away. cairo writes the letters and the
 * file. */
#include "plot.h"

#ifdef NAPIER_CAIRO

#include <cairo.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SCALE = 2 /* image pixels per pixel of the page: sharp on high-density screens and on paper */ };

bool plot_has_png(void) { return true; }

/* ---- Painting ---------------------------------------------------------------------------------------------------- */

typedef struct canvas {
    int width, height;
    float *pixels; /* [height][width][3], 0 to 1 */
} canvas;

static void blend(const canvas *p, int x, int y, colour c, float opacity) {
    float *const pixel = p->pixels + 3 * ((size_t)y * (size_t)p->width + (size_t)x);
    const float paint[3] = {c.red / 255.0f, c.green / 255.0f, c.blue / 255.0f};
    for (int i = 0; i < 3; i++) {
        pixel[i] += opacity * (paint[i] - pixel[i]);
    }
}

static int clamp(double value, int least, int most) { return value < least ? least : value > most ? most : (int)value; }

/* A pixel's coverage is the part of it inside the edge, taken as straight: half if the edge runs through its middle. A
 * disc smaller than a pixel is fainter in proportion. */
static void paint_disc(const canvas *p, double x, double y, double radius, colour c, double opacity) {
    const double r = radius < 0.5 ? 0.5 : radius;
    const double faint = opacity * (radius / r) * (radius / r);
    const int left = clamp(floor(x - r), 0, p->width - 1);
    const int right = clamp(floor(x + r), 0, p->width - 1);
    const int top = clamp(floor(y - r), 0, p->height - 1);
    const int bottom = clamp(floor(y + r), 0, p->height - 1);
    for (int row = top; row <= bottom; row++) {
        for (int column = left; column <= right; column++) {
            const double dx = column + 0.5 - x;
            const double dy = row + 0.5 - y;
            const double inside = r + 0.5 - sqrt(dx * dx + dy * dy);
            if (inside > 0) {
                blend(p, column, row, c, (float)(faint * (inside < 1 ? inside : 1)));
            }
        }
    }
}

static void paint_rectangle(const canvas *p, int x, int y, int width, int height, colour c) {
    for (int row = y; row < y + height && row < p->height; row++) {
        for (int column = x; column < x + width && column < p->width; column++) {
            blend(p, column, row, c, 1.0f);
        }
    }
}

static void paint_frame(const plot_scene *s, const canvas *p) {
    const colour line = {0xe3, 0xe6, 0xea};
    const int x = (int)(s->area_x * SCALE) - 2;
    const int y = (int)(s->area_y * SCALE) - 2;
    const int width = (int)(s->area_width * SCALE) + 4;
    const int height = (int)(s->area_height * SCALE) + 4;
    paint_rectangle(p, x, y, width, 2, line);
    paint_rectangle(p, x, y + height - 2, width, 2, line);
    paint_rectangle(p, x, y, 2, height, line);
    paint_rectangle(p, x + width - 2, y, 2, height, line);
}

static void paint_bar(const plot_scene *s, const canvas *p) {
    const colour grey = {0x6a, 0x73, 0x7d};
    const int x = (int)plot_legend_x(s) * SCALE;
    const int y = (int)s->area_y * SCALE;
    const int height = PLOT_BAR_HEIGHT * SCALE;
    for (int row = 0; row < height; row++) {
        paint_rectangle(p, x, y + row, PLOT_BAR_WIDTH * SCALE, 1, palette_value(1 - (row + 0.5) / height));
    }
    for (int i = 0; i < s->tick_count; i++) {
        const int at = y + (int)((1 - s->ticks[i].at) * (height - 1) + 0.5);
        paint_rectangle(p, x + (PLOT_BAR_WIDTH + 1) * SCALE, at - 1, 4 * SCALE, 2, grey);
    }
}

static void paint(const plot_scene *s, const canvas *p) {
    paint_frame(s, p);
    for (int64_t i = 0; i < s->plot->count; i++) {
        const uint32_t at = s->order[i];
        paint_disc(p, (double)s->x[at] * SCALE, (double)s->y[at] * SCALE, s->radius * SCALE, s->shades[s->shade[at]],
                   s->opacity);
    }
    if (s->has_bar) {
        paint_bar(s, p);
    }
    for (int i = 0; i < s->entry_count; i++) {
        paint_disc(p, (plot_legend_x(s) + 6) * SCALE, plot_entry_y(s, i) * SCALE, 5.5 * SCALE, s->entries[i].colour, 1);
    }
}

/* To cairo's RGB24: 0x00RRGGBB in each 32-bit word. */
static void to_surface(const canvas *p, cairo_surface_t *surface) {
    cairo_surface_flush(surface);
    unsigned char *const bytes = cairo_image_surface_get_data(surface);
    const size_t stride = (size_t)cairo_image_surface_get_stride(surface);
    for (int y = 0; y < p->height; y++) {
        for (int x = 0; x < p->width; x++) {
            const float *const pixel = p->pixels + 3 * ((size_t)y * (size_t)p->width + (size_t)x);
            uint32_t word = 0;
            for (int i = 0; i < 3; i++) {
                word = word << 8 | (uint32_t)(pixel[i] * 255.0f + 0.5f);
            }
            memcpy(bytes + (size_t)y * stride + (size_t)x * sizeof word, &word, sizeof word);
        }
    }
    cairo_surface_mark_dirty(surface);
}

/* ---- Letters ----------------------------------------------------------------------------------------------------- */

typedef enum align { ALIGN_LEFT, ALIGN_MIDDLE, ALIGN_RIGHT } align;

static void set_font(cairo_t *cairo, int size, bool bold) {
    cairo_select_font_face(cairo, "sans-serif", CAIRO_FONT_SLANT_NORMAL,
                           bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
    cairo_set_font_size(cairo, size);
}

static void set_ink(cairo_t *cairo, unsigned ink) {
    cairo_set_source_rgb(cairo, (ink >> 16) / 255.0, (ink >> 8 & 255) / 255.0, (ink & 255) / 255.0);
}

enum { DARK = 0x24292f, GREY = 0x6a737d };

static void move_to(cairo_t *cairo, double x, double y, align side, const char *text) {
    cairo_text_extents_t size;
    cairo_text_extents(cairo, text, &size);
    cairo_move_to(cairo, x - (side == ALIGN_LEFT ? 0 : side == ALIGN_MIDDLE ? size.x_advance / 2 : size.x_advance), y);
}

static void write_text(cairo_t *cairo, double x, double y, align side, const char *text) {
    move_to(cairo, x, y, side, text);
    cairo_show_text(cairo, text);
}

/* Writes as many characters as fit into the width. */
static void write_fitting(cairo_t *cairo, double x, double y, double width, const char *text) {
    char shown[PLOT_TEXT];
    cairo_text_extents_t size;
    int letters = 80;
    do {
        plot_shorten(shown, text, letters);
        cairo_text_extents(cairo, shown, &size);
    } while (size.x_advance > width && --letters > 1);
    write_text(cairo, x, y, ALIGN_LEFT, shown);
}

static void write_names(const plot_scene *s, cairo_t *cairo) {
    set_font(cairo, s->name_size, true);
    cairo_set_line_join(cairo, CAIRO_LINE_JOIN_ROUND);
    cairo_set_line_width(cairo, 4);
    for (int layer = 0; layer < 2; layer++) {
        for (int i = 0; i < s->name_count; i++) {
            const plot_name *const name = &s->names[i];
            if (!name->shown) {
                continue;
            }
            move_to(cairo, name->x, name->y + 0.36 * s->name_size, ALIGN_MIDDLE, name->text);
            cairo_text_path(cairo, name->text);
            if (layer == 0) {
                cairo_set_source_rgba(cairo, 1, 1, 1, 0.85);
                cairo_stroke(cairo);
            } else {
                set_ink(cairo, DARK);
                cairo_fill(cairo);
            }
        }
    }
}

static void write_legend(const plot_scene *s, cairo_t *cairo) {
    const double x = plot_legend_x(s);
    set_font(cairo, PLOT_LEGEND_SIZE, false);
    set_ink(cairo, DARK);
    for (int i = 0; i < s->tick_count; i++) {
        const double y = s->area_y + (1 - s->ticks[i].at) * PLOT_BAR_HEIGHT;
        write_text(cairo, x + PLOT_BAR_WIDTH + 9, y + 0.36 * PLOT_LEGEND_SIZE, ALIGN_LEFT, s->ticks[i].text);
    }
    for (int i = 0; i < s->entry_count; i++) {
        const plot_entry *const e = &s->entries[i];
        const double y = plot_entry_y(s, i) + 0.36 * PLOT_LEGEND_SIZE;
        cairo_text_extents_t size;
        cairo_text_extents(cairo, e->count, &size);
        set_ink(cairo, GREY);
        write_text(cairo, x + s->legend_width, y, ALIGN_RIGHT, e->count);
        set_ink(cairo, DARK);
        write_fitting(cairo, x + 20, y, s->legend_width - 20 - 10 - size.x_advance, e->name);
    }
}

static void write_all(const plot_scene *s, cairo_t *cairo) {
    cairo_scale(cairo, SCALE, SCALE);
    if (s->plot->title != NULL) {
        set_font(cairo, PLOT_TITLE_SIZE, true);
        set_ink(cairo, DARK);
        write_fitting(cairo, PLOT_MARGIN, 42, s->width - 2 * PLOT_MARGIN, s->plot->title);
    }
    set_font(cairo, PLOT_SUBTITLE_SIZE, false);
    set_ink(cairo, GREY);
    write_text(cairo, PLOT_MARGIN, s->area_y - 16, ALIGN_LEFT, s->subtitle);
    write_names(s, cairo);
    write_legend(s, cairo);
}

/* ---- The file ---------------------------------------------------------------------------------------------------- */

static cairo_status_t add_to_buffer(void *user, const unsigned char *bytes, unsigned size) {
    buffer *const b = user;
    buffer_add(b, bytes, size);
    return b->failed ? CAIRO_STATUS_NO_MEMORY : CAIRO_STATUS_SUCCESS;
}

static cairo_status_t draw(const plot_scene *s, const canvas *p, buffer *b) {
    cairo_surface_t *const surface = cairo_image_surface_create(CAIRO_FORMAT_RGB24, p->width, p->height);
    cairo_status_t status = cairo_surface_status(surface);
    if (status == CAIRO_STATUS_SUCCESS) {
        to_surface(p, surface);
        cairo_t *const cairo = cairo_create(surface);
        write_all(s, cairo);
        status = cairo_status(cairo);
        cairo_destroy(cairo);
    }
    if (status == CAIRO_STATUS_SUCCESS) {
        status = cairo_surface_write_to_png_stream(surface, add_to_buffer, b);
    }
    cairo_surface_destroy(surface);
    return status;
}

int plot_png(const plot_scene *s, buffer *b) {
    canvas p = {.width = (int)s->width * SCALE, .height = (int)s->height * SCALE};
    const size_t count = 3 * (size_t)p.width * (size_t)p.height;
    p.pixels = malloc(count * sizeof *p.pixels);
    if (p.pixels == NULL) {
        return out_of_memory("plot");
    }
    for (size_t i = 0; i < count; i++) {
        p.pixels[i] = 1.0f;
    }
    paint(s, &p);
    const cairo_status_t status = draw(s, &p, b);
    free(p.pixels);
    return status == CAIRO_STATUS_SUCCESS ? STATUS_OK : complain("plot: %s", cairo_status_to_string(status));
}

#else

bool plot_has_png(void) { return false; }

int plot_png(const plot_scene *s, buffer *b) {
    (void)s;
    (void)b;
    return complain("plot: this build has no cairo, which .png needs");
}

#endif
