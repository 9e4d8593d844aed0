/* cli/umap/umap_command.h - the request of a `napier umap` command. */
#ifndef NAPIER_CLI_UMAP_H
#define NAPIER_CLI_UMAP_H

#include "../io/format.h"
#include "../program/machine.h"
#include "umap_labels.h"

#include <napier/umap.h>

enum { UMAP_MOST_PLOTS = 16 };

typedef struct umap_request {
    const char *in_path, *out_path; /* NULL: not given */
    file_format in_format, out_format;
    const char *labels_path, *target_path, *hover_path;
    label_type label_type, target_type;
    const char *init_path;                                      /* used if options.init is GIVEN */
    const char *transform_path, *inverse_path, *embedding_path; /* at most one; all NULL: a map is fitted */
    const char *model_path;
    const char *plots[UMAP_MOST_PLOTS];
    int plot_count;
    const char *title;
    bool quality;
    napier_umap_options options;
    machine machine;
    bool help;
} umap_request;

/* Carries out the request. */
int umap_run(umap_request *q);

#endif
