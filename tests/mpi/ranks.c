/* tests/mpi/ranks.c - every call of napier/mpi.h against the call on whole rows in one process, byte by byte.
 *
 *     mpirun -n N ranks TABLE     compares with the golden table too
 *     mpirun -n 1 ranks           prints the table (tests/bits/v1/golden_shards.txt)
 *     mpirun -n N ranks wait      makes calls until it is stopped: for the test that kills a rank
 *
 * The rows are those of tests/peers/distributed_ranks.py, which has the same table. The last line of rank 0 counts. Exit
 * status 0: all agree. */
#include <napier/mpi.h>
#include <napier/napier.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROWS = 5, COLS = 5003, HIDDEN = 24, LISTS = 5, MOST_RANKS = 16, LINES = 64 };

static int rank, ranks, passed, failed;
static napier_context *context;
static char table[LINES][80];
static int lines;

/* ---- Data ------------------------------------------------------------------------------------------------------------ */

/* Numbers from -8 to 8 in steps of 2^-8, which every dtype but bf16 has exactly; the same in every language. */
static float number(uint32_t seed, uint32_t i) {
    const uint32_t mixed = (i + 1U) * 2654435761U ^ (seed + 1U) * 2246822519U;
    return (float)((mixed * 3266489917U) >> 20) / 256.0F - 8.0F;
}

static uint16_t bf16_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
}

static void *make(uint32_t seed, int64_t count, napier_dtype dtype) {
    char *const data = malloc((size_t)count * 4);
    for (int64_t i = 0; data && i < count; i++) {
        const float x = number(seed, (uint32_t)i);
        const uint16_t half = bf16_of(x);
        memcpy(data + (size_t)i * napier_dtype_size(dtype), dtype == NAPIER_F32 ? (const void *)&x : &half,
               napier_dtype_size(dtype));
    }
    if (!data) {
        exit(EXIT_FAILURE);
    }
    return data;
}

static napier_const_matrix columns(napier_const_matrix m, int64_t begin, int64_t end) {
    m.data = (const char *)m.data + (size_t)begin * (size_t)m.col_stride * napier_dtype_size(m.dtype);
    m.cols = end - begin;
    return m;
}

static uint32_t crc32(const unsigned char *bytes, size_t size) {
    uint32_t crc = 0xffffffffU;
    for (size_t i = 0; i < size; i++) {
        crc ^= bytes[i];
        for (int k = 0; k < 8; k++) {
            crc = crc >> 1 ^ (crc & 1U ? 0xedb88320U : 0U);
        }
    }
    return ~crc;
}

/* ---- Checks ---------------------------------------------------------------------------------------------------------- */

static void count(bool good, const char *what) {
    int mine = good ? 1 : 0, all = 0;
    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    passed += all;
    failed += 1 - all;
    if (!good) {
        printf("FAIL  %s on rank %d of %d: %s\n", what, rank, ranks, napier_last_error(context));
    }
}

static void check_status(napier_status status, const char *what) {
    if (status) {
        printf("FAIL  %s on rank %d of %d: %s: %s\n", what, rank, ranks, napier_status_string(status),
               napier_last_error(context));
        failed++;
    }
}

static void add_line(const char *name, napier_dtype dtype, const void *data, size_t bytes) {
    if (lines < LINES) {
        snprintf(table[lines++], sizeof table[0], "%s %s %08x", name, napier_dtype_name(dtype),
                 (unsigned)crc32(data, bytes));
    }
}

/* Compares this rank's columns begin .. end - 1 with those of the whole [rows][cols], and notes the whole in the table. */
static void compare(const char *name, napier_dtype of, napier_dtype dtype, const void *whole, int64_t rows,
                    int64_t cols, int64_t begin, int64_t end, const void *mine) {
    const size_t size = napier_dtype_size(dtype), bytes = (size_t)(end - begin) * size;
    bool same = true;
    for (int64_t row = 0; row < rows; row++) {
        same = same && memcmp((const char *)whole + (size_t)(row * cols + begin) * size,
                              (const char *)mine + (size_t)row * bytes, bytes) == 0;
    }
    count(same, name);
    add_line(name, of, whole, (size_t)(rows * cols) * size);
}

/* ---- The calls --------------------------------------------------------------------------------------------------------- */

typedef struct setting {
    napier_dtype dtype;
    int64_t begin, end;
    napier_const_matrix x, g, hidden, weights; /* whole */
    napier_const_matrix mine, mine_g, mine_w;  /* this rank's */
    napier_const_vector grad_rows;
    int64_t ids[ROWS];
} setting;

static void *room(int64_t count_) { return calloc((size_t)(count_ > 0 ? count_ : 1), 8); }

static void try_maps(const setting *s) {
    napier_softmax_options o = NAPIER_SOFTMAX_OPTIONS_INIT;
    o.temperature = 0.75;
    const int64_t cols = s->end - s->begin;
    void *const whole = room(ROWS * COLS), *const part = room(ROWS * COLS), *const back = room(ROWS * COLS),
                *const part_back = room(ROWS * COLS);
    const napier_matrix all = napier_rows(whole, ROWS, COLS, s->dtype),
                        all_back = napier_rows(back, ROWS, COLS, s->dtype);
    const napier_matrix some = napier_rows(part, ROWS, cols, s->dtype),
                        some_back = napier_rows(part_back, ROWS, cols, s->dtype);
    for (int log = 0; log < 2; log++) {
        check_status((log ? napier_log_softmax : napier_softmax)(context, s->x, all, &o), "whole");
        check_status((log ? napier_mpi_log_softmax : napier_mpi_softmax)(context, MPI_COMM_WORLD, s->mine, some, &o),
                     "softmax");
        compare(log ? "log_softmax" : "softmax", s->dtype, s->dtype, whole, ROWS, COLS, s->begin, s->end, part);
        check_status((log ? napier_log_softmax_backward : napier_softmax_backward)(context, napier_read_only(all), s->g,
                                                                                   all_back, &o),
                     "whole");
        check_status((log ? napier_mpi_log_softmax_backward : napier_mpi_softmax_backward)(
                         context, MPI_COMM_WORLD, napier_read_only(some), s->mine_g, some_back, &o),
                     "backward");
        compare(log ? "log_softmax_backward" : "softmax_backward", s->dtype, s->dtype, back, ROWS, COLS, s->begin,
                s->end, part_back);
    }
    check_status(napier_logsumexp(context, s->x, napier_array(whole, ROWS, s->dtype), &o), "whole");
    check_status(napier_mpi_logsumexp(context, MPI_COMM_WORLD, s->mine, napier_array(part, ROWS, s->dtype), &o), "lse");
    compare("logsumexp", s->dtype, s->dtype, whole, 1, ROWS, 0, ROWS, part);
    check_status(napier_logsumexp_backward(context, s->x, s->grad_rows, all_back, &o), "whole");
    check_status(napier_mpi_logsumexp_backward(context, MPI_COMM_WORLD, s->mine, s->grad_rows, some_back, &o),
                 "backward");
    compare("logsumexp_backward", s->dtype, s->dtype, back, ROWS, COLS, s->begin, s->end, part_back);
    free(whole);
    free(part);
    free(back);
    free(part_back);
}

/* The logits g with x as weights of both signs. */
static void try_weighted(const setting *s) {
    napier_softmax_options o = NAPIER_SOFTMAX_OPTIONS_INIT;
    o.temperature = 0.75;
    char whole[3][ROWS * 4], part[3][ROWS * 4];
    const napier_vector none = {NULL, 0, 0, s->dtype};
    for (int with_sign = 0; with_sign < 2; with_sign++) {
        const napier_vector lse = napier_array(whole[with_sign], ROWS, s->dtype),
                            sign = with_sign ? napier_array(whole[2], ROWS, s->dtype) : none;
        const napier_vector my_lse = napier_array(part[with_sign], ROWS, s->dtype),
                            my_sign = with_sign ? napier_array(part[2], ROWS, s->dtype) : none;
        check_status(napier_logsumexp_weighted(context, s->x, s->g, lse, sign, &o), "whole");
        check_status(napier_mpi_logsumexp_weighted(context, MPI_COMM_WORLD, s->mine, s->mine_g, my_lse, my_sign, &o),
                     "weighted");
    }
    compare("weighted_without_sign", s->dtype, s->dtype, whole[0], 1, ROWS, 0, ROWS, part[0]);
    compare("weighted_lse", s->dtype, s->dtype, whole[1], 1, ROWS, 0, ROWS, part[1]);
    compare("weighted_sign", s->dtype, s->dtype, whole[2], 1, ROWS, 0, ROWS, part[2]);
    napier_const_matrix fewer = s->mine_g;
    fewer.rows -= rank == ranks - 1;
    const napier_status status = napier_mpi_logsumexp_weighted(context, MPI_COMM_WORLD, s->mine, fewer,
                                                               napier_array(part[0], ROWS, s->dtype), none, &o);
    count(status == (rank == ranks - 1 ? NAPIER_INVALID_ARGUMENT : NAPIER_IO_ERROR), "fewer weights on one rank");
}

enum { LOGPROBS, LSE, ENTROPY, LOSS, RESULTS };

static napier_token_results results_in(float made[RESULTS][ROWS]) {
    napier_token_results r = NAPIER_TOKEN_RESULTS_INIT;
    r.logprobs = napier_rows_f32(made[LOGPROBS], ROWS, 1);
    r.lse = napier_array_f32(made[LSE], ROWS);
    r.entropy = napier_array_f32(made[ENTROPY], ROWS);
    r.loss = napier_array_f32(made[LOSS], ROWS);
    return r;
}

static void try_tokens(const setting *s, bool linear) {
    static const char *const names[2][RESULTS] = {
        {"token_logprobs", "token_lse", "token_entropy", "token_loss"},
        {"linear_token_logprobs", "linear_token_lse", "linear_token_entropy", "linear_token_loss"}};
    napier_token_options o = NAPIER_TOKEN_OPTIONS_INIT;
    o.softcap = 30.0;
    o.label_smoothing = 0.125;
    o.z_loss = 0.0009765625;
    float whole[RESULTS][ROWS], part[RESULTS][ROWS];
    const napier_token_results to_whole = results_in(whole), to_part = results_in(part);
    const napier_indices ids = napier_indices_i64(s->ids, ROWS);
    if (linear) {
        check_status(napier_linear_token_logprobs(context, s->hidden, s->weights, ids, &o, &to_whole), "whole");
        check_status(napier_mpi_linear_token_logprobs(context, MPI_COMM_WORLD, s->hidden, s->mine_w, ids, &o, &to_part),
                     "linear");
    } else {
        check_status(napier_token_logprobs(context, s->x, ids, &o, &to_whole), "whole");
        check_status(napier_mpi_token_logprobs(context, MPI_COMM_WORLD, s->mine, ids, &o, &to_part), "tokens");
    }
    for (int i = 0; i < RESULTS; i++) {
        compare(names[linear][i], s->dtype, NAPIER_F32, whole[i], 1, ROWS, 0, ROWS, part[i]);
    }
    napier_token_gradients g = NAPIER_TOKEN_GRADIENTS_INIT;
    g.logprobs = (napier_const_matrix){s->grad_rows.data, ROWS, 1, 1, 1, s->dtype};
    g.entropy = g.lse = s->grad_rows;
    g.loss = s->grad_rows;
    const int64_t cols = s->end - s->begin;
    void *const back = room(ROWS * COLS), *const part_back = room(ROWS * COLS);
    if (!linear) {
        check_status(
            napier_token_logprobs_backward(context, s->x, ids, &o, &g, napier_rows(back, ROWS, COLS, s->dtype)),
            "whole");
        check_status(napier_mpi_token_logprobs_backward(context, MPI_COMM_WORLD, s->mine, ids, &o, &g,
                                                        napier_rows(part_back, ROWS, cols, s->dtype)),
                     "tokens backward");
        compare("token_logprobs_backward", s->dtype, s->dtype, back, ROWS, COLS, s->begin, s->end, part_back);
    } else {
        void *const w = room((int64_t)COLS * HIDDEN), *const part_w = room((int64_t)COLS * HIDDEN);
        check_status(napier_linear_token_logprobs_backward(context, s->hidden, s->weights, ids, &o, &g,
                                                           napier_rows(back, ROWS, HIDDEN, s->dtype),
                                                           napier_rows(w, COLS, HIDDEN, s->dtype)),
                     "whole");
        check_status(napier_mpi_linear_token_logprobs_backward(context, MPI_COMM_WORLD, s->hidden, s->mine_w, ids, &o,
                                                               &g, napier_rows(part_back, ROWS, HIDDEN, s->dtype),
                                                               napier_rows(part_w, cols, HIDDEN, s->dtype)),
                     "linear backward");
        compare("linear_grad_hidden", s->dtype, s->dtype, back, ROWS, HIDDEN, 0, HIDDEN, part_back);
        compare("linear_grad_weights", s->dtype, s->dtype, w, 1, (int64_t)COLS * HIDDEN, s->begin * HIDDEN,
                s->end * HIDDEN, part_w);
        free(w);
        free(part_w);
    }
    free(back);
    free(part_back);
}

/* ---- One long row ------------------------------------------------------------------------------------------------------- */

static void try_state(const setting *s) {
    double whole = 0.0, merged = 0.0;
    napier_softmax_state *one = NULL, *mine = NULL, *all = NULL;
    const napier_const_vector row = {s->x.data, COLS, 1, s->dtype};
    const napier_const_vector part = {(const char *)s->x.data + (size_t)s->begin * napier_dtype_size(s->dtype),
                                      s->end - s->begin, 1, s->dtype};
    check_status(napier_softmax_state_create(context, NAPIER_F32, 0, NULL, &one), "state");
    check_status(napier_softmax_state_update(context, one, row), "state");
    check_status(napier_softmax_state_finish(context, one, &whole), "state");
    check_status(napier_softmax_state_create(context, NAPIER_F32, s->begin, NULL, &mine), "state");
    check_status(napier_softmax_state_update(context, mine, part), "state");
    check_status(napier_mpi_softmax_state_merge(context, MPI_COMM_WORLD, mine, &all), "merge");
    check_status(all ? napier_softmax_state_finish(context, all, &merged) : NAPIER_OK, "state");
    count(memcmp(&whole, &merged, sizeof whole) == 0, "the merged state");
    count(napier_softmax_state_count(all) == COLS, "its count");
    napier_softmax_state_destroy(one);
    napier_softmax_state_destroy(mine);
    napier_softmax_state_destroy(all);
    const napier_dtype wide = s->dtype == NAPIER_F32 ? NAPIER_F64 : NAPIER_F32; /* both computes */
    check_status(napier_softmax_state_create_weighted(context, wide, 0, NULL, &one), "weighted state");
    check_status(napier_softmax_state_update_weighted(context, one, row, row), "weighted state");
    check_status(napier_softmax_state_finish(context, one, &whole), "weighted state");
    check_status(napier_softmax_state_create_weighted(context, wide, s->begin, NULL, &mine), "weighted state");
    check_status(napier_softmax_state_update_weighted(context, mine, part, part), "weighted state");
    check_status(napier_mpi_softmax_state_merge(context, MPI_COMM_WORLD, mine, &all), "merge");
    check_status(all ? napier_softmax_state_finish(context, all, &merged) : NAPIER_OK, "weighted state");
    count(memcmp(&whole, &merged, sizeof whole) == 0, "the merged weighted state");
    napier_softmax_state_destroy(one);
    napier_softmax_state_destroy(mine);
    napier_softmax_state_destroy(all);
    if (ranks > 1) { /* parts with a gap between them */
        check_status(napier_softmax_state_create(context, NAPIER_F32, s->begin + 3 * rank, NULL, &mine), "state");
        check_status(napier_softmax_state_update(context, mine, part), "state");
        const napier_status status = napier_mpi_softmax_state_merge(context, MPI_COMM_WORLD, mine, &all);
        const bool joined = s->end - s->begin == COLS || status == NAPIER_STATE_MISMATCH || status == NAPIER_OK;
        count(joined, "states with a gap");
        napier_softmax_state_destroy(mine);
        napier_softmax_state_destroy(all);
    }
}

/* ---- Refusals: an error on one rank is an error on all, and the communicator works afterwards ------------------------------ */

static void try_errors(const setting *s) {
    float lse[ROWS + 1];
    napier_softmax_options o = NAPIER_SOFTMAX_OPTIONS_INIT;
    napier_const_matrix x = s->mine;
    x.dtype = rank == ranks - 1 ? NAPIER_F64 : x.dtype;
    napier_status status = napier_mpi_logsumexp(context, MPI_COMM_WORLD, x, napier_array_f32(lse, ROWS), &o);
    count(status == (rank == ranks - 1 ? NAPIER_INVALID_ARGUMENT : NAPIER_IO_ERROR), "a dtype that one rank has");
    if (ranks > 1) {
        x = s->mine;
        x.rows = rank == 1 ? ROWS - 1 : ROWS;
        status = napier_mpi_logsumexp(context, MPI_COMM_WORLD, x, napier_array_f32(lse, ROWS), &o);
        count(status == NAPIER_STATE_MISMATCH && strstr(napier_last_error(context), "rows: rank 1 has 4, rank 0 has 5"),
              "a rank with fewer rows");
        o.temperature = rank == 0 ? 2.0 : 1.0;
        status = napier_mpi_logsumexp(context, MPI_COMM_WORLD, s->mine, napier_array_f32(lse, ROWS), &o);
        count(status == NAPIER_STATE_MISMATCH, "a temperature that one rank has");
    }
    o.temperature = -1.0;
    status = napier_mpi_logsumexp(context, MPI_COMM_WORLD, s->mine, napier_array_f32(lse, ROWS), &o);
    count(status != NAPIER_OK, "a negative temperature");
    const int64_t wrong[ROWS] = {0, 1, COLS, 2, 3};
    float logprobs[ROWS];
    napier_token_results r = NAPIER_TOKEN_RESULTS_INIT;
    r.logprobs = napier_rows_f32(logprobs, ROWS, 1);
    status = napier_mpi_token_logprobs(context, MPI_COMM_WORLD, s->mine, napier_indices_i64(wrong, ROWS), NULL, &r);
    count(status != NAPIER_OK, "an id out of range");
}

/* An error in the last step of one rank: NULL for its result. */
static void try_late_errors(const setting *s) {
    const bool wrong = rank == ranks - 1 && s->end > s->begin;
    int mine = wrong, any = 0;
    MPI_Allreduce(&mine, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    const napier_status expected = wrong ? NAPIER_INVALID_ARGUMENT : any ? NAPIER_IO_ERROR : NAPIER_OK;
    float logprobs[ROWS];
    int64_t argmax[ROWS];
    void *const part = room(ROWS * COLS);
    const napier_matrix all = napier_rows(part, ROWS, s->end - s->begin, s->dtype);
    const napier_matrix out = napier_rows(wrong ? NULL : part, ROWS, s->end - s->begin, s->dtype);
    napier_status status = napier_mpi_softmax(context, MPI_COMM_WORLD, s->mine, out, NULL);
    count(status == expected, "a NULL for probs");
    status = napier_mpi_softmax_backward(context, MPI_COMM_WORLD, s->mine, s->mine_g, out, NULL);
    count(status == expected, "a NULL for grad_logits");
    napier_token_results r = NAPIER_TOKEN_RESULTS_INIT;
    r.logprobs = napier_rows_f32(logprobs, ROWS, 1);
    r.argmax = wrong ? argmax : NULL;
    const napier_indices ids = napier_indices_i64(s->ids, ROWS);
    status = napier_mpi_token_logprobs(context, MPI_COMM_WORLD, s->mine, ids, NULL, &r);
    count(status == (expected == NAPIER_INVALID_ARGUMENT ? status : expected) && (status != NAPIER_OK) == any,
          "argmax on one rank");
    napier_token_gradients g = NAPIER_TOKEN_GRADIENTS_INIT;
    g.logprobs = (napier_const_matrix){s->grad_rows.data, ROWS, wrong ? 2 : 1, 1, 1, s->dtype};
    status = napier_mpi_token_logprobs_backward(context, MPI_COMM_WORLD, s->mine, ids, NULL, &g, all);
    count(status == expected, "a gradient of another shape");
    free(part);
}

/* What is wrong with the arguments of the last rank. */
enum {
    NOTHING,
    HIDDEN_OVERLAPS,
    WEIGHTS_OVERLAP,
    OUTPUTS_OVERLAP,
    IDS_OVERLAP,
    ONE_PLACE,
    WIDE,
    FEW_GRADIENTS,
    WRONGS
};

/* The linear backward call checks all of its arguments before it writes anything. */
static void try_chain_errors(const setting *s) {
    static const char *const texts[WRONGS] = {"",
                                              "overlaps hidden",
                                              "overlaps weights",
                                              "overlaps grad_hidden",
                                              "overlaps ids",
                                              "grad_hidden: row_stride 0",
                                              "grad_hidden: dtype f64 is not",
                                              "gradients: logprobs: shape 2 x 1 is not 5 x 1"};
    const int64_t cols = s->end - s->begin;
    const size_t size = napier_dtype_size(s->dtype);
    void *const back = room(ROWS * HIDDEN), *const w = room((int64_t)COLS * HIDDEN);
    void *const hidden = room(ROWS * HIDDEN), *const weights = room((int64_t)COLS * HIDDEN);
    memcpy(hidden, s->hidden.data, ROWS * HIDDEN * size);
    memcpy(weights, s->mine_w.data, (size_t)cols * HIDDEN * size);
    for (int wrong = NOTHING; wrong < WRONGS; wrong++) {
        const bool mine = rank == ranks - 1 && (cols >= ROWS || (wrong != WEIGHTS_OVERLAP && wrong != OUTPUTS_OVERLAP));
        int any = mine && wrong != NOTHING;
        MPI_Bcast(&any, 1, MPI_INT, ranks - 1, MPI_COMM_WORLD);
        int64_t ids[ROWS * HIDDEN];
        memset(ids, 0, sizeof ids);
        memcpy(ids, s->ids, sizeof s->ids);
        napier_token_gradients g = NAPIER_TOKEN_GRADIENTS_INIT;
        g.logprobs =
            (napier_const_matrix){s->grad_rows.data, mine && wrong == FEW_GRADIENTS ? 2 : ROWS, 1, 1, 1, s->dtype};
        napier_matrix out = napier_rows(back, ROWS, HIDDEN, s->dtype);
        if (mine) {
            out.data = wrong == HIDDEN_OVERLAPS   ? hidden
                       : wrong == WEIGHTS_OVERLAP ? weights
                       : wrong == OUTPUTS_OVERLAP ? w
                       : wrong == IDS_OVERLAP     ? ids
                                                  : back;
            out.row_stride = wrong == ONE_PLACE ? 0 : HIDDEN;
            out.dtype = wrong == WIDE ? NAPIER_F64 : s->dtype;
        }
        const napier_status status = napier_mpi_linear_token_logprobs_backward(
            context, MPI_COMM_WORLD, napier_const_rows(hidden, ROWS, HIDDEN, s->dtype),
            napier_const_rows(weights, cols, HIDDEN, s->dtype), napier_indices_i64(ids, ROWS), NULL, &g, out,
            napier_rows(w, cols, HIDDEN, s->dtype));
        count(!any ? status == NAPIER_OK
              : rank == ranks - 1
                  ? status == NAPIER_INVALID_ARGUMENT && strstr(napier_last_error(context), texts[wrong])
                  : status == NAPIER_IO_ERROR,
              any ? texts[wrong] : "linear backward");
        count(memcmp(hidden, s->hidden.data, ROWS * HIDDEN * size) == 0 &&
                  memcmp(weights, s->mine_w.data, (size_t)cols * HIDDEN * size) == 0,
              "the inputs of a refused call");
    }
    /* hidden and grad_hidden beside each other in the rows of one array */
    char *const both = room(2 * ROWS * HIDDEN);
    for (size_t row = 0; row < ROWS; row++) {
        memcpy(both + 2 * row * HIDDEN * size, (const char *)hidden + row * HIDDEN * size, HIDDEN * size);
    }
    napier_token_gradients g = NAPIER_TOKEN_GRADIENTS_INIT;
    g.logprobs = (napier_const_matrix){s->grad_rows.data, ROWS, 1, 1, 1, s->dtype};
    check_status(napier_mpi_linear_token_logprobs_backward(
                     context, MPI_COMM_WORLD, (napier_const_matrix){both, ROWS, HIDDEN, 2 * HIDDEN, 1, s->dtype},
                     s->mine_w, napier_indices_i64(s->ids, ROWS), NULL, &g,
                     (napier_matrix){both + HIDDEN * size, ROWS, HIDDEN, 2 * HIDDEN, 1, s->dtype},
                     napier_rows(w, s->end - s->begin, HIDDEN, s->dtype)),
                 "columns of one array");
    if (ranks > 1) { /* a rank whose hidden states are narrower */
        const int64_t width = rank == 1 ? HIDDEN / 2 : HIDDEN;
        const napier_status status = napier_mpi_linear_token_logprobs_backward(
            context, MPI_COMM_WORLD, (napier_const_matrix){hidden, ROWS, width, HIDDEN, 1, s->dtype},
            (napier_const_matrix){weights, cols, width, HIDDEN, 1, s->dtype}, napier_indices_i64(s->ids, ROWS), NULL,
            &g, napier_rows(back, ROWS, width, s->dtype), napier_rows(NULL, 0, 0, s->dtype));
        count(status == NAPIER_STATE_MISMATCH &&
                  strstr(napier_last_error(context), "cols of hidden: rank 1 has 12, rank 0 has 24"),
              "a rank with narrower hidden states");
    }
    free(both);
    free(back);
    free(w);
    free(hidden);
    free(weights);
}

/* Structs of an older header, which ends before `split`, `argmax` and `loss` of the gradients. */
static void try_older_structs(const setting *s) {
    napier_token_options o = NAPIER_TOKEN_OPTIONS_INIT;
    o.struct_size = offsetof(napier_token_options, split);
    o.label_smoothing = 0.25;
    napier_token_gradients g = NAPIER_TOKEN_GRADIENTS_INIT;
    g.struct_size = offsetof(napier_token_gradients, loss);
    g.logprobs = (napier_const_matrix){s->grad_rows.data, ROWS, 1, 1, 1, s->dtype};
    g.entropy = s->grad_rows;
    float whole[RESULTS][ROWS], part[RESULTS][ROWS];
    napier_token_results to_whole = results_in(whole), to_part = results_in(part);
    to_whole.struct_size = to_part.struct_size = offsetof(napier_token_results, argmax);
    to_part.argmax = (int64_t *)(uintptr_t)8; /* not a field of that header: never looked at */
    const napier_indices ids = napier_indices_i64(s->ids, ROWS);
    check_status(napier_token_logprobs(context, s->x, ids, &o, &to_whole), "whole");
    check_status(napier_mpi_token_logprobs(context, MPI_COMM_WORLD, s->mine, ids, &o, &to_part), "an older struct");
    count(memcmp(whole, part, sizeof whole) == 0, "an older struct");
    const int64_t cols = s->end - s->begin;
    void *const back = room(ROWS * HIDDEN), *const part_back = room(ROWS * HIDDEN), *const w = room(COLS * HIDDEN);
    check_status(napier_linear_token_logprobs_backward(context, s->hidden, s->weights, ids, &o, &g,
                                                       napier_rows(back, ROWS, HIDDEN, s->dtype),
                                                       napier_rows(w, COLS, HIDDEN, s->dtype)),
                 "whole");
    check_status(napier_mpi_linear_token_logprobs_backward(context, MPI_COMM_WORLD, s->hidden, s->mine_w, ids, &o, &g,
                                                           napier_rows(part_back, ROWS, HIDDEN, s->dtype),
                                                           napier_rows(w, cols, HIDDEN, s->dtype)),
                 "older gradients");
    count(memcmp(back, part_back, ROWS * HIDDEN * napier_dtype_size(s->dtype)) == 0, "older gradients");
    o.struct_size = rank == 0 ? 3 : o.struct_size;
    const napier_status status = napier_mpi_token_logprobs(context, MPI_COMM_WORLD, s->mine, ids, &o, &to_part);
    count(status == (rank == 0 ? NAPIER_INVALID_ARGUMENT : NAPIER_IO_ERROR), "a struct_size that no version has");
    free(back);
    free(part_back);
    free(w);
}

/* Records that no state has. The lowest byte is a status, or nothing. */
static void try_records(void) {
    static char record[NAPIER_MPI_STATE_BYTES];
    for (uint64_t low = 0; low < 256; low++) {
        const uint64_t sizes[2] = {(UINT64_MAX & ~UINT64_C(0xff)) | low, NAPIER_MPI_STATE_BYTES + low};
        for (int i = 0; i < 2; i++) {
            napier_softmax_state *state = NULL;
            memcpy(record, &sizes[i], sizeof sizes[i]);
            const napier_status status = napier_mpi_softmax_state_unpack(context, record, &state);
            const bool known = i == 0 && low >= 1 && low <= NAPIER_DEVICE_ERROR;
            if (state || status != (known ? (napier_status)low : NAPIER_CORRUPT_DATA)) {
                count(false, "a record of no state");
                return;
            }
        }
    }
    count(true, "records of no state");
}

/* ---- All of it ------------------------------------------------------------------------------------------------------------- */

/* Boundaries of list `list`: even; at tiles; all on the last rank; tiny shards; anywhere. */
static int64_t boundary(int list, int r) {
    static const int64_t anywhere[MOST_RANKS] = {0, 1, 1500, 1501, 2048, 2048, 3333, 5002};
    if (r >= ranks) {
        return COLS;
    }
    switch (list) {
    case 0: return (int64_t)COLS * r / ranks;
    case 1: return r * 1024 < COLS ? r * 1024 : COLS;
    case 2: return 0;
    case 3: return r;
    default: return r < 8 ? anywhere[r] : 5002;
    }
}

static void open_setting(setting *s, napier_dtype dtype, int list) {
    s->dtype = dtype;
    s->begin = boundary(list, rank);
    s->end = boundary(list, rank + 1);
    s->x = napier_const_rows(make(1, (int64_t)ROWS * COLS, dtype), ROWS, COLS, dtype);
    s->g = napier_const_rows(make(2, (int64_t)ROWS * COLS, dtype), ROWS, COLS, dtype);
    s->hidden = napier_const_rows(make(3, (int64_t)ROWS * HIDDEN, dtype), ROWS, HIDDEN, dtype);
    s->weights = napier_const_rows(make(4, (int64_t)COLS * HIDDEN, dtype), COLS, HIDDEN, dtype);
    s->grad_rows = napier_const_array(make(5, ROWS, dtype), ROWS, dtype);
    s->mine = columns(s->x, s->begin, s->end);
    s->mine_g = columns(s->g, s->begin, s->end);
    s->mine_w = s->weights;
    s->mine_w.data = (const char *)s->weights.data + (size_t)s->begin * HIDDEN * napier_dtype_size(dtype);
    s->mine_w.rows = s->end - s->begin;
    const int64_t ids[ROWS] = {0, 1500, -100, COLS - 1, 2047};
    memcpy(s->ids, ids, sizeof ids);
}

static void close_setting(const setting *s) {
    const void *const all[] = {s->x.data, s->g.data, s->hidden.data, s->weights.data, s->grad_rows.data};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        free((void *)(uintptr_t)all[i]);
    }
}

static void check_table(const char *path) {
    FILE *const file = fopen(path, "r");
    char line[80];
    bool same = file != NULL;
    for (int i = 0; same && i < lines; i++) {
        same = fgets(line, sizeof line, file) != NULL && strncmp(line, table[i], strlen(table[i])) == 0;
        if (!same && rank == 0) {
            printf("FAIL  line %d: %s where the table has %s\n", i + 1, table[i], line);
        }
    }
    if (file) {
        (void)fclose(file);
    }
    count(same, "the golden table");
}

static void run_until_stopped(void) {
    setting s;
    float lse[ROWS];
    open_setting(&s, NAPIER_F32, 0);
    printf("rank %d has process %ld\n", rank, rank == ranks - 1 ? (long)getpid() : 0L);
    (void)fflush(stdout);
    while (napier_mpi_logsumexp(context, MPI_COMM_WORLD, s.mine, napier_array_f32(lse, ROWS), NULL) == NAPIER_OK) {
    }
    close_setting(&s);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    napier_context_options options = NAPIER_CONTEXT_OPTIONS_INIT;
    options.threads = 1;
    if (napier_context_create(&context, &options)) {
        return EXIT_FAILURE;
    }
    if (argc > 1 && strcmp(argv[1], "wait") == 0) {
        run_until_stopped();
    } else {
        try_records();
        for (int list = 0; list < LISTS; list++) {
            lines = 0;
            for (int d = 0; d < 2; d++) {
                setting s;
                open_setting(&s, d == 0 ? NAPIER_F32 : NAPIER_BF16, list);
                try_maps(&s);
                try_tokens(&s, false);
                try_tokens(&s, true);
                try_weighted(&s);
                try_state(&s);
                try_errors(&s);
                try_late_errors(&s);
                try_chain_errors(&s);
                try_older_structs(&s);
                close_setting(&s);
            }
        }
        if (argc > 1) {
            check_table(argv[1]);
        } else if (rank == 0) {
            for (int i = 0; i < lines; i++) {
                puts(table[i]);
            }
        }
        if (rank == 0 && argc > 1) {
            printf("%d passed, %d failed\n", passed, failed);
        }
    }
    napier_context_destroy(context);
    MPI_Finalize();
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
