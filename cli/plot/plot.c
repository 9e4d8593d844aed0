/* cli/plot/plot.c - writes a map to a file: chooses the writer of the scene. */
#include "plot.h"

#include "../io/format.h"

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
    int status = plot_scene_new(&scene, p);
    if (status == STATUS_OK) {
        switch (plot_format_of(path)) {
        case PLOT_PNG: status = plot_png(&scene, &page); break;
        case PLOT_SVG: plot_svg(&scene, &page); break;
        default: status = plot_html(&scene, &page); break;
        }
    }
    status = status || buffer_write(&page, path);
    buffer_free(&page);
    plot_scene_free(&scene);
    return status;
}
