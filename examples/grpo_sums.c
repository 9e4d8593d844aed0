/* grpo_sums - a policy learns to add by trial and error: reinforcement learning with GRPO and a reward that is checked.
 *
 *     grpo_sums [PLOT.svg]
 *
 * The policy is told a number from 3 to 20, writes digits one after another, and stops. The reward is 1 where the digits
 * add up to the number, otherwise 0: nobody shows it a right answer. It is a table: for each value of what still remains,
 * one logit for each digit and for "stop", 242 parameters, which start at 0. A step of training:
 *
 *     sample     a group of 16 answers to each number (napier_softmax, a random number of our own);
 *     score      the log-probabilities of the tokens under the policy that wrote them (napier_token_logprobs);
 *     compare    an answer's advantage is its reward against its group's mean, by the group's spread;
 *     improve    four times: the clipped loss and its gradient straight from the logits (napier_grpo_from_logits),
 *                gathered into the table, and one step of Adam.
 *
 * The random numbers have a fixed seed and Napier's results the same bits everywhere: every machine prints the same.
 * Exit status: 0, or 1 if the reward has not risen from below 0.1 to above 0.9, or anything failed. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <napier/napier.h>

enum { SMALLEST = 3, LARGEST = 20, NUMBERS = LARGEST - SMALLEST + 1 };
enum { DIGITS = 10, STOP = DIGITS, TOKENS = DIGITS + 1, LONGEST = 8 };
enum { OVERSHOT = LARGEST + 1, STATES = OVERSHOT + 1 }; /* what remains: 0 .. 20; or too much is written */
enum { GROUP = 16, ANSWERS = NUMBERS * GROUP, ROOM = ANSWERS * LONGEST };
enum { STEPS = 120, INNER_STEPS = 4, WINDOW = 5, SEED = 7 };
static const float LEARNING_RATE = 0.02F;
static const double START_BELOW = 0.1, END_ABOVE = 0.9;

typedef struct policy {
    float table[STATES][TOKENS];
    float mean[STATES][TOKENS], square[STATES][TOKENS]; /* Adam's */
    int64_t updates;
} policy;

/* A batch of answers, token after token: what remained before each token, and the token. */
typedef struct batch {
    int64_t tokens;
    int32_t states[ROOM], ids[ROOM];
    int64_t offsets[ANSWERS + 1];
    float rewards[ANSWERS], advantages[ANSWERS];
    float logits[ROOM * TOKENS], grad_logits[ROOM * TOKENS];
    float old_logprobs[ROOM];
} batch;

static void fail(const char *what, const char *detail) {
    fprintf(stderr, "grpo_sums: %s: %s\n", what, detail);
    exit(EXIT_FAILURE);
}

static void check(napier_status status, const napier_context *context) {
    if (status != NAPIER_OK) {
        fail(napier_status_string(status), napier_last_error(context));
    }
}

static double next_random(uint64_t *state) { /* [0, 1): splitmix64 (Steele, Lea and Flood, 2014) */
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

/* ---- Writing answers --------------------------------------------------------------------------------------------- */

static int sample(const float *probs, uint64_t *random) {
    const double target = next_random(random);
    double sum = 0;
    for (int token = 0; token < TOKENS - 1; token++) {
        sum += (double)probs[token];
        if (target < sum) {
            return token;
        }
    }
    return TOKENS - 1;
}

static int state_after(int state, int digit) { return state == OVERSHOT || digit > state ? OVERSHOT : state - digit; }

/* One answer, appended to the batch; its reward. An answer that does not stop in time is wrong. */
static float write_answer(int number, float (*probs)[TOKENS], batch *b, uint64_t *random) {
    int state = number;
    for (int length = 0; length < LONGEST; length++) {
        const int token = sample(probs[state], random);
        b->states[b->tokens] = state;
        b->ids[b->tokens++] = token;
        if (token == STOP) {
            return state == 0 ? 1.0F : 0.0F;
        }
        state = state_after(state, token);
    }
    return 0.0F;
}

static void write_answers(napier_context *context, const policy *p, batch *b, uint64_t *random) {
    static float probs[STATES][TOKENS];
    check(napier_softmax(context, napier_const_rows_f32(&p->table[0][0], STATES, TOKENS),
                         napier_rows_f32(&probs[0][0], STATES, TOKENS), NULL),
          context);
    b->tokens = 0;
    for (int answer = 0; answer < ANSWERS; answer++) {
        b->offsets[answer] = b->tokens;
        b->rewards[answer] = write_answer(SMALLEST + answer / GROUP, probs, b, random);
    }
    b->offsets[ANSWERS] = b->tokens;
}

/* ---- Learning from them ------------------------------------------------------------------------------------------ */

/* Reward against the mean of the answers to the same number, by their standard deviation. */
static void compare_groups(batch *b) {
    for (int begin = 0; begin < ANSWERS; begin += GROUP) {
        double sum = 0;
        double squares = 0;
        for (int k = begin; k < begin + GROUP; k++) {
            sum += (double)b->rewards[k];
            squares += (double)b->rewards[k] * (double)b->rewards[k];
        }
        const double mean = sum / GROUP;
        const double spread = sqrt(squares / GROUP - mean * mean);
        for (int k = begin; k < begin + GROUP; k++) {
            b->advantages[k] = (float)(((double)b->rewards[k] - mean) / (spread + 1e-4));
        }
    }
}

/* The policy's logits before each token of the batch: [tokens, TOKENS]. */
static napier_matrix look_up(const policy *p, batch *b) {
    for (int64_t t = 0; t < b->tokens; t++) {
        memcpy(b->logits + t * TOKENS, p->table[b->states[t]], sizeof p->table[0]);
    }
    return napier_rows_f32(b->logits, b->tokens, TOKENS);
}

static void score(napier_context *context, const policy *p, batch *b) {
    napier_token_results results = NAPIER_TOKEN_RESULTS_INIT;
    results.logprobs = napier_rows_f32(b->old_logprobs, b->tokens, 1);
    check(napier_token_logprobs(context, napier_read_only(look_up(p, b)), napier_indices_i32(b->ids, b->tokens), NULL,
                                &results),
          context);
}

/* One step of Adam (Kingma and Ba, 2015) on the table. */
static void descend(policy *p, float (*gradient)[TOKENS]) {
    static const float keep_mean = 0.9F;
    static const float keep_square = 0.99F;
    p->updates++;
    float left_mean = 1.0F;
    float left_square = 1.0F;
    for (int64_t k = 0; k < p->updates && left_mean > 1e-9F; k++) {
        left_mean *= keep_mean;
    }
    for (int64_t k = 0; k < p->updates && left_square > 1e-9F; k++) {
        left_square *= keep_square;
    }
    for (int i = 0; i < STATES; i++) {
        for (int j = 0; j < TOKENS; j++) {
            const float g = gradient[i][j];
            p->mean[i][j] = keep_mean * p->mean[i][j] + (1.0F - keep_mean) * g;
            p->square[i][j] = keep_square * p->square[i][j] + (1.0F - keep_square) * g * g;
            p->table[i][j] -= LEARNING_RATE * (p->mean[i][j] / (1.0F - left_mean)) /
                              (sqrtf(p->square[i][j] / (1.0F - left_square)) + 1e-8F);
        }
    }
}

/* The loss of the batch under the present policy, and one step down its gradient. */
static napier_grpo_metrics improve(napier_context *context, policy *p, batch *b) {
    napier_grpo_batch view = NAPIER_GRPO_BATCH_INIT;
    view.old_logprobs = napier_const_array_f32(b->old_logprobs, b->tokens);
    view.advantages = napier_const_array_f32(b->advantages, ANSWERS);
    view.offsets = napier_indices_i64(b->offsets, ANSWERS + 1);
    napier_grpo_options options = NAPIER_GRPO_OPTIONS_INIT;
    options.type = NAPIER_GRPO;
    const napier_vector absent = {NULL, 0, 1, NAPIER_F32};
    napier_grpo_metrics metrics = NAPIER_GRPO_METRICS_INIT;
    check(napier_grpo_from_logits(context, napier_read_only(look_up(p, b)), napier_indices_i32(b->ids, b->tokens),
                                  &view, &options, NULL, &metrics, napier_rows_f32(b->grad_logits, b->tokens, TOKENS),
                                  absent, absent),
          context);
    static float gradient[STATES][TOKENS];
    memset(gradient, 0, sizeof gradient);
    for (int64_t t = 0; t < b->tokens; t++) {
        for (int j = 0; j < TOKENS; j++) {
            gradient[b->states[t]][j] += b->grad_logits[t * TOKENS + j];
        }
    }
    descend(p, gradient);
    return metrics;
}

static double mean_reward(const batch *b) {
    double sum = 0;
    for (int k = 0; k < ANSWERS; k++) {
        sum += (double)b->rewards[k];
    }
    return sum / ANSWERS;
}

/* ---- Showing it -------------------------------------------------------------------------------------------------- */

static double mean_of(const double *values, int count) {
    double sum = 0;
    for (int k = 0; k < count; k++) {
        sum += values[k];
    }
    return sum / count;
}

/* The curve in the terminal: one line for WINDOW steps. */
static void print_curve(const double *rewards) {
    enum { BAR = 50 };
    printf("\nmean reward, %d steps a line\n", WINDOW);
    for (int step = 0; step < STEPS; step += WINDOW) {
        const double mean = mean_of(rewards + step, WINDOW);
        printf("%4d |%-*.*s| %.3f\n", step, BAR, (int)(mean * BAR + 0.5),
               "##################################################", mean);
    }
}

static void write_plot(const char *path, const double *rewards) {
    enum { WIDTH = 640, HEIGHT = 360, LEFT = 56, RIGHT = 24, TOP = 40, BOTTOM = 48 };
    const double x_step = (double)(WIDTH - LEFT - RIGHT) / (STEPS - 1);
    const double y_step = HEIGHT - TOP - BOTTOM;
    FILE *const file = fopen(path, "w");
    if (!file) {
        fail(path, "cannot be opened");
    }
    fprintf(
        file,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"13\">\n"
        "<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n"
        "<text x=\"%d\" y=\"24\" font-size=\"15\">GRPO: share of answers whose digits add up</text>\n",
        WIDTH, HEIGHT, WIDTH, HEIGHT, LEFT);
    for (int k = 0; k <= 4; k++) {
        const double y = TOP + y_step * (1.0 - k / 4.0);
        fprintf(file,
                "<path d=\"M%d %.1fH%d\" stroke=\"#ccc\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.2f</text>\n",
                LEFT, y, WIDTH - RIGHT, LEFT - 6, y + 4.5, k / 4.0);
    }
    for (int step = 0; step <= STEPS; step += STEPS / 4) {
        fprintf(file, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%d</text>\n", LEFT + step * x_step,
                HEIGHT - BOTTOM + 20, step);
    }
    fprintf(file,
            "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">step</text>\n<polyline fill=\"none\" stroke=\"#0b6\" "
            "stroke-width=\"2\" points=\"",
            (WIDTH + LEFT - RIGHT) / 2, HEIGHT - 8);
    for (int step = 0; step < STEPS; step++) {
        fprintf(file, "%.1f,%.1f ", LEFT + step * x_step, TOP + y_step * (1.0 - rewards[step]));
    }
    fprintf(file, "\"/>\n</svg>\n");
    if (ferror(file) | fclose(file)) {
        fail(path, "cannot be written");
    }
    printf("wrote %s\n", path);
}

/* The last answer of some groups, as the policy wrote them. */
static void print_answers(const batch *b) {
    puts("\nsome answers:");
    for (int number = SMALLEST; number <= LARGEST; number += 4) {
        const int answer = (number - SMALLEST) * GROUP + GROUP - 1;
        printf("%5d =", number);
        for (int64_t t = b->offsets[answer]; t < b->offsets[answer + 1]; t++) {
            if (b->ids[t] != STOP) {
                printf("%s%d", t > b->offsets[answer] ? " + " : " ", b->ids[t]);
            }
        }
        puts(b->rewards[answer] > 0 ? "" : "  (wrong)");
    }
}

int main(int argc, char **argv) {
    if (argc > 1 && argv[1][0] == '-') {
        puts("usage: grpo_sums [PLOT.svg]");
        return EXIT_SUCCESS;
    }
    static policy p;
    static batch b;
    static double rewards[STEPS];
    uint64_t random = SEED;
    napier_context *context = NULL;
    if (napier_context_create(&context, NULL) != NAPIER_OK) {
        fail("napier_context_create", "failed");
    }
    puts(" step  reward   tokens  clipped  ratio up to  policy moved (KL)");
    for (int step = 0; step < STEPS; step++) {
        write_answers(context, &p, &b, &random);
        rewards[step] = mean_reward(&b);
        score(context, &p, &b);
        compare_groups(&b);
        napier_grpo_metrics metrics = NAPIER_GRPO_METRICS_INIT;
        for (int k = 0; k < INNER_STEPS; k++) {
            metrics = improve(context, &p, &b);
        }
        if (step % (2 * WINDOW) == 0 || step == STEPS - 1) {
            printf("%5d  %.3f  %7.0f  %6.1f%%  %11.3f  %17.5f\n", step, rewards[step], metrics.tokens,
                   100 * (metrics.clip_low + metrics.clip_high), metrics.max_ratio, metrics.approx_kl);
        }
    }
    napier_context_destroy(context);
    print_curve(rewards);
    print_answers(&b);
    if (argc > 1) {
        write_plot(argv[1], rewards);
    }
    const double first = mean_of(rewards, WINDOW);
    const double last = mean_of(rewards + STEPS - WINDOW, WINDOW);
    printf("\nreward: %.3f at the start, %.3f at the end\n", first, last);
    return first < START_BELOW && last > END_ABOVE ? EXIT_SUCCESS : EXIT_FAILURE;
}
