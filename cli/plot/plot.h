/* cli/plot/plot.h - a map as a picture: .png (with cairo), .svg or .html.
 *
 * plot_write makes a scene of the map: the place of each point on the page, its shade, and the legend. The three
 * writers (plot_png.c, plot_svg.c, plot_html.c) draw it. The same map gives the same bytes; only the letters of a .png
 * depend on the machine's fonts. */
#ifndef NAPIER_CLI_PLOT_H
#define NAPIER_CLI_PLOT_H

#include "plot_scene.h"

typedef enum plot_format { PLOT_UNKNOWN, PLOT_PNG, PLOT_SVG, PLOT_HTML } plot_format;

/* The format by the end of a file's name, in upper or lower case. */
plot_format plot_format_of(const char *path);

int plot_write(const plot *p, const char *path);

#endif
