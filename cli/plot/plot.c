/* cli/plot/plot.c - writes a map to a file: chooses the writer of the scene. */
#include "plot.h"

#include <string.h>

static bool ends_in(const char *path, const char *ending) {
    const size_t size = strlen(path);
    const size_t tail = strlen(ending);
    for (size_t i = 0; i < tail && size >= tail; i++) {
        const char c = path[size - tail + i];
        if ((c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c) != ending[i]) {
            return false;
        }
    }
    return size >= tail;
}

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
    plot_buffer buffer = {0};
    int status = plot_scene_new(&scene, p);
    if (status == STATUS_OK) {
        switch (plot_format_of(path)) {
        case PLOT_PNG: status = plot_png(&scene, &buffer); break;
        case PLOT_SVG: plot_svg(&scene, &buffer); break;
        default: status = plot_html(&scene, &buffer); break;
        }
    }
    if (status == STATUS_OK) {
        status = buffer_write(&buffer, path);
    }
    buffer_free(&buffer);
    plot_scene_free(&scene);
    return status;
}
