/* shards.c - the functions of napier/shards.h, for napier/torch/distributed.py. All outputs are the caller's tensors. */
#include "../call.h"

#include <napier/shards.h>

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

/* int64 [rows * words], contiguous. */
#define WORDS(name_, x_, more_) ARRAY(name_, x_, TAKE_INTEGERS | (more_))

static int64_t *words_of(py_call *c, const array *a, const char *name, int64_t size) {
    return exact_elements(c, a, name, 'l', size);
}

/* The z of ids: float32, as many as ids, contiguous; NULL without ids. */
static float *take_chosen(py_call *c, PyObject *value, int64_t size, int more) {
    if (size == 0 || c->failed) {
        return NULL;
    }
    const array *a = call_take(c, value, "chosen", TAKE_FLOATS | more);
    if (!value) {
        call_refuse(c, PyExc_TypeError, "chosen: is missing");
    }
    return exact_elements(c, a, "chosen", 'f', size);
}

#define SHARD_OPTIONS                                                                               \
    ARG("temperature", options.temperature), ARG("softcap", options.softcap),                       \
        ARG("ignore_index", options.ignore_index), ARG("label_smoothing", options.label_smoothing), \
        ARG("z_loss", options.z_loss)

/* ---- Tiles, sums, finals ------------------------------------------------------------------------------------------- */

#define TILE_ARGUMENTS                                                                                             \
    ARG("first", first), ARG("vocabulary", vocabulary), ARG("ids", ids), SHARD_OPTIONS, INTEGER("values", values), \
        ARG("tiles", tiles), ARG("chosen", chosen)

PYTHON_FUNCTION(tiles) {
    napier_token_options options = NAPIER_TOKEN_OPTIONS_INIT;
    napier_const_matrix x;
    napier_matrix tiles;
    napier_indices ids;
    int64_t first = 0, vocabulary = 0;
    int values = NAPIER_SHARD_LSE;
    PyObject *chosen;
    TAKE("_shard_tiles", 12, 11, ON_HOST, ARG("logits", x), TILE_ARGUMENTS)
    float *const z = take_chosen(&c, chosen, ids.size, TAKE_WRITABLE);
    COMPUTE(napier_shard_tiles(context, x, first, vocabulary, ids, &options, (napier_shard_values)values, tiles, z));
    return call_end(&c);
}

PYTHON_FUNCTION(linear_tiles) {
    napier_token_options options = NAPIER_TOKEN_OPTIONS_INIT;
    napier_const_matrix x, w;
    napier_matrix tiles;
    napier_indices ids;
    int64_t first = 0, vocabulary = 0;
    int values = NAPIER_SHARD_LSE;
    PyObject *chosen;
    TAKE("_shard_linear_tiles", 13, 12, ON_HOST, ARG("hidden", x), ARG("weights", w), TILE_ARGUMENTS)
    float *const z = take_chosen(&c, chosen, ids.size, TAKE_WRITABLE);
    COMPUTE(napier_shard_linear_tiles(context, x, w, first, vocabulary, ids, &options, (napier_shard_values)values,
                                      tiles, z));
    return call_end(&c);
}

PYTHON_FUNCTION(sums) {
    napier_const_matrix tiles;
    int values = NAPIER_SHARD_LSE;
    array *sums;
    TAKE("_shard_sums", 3, 3, ON_HOST, ARG("tiles", tiles), INTEGER("values", values),
         WORDS("sums", sums, TAKE_WRITABLE))
    int64_t *const out = words_of(&c, sums, "sums", tiles.rows * NAPIER_SHARD_SUM_WORDS);
    COMPUTE(napier_shard_sums(context, tiles, (napier_shard_values)values, out));
    return call_end(&c);
}

PYTHON_FUNCTION(finish_tiles) {
    napier_const_matrix tiles;
    int values = NAPIER_SHARD_LSE;
    array *finals;
    TAKE("_shard_finish_tiles", 3, 3, ON_HOST, ARG("tiles", tiles), INTEGER("values", values),
         WORDS("finals", finals, TAKE_WRITABLE))
    int64_t *const out = words_of(&c, finals, "finals", tiles.rows * NAPIER_SHARD_FINAL_WORDS);
    COMPUTE(napier_shard_finish_tiles(context, tiles, (napier_shard_values)values, out));
    return call_end(&c);
}

PYTHON_FUNCTION(finish_sums) {
    int64_t parts = 0, rows = 0;
    array *sums, *finals;
    TAKE("_shard_finish_sums", 4, 4, ON_HOST, WORDS("sums", sums, 0), ARG("parts", parts), ARG("rows", rows),
         WORDS("finals", finals, TAKE_WRITABLE))
    const int64_t *const from = words_of(&c, sums, "sums", parts * rows * NAPIER_SHARD_SUM_WORDS);
    int64_t *const out = words_of(&c, finals, "finals", rows * NAPIER_SHARD_FINAL_WORDS);
    COMPUTE(napier_shard_finish_sums(context, from, parts, rows, out));
    return call_end(&c);
}

/* ---- softmax, log_softmax, logsumexp ------------------------------------------------------------------------------- */

PYTHON_FUNCTION(softmax) {
    napier_softmax_options options = NAPIER_SOFTMAX_OPTIONS_INIT;
    napier_const_matrix logits;
    napier_matrix result;
    napier_softmax_kind kind = NAPIER_KIND_SOFTMAX;
    array *finals;
    TAKE("_shard_softmax", 6, 4, ON_HOST, WORDS("finals", finals, 0), WORD("kind", kind, kind_words),
         ARG("logits", logits), ARG("result", result), ARG("temperature", options.temperature),
         WORD("masked_rows", options.masked_rows, masked_words))
    const int64_t *const from = words_of(&c, finals, "finals", logits.rows * NAPIER_SHARD_FINAL_WORDS);
    COMPUTE(napier_shard_softmax(context, from, kind, logits, result, &options));
    return call_end(&c);
}

PYTHON_FUNCTION(logsumexp_backward) {
    napier_softmax_options options = NAPIER_SOFTMAX_OPTIONS_INIT;
    napier_const_matrix logits;
    napier_const_vector grad;
    napier_matrix result;
    array *finals;
    TAKE("_shard_logsumexp_backward", 5, 4, ON_HOST, WORDS("finals", finals, 0), ARG("logits", logits),
         ARG("grad_lse", grad), ARG("grad_logits", result), ARG("temperature", options.temperature))
    const int64_t *const from = words_of(&c, finals, "finals", logits.rows * NAPIER_SHARD_FINAL_WORDS);
    COMPUTE(napier_shard_logsumexp_backward(context, from, logits, grad, result, &options));
    return call_end(&c);
}

PYTHON_FUNCTION(dots) {
    napier_const_matrix gradients, probs;
    napier_matrix dots;
    TAKE("_shard_dots", 3, 2, ON_HOST, ARG("gradients", gradients), ARG("dots", dots), ARG("probs", probs))
    COMPUTE(napier_shard_dots(context, probs, gradients, dots));
    return call_end(&c);
}

PYTHON_FUNCTION(softmax_backward) {
    napier_softmax_options options = NAPIER_SOFTMAX_OPTIONS_INIT;
    napier_const_matrix result, gradients, dots;
    napier_matrix out;
    napier_softmax_kind kind = NAPIER_KIND_SOFTMAX;
    TAKE("_shard_softmax_backward", 6, 5, ON_HOST, WORD("kind", kind, kind_words), ARG("result", result),
         ARG("gradients", gradients), ARG("dots", dots), ARG("grad_logits", out),
         ARG("temperature", options.temperature))
    COMPUTE(napier_shard_softmax_backward(context, kind, result, gradients, dots, out, &options));
    return call_end(&c);
}

/* ---- Tokens -------------------------------------------------------------------------------------------------------- */

PYTHON_FUNCTION(token_results) {
    napier_token_options options = NAPIER_TOKEN_OPTIONS_INIT;
    napier_token_results r = NAPIER_TOKEN_RESULTS_INIT;
    napier_indices ids;
    int64_t rows = 0, vocabulary = 0;
    array *finals;
    PyObject *chosen;
    TAKE("_shard_token_results", 14, 3, ON_HOST, ARG("rows", rows), WORDS("finals", finals, 0),
         ARG("vocabulary", vocabulary), ARG("chosen", chosen), ARG("ids", ids), SHARD_OPTIONS,
         ARG("logprobs", r.logprobs), ARG("lse", r.lse), ARG("entropy", r.entropy), ARG("loss", r.loss))
    const int64_t *const from = words_of(&c, finals, "finals", rows * NAPIER_SHARD_FINAL_WORDS);
    const float *const z = take_chosen(&c, chosen, ids.size, 0);
    COMPUTE(napier_shard_token_results(context, rows, from, z, vocabulary, ids, &options, &r));
    return call_end(&c);
}

#define SHARD_GRADIENTS \
    ARG("grad_logprobs", g.logprobs), ARG("grad_lse", g.lse), ARG("grad_entropy", g.entropy), ARG("grad_loss", g.loss)

PYTHON_FUNCTION(token_backward) {
    napier_token_options options = NAPIER_TOKEN_OPTIONS_INIT;
    napier_token_gradients g = NAPIER_TOKEN_GRADIENTS_INIT;
    napier_const_matrix logits;
    napier_matrix out;
    napier_indices ids;
    int64_t first = 0, vocabulary = 0;
    array *finals;
    PyObject *chosen;
    TAKE("_shard_token_backward", 16, 5, ON_HOST, WORDS("finals", finals, 0), ARG("logits", logits),
         ARG("first", first), ARG("vocabulary", vocabulary), ARG("grad_logits", out), ARG("chosen", chosen),
         ARG("ids", ids), SHARD_OPTIONS, SHARD_GRADIENTS)
    const int64_t *const from = words_of(&c, finals, "finals", logits.rows * NAPIER_SHARD_FINAL_WORDS);
    const float *const z = take_chosen(&c, chosen, ids.size, 0);
    COMPUTE(napier_shard_token_backward(context, from, z, logits, first, vocabulary, ids, &options, &g, out));
    return call_end(&c);
}

PYTHON_FUNCTION(linear_backward) {
    napier_token_options options = NAPIER_TOKEN_OPTIONS_INIT;
    napier_token_gradients g = NAPIER_TOKEN_GRADIENTS_INIT;
    napier_const_matrix hidden, weights;
    napier_matrix grad_hidden, grad_weights;
    napier_indices ids;
    int64_t first = 0, vocabulary = 0;
    int continues = 0;
    array *finals;
    PyObject *chosen;
    TAKE("_shard_linear_backward", 19, 6, ON_HOST, WORDS("finals", finals, 0), ARG("hidden", hidden),
         ARG("weights", weights), ARG("first", first), ARG("vocabulary", vocabulary), ARG("continues", continues),
         ARG("grad_hidden", grad_hidden), ARG("grad_weights", grad_weights), ARG("chosen", chosen), ARG("ids", ids),
         SHARD_OPTIONS, SHARD_GRADIENTS)
    const int64_t *const from = words_of(&c, finals, "finals", hidden.rows * NAPIER_SHARD_FINAL_WORDS);
    const float *const z = take_chosen(&c, chosen, ids.size, 0);
    COMPUTE(napier_shard_linear_backward(context, from, z, hidden, weights, first, vocabulary, ids, &options, &g,
                                         continues, grad_hidden, grad_weights));
    return call_end(&c);
}

#define SHARD(name_) ENTRY_AS("_shard_" #name_, name_)
PyMethodDef shard_functions[] = {
    SHARD(tiles),          SHARD(linear_tiles),       SHARD(sums), SHARD(finish_sums),      SHARD(finish_tiles),
    SHARD(softmax),        SHARD(logsumexp_backward), SHARD(dots), SHARD(softmax_backward), SHARD(token_results),
    SHARD(token_backward), SHARD(linear_backward),    ENTRY_END};
