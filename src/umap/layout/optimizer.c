/* umap/layout/optimizer.c - SGD, momentum and Adam: creation, steps, bytes. */
#include "umap/layout/optimizer.h"

#include <math.h>
#include <string.h>

#include "core/base/bytes.h"
#include "core/base/parallel.h"
#include "core/base/scope.h"
#include "core/base/struct_size.h"
#include "umap/isa/umap_kernels.h"

/* ---- Creation ------------------------------------------------------------------------------------------------------ */

/* An optimizer is one block: the struct, then its arrays, the second right after the first. */
enum { HEAD_FLOATS = (sizeof(napier_umap_optimizer) + NAPIER_ALIGNMENT - 1) / NAPIER_ALIGNMENT * NAPIER_ALIGNMENT / 4 };

static size_t arrays_of(napier_umap_method method) {
    return method == NAPIER_UMAP_ADAM ? 2 : method == NAPIER_UMAP_MOMENTUM ? 1 : 0;
}

static int is_share(float x) { return x >= 0.0f && x < 1.0f; }

napier_status napier_umap_check_optimizer_options(napier_context *context, const napier_umap_optimizer_options *o) {
    NAPIER_REFUSE_IF(context, (int)o->method < NAPIER_UMAP_SGD || (int)o->method > NAPIER_UMAP_ADAM,
                     "options: method %d is none", (int)o->method);
    NAPIER_REFUSE_IF(context, !is_share(o->beta) || !is_share(o->beta1) || !is_share(o->beta2),
                     "options: beta %g, beta1 %g, beta2 %g are not in [0, 1)", (double)o->beta, (double)o->beta1,
                     (double)o->beta2);
    NAPIER_REFUSE_IF(context, !(o->eps > 0.0f) || !isfinite(o->eps), "options: eps %g is not above 0", (double)o->eps);
    return NAPIER_OK;
}

napier_status napier_umap_optimizer_create(napier_context *context, const napier_umap_optimizer_options *options,
                                           int64_t n, int64_t n_components, napier_umap_optimizer **out) {
    NAPIER_DEFAULT_FENV;
    napier_umap_optimizer_options o = NAPIER_UMAP_OPTIMIZER_OPTIONS_INIT;
    NAPIER_TRY(napier_begin(context));
    NAPIER_REFUSE_IF(context, !out, "out: NULL");
    *out = NULL;
    NAPIER_TRY(napier_read_options(
        context, "options", NAPIER_STRUCT(napier_umap_optimizer_options, NAPIER_UMAP_OPTIMIZER_OPTIONS_INIT, beta1),
        options, &o));
    NAPIER_TRY(napier_umap_check_optimizer_options(context, &o));
    NAPIER_REFUSE_IF(context,
                     n < 0 || n_components < 1 || n_components > NAPIER_UMAP_MOST_COMPONENTS ||
                         n >= ((int64_t)1 << 31) / n_components,
                     "n %lld, n_components %lld: components are 1 to %d, elements fewer than 2^31", (long long)n,
                     (long long)n_components, NAPIER_UMAP_MOST_COMPONENTS);
    const size_t elements = (size_t)(n * n_components), moments = arrays_of(o.method) * elements;
    napier_umap_optimizer *made = napier_alloc(&context->allocator, HEAD_FLOATS + moments, sizeof(float));
    if (!made) {
        return napier_fail(context, NAPIER_OUT_OF_MEMORY, "optimizer: no memory for %lld points", (long long)n);
    }
    float *const first = (float *)(void *)made + HEAD_FLOATS;
    memset(first, 0, moments * sizeof *first);
    *made = (napier_umap_optimizer){.options = o, .n = n, .components = n_components};
    made->first = arrays_of(o.method) > 0 ? first : NULL;
    made->second = arrays_of(o.method) > 1 ? first + elements : NULL;
    *out = made;
    return NAPIER_OK;
}

void napier_umap_optimizer_destroy(napier_context *context, napier_umap_optimizer *optimizer) {
    if (context) {
        napier_free(&context->allocator, optimizer);
    }
}

/* ---- Steps --------------------------------------------------------------------------------------------------------- */

enum { NAPIER_STEP_CHUNK = 16384 }; /* floats */

typedef struct step_task {
    const napier_umap_kernels *kernels;
    napier_umap_optimizer *optimizer;
    const float *g;
    float rate, correction1, correction2;
    float *y;
} step_task;

static void steps_task(void *argument, int worker, int64_t begin, int64_t end) {
    const step_task *t = argument;
    const napier_umap_optimizer_options *o = &t->optimizer->options;
    float *first = t->optimizer->first, *second = t->optimizer->second;
    const int64_t n = end - begin;
    (void)worker;
    switch (o->method) {
    case NAPIER_UMAP_SGD: t->kernels->layout.sgd(t->y + begin, t->g + begin, t->rate, n); break;
    case NAPIER_UMAP_MOMENTUM:
        t->kernels->layout.momentum(t->y + begin, t->g + begin, first + begin, o->beta, t->rate, n);
        break;
    default:
        t->kernels->layout.adam(t->y + begin, t->g + begin, first + begin, second + begin, o->beta1, o->beta2, o->eps,
                                t->correction1, t->correction2, t->rate, n);
        break;
    }
}

float napier_umap_correction(float beta, int64_t steps) {
    double power = 1.0, square = (double)beta;
    for (int64_t s = steps; s > 0; s /= 2) {
        power *= s % 2 ? square : 1.0;
        square *= square;
    }
    return (float)(1.0 - power);
}

void napier_umap_optimizer_step(napier_context *context, napier_umap_optimizer *optimizer, const float *g, float rate,
                                float *y) {
    optimizer->steps++;
    step_task task = {napier_umap_kernels_of(context->isa),
                      optimizer,
                      g,
                      rate,
                      napier_umap_correction(optimizer->options.beta1, optimizer->steps),
                      napier_umap_correction(optimizer->options.beta2, optimizer->steps),
                      y};
    napier_parallel(context, optimizer->n * optimizer->components, NAPIER_STEP_CHUNK, steps_task, &task);
}

/* ---- Bytes --------------------------------------------------------------------------------------------------------- */

/* "NAPUMOPT", format, method, beta, beta1, beta2, eps, n, components, steps, first, second, checksum of all before. */
static const uint8_t magic[8] = {'N', 'A', 'P', 'U', 'M', 'O', 'P', 'T'};
enum { OPTIMIZER_FORMAT = 1, OPTIMIZER_HEAD = 8 + 4 + 4 + 4 * 4 + 3 * 8 };

napier_status napier_umap_optimizer_to_bytes(napier_context *context, const napier_umap_optimizer *optimizer,
                                             uint8_t *bytes, size_t capacity, size_t *size) {
    NAPIER_TRY(napier_begin(context));
    NAPIER_REFUSE_IF(context, !optimizer || !size || (!bytes && capacity > 0), "%s: NULL",
                     !optimizer ? "optimizer"
                     : !size    ? "size"
                                : "bytes");
    const int64_t elements = optimizer->n * optimizer->components;
    *size = OPTIMIZER_HEAD + arrays_of(optimizer->options.method) * (size_t)elements * sizeof(float) + sizeof(uint64_t);
    if (capacity < *size) {
        return NAPIER_OK;
    }
    const napier_umap_optimizer_options *o = &optimizer->options;
    uint8_t *at = napier_put_bytes(bytes, magic, sizeof magic);
    at = napier_put_u32(at, OPTIMIZER_FORMAT);
    at = napier_put_u32(at, (uint32_t)o->method);
    at = napier_put_f32(at, o->beta);
    at = napier_put_f32(at, o->beta1);
    at = napier_put_f32(at, o->beta2);
    at = napier_put_f32(at, o->eps);
    at = napier_put_u64(at, (uint64_t)optimizer->n);
    at = napier_put_u64(at, (uint64_t)optimizer->components);
    at = napier_put_u64(at, (uint64_t)optimizer->steps);
    at = napier_put_floats(at, optimizer->first, (int64_t)arrays_of(o->method) * elements);
    napier_put_u64(at, napier_checksum(bytes, (size_t)(at - bytes)));
    return NAPIER_OK;
}

static napier_status corrupt(napier_context *context, const char *what) {
    return napier_fail(context, NAPIER_CORRUPT_DATA, "bytes: %s", what);
}

napier_status napier_umap_optimizer_from_bytes(napier_context *context, const uint8_t *bytes, size_t size,
                                               napier_umap_optimizer **out) {
    NAPIER_DEFAULT_FENV;
    NAPIER_TRY(napier_begin(context));
    NAPIER_REFUSE_IF(context, !out || (!bytes && size > 0), "%s: NULL", out ? "bytes" : "out");
    *out = NULL;
    if (size < OPTIMIZER_HEAD + sizeof(uint64_t) || memcmp(bytes, magic, sizeof magic) != 0) {
        return corrupt(context, "not an optimizer of UMAP");
    }
    const uint32_t format = napier_get_u32(bytes + 8);
    if (format != OPTIMIZER_FORMAT) {
        return napier_fail(context, NAPIER_CORRUPT_DATA, "bytes: format %lu; this library reads %d",
                           (unsigned long)format, OPTIMIZER_FORMAT);
    }
    if (napier_get_u64(bytes + size - 8) != napier_checksum(bytes, size - 8)) {
        return corrupt(context, "the checksum does not match");
    }
    napier_umap_optimizer_options o = NAPIER_UMAP_OPTIMIZER_OPTIONS_INIT;
    o.method = (napier_umap_method)napier_get_u32(bytes + 12);
    o.beta = napier_get_f32(bytes + 16);
    o.beta1 = napier_get_f32(bytes + 20);
    o.beta2 = napier_get_f32(bytes + 24);
    o.eps = napier_get_f32(bytes + 28);
    const uint64_t n = napier_get_u64(bytes + 32), components = napier_get_u64(bytes + 40);
    const uint64_t steps = napier_get_u64(bytes + 48);
    const uint64_t arrays = arrays_of(o.method);
    if (components < 1 || components > NAPIER_UMAP_MOST_COMPONENTS || n >= (UINT64_C(1) << 31) / components ||
        steps > INT64_MAX || size != OPTIMIZER_HEAD + arrays * n * components * sizeof(float) + 8) {
        return corrupt(context, "sizes that do not fit");
    }
    const napier_status status = napier_umap_optimizer_create(context, &o, (int64_t)n, (int64_t)components, out);
    if (status) {
        return status == NAPIER_INVALID_ARGUMENT ? corrupt(context, "options that cannot be") : status;
    }
    (*out)->steps = (int64_t)steps;
    const int64_t elements = (int64_t)(n * components);
    napier_get_floats(bytes + OPTIMIZER_HEAD, (*out)->first, (int64_t)arrays * elements);
    for (int64_t i = 0; i < (int64_t)arrays * elements; i++) {
        const float moment = (*out)->first[i];
        if (!isfinite(moment) || (i >= elements && moment < 0.0f)) {
            napier_umap_optimizer_destroy(context, *out);
            *out = NULL;
            return corrupt(context, "a moment that is not finite");
        }
    }
    return NAPIER_OK;
}
