/* napier_worker.c - Napier in the RL benchmark, and the floors: one process, driven line by line (bench_rl.py).
 *
 *     napier_worker THREADS
 *
 *     load NAME PATH                 done              an input, as the bytes of the file, in memory of our own
 *     prepare OP DTYPE ROWS COLS     ready VARIANT...  makes room for the results
 *     check VARIANT PREFIX           done NAME...      one run; each result as the bytes of PREFIX.NAME
 *     go VARIANT COUNT WARM          times S S S ...   seconds of each of COUNT runs, after one not counted if WARM is 1
 *     peak                           peak BYTES BYTES  memory the last go took beyond what was there, and its results'
 *     clear                          done              gives all memory back
 *     quit
 *
 * A line that cannot be done is answered "error REASON". It greets with "hello napier VERSION". */
#define _GNU_SOURCE
#include "floors/floors.h"

#include <malloc.h>
#include <napier/napier.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { HUGE_PAGE = 2 << 20, LINE = 4096, INPUTS = 12, OUTPUTS = 8 };
static const char *const input_names[INPUTS] = {"logits",  "ids",    "hidden",  "weights", "policy",     "ref",
                                                "offsets", "rubric", "factors", "old",     "advantages", "grad"};
enum { LOGITS, IDS, HIDDEN, WEIGHTS, POLICY, REF, OFFSETS, RUBRIC, FACTORS, OLD, ADVANTAGES, GRAD };

typedef struct buffer {
    char *data;
    size_t bytes, map_bytes;
    void *map;
} buffer;

typedef struct output {
    const char *name;
    buffer room;
    bool used; /* in the last go */
} output;

static napier_context *context;
static int threads;
static buffer inputs[INPUTS];
static output outputs[OUTPUTS];
static const struct operation *current;
static napier_dtype dtype;
static int64_t rows, cols;
static floor_choice floors;
static floor_work work;
static int best_exp;
static long long resident, highest; /* bytes before and in the last go */

/* ---- Memory ----------------------------------------------------------------------------------------------------------*/

static void buffer_free(buffer *const b) {
    if (b->map)
        munmap(b->map, b->map_bytes);
    memset(b, 0, sizeof *b);
}

/* Private memory in huge pages where the system allows, touched, and whole kibibytes as the floors want them. */
static bool buffer_take(buffer *const b, const size_t bytes) {
    buffer_free(b);
    const size_t room = (bytes / HUGE_PAGE + 1) * HUGE_PAGE;
    b->map = mmap(NULL, room + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b->map == MAP_FAILED) {
        memset(b, 0, sizeof *b);
        return false;
    }
    b->map_bytes = room + HUGE_PAGE;
    b->bytes = bytes;
    b->data = (char *)(((uintptr_t)b->map + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
    madvise(b->data, room, MADV_HUGEPAGE);
    memset(b->data, 0, room);
    return true;
}

static bool buffer_read(buffer *const b, const char *const path) {
    struct stat about;
    FILE *const file = fopen(path, "rb");
    if (!file)
        return false;
    const bool good = fstat(fileno(file), &about) == 0 && buffer_take(b, (size_t)about.st_size) &&
                      fread(b->data, 1, b->bytes, file) == b->bytes;
    fclose(file);
    return good;
}

static bool buffer_write(const buffer *const b, const char *const prefix, const char *const name) {
    char path[LINE + 64];
    snprintf(path, sizeof path, "%s.%s", prefix, name);
    FILE *const file = fopen(path, "wb");
    const bool good = file && fwrite(b->data, 1, b->bytes, file) == b->bytes;
    return file && fclose(file) == 0 && good;
}

/* The result `name`, made when it is first asked for. */
static void *result(const char *const name, const size_t bytes) {
    for (int k = 0; k < OUTPUTS; k++) {
        if (!outputs[k].name) {
            outputs[k].name = name;
            outputs[k].used = true;
            return buffer_take(&outputs[k].room, bytes) ? outputs[k].room.data : NULL;
        }
        if (strcmp(outputs[k].name, name) == 0) {
            outputs[k].used = true;
            return outputs[k].room.data;
        }
    }
    return NULL;
}

static void forget_results(void) {
    for (int k = 0; k < OUTPUTS; k++) {
        buffer_free(&outputs[k].room);
        outputs[k].name = NULL;
    }
}

static int64_t count_of(const int input, const size_t item) { return (int64_t)(inputs[input].bytes / item); }

/* ---- Views of inputs and results -------------------------------------------------------------------------------------*/

static napier_const_matrix matrix_of(const int input, const int64_t height, const int64_t width) {
    return napier_const_rows(inputs[input].data, height, width, dtype);
}
static napier_const_vector vector_of(const int input) {
    return napier_const_array(inputs[input].data, count_of(input, sizeof(float)), NAPIER_F32);
}
static napier_indices indices_of(const int input) {
    return napier_indices_i64((const int64_t *)inputs[input].data, count_of(input, sizeof(int64_t)));
}
static napier_matrix result_rows(const char *const name, const int64_t height, const int64_t width) {
    return napier_rows_f32(result(name, (size_t)(height * width) * sizeof(float)), height, width);
}
static napier_vector result_array(const char *const name, const int64_t size) {
    return napier_array_f32(result(name, (size_t)size * sizeof(float)), size);
}
/* A result in the dtype of the logits. */
static napier_matrix result_like_logits(const char *const name) {
    return napier_rows(result(name, (size_t)(rows * cols) * napier_dtype_size(dtype)), rows, cols, dtype);
}

/* ---- The operations --------------------------------------------------------------------------------------------------*/

typedef napier_status run_function(int variant);

static napier_token_results token_results(const int variant) {
    napier_token_results r = NAPIER_TOKEN_RESULTS_INIT;
    r.logprobs = result_rows("logprobs", rows, 1);
    r.entropy = result_array("entropy", rows);
    if (variant == 1) {
        r.lse = result_array("lse", rows);
        r.argmax = result("argmax", (size_t)rows * sizeof(int64_t));
        r.rank = result("rank", (size_t)rows * sizeof(int64_t));
    }
    return r;
}

static napier_status token_logprobs(const int variant) {
    const napier_token_results r = token_results(variant);
    return napier_token_logprobs(context, matrix_of(LOGITS, rows, cols), indices_of(IDS), NULL, &r);
}

static napier_status log_softmax(const int variant) {
    (void)variant;
    return napier_fused_log_softmax(context, matrix_of(LOGITS, rows, cols), result_like_logits("logprobs"), NULL);
}

static napier_status gather(const int variant) {
    (void)variant;
    return napier_gather_logprobs(context, matrix_of(LOGITS, rows, cols), indices_of(IDS),
                                  result_array("gathered", rows));
}

static int64_t hidden_size(void) { return count_of(HIDDEN, napier_dtype_size(dtype)) / rows; }

static napier_status linear(const int variant) {
    const int64_t h = hidden_size();
    const napier_const_matrix hidden = matrix_of(HIDDEN, rows, h), weights = matrix_of(WEIGHTS, cols, h);
    if (variant == 1)
        return napier_matmul(context, hidden, napier_const_transposed(weights), result_rows("logits", rows, cols));
    const napier_token_results r = token_results(0);
    return napier_linear_token_logprobs(context, hidden, weights, indices_of(IDS), NULL, &r);
}

/* Scores, and then the gradient of sum_i grad[i] logprob[i]: what a training step does. */
static napier_status linear_backward(const int variant) {
    (void)variant;
    const int64_t h = hidden_size();
    const napier_status status = linear(0);
    napier_token_gradients g = NAPIER_TOKEN_GRADIENTS_INIT;
    g.logprobs = napier_const_rows_f32((const float *)inputs[GRAD].data, rows, 1);
    if (status != NAPIER_OK)
        return status;
    return napier_linear_token_logprobs_backward(context, matrix_of(HIDDEN, rows, h), matrix_of(WEIGHTS, cols, h),
                                                 indices_of(IDS), NULL, &g, result_rows("grad_hidden", rows, h),
                                                 result_rows("grad_weights", cols, h));
}

static int64_t responses(void) { return indices_of(OFFSETS).size - 1; }

static napier_status kl(const int variant) {
    napier_kl_options options = NAPIER_KL_OPTIONS_INIT;
    options.estimator = variant == 0 ? NAPIER_KL_K1 : NAPIER_KL_K3;
    return napier_kl_per_response(context, vector_of(POLICY), vector_of(REF), indices_of(OFFSETS), NULL, &options,
                                  result_array("kl", responses()));
}
static napier_status kl_k1(const int variant) {
    (void)variant;
    return kl(0);
}
static napier_status kl_k3(const int variant) {
    (void)variant;
    return kl(1);
}

static napier_status rubric(const int variant) {
    (void)variant;
    const int64_t criteria = count_of(FACTORS, sizeof(float));
    return napier_rubric_score(context, vector_of(POLICY), indices_of(IDS), indices_of(OFFSETS),
                               matrix_of(RUBRIC, criteria, cols), vector_of(FACTORS),
                               result_rows("scores", responses(), criteria), result_array("rewards", responses()));
}

static napier_grpo_batch batch_of(const bool with_logprobs) {
    napier_grpo_batch b = NAPIER_GRPO_BATCH_INIT;
    if (with_logprobs)
        b.logprobs = vector_of(POLICY);
    b.old_logprobs = vector_of(OLD);
    b.ref_logprobs = vector_of(REF);
    b.advantages = vector_of(ADVANTAGES);
    b.offsets = indices_of(OFFSETS);
    return b;
}

static napier_grpo_options grpo_options(void) {
    napier_grpo_options options = NAPIER_GRPO_OPTIONS_INIT;
    options.beta = 0.04;
    return options;
}

/* The losses of all tokens, without a gradient. */
static napier_status grpo_token(const int variant) {
    (void)variant;
    const napier_grpo_batch b = batch_of(true);
    const napier_grpo_options options = grpo_options();
    const napier_vector absent = {NULL, 0, 1, NAPIER_F32};
    return napier_grpo_token_loss(context, &b, &options, result_array("losses", rows), absent);
}

static double *loss_result(void) { return result("loss", sizeof(double)); }

/* One number and its gradient. */
static napier_status grpo_loss(const int variant) {
    (void)variant;
    const napier_grpo_batch b = batch_of(true);
    const napier_grpo_options options = grpo_options();
    const napier_vector absent = {NULL, 0, 1, NAPIER_F32};
    napier_grpo_metrics metrics = NAPIER_GRPO_METRICS_INIT;
    const napier_status status =
        napier_grpo_loss(context, &b, &options, &metrics, result_array("grad_logprobs", rows), absent);
    *loss_result() = metrics.loss;
    return status;
}

static napier_status grpo_from_logits(const int variant) {
    const napier_grpo_batch b = batch_of(false);
    const napier_grpo_options options = grpo_options();
    const napier_matrix grad_logits = result_like_logits("grad_logits"); /* the first: where the floor writes, too */
    const napier_vector logprobs = result_array("logprobs", rows), absent = {NULL, 0, 1, NAPIER_F32};
    const napier_vector entropy = variant == 1 ? result_array("entropy", rows) : absent;
    napier_grpo_metrics metrics = NAPIER_GRPO_METRICS_INIT;
    const napier_status status = napier_grpo_from_logits(context, matrix_of(LOGITS, rows, cols), indices_of(IDS), &b,
                                                         &options, NULL, &metrics, grad_logits, logprobs, entropy);
    *loss_result() = metrics.loss;
    return status;
}

/* `writes`: the floor of memory is a copy of the logits, not one read. */
typedef struct operation {
    const char *name;
    run_function *run;
    bool floors, writes;
    const char *variants[3];
} operation;

static const operation operations[] = {
    {"token_logprobs", token_logprobs, true, false, {"napier", "napier_all"}},
    {"log_softmax", log_softmax, true, true, {"napier"}},
    {"gather", gather, false, false, {"napier"}},
    {"linear", linear, false, false, {"napier", "napier_matmul"}},
    {"linear_backward", linear_backward, false, false, {"napier"}},
    {"kl_k1", kl_k1, false, false, {"napier"}},
    {"kl_k3", kl_k3, false, false, {"napier"}},
    {"rubric", rubric, false, false, {"napier"}},
    {"grpo_token", grpo_token, false, false, {"napier"}},
    {"grpo_loss", grpo_loss, false, false, {"napier"}},
    {"grpo_from_logits", grpo_from_logits, true, true, {"napier", "napier_entropy"}},
};

/* ---- Floors ----------------------------------------------------------------------------------------------------------*/

static void choose_exp(const napier_isa isa) {
    floors.kernels = floors_of(isa);
    double best = 1e9;
    for (int trial = 0; trial < 20 * FLOOR_EXPS; trial++) {
        const double begin = floors_now();
        floors_exp(floors.kernels, trial % FLOOR_EXPS, threads);
        const double took = floors_now() - begin;
        if (took < best)
            best = took, best_exp = trial % FLOOR_EXPS;
    }
}

/* One read of the logits, and a write of as much where the operation writes; a row that does not fit the second cache is
 * read twice by an operation that writes it. */
static void choose_floors(void) {
    long kib = 1024;
    FILE *const file = fopen("/sys/devices/system/cpu/cpu0/cache/index2/size", "r");
    if (file && fscanf(file, "%ldK", &kib) != 1)
        kib = 1024;
    if (file)
        fclose(file);
    const size_t row_bytes = (size_t)cols * napier_dtype_size(dtype);
    void *const out = current->writes ? outputs[0].room.data : NULL;
    work =
        (floor_work){inputs[LOGITS].data, out, (size_t)rows, row_bytes, out ? row_bytes * (size_t)rows : 0, 1, threads};
    if (current->writes && row_bytes > (size_t)kib << 10)
        work.reads = 2;
    floors = floors_choose(floors.kernels, &work);
}

/* Seconds of a floor; negative if the name is none. */
static double run_floor(const char *const name) {
    const double begin = floors_now();
    if (strcmp(name, "clock") == 0)
        return floors_clock();
    if (strcmp(name, "floor_exp") == 0)
        floors_exp(floors.kernels, best_exp, threads);
    else if (strcmp(name, "floor_memory") == 0)
        floors_memory(&floors, &work);
    else if (strcmp(name, "floor_read") == 0)
        floors_read(&floors, &work);
    else
        return -1;
    return floors_now() - begin;
}

/* ---- Lines -----------------------------------------------------------------------------------------------------------*/

static int variant_of(const char *const name) {
    for (int k = 0; current && k < 3 && current->variants[k]; k++) {
        if (strcmp(current->variants[k], name) == 0)
            return k;
    }
    return -1;
}

static double run(const char *const name) {
    const int variant = variant_of(name);
    if (variant < 0)
        return run_floor(name);
    const double begin = floors_now();
    const napier_status status = current->run(variant);
    return status == NAPIER_OK ? floors_now() - begin : -1;
}

static void answer_load(const char *const line) {
    char name[64], path[LINE];
    if (sscanf(line, "load %63s %4095s", name, path) == 2) {
        for (int k = 0; k < INPUTS; k++) {
            if (strcmp(name, input_names[k]) == 0) {
                puts(buffer_read(&inputs[k], path) ? "done" : "error cannot be read");
                return;
            }
        }
    }
    puts("error no such input");
}

static void answer_prepare(const char *const line) {
    char name[64], kind[16];
    long long height, width;
    current = NULL;
    forget_results();
    if (sscanf(line, "prepare %63s %15s %lld %lld", name, kind, &height, &width) != 4) {
        puts("error bad line");
        return;
    }
    for (size_t k = 0; k < sizeof operations / sizeof *operations; k++) {
        if (strcmp(operations[k].name, name) == 0)
            current = &operations[k];
    }
    if (!current) {
        puts("error no such operation");
        return;
    }
    dtype = strcmp(kind, "bf16") == 0 ? NAPIER_BF16 : NAPIER_F32;
    rows = height;
    cols = width;
    const napier_status status = current->run(0);
    if (status != NAPIER_OK) {
        printf("error %s: %s\n", napier_status_string(status), napier_last_error(context));
        current = NULL;
        return;
    }
    fputs("ready", stdout);
    for (int k = 0; k < 3 && current->variants[k]; k++)
        printf(" %s", current->variants[k]);
    if (current->floors) {
        choose_floors();
        fputs(current->writes ? " floor_memory floor_exp" : " floor_read floor_exp", stdout);
    }
    puts("");
}

static void answer_check(const char *const line) {
    char name[64], prefix[LINE];
    if (sscanf(line, "check %63s %4095s", name, prefix) != 2 || variant_of(name) < 0 || run(name) < 0) {
        printf("error %s\n", napier_last_error(context));
        return;
    }
    for (int k = 0; k < OUTPUTS && outputs[k].name; k++) {
        if (!buffer_write(&outputs[k].room, prefix, outputs[k].name)) {
            puts("error a result cannot be written");
            return;
        }
    }
    fputs("done", stdout);
    for (int k = 0; k < OUTPUTS && outputs[k].name; k++)
        printf(" %s", outputs[k].name);
    puts("");
}

/* A line of /proc/self/status in bytes. */
static long long own_memory(const char *const what) {
    char line[256];
    long long kib = 0;
    FILE *const file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, what, strlen(what)) == 0)
            kib = atoll(line + strlen(what));
    }
    if (file)
        fclose(file);
    return kib * 1024;
}

static void answer_go(const char *const line) {
    char name[64];
    int count, warm;
    FILE *const reset = fopen("/proc/self/clear_refs", "w"); /* 5: the high-water mark starts again */
    if (reset) {
        fputs("5", reset);
        fclose(reset);
    }
    for (int k = 0; k < OUTPUTS; k++)
        outputs[k].used = false;
    malloc_trim(0); /* memory that was freed must not pass for memory that is not needed */
    resident = own_memory("VmRSS:");
    if (sscanf(line, "go %63s %d %d", name, &count, &warm) != 3 || count < 1 || (warm && run(name) < 0)) {
        printf("error %s\n", napier_last_error(context));
        return;
    }
    fputs("times", stdout);
    for (int k = 0; k < count; k++)
        printf(" %.9g", run(name));
    puts("");
    highest = own_memory("VmHWM:");
}

static void answer_peak(void) {
    long long results = 0;
    for (int k = 0; k < OUTPUTS; k++)
        results += outputs[k].used ? (long long)outputs[k].room.bytes : 0;
    printf("peak %lld %lld\n", highest - resident, results);
}

static void answer_clear(void) {
    forget_results();
    current = NULL;
    for (int k = 0; k < INPUTS; k++)
        buffer_free(&inputs[k]);
    puts("done");
}

int main(int argc, char **argv) {
    napier_context_options options = NAPIER_CONTEXT_OPTIONS_INIT;
    options.threads = threads = argc > 1 ? atoi(argv[1]) : 1;
    if (napier_context_create(&context, &options) != NAPIER_OK) {
        puts("sorry no context");
        return 1;
    }
    choose_exp(napier_context_isa(context));
    printf("hello napier %s %s\n", napier_version(), napier_isa_name(napier_context_isa(context)));
    fflush(stdout);
    static char line[2 * LINE];
    while (fgets(line, sizeof line, stdin) && strncmp(line, "quit", 4) != 0) {
        if (strncmp(line, "load ", 5) == 0)
            answer_load(line);
        else if (strncmp(line, "prepare ", 8) == 0)
            answer_prepare(line);
        else if (strncmp(line, "check ", 6) == 0)
            answer_check(line);
        else if (strncmp(line, "peak", 4) == 0)
            answer_peak();
        else if (strncmp(line, "go ", 3) == 0)
            answer_go(line);
        else if (strncmp(line, "clear", 5) == 0)
            answer_clear();
        else
            puts("error unknown line");
        fflush(stdout);
    }
    answer_clear();
    napier_context_destroy(context);
    return 0;
}
