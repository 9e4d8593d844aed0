/* cli/softmax/softmax.c - the commands softmax, log-softmax, logsumexp and sparsemax: their options and their help. */
#include "commands.h"
#include "reduce.h"

#include <float.h>
#include <string.h>

static const char *set_axis(void *request, const char *value) {
    reduction *const r = request;
    r->whole = strcmp(value, "all") == 0;
    return r->whole || parse_integer(value, INT32_MIN, INT32_MAX, &r->axis) ? NULL : "a whole number or all";
}

static const option_word masked_rows[] = {{"nan", NAPIER_MASKED_NAN}, {"zero", NAPIER_MASKED_ZERO}, {NULL, 0}};
static const option_word algorithms[] = {{"auto", NAPIER_ALGORITHM_AUTO},
                                         {"safe", NAPIER_ALGORITHM_SAFE},
                                         {"online", NAPIER_ALGORITHM_ONLINE},
                                         {"parallel", NAPIER_ALGORITHM_PARALLEL},
                                         {NULL, 0}};

#define AT(member) offsetof(reduction, member)
static const option options[] = {
    {"output", 'o', OPTION_WRITE, "OUT", AT(shared.out_path),
     .help = "where the result goes; default or -: standard output"},
    {"axis", 'a', OPTION_OTHER, "N|all", 0, .set = set_axis,
     .help =
         "the axis to reduce, from 0, or from the end as -1 (default); all: the whole array as one row, in the order "
         "of its indices"},
    {"temperature", 't', OPTION_NUMBER, "T", AT(options.temperature), OPTION_ABOVE_0(DBL_MAX),
     .help = "divide the logits by T first (default 1)"},
    {"masked-rows", 0, OPTION_WORD, "WHAT", AT(options.masked_rows), .words = masked_rows,
     .help = "what a row of only -inf gives: nan (default), or zero (softmax and sparsemax 0, log-softmax -inf)"},
    {"dtype", 'd', OPTION_WORD, "TYPE", AT(dtype), .words = dtype_words,
     .help = "of the result: {} (default: the input's)"},
    {"format", 'f', OPTION_WORD, "FORMAT", AT(format), .words = array_formats,
     .help = "of the result: {} (default: by OUT's name, else the input's, but text for a terminal)"},
    {"input-format", 0, OPTION_WORD, "FORMAT", AT(in_format), .words = array_formats,
     .help = "of IN: {} (default: by its content and name)"},
    {"columns", 0, OPTION_TEXT, "LIST", AT(columns),
     .help = "of a CSV or TSV file, the columns to read: names of its header, numbers from 1, or ranges, as x,y,4-7"},
    {"algorithm", 0, OPTION_WORD, "NAME", AT(options.algorithm), .words = algorithms,
     .help = "how rows are read: {} (default auto): the same bits"},
    {"buffer", 0, OPTION_SIZE, "SIZE", AT(buffer), OPTION_ABOVE_0(0x1p40),
     .help = "bytes to work in, as 512K, 64M (default; less where memory is limited), 2G"},
    {.name = NULL},
};
static const option_group groups[] = {{NULL, options}, MACHINE_GROUP};

/* The commands differ in their operation and their texts alone. */
#define REDUCTION(symbol, what, title, text, formula, examples)                   \
    static const reduction symbol##_defaults = {                                  \
        .operation = (what), .axis = -1, .options = NAPIER_SOFTMAX_OPTIONS_INIT}; \
    const command symbol##_command = {                                            \
        .name = (title),                                                          \
        .summary = (text),                                                        \
        .usage = "IN [-o OUT] [OPTIONS]",                                         \
        .about = formula "\nIN is .npy, CSV or TSV, or - for standard input.",    \
        .example = (examples),                                                    \
        .groups = groups,                                                         \
        .is_in_place = true,                                                      \
        .size = sizeof(reduction),                                                \
        .defaults = &symbol##_defaults,                                           \
        .run = reduce_file,                                                       \
    }

REDUCTION(softmax, OPERATION_SOFTMAX, "softmax", "probabilities from logits",
          "Probabilities from logits: exp(x) / sum exp(x) along an axis.",
          "napier softmax logits.npy -o probs.npy --temperature 0.7\n"
          "echo 1,2,3 | napier softmax -");
REDUCTION(log_softmax, OPERATION_LOG_SOFTMAX, "log-softmax", "log-probabilities from logits",
          "Log-probabilities from logits: x - logsumexp(x) along an axis; never above 0.",
          "napier log-softmax logits.npy -o logprobs.npy --axis 0 --dtype f32\n"
          "echo 1,2,3 | napier log-softmax -");
REDUCTION(logsumexp, OPERATION_LOGSUMEXP, "logsumexp", "the logarithm of a sum of exponentials",
          "log sum exp(x) along an axis, which the result no longer has.",
          "napier logsumexp logits.npy --axis all\n"
          "echo 1,2,3 | napier logsumexp -");
REDUCTION(sparsemax, OPERATION_SPARSEMAX, "sparsemax", "probabilities from logits, most of them 0",
          "Probabilities from logits, most of them exactly 0: the nearest point to x whose elements\n"
          "are 0 or more and add up to 1, along an axis. A row must fit the memory.",
          "napier sparsemax logits.npy -o probs.npy --axis 0\n"
          "echo 1,1.5,0.25,-3 | napier sparsemax -");
