/* cli/umap/umap_command.c - `napier umap`: its options, named as umap-learn names its parameters, and its help. */
#include "umap_command.h"

#include "commands.h"
#include "plot/plot.h"
#include "program/message.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

/* ---- Valid combinations ------------------------------------------------------------------------------------------ */

static bool plots_a_page(const umap_request *q) {
    bool found = false;
    for (int i = 0; q->plots[i] != NULL; i++) {
        found = found || plot_format_of(q->plots[i]) == PLOT_HTML;
    }
    return found;
}

static int check_kind(const umap_request *q) {
    const int kinds = (q->transform_path != NULL) + (q->inverse_path != NULL) + (q->embedding_path != NULL);
    if (kinds > 1) {
        return misuse("--transform, --inverse-transform and --embedding exclude one another");
    }
    if (kinds > 0 && (q->model_path != NULL || q->target_path != NULL)) {
        return misuse("--save-model and --target belong to a new map, not to --transform, --inverse-transform or "
                      "--embedding");
    }
    if (q->inverse_path != NULL && (q->quality || q->plots[0] != NULL)) {
        return misuse("--inverse-transform makes data, not a map: there is nothing to plot or to measure");
    }
    if (q->embedding_path != NULL && q->shared.out_path == NULL && q->plots[0] == NULL && !q->quality) {
        return misuse("--embedding: nothing to do without --plot, --quality or --output");
    }
    return STATUS_OK;
}

static int check(void *request) {
    umap_request *const q = request;
    const int status = check_kind(q);
    if (q->options.init != NAPIER_UMAP_INIT_GIVEN) {
        q->init_path = NULL; /* it was a word */
    }
    if (status != STATUS_OK) {
        return status;
    }
    if (q->shared.in_path == NULL && (q->embedding_path == NULL || q->quality)) {
        return misuse("an input file is missing (- is standard input)");
    }
    if (q->hover_path != NULL && !plots_a_page(q)) {
        return misuse("--hover: only an .html plot shows such texts, and there is none");
    }
    if (!(q->options.a > 0) != !(q->options.b > 0)) {
        return misuse("--a and --b belong together");
    }
    if (!(q->options.a > 0) && q->options.min_dist > q->options.spread) {
        return misuse("--min-dist: %g is more than --spread, %g", q->options.min_dist, q->options.spread);
    }
    return STATUS_OK;
}

/* ---- Options ----------------------------------------------------------------------------------------------------- */

static const char *set_metric(void *request, const char *value) {
    const int metric = napier_metric_from_name(value);
    ((umap_request *)request)->options.neighbors.metric = (napier_metric)metric;
    return metric >= 0 ? NULL : "a metric (napier help umap lists them)";
}

/* Any other word is a file's name. */
static const char *set_init(void *request, const char *value) {
    static const option_word words[] = {{"spectral", NAPIER_UMAP_INIT_SPECTRAL},
                                        {"pca", NAPIER_UMAP_INIT_PCA},
                                        {"random", NAPIER_UMAP_INIT_RANDOM},
                                        {NULL, NAPIER_UMAP_INIT_GIVEN}};
    const option_word *word = words;
    while (word->name != NULL && strcmp(word->name, value) != 0) {
        word++;
    }
    ((umap_request *)request)->options.init = (napier_umap_init)word->value;
    return word->name != NULL || strpbrk(value, "./") != NULL ? NULL : "spectral, pca, random or a file";
}

static const char *check_plot(void *request, const char *value) {
    const plot_format format = plot_format_of(value);
    (void)request;
    return format == PLOT_UNKNOWN ? "a name that ends in .png, .svg or .html"
           : format == PLOT_PNG && !plot_has_png()
               ? "possible: this build has no cairo, which .png needs; .svg and .html "
                 "do not need it"
               : NULL;
}

static const option_word methods[] = {{"auto", NAPIER_NEIGHBORS_AUTO},
                                      {"exact", NAPIER_NEIGHBORS_EXACT},
                                      {"nn-descent", NAPIER_NEIGHBORS_NN_DESCENT},
                                      {NULL, 0}};
static const option_word target_types[] = {{"categorical", LABELS_CATEGORIES}, {"l2", LABELS_NUMBERS}, {NULL, 0}};
static const option_word label_types[] = {
    {"auto", LABELS_AUTO}, {"categories", LABELS_CATEGORIES}, {"numbers", LABELS_NUMBERS}, {NULL, 0}};

#define AT(member) offsetof(umap_request, member)
#define FROM_0 OPTION_FROM(0, 1e6)
#define ABOVE_0 OPTION_ABOVE_0(1e6)
#define FROM_0_TO_1 OPTION_FROM(0, 1)
#define SEED OPTION_FROM(0, 0x1p63)
static const option of_the_map[] = {
    {"output", 'o', OPTION_WRITE, "OUT", AT(shared.out_path),
     .help = "where the map goes, f32, a row for each point; default standard output, or nowhere where --plot, "
             "--save-model or "
             "--quality asks for something else"},
    {"n-neighbors", 0, OPTION_INTEGER, "N", AT(options.neighbors.n_neighbors), OPTION_FROM(2, INT32_MAX),
     .help = "how many neighbours a point has, itself included (default 15): more show the whole, fewer the detail"},
    {"n-components", 0, OPTION_INTEGER, "N", AT(options.n_components), OPTION_FROM(1, NAPIER_UMAP_MOST_COMPONENTS),
     .help = "dimensions of the map, 1 to 256 (default 2)"},
    {"metric", 0, OPTION_OTHER, "NAME", 0, .set = set_metric,
     .help =
         "how distances are measured (default euclidean); napier help umap lists the names; of precomputed, IN holds "
         "the distances themselves"},
    {"p", 0, OPTION_NUMBER, "P", AT(options.neighbors.p), OPTION_FROM(1, 1e6),
     .help = "the power of minkowski (default 2)"},
    {"min-dist", 0, OPTION_NUMBER, "D", AT(options.min_dist), FROM_0,
     .help = "how near points may lie on the map (default 0.1)"},
    {"spread", 0, OPTION_NUMBER, "S", AT(options.spread), ABOVE_0, .help = "the scale of the map (default 1)"},
    {"a", 0, OPTION_NUMBER, "A", AT(options.a), ABOVE_0, .help = "with --b: the curve itself, in place of those two"},
    {"b", 0, OPTION_NUMBER, "B", AT(options.b), ABOVE_0, .help = "see --a"},
    {"seed", 0, OPTION_INTEGER, "N", AT(options.seed), SEED, .help = "of all that is drawn (default 42)"},
    {"transform-seed", 0, OPTION_INTEGER, "N", AT(options.transform_seed), SEED,
     .help = "of later transforms of the map (default 42)"},
    {"n-epochs", 0, OPTION_INTEGER, "N", AT(options.n_epochs), OPTION_FROM(1, 1e6),
     .help = "of the layout (default: by the number of points)"},
    {"learning-rate", 0, OPTION_NUMBER, "R", AT(options.learning_rate), ABOVE_0, .help = "of the layout (default 1)"},
    {"init", 0, OPTION_READ, "WHERE", AT(init_path), .set = set_init,
     .help = "the start: spectral (default), pca, random or a file with as many rows and columns as the map"},
    {"set-op-mix-ratio", 0, OPTION_NUMBER, "R", AT(options.set_op_mix_ratio), FROM_0_TO_1,
     .help = "1 (default): union of the neighbourhoods, 0: intersection"},
    {"local-connectivity", 0, OPTION_NUMBER, "N", AT(options.local_connectivity), FROM_0,
     .help = "how many neighbours count as joined in any case (default 1)"},
    {"disconnection-distance", 0, OPTION_NUMBER, "D", AT(options.disconnection_distance), OPTION_ABOVE_0(DBL_MAX),
     .help = "neighbours this far or farther are none (default: 1 for jaccard, dice and hellinger, 2 for cosine and "
             "correlation); points that are left without any are NaN"},
    {"repulsion-strength", 0, OPTION_NUMBER, "R", AT(options.repulsion_strength), FROM_0,
     .help = "of points that are no neighbours (default 1)"},
    {"negative-sample-rate", 0, OPTION_NUMBER, "R", AT(options.negative_sample_rate), OPTION_FROM(0, 1000),
     .help = "repelling points for an attracting one (default 5)"},
    {"neighbors", 0, OPTION_WORD, "HOW", AT(options.neighbors.method), .words = methods,
     .help = "how neighbours are found: {} (default auto: exactly, or by NN-descent where that is faster)"},
    {"densmap", 0, OPTION_FLAG, NULL, AT(options.densmap), .help = "keep local densities"},
    {"dens-lambda", 0, OPTION_NUMBER, "L", AT(options.dens_lambda), FROM_0, .help = "with --densmap (default 2)"},
    {"dens-frac", 0, OPTION_NUMBER, "F", AT(options.dens_frac), FROM_0_TO_1, .help = "with --densmap (default 0.3)"},
    {"dens-var-shift", 0, OPTION_NUMBER, "S", AT(options.dens_var_shift), FROM_0,
     .help = "with --densmap (default 0.1)"},
    {"target", 0, OPTION_READ, "FILE", AT(target_path),
     .help =
         "what is known of the points (a file as for --labels) makes the map a supervised one; empty lines, NaN and "
         "categories below 0 are not known"},
    {"target-metric", 0, OPTION_WORD, "TYPE", AT(target_type), .words = target_types,
     .help = "{} (default categorical)"},
    {"target-weight", 0, OPTION_NUMBER, "W", AT(options.target_weight), FROM_0_TO_1,
     .help = "of the target against the data (default 0.5)"},
    {"target-n-neighbors", 0, OPTION_INTEGER, "N", AT(options.target_n_neighbors), OPTION_FROM(2, INT32_MAX),
     .help = "of a target of numbers (default: as --n-neighbors)"},
    {.name = NULL},
};
static const option of_the_plot[] = {
    {"plot", 0, OPTION_WRITES, "FILE", AT(plots), .set = check_plot,
     .help = ".png, .svg or .html (to zoom and search in); may be repeated"},
    {"labels", 0, OPTION_READ, "FILE", AT(labels_path),
     .help = "colours of the plot, and what --quality votes on: an .npy file, or a line of text for each point, blank "
             "where there is no label (default: the target)"},
    {"label-type", 0, OPTION_WORD, "TYPE", AT(label_type), .words = label_types,
     .help = "{} (default auto: names, and whole numbers of at most 50 values, are categories)"},
    {"hover", 0, OPTION_READ, "FILE", AT(hover_path),
     .help = "what an .html plot says of a point under the pointer: a line of text for each"},
    {"title", 0, OPTION_TEXT, "TEXT", AT(title), .help = "of the plot"},
    {"quality", 0, OPTION_FLAG, NULL, AT(quality),
     .help = "prints trustworthiness, the share of neighbours that are neighbours on the map too and, with categories, "
             "the accuracy of a vote of the neighbours; of more than 10,000 points, 5,000 are asked"},
    {.name = NULL},
};
static const option of_models[] = {
    {"save-model", 0, OPTION_WRITE, "FILE", AT(model_path), .help = "keep the fitted map (- is standard output)",
     .old_name = "model"},
    {"transform", 0, OPTION_READ, "MODEL", AT(transform_path),
     .help = "place the rows of IN on a kept map, each as if it were the only one"},
    {"inverse-transform", 0, OPTION_READ, "MODEL", AT(inverse_path),
     .help = "IN holds places on a kept map: the data they stand for"},
    {"embedding", 0, OPTION_READ, "MAP", AT(embedding_path),
     .help = "no fit: plot or measure the map in a file; --quality needs IN, the data it was made from"},
    {.name = NULL},
};
static const option of_formats[] = {
    {"format", 'f', OPTION_WORD, "FORMAT", AT(out_format), .words = array_formats,
     .help = "of OUT: {} (default: by OUT's name)"},
    {"input-format", 0, OPTION_WORD, "FORMAT", AT(in_format), .words = array_formats,
     .help = "of IN: {} (default: by its content and name)"},
    {"columns", 0, OPTION_TEXT, "LIST", AT(columns),
     .help = "of a CSV or TSV file, the columns to read: names of its header, numbers from 1, or ranges, as x,y,4-7"},
    {.name = NULL},
};
static const option_group groups[] = {
    {NULL, of_the_map}, {NULL, of_the_plot}, {NULL, of_models}, {NULL, of_formats}, MACHINE_GROUP};
static const umap_request defaults = {.options = NAPIER_UMAP_OPTIONS_INIT, .target_type = LABELS_CATEGORIES};

static void print_metrics(void) {
    char names[1024] = "";
    const char *name;
    for (int metric = 0; (name = napier_metric_name((napier_metric)metric)) != NULL; metric++) {
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", metric > 0 ? ", " : "", name);
    }
    print_wrapped(names, printf("\nmetrics: ") - 1, 9);
}

const command umap_command = {
    .name = "umap",
    .summary = "a map of the rows of a table, and its plot",
    .usage = "IN [-o OUT] [OPTIONS]\n"
             "IN --transform MODEL | --inverse-transform MODEL [-o OUT] [OPTIONS]\n"
             "[IN] --embedding MAP [OPTIONS]",
    .about = "A map of the rows of a table: points that are near one another in IN are near on the map.\n"
             "IN is .npy, CSV or TSV, - for standard input, or .npz with SciPy's sparse rows or columns (csr, csc).\n"
             "Parameters are umap-learn's.",
    .example = "napier umap images.npy -o map.npy --labels labels.npy --plot map.png --plot map.html\n"
               "napier umap --embedding map.npy --labels names.txt --plot map.svg --title Digits",
    .groups = groups,
    .input = INPUT_OPTIONAL,
    .may_print_nothing = true,
    .size = sizeof defaults,
    .defaults = &defaults,
    .check = check,
    .run = umap_run,
    .more_help = print_metrics,
};
