/* lm/gguf/gguf_types.c - the types of tensors, and how their blocks become f32: each product and sum rounded to f32 in the
 * order of llama.cpp's reference, so the bits are the same.
 *
 * A block has a scale d in f16, for some types also a minimum m, and small integers q; an element is d * q, d * q + m, or
 * in the types of 256 elements (scale of the block * scale of a part) * q - (minimum * minimum of the part). */
#include <string.h>

#include "core/math/f64.h"
#include "lm/gguf/gguf.h"

static float f16_at(const uint8_t *at) { return (float)napier_f64_from_f16((uint16_t)(at[0] | at[1] << 8)); }

static int bit(const uint8_t *bits, int i) { return bits[i / 8] >> i % 8 & 1; }

/* ---- Blocks of 32 ------------------------------------------------------------------------------------------------ */

/* Element i has the lower half of byte i, and element i + 16 the upper half. */
static void widen_q4_0(const uint8_t *block, float *out) {
    const float d = f16_at(block);
    for (int i = 0; i < 16; i++) {
        const int q = block[2 + i];
        out[i] = d * (float)((q & 15) - 8);
        out[i + 16] = d * (float)((q >> 4) - 8);
    }
}

static void widen_q4_1(const uint8_t *block, float *out) {
    const float d = f16_at(block), m = f16_at(block + 2);
    for (int i = 0; i < 16; i++) {
        const int q = block[4 + i];
        out[i] = d * (float)(q & 15) + m;
        out[i + 16] = d * (float)(q >> 4) + m;
    }
}

/* The fifth bits of all elements come before the halves. */
static void widen_q5_0(const uint8_t *block, float *out) {
    const float d = f16_at(block);
    for (int i = 0; i < 16; i++) {
        const int q = block[6 + i];
        out[i] = d * (float)(((q & 15) | bit(block + 2, i) << 4) - 16);
        out[i + 16] = d * (float)(((q >> 4) | bit(block + 2, i + 16) << 4) - 16);
    }
}

static void widen_q5_1(const uint8_t *block, float *out) {
    const float d = f16_at(block), m = f16_at(block + 2);
    for (int i = 0; i < 16; i++) {
        const int q = block[8 + i];
        out[i] = d * (float)((q & 15) | bit(block + 4, i) << 4) + m;
        out[i + 16] = d * (float)((q >> 4) | bit(block + 4, i + 16) << 4) + m;
    }
}

static void widen_q8_0(const uint8_t *block, float *out) {
    const float d = f16_at(block);
    for (int i = 0; i < 32; i++) {
        out[i] = d * (float)(int8_t)block[2 + i];
    }
}

/* ---- Blocks of 256, in parts of 32 or 16 ------------------------------------------------------------------------- */

/* The scale and the minimum of part 0 .. 7, 6 bits each, in 12 bytes: parts 4 to 7 have their upper two bits in the upper
 * bits of the first eight bytes. */
static void part_of(const uint8_t *packed, int part, int *scale, int *minimum) {
    if (part < 4) {
        *scale = packed[part] & 63;
        *minimum = packed[part + 4] & 63;
    } else {
        *scale = (packed[part + 4] & 15) | packed[part - 4] >> 6 << 4;
        *minimum = packed[part + 4] >> 4 | packed[part] >> 6 << 4;
    }
}

/* fifth: the fifth bits, that of element i of part p in bit p of byte i; NULL: none. */
static void widen_parts(const uint8_t *block, const uint8_t *fifth, const uint8_t *halves, float *out) {
    const float d = f16_at(block), least = f16_at(block + 2);
    for (int part = 0; part < 8; part++) {
        int scale, minimum;
        part_of(block + 4, part, &scale, &minimum);
        const float step = d * (float)scale, m = least * (float)minimum;
        const uint8_t *const q = halves + part / 2 * 32;
        for (int i = 0; i < 32; i++) {
            const int high = fifth != NULL ? (fifth[i] >> part & 1) << 4 : 0;
            out[32 * part + i] = step * (float)((q[i] >> part % 2 * 4 & 15) | high) - m;
        }
    }
}

static void widen_q4_k(const uint8_t *block, float *out) { widen_parts(block, NULL, block + 16, out); }
static void widen_q5_k(const uint8_t *block, float *out) { widen_parts(block, block + 16, block + 48, out); }

/* 128 bytes of lower halves, 64 of upper quarters, 16 scales of parts of 16, d. */
static void widen_q6_k(const uint8_t *block, float *out) {
    const float d = f16_at(block + 208);
    for (int i = 0; i < 256; i++) {
        const int half = i / 128, quarter = i % 128 / 32, at = i % 32;
        const int low = block[64 * half + 32 * (quarter % 2) + at] >> quarter / 2 * 4 & 15;
        const int high = block[128 + 32 * half + at] >> 2 * quarter & 3;
        const float step = d * (float)(int8_t)block[192 + i / 16];
        out[i] = step * (float)((low | high << 4) - 32);
    }
}

/* ---- The table --------------------------------------------------------------------------------------------------- */

/* By the number in the file. Those with a name alone are refused by it. */
static const napier_gguf_type types[] = {
    [0] = {"F32", 1, 4, NAPIER_F32, NULL, NAPIER_BLOCK_OTHER},
    [1] = {"F16", 1, 2, NAPIER_F16, NULL, NAPIER_BLOCK_OTHER},
    [30] = {"BF16", 1, 2, NAPIER_BF16, NULL, NAPIER_BLOCK_OTHER},
    [2] = {"Q4_0", 32, 18, 0, widen_q4_0, NAPIER_BLOCK_Q4_0},
    [3] = {"Q4_1", 32, 20, 0, widen_q4_1, NAPIER_BLOCK_Q4_1},
    [6] = {"Q5_0", 32, 22, 0, widen_q5_0, NAPIER_BLOCK_OTHER},
    [7] = {"Q5_1", 32, 24, 0, widen_q5_1, NAPIER_BLOCK_OTHER},
    [8] = {"Q8_0", 32, 34, 0, widen_q8_0, NAPIER_BLOCK_Q8_0},
    [12] = {"Q4_K", 256, 144, 0, widen_q4_k, NAPIER_BLOCK_OTHER},
    [13] = {"Q5_K", 256, 176, 0, widen_q5_k, NAPIER_BLOCK_OTHER},
    [14] = {"Q6_K", 256, 210, 0, widen_q6_k, NAPIER_BLOCK_OTHER},
    [9] = {.name = "Q8_1"},
    [10] = {.name = "Q2_K"},
    [11] = {.name = "Q3_K"},
    [15] = {.name = "Q8_K"},
    [16] = {.name = "IQ2_XXS"},
    [17] = {.name = "IQ2_XS"},
    [18] = {.name = "IQ3_XXS"},
    [19] = {.name = "IQ1_S"},
    [20] = {.name = "IQ4_NL"},
    [21] = {.name = "IQ3_S"},
    [22] = {.name = "IQ2_S"},
    [23] = {.name = "IQ4_XS"},
    [24] = {.name = "I8"},
    [25] = {.name = "I16"},
    [26] = {.name = "I32"},
    [27] = {.name = "I64"},
    [28] = {.name = "F64"},
    [29] = {.name = "IQ1_M"},
    [34] = {.name = "TQ1_0"},
    [35] = {.name = "TQ2_0"},
    [39] = {.name = "MXFP4"},
    [40] = {.name = "NVFP4"},
};

const napier_gguf_type *napier_gguf_type_of(uint32_t number) {
    static const napier_gguf_type unknown = {.name = "a type of an unknown number"};
    return number < sizeof types / sizeof *types && types[number].name != NULL ? &types[number] : &unknown;
}
