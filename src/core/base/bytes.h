/* core/base/bytes.h - numbers as little-endian bytes, the same on every machine, and a checksum of them. */
#ifndef NAPIER_CORE_BASE_BYTES_H
#define NAPIER_CORE_BASE_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Each function writes or reads at `at`. The put functions return the address after what they wrote. */
static inline uint8_t *napier_put_bytes(uint8_t *at, const void *from, size_t size) {
    memcpy(at, from, size);
    return at + size;
}
static inline uint8_t *napier_put_u32(uint8_t *at, uint32_t x) {
    for (int i = 0; i < 4; i++) {
        *at++ = (uint8_t)(x >> 8 * i);
    }
    return at;
}
static inline uint8_t *napier_put_u64(uint8_t *at, uint64_t x) {
    return napier_put_u32(napier_put_u32(at, (uint32_t)x), (uint32_t)(x >> 32));
}
static inline uint8_t *napier_put_f32(uint8_t *at, float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return napier_put_u32(at, bits);
}
static inline uint8_t *napier_put_f64(uint8_t *at, double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return napier_put_u64(at, bits);
}
static inline uint8_t *napier_put_floats(uint8_t *at, const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        at = napier_put_f32(at, x[i]);
    }
    return at;
}

static inline uint32_t napier_get_u32(const uint8_t *at) {
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}
static inline uint64_t napier_get_u64(const uint8_t *at) {
    return (uint64_t)napier_get_u32(at) | (uint64_t)napier_get_u32(at + 4) << 32;
}
static inline float napier_get_f32(const uint8_t *at) {
    const uint32_t bits = napier_get_u32(at);
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
static inline double napier_get_f64(const uint8_t *at) {
    const uint64_t bits = napier_get_u64(at);
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
/* Returns the address after what it read. */
static inline const uint8_t *napier_get_floats(const uint8_t *at, float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++, at += 4) {
        x[i] = napier_get_f32(at);
    }
    return at;
}

/* FNV-1a, 64 bits (Fowler, Noll and Vo). It detects damage, not manipulation. */
static inline uint64_t napier_checksum(const uint8_t *bytes, size_t size) {
    uint64_t hash = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < size; i++) {
        hash = (hash ^ bytes[i]) * UINT64_C(1099511628211);
    }
    return hash;
}

#endif
