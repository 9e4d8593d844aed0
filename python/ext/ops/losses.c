/* losses.c - KL, rubric scores and GRPO losses over ragged responses. Like tokens.c: plain tuples, with names in
 * napier/rl.py. */
#include "rl.h"

#include <stddef.h>
#include <string.h>

static PyObject *pair_of(const array *a, const array *b) {
    PyObject *x = call_object(a), *y = call_object(b), *pair = PyTuple_Pack(2, x, y);
    Py_DECREF(x);
    Py_DECREF(y);
    return pair;
}

/* ---- KL ---------------------------------------------------------------------------------------------------------- */

static const char *const estimator_words[] = {"k1", "k2", "k3"};
static const char *const reduction_words[] = {"sum", "mean"};

#define KL_ARGUMENTS \
    "policy_logprobs", "ref_logprobs", "offsets", "mask", "estimator", "reduction", "clamp_ratio", "clamp_kl"

typedef struct kl_inputs {
    napier_const_vector policy, ref;
    napier_indices offsets;
    const uint8_t *mask;
    napier_kl_options options;
} kl_inputs;

static int take_kl(call_arrays *c, PyObject *const *v, kl_inputs *in) {
    const napier_kl_options defaults = NAPIER_KL_OPTIONS_INIT;
    int estimator = NAPIER_KL_K1, reduction = NAPIER_REDUCE_SUM;
    in->options = defaults;
    if (call_vector(c, v[0], "policy_logprobs", &in->policy) || call_vector(c, v[1], "ref_logprobs", &in->ref) ||
        call_indices(c, v[2], "offsets", &in->offsets) || call_mask(c, v[3], "mask", in->policy.size, &in->mask) ||
        take_word(v[4], "estimator", estimator_words, 3, NAPIER_KL_K1, &estimator) ||
        take_word(v[5], "reduction", reduction_words, 2, NAPIER_REDUCE_SUM, &reduction) ||
        take_double(v[6], "clamp_ratio", &in->options.clamp_ratio) ||
        take_double(v[7], "clamp_kl", &in->options.clamp_kl)) {
        return -1;
    }
    in->options.estimator = (napier_kl_estimator)estimator;
    in->options.reduction = (napier_reduction)reduction;
    return 0;
}

static int64_t responses_in(napier_indices offsets) { return offsets.size > 0 ? offsets.size - 1 : 0; }

static PyObject *py_kl_per_response(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {"kl_per_response", 8, 3, 3, {KL_ARGUMENTS}};
    (void)self;
    PyObject *v[8], *given = NULL;
    call_arrays c;
    call_start(&c, ANYWHERE);
    kl_inputs in;
    napier_vector kl;
    array *made;
    if (!arguments(&names, args, count, keywords, v) && !take_kl(&c, v, &in) &&
        !call_made_vector(&c, responses_in(in.offsets), NAPIER_F32, &made, &kl)) {
        RUN_ANYWHERE_FOR(given, call_object(made), &c.arrays[0], names.function, napier_kl_per_response,
                         napier_cuda_kl_per_response, in.policy, in.ref, in.offsets, in.mask, &in.options, kl);
    }
    call_release(&c);
    return given;
}

static PyObject *py_kl_per_response_backward(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                             PyObject *keywords) {
    static const signature names = {"kl_per_response_backward", 9, 3, 3, {KL_ARGUMENTS, "grad_kl"}};
    (void)self;
    PyObject *v[9], *given = NULL;
    call_arrays c;
    call_start(&c, ANYWHERE);
    kl_inputs in;
    napier_const_vector grad;
    napier_vector policy, ref;
    array *made_policy, *made_ref;
    if (!arguments(&names, args, count, keywords, v) && !take_kl(&c, v, &in) &&
        !call_vector(&c, v[8], "grad_kl", &grad) &&
        !call_made_vector(&c, in.policy.size, in.policy.dtype, &made_policy, &policy) &&
        !call_made_vector(&c, in.ref.size, in.ref.dtype, &made_ref, &ref)) {
        RUN_ANYWHERE_FOR(given, pair_of(made_policy, made_ref), &c.arrays[0], names.function,
                         napier_kl_per_response_backward, napier_cuda_kl_per_response_backward, in.policy, in.ref,
                         in.offsets, in.mask, &in.options, grad, policy, ref);
    }
    call_release(&c);
    return given;
}

static PyObject *py_kl_full(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {"kl_full", 3, 2, 2, {"policy_logits", "ref_logits", "temperature"}};
    (void)self;
    PyObject *v[3], *given = NULL;
    call_arrays c;
    call_start(&c, ANYWHERE);
    napier_const_matrix policy, ref;
    napier_softmax_options options = NAPIER_SOFTMAX_OPTIONS_INIT;
    napier_vector kl;
    array *made;
    if (!arguments(&names, args, count, keywords, v) && !take_double(v[2], "temperature", &options.temperature) &&
        !call_matrix(&c, v[0], "policy_logits", &policy) && !call_matrix(&c, v[1], "ref_logits", &ref) &&
        !call_made_vector(&c, policy.rows, NAPIER_F32, &made, &kl)) {
        RUN_ANYWHERE_FOR(given, call_object(made), &c.arrays[0], names.function, napier_kl_full, napier_cuda_kl_full,
                         policy, ref, &options, kl);
    }
    call_release(&c);
    return given;
}

static PyObject *py_kl_full_backward(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {
        "kl_full_backward", 4, 3, 3, {"policy_logits", "ref_logits", "grad_kl", "temperature"}};
    (void)self;
    PyObject *v[4], *given = NULL;
    call_arrays c;
    call_start(&c, ANYWHERE);
    napier_const_matrix policy, ref;
    napier_const_vector grad;
    napier_softmax_options options = NAPIER_SOFTMAX_OPTIONS_INIT;
    napier_matrix to_policy, to_ref;
    array *made_policy, *made_ref;
    if (!arguments(&names, args, count, keywords, v) && !take_double(v[3], "temperature", &options.temperature) &&
        !call_matrix(&c, v[0], "policy_logits", &policy) && !call_matrix(&c, v[1], "ref_logits", &ref) &&
        !call_vector(&c, v[2], "grad_kl", &grad) &&
        !call_made_matrix(&c, policy.rows, policy.cols, policy.dtype, &made_policy, &to_policy) &&
        !call_made_matrix(&c, ref.rows, ref.cols, ref.dtype, &made_ref, &to_ref)) {
        RUN_ANYWHERE_FOR(given, pair_of(made_policy, made_ref), &c.arrays[0], names.function, napier_kl_full_backward,
                         napier_cuda_kl_full_backward, policy, ref, &options, grad, to_policy, to_ref);
    }
    call_release(&c);
    return given;
}

/* ---- Rubric ------------------------------------------------------------------------------------------------------ */

static PyObject *py_rubric_score(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {"rubric_score", 5, 5, 5, {"logprobs", "token_ids", "offsets", "rubric", "weights"}};
    (void)self;
    PyObject *v[5], *given = NULL;
    call_arrays c;
    call_start(&c, ANYWHERE);
    napier_const_vector logprobs, weights;
    napier_const_matrix rubric;
    napier_indices ids, offsets;
    napier_matrix scores;
    napier_vector rewards;
    array *made_scores, *made_rewards;
    if (!arguments(&names, args, count, keywords, v) && !call_vector(&c, v[0], "logprobs", &logprobs) &&
        !call_indices(&c, v[1], "token_ids", &ids) && !call_indices(&c, v[2], "offsets", &offsets) &&
        !call_matrix(&c, v[3], "rubric", &rubric) && !call_vector(&c, v[4], "weights", &weights) &&
        !call_made_matrix(&c, responses_in(offsets), rubric.rows, NAPIER_F32, &made_scores, &scores) &&
        !call_made_vector(&c, responses_in(offsets), NAPIER_F32, &made_rewards, &rewards)) {
        RUN_ANYWHERE_FOR(given, pair_of(made_scores, made_rewards), &c.arrays[0], names.function, napier_rubric_score,
                         napier_cuda_rubric_score, logprobs, ids, offsets, rubric, weights, scores, rewards);
    }
    call_release(&c);
    return given;
}

static PyObject *py_rubric_score_backward(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {
        "rubric_score_backward", 6, 6, 4, {"token_ids", "offsets", "rubric", "weights", "grad_scores", "grad_rewards"}};
    (void)self;
    PyObject *v[6], *given = NULL;
    call_arrays c;
    call_start(&c, ANYWHERE);
    napier_const_vector weights, grad_rewards;
    napier_const_matrix rubric, grad_scores;
    napier_indices ids, offsets;
    napier_vector grad;
    array *made;
    /* the rubric comes first, because results are of its kind */
    if (!arguments(&names, args, count, keywords, v) && !call_matrix(&c, v[2], "rubric", &rubric) &&
        !call_indices(&c, v[0], "token_ids", &ids) && !call_indices(&c, v[1], "offsets", &offsets) &&
        !call_vector(&c, v[3], "weights", &weights) && !call_matrix(&c, v[4], "grad_scores", &grad_scores) &&
        !call_vector(&c, v[5], "grad_rewards", &grad_rewards) &&
        !call_made_vector(&c, ids.size, NAPIER_F32, &made, &grad)) {
        RUN_ANYWHERE_FOR(given, call_object(made), &c.arrays[0], names.function, napier_rubric_score_backward,
                         napier_cuda_rubric_score_backward, ids, offsets, rubric, weights, grad_scores, grad_rewards,
                         grad);
    }
    call_release(&c);
    return given;
}

/* ---- GRPO: options by name --------------------------------------------------------------------------------------- */

static const char *const type_words[] = {"grpo",  "bnpo", "dr_grpo", "dapo",  "gspo",
                                         "cispo", "sapo", "vespo",   "luspo", "token_mean"};
static const char *const level_words[] = {"token", "sequence"};
static const char *const correction_words[] = {"none", "token_truncate", "token_mask", "sequence_truncate",
                                               "sequence_mask"};

typedef enum option_kind { OPTION_DOUBLE, OPTION_INT64, OPTION_BOOL } option_kind;

/* Options that are numbers; they follow the words in the list of arguments. */
static const struct {
    const char *name;
    size_t offset;
    option_kind kind;
} grpo_numbers[] = {
#define NUMBER(name_, kind_) \
    { #name_, offsetof(napier_grpo_options, name_), kind_ }
    NUMBER(epsilon, OPTION_DOUBLE),
    NUMBER(epsilon_high, OPTION_DOUBLE),
    NUMBER(delta, OPTION_DOUBLE),
    NUMBER(beta, OPTION_DOUBLE),
    NUMBER(kl_bias_correction, OPTION_BOOL),
    NUMBER(sapo_tau_positive, OPTION_DOUBLE),
    NUMBER(sapo_tau_negative, OPTION_DOUBLE),
    NUMBER(vespo_k_positive, OPTION_DOUBLE),
    NUMBER(vespo_lambda_positive, OPTION_DOUBLE),
    NUMBER(vespo_k_negative, OPTION_DOUBLE),
    NUMBER(vespo_lambda_negative, OPTION_DOUBLE),
    NUMBER(max_completion_length, OPTION_INT64),
    NUMBER(num_items, OPTION_DOUBLE),
    NUMBER(correction_cap, OPTION_DOUBLE),
    NUMBER(correction_floor, OPTION_DOUBLE),
    NUMBER(top_entropy_quantile, OPTION_DOUBLE),
    NUMBER(entropy_coefficient, OPTION_DOUBLE),
    NUMBER(off_policy_threshold, OPTION_DOUBLE),
    NUMBER(count_empty_responses, OPTION_BOOL),
    NUMBER(entropy_threshold, OPTION_DOUBLE),
#undef NUMBER
};
enum { GRPO_NUMBERS = sizeof grpo_numbers / sizeof *grpo_numbers };

/* options: a dict, or NULL. Unknown names are errors. */
static int take_grpo_options(PyObject *dict, napier_grpo_options *o) {
    const napier_grpo_options defaults = NAPIER_GRPO_OPTIONS_INIT;
    *o = defaults;
    int type = NAPIER_GRPO, level = NAPIER_GRPO_TOKEN, estimator = NAPIER_KL_K3, correction = NAPIER_GRPO_UNCORRECTED;
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (dict && PyDict_Next(dict, &at, &key, &value)) {
        const char *name = PyUnicode_AsUTF8AndSize(key, NULL);
        if (!name) {
            return -1;
        }
        PyObject *given = value == Py_None ? NULL : value;
        int failed = 0, place = 0;
        while (place < GRPO_NUMBERS && strcmp(name, grpo_numbers[place].name) != 0) {
            place++;
        }
        if (place < GRPO_NUMBERS) {
            char *to = (char *)o + grpo_numbers[place].offset;
            failed = grpo_numbers[place].kind == OPTION_DOUBLE  ? take_double(given, name, (double *)(void *)to)
                     : grpo_numbers[place].kind == OPTION_INT64 ? take_int64(given, name, (int64_t *)(void *)to)
                                                                : take_bool(given, name, (int *)(void *)to);
        } else if (strcmp(name, "loss_type") == 0) {
            failed = take_word(given, name, type_words, 10, NAPIER_GRPO, &type);
        } else if (strcmp(name, "level") == 0) {
            failed = take_word(given, name, level_words, 2, NAPIER_GRPO_TOKEN, &level);
        } else if (strcmp(name, "kl_estimator") == 0) {
            failed = take_word(given, name, estimator_words, 3, NAPIER_KL_K1, &estimator);
        } else if (strcmp(name, "correction") == 0) {
            failed = take_word(given, name, correction_words, 5, NAPIER_GRPO_UNCORRECTED, &correction);
        } else {
            PyErr_Format(PyExc_TypeError, "unexpected option '%s'", name);
            failed = -1;
        }
        if (failed) {
            return -1;
        }
    }
    o->type = (napier_grpo_type)type;
    o->level = (napier_grpo_level)level;
    o->kl_estimator = (napier_kl_estimator)estimator;
    o->correction = (napier_grpo_correction)correction;
    return 0;
}

/* ---- GRPO: batches ----------------------------------------------------------------------------------------------- */

#define BATCH_ARGUMENTS                                                                                           \
    "logprobs", "advantages", "offsets", "old_logprobs", "ref_logprobs", "sampler_logprobs", "entropies", "mask", \
        "options"

static int take_batch(call_arrays *c, PyObject *const *v, int64_t tokens, napier_grpo_batch *b,
                      napier_grpo_options *options) {
    if (v[8] && !PyDict_Check(v[8])) {
        PyErr_SetString(PyExc_TypeError, "options: expected a dict");
        return -1;
    }
    if (take_grpo_options(v[8], options) || call_vector(c, v[0], "logprobs", &b->logprobs)) {
        return -1;
    }
    tokens = v[0] ? b->logprobs.size : tokens;
    return call_vector(c, v[1], "advantages", &b->advantages) || call_indices(c, v[2], "offsets", &b->offsets) ||
                   call_vector(c, v[3], "old_logprobs", &b->old_logprobs) ||
                   call_vector(c, v[4], "ref_logprobs", &b->ref_logprobs) ||
                   call_vector(c, v[5], "sampler_logprobs", &b->sampler_logprobs) ||
                   call_vector(c, v[6], "entropies", &b->entropies) || call_mask(c, v[7], "mask", tokens, &b->mask)
               ? -1
               : 0;
}

static int set_number(PyObject *dict, const char *name, double x) {
    PyObject *number = PyFloat_FromDouble(x);
    const int failed = !number || PyDict_SetItemString(dict, name, number);
    Py_XDECREF(number);
    return failed;
}

static PyObject *metrics_dict(const napier_grpo_metrics *m) {
    PyObject *dict = PyDict_New();
    if (dict &&
        (set_number(dict, "loss", m->loss) || set_number(dict, "tokens", m->tokens) ||
         set_number(dict, "clip_low", m->clip_low) || set_number(dict, "clip_high", m->clip_high) ||
         set_number(dict, "mean_ratio", m->mean_ratio) || set_number(dict, "min_ratio", m->min_ratio) ||
         set_number(dict, "max_ratio", m->max_ratio) || set_number(dict, "kl", m->kl) ||
         set_number(dict, "approx_kl", m->approx_kl) || set_number(dict, "entropy", m->entropy) ||
         set_number(dict, "correction", m->correction) || set_number(dict, "kept_responses", m->kept_responses))) {
        Py_CLEAR(dict);
    }
    return dict;
}

/* Makes a tuple that takes over its members; NULL if one of them is NULL. */
static PyObject *tuple_of(int count, PyObject **members) {
    bool whole = true;
    for (int i = 0; i < count; i++) {
        whole = whole && members[i];
    }
    PyObject *tuple = whole ? PyTuple_New(count) : NULL;
    for (int i = 0; i < count; i++) {
        if (!tuple || PyTuple_SetItem(tuple, i, members[i])) {
            if (!tuple) {
                Py_XDECREF(members[i]);
            }
        }
    }
    return tuple;
}

/* ---- GRPO: calls ------------------------------------------------------------------------------------------------- */

/* (losses, grad_logprobs) */
static PyObject *py_grpo_token_loss(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {"grpo_token_loss", 9, 9, 3, {BATCH_ARGUMENTS}};
    (void)self;
    PyObject *v[9], *given = NULL;
    call_arrays c;
    call_start(&c, ANYWHERE);
    napier_grpo_batch batch = NAPIER_GRPO_BATCH_INIT;
    napier_grpo_options options;
    napier_vector losses, grad;
    array *made_losses, *made_grad;
    if (!arguments(&names, args, count, keywords, v) && !take_batch(&c, v, 0, &batch, &options) &&
        !call_made_vector(&c, batch.logprobs.size, NAPIER_F32, &made_losses, &losses) &&
        !call_made_vector(&c, batch.logprobs.size, NAPIER_F32, &made_grad, &grad)) {
        RUN_ANYWHERE_FOR(given, pair_of(made_losses, made_grad), &c.arrays[0], names.function, napier_grpo_token_loss,
                         napier_cuda_grpo_token_loss, &batch, &options, losses, grad);
    }
    call_release(&c);
    return given;
}

static PyObject *py_grpo_token_loss_backward(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                             PyObject *keywords) {
    static const signature names = {"grpo_token_loss_backward", 10, 10, 3, {BATCH_ARGUMENTS, "grad_losses"}};
    (void)self;
    PyObject *v[10], *given = NULL;
    call_arrays c;
    call_start(&c, ANYWHERE);
    napier_grpo_batch batch = NAPIER_GRPO_BATCH_INIT;
    napier_grpo_options options;
    napier_const_vector grad_losses;
    napier_vector grad;
    array *made;
    if (!arguments(&names, args, count, keywords, v) && !take_batch(&c, v, 0, &batch, &options) &&
        !call_vector(&c, v[9], "grad_losses", &grad_losses) &&
        !call_made_vector(&c, batch.logprobs.size, NAPIER_F32, &made, &grad)) {
        RUN_ANYWHERE_FOR(given, call_object(made), &c.arrays[0], names.function, napier_grpo_token_loss_backward,
                         napier_cuda_grpo_token_loss_backward, &batch, &options, grad_losses, grad);
    }
    call_release(&c);
    return given;
}

/* Metrics on a GPU: float64 [13]. The first is not a number; the others are the struct's, in its order. */
enum { METRICS = sizeof(napier_grpo_metrics) / sizeof(double) };
_Static_assert(METRICS == 13 && offsetof(napier_grpo_metrics, loss) == sizeof(double), "one place for struct_size");

/* Where the call writes its metrics: *m, or a tensor on the device of the other arrays. */
static napier_grpo_metrics *place_of_metrics(call_arrays *c, napier_grpo_metrics *m, array **made) {
    const int64_t size = METRICS;
    *made = NULL;
    if (!array_on_device(&c->arrays[0])) {
        return m;
    }
    *made = call_make(c, 1, &size, NAPIER_F64);
    return *made ? (napier_grpo_metrics *)(void *)(*made)->data : NULL;
}

/* (metrics, grad_logprobs, grad_entropies or None) */
static PyObject *py_grpo_loss(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {"grpo_loss", 9, 9, 3, {BATCH_ARGUMENTS}};
    (void)self;
    PyObject *v[9], *given = NULL;
    call_arrays c;
    call_start(&c, ANYWHERE);
    napier_grpo_batch batch = NAPIER_GRPO_BATCH_INIT;
    napier_grpo_options options;
    napier_grpo_metrics metrics = NAPIER_GRPO_METRICS_INIT, *place;
    napier_vector grad, grad_entropies = {0};
    array *made_grad, *made_entropies = NULL, *made_metrics;
    if (!arguments(&names, args, count, keywords, v) && !take_batch(&c, v, 0, &batch, &options) &&
        !call_made_vector(&c, batch.logprobs.size, NAPIER_F32, &made_grad, &grad) &&
        !(v[6] && call_made_vector(&c, batch.logprobs.size, NAPIER_F32, &made_entropies, &grad_entropies)) &&
        (place = place_of_metrics(&c, &metrics, &made_metrics))) {
        RUN_ANYWHERE_FOR(given, Py_NewRef(Py_None), &c.arrays[0], names.function, napier_grpo_loss,
                         napier_cuda_grpo_loss, &batch, &options, place, grad, grad_entropies);
    }
    if (given) {
        Py_DECREF(given);
        PyObject *members[] = {made_metrics ? call_object(made_metrics) : metrics_dict(&metrics),
                               call_object(made_grad), call_object(made_entropies)};
        given = tuple_of(3, members);
    }
    call_release(&c);
    return given;
}

/* (metrics, grad_logits or None, logprobs, entropies). The batch's logprobs and entropies must be absent. */
static PyObject *py_grpo_from_logits(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {
        "grpo_from_logits", 15, 15, 2, {"logits", "ids", BATCH_ARGUMENTS, "temperature", "softcap", "gradient", "out"}};
    (void)self;
    PyObject *v[15], *given = NULL;
    call_arrays c;
    call_start(&c, ANYWHERE);
    napier_grpo_batch batch = NAPIER_GRPO_BATCH_INIT;
    napier_grpo_options options;
    napier_token_options tokens = NAPIER_TOKEN_OPTIONS_INIT;
    napier_grpo_metrics metrics = NAPIER_GRPO_METRICS_INIT, *place = NULL;
    napier_const_matrix logits, given_out;
    napier_indices ids;
    napier_matrix grad = {0};
    napier_vector logprobs, entropies;
    array *made_grad = NULL, *made_logprobs, *made_entropies, *made_metrics = NULL;
    int gradient = 1;
    if (arguments(&names, args, count, keywords, v) || take_double(v[11], "temperature", &tokens.temperature) ||
        take_double(v[12], "softcap", &tokens.softcap) || take_bool(v[13], "gradient", &gradient) ||
        call_matrix(&c, v[0], "logits", &logits) || call_indices(&c, v[1], "ids", &ids) ||
        take_batch(&c, v + 2, logits.rows, &batch, &options) ||
        call_made_vector(&c, logits.rows, NAPIER_F32, &made_logprobs, &logprobs) ||
        call_made_vector(&c, logits.rows, NAPIER_F32, &made_entropies, &entropies)) {
        call_release(&c);
        return NULL;
    }
    int failed = 0;
    if (v[14]) {
        made_grad = call_take(&c, v[14], "out", TAKE_FLOATS | TAKE_WRITABLE);
        failed = !made_grad || array_matrix(made_grad, "out", &given_out);
        grad = failed ? grad : writable_matrix(given_out);
    } else if (gradient) {
        failed = call_made_matrix(&c, logits.rows, logits.cols, logits.dtype, &made_grad, &grad);
    }
    place = failed ? NULL : place_of_metrics(&c, &metrics, &made_metrics);
    if (place) {
        RUN_ANYWHERE_FOR(given, Py_NewRef(Py_None), &c.arrays[0], names.function, napier_grpo_from_logits,
                         napier_cuda_grpo_from_logits, logits, ids, &batch, &options, &tokens, place, grad, logprobs,
                         entropies);
    }
    if (given) {
        Py_DECREF(given);
        PyObject *members[] = {made_metrics ? call_object(made_metrics) : metrics_dict(&metrics),
                               v[14] ? Py_NewRef(v[14]) : call_object(made_grad), call_object(made_logprobs),
                               call_object(made_entropies)};
        given = tuple_of(4, members);
    }
    call_release(&c);
    return given;
}

/* (metrics, grad_hidden or None, grad_weights or None, logprobs, entropies), on the CPU */
static PyObject *py_grpo_from_hidden(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {
        "grpo_from_hidden",
        15,
        15,
        3,
        {"hidden", "weights", "ids", BATCH_ARGUMENTS, "temperature", "softcap", "gradient"}};
    (void)self;
    PyObject *v[15], *given = NULL;
    call_arrays c;
    call_start(&c, ON_HOST);
    napier_grpo_batch batch = NAPIER_GRPO_BATCH_INIT;
    napier_grpo_options options;
    napier_token_options tokens = NAPIER_TOKEN_OPTIONS_INIT;
    napier_grpo_metrics metrics = NAPIER_GRPO_METRICS_INIT;
    napier_const_matrix hidden, weights;
    napier_indices ids;
    napier_matrix grad_hidden = {0}, grad_weights = {0};
    napier_vector logprobs, entropies;
    array *made_hidden = NULL, *made_weights = NULL, *made_logprobs, *made_entropies;
    int gradient = 1;
    if (!arguments(&names, args, count, keywords, v) && !take_double(v[12], "temperature", &tokens.temperature) &&
        !take_double(v[13], "softcap", &tokens.softcap) && !take_bool(v[14], "gradient", &gradient) &&
        !call_matrix(&c, v[0], "hidden", &hidden) && !call_matrix(&c, v[1], "weights", &weights) &&
        !call_indices(&c, v[2], "ids", &ids) && !take_batch(&c, v + 3, hidden.rows, &batch, &options) &&
        !call_made_vector(&c, hidden.rows, NAPIER_F32, &made_logprobs, &logprobs) &&
        !call_made_vector(&c, hidden.rows, NAPIER_F32, &made_entropies, &entropies) &&
        !(gradient &&
          (call_made_matrix(&c, hidden.rows, hidden.cols, hidden.dtype, &made_hidden, &grad_hidden) ||
           call_made_matrix(&c, weights.rows, weights.cols, weights.dtype, &made_weights, &grad_weights)))) {
        RUN_FOR(given, names.function,
                napier_grpo_from_hidden(context, hidden, weights, ids, &batch, &options, &tokens, &metrics, grad_hidden,
                                        grad_weights, logprobs, entropies),
                Py_NewRef(Py_None));
    }
    if (given) {
        Py_DECREF(given);
        PyObject *members[] = {metrics_dict(&metrics), call_object(made_hidden), call_object(made_weights),
                               call_object(made_logprobs), call_object(made_entropies)};
        given = tuple_of(5, members);
    }
    call_release(&c);
    return given;
}

/* ---- Advantages -------------------------------------------------------------------------------------------------- */

static PyObject *py_group_advantages(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    static const signature names = {
        "group_advantages", 5, 5, 1, {"rewards", "group_size", "group_offsets", "scale", "epsilon"}};
    static const char *const scale_words[] = {"group", "batch", "none"};
    (void)self;
    PyObject *v[5], *given = NULL;
    call_arrays c;
    call_start(&c, ON_HOST);
    napier_advantage_options options = NAPIER_ADVANTAGE_OPTIONS_INIT;
    napier_const_vector rewards;
    napier_indices groups;
    napier_vector advantages;
    array *made;
    int scale = NAPIER_SCALE_GROUP;
    if (!arguments(&names, args, count, keywords, v) && !call_vector(&c, v[0], "rewards", &rewards) &&
        !take_int64(v[1], "group_size", &options.group_size) && !call_indices(&c, v[2], "group_offsets", &groups) &&
        !take_word(v[3], "scale", scale_words, 3, NAPIER_SCALE_GROUP, &scale) &&
        !take_double(v[4], "epsilon", &options.epsilon) &&
        !call_made_vector(&c, rewards.size, NAPIER_F32, &made, &advantages)) {
        options.scale = (napier_advantage_scale)scale;
        RUN_FOR(given, names.function, napier_group_advantages(context, rewards, groups, &options, advantages),
                call_object(made));
    }
    call_release(&c);
    return given;
}

PyMethodDef loss_functions[] = {
    {"kl_per_response", FAST(py_kl_per_response), NULL},
    {"kl_per_response_backward", FAST(py_kl_per_response_backward),
     "kl_per_response_backward(policy_logprobs, ref_logprobs, offsets, *, mask=None, estimator='k1', reduction='sum', "
     "clamp_ratio=0.0, clamp_kl=0.0, grad_kl)\n--\n\n"
     "(grad_policy, grad_ref) [T], given the gradient [B] with respect to the result of kl_per_response."
     "\n\nExamples\n--------\n"
     ">>> import napier\n"
     ">>> policy, ref = [-1.0, -2.0, -0.5], [-1.5, -2.0, -0.5]\n"
     ">>> grads = napier.rl.kl_per_response_backward(policy, ref, [0, 2, 3], estimator=\"k2\", grad_kl=[1.0, 1.0])\n"
     ">>> [grad.tolist() for grad in grads]\n"
     "[[0.5, 0.0, 0.0], [-0.5, 0.0, 0.0]]\n"},
    {"kl_full", FAST(py_kl_full), NULL},
    {"kl_full_backward", FAST(py_kl_full_backward),
     "kl_full_backward(policy_logits, ref_logits, grad_kl, *, temperature=1.0)\n--\n\n"
     "(grad_policy, grad_ref) [N, V], given the gradient [N] with respect to the result of kl_full."
     "\n\nExamples\n--------\n"
     ">>> import napier\n"
     ">>> grad_policy, grad_ref = napier.rl.kl_full_backward([[0.0, 0.0]], [[1.0, 0.0]], [1.0])\n"
     ">>> grad_ref.round(4)\n"
     "array([[ 0.2311, -0.2311]], dtype=float32)\n"},
    {"rubric_score", FAST(py_rubric_score), NULL},
    {"rubric_score_backward", FAST(py_rubric_score_backward),
     "rubric_score_backward(token_ids, offsets, rubric, weights, grad_scores=None, grad_rewards=None)\n--\n\n"
     "The gradient [T] with respect to logprobs, given those with respect to scores [B, C] and rewards [B]."
     "\n\nExamples\n--------\n"
     ">>> import napier\n"
     ">>> ids, offsets, rubric, weights = [3, 1, 3], [0, 2, 3], [[0, 0, 0, 1.0]], [2.0]\n"
     ">>> napier.rl.rubric_score_backward(ids, offsets, rubric, weights, grad_rewards=[1.0, 1.0]).tolist()\n"
     "[2.0, 0.0, 2.0]\n"},
    {"grpo_token_loss", FAST(py_grpo_token_loss), NULL},
    {"grpo_token_loss_backward", FAST(py_grpo_token_loss_backward),
     "grpo_token_loss_backward(logprobs, advantages, offsets, old_logprobs=None, ref_logprobs=None, "
     "sampler_logprobs=None, entropies=None, mask=None, options=None, grad_losses=None)\n--\n\n"
     "The gradient [T] with respect to logprobs, given that with respect to the losses [T] of grpo_token_loss "
     "(default: "
     "all 1). options: a dict of those of grpo_loss."
     "\n\nExamples\n--------\n"
     ">>> import napier\n"
     ">>> logprobs, advantages, offsets = [-1.0, -2.0, -0.5], [1.0, -1.0], [0, 2, 3]\n"
     ">>> napier.rl.grpo_token_loss_backward(logprobs, advantages, offsets, grad_losses=[0.5, 0.5, 1.0]).tolist()\n"
     "[-0.5, -0.5, 1.0]\n"},
    {"grpo_loss", FAST(py_grpo_loss), NULL},
    {"grpo_from_logits", FAST(py_grpo_from_logits), NULL},
    {"grpo_from_hidden", FAST(py_grpo_from_hidden), NULL},
    {"group_advantages", FAST(py_group_advantages), NULL},
    {NULL, NULL, 0, NULL}};
