/* cli/umap/umap_command.c - `napier umap`: its options, named as umap-learn names its parameters, and its help. */
#include "umap_command.h"

#include "../commands.h"
#include "../program/message.h"
#include "../io/named_files.h"
#include "../program/options.h"
#include "../plot/plot.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* ---- Options ----------------------------------------------------------------------------------------------------- */

enum {
    OUTPUT = 1,
    FORMAT,
    INPUT_FORMAT,
    METRIC,
    INIT,
    NEIGHBORS,
    TARGET,
    TARGET_METRIC,
    DENSMAP,
    LABELS,
    LABEL_TYPE,
    HOVER,
    PLOT,
    TITLE,
    MODEL,
    TRANSFORM,
    INVERSE_TRANSFORM,
    EMBEDDING,
    QUALITY,
    THREADS,
    ISA,
    HELP,
    NUMBERS /* from here on: the rows of `whole_numbers` and `numbers` */
};

/* Options that are integers, and their fields. */
static const struct whole_number {
    const char *name;
    size_t offset; /* in napier_umap_options, of an int64_t or uint64_t */
    int64_t least, most;
    const char *wanted;
} whole_numbers[] = {
    {"n-neighbors", offsetof(napier_umap_options, neighbors.n_neighbors), 2, INT32_MAX, "a whole number from 2"},
    {"n-components", offsetof(napier_umap_options, n_components), 1, NAPIER_UMAP_MOST_COMPONENTS,
     "a whole number from 1 to 50"},
    {"n-epochs", offsetof(napier_umap_options, n_epochs), 1, 1000000, "a whole number from 1 to 1000000"},
    {"seed", offsetof(napier_umap_options, seed), 0, INT64_MAX, "a whole number from 0"},
    {"transform-seed", offsetof(napier_umap_options, transform_seed), 0, INT64_MAX, "a whole number from 0"},
    {"target-n-neighbors", offsetof(napier_umap_options, target_n_neighbors), 2, INT32_MAX, "a whole number from 2"},
};
enum { WHOLE_NUMBERS = sizeof whole_numbers / sizeof whole_numbers[0] };

/* Options that are numbers. */
static const struct number {
    const char *name;
    size_t offset; /* of a double */
    double least, most;
    bool above; /* `least` itself is not allowed */
    const char *wanted;
} numbers[] = {
    {"p", offsetof(napier_umap_options, neighbors.p), 1, 1e6, false, "a number from 1"},
    {"min-dist", offsetof(napier_umap_options, min_dist), 0, 1e6, false, "a number from 0"},
    {"spread", offsetof(napier_umap_options, spread), 0, 1e6, true, "a number above 0"},
    {"a", offsetof(napier_umap_options, a), 0, 1e6, true, "a number above 0"},
    {"b", offsetof(napier_umap_options, b), 0, 1e6, true, "a number above 0"},
    {"learning-rate", offsetof(napier_umap_options, learning_rate), 0, 1e6, true, "a number above 0"},
    {"set-op-mix-ratio", offsetof(napier_umap_options, set_op_mix_ratio), 0, 1, false, "a number from 0 to 1"},
    {"local-connectivity", offsetof(napier_umap_options, local_connectivity), 0, 1e6, false, "a number from 0"},
    {"repulsion-strength", offsetof(napier_umap_options, repulsion_strength), 0, 1e6, false, "a number from 0"},
    {"negative-sample-rate", offsetof(napier_umap_options, negative_sample_rate), 0, 1000, false,
     "a number from 0 to 1000"},
    {"target-weight", offsetof(napier_umap_options, target_weight), 0, 1, false, "a number from 0 to 1"},
    {"dens-lambda", offsetof(napier_umap_options, dens_lambda), 0, 1e6, false, "a number from 0"},
    {"dens-frac", offsetof(napier_umap_options, dens_frac), 0, 1, false, "a number from 0 to 1"},
    {"dens-var-shift", offsetof(napier_umap_options, dens_var_shift), 0, 1e6, false, "a number from 0"},
    {"disconnection-distance", offsetof(napier_umap_options, disconnection_distance), 0, 1e300, true,
     "a number above 0"},
};
enum { NUMBER_OPTIONS = sizeof numbers / sizeof numbers[0] };

static const option_spec other_specs[] = {
    {OUTPUT, "output", 'o', true},
    {FORMAT, "format", 'f', true},
    {INPUT_FORMAT, "input-format", '\0', true},
    {METRIC, "metric", '\0', true},
    {INIT, "init", '\0', true},
    {NEIGHBORS, "neighbors", '\0', true},
    {TARGET, "target", '\0', true},
    {TARGET_METRIC, "target-metric", '\0', true},
    {DENSMAP, "densmap", '\0', false},
    {LABELS, "labels", '\0', true},
    {LABEL_TYPE, "label-type", '\0', true},
    {HOVER, "hover", '\0', true},
    {PLOT, "plot", '\0', true},
    {TITLE, "title", '\0', true},
    {MODEL, "model", '\0', true},
    {TRANSFORM, "transform", '\0', true},
    {INVERSE_TRANSFORM, "inverse-transform", '\0', true},
    {EMBEDDING, "embedding", '\0', true},
    {QUALITY, "quality", '\0', false},
    {THREADS, "threads", 'j', true},
    {ISA, "isa", '\0', true},
    {HELP, "help", 'h', false},
};
enum { OTHER_SPECS = sizeof other_specs / sizeof other_specs[0], SPECS = OTHER_SPECS + WHOLE_NUMBERS + NUMBER_OPTIONS };

static void make_specs(option_spec specs[SPECS + 1]) {
    int count = 0;
    for (; count < OTHER_SPECS; count++) {
        specs[count] = other_specs[count];
    }
    for (int i = 0; i < WHOLE_NUMBERS + NUMBER_OPTIONS; i++) {
        const char *const name = i < WHOLE_NUMBERS ? whole_numbers[i].name : numbers[i - WHOLE_NUMBERS].name;
        specs[count++] = (option_spec){NUMBERS + i, name, '\0', true};
    }
    specs[count] = (option_spec){0, NULL, '\0', false};
}

static int set_whole_number(umap_request *q, const struct whole_number *option, const char *value) {
    int64_t parsed;
    if (!parse_integer(value, option->least, option->most, &parsed)) {
        return bad_value("umap", option->name, value, option->wanted);
    }
    memcpy((char *)&q->options + option->offset, &parsed, sizeof parsed);
    return STATUS_OK;
}

static int set_number(umap_request *q, const struct number *option, const char *value) {
    double parsed;
    if (!parse_number(value, &parsed) || !isfinite(parsed) || parsed > option->most || parsed < option->least ||
        (option->above && parsed <= option->least)) {
        return bad_value("umap", option->name, value, option->wanted);
    }
    memcpy((char *)&q->options + option->offset, &parsed, sizeof parsed);
    return STATUS_OK;
}

static int set_format(const char *option, const char *value, file_format *format) {
    return format_parse(value, format) ? STATUS_OK : bad_value("umap", option, value, "npy, csv or tsv");
}

static int set_metric(umap_request *q, const char *value) {
    const int metric = napier_metric_from_name(value);
    if (metric < 0) {
        return bad_value("umap", "metric", value, "a metric (napier help umap lists them)");
    }
    q->options.neighbors.metric = (napier_metric)metric;
    return STATUS_OK;
}

/* Any other word is a file's name. */
static int set_init(umap_request *q, const char *value) {
    static const char *const words[] = {"spectral", "pca", "random", NULL};
    static const napier_umap_init inits[] = {NAPIER_UMAP_INIT_SPECTRAL, NAPIER_UMAP_INIT_PCA, NAPIER_UMAP_INIT_RANDOM};
    const int index = word_index(value, words);
    q->options.init = index >= 0 ? inits[index] : NAPIER_UMAP_INIT_GIVEN;
    q->init_path = index >= 0 ? NULL : value;
    if (index < 0 && strpbrk(value, "./") == NULL) {
        return bad_value("umap", "init", value, "spectral, pca, random or a file");
    }
    return STATUS_OK;
}

static int set_neighbors(umap_request *q, const char *value) {
    static const char *const words[] = {"auto", "exact", "nn-descent", NULL};
    static const napier_neighbors_method methods[] = {NAPIER_NEIGHBORS_AUTO, NAPIER_NEIGHBORS_EXACT,
                                                      NAPIER_NEIGHBORS_NN_DESCENT};
    const int index = word_index(value, words);
    if (index < 0) {
        return bad_value("umap", "neighbors", value, "auto, exact or nn-descent");
    }
    q->options.neighbors.method = methods[index];
    return STATUS_OK;
}

static int set_target_metric(umap_request *q, const char *value) {
    static const char *const words[] = {"categorical", "l2", NULL};
    const int index = word_index(value, words);
    if (index < 0) {
        return bad_value("umap", "target-metric", value, "categorical or l2");
    }
    q->target_type = index == 0 ? LABELS_CATEGORIES : LABELS_NUMBERS;
    return STATUS_OK;
}

static int set_label_type(umap_request *q, const char *value) {
    static const char *const words[] = {"auto", "categories", "numbers", NULL};
    static const label_type types[] = {LABELS_AUTO, LABELS_CATEGORIES, LABELS_NUMBERS};
    const int index = word_index(value, words);
    if (index < 0) {
        return bad_value("umap", "label-type", value, "auto, categories or numbers");
    }
    q->label_type = types[index];
    return STATUS_OK;
}

static int add_plot(umap_request *q, const char *value) {
    const plot_format format = plot_format_of(value);
    char shown[64];
    printable(shown, sizeof shown, value, strlen(value));
    if (format == PLOT_UNKNOWN) {
        return misuse("umap", "--plot: '%s' does not end in .png, .svg or .html", shown);
    }
    if (format == PLOT_PNG && !plot_has_png()) {
        return misuse("umap", "--plot: '%s': this build has no cairo, which .png needs; .svg and .html do not", shown);
    }
    if (q->plot_count == UMAP_MOST_PLOTS) {
        return misuse("umap", "--plot: at most %d plots", (int)UMAP_MOST_PLOTS);
    }
    q->plots[q->plot_count++] = value;
    return STATUS_OK;
}

static int set_input(umap_request *q, const char *value) {
    if (q->in_path != NULL) {
        char shown[64];
        return misuse("umap", "one input at a time; '%s' is a second",
                      printable(shown, sizeof shown, value, strlen(value)));
    }
    q->in_path = value;
    return STATUS_OK;
}

static int set_option(umap_request *q, int id, const char *value) {
    if (id >= NUMBERS + WHOLE_NUMBERS) {
        return set_number(q, &numbers[id - NUMBERS - WHOLE_NUMBERS], value);
    }
    if (id >= NUMBERS) {
        return set_whole_number(q, &whole_numbers[id - NUMBERS], value);
    }
    switch (id) {
    case OPTION_OPERAND: return set_input(q, value);
    case OUTPUT: q->out_path = value; return STATUS_OK;
    case FORMAT: return set_format("format", value, &q->out_format);
    case INPUT_FORMAT: return set_format("input-format", value, &q->in_format);
    case METRIC: return set_metric(q, value);
    case INIT: return set_init(q, value);
    case NEIGHBORS: return set_neighbors(q, value);
    case TARGET: q->target_path = value; return STATUS_OK;
    case TARGET_METRIC: return set_target_metric(q, value);
    case DENSMAP: q->options.densmap = 1; return STATUS_OK;
    case LABELS: q->labels_path = value; return STATUS_OK;
    case LABEL_TYPE: return set_label_type(q, value);
    case HOVER: q->hover_path = value; return STATUS_OK;
    case PLOT: return add_plot(q, value);
    case TITLE: q->title = value; return STATUS_OK;
    case MODEL: q->model_path = value; return STATUS_OK;
    case TRANSFORM: q->transform_path = value; return STATUS_OK;
    case INVERSE_TRANSFORM: q->inverse_path = value; return STATUS_OK;
    case EMBEDDING: q->embedding_path = value; return STATUS_OK;
    case QUALITY: q->quality = true; return STATUS_OK;
    case THREADS: q->machine.threads_text = value; return STATUS_OK;
    case ISA: q->machine.isa_text = value; return STATUS_OK;
    case HELP: q->help = true; return STATUS_OK;
    default: return STATUS_USAGE; /* OPTION_MISUSE, which has been reported */
    }
}

/* ---- Valid combinations ------------------------------------------------------------------------------------------ */

static int given(const char *path) { return path != NULL; }
static int is_standard(const char *path) { return path != NULL && strcmp(path, "-") == 0; }

static int check_kind(const umap_request *q) {
    const int kinds = given(q->transform_path) + given(q->inverse_path) + given(q->embedding_path);
    if (kinds > 1) {
        return misuse("umap", "--transform, --inverse-transform and --embedding exclude one another");
    }
    if (kinds > 0 && (q->model_path != NULL || q->target_path != NULL)) {
        return misuse("umap", "--model and --target belong to a new map, not to --transform, --inverse-transform or "
                              "--embedding");
    }
    if (q->inverse_path != NULL && (q->quality || q->plot_count > 0)) {
        return misuse("umap", "--inverse-transform makes data, not a map: there is nothing to plot or to measure");
    }
    if (q->embedding_path != NULL && q->out_path == NULL && q->plot_count == 0 && !q->quality) {
        return misuse("umap", "--embedding: nothing to do without --plot, --quality or --output");
    }
    return STATUS_OK;
}

static bool plots_a_page(const umap_request *q) {
    bool found = false;
    for (int i = 0; i < q->plot_count; i++) {
        found = found || plot_format_of(q->plots[i]) == PLOT_HTML;
    }
    return found;
}

/* No result may replace an input or another result. */
static int check_files(const umap_request *q) {
    named_file files[10 + UMAP_MOST_PLOTS] = {
        {"the input", q->in_path, false},
        {"--labels", q->labels_path, false},
        {"--target", q->target_path, false},
        {"--hover", q->hover_path, false},
        {"--init", q->init_path, false},
        {"--transform", q->transform_path, false},
        {"--inverse-transform", q->inverse_path, false},
        {"--embedding", q->embedding_path, false},
        {"--output", q->out_path, true},
        {"--model", q->model_path, true},
    };
    for (int i = 0; i < q->plot_count; i++) {
        files[10 + i] = (named_file){"--plot", q->plots[i], true};
    }
    return named_files_check("umap", files, 10 + q->plot_count);
}

static int check_request(const umap_request *q) {
    int status = check_kind(q);
    if (status == STATUS_OK) {
        status = check_files(q);
    }
    if (status != STATUS_OK) {
        return status;
    }
    if (q->in_path == NULL && (q->embedding_path == NULL || q->quality)) {
        return misuse("umap", "an input file is missing (- is standard input)");
    }
    if (is_standard(q->in_path) + is_standard(q->labels_path) + is_standard(q->target_path) +
            is_standard(q->embedding_path) + is_standard(q->init_path) + is_standard(q->hover_path) +
            is_standard(q->transform_path) + is_standard(q->inverse_path) >
        1) {
        return misuse("umap", "only one of the files can be standard input");
    }
    if (is_standard(q->out_path) && is_standard(q->model_path)) {
        return misuse("umap", "only one of the results can go to standard output");
    }
    if (q->hover_path != NULL && !plots_a_page(q)) {
        return misuse("umap", "--hover: only an .html plot shows such texts, and there is none");
    }
    if (!(q->options.a > 0) != !(q->options.b > 0)) {
        return misuse("umap", "--a and --b belong together");
    }
    if (!(q->options.a > 0) && q->options.min_dist > q->options.spread) {
        return misuse("umap", "--min-dist: %g is more than --spread, %g", q->options.min_dist, q->options.spread);
    }
    return STATUS_OK;
}

static int parse_request(umap_request *q, int count, char **words) {
    option_spec specs[SPECS + 1];
    make_specs(specs);
    option_scan scan = {.command = "umap", .specs = specs, .count = count, .words = words};
    for (int id = option_next(&scan); id != OPTION_END; id = option_next(&scan)) {
        const int status = set_option(q, id, scan.value);
        if (status != STATUS_OK || q->help) {
            return status;
        }
    }
    const int status = check_request(q);
    return status == STATUS_OK ? machine_resolve(&q->machine, "umap") : status;
}

int umap_command(int count, char **words) {
    umap_request q = {.options = NAPIER_UMAP_OPTIONS_INIT, .target_type = LABELS_CATEGORIES};
    const int status = parse_request(&q, count, words);
    if (status != STATUS_OK) {
        return status;
    }
    if (q.help) {
        umap_help();
        return finish_standard_output();
    }
    return umap_run(&q);
}

/* ---- Help -------------------------------------------------------------------------------------------------------- */

static void print_metrics(void) {
    enum { WIDTH = 96 };
    int column = printf("\nmetrics:");
    const char *name = napier_metric_name((napier_metric)0);
    for (int metric = 0; name != NULL; metric++) {
        const char *const next = napier_metric_name((napier_metric)(metric + 1));
        if (column + 2 + (int)strlen(name) > WIDTH) {
            column = printf("\n        ") - 1;
        }
        column += printf(" %s%s", name, next != NULL ? "," : "");
        name = next;
    }
    puts("");
}

void umap_help(void) {
    puts("usage: napier umap IN [-o OUT] [OPTIONS]\n"
         "       napier umap IN --transform MODEL | --inverse-transform MODEL [-o OUT] [OPTIONS]\n"
         "       napier umap [IN] --embedding MAP [OPTIONS]\n"
         "\n"
         "A map of the rows of a table: points that are near one another in IN are near on the map.\n"
         "IN is .npy, CSV or TSV, - for standard input, or .npz with SciPy's sparse rows (csr).\n"
         "Parameters are umap-learn's.\n"
         "\n"
         "  -o, --output OUT           where the map goes; default standard output, or nowhere where\n"
         "                             --plot, --model or --quality asks for something else\n"
         "      --n-neighbors N        how many neighbours a point has, itself included (default 15)\n"
         "      --n-components N       dimensions of the map, 1 to 50 (default 2)\n"
         "      --metric NAME          how distances are measured (default euclidean); see below\n"
         "      --p P                  the power of minkowski (default 2)\n"
         "      --min-dist D           how near points may lie on the map (default 0.1)\n"
         "      --spread S             the scale of the map (default 1)\n"
         "      --a A --b B            the curve itself, in place of those two\n"
         "      --seed N               of all that is drawn (default 42); --transform-seed: of later\n"
         "                             transforms of the map");
    puts("      --n-epochs N           default: by the number of points\n"
         "      --learning-rate R      default 1\n"
         "      --init WHERE           the start: spectral (default), pca, random or a file\n"
         "      --set-op-mix-ratio R   1 (default): union of the neighbourhoods, 0: intersection\n"
         "      --local-connectivity N how many neighbours count as joined in any case (default 1)\n"
         "      --disconnection-distance D  neighbours this far or farther are none (default: 1 for\n"
         "                             jaccard, dice and hellinger, 2 for cosine and correlation);\n"
         "                             points that are left without any are NaN\n"
         "      --repulsion-strength R default 1\n"
         "      --negative-sample-rate R   repelling points for an attracting one (default 5)\n"
         "      --neighbors HOW        auto (default), exact or nn-descent\n"
         "      --densmap              keep local densities: --dens-lambda (default 2),\n"
         "                             --dens-frac (0.3), --dens-var-shift (0.1)\n"
         "      --target FILE          what is known of the points (as --labels): a supervised map;\n"
         "                             --target-metric categorical (default) or l2,\n"
         "                             --target-weight (0.5), --target-n-neighbors");
    puts("\n"
         "      --plot FILE            .png, .svg or .html (to zoom and search in); may be repeated\n"
         "      --labels FILE          colours of the plot: an .npy file, or a line of text for each\n"
         "                             point; whole numbers of few values and names are categories\n"
         "      --label-type TYPE      auto (default), categories or numbers\n"
         "      --hover FILE           what an .html plot says of a point under the pointer: a line of\n"
         "                             text for each\n"
         "      --title TEXT           of the plot\n"
         "      --quality              trustworthiness, preserved neighbours and, with categories,\n"
         "                             the accuracy of a vote of the neighbours\n"
         "      --model FILE           keep the fitted map (- is standard output)\n"
         "      --transform MODEL      place the rows of IN on a kept map\n"
         "      --inverse-transform MODEL  IN holds places on a kept map: the data they stand for\n"
         "      --embedding MAP        no fit: plot or measure the map in a file");
    puts("\n"
         "  -f, --format FORMAT        of OUT: npy, csv or tsv (default: by OUT's name)\n"
         "      --input-format FMT     of IN: npy, csv or tsv (default: by its content and name)\n"
         "  -j, --threads N            threads (default: one for each processor): the same bits\n"
         "      --isa NAME             auto (default), scalar, avx2, avx512 or neon: the same bits\n"
         "  -h, --help                 this text");
    print_metrics();
    puts("\n"
         "example: napier umap images.npy -o map.npy --labels labels.npy --plot map.png --plot map.html\n"
         "example: napier umap --embedding map.npy --labels names.txt --plot map.svg --title Digits");
}
