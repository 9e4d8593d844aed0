/* cli/plot/plot.h - a map as a picture: .png (with cairo), .svg or .html.
 *
 * plot_write makes a scene of the map: the place of each point on the page, its shade, and the legend. The three
 * writers (plot_png.c, plot_svg.c, plot_html.c) draw it. The same map gives the same bytes; only the letters of a .png
 * depend on the machine's fonts. */
#ifndef NAPIER_CLI_PLOT_H
#define NAPIER_CLI_PLOT_H

#include "io/buffer.h"
#include "umap/umap_labels.h"

typedef struct plot {
    const float *map; /* [count][components], finite */
    int64_t count, components;
    const labels *labels; /* of the same points; type AUTO: none */
    const labels *hover;  /* texts of the points, as categories, for .html; type AUTO: none */
    const char *title;    /* clean (labels_clean_text); NULL: none */
} plot;

typedef enum plot_format { PLOT_UNKNOWN, PLOT_PNG, PLOT_SVG, PLOT_HTML } plot_format;

/* The format by the end of a file's name, in upper or lower case. */
plot_format plot_format_of(const char *path);
/* Whether this build has cairo, which .png needs. */
bool plot_has_png(void);

int plot_write(const plot *p, const char *path);

/* ---- Colours, for readers with any colour vision, on white (palette.c) ------------------------------------------- */

typedef struct colour {
    uint8_t red, green, blue;
} colour;

/* Different colours of categories; with more categories they repeat. A legend has at most so many; beyond, names on the
 * map tell the categories. */
enum { PALETTE_MOST = 30 };

/* Categories that have an entry of their own on a page, the largest; the others share one. */
enum { PLOT_COLOURED = 250 };

/* The colour of category `index`, on white or on dark paper. */
colour palette_category(int index, bool dark);
/* The colour of a value from 0 to 1, on a scale whose lightness rises evenly from dark violet over green to yellow. */
colour palette_value(double t);

/* ---- The scene: lengths in CSS pixels, from the upper left ------------------------------------------------------- */

enum {
    PLOT_MARGIN = 28,
    PLOT_AREA = 720,       /* the longer side of the map */
    PLOT_AREA_LEAST = 240, /* the shorter side, at least */
    PLOT_TITLE_SIZE = 21,  /* of letters */
    PLOT_SUBTITLE_SIZE = 13,
    PLOT_LEGEND_SIZE = 13,
    PLOT_NAME_SIZE = 14,       /* on the map */
    PLOT_SMALL_NAME_SIZE = 11, /* where names take the place of the legend */
    PLOT_NAME_LETTERS = 20,
    PLOT_LEGEND_GAP = 28, /* between map and legend */
    PLOT_BAR_WIDTH = 16,  /* of values */
    PLOT_BAR_HEIGHT = 260,
    PLOT_BAR_TOTAL = 96, /* with its numbers */
    PLOT_ROW = 22,       /* from one legend entry to the next */
    PLOT_TICKS = 8,
    PLOT_TEXT = 128,   /* bytes of a shortened text */
    PLOT_SHADES = 256, /* of values */
    PLOT_NOISE = 4     /* entries of noise, at most */
};

typedef struct plot_entry {
    colour colour;
    char name[PLOT_TEXT]; /* shortened */
    char count[32];
    const char *whole; /* the full name; NULL: not a category */
} plot_entry;

typedef struct plot_tick {
    double at; /* 0 (lowest) to 1 on the bar */
    char text[32];
} plot_tick;

/* The name of a category on the map. */
typedef struct plot_name {
    bool shown;    /* there is room for it */
    double x, y;   /* of its middle, if it is shown */
    int64_t point; /* the category's densest point */
    int32_t category;
    char text[PLOT_TEXT];
} plot_name;

typedef struct plot_scene {
    const plot *plot;
    double width, height;  /* of the page */
    double area_x, area_y; /* the map's upper left corner */
    double area_width, area_height;
    double scale;               /* pixels per unit of the map; 0: all points coincide */
    float *x, *y;               /* [count] on the page */
    uint8_t *shade;             /* [count] index into shades */
    uint32_t *order;            /* [count] the order of drawing: shuffled, so that no class hides another; grey first */
    colour shades[PLOT_SHADES]; /* of categories: one each, in the order of the legend, then the grey of all others */
    double radius, opacity;     /* of a point */
    char subtitle[PLOT_TEXT];
    int32_t *category_shades;       /* [categories]; NULL if labels are not categories */
    int coloured;                   /* categories with a shade of their own, */
    int32_t largest[PLOT_COLOURED]; /* the largest first, and among equals by name */
    plot_entry entries[PALETTE_MOST + PLOT_NOISE + 1];
    int entry_count;
    double legend_width;
    plot_name names[PLOT_COLOURED]; /* the largest categories first */
    int name_count, name_size;
    plot_tick ticks[PLOT_TICKS];
    int tick_count;
    bool has_bar;
} plot_scene;

/* The map's first two components, [count] each. A map of one component gets heights from a fixed sequence. */
void plot_components(const plot *p, float *x, float *y);

/* Whether a category is noise, which is grey and has no name on the map: "-1", "-1_" and more, "noise" or "nan". */
bool plot_is_noise(const char *name);

/* The position of the n-th entry of the legend, or of the top of the bar. */
double plot_entry_y(const plot_scene *s, int entry);
double plot_legend_x(const plot_scene *s);

/* Copies at most `letters` characters of clean text; an ellipsis replaces the rest. */
void plot_shorten(char out[PLOT_TEXT], const char *text, int letters);

/* ---- The writers: add the file to `b` ---------------------------------------------------------------------------- */

int plot_png(const plot_scene *s, buffer *b);
void plot_svg(const plot_scene *s, buffer *b);
int plot_html(const plot_scene *s, buffer *b);

#endif
