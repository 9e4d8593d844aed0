/* ops/linear/amx.c - see ops/linear/amx.h. Sources: Intel 64 and IA-32 Architectures Software Developer's Manual,
 * TDPBF16PS and XSAVE; Linux, Documentation/arch/x86/xstate.rst. */
#if defined(__linux__) && defined(__x86_64__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* syscall */
#endif
#include "ops/linear/amx.h"

#include <napier/linear.h>

#include "core/base/sizes.h"
#include "ops/isa/ops_kernels.h"

#if defined(__linux__) && defined(__x86_64__) && (defined(__clang__) ? __clang_major__ >= 12 : __GNUC__ >= 11)
#define NAPIER_HAS_AMX 1
#else
#define NAPIER_HAS_AMX 0
#endif

#if NAPIER_HAS_AMX

#include <cpuid.h>
#include <immintrin.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NAPIER_AMX __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512dq,avx512vl")))

/* The compiler does not know what tile instructions read and write. */
#define NAPIER_AMX_FENCE() __asm__ volatile("" : : : "memory")

enum {
    NAPIER_AMX_ROWS = 16,  /* of a tile, whose rows have 64 bytes: 32 bf16, or 16 pairs, or 16 sums */
    NAPIER_AMX_LANES = 32, /* two tiles side by side */
    NAPIER_AMX_PAIRS = NAPIER_K_BLOCK / 2
};

/* ---- Packed floats back to bf16, which is exact ------------------------------------------------------------------ */

typedef struct napier_amx_operands {
    uint16_t rows[NAPIER_ROW_GROUP][NAPIER_K_BLOCK];
    uint32_t lanes[2][NAPIER_AMX_PAIRS][16]; /* a pair of k in each, the even one in the low half */
    float c[NAPIER_ROW_GROUP][NAPIER_AMX_LANES];
} napier_amx_operands;

NAPIER_AMX static void amx_rows(const napier_product_block *b, int64_t padded, napier_amx_operands *o) {
    for (int64_t r = 0; r < padded; r++) {
        for (int64_t k = 0; k < b->k; k += 16) {
            __m512i bits = _mm512_setzero_si512();
            if (r < b->row_count) {
                bits = _mm512_srli_epi32(_mm512_loadu_si512(b->rows + r * NAPIER_ROW_STEP + k), 16);
            }
            _mm256_storeu_si256((__m256i *)(void *)(o->rows[r] + k), _mm512_cvtepi32_epi16(bits));
        }
    }
}

NAPIER_AMX static void amx_lanes(const float *panel, int64_t k, int64_t lanes, napier_amx_operands *o) {
    const __m512i high = _mm512_set1_epi32((int32_t)0xffff0000);
    for (int64_t pair = 0; pair < k / 2; pair++) {
        for (int64_t half = 0; half < lanes / 16; half++) {
            const float *at = panel + 2 * pair * NAPIER_LANES + 16 * half;
            const __m512i even = _mm512_srli_epi32(_mm512_loadu_si512(at), 16);
            const __m512i odd = _mm512_and_si512(_mm512_loadu_si512(at + NAPIER_LANES), high);
            _mm512_storeu_si512(o->lanes[half][pair], _mm512_or_si512(even, odd));
        }
    }
}

/* ---- The product ------------------------------------------------------------------------------------------------- */

typedef struct napier_amx_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} napier_amx_config;

NAPIER_AMX static void amx_configure(void) {
    napier_amx_config config = {.palette = 1};
    for (int tile = 0; tile < 8; tile++) {
        config.row_bytes[tile] = 64;
        config.rows[tile] = NAPIER_AMX_ROWS;
    }
    NAPIER_AMX_FENCE();
    _tile_loadconfig(&config);
}

/* 16 rows by 32 lanes: sums in tiles 0 and 1, rows in 2, lanes in 3 and 4. */
NAPIER_AMX static void amx_tile(napier_amx_operands *o, int64_t row, int64_t k) {
    enum { STEP = NAPIER_AMX_LANES * sizeof(float), ROW_STEP = NAPIER_K_BLOCK * sizeof(uint16_t) };
    NAPIER_AMX_FENCE();
    _tile_loadd(0, o->c[row], STEP);
    _tile_loadd(1, o->c[row] + 16, STEP);
    for (int64_t i = 0; i < k; i += NAPIER_PAIRS_BLOCK) {
        _tile_loadd(2, o->rows[row] + i, ROW_STEP);
        _tile_loadd(3, o->lanes[0][i / 2], 64);
        _tile_loadd(4, o->lanes[1][i / 2], 64);
        _tile_dpbf16ps(0, 2, 3);
        _tile_dpbf16ps(1, 2, 4);
    }
    _tile_stored(0, o->c[row], STEP);
    _tile_stored(1, o->c[row] + 16, STEP);
    NAPIER_AMX_FENCE();
}

static void amx_copy_sums(float *to, int64_t to_step, const float *from, int64_t from_step, int64_t rows,
                          int64_t lanes) {
    for (int64_t r = 0; r < rows; r++) {
        memcpy(to + r * to_step, from + r * from_step, (size_t)lanes * sizeof *to);
    }
}

NAPIER_AMX static void amx_run(const napier_product_block *b, napier_amx_operands *o) {
    const int64_t padded = (b->row_count + NAPIER_AMX_ROWS - 1) / NAPIER_AMX_ROWS * NAPIER_AMX_ROWS;
    amx_configure();
    amx_rows(b, padded, o);
    for (int64_t lane = 0; lane < b->lanes; lane += NAPIER_AMX_LANES) {
        const int64_t lanes = napier_least(b->lanes - lane, NAPIER_AMX_LANES);
        amx_lanes(b->panels + lane / NAPIER_LANES * b->panel_step, b->k, lanes, o);
        memset(o->c, 0, sizeof o->c);
        if (!b->first) {
            amx_copy_sums(o->c[0], NAPIER_AMX_LANES, b->c + lane, b->c_step, b->row_count, lanes);
        }
        for (int64_t row = 0; row < padded; row += NAPIER_AMX_ROWS) {
            amx_tile(o, row, b->k);
        }
        amx_copy_sums(b->c + lane, b->c_step, o->c[0], NAPIER_AMX_LANES, b->row_count, lanes);
    }
    _tile_release();
}

void napier_amx_pairs(const napier_product_block *block) {
    napier_amx_operands operands;
    memset(operands.lanes, 0, sizeof operands.lanes); /* half a pair of tiles may be unused */
    amx_run(block, &operands);
}

/* ---- May it be used? --------------------------------------------------------------------------------------------- */

/* True if the processor has the engine, the system saves its tiles, and this process may use them. */
static bool amx_is_here(void) {
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XTILEDATA = 18 };
    unsigned eax, ebx, ecx, edx, low, high;
    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & 1u << 27) ||
        !__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) || !(edx & 1u << 22) || !(edx & 1u << 24)) {
        return false;
    }
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & 0x60000u) == 0x60000u && syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XTILEDATA) == 0;
}

/* bf16 numbers as floats: ordinary, of all exponents, tiny, and around the smallest normal products. */
static float amx_number(uint32_t *state, int kind) {
    *state = *state * 1664525u + 1013904223u;
    const uint32_t random = *state >> 8, sign = (random & 1u) << 31, fraction = (random >> 1 & 0x7fu) << 16;
    const uint32_t exponents[4] = {120 + random / 256 % 8, 1 + random / 256 % 254, random / 256 % 60,
                                   50 + random / 256 % 16};
    const uint32_t bits = sign | exponents[kind] << 23 | fraction;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

enum { CHECK_ROWS = 19, CHECK_LANES = 48, CHECK_K = 96, CHECK_PANELS = 2 };

typedef struct napier_amx_check {
    float rows[CHECK_ROWS * NAPIER_ROW_STEP];
    float panels[CHECK_PANELS * CHECK_K * NAPIER_LANES];
    float c[2][CHECK_ROWS * CHECK_LANES];
} napier_amx_check;

/* NaN results count as equal, because they all become the canonical NaN later. */
static bool amx_agrees(const napier_product_kernels *kernels, napier_amx_check *check, int kind) {
    uint32_t state = 12345u + (uint32_t)kind;
    for (int i = 0; i < CHECK_ROWS * NAPIER_ROW_STEP; i++) {
        check->rows[i] = amx_number(&state, kind);
    }
    for (int i = 0; i < CHECK_PANELS * CHECK_K * NAPIER_LANES; i++) {
        check->panels[i] = amx_number(&state, kind);
    }
    for (int way = 0; way < 2; way++) {
        napier_product_block b = {.rows = check->rows,
                                  .row_count = CHECK_ROWS,
                                  .panels = check->panels,
                                  .panel_step = CHECK_K * NAPIER_LANES,
                                  .lanes = CHECK_LANES,
                                  .k = CHECK_K,
                                  .c = check->c[way],
                                  .c_step = CHECK_LANES,
                                  .first = true};
        for (int turn = 0; turn < 3; turn++, b.first = false) {
            (way == 0 ? kernels->pairs : napier_amx_pairs)(&b);
        }
    }
    bool agrees = true;
    for (int i = 0; i < CHECK_ROWS * CHECK_LANES; i++) {
        const float x = check->c[0][i], y = check->c[1][i];
        agrees = agrees && ((x != x && y != y) || memcmp(&x, &y, sizeof x) == 0);
    }
    return agrees;
}

static bool amx_is_trusted(const napier_context *context) {
    const napier_product_kernels *kernels = &napier_ops_kernels_of(NAPIER_ISA_AVX512)->linear.matmul;
    napier_amx_check *check = amx_is_here() ? napier_alloc(&context->allocator, 1, sizeof *check) : NULL;
    bool trusted = check != NULL;
    for (int kind = 0; kind < 4 && trusted; kind++) {
        trusted = amx_agrees(kernels, check, kind);
    }
    napier_free(&context->allocator, check);
    return trusted;
}

void napier_matrix_engine_decide(napier_context *context) {
    if (context->engine == NAPIER_ENGINE_UNDECIDED) {
        const bool trusted = context->isa == NAPIER_ISA_AVX512 && amx_is_trusted(context);
        context->engine = trusted ? NAPIER_ENGINE_ON : NAPIER_ENGINE_OFF;
    }
}

#else

void napier_matrix_engine_decide(napier_context *context) { context->engine = NAPIER_ENGINE_OFF; }

void napier_amx_pairs(const napier_product_block *block) {
    napier_ops_kernels_of(NAPIER_ISA_AUTO)->linear.matmul.pairs(block);
}

#endif

int napier_matrix_engine(napier_context *context) {
    if (!context) {
        return 0;
    }
    napier_matrix_engine_decide(context);
    return context->engine == NAPIER_ENGINE_ON;
}
