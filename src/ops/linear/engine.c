/* ops/linear/engine.c - see ops/linear/engine.h. */
#include "ops/linear/engine.h"

#include <napier/linear.h>
#include <string.h>

#include "core/base/scope.h"
#include "ops/linear/amx.h"
#include "ops/linear/bf16_pairs.h"
#include "ops/linear/product.h"

/* Whole tiles and patches, and their edges; k that is no multiple of 4, and more than either multiplies at a time. */
enum { SIDE = 41, K = 587, KINDS = 4 };

typedef struct comparison {
    uint16_t rows[SIDE * K], lanes[SIDE * K];
    float products[2][SIDE * SIDE];
} comparison;

/* bf16 numbers: ordinary, of all exponents, tiny, and around the smallest normal products. */
static void fill(uint16_t *numbers, size_t count, int kind) {
    uint32_t state = 54321u + (uint32_t)kind;
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        const uint32_t random = state >> 8, exponents[KINDS] = {120 + random / 256 % 8, 1 + random / 256 % 254,
                                                                random / 256 % 60, 50 + random / 256 % 16};
        numbers[i] = (uint16_t)((random & 1u) << 15 | exponents[kind] << 7 | (random >> 1 & 0x7fu));
    }
}

static napier_status multiply(const napier_context *context, napier_engine engine, comparison *c, float *products) {
    napier_context alone = napier_context_alone(context);
    alone.stop = NULL; /* a comparison cut short would find other bits */
    alone.engine = engine;
    napier_product_plan plan = napier_product_plan_of(&alone, napier_const_rows(c->lanes, SIDE, K, NAPIER_BF16),
                                                      napier_const_rows(c->rows, SIDE, K, NAPIER_BF16),
                                                      napier_rows_f32(products, SIDE, SIDE), false, false);
    NAPIER_MEMORY(memory, &alone);
    float *const packed = napier_take(&memory, sizeof(float), napier_product_floats(&alone, &plan));
    NAPIER_TRY(napier_taken(&memory, "product: no memory for a comparison"));
    napier_product_run(&alone, &plan, packed);
    return NAPIER_OK;
}

/* True if the context's products on this engine have the bits of its kernels. False too if there is no memory. */
static bool is_trusted(const napier_context *context, napier_engine engine) {
    comparison *c = napier_alloc(&context->allocator, 1, sizeof *c);
    bool same = c != NULL;
    for (int kind = 0; kind < KINDS && same; kind++) {
        fill(c->rows, SIDE * K, kind);
        fill(c->lanes, SIDE * K, kind);
        same = multiply(context, engine, c, c->products[0]) == NAPIER_OK &&
               multiply(context, NAPIER_ENGINE_NONE, c, c->products[1]) == NAPIER_OK &&
               memcmp(c->products[0], c->products[1], sizeof c->products[0]) == 0;
    }
    napier_free(&context->allocator, c);
    return same;
}

void napier_matrix_engine_decide(napier_context *context) {
    if (context->engine == NAPIER_ENGINE_UNDECIDED && !context->any_isa) {
        context->engine = NAPIER_ENGINE_NONE;
    } else if (context->engine == NAPIER_ENGINE_UNDECIDED) {
        NAPIER_DEFAULT_FENV;
        const bool amx = napier_amx_is_here(context) && is_trusted(context, NAPIER_ENGINE_AMX);
        const bool pairs = napier_bf16_pairs_are_here(context) && is_trusted(context, NAPIER_ENGINE_PAIRS);
        context->engine = amx && pairs ? NAPIER_ENGINE_BOTH
                          : amx        ? NAPIER_ENGINE_AMX
                          : pairs      ? NAPIER_ENGINE_PAIRS
                                       : NAPIER_ENGINE_NONE;
    }
}

int napier_matrix_engine(napier_context *context) {
    if (!context) {
        return 0;
    }
    napier_matrix_engine_decide(context);
    return context->engine >= NAPIER_ENGINE_AMX;
}
