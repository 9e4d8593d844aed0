/* digits - a classifier of handwritten digits, trained with Napier's own operations and gradients.
 *
 *     digits [DATA [OUT]]      DATA: a folder with images.npy and labels.npy (default data/digits)
 *                              OUT:  a folder for logits.npy and answers.npy of the held-out digits (default: none)
 *
 * Softmax regression: an image x (64 grey values and a constant 1) and weights W [65, 10] give ten logits x W, and
 * log_softmax of those the log-probability of each digit. Training lowers the mean of -logprob[true digit] by gradient
 * descent with momentum; napier_log_softmax_backward carries the gradient from the log-probabilities to the logits.
 * The small matrix products are plain loops, so that they too give the same bits on every machine.
 *
 * Exit status: 0, or 1 if fewer than 95 % of the held-out digits are read correctly or anything failed. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <napier/napier.h>

enum { SIDE = 8, PIXELS = SIDE * SIDE, INPUTS = PIXELS + 1, DIGITS = 10, INK = 16 };

/* Training. The weights start at 0; the weight decay is small beside the loss and keeps them so. */
enum { STEPS = 300 };
static const float LEARNING_RATE = 0.5F;
static const float MOMENTUM = 0.9F;
static const float WEIGHT_DECAY = 1e-4F;

/* One digit in five is held out, chosen by a shuffle with a fixed seed. */
enum { HELD_OUT_ONE_IN = 5, SEED = 1617 };
static const double TARGET = 0.95;

/* Some of the digits: inputs [count, INPUTS] and which digit each is. */
typedef struct sample {
    int64_t count;
    float *inputs;
    uint8_t *labels;
} sample;

static void fail(const char *what, const char *detail) {
    fprintf(stderr, "digits: %s: %s\n", what, detail);
    exit(EXIT_FAILURE);
}

static void *allocate(int64_t count, size_t size) {
    void *const memory = calloc((size_t)count, size);
    if (!memory) {
        fail("memory", "none left");
    }
    return memory;
}

static void check(napier_status status, const napier_context *context) {
    if (status != NAPIER_OK) {
        fail(napier_status_string(status), napier_last_error(context));
    }
}

/* ---- .npy files: just enough for this example -------------------------------------------------------------------- */

/* Magic, version and length take 10 bytes; the text that describes the array fills the header up to 128. */
enum { NPY_START = 10, NPY_TEXT = 118 };

/* Reads rows x cols bytes; cols is given, the number of rows stands in the file. */
static uint8_t *read_npy_bytes(const char *folder, const char *name, int64_t cols, int64_t *rows) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *const file = fopen(path, "rb");
    if (!file) {
        fail(path, "cannot be opened");
    }
    unsigned char start[NPY_START];
    char text[NPY_TEXT + 1] = "";
    if (fread(start, 1, NPY_START, file) != NPY_START || memcmp(start, "\x93NUMPY\x01", 7) != 0 ||
        start[8] + 256 * start[9] != NPY_TEXT || fread(text, 1, NPY_TEXT, file) != NPY_TEXT) {
        fail(path, "is not a .npy file of version 1 with a header of 128 bytes");
    }
    const char *const shape = strstr(text, "'shape': (");
    char *end = NULL;
    const long long first = shape ? strtoll(shape + 10, &end, 10) : 0;
    const long long second = end && *end == ',' && end[1] != ')' ? strtoll(end + 1, NULL, 10) : 1;
    if (!strstr(text, "'|u1'") || first < HELD_OUT_ONE_IN || first > 1000000 || second != cols) {
        fail(path, "is not an array of bytes of the expected shape");
    }
    uint8_t *const data = allocate(first * cols, 1);
    if (fread(data, (size_t)cols, (size_t)first, file) != (size_t)first) {
        fail(path, "ends too early");
    }
    fclose(file);
    *rows = first;
    return data;
}

static void write_npy(const char *folder, const char *name, const char *descr, const char *shape, const void *data,
                      size_t bytes) {
    char path[4096];
    char text[NPY_TEXT + 1];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", descr, shape);
    FILE *const file = fopen(path, "wb");
    const int written =
        file &&
        fprintf(file, "\x93NUMPY%c%c%c%c%-*s\n", 1, 0, NPY_TEXT, 0, NPY_TEXT - 1, text) == NPY_START + NPY_TEXT &&
        fwrite(data, 1, bytes, file) == bytes;
    if (!file || fclose(file) != 0 || !written) {
        fail(path, "cannot be written");
    }
    printf("wrote %s\n", path);
}

/* ---- Data -------------------------------------------------------------------------------------------------------- */

static uint64_t next_random(uint64_t *state) { /* splitmix64 (Steele, Lea and Flood, 2014) */
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* A random order of 0 .. count - 1 (Fisher and Yates). */
static int64_t *shuffled(int64_t count) {
    int64_t *const order = allocate(count, sizeof *order);
    uint64_t state = SEED;
    for (int64_t i = 0; i < count; i++) {
        const int64_t j = (int64_t)(next_random(&state) % (uint64_t)(i + 1));
        order[i] = order[j];
        order[j] = i;
    }
    return order;
}

static sample take(const int64_t *which, int64_t count, const uint8_t *images, const uint8_t *labels) {
    const sample s = {count, allocate(count * INPUTS, sizeof(float)), allocate(count, 1)};
    for (int64_t i = 0; i < count; i++) {
        for (int64_t k = 0; k < PIXELS; k++) {
            s.inputs[i * INPUTS + k] = (float)images[which[i] * PIXELS + k] / (float)INK;
        }
        s.inputs[i * INPUTS + PIXELS] = 1.0F;
        s.labels[i] = labels[which[i]];
        if (s.labels[i] >= DIGITS) {
            fail("labels.npy", "holds something else than the digits 0 to 9");
        }
    }
    return s;
}

/* ---- The model --------------------------------------------------------------------------------------------------- */

/* logits [count, DIGITS] = inputs W */
static void forward(const sample *s, const float *weights, float *logits) {
    memset(logits, 0, (size_t)s->count * DIGITS * sizeof *logits);
    for (int64_t i = 0; i < s->count; i++) {
        for (int64_t k = 0; k < INPUTS; k++) {
            for (int64_t d = 0; d < DIGITS; d++) {
                logits[i * DIGITS + d] += s->inputs[i * INPUTS + k] * weights[k * DIGITS + d];
            }
        }
    }
}

/* grad_weights [INPUTS, DIGITS] = inputs^T grad_logits */
static void backward(const sample *s, const float *grad_logits, float *grad_weights) {
    memset(grad_weights, 0, sizeof *grad_weights * INPUTS * DIGITS);
    for (int64_t i = 0; i < s->count; i++) {
        for (int64_t k = 0; k < INPUTS; k++) {
            for (int64_t d = 0; d < DIGITS; d++) {
                grad_weights[k * DIGITS + d] += s->inputs[i * INPUTS + k] * grad_logits[i * DIGITS + d];
            }
        }
    }
}

/* The loss -mean logprobs[i][label i], and in grad_logprobs its gradient: -1/count at the labels, 0 elsewhere. */
static double cross_entropy(const sample *s, const float *logprobs, float *grad_logprobs) {
    double loss = 0.0;
    memset(grad_logprobs, 0, (size_t)s->count * DIGITS * sizeof *grad_logprobs);
    for (int64_t i = 0; i < s->count; i++) {
        loss -= (double)logprobs[i * DIGITS + s->labels[i]];
        grad_logprobs[i * DIGITS + s->labels[i]] = -1.0F / (float)s->count;
    }
    return loss / (double)s->count;
}

static void train(napier_context *context, const sample *s, float weights[INPUTS * DIGITS]) {
    float velocity[INPUTS * DIGITS] = {0};
    float grad_weights[INPUTS * DIGITS];
    float *const logits = allocate(s->count * DIGITS, sizeof *logits);
    float *const logprobs = allocate(s->count * DIGITS, sizeof *logprobs);
    float *const grad = allocate(s->count * DIGITS, sizeof *grad);
    const napier_const_matrix logits_in = napier_const_rows_f32(logits, s->count, DIGITS);
    const napier_const_matrix logprobs_in = napier_const_rows_f32(logprobs, s->count, DIGITS);
    const napier_const_matrix grad_in = napier_const_rows_f32(grad, s->count, DIGITS);

    for (int step = 0; step <= STEPS; step++) {
        forward(s, weights, logits);
        check(napier_log_softmax(context, logits_in, napier_rows_f32(logprobs, s->count, DIGITS), NULL), context);
        const double loss = cross_entropy(s, logprobs, grad);
        if (step % 100 == 0) {
            printf("  step %3d   loss %.4f\n", step, loss);
        }
        /* In place: the gradient with respect to the logits takes the place of that with respect to the logprobs. */
        check(napier_log_softmax_backward(context, logprobs_in, grad_in, napier_rows_f32(grad, s->count, DIGITS), NULL),
              context);
        backward(s, grad, grad_weights);
        for (int k = 0; k < INPUTS * DIGITS; k++) {
            velocity[k] = MOMENTUM * velocity[k] - LEARNING_RATE * (grad_weights[k] + WEIGHT_DECAY * weights[k]);
            weights[k] += velocity[k];
        }
    }
    free(grad);
    free(logprobs);
    free(logits);
}

/* ---- The report -------------------------------------------------------------------------------------------------- */

/* The digit of rank `rank` (0: the likeliest) among ten probabilities. */
static int ranked(const float *probs, int rank) {
    for (int d = 0; d < DIGITS; d++) {
        int before = 0;
        for (int e = 0; e < DIGITS; e++) {
            before += probs[e] > probs[d] || (e < d && !(probs[e] < probs[d]));
        }
        if (before == rank) {
            return d;
        }
    }
    return 0; /* only if a probability is NaN */
}

/* The held-out digit read rightly (or wrongly) whose answer is the surest (or the least sure); -1 if there is none. */
static int64_t extreme(const sample *s, const float *probs, int right, int surest) {
    int64_t found = -1;
    float best = 0.0F;
    for (int64_t i = 0; i < s->count; i++) {
        const float *const row = probs + i * DIGITS;
        const int answer = ranked(row, 0);
        if ((answer == s->labels[i]) == right && (found < 0 || (surest ? row[answer] > best : row[answer] < best))) {
            found = i;
            best = row[answer];
        }
    }
    return found;
}

enum { SHOWN = 4, COLUMN = 2 * SIDE + 1 };

/* Digits side by side, two characters a pixel, and under each the three likeliest answers. */
static void draw(const sample *s, const float *probs, const int64_t which[SHOWN], const char *const titles[SHOWN]) {
    static const char *const shades[] = {"  ", "\u2591\u2591", "\u2592\u2592", "\u2593\u2593", "\u2588\u2588"};
    const float step = 1.0F / 4.0F;
    for (int n = 0; n < SHOWN; n++) {
        printf("  %-*s", COLUMN, which[n] < 0 ? "" : titles[n]);
    }
    printf("\n");
    for (int y = 0; y < SIDE; y++) {
        for (int n = 0; n < SHOWN; n++) {
            printf("  ");
            for (int x = 0; x < SIDE; x++) {
                const float ink = which[n] < 0 ? 0.0F : s->inputs[which[n] * INPUTS + (int64_t)y * SIDE + x];
                printf("%s", shades[(int)(ink / step)]);
            }
            printf("%*s", COLUMN - 2 * SIDE, "");
        }
        printf("\n");
    }
    for (int rank = 0; rank < 3; rank++) {
        for (int n = 0; n < SHOWN; n++) {
            if (which[n] < 0) {
                continue;
            }
            const float *const row = probs + which[n] * DIGITS;
            const int d = ranked(row, rank);
            printf("  %d  %9.5f %% %s", d, 100.0 * (double)row[d], d == s->labels[which[n]] ? "<-" : "  ");
        }
        printf("\n");
    }
}

/* Which digit was taken for which, a few to a line. */
enum { PER_LINE = 5 };

static void list_mistakes(const sample *s, const float *probs) {
    int taken[DIGITS][DIGITS] = {{0}};
    for (int64_t i = 0; i < s->count; i++) {
        taken[s->labels[i]][ranked(probs + i * DIGITS, 0)]++;
    }
    int kinds = 0;
    printf("Mistakes:");
    for (int d = 0; d < DIGITS; d++) {
        for (int e = 0; e < DIGITS; e++) {
            if (d != e && taken[d][e]) {
                const char *const separator = kinds == 0 ? " " : kinds % PER_LINE == 0 ? ",\n          " : ", ";
                printf("%s%d read as %d", separator, d, e);
                if (taken[d][e] > 1) {
                    printf(" (%d times)", taken[d][e]);
                }
                kinds++;
            }
        }
    }
    printf(kinds == 0 ? " none.\n" : ".\n");
}

/* A digest of the bytes that decide everything that follows (FNV-1a, 64 bits). */
static uint64_t digest(const void *data, size_t size) {
    const unsigned char *const bytes = data;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < size; i++) {
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

/* Prints how well and how surely the held-out digits were read; returns the share read correctly. */
static double report(const sample *s, const float *probs) {
    int64_t right = 0;
    double sureness = 0.0;
    for (int64_t i = 0; i < s->count; i++) {
        const int answer = ranked(probs + i * DIGITS, 0);
        right += answer == s->labels[i];
        sureness += (double)probs[i * DIGITS + answer];
    }
    const double accuracy = (double)right / (double)s->count;
    printf("\nHeld-out digits read correctly: %lld of %lld, %.1f %%; mean probability of its answers: %.1f %%.\n",
           (long long)right, (long long)s->count, 100.0 * accuracy, 100.0 * sureness / (double)s->count);
    list_mistakes(s, probs);

    const int64_t which[SHOWN] = {extreme(s, probs, 1, 1), extreme(s, probs, 1, 0), extreme(s, probs, 0, 0),
                                  extreme(s, probs, 0, 1)};
    static const char *const titles[SHOWN] = {"right, most sure", "right, least sure", "wrong, least sure",
                                              "wrong, most sure"};
    printf("\nHow sure it was (<- marks the true digit):\n\n");
    draw(s, probs, which, titles);
    printf("\n");
    return accuracy;
}

int main(int argc, char **argv) {
    const char *const folder = argc > 1 ? argv[1] : "data/digits";
    const char *const out = argc > 2 ? argv[2] : NULL;
    int64_t count = 0;
    int64_t labelled = 0;
    uint8_t *const images = read_npy_bytes(folder, "images.npy", PIXELS, &count);
    uint8_t *const labels = read_npy_bytes(folder, "labels.npy", 1, &labelled);
    if (count != labelled) {
        fail(folder, "images.npy and labels.npy differ in length");
    }
    for (int64_t i = 0; i < count * PIXELS; i++) {
        if (images[i] > INK) {
            fail("images.npy", "holds a pixel above 16");
        }
    }
    int64_t *const order = shuffled(count);
    const int64_t held_out = count / HELD_OUT_ONE_IN;
    const sample test = take(order, held_out, images, labels);
    const sample training = take(order + held_out, count - held_out, images, labels);

    napier_context *context = NULL;
    const napier_status created = napier_context_create(&context, NULL);
    if (created != NAPIER_OK) {
        fail("napier_context_create", napier_status_string(created));
    }
    printf("Training softmax regression on %lld handwritten digits (%lld more are held out):\n",
           (long long)training.count, (long long)test.count);
    float weights[INPUTS * DIGITS] = {0};
    train(context, &training, weights);

    float *const logits = allocate(test.count * DIGITS, sizeof *logits);
    float *const probs = allocate(test.count * DIGITS, sizeof *probs);
    forward(&test, weights, logits);
    check(napier_softmax(context, napier_const_rows_f32(logits, test.count, DIGITS),
                         napier_rows_f32(probs, test.count, DIGITS), NULL),
          context);
    const size_t bytes = (size_t)test.count * DIGITS * sizeof *logits;
    printf("  digest of the held-out logits: %016llx\n", (unsigned long long)digest(logits, bytes));
    const double accuracy = report(&test, probs);

    if (out) {
        char shape[64];
        snprintf(shape, sizeof shape, "%lld, %d", (long long)test.count, DIGITS);
        write_npy(out, "logits.npy", "<f4", shape, logits, bytes);
        snprintf(shape, sizeof shape, "%lld,", (long long)test.count);
        write_npy(out, "answers.npy", "|u1", shape, test.labels, (size_t)test.count);
    }
    napier_context_destroy(context);
    free(probs);
    free(logits);
    free(training.labels);
    free(training.inputs);
    free(test.labels);
    free(test.inputs);
    free(order);
    free(labels);
    free(images);
    if (accuracy < TARGET) {
        fail("accuracy", "less than 95 % of the held-out digits were read correctly");
    }
    return EXIT_SUCCESS;
}
