/* cli/plot/plot_svg.c - writes the scene as SVG 1.1 in plain text: the same bytes on every machine, with text as
 * text. */
#include "plot.h"

#define FONT "font-family=\"'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif\""

static void add_text(buffer *b, double x, double y, const char *attributes, const char *text) {
    buffer_print(b, "<text x=\"%.1f\" y=\"%.1f\"%s>", x, y, attributes);
    buffer_xml(b, text);
    buffer_text(b, "</text>\n");
}

static void add_head(const plot_scene *s, buffer *b) {
    const char *const title = s->plot->title;
    buffer_print(
        b,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" " FONT
        " font-size=\"%d\" fill=\"#24292f\">\n",
        s->width, s->height, s->width, s->height, (int)PLOT_LEGEND_SIZE);
    buffer_text(b, "<title>");
    buffer_xml(b, title != NULL ? title : s->subtitle);
    buffer_text(b, "</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n");
    if (title != NULL) {
        char shown[PLOT_TEXT];
        plot_shorten(shown, title, 64);
        add_text(b, PLOT_MARGIN, 42, " font-size=\"21\" font-weight=\"bold\"", shown);
    }
    add_text(b, PLOT_MARGIN, s->area_y - 16, " fill=\"#6a737d\"", s->subtitle);
    buffer_print(
        b, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.0f\" height=\"%.0f\" rx=\"4\" fill=\"none\" stroke=\"#e3e6ea\"/>\n",
        s->area_x - 0.5, s->area_y - 0.5, s->area_width + 1, s->area_height + 1);
}

static void add_points(const plot_scene *s, buffer *b) {
    buffer_print(b, "<g fill-opacity=\"%.2f\">\n", s->opacity);
    for (int64_t i = 0; i < s->plot->count; i++) {
        const uint32_t at = s->order[i];
        const colour c = s->shades[s->shade[at]];
        buffer_print(b, "<circle cx=\"%.2f\" cy=\"%.2f\" r=\"%.2f\" fill=\"#%02x%02x%02x\"/>\n", (double)s->x[at],
                     (double)s->y[at], s->radius, c.red, c.green, c.blue);
    }
    buffer_text(b, "</g>\n");
}

/* Draws each name twice, a white outline and then the letters, because not every program supports paint-order. */
static void add_names(const plot_scene *s, buffer *b) {
    if (s->name_count == 0) {
        return;
    }
    static const char *const layers[] = {" fill=\"#fff\" stroke=\"#fff\" stroke-width=\"4\" stroke-linejoin=\"round\""
                                         " stroke-opacity=\"0.85\"",
                                         ""};
    for (int layer = 0; layer < 2; layer++) {
        buffer_print(b, "<g text-anchor=\"middle\" font-weight=\"bold\" font-size=\"%d\"%s>\n", s->name_size,
                     layers[layer]);
        for (int i = 0; i < s->name_count; i++) {
            const plot_name *const name = &s->names[i];
            if (name->shown) {
                add_text(b, name->x, name->y + 0.36 * s->name_size, "", name->text);
            }
        }
        buffer_text(b, "</g>\n");
    }
}

static void add_bar(const plot_scene *s, buffer *b) {
    enum { STOPS = 16 };
    const double x = plot_legend_x(s);
    buffer_text(b, "<linearGradient id=\"scale\" x1=\"0\" y1=\"1\" x2=\"0\" y2=\"0\">\n");
    for (int i = 0; i <= STOPS; i++) {
        const colour c = palette_value((double)i / STOPS);
        buffer_print(b, "<stop offset=\"%g%%\" stop-color=\"#%02x%02x%02x\"/>\n", 100.0 * i / STOPS, c.red, c.green,
                     c.blue);
    }
    buffer_print(b,
                 "</linearGradient>\n"
                 "<rect x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%d\" rx=\"2\" fill=\"url(#scale)\"/>\n",
                 x, s->area_y, (int)PLOT_BAR_WIDTH, (int)PLOT_BAR_HEIGHT);
    for (int i = 0; i < s->tick_count; i++) {
        const double y = s->area_y + (1 - s->ticks[i].at) * PLOT_BAR_HEIGHT;
        buffer_print(b, "<path d=\"M%.1f %.1fh4\" stroke=\"#6a737d\"/>\n", x + PLOT_BAR_WIDTH + 1, y);
        add_text(b, x + PLOT_BAR_WIDTH + 9, y + 0.36 * PLOT_LEGEND_SIZE, "", s->ticks[i].text);
    }
}

static void add_legend(const plot_scene *s, buffer *b) {
    const double x = plot_legend_x(s);
    for (int i = 0; i < s->entry_count; i++) {
        const plot_entry *const e = &s->entries[i];
        const double y = plot_entry_y(s, i);
        buffer_print(b, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"5.5\" fill=\"#%02x%02x%02x\"/>\n", x + 6, y, e->colour.red,
                     e->colour.green, e->colour.blue);
        add_text(b, x + 20, y + 0.36 * PLOT_LEGEND_SIZE, "", e->name);
        add_text(b, x + s->legend_width, y + 0.36 * PLOT_LEGEND_SIZE, " text-anchor=\"end\" fill=\"#6a737d\"",
                 e->count);
    }
}

void plot_svg(const plot_scene *s, buffer *b) {
    add_head(s, b);
    add_points(s, b);
    add_names(s, b);
    if (s->has_bar) {
        add_bar(s, b);
    }
    add_legend(s, b);
    buffer_text(b, "</svg>\n");
}
