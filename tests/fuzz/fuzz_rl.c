/* fuzz_rl - offsets, ids, strides and options of any sort for tokens and losses: a call succeeds exactly where they make sense,
 * else writes nothing, and scalar code on one thread gives the bits of the best instruction set on three. */
#include <math.h>
#include <napier/rl.h>

#include "fuzz.h"

enum { MOST_TOKENS = 40, MOST_RESPONSES = 6, MOST_VOCABULARY = 24, ROOM = 4096 };

static const napier_dtype dtypes[] = {NAPIER_F32, NAPIER_F16, NAPIER_BF16, NAPIER_F64};

/* What one input says, the same for each context. */
typedef struct plan {
    int64_t tokens, responses, vocabulary, criteria;
    int64_t offsets[MOST_RESPONSES + 1], ids[MOST_TOKENS];
    uint8_t mask[MOST_TOKENS], keep[MOST_VOCABULARY];
    unsigned char numbers[6][ROOM]; /* elements of `dtype`, or in `out` what is written */
    napier_dtype dtype, out_dtype;
    int64_t strides[6], out_stride;
    bool use_mask, use_keep;
    unsigned choice; /* of options */
    double temperature;
} plan;

/* What a call may write: results and metrics. */
typedef struct written {
    unsigned char results[3][ROOM];
    int64_t integers[MOST_TOKENS];
    napier_grpo_metrics metrics;
} written;

static bool offsets_are_right(const plan *p) {
    bool right = p->offsets[0] == 0 && p->offsets[p->responses] == p->tokens;
    for (int64_t b = 0; b < p->responses; b++) {
        right = right && p->offsets[b] <= p->offsets[b + 1];
    }
    return right;
}

static bool ids_are_right(const plan *p, int64_t also) {
    bool right = true;
    for (int64_t t = 0; t < p->tokens; t++) {
        right = right && ((p->ids[t] >= 0 && p->ids[t] < p->vocabulary) || p->ids[t] == also);
    }
    return right;
}

static bool dtypes_are_right(const plan *p) { return p->dtype != NAPIER_F64 && p->out_dtype != NAPIER_F64; }

/* A result's elements must not meet. */
static bool stride_is_right(const plan *p, int64_t size) { return size <= 1 || p->out_stride != 0; }

static plan make_plan(input *in) {
    plan p;
    memset(&p, 0, sizeof p);
    p.choice = (unsigned)take_bytes(in, 2);
    p.tokens = take_below(in, MOST_TOKENS + 1);
    p.responses = take_below(in, MOST_RESPONSES + 1);
    p.vocabulary = 1 + take_below(in, MOST_VOCABULARY);
    p.criteria = 1 + take_below(in, 3);
    p.dtype = dtypes[take(in) % 16 == 15 ? 3 : take(in) % 3];
    p.out_dtype = dtypes[take(in) % 16 == 15 ? 3 : take(in) % 3];
    p.use_mask = take(in) % 2;
    p.use_keep = take(in) % 2;
    p.out_stride = take(in) % 16 == 15 ? 0 : (int64_t[]){1, 2, -1}[take(in) % 3];
    static const double temperatures[] = {1, 0.7, 3, 1e-30, 0, -1, (double)NAN, HUGE_VAL};
    p.temperature = temperatures[take(in) % 16 == 15 ? 4 + take(in) % 4 : take(in) % 4];
    const int64_t step = p.responses ? p.tokens / p.responses : 0;
    for (int64_t b = 0; b <= p.responses; b++) {
        p.offsets[b] = b == p.responses ? p.tokens : b * step;
        p.offsets[b] += take(in) % 32 == 31 ? take_within(in, 50) : 0;
    }
    for (int64_t t = 0; t < p.tokens; t++) {
        const unsigned kind = take(in);
        p.ids[t] = kind == 255 ? (int64_t)take_bytes(in, 8) : kind == 254 ? -100 : kind % p.vocabulary;
        p.mask[t] = kind % 5 != 0;
    }
    for (int64_t v = 0; v < p.vocabulary; v++) {
        p.keep[v] = take(in) % 4 != 0;
    }
    for (int i = 0; i < 6; i++) {
        p.strides[i] = take_within(in, 2);
        fuzz_elements(in, p.dtype, p.numbers[i], ROOM / 8);
    }
    return p;
}

/* `size` elements of one of the arrays, in any direction; every stride stays inside. */
static napier_const_vector vector_of(const plan *p, int which, int64_t size) {
    const int64_t stride = p->strides[which], first = stride < 0 ? -(size - 1) * stride : 0;
    const size_t bytes = napier_dtype_size(p->dtype);
    const napier_const_vector v = {p->numbers[which] + (size > 0 ? (size_t)first * bytes : 0), size, stride, p->dtype};
    return v;
}

static napier_vector result_of(const plan *p, written *w, int which, int64_t size) {
    const int64_t first = p->out_stride < 0 ? (size - 1) * -p->out_stride : 0;
    const size_t bytes = napier_dtype_size(p->out_dtype);
    const napier_vector v = {w->results[which] + (size > 0 ? (size_t)first * bytes : 0), size, p->out_stride,
                             p->out_dtype};
    return v;
}

static napier_indices offsets_of(const plan *p) { return napier_indices_i64(p->offsets, p->responses + 1); }

/* ---- The calls ------------------------------------------------------------------------------------------------------ */

static napier_status call_kl(napier_context *context, const plan *p, written *w, bool *right) {
    napier_kl_options options = NAPIER_KL_OPTIONS_INIT;
    options.estimator = (napier_kl_estimator)(1 + p->choice % 3);
    options.reduction = (napier_reduction)(p->choice >> 2 & 1);
    options.clamp_ratio = p->choice >> 3 & 1 ? 2 : 0;
    *right = offsets_are_right(p) && dtypes_are_right(p) && stride_is_right(p, p->responses);
    return napier_kl_per_response(context, vector_of(p, 0, p->tokens), vector_of(p, 1, p->tokens), offsets_of(p),
                                  p->use_mask ? p->mask : NULL, &options, result_of(p, w, 0, p->responses));
}

static napier_status call_rubric(napier_context *context, const plan *p, written *w, bool *right) {
    const napier_const_matrix rubric = napier_const_rows(p->numbers[1], p->criteria, p->vocabulary, p->dtype);
    *right = offsets_are_right(p) && ids_are_right(p, 0) && dtypes_are_right(p) && stride_is_right(p, p->responses);
    return napier_rubric_score(context, vector_of(p, 0, p->tokens), napier_indices_i64(p->ids, p->tokens),
                               offsets_of(p), rubric, vector_of(p, 2, p->criteria),
                               napier_rows(w->results[1], p->responses, p->criteria, p->out_dtype),
                               result_of(p, w, 0, p->responses));
}

static napier_status call_tokens(napier_context *context, const plan *p, written *w, bool *right) {
    const int64_t rows = p->tokens < 8 ? p->tokens : 8;
    plan few = *p;
    few.tokens = rows;
    napier_token_options options = NAPIER_TOKEN_OPTIONS_INIT;
    options.temperature = p->temperature;
    options.softcap = p->choice % 3 == 0 ? 5 : 0;
    options.keep = p->use_keep ? p->keep : NULL;
    napier_token_results results = NAPIER_TOKEN_RESULTS_INIT;
    if (rows > 0) { /* none: no ids either */
        results.logprobs = napier_rows(w->results[1], rows, 1, p->out_dtype);
        results.rank = w->integers;
    }
    results.entropy = result_of(p, w, 0, rows);
    const bool heated = p->temperature > 0 && isfinite(p->temperature);
    *right = ids_are_right(&few, options.ignore_index) && dtypes_are_right(p) && stride_is_right(p, rows) && heated;
    return napier_token_logprobs(context, napier_const_rows(p->numbers[0], rows, p->vocabulary, p->dtype),
                                 napier_indices_i64(p->ids, rows), &options, &results);
}

static napier_status call_grpo(napier_context *context, const plan *p, written *w, bool *right) {
    napier_grpo_options options = NAPIER_GRPO_OPTIONS_INIT;
    options.type = (napier_grpo_type)(p->choice % 10);
    options.level = (napier_grpo_level)(p->choice >> 4 & 1);
    options.beta = p->choice >> 5 & 1 ? 0.1 : 0;
    options.correction = (napier_grpo_correction)((p->choice >> 6) % 5);
    options.top_entropy_quantile = p->choice >> 9 & 1 ? 0.5 : 1;
    options.entropy_coefficient = p->choice >> 10 & 1 ? 0.1 : 0;
    options.off_policy_threshold = p->choice >> 11 & 1 ? 0.5 : (double)INFINITY;
    options.count_empty_responses = (int)(p->choice >> 13 & 1);
    options.entropy_threshold = (p->choice >> 9 & 1) == 0 && p->choice >> 14 & 1 ? 0.5 : (double)-INFINITY;
    napier_grpo_batch batch = NAPIER_GRPO_BATCH_INIT;
    batch.logprobs = vector_of(p, 0, p->tokens);
    batch.old_logprobs = vector_of(p, 1, p->tokens);
    batch.ref_logprobs = vector_of(p, 2, p->tokens);
    batch.sampler_logprobs = vector_of(p, 3, p->tokens);
    batch.entropies = vector_of(p, 4, p->tokens);
    batch.advantages = vector_of(p, 5, p->choice >> 12 & 1 ? p->tokens : p->responses);
    batch.mask = p->use_mask ? p->mask : NULL;
    batch.offsets = offsets_of(p);
    *right = offsets_are_right(p) && dtypes_are_right(p) && stride_is_right(p, p->tokens);
    return napier_grpo_loss(context, &batch, &options, &w->metrics, result_of(p, w, 0, p->tokens),
                            result_of(p, w, 1, p->tokens));
}

typedef napier_status call(napier_context *context, const plan *p, written *w, bool *right);

static written fresh(void) {
    written w;
    memset(&w, 0x5a, sizeof w);
    const napier_grpo_metrics none = NAPIER_GRPO_METRICS_INIT;
    memset(&w.metrics, 0, sizeof w.metrics);
    w.metrics.struct_size = none.struct_size;
    return w;
}

FUZZ(in) {
    static call *const calls[] = {call_kl, call_rubric, call_tokens, call_grpo};
    const int which = (int)(take(&in) % 4);
    const plan p = make_plan(&in);
    const written untouched = fresh();
    written one = fresh(), other = fresh();
    bool right = true;
    napier_context *const plain = fuzz_context(NAPIER_ISA_SCALAR, 1), *const best = fuzz_context(NAPIER_ISA_AUTO, 3);
    const napier_status first = calls[which](plain, &p, &one, &right);
    const napier_status second = calls[which](best, &p, &other, &right);
    REQUIRE(first == second, "call %d: status %d and %d", which, (int)first, (int)second);
    REQUIRE((first == NAPIER_OK) == right, "call %d: status %d: %s", which, (int)first, napier_last_error(plain));
    REQUIRE(memcmp(&one, &other, sizeof one) == 0, "call %d: the bits differ", which);
    REQUIRE(right || memcmp(&one, &untouched, sizeof one) == 0, "call %d: written to in spite of an error: %s", which,
            napier_last_error(plain));
}
