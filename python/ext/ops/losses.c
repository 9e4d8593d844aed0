/* losses.c - KL, rubric scores and GRPO losses over ragged responses. Like tokens.c: plain tuples, with names in
 * napier/rl.py. */
#include "../call.h"

/* ---- KL ---------------------------------------------------------------------------------------------------------- */

static const word_list estimator_words = {NAPIER_KL_K1, 3, {"k1", "k2", "k3"}};
static const word_list reduction_words = {NAPIER_REDUCE_SUM, 2, {"sum", "mean"}};

#define KL_ARGUMENTS                                                                                              \
    ARG("policy_logprobs", policy), ARG("ref_logprobs", ref), ARG("offsets", offsets),                            \
        ARRAY("mask", mask, TAKE_BYTES | TAKE_CONTIGUOUS), WORD("estimator", options.estimator, estimator_words), \
        WORD("reduction", options.reduction, reduction_words), ARG("clamp_ratio", options.clamp_ratio),           \
        ARG("clamp_kl", options.clamp_kl)

static int64_t responses_in(napier_indices offsets) { return offsets.size > 0 ? offsets.size - 1 : 0; }

PYTHON_FUNCTION(kl_per_response) {
    napier_kl_options options = NAPIER_KL_OPTIONS_INIT;
    napier_const_vector policy, ref;
    napier_indices offsets;
    array *mask;
    TAKE("kl_per_response", 3, 3, ANYWHERE, KL_ARGUMENTS)
    const uint8_t *const counts = mask_of(&c, mask, "mask", policy.size);
    const napier_vector kl = make_vector(&c, responses_in(offsets), NAPIER_F32);
    COMPUTE_ANYWHERE(napier_kl_per_response, napier_cuda_kl_per_response, policy, ref, offsets, counts, &options, kl);
    return call_end(&c);
}

PYTHON_FUNCTION(kl_per_response_backward) {
    napier_kl_options options = NAPIER_KL_OPTIONS_INIT;
    napier_const_vector policy, ref, grad;
    napier_indices offsets;
    array *mask;
    TAKE("kl_per_response_backward", 3, 3, ANYWHERE, KL_ARGUMENTS, ARG("grad_kl", grad))
    const uint8_t *const counts = mask_of(&c, mask, "mask", policy.size);
    const napier_vector grad_policy = make_vector(&c, policy.size, policy.dtype);
    const napier_vector grad_ref = make_vector(&c, ref.size, ref.dtype);
    COMPUTE_ANYWHERE(napier_kl_per_response_backward, napier_cuda_kl_per_response_backward, policy, ref, offsets,
                     counts, &options, grad, grad_policy, grad_ref);
    return call_end(&c);
}

PYTHON_FUNCTION(kl_full) {
    napier_softmax_options options = NAPIER_SOFTMAX_OPTIONS_INIT;
    napier_const_matrix policy, ref;
    TAKE("kl_full", 2, 2, ANYWHERE, ARG("policy_logits", policy), ARG("ref_logits", ref),
         ARG("temperature", options.temperature))
    const napier_vector kl = make_vector(&c, policy.rows, NAPIER_F32);
    COMPUTE_ANYWHERE(napier_kl_full, napier_cuda_kl_full, policy, ref, &options, kl);
    return call_end(&c);
}

PYTHON_FUNCTION(kl_full_backward) {
    napier_softmax_options options = NAPIER_SOFTMAX_OPTIONS_INIT;
    napier_const_matrix policy, ref;
    napier_const_vector grad;
    TAKE("kl_full_backward", 3, 3, ANYWHERE, ARG("policy_logits", policy), ARG("ref_logits", ref), ARG("grad_kl", grad),
         ARG("temperature", options.temperature))
    const napier_matrix grad_policy = make_matrix(&c, policy.rows, policy.cols, policy.dtype);
    const napier_matrix grad_ref = make_matrix(&c, ref.rows, ref.cols, ref.dtype);
    COMPUTE_ANYWHERE(napier_kl_full_backward, napier_cuda_kl_full_backward, policy, ref, &options, grad, grad_policy,
                     grad_ref);
    return call_end(&c);
}

/* ---- Rubric ------------------------------------------------------------------------------------------------------ */

PYTHON_FUNCTION(rubric_score) {
    napier_const_vector logprobs, weights;
    napier_const_matrix rubric;
    napier_indices ids, offsets;
    TAKE("rubric_score", 5, 5, ANYWHERE, ARG("logprobs", logprobs), ARG("token_ids", ids), ARG("offsets", offsets),
         ARG("rubric", rubric), ARG("weights", weights))
    const napier_matrix scores = make_matrix(&c, responses_in(offsets), rubric.rows, NAPIER_F32);
    const napier_vector rewards = make_vector(&c, responses_in(offsets), NAPIER_F32);
    COMPUTE_ANYWHERE(napier_rubric_score, napier_cuda_rubric_score, logprobs, ids, offsets, rubric, weights, scores,
                     rewards);
    return call_end(&c);
}

PYTHON_FUNCTION(rubric_score_backward) {
    napier_const_vector weights, grad_rewards;
    napier_const_matrix rubric, grad_scores;
    napier_indices ids, offsets;
    TAKE("rubric_score_backward", 6, 4, ANYWHERE, ARG("token_ids", ids), ARG("offsets", offsets),
         FIRST("rubric", rubric), ARG("weights", weights), ARG("grad_scores", grad_scores),
         ARG("grad_rewards", grad_rewards))
    const napier_vector grad = make_vector(&c, ids.size, NAPIER_F32);
    COMPUTE_ANYWHERE(napier_rubric_score_backward, napier_cuda_rubric_score_backward, ids, offsets, rubric, weights,
                     grad_scores, grad_rewards, grad);
    return call_end(&c);
}

/* ---- GRPO: options by name --------------------------------------------------------------------------------------- */

static const word_list type_words = {
    NAPIER_GRPO, 10, {"grpo", "bnpo", "dr_grpo", "dapo", "gspo", "cispo", "sapo", "vespo", "luspo", "token_mean"}};
static const word_list level_words = {NAPIER_GRPO_LEVEL_TOKEN, 2, {"token", "sequence"}};
static const word_list correction_words = {
    NAPIER_GRPO_UNCORRECTED, 5, {"none", "token_truncate", "token_mask", "sequence_truncate", "sequence_mask"}};

#define OPTION(name_, type_) FIELD(napier_grpo_options, name_, type_)
static const field grpo_fields[] = {OPTION(epsilon, 'd'),
                                    OPTION(epsilon_high, 'd'),
                                    OPTION(delta, 'd'),
                                    OPTION(beta, 'd'),
                                    OPTION(kl_bias_correction, 'b'),
                                    OPTION(sapo_tau_positive, 'd'),
                                    OPTION(sapo_tau_negative, 'd'),
                                    OPTION(vespo_k_positive, 'd'),
                                    OPTION(vespo_lambda_positive, 'd'),
                                    OPTION(vespo_k_negative, 'd'),
                                    OPTION(vespo_lambda_negative, 'd'),
                                    OPTION(max_completion_length, 'l'),
                                    OPTION(num_items, 'd'),
                                    OPTION(correction_cap, 'd'),
                                    OPTION(correction_floor, 'd'),
                                    OPTION(top_entropy_quantile, 'd'),
                                    OPTION(entropy_coefficient, 'd'),
                                    OPTION(off_policy_threshold, 'd'),
                                    OPTION(count_empty_responses, 'b'),
                                    OPTION(entropy_threshold, 'd'),
                                    FIELD_WORD(napier_grpo_options, "loss_type", type, type_words),
                                    FIELD_WORD(napier_grpo_options, "level", level, level_words),
                                    FIELD_WORD(napier_grpo_options, "kl_estimator", kl_estimator, estimator_words),
                                    FIELD_WORD(napier_grpo_options, "correction", correction, correction_words),
                                    FIELDS_END};

/* ---- GRPO: batches ----------------------------------------------------------------------------------------------- */

typedef struct grpo_inputs {
    napier_grpo_batch batch;
    napier_grpo_options options;
    array *mask;
    PyObject *dict;
} grpo_inputs;

#define BATCH_ARGUMENTS                                                                                           \
    ARG("logprobs", in.batch.logprobs), ARG("advantages", in.batch.advantages), ARG("offsets", in.batch.offsets), \
        ARG("old_logprobs", in.batch.old_logprobs), ARG("ref_logprobs", in.batch.ref_logprobs),                   \
        ARG("sampler_logprobs", in.batch.sampler_logprobs), ARG("entropies", in.batch.entropies),                 \
        ARRAY("mask", in.mask, TAKE_BYTES | TAKE_CONTIGUOUS), ARG("options", in.dict)
#define BATCH_INIT \
    { .batch = NAPIER_GRPO_BATCH_INIT, .options = NAPIER_GRPO_OPTIONS_INIT }

/* Checks what the table of arguments took. */
static void check_batch(py_call *c, int64_t tokens, grpo_inputs *in) {
    static const char *const no_others[] = {NULL};
    if (!c->failed && in->dict && !PyDict_Check(in->dict)) {
        call_refuse(c, PyExc_TypeError, "options: expected a dict");
    } else if (!c->failed && in->dict) {
        c->failed = take_fields(in->dict, grpo_fields, no_others, &in->options) != 0;
    }
    in->batch.mask = mask_of(c, in->mask, "mask", tokens);
}

/* ---- GRPO: metrics ----------------------------------------------------------------------------------------------- */

/* The struct's first member is not a number; the others are, and on a GPU they are float64 [13] in its order. */
#define METRIC(name_) FIELD(napier_grpo_metrics, name_, 'd')
static const field metric_fields[] = {METRIC(loss),      METRIC(tokens),     METRIC(clip_low),
                                      METRIC(clip_high), METRIC(mean_ratio), METRIC(min_ratio),
                                      METRIC(max_ratio), METRIC(kl),         METRIC(approx_kl),
                                      METRIC(entropy),   METRIC(correction), METRIC(kept_responses)};
enum { NUMBERS = sizeof metric_fields / sizeof *metric_fields, METRICS = sizeof(napier_grpo_metrics) / sizeof(double) };
_Static_assert(METRICS == NUMBERS + 1 && offsetof(napier_grpo_metrics, loss) == sizeof(double), "and struct_size");

static PyObject *metrics_dict(const napier_grpo_metrics *m) {
    PyObject *dict = PyDict_New();
    for (int i = 0; dict && i < NUMBERS; i++) {
        const char *at = (const char *)m + metric_fields[i].offset;
        PyObject *number = PyFloat_FromDouble(*(const double *)(const void *)at);
        if (!number || PyDict_SetItemString(dict, metric_fields[i].name, number)) {
            Py_CLEAR(dict);
        }
        Py_XDECREF(number);
    }
    return dict;
}

/* Where the call writes its metrics, which are the next result: *m, or a tensor on the device of the other arrays. */
static napier_grpo_metrics *place_of_metrics(py_call *c, napier_grpo_metrics *m) {
    if (c->failed || !array_on_device(&c->arrays[0])) {
        call_add(c, Py_NewRef(Py_None)); /* until end_with_metrics */
        return m;
    }
    return make_vector(c, METRICS, NAPIER_F64).data;
}

/* The metrics are the first result. */
static PyObject *end_with_metrics(py_call *c, const napier_grpo_metrics *m) {
    if (!c->failed && c->results[0] == Py_None) {
        call_set(c, 0, metrics_dict(m));
    }
    return call_end(c);
}

/* ---- GRPO: calls ------------------------------------------------------------------------------------------------- */

/* (losses, grad_logprobs) */
PYTHON_FUNCTION(grpo_token_loss) {
    grpo_inputs in = BATCH_INIT;
    TAKE("grpo_token_loss", 9, 3, ANYWHERE, BATCH_ARGUMENTS)
    check_batch(&c, in.batch.logprobs.size, &in);
    const napier_vector losses = make_vector(&c, in.batch.logprobs.size, NAPIER_F32);
    const napier_vector grad = make_vector(&c, in.batch.logprobs.size, NAPIER_F32);
    COMPUTE_ANYWHERE(napier_grpo_token_loss, napier_cuda_grpo_token_loss, &in.batch, &in.options, losses, grad);
    return call_end(&c);
}

PYTHON_FUNCTION(grpo_token_loss_backward) {
    grpo_inputs in = BATCH_INIT;
    napier_const_vector grad_losses;
    TAKE("grpo_token_loss_backward", 10, 3, ANYWHERE, BATCH_ARGUMENTS, ARG("grad_losses", grad_losses))
    check_batch(&c, in.batch.logprobs.size, &in);
    const napier_vector grad = make_vector(&c, in.batch.logprobs.size, NAPIER_F32);
    COMPUTE_ANYWHERE(napier_grpo_token_loss_backward, napier_cuda_grpo_token_loss_backward, &in.batch, &in.options,
                     grad_losses, grad);
    return call_end(&c);
}

/* (metrics, grad_logprobs, grad_entropies or None) */
PYTHON_FUNCTION(grpo_loss) {
    grpo_inputs in = BATCH_INIT;
    TAKE("grpo_loss", 9, 3, ANYWHERE, BATCH_ARGUMENTS)
    check_batch(&c, in.batch.logprobs.size, &in);
    napier_grpo_metrics metrics = NAPIER_GRPO_METRICS_INIT, *const place = place_of_metrics(&c, &metrics);
    const napier_vector grad = make_vector(&c, in.batch.logprobs.size, NAPIER_F32);
    const bool wants_entropies = in.batch.entropies.dtype != 0; /* they were given */
    const napier_vector grad_entropies = make_vector_if(&c, wants_entropies, in.batch.logprobs.size, NAPIER_F32);
    COMPUTE_ANYWHERE(napier_grpo_loss, napier_cuda_grpo_loss, &in.batch, &in.options, place, grad, grad_entropies);
    return end_with_metrics(&c, &metrics);
}

/* (metrics, grad_logits or None, logprobs, entropies). The batch's logprobs and entropies must be absent. */
PYTHON_FUNCTION(grpo_from_logits) {
    grpo_inputs in = BATCH_INIT;
    napier_token_options tokens = NAPIER_TOKEN_OPTIONS_INIT;
    napier_const_matrix logits;
    napier_indices ids;
    int gradient = 1;
    PyObject *out;
    TAKE("grpo_from_logits", 15, 2, ANYWHERE, ARG("logits", logits), ARG("ids", ids), BATCH_ARGUMENTS,
         ARG("temperature", tokens.temperature), ARG("softcap", tokens.softcap), ARG("gradient", gradient),
         ARG("out", out))
    check_batch(&c, logits.rows, &in);
    napier_grpo_metrics metrics = NAPIER_GRPO_METRICS_INIT, *const place = place_of_metrics(&c, &metrics);
    const napier_matrix grad = out || gradient ? make_matrix_or(&c, out, logits.rows, logits.cols, logits.dtype)
                                               : make_matrix_if(&c, false, 0, 0, NAPIER_F32);
    const napier_vector logprobs = make_vector(&c, logits.rows, NAPIER_F32);
    const napier_vector entropies = make_vector(&c, logits.rows, NAPIER_F32);
    COMPUTE_ANYWHERE(napier_grpo_from_logits, napier_cuda_grpo_from_logits, logits, ids, &in.batch, &in.options,
                     &tokens, place, grad, logprobs, entropies);
    return end_with_metrics(&c, &metrics);
}

/* (metrics, grad_hidden or None, grad_weights or None, logprobs, entropies), on the CPU */
PYTHON_FUNCTION(grpo_from_hidden) {
    grpo_inputs in = BATCH_INIT;
    napier_token_options tokens = NAPIER_TOKEN_OPTIONS_INIT;
    napier_const_matrix hidden, weights;
    napier_indices ids;
    int gradient = 1;
    TAKE("grpo_from_hidden", 15, 3, ON_HOST, ARG("hidden", hidden), ARG("weights", weights), ARG("ids", ids),
         BATCH_ARGUMENTS, ARG("temperature", tokens.temperature), ARG("softcap", tokens.softcap),
         ARG("gradient", gradient))
    check_batch(&c, hidden.rows, &in);
    napier_grpo_metrics metrics = NAPIER_GRPO_METRICS_INIT, *const place = place_of_metrics(&c, &metrics);
    const napier_matrix grad_hidden = make_matrix_if(&c, gradient, hidden.rows, hidden.cols, hidden.dtype);
    const napier_matrix grad_weights = make_matrix_if(&c, gradient, weights.rows, weights.cols, weights.dtype);
    const napier_vector logprobs = make_vector(&c, hidden.rows, NAPIER_F32);
    const napier_vector entropies = make_vector(&c, hidden.rows, NAPIER_F32);
    COMPUTE(napier_grpo_from_hidden(context, hidden, weights, ids, &in.batch, &in.options, &tokens, place, grad_hidden,
                                    grad_weights, logprobs, entropies));
    return end_with_metrics(&c, &metrics);
}

/* ---- Advantages -------------------------------------------------------------------------------------------------- */

PYTHON_FUNCTION(group_advantages) {
    static const word_list scale_words = {NAPIER_SCALE_GROUP, 3, {"group", "batch", "none"}};
    napier_advantage_options options = NAPIER_ADVANTAGE_OPTIONS_INIT;
    napier_const_vector rewards;
    napier_indices groups;
    TAKE("group_advantages", 5, 1, ON_HOST, ARG("rewards", rewards), ARG("group_size", options.group_size),
         ARG("group_offsets", groups), WORD("scale", options.scale, scale_words), ARG("epsilon", options.epsilon))
    const napier_vector advantages = make_vector(&c, rewards.size, NAPIER_F32);
    COMPUTE(napier_group_advantages(context, rewards, groups, &options, advantages));
    return call_end(&c);
}

PyMethodDef loss_functions[] = {ENTRY(kl_per_response),
                                ENTRY(kl_per_response_backward),
                                ENTRY(kl_full),
                                ENTRY(kl_full_backward),
                                ENTRY(rubric_score),
                                ENTRY(rubric_score_backward),
                                ENTRY(grpo_token_loss),
                                ENTRY(grpo_token_loss_backward),
                                ENTRY(grpo_loss),
                                ENTRY(grpo_from_logits),
                                ENTRY(grpo_from_hidden),
                                ENTRY(group_advantages),
                                ENTRY_END};
