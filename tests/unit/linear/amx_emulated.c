/* x86's matrix engine in C (ops/linear/amx_tiles.h), from the pseudocode of TDPBF16PS in the Intel 64 and IA-32
 * Architectures Software Developer's Manual: one chain over the even k, one over the odd k, both from 0; their sum is
 * added to the accumulator. Subnormal inputs count as 0 and subnormal results become 0. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/linear/amx_tiles.h"

typedef struct tile {
    uint8_t row[NAPIER_TILE_ROWS][NAPIER_TILE_BYTES];
} tile;

static _Thread_local tile tiles[8];
static _Thread_local bool configured;

/* An instruction without a configuration is a fault on the real engine. */
static tile *tile_of(int number) {
    if (!configured || number < 0 || number >= 8) {
        fprintf(stderr, "tile %d is used without a configuration\n", number);
        abort();
    }
    return &tiles[number];
}

void napier_tile_configure(void) {
    configured = true;
    memset(tiles, 0, sizeof tiles);
}
void napier_tile_release(void) { configured = false; }

void napier_tile_zero(int number) { memset(tile_of(number), 0, sizeof(tile)); }

void napier_tile_load(int number, const void *from, size_t step) {
    tile *const t = tile_of(number);
    for (int r = 0; r < NAPIER_TILE_ROWS; r++) {
        memcpy(t->row[r], (const char *)from + (size_t)r * step, NAPIER_TILE_BYTES);
    }
}

void napier_tile_store(int number, void *to, size_t step) {
    const tile *const t = tile_of(number);
    for (int r = 0; r < NAPIER_TILE_ROWS; r++) {
        memcpy((char *)to + (size_t)r * step, t->row[r], NAPIER_TILE_BYTES);
    }
}

/* The arithmetic of an instruction touches its own numbers only, and it is most of what the tests do: without a sanitizer's
 * checks they take a fraction of the time. */
#ifdef __clang__
#define UNCHECKED __attribute__((no_sanitize("address", "coverage")))
#else
#define UNCHECKED __attribute__((no_sanitize("address")))
#endif
#define UNCHECKED_INLINE UNCHECKED __attribute__((always_inline)) static inline

UNCHECKED_INLINE float flushed(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x; }

/* A result counts as subnormal if it is below 2^-126 after rounding to 24 bits of unbounded exponent. */
UNCHECKED static float tiny(float a, float b, float c, float r) {
    const double exact = (double)a * (double)b + (double)c;
    return fabs(exact) < 0x1p-126 - 0x1p-151 ? copysignf(0.0f, r) : r;
}

typedef float numbers[32][NAPIER_TILE_ROWS]; /* by k, then by row */

UNCHECKED_INLINE void numbers_of(const tile *t, numbers x) {
    for (int r = 0; r < NAPIER_TILE_ROWS; r++) {
        for (int i = 0; i < 32; i++) {
            const uint32_t bits = (uint32_t)t->row[r][2 * i] << 16 | (uint32_t)t->row[r][2 * i + 1] << 24;
            float wide;
            memcpy(&wide, &bits, sizeof wide);
            x[i][r] = flushed(wide);
        }
    }
}

/* Adds x b to the sums of 16 lanes. */
UNCHECKED_INLINE void add_products(float x, const float *b, float *sums) {
    float r[16];
    bool small = false;
    for (int l = 0; l < 16; l++) {
        r[l] = fmaf(x, b[l], sums[l]);
        small |= fabsf(r[l]) <= 0x1p-126f && r[l] != 0.0f;
    }
    for (int l = 0; l < 16; l++) {
        sums[l] = small ? tiny(x, b[l], sums[l], r[l]) : r[l];
    }
}

/* Even k and odd k are summed by themselves. */
UNCHECKED_INLINE void multiply(tile *c, const tile *rows, const tile *lanes) {
    numbers a, pairs;
    float b[32][16];
    numbers_of(rows, a);
    numbers_of(lanes, pairs); /* row i has k = 2i and 2i + 1 of each lane */
    for (int i = 0; i < 32; i++) {
        for (int l = 0; l < 16; l++) {
            b[i][l] = pairs[2 * l + i % 2][i / 2];
        }
    }
    for (int r = 0; r < NAPIER_TILE_ROWS; r++) {
        float even[16] = {0}, odd[16] = {0}, total[16];
        for (int i = 0; i < 32; i += 2) {
            add_products(a[i][r], b[i], even);
            add_products(a[i + 1][r], b[i + 1], odd);
        }
        memcpy(total, c->row[r], sizeof total);
        for (int l = 0; l < 16; l++) {
            total[l] = flushed(flushed(total[l]) + flushed(even[l] + odd[l]));
        }
        memcpy(c->row[r], total, sizeof total);
    }
}

#ifdef __x86_64__
#define AVX2 __attribute__((target("avx2,fma")))
UNCHECKED AVX2 static void multiply_avx2(tile *c, const tile *rows, const tile *lanes) { multiply(c, rows, lanes); }
#else
#define multiply_avx2 multiply
#define __builtin_cpu_supports(name) 0
#endif

UNCHECKED void napier_tile_multiply(int sums, int rows, int lanes) {
    if (__builtin_cpu_supports("fma") && __builtin_cpu_supports("avx2")) { /* with an fma that is not a call */
        multiply_avx2(tile_of(sums), tile_of(rows), tile_of(lanes));
    } else {
        multiply(tile_of(sums), tile_of(rows), tile_of(lanes));
    }
}

/* To the nearest bf16, ties to even. */
static uint16_t rounded(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return isnan(x) ? 0x7fc0 : (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

void napier_tile_round(const float *from, uint16_t *to, int64_t count, bool stream) {
    (void)stream;
    for (int i = 0; i < 32 && i < count; i++) {
        to[i] = rounded(from[i]);
    }
}

void napier_tile_copy(const float *from, float *to, int64_t count, bool stream) {
    (void)stream;
    for (int i = 0; i < 32 && i < count; i++) {
        to[i] = isnan(from[i]) ? NAN : from[i];
    }
}
