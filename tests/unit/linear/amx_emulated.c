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
UNCHECKED_INLINE float fma_flushed(float a, float b, float c) {
    const float r = fmaf(a, b, c);
    if (fabsf(r) > 0x1p-126f) {
        return r;
    }
    const double exact = (double)a * (double)b + (double)c;
    return fabs(exact) < 0x1p-126 - 0x1p-151 ? copysignf(0.0f, r) : r;
}

typedef float numbers[NAPIER_TILE_ROWS][32];

UNCHECKED static void numbers_of(const tile *t, numbers x) {
    for (int r = 0; r < NAPIER_TILE_ROWS; r++) {
        for (int i = 0; i < 32; i++) {
            const uint32_t bits = (uint32_t)t->row[r][2 * i] << 16 | (uint32_t)t->row[r][2 * i + 1] << 24;
            float wide;
            memcpy(&wide, &bits, sizeof wide);
            x[r][i] = flushed(wide);
        }
    }
}

/* Sums of row and lane: even k and odd k by themselves. */
UNCHECKED static float sum_of(const float *row, numbers lanes, int lane) {
    float even = 0.0f, odd = 0.0f;
    for (int i = 0; i < 16; i++) {
        even = fma_flushed(row[2 * i], lanes[i][2 * lane], even);
        odd = fma_flushed(row[2 * i + 1], lanes[i][2 * lane + 1], odd);
    }
    return flushed(even + odd);
}

UNCHECKED void napier_tile_multiply(int sums, int rows, int lanes) {
    tile *const c = tile_of(sums);
    numbers a, b;
    numbers_of(tile_of(rows), a);
    numbers_of(tile_of(lanes), b);
    for (int r = 0; r < NAPIER_TILE_ROWS; r++) {
        for (int l = 0; l < 16; l++) {
            float total;
            memcpy(&total, c->row[r] + 4 * l, sizeof total);
            total = flushed(flushed(total) + sum_of(a[r], b, l));
            memcpy(c->row[r] + 4 * l, &total, sizeof total);
        }
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
