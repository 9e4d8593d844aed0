/* cli/umap/umap_command.h - the request of a `napier umap` command. */
#ifndef NAPIER_CLI_UMAP_H
#define NAPIER_CLI_UMAP_H

#include "io/format.h"
#include "program/command.h"
#include "umap_labels.h"

#include <napier/umap.h>

typedef struct umap_request {
    base_request shared;
    file_format in_format, out_format;
    const char *columns;                                /* of a text IN; NULL: all */
    const char *labels_path, *target_path, *hover_path; /* NULL: not given */
    label_type label_type, target_type;
    const char *init_path;                                      /* used if options.init is GIVEN */
    const char *transform_path, *inverse_path, *embedding_path; /* at most one; all NULL: a map is fitted */
    const char *model_path;
    const char *plots[OPTION_MOST_FILES + 1]; /* NULL ends them */
    const char *title;
    int quality;
    napier_umap_options options;
} umap_request;

/* Carries out the request. */
int umap_run(void *request, napier_context *context);

#endif
