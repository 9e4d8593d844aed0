/* tokens.c - log-probabilities of tokens, from logits and from hidden states; the matrix product; gather. These
 * functions take matrices and return plain tuples. napier/rl.py adds names, defaults and any number of leading
 * dimensions. */
#include "../call.h"

/* ---- Options and results that several functions share ------------------------------------------------------------ */

/* keep: [V] for all rows or [N, V]. */
static void check_keep(py_call *c, const array *keep, int64_t rows, int64_t cols, const uint8_t **bytes,
                       int64_t *stride) {
    if (!keep || c->failed) {
        return;
    }
    const bool one = keep->ndim == 1 && keep->shape[0] == cols;
    const bool each = keep->ndim == 2 && keep->shape[0] == rows && keep->shape[1] == cols;
    if (!(one || each) || (cols > 1 && keep->strides[keep->ndim - 1] != 1) || (each && keep->strides[0] < 0)) {
        call_refuse(c, PyExc_ValueError, "keep: expected a bool array of the logits' shape, or one row of it");
    }
    *bytes = (const uint8_t *)keep->data;
    *stride = each ? keep->strides[0] : 0;
}

#define TOKEN_OPTIONS                                                                               \
    ARG("temperature", options.temperature), ARG("softcap", options.softcap),                       \
        ARG("ignore_index", options.ignore_index), ARG("label_smoothing", options.label_smoothing), \
        ARG("z_loss", options.z_loss), ARRAY("keep", keep, TAKE_BYTES)

/* The requested results, as bits of `want`. */
enum { WANT_LSE = 1, WANT_ENTROPY = 2, WANT_LOSS = 4, WANT_ARGMAX = 8, WANT_RANK = 16, WANT_FINALS = 32 };

/* Makes them. ids: those of each row. The last two are what the backward call from hidden states need not compute again. */
static void make_token_results(py_call *c, int64_t rows, int64_t ids, int want, int64_t top_k,
                               napier_token_results *r) {
    const bool finals = want & WANT_FINALS;
    r->logprobs = make_matrix_if(c, ids > 0, rows, ids, NAPIER_F32);
    r->lse = make_vector_if(c, want & WANT_LSE, rows, NAPIER_F32);
    r->entropy = make_vector_if(c, want & WANT_ENTROPY, rows, NAPIER_F32);
    r->loss = make_vector_if(c, want & WANT_LOSS, rows, NAPIER_F32);
    r->argmax = make_integers_if(c, want & WANT_ARGMAX, rows, -1);
    r->rank = make_integers_if(c, ids > 0 && want & WANT_RANK, rows, ids);
    r->top_k = top_k;
    r->top_ids = make_integers_if(c, top_k > 0, rows, top_k);
    r->top_logprobs = make_matrix_if(c, top_k > 0, rows, top_k, NAPIER_F32);
    r->finals = make_integers_if(c, finals, rows, NAPIER_TOKEN_FINAL_WORDS);
    r->chosen = make_matrix_if(c, finals && ids > 0, rows, ids, NAPIER_F32).data;
}

/* The number of ids per row, which must be an integer. */
static int64_t ids_per_row(py_call *c, napier_indices ids, int64_t rows) {
    if (!c->failed && (rows > 0 ? ids.size % rows != 0 : ids.size != 0)) {
        call_refuse(c, PyExc_ValueError, "ids: %lld are not a whole number for each of %lld rows", (long long)ids.size,
                    (long long)rows);
    }
    return rows > 0 ? ids.size / rows : 0;
}

/* ---- From logits, and from hidden states and weights ------------------------------------------------------------- */

/* Uses tensor cores: the bits of a row differ from the CPU's, but do not depend on the batch. */
static napier_status cuda_linear(napier_cuda_context *context, struct CUstream_st *stream,
                                 napier_cuda_workspace *workspace, napier_const_matrix hidden,
                                 napier_const_matrix weights, napier_indices ids, const napier_token_options *options,
                                 const napier_token_results *results) {
    return napier_cuda_linear_token_logprobs(context, stream, workspace, hidden, weights, ids, options, results,
                                             NAPIER_CUDA_BATCH_INVARIANT);
}

static napier_status cuda_linear_backward(napier_cuda_context *context, struct CUstream_st *stream,
                                          napier_cuda_workspace *workspace, napier_const_matrix hidden,
                                          napier_const_matrix weights, napier_indices ids,
                                          const napier_token_options *options, const napier_token_gradients *gradients,
                                          napier_matrix grad_hidden, napier_matrix grad_weights) {
    return napier_cuda_linear_token_logprobs_backward(context, stream, workspace, hidden, weights, ids, options,
                                                      gradients, grad_hidden, grad_weights,
                                                      NAPIER_CUDA_BATCH_INVARIANT);
}

PYTHON_FUNCTION(token_logprobs) {
    napier_token_options options = NAPIER_TOKEN_OPTIONS_INIT;
    napier_token_results results = NAPIER_TOKEN_RESULTS_INIT;
    napier_const_matrix x;
    napier_indices ids;
    array *keep;
    int want = 0;
    int64_t top_k = 0;
    TAKE("token_logprobs", 10, 1, ANYWHERE, ARG("logits", x), ARG("ids", ids), TOKEN_OPTIONS, INTEGER("want", want),
         ARG("top_k", top_k))
    const int64_t each = ids_per_row(&c, ids, x.rows);
    check_keep(&c, keep, x.rows, x.cols, &options.keep, &options.keep_stride);
    make_token_results(&c, x.rows, each, want, top_k, &results);
    COMPUTE_ANYWHERE(napier_token_logprobs, napier_cuda_token_logprobs, x, ids, &options, &results);
    return call_end(&c);
}

PYTHON_FUNCTION(linear_token_logprobs) {
    napier_token_options options = NAPIER_TOKEN_OPTIONS_INIT;
    napier_token_results results = NAPIER_TOKEN_RESULTS_INIT;
    napier_const_matrix x, weights;
    napier_indices ids;
    array *keep;
    int want = 0;
    int64_t top_k = 0;
    TAKE("linear_token_logprobs", 12, 2, ANYWHERE, ARG("hidden", x), ARG("weights", weights), ARG("ids", ids),
         TOKEN_OPTIONS, INTEGER("want", want), ARG("top_k", top_k), BOOL("split", options.split))
    const int64_t each = ids_per_row(&c, ids, x.rows);
    check_keep(&c, keep, x.rows, weights.rows, &options.keep, &options.keep_stride);
    call_on_host(&c, "split", options.split != 0);
    make_token_results(&c, x.rows, each, want, top_k, &results);
    COMPUTE_ANYWHERE(napier_linear_token_logprobs, cuda_linear, x, weights, ids, &options, &results);
    return call_end(&c);
}

/* ---- Their gradients --------------------------------------------------------------------------------------------- */

#define TOKEN_GRADIENTS                                                                                               \
    ARG("grad_logprobs", gradients.logprobs), ARG("grad_lse", gradients.lse), ARG("grad_entropy", gradients.entropy), \
        ARG("grad_loss", gradients.loss)

PYTHON_FUNCTION(token_logprobs_backward) {
    napier_token_options options = NAPIER_TOKEN_OPTIONS_INIT;
    napier_token_gradients gradients = NAPIER_TOKEN_GRADIENTS_INIT;
    napier_const_matrix x;
    napier_indices ids;
    array *keep;
    PyObject *out;
    TAKE("token_logprobs_backward", 13, 1, ANYWHERE, ARG("logits", x), ARG("ids", ids), TOKEN_OPTIONS, TOKEN_GRADIENTS,
         ARG("out", out))
    check_keep(&c, keep, x.rows, x.cols, &options.keep, &options.keep_stride);
    const napier_matrix grad = make_matrix_or(&c, out, x.rows, x.cols, x.dtype);
    COMPUTE_ANYWHERE(napier_token_logprobs_backward, napier_cuda_token_logprobs_backward, x, ids, &options, &gradients,
                     grad);
    return call_end(&c);
}

/* (grad_hidden, grad_weights), each of its input's dtype. finals, chosen: as linear_token_logprobs made them, or absent. */
PYTHON_FUNCTION(linear_token_logprobs_backward) {
    napier_token_options options = NAPIER_TOKEN_OPTIONS_INIT;
    napier_token_gradients gradients = NAPIER_TOKEN_GRADIENTS_INIT;
    napier_const_matrix x, w;
    napier_indices ids;
    array *keep, *finals, *chosen;
    TAKE("linear_token_logprobs_backward", 13, 2, ANYWHERE, ARG("hidden", x), ARG("weights", w), ARG("ids", ids),
         TOKEN_OPTIONS, TOKEN_GRADIENTS, BOOL("bf16_gradient", options.bf16_gradient),
         ARRAY("finals", finals, TAKE_INTEGERS), ARRAY("chosen", chosen, TAKE_FLOATS))
    check_keep(&c, keep, x.rows, w.rows, &options.keep, &options.keep_stride);
    call_on_host(&c, "bf16_gradient", options.bf16_gradient != 0);
    gradients.finals = exact_elements(&c, finals, "finals", 'l', x.rows * NAPIER_TOKEN_FINAL_WORDS);
    gradients.chosen = exact_elements(&c, chosen, "chosen", 'f', ids.size);
    const napier_matrix grad_hidden = make_matrix(&c, x.rows, x.cols, x.dtype);
    const napier_matrix grad_weights = make_matrix(&c, w.rows, w.cols, w.dtype);
    COMPUTE_ANYWHERE(napier_linear_token_logprobs_backward, cuda_linear_backward, x, w, ids, &options, &gradients,
                     grad_hidden, grad_weights);
    return call_end(&c);
}

/* ---- Sampling ---------------------------------------------------------------------------------------------------- */

/* (ids, logprobs, plain_logprobs), each [N]. */
PYTHON_FUNCTION(sample) {
    napier_sample_options options = NAPIER_SAMPLE_OPTIONS_INIT;
    napier_sample_results results = NAPIER_SAMPLE_RESULTS_INIT;
    napier_const_matrix x;
    array *keep;
    TAKE("sample", 17, 1, ANYWHERE, ARG("logits", x), ARG("temperature", options.temperature),
         ARG("top_k", options.top_k), ARG("top_p", options.top_p), ARG("min_p", options.min_p),
         ARG("repetition_penalty", options.repetition_penalty), ARG("presence_penalty", options.presence_penalty),
         ARG("frequency_penalty", options.frequency_penalty), ARRAY("keep", keep, TAKE_BYTES),
         ARG("prompts", options.prompt_ids), ARG("prompt_offsets", options.prompt_offsets),
         ARG("outputs", options.output_ids), ARG("output_offsets", options.output_offsets), ARG("seed", options.seed),
         ARG("seeds", options.seeds), ARG("samples", options.samples), ARG("positions", options.positions))
    check_keep(&c, keep, x.rows, x.cols, &options.keep, &options.keep_stride);
    results.ids = make_integers_if(&c, true, x.rows, -1);
    results.logprobs = make_vector(&c, x.rows, NAPIER_F32);
    results.plain_logprobs = make_vector(&c, x.rows, NAPIER_F32);
    COMPUTE_ANYWHERE(napier_sample, napier_cuda_sample, x, &options, &results);
    return call_end(&c);
}

/* ---- Matrix product, gather -------------------------------------------------------------------------------------- */

/* With the CPU's bits. */
static napier_status cuda_matmul(napier_cuda_context *context, struct CUstream_st *stream,
                                 napier_cuda_workspace *workspace, napier_const_matrix a, napier_const_matrix b,
                                 napier_matrix product) {
    return napier_cuda_matmul(context, stream, workspace, a, b, product, NAPIER_CUDA_BITWISE);
}

PYTHON_FUNCTION(matmul) {
    napier_const_matrix a, b;
    napier_dtype dtype;
    int split = 0;
    TAKE("matmul", 2, 2, ANYWHERE, ARG("a", a), ARG("b", b), DTYPE("dtype", dtype), ARG("split", split))
    call_on_host(&c, "split", split);
    const napier_matrix product = make_matrix(&c, a.rows, b.cols, dtype ? dtype : common_dtype(a.dtype, b.dtype));
    COMPUTE_ANYWHERE((split ? napier_matmul_split : napier_matmul), cuda_matmul, a, b, product);
    return call_end(&c);
}

PYTHON_FUNCTION(gather_logprobs) {
    napier_const_matrix logprobs;
    napier_indices ids;
    TAKE("gather_logprobs", 2, 2, ANYWHERE, ARG("logprobs", logprobs), ARG("ids", ids))
    const napier_vector gathered = make_vector(&c, logprobs.rows, logprobs.dtype);
    COMPUTE_ANYWHERE(napier_gather_logprobs, napier_cuda_gather_logprobs, logprobs, ids, gathered);
    return call_end(&c);
}

PYTHON_FUNCTION(gather_logprobs_backward) {
    napier_const_vector gathered;
    napier_indices ids;
    int64_t vocabulary = 0;
    TAKE("gather_logprobs_backward", 3, 3, ANYWHERE, ARG("grad_gathered", gathered), ARG("ids", ids),
         ARG("vocabulary", vocabulary))
    const napier_matrix grad = make_matrix(&c, gathered.size, vocabulary, gathered.dtype);
    COMPUTE_ANYWHERE(napier_gather_logprobs_backward, napier_cuda_gather_logprobs_backward, gathered, ids, grad);
    return call_end(&c);
}

PyMethodDef token_functions[] = {
    ENTRY(token_logprobs),  ENTRY(token_logprobs_backward),        ENTRY(linear_token_logprobs),
    ENTRY(sample),          ENTRY(linear_token_logprobs_backward), ENTRY(matmul),
    ENTRY(gather_logprobs), ENTRY(gather_logprobs_backward),       ENTRY_END};
