/* The forward pass: against the formula in double, for every family and dtype of weights, tied and not, any grouping of
 * heads; the same bits for every instruction set, thread count, batch and memory limit; its steps against their
 * definition; cos and sin of positions; arguments and memory that runs out. */
#include "support/check.h"

#include <math.h>
#include <napier/layers.h>
#include <napier/model.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/bytes.h"
#include "ops/isa/ops_kernels.h"
#include "ops/layers/rotary_angles.h"
#include "support/memory.h"
#include "unit/lm/lm_support.h"

/* ---- The formula in double --------------------------------------------------------------------------------------- */

/* y[rows of w] = w x, w being a tensor of the model. */
static void multiply(const tiny_model *m, const char *name, int64_t rows, int64_t cols, const double *x, double *y) {
    for (int64_t i = 0; i < rows; i++) {
        y[i] = 0;
        for (int64_t j = 0; j < cols; j++) {
            y[i] += tiny_model_weight(m, name, i * cols + j) * x[j];
        }
    }
}

static void normalise(const tiny_model *m, const char *name, int64_t n, const double *x, double *y) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += x[i] * x[i];
    }
    for (int64_t i = 0; i < n; i++) {
        y[i] = x[i] / sqrt(sum / (double)n + 1e-6) * tiny_model_weight(m, name, i);
    }
}

static void rotate(const tiny_model *m, int64_t position, double *head) {
    const int64_t half = m->head_dim / 2;
    for (int64_t i = 0; i < half; i++) {
        const double angle = (double)position * pow(m->theta, -(double)i / (double)half);
        const double a = head[i], b = head[half + i];
        head[i] = a * cos(angle) - b * sin(angle);
        head[half + i] = b * cos(angle) + a * sin(angle);
    }
}

enum { MOST = 160, TOKENS = 21 }; /* the widest row */

typedef struct oracle {
    const tiny_model *m;
    char prefix[64];
    double x[TOKENS][MOST], k[TOKENS][MOST], v[TOKENS][MOST];
} oracle;

static const char *named(const oracle *o, const char *name, const char *kind) {
    static char full[128];
    snprintf(full, sizeof full, "%s.%s.%s", o->prefix, name, kind);
    return full;
}

/* A product of a layer, with its bias. */
static void apply(const oracle *o, const char *name, bool biased, int64_t rows, int64_t cols, const double *x,
                  double *y) {
    multiply(o->m, named(o, name, "weight"), rows, cols, x, y);
    for (int64_t i = 0; biased && i < rows; i++) {
        y[i] += tiny_model_weight(o->m, named(o, name, "bias"), i);
    }
}

static void heads_of(const oracle *o, const char *projection, const char *norm, int64_t heads, int64_t position,
                     const double *x, double *out) {
    const int64_t dim = o->m->head_dim;
    apply(o, projection, tiny_model_qkv_bias(o->m), heads * dim, o->m->hidden, x, out);
    for (int64_t h = 0; norm && h < heads; h++) {
        double y[MOST];
        if (tiny_model_head_norms(o->m)) {
            normalise(o->m, named(o, norm, "weight"), dim, out + h * dim, y);
        } else {
            memcpy(y, out + h * dim, (size_t)dim * sizeof *y);
        }
        rotate(o->m, position, y);
        memcpy(out + h * dim, y, (size_t)dim * sizeof *y);
    }
}

static void attend(const oracle *o, int64_t token, const double *q, double *out) {
    const int64_t dim = o->m->head_dim, group = o->m->heads / o->m->kv_heads;
    for (int64_t h = 0; h < o->m->heads; h++) {
        const int64_t at = h / group * dim;
        double weight[TOKENS], sum = 0;
        for (int64_t j = 0; j <= token; j++) {
            double dot = 0;
            for (int64_t i = 0; i < dim; i++) {
                dot += q[h * dim + i] * o->k[j][at + i];
            }
            sum += weight[j] = exp(dot / sqrt((double)dim));
        }
        for (int64_t i = 0; i < dim; i++) {
            out[h * dim + i] = 0;
            for (int64_t j = 0; j <= token; j++) {
                out[h * dim + i] += weight[j] / sum * o->v[j][at + i];
            }
        }
    }
}

/* y = the gated MLP with this name. */
static void run_mlp(const oracle *o, const char *mlp, int64_t width, const double *x, double *y) {
    const tiny_model *m = o->m;
    double a[MOST], b[MOST];
    char name[64];
    snprintf(name, sizeof name, "%s.gate_proj", mlp);
    apply(o, name, m->mlp_bias, width, m->hidden, x, a);
    snprintf(name, sizeof name, "%s.up_proj", mlp);
    apply(o, name, m->mlp_bias, width, m->hidden, x, b);
    for (int64_t i = 0; i < width; i++) {
        a[i] = a[i] / (1 + exp(-a[i])) * b[i];
    }
    snprintf(name, sizeof name, "%s.down_proj", mlp);
    apply(o, name, m->mlp_bias, m->hidden, width, a, y);
}

/* The probabilities of the chosen experts, 0 for the others. */
static void choose(const tiny_model *m, const double *logits, double *shares) {
    double sum = 0, all = 0;
    for (int64_t e = 0; e < m->experts; e++) {
        int64_t before = 0;
        for (int64_t i = 0; i < m->experts; i++) {
            before += logits[i] > logits[e];
        }
        all += exp(logits[e]);
        shares[e] = before < m->chosen ? exp(logits[e]) : 0;
        sum += shares[e];
    }
    for (int64_t e = 0; e < m->experts; e++) {
        shares[e] /= m->shares ? sum : all;
    }
}

static void run_experts(const oracle *o, const double *x, double *y) {
    const tiny_model *m = o->m;
    double logits[MOST], shares[MOST];
    apply(o, "mlp.gate", false, m->experts, m->hidden, x, logits);
    choose(m, logits, shares);
    memset(y, 0, (size_t)m->hidden * sizeof *y);
    for (int64_t e = 0; e < m->experts; e++) {
        double out[MOST];
        char name[64];
        snprintf(name, sizeof name, "mlp.experts.%d", (int)e);
        run_mlp(o, name, m->expert_width, x, out);
        for (int64_t i = 0; i < m->hidden; i++) {
            y[i] += shares[e] * out[i];
        }
    }
}

static void run_token(oracle *o, int64_t layer, int64_t token) {
    const tiny_model *m = o->m;
    double normed[MOST], q[MOST], a[MOST], b[MOST], *x = o->x[token];
    normalise(m, named(o, "input_layernorm", "weight"), m->hidden, x, normed);
    heads_of(o, "self_attn.q_proj", "self_attn.q_norm", m->heads, token, normed, q);
    heads_of(o, "self_attn.k_proj", "self_attn.k_norm", m->kv_heads, token, normed, o->k[token]);
    heads_of(o, "self_attn.v_proj", NULL, m->kv_heads, token, normed, o->v[token]);
    attend(o, token, q, a);
    apply(o, "self_attn.o_proj", m->attention_bias, m->hidden, m->heads * m->head_dim, a, b);
    for (int64_t i = 0; i < m->hidden; i++) {
        x[i] += b[i];
    }
    normalise(m, named(o, "post_attention_layernorm", "weight"), m->hidden, x, normed);
    if (tiny_model_is_sparse(m, layer)) {
        run_experts(o, normed, b);
    } else {
        run_mlp(o, "mlp", m->intermediate, normed, b);
    }
    for (int64_t i = 0; i < m->hidden; i++) {
        x[i] += b[i];
    }
}

/* logits[TOKENS][vocabulary] */
static void oracle_logits(const tiny_model *m, const int64_t *ids, double *logits) {
    static oracle o;
    o.m = m;
    for (int64_t t = 0; t < TOKENS; t++) {
        for (int64_t i = 0; i < m->hidden; i++) {
            o.x[t][i] = tiny_model_weight(m, "model.embed_tokens.weight", ids[t] * m->hidden + i);
        }
    }
    for (int64_t layer = 0; layer < m->layers; layer++) {
        snprintf(o.prefix, sizeof o.prefix, "model.layers.%d", (int)layer);
        for (int64_t t = 0; t < TOKENS; t++) {
            run_token(&o, layer, t);
        }
    }
    for (int64_t t = 0; t < TOKENS; t++) {
        double normed[MOST];
        normalise(m, "model.norm.weight", m->hidden, o.x[t], normed);
        multiply(m, m->tied ? "model.embed_tokens.weight" : "lm_head.weight", m->vocabulary, m->hidden, normed,
                 logits + t * m->vocabulary);
    }
}

static void check_against_oracle(tiny_model m, const char *what) {
    int64_t ids[TOKENS];
    rng r = rng_make(7);
    tiny_model_write(&m);
    random_ids(ids, TOKENS, m.vocabulary, &r);
    double *exact = scratch(TOKENS * m.vocabulary, sizeof *exact);
    float *got = scratch(TOKENS * m.vocabulary, sizeof *got);
    oracle_logits(&m, ids, exact);
    for (int compute = 0; compute <= (m.dtype == NAPIER_BF16 ? NAPIER_COMPUTE_SPLIT : NAPIER_COMPUTE_BF16); compute++) {
        napier_context *context = context_for_test(NAPIER_ISA_AUTO, 2);
        napier_model *model = model_load(context, &m, (napier_compute)compute, 0);
        model_logits(context, model, &m, ids, TOKENS, got);
        double worst = 0;
        for (int64_t i = 0; i < TOKENS * m.vocabulary; i++) {
            worst = fmax(worst, fabs((double)got[i] - exact[i]));
        }
        const double bound = compute == NAPIER_COMPUTE_BF16 ? 0.15 : 2e-5;
        expect(worst <= bound, "%s, compute %d: logits off by %g", what, compute, worst);
        napier_model_destroy(context, model);
    }
    tiny_model_remove(&m);
}

static void test_formula(void) {
    const tiny_model ordinary = TINY_MODEL_INIT;
    tiny_model m = ordinary;
    check_against_oracle(m, "f32, tied, two groups");
    m.tied = false;
    m.old_config = true;
    m.kv_heads = 4;
    m.dtype = NAPIER_BF16;
    check_against_oracle(m, "bf16, untied, a key for each head");
    m.heads = 8;
    m.kv_heads = 1;
    m.dtype = NAPIER_F16;
    check_against_oracle(m, "f16, untied, one key for all heads");
    m = ordinary;
    m.hidden = 37;
    m.head_dim = 10;
    m.intermediate = 51;
    m.vocabulary = 31;
    m.theta = 1e6;
    check_against_oracle(m, "odd sizes");
    for (int which = 1; which < TINY_FAMILIES; which++) { /* tests/peers has the scalings */
        m = tiny_model_of(which);
        m.rope = "";
        check_against_oracle(m, m.family);
        m.dtype = NAPIER_BF16;
        m.hidden = 37;
        m.intermediate = 51;
        m.tied = false;
        check_against_oracle(m, m.family);
        m.sparse_step = 2;
        m.shares = false;
        m.chosen = 3;
        check_against_oracle(m, "a dense layer, shares as they are");
    }
}

/* ---- The same bits ----------------------------------------------------------------------------------------------- */

typedef struct forward_case {
    const tiny_model *m;
    napier_compute compute;
    int64_t *ids, *offsets, sequences;
    float *hidden, *logits;
} forward_case;

static void run_case(const forward_case *c, napier_context *context, int64_t memory, float *hidden, float *logits) {
    napier_model *model = model_load(context, c->m, c->compute, memory);
    const int64_t tokens = c->offsets[c->sequences];
    succeeded(context,
              napier_model_forward(context, model, napier_indices_i64(c->ids, tokens),
                                   napier_indices_i64(c->offsets, c->sequences + 1),
                                   napier_rows_f32(hidden, tokens, c->m->hidden),
                                   napier_rows_f32(logits, tokens, c->m->vocabulary), NULL, NULL),
              "forward");
    napier_model_destroy(context, model);
}

static void compare_case(const forward_case *c, napier_context *context, int64_t memory) {
    const int64_t tokens = c->offsets[c->sequences];
    float *hidden = scratch(tokens * c->m->hidden, sizeof *hidden);
    float *logits = scratch(tokens * c->m->vocabulary, sizeof *logits);
    run_case(c, context, memory, hidden, logits);
    expect(memcmp(hidden, c->hidden, (size_t)(tokens * c->m->hidden) * sizeof *hidden) == 0 &&
               memcmp(logits, c->logits, (size_t)(tokens * c->m->vocabulary) * sizeof *logits) == 0,
           "%s, %d threads, memory %lld: other bits", napier_isa_name(napier_context_isa(context)),
           napier_context_threads(context), (long long)memory);
}

/* Each sequence by itself, on the scalar kernels and one thread. */
static void run_alone(const forward_case *c) {
    for (int64_t s = 0; s < c->sequences; s++) {
        const int64_t begin = c->offsets[s];
        int64_t offsets[] = {0, c->offsets[s + 1] - begin};
        forward_case one = *c;
        one.ids = c->ids + begin;
        one.offsets = offsets;
        one.sequences = 1;
        run_case(&one, context_of_run(0), 0, c->hidden + begin * c->m->hidden, c->logits + begin * c->m->vocabulary);
    }
}

static void test_bits(void) {
    int64_t offsets[] = {0, 1, 30, 30, 47, 110};
    int64_t ids[110];
    for (int which = 0; which < 5 * TINY_FAMILIES; which++) {
        TINY_MODEL(m);
        const int kind = which % 5;
        m = tiny_model_of(which / 5);
        m.dtype = kind < 2 ? NAPIER_F32 : NAPIER_BF16;
        tiny_model_write(&m);
        rng r = rng_make(3);
        random_ids(ids, 110, m.vocabulary, &r);
        forward_case c = {&m,  kind == 4 ? NAPIER_COMPUTE_SPLIT : (napier_compute)(kind % 2), ids, offsets, 5, NULL,
                          NULL};
        c.hidden = scratch(110 * m.hidden, sizeof *c.hidden);
        c.logits = scratch(110 * m.vocabulary, sizeof *c.logits);
        run_alone(&c);
        napier_context *context;
        for (int i = 0; (context = context_of_run(i)) != NULL; i++) {
            compare_case(&c, context, 0);
        }
        compare_case(&c, context_for_test(NAPIER_ISA_AUTO, 1), 3 << 20);
    }
}

/* ---- Steps ------------------------------------------------------------------------------------------------------- */

static void test_angles(napier_context *context) {
    float inverse[64], cosines[64], sines[64];
    const int64_t positions[] = {0, 1, 2, 77, 4095, 40959, 1000003, (1 << 24) - 1};
    napier_rotary_options options = NAPIER_ROTARY_OPTIONS_INIT;
    double scale;
    options.theta = 1e6;
    const napier_vector all = {inverse, 64, 1, NAPIER_F32};
    works(napier_rotary_frequencies, context, &options, all, &scale);
    for (int i = 0; i < 64; i++) {
        const double exact = pow(1e6, -(double)i / 64);
        expect(fabs((double)inverse[i] - exact) <= 2e-7 * exact, "inverse %d is %g, not %g", i, (double)inverse[i],
               exact);
    }
    for (size_t p = 0; p < sizeof positions / sizeof *positions; p++) {
        napier_rope_angles(inverse, 64, 1.0f, positions[p], cosines, sines);
        for (int i = 0; i < 64; i++) {
            const double angle = (double)((float)positions[p] * inverse[i]);
            expect(fabs((double)cosines[i] - cos(angle)) <= 0x1.01p-25 &&
                       fabs((double)sines[i] - sin(angle)) <= 0x1.01p-25,
                   "position %lld, angle %g: %g, %g", (long long)positions[p], angle, (double)cosines[i],
                   (double)sines[i]);
        }
    }
    for (int i = 0; i < 20000; i++) {
        const double x = i < 10000 ? (i - 5000) * 0.001 : (double)(float)((i - 9999) * 1677.7216 * (i % 2 ? 1 : -1));
        double c, s;
        napier_cos_sin(x, &c, &s);
        expect(fabs(c - cos(x)) <= 0x1p-51 && fabs(s - sin(x)) <= 0x1p-51, "cos, sin of %a: off by %g, %g", x,
               c - cos(x), s - sin(x));
    }
}

static float fill(float *x, int64_t n, uint64_t seed, double size) {
    rng r = rng_make(seed);
    for (int64_t i = 0; i < n; i++) {
        x[i] = (float)(size * rng_normal(&r));
    }
    return x[0];
}

/* One instruction set's steps on rows of n elements, into out (7 n floats). */
static void run_steps(napier_isa isa, int64_t n, double size, float *out) {
    const napier_layer_kernels *kernels = napier_ops_kernels_of(isa)->layers;
    float x[300], delta[300], weight[300], cosines[150], sines[150];
    const napier_norm norm = {weight, n, 1e-6f};
    fill(x, n, 1, size);
    fill(delta, n, 2, size);
    fill(weight, n, 3, 1.0);
    fill(cosines, n / 2, 4, 0.5);
    fill(sines, n / 2, 5, 0.5);
    memset(out, 0, (size_t)(7 * n) * sizeof *out);
    kernels->gate(x, delta, n, out, NAPIER_F32);
    kernels->norm(&norm, x, delta, out + n, NAPIER_F32);
    kernels->norm(&norm, x, NULL, out + 2 * n, NAPIER_BF16);
    if (n % 2 == 0) {
        kernels->rotate(&norm, x, 1, cosines, sines, out + 3 * n, NAPIER_F32);
        kernels->rotate(&(napier_norm){NULL, n, 0}, x, 1, cosines, sines, out + 4 * n, NAPIER_F32);
    }
    kernels->add(x, delta, n, out + 5 * n, NAPIER_BF16);
    kernels->add(x, delta, n, x, NAPIER_F32);
    memcpy(out + 6 * n, x, (size_t)n * sizeof *x);
}

static void test_steps(void) {
    const int64_t sizes[] = {1, 2, 15, 16, 17, 32, 63, 64, 66, 128, 300};
    napier_isa isas[ISA_LIMIT];
    const int count = available_isas(isas);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (double size = 1e-3; size < 1e25; size *= 1e13) {
            float wanted[2100], got[2100];
            run_steps(NAPIER_ISA_SCALAR, sizes[i], size, wanted);
            for (int k = 1; k < count; k++) {
                run_steps(isas[k], sizes[i], size, got);
                expect(memcmp(got, wanted, (size_t)(7 * sizes[i]) * sizeof *got) == 0,
                       "%s, n %lld, size %g: other bits", napier_isa_name(isas[k]), (long long)sizes[i], size);
            }
        }
    }
    float x[4] = {NAN, -INFINITY, 1, 1}, up[4] = {1, 1, INFINITY, -0.0f}, y[4];
    napier_ops_kernels_of(NAPIER_ISA_SCALAR)->layers->gate(x, up, 4, y, NAPIER_F32);
    uint32_t bits;
    memcpy(&bits, y, sizeof bits);
    expect(bits == 0x7fc00000u, "a NaN is not the canonical one: %08x", bits);
}

/* ---- Arguments and memory ---------------------------------------------------------------------------------------- */

static void test_arguments(napier_context *context) {
    TINY_MODEL(m);
    napier_model_options options = NAPIER_MODEL_OPTIONS_INIT;
    napier_model *model = NULL;
    float logits[2 * 83];
    int64_t ids[] = {1, 83}, offsets[] = {0, 3};
    tiny_model_write(&m);
    invalid(context, napier_model_load(context, NULL, NULL, &model), "directory");
    refused(context, napier_model_load(context, "/nowhere", NULL, &model), NAPIER_IO_ERROR, "/nowhere", NULL);
    options.compute = (napier_compute)7;
    invalid(context, napier_model_load(context, m.directory, &options, &model), "compute 7");
    options.compute = (napier_compute)-1;
    invalid(context, napier_model_load(context, m.directory, &options, &model), "compute -1");
    options.compute = NAPIER_COMPUTE_SPLIT;
    invalid(context, napier_model_load(context, m.directory, &options, &model),
            "model.embed_tokens.weight: dtype f32, but the compute mode split needs bf16");
    options.compute = NAPIER_COMPUTE_F32;
    options.memory = -1;
    invalid(context, napier_model_load(context, m.directory, &options, &model), "-1");
    options.struct_size = 3;
    invalid(context, napier_model_load(context, m.directory, &options, &model), "3");
    model = model_load(context, &m, NAPIER_COMPUTE_F32, 1000);
    const napier_matrix none = napier_rows_f32(NULL, 0, 0), out = napier_rows_f32(logits, 2, 83);
    const napier_indices one = napier_indices_i64(NULL, 0), two = napier_indices_i64(ids, 2);
    invalid(context, napier_model_forward(context, model, two, one, none, out, NULL, NULL), "ids[1] is 83");
    ids[1] = 5;
    invalid(context, napier_model_forward(context, model, two, napier_indices_i64(offsets, 2), none, out, NULL, NULL),
            "offsets[1] is 3");
    invalid(context, napier_model_forward(context, model, two, one, none, napier_rows_f32(logits, 2, 82), NULL, NULL),
            "logits", "82");
    const napier_matrix hidden = napier_rows_f32(logits + 20, 2, 32);
    invalid(context, napier_model_forward(context, model, two, one, hidden, out, NULL, NULL), "overlaps");
    refused(context, napier_model_forward(context, model, two, one, none, out, NULL, NULL), NAPIER_OUT_OF_MEMORY,
            "memory: 1000", NULL);
    invalid(context, napier_model_forward(context, NULL, two, one, none, out, NULL, NULL), "model");
    napier_model_info info = NAPIER_MODEL_INFO_INIT;
    succeeded(context, napier_model_get_info(context, model, &info), "info");
    expect(info.layers == 2 && info.vocabulary == 83 && info.parameters > 83 * 32 && info.memory == 1000 && info.tied &&
               strcmp(info.family, "qwen3") == 0 && info.labels == 0,
           "info: %lld layers, %lld parameters", (long long)info.layers, (long long)info.parameters);
    napier_model_destroy(context, model);
    napier_model_destroy(context, NULL);
}

/* ---- Files of another kind --------------------------------------------------------------------------------------- */

/* All of a file of the model, and a 0. */
static char *read_file(const tiny_model *m, const char *name, size_t *size) {
    char path[256], *bytes = scratch(1 << 20, 1);
    snprintf(path, sizeof path, "%s/%s", m->directory, name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    *size = fread(bytes, 1, (1 << 20) - 1, file);
    bytes[*size] = '\0';
    fclose(file);
    return bytes;
}

static void write_file(const tiny_model *m, const char *name, const char *bytes, size_t size) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", m->directory, name);
    file_write(path, bytes, size);
}

static void run_model(napier_context *context, const tiny_model *m, float *logits) {
    const int64_t ids[] = {1, 2, 3};
    napier_model *model = model_load(context, m, NAPIER_COMPUTE_F32, 0);
    model_logits(context, model, m, ids, 3, logits);
    napier_model_destroy(context, model);
}

/* A header that ends at an odd place, so that no weight lies on a multiple of its size: the same bits. */
static void test_odd_places(napier_context *context) {
    const napier_dtype dtypes[] = {NAPIER_F32, NAPIER_BF16};
    for (int k = 0; k < 2; k++) {
        TINY_MODEL(m);
        float even[3 * 83], odd[3 * 83];
        size_t size;
        m.dtype = dtypes[k];
        tiny_model_write(&m);
        run_model(context, &m, even);
        char *bytes = read_file(&m, "model.safetensors", &size);
        const uint64_t length = napier_get_u64((uint8_t *)bytes);
        memmove(bytes + 8 + length + 1, bytes + 8 + length, size - 8 - length);
        bytes[8 + length] = ' ';
        napier_put_u64((uint8_t *)bytes, length + 1);
        write_file(&m, "model.safetensors", bytes, size + 1);
        run_model(context, &m, odd);
        expect(memcmp(even, odd, sizeof even) == 0, "other logits from weights at odd places");
    }
}

/* 137 GB of norms, on the word of config.json: refused before memory is asked for. */
static void test_boasting_config(void) {
    TINY_MODEL(m);
    ledger l = LEDGER_INIT;
    napier_context *context = ledger_context(&l, 1);
    napier_model *model = NULL;
    size_t size;
    ledger_fail(&l, -1);
    tiny_model_write(&m);
    char *config = read_file(&m, "config.json", &size), *made = scratch((int64_t)size + 64, 1);
    const char *hidden = strstr(config, "\"hidden_size\": 32"), *layers = strstr(config, "\"num_hidden_layers\": 2");
    assert_true(hidden && layers && hidden < layers);
    const int length = sprintf(made, "%.*s\"hidden_size\": 1048576%.*s\"num_hidden_layers\": 16384%s",
                               (int)(hidden - config), config, (int)(layers - hidden) - 17, hidden + 17, layers + 22);
    write_file(&m, "config.json", made, (size_t)length);
    refused(context, napier_model_load(context, m.directory, NULL, &model), NAPIER_CORRUPT_DATA, "config.json",
            "16384 layers", NULL);
    expect(l.most < 1 << 20, "%zu bytes were taken", l.most);
    napier_context_destroy(context);
}

static napier_status load_and_run(napier_context *context, void *argument) {
    const tiny_model *m = argument;
    napier_model *model = NULL;
    const int64_t ids[] = {1, 2, 3};
    float logits[3 * 83];
    napier_status status = napier_model_load(context, m->directory, NULL, &model);
    if (!status) {
        status = napier_model_forward(context, model, napier_indices_i64(ids, 3), napier_indices_i64(NULL, 0),
                                      napier_rows_f32(NULL, 0, 0), napier_rows_f32(logits, 3, 83), NULL, NULL);
    }
    napier_model_destroy(context, model);
    return status;
}

static void test_memory(void) {
    TINY_MODEL(m);
    m.layers = 1;
    tiny_model_write(&m);
    check_allocations("load and forward", load_and_run, &m);
}

int main(void) {
    return RUN_TESTS("model", TEST(test_formula), TEST(test_bits), TEST_1(test_angles), TEST(test_steps),
                     TEST_1(test_arguments), TEST(test_memory), TEST_1(test_odd_places), TEST(test_boasting_config));
}
