/* cli/softmax/softmax.c - the commands softmax, log-softmax, logsumexp and sparsemax: their common options and their help. */
#include "../commands.h"
#include "../program/machine.h"
#include "../program/memory.h"
#include "../program/message.h"
#include "../program/options.h"
#include "reduce.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct request {
    const char *command;
    const char *in_path, *out_path;
    file_format in_format, out_format;
    reduction reduction;
    machine machine;
    bool help;
} request;

static const char *const command_names[] = {"softmax", "log-softmax", "logsumexp", "sparsemax"};

/* ---- Options ----------------------------------------------------------------------------------------------------- */

enum { OUTPUT = 1, AXIS, MASKED_ROWS, TEMPERATURE, DTYPE, ALGORITHM, FORMAT, INPUT_FORMAT, BUFFER, THREADS, ISA, HELP };

static const option_spec specs[] = {
    {OUTPUT, "output", 'o', true},
    {AXIS, "axis", 'a', true},
    {MASKED_ROWS, "masked-rows", '\0', true},
    {TEMPERATURE, "temperature", 't', true},
    {DTYPE, "dtype", 'd', true},
    {ALGORITHM, "algorithm", '\0', true},
    {FORMAT, "format", 'f', true},
    {INPUT_FORMAT, "input-format", '\0', true},
    {BUFFER, "buffer", '\0', true},
    {THREADS, "threads", 'j', true},
    {ISA, "isa", '\0', true},
    {HELP, "help", 'h', false},
    {0, NULL, '\0', false},
};

static int set_axis(request *q, const char *value) {
    q->reduction.whole = strcmp(value, "all") == 0;
    if (q->reduction.whole || parse_integer(value, INT32_MIN, INT32_MAX, &q->reduction.axis)) {
        return STATUS_OK;
    }
    return bad_value(q->command, "axis", value, "a whole number or all");
}

static int set_masked_rows(request *q, const char *value) {
    static const char *const words[] = {"nan", "zero", NULL};
    const int index = word_index(value, words);
    if (index < 0) {
        return bad_value(q->command, "masked-rows", value, "nan or zero");
    }
    q->reduction.options.masked_rows = index == 0 ? NAPIER_MASKED_NAN : NAPIER_MASKED_ZERO;
    return STATUS_OK;
}

static int set_temperature(request *q, const char *value) {
    double *const temperature = &q->reduction.options.temperature;
    if (parse_number(value, temperature) && isfinite(*temperature) && *temperature > 0) {
        return STATUS_OK;
    }
    return bad_value(q->command, "temperature", value, "a finite number above 0");
}

static int set_dtype(request *q, const char *value) {
    static const char *const words[] = {"f32", "f16", "bf16", "f64", NULL};
    static const napier_dtype dtypes[] = {NAPIER_F32, NAPIER_F16, NAPIER_BF16, NAPIER_F64};
    const int index = word_index(value, words);
    if (index < 0) {
        return bad_value(q->command, "dtype", value, "f32, f16, bf16 or f64");
    }
    q->reduction.dtype = dtypes[index];
    return STATUS_OK;
}

static int set_algorithm(request *q, const char *value) {
    static const char *const words[] = {"auto", "safe", "online", "parallel", NULL};
    static const napier_algorithm algorithms[] = {NAPIER_ALGORITHM_AUTO, NAPIER_ALGORITHM_SAFE, NAPIER_ALGORITHM_ONLINE,
                                                  NAPIER_ALGORITHM_PARALLEL};
    const int index = word_index(value, words);
    if (index < 0) {
        return bad_value(q->command, "algorithm", value, "auto, safe, online or parallel");
    }
    q->reduction.options.algorithm = algorithms[index];
    return STATUS_OK;
}

static int set_format(const request *q, const char *option, const char *value, file_format *format) {
    return format_parse(value, format) ? STATUS_OK : bad_value(q->command, option, value, "npy, csv or tsv");
}

static int set_buffer(request *q, const char *value) {
    if (parse_size(value, &q->reduction.buffer) && q->reduction.buffer > 0 && q->reduction.buffer <= (int64_t)1 << 40) {
        q->reduction.memory = q->reduction.buffer;
        return STATUS_OK;
    }
    return bad_value(q->command, "buffer", value, "a number of bytes (K, M, G for more) above 0");
}

static int set_input(request *q, const char *value) {
    if (q->in_path != NULL) {
        char shown[64];
        return misuse(q->command, "one input at a time; '%s' is a second",
                      printable(shown, sizeof shown, value, strlen(value)));
    }
    q->in_path = value;
    return STATUS_OK;
}

static int set_option(request *q, int id, const char *value) {
    switch (id) {
    case OPTION_OPERAND: return set_input(q, value);
    case OUTPUT: q->out_path = value; return STATUS_OK;
    case AXIS: return set_axis(q, value);
    case MASKED_ROWS: return set_masked_rows(q, value);
    case TEMPERATURE: return set_temperature(q, value);
    case DTYPE: return set_dtype(q, value);
    case ALGORITHM: return set_algorithm(q, value);
    case FORMAT: return set_format(q, "format", value, &q->out_format);
    case INPUT_FORMAT: return set_format(q, "input-format", value, &q->in_format);
    case BUFFER: return set_buffer(q, value);
    case THREADS: q->machine.threads_text = value; return STATUS_OK;
    case ISA: q->machine.isa_text = value; return STATUS_OK;
    case HELP: q->help = true; return STATUS_OK;
    default: return STATUS_USAGE; /* OPTION_MISUSE, which has been reported */
    }
}

static int parse_request(request *q, int count, char **words) {
    option_scan scan = {.command = q->command, .specs = specs, .count = count, .words = words};
    for (int id = option_next(&scan); id != OPTION_END; id = option_next(&scan)) {
        const int status = set_option(q, id, scan.value);
        if (status != STATUS_OK || q->help) {
            return status;
        }
    }
    if (q->in_path == NULL) {
        return misuse(q->command, "an input file is missing (- is standard input)");
    }
    return machine_resolve(&q->machine, q->command);
}

/* ---- The commands ------------------------------------------------------------------------------------------------ */

static int run_request(request *q) {
    input in;
    napier_context *context = NULL;
    int status = machine_open(&q->machine, &context);
    if (status != STATUS_OK) {
        return status;
    }
    status = input_open(&in, q->in_path, q->in_format);
    if (status == STATUS_OK) {
        q->reduction.format = q->out_format != FORMAT_AUTO ? q->out_format : output_format(q->out_path, in.format);
        status = reduce_file(&q->reduction, context, &in, q->out_path);
    }
    input_close(&in);
    napier_context_destroy(context);
    return status;
}

/* 64 MiB, or an eighth of the memory where that is less. */
static int64_t default_buffer(int64_t memory) {
    const int64_t usual = (int64_t)64 << 20;
    const int64_t least = (int64_t)1 << 20;
    return memory / 8 >= usual ? usual : memory / 8 > least ? memory / 8 : least;
}

static int reduce_command(operation op, void (*help)(void), int count, char **words) {
    const int64_t memory = memory_usable();
    request q = {
        .command = command_names[op],
        .reduction = {.operation = op,
                      .axis = -1,
                      .buffer = default_buffer(memory),
                      .memory = memory,
                      .options = NAPIER_SOFTMAX_OPTIONS_INIT},
    };
    const int status = parse_request(&q, count, words);
    if (status != STATUS_OK) {
        return status;
    }
    if (q.help) {
        help();
        return finish_standard_output();
    }
    return run_request(&q);
}

int softmax_command(int count, char **words) { return reduce_command(OPERATION_SOFTMAX, softmax_help, count, words); }

int log_softmax_command(int count, char **words) {
    return reduce_command(OPERATION_LOG_SOFTMAX, log_softmax_help, count, words);
}

int logsumexp_command(int count, char **words) {
    return reduce_command(OPERATION_LOGSUMEXP, logsumexp_help, count, words);
}

int sparsemax_command(int count, char **words) {
    return reduce_command(OPERATION_SPARSEMAX, sparsemax_help, count, words);
}

/* ---- Help -------------------------------------------------------------------------------------------------------- */

static void print_options(void) {
    puts("\n"
         "  -o, --output OUT         where the result goes; default or -: standard output\n"
         "  -a, --axis N|all         the axis to reduce, from 0, or from the end as -1 (default);\n"
         "                           all: the whole array as one row\n"
         "  -t, --temperature T      divide the logits by T first (default 1)\n"
         "      --masked-rows WHAT   what a row of only -inf gives: nan (default) or zero\n"
         "  -d, --dtype TYPE         of the result: f32, f16, bf16 or f64 (default: the input's)\n"
         "  -f, --format FORMAT      of the result: npy, csv or tsv (default: by OUT's name)\n"
         "      --input-format FMT   of IN: npy, csv or tsv (default: by its content and name)\n"
         "      --algorithm NAME     auto (default), safe, online or parallel: the same bits\n"
         "      --buffer SIZE        bytes to work in, as 512K, 64M (default; less where memory is\n"
         "                           limited), 2G\n"
         "  -j, --threads N          threads (default: one for each processor)\n"
         "      --isa NAME           auto (default), scalar, avx2, avx512 or neon: the same bits\n"
         "  -h, --help               this text");
}

void softmax_help(void) {
    puts("usage: napier softmax IN [-o OUT] [OPTIONS]\n"
         "\n"
         "Probabilities from logits: exp(x) / sum exp(x) along an axis.\n"
         "IN is .npy, CSV or TSV, or - for standard input.");
    print_options();
    puts("\n"
         "example: napier softmax logits.npy -o probs.npy --temperature 0.7\n"
         "example: echo 1,2,3 | napier softmax -");
}

void log_softmax_help(void) {
    puts("usage: napier log-softmax IN [-o OUT] [OPTIONS]\n"
         "\n"
         "Log-probabilities from logits: x - logsumexp(x) along an axis; never above 0.\n"
         "IN is .npy, CSV or TSV, or - for standard input.");
    print_options();
    puts("\n"
         "example: napier log-softmax logits.npy -o logprobs.npy --axis 0 --dtype f32\n"
         "example: echo 1,2,3 | napier log-softmax -");
}

void logsumexp_help(void) {
    puts("usage: napier logsumexp IN [-o OUT] [OPTIONS]\n"
         "\n"
         "log sum exp(x) along an axis, which the result no longer has.\n"
         "IN is .npy, CSV or TSV, or - for standard input.");
    print_options();
    puts("\n"
         "example: napier logsumexp logits.npy --axis all\n"
         "example: echo 1,2,3 | napier logsumexp -");
}

void sparsemax_help(void) {
    puts("usage: napier sparsemax IN [-o OUT] [OPTIONS]\n"
         "\n"
         "Probabilities from logits, most of them exactly 0: the nearest point to x whose elements\n"
         "are 0 or more and add up to 1, along an axis. A row must fit the memory.\n"
         "IN is .npy, CSV or TSV, or - for standard input.");
    print_options();
    puts("\n"
         "example: napier sparsemax logits.npy -o probs.npy --axis 0\n"
         "example: echo 1,1.5,0.25,-3 | napier sparsemax -");
}
