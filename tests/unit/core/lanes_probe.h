/* lanes_probe.h - one instruction set's virtual vector (src/core/simd) behind plain functions, for test_lanes.c. */
#ifndef NAPIER_TESTS_LANES_PROBE_H
#define NAPIER_TESTS_LANES_PROBE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A float whose inverse is normal, from any double: 2^-63 to 2^64. */
static inline float float_to_divide(const double *x) {
    uint64_t bits;
    memcpy(&bits, x, sizeof bits);
    const uint32_t mixed = (uint32_t)(bits ^ bits >> 29), exponent = 64 + (mixed >> 23 & 127);
    const uint32_t number = (mixed & 0x807fffffu) | exponent << 23;
    float y;
    memcpy(&y, &number, sizeof y);
    return y;
}

/* One operation on 16 lanes. Floats, integers and masks (0 or 1; as input the lowest bit counts) travel as 32 bits. */
typedef struct lanes_op {
    const char *name;
    void (*run)(const uint32_t *a, const uint32_t *b, const uint32_t *c, uint32_t *out);
} lanes_op;

typedef struct lanes_double_op {
    const char *name;
    void (*run)(const double *a, const double *b, const double *c, double *out);
} lanes_double_op;

typedef struct lanes_probe {
    const char *name;
    const lanes_op *ops; /* both lists end with a NULL name */
    const lanes_double_op *double_ops;

    void (*load)(const float *p, float *out);
    void (*store)(float *p, const float *lanes);
    void (*stream)(float *p, const float *lanes);
    void (*load_part)(const float *p, int n, const float *fill, float *out);
    void (*store_part)(float *p, int n, const float *lanes);
    void (*load_u16)(const uint16_t *p, uint32_t *out);
    void (*load_u16_part)(const uint16_t *p, int n, uint32_t *out);
    void (*store_u16)(uint16_t *p, const uint32_t *lanes);
    void (*store_upper)(uint16_t *p, const uint32_t *a, const uint32_t *b);
    void (*store_u16_part)(uint16_t *p, int n, const uint32_t *lanes);

    void (*first)(int n, uint32_t *out);
    int (*any)(const uint32_t *mask);
    int (*all)(const uint32_t *mask);
    int (*count)(const uint32_t *mask);
    int (*any_eq16)(const uint32_t *a, const uint32_t *b);

    void (*table)(const double *table, const double *v, double *out);
    void (*less)(const double *a, const double *b, uint32_t *out);
    void (*select_double)(const uint32_t *mask, const double *a, const double *b, double *out);
    void (*widen)(const float *v, double *out);
    void (*narrow)(const double *v, float *out);

    float (*hmax)(const float *v);
    float (*hadd)(const float *v);
    void (*hmax16)(const float *rows, float *out); /* 16 x 16 */
    void (*hadd16)(const float *rows, float *out);
    void (*transpose)(const float *rows, float *out);
    float (*lane)(const float *v, int i);
} lanes_probe;

/* Each exists only in builds for its processor. Whether the CPU has the instructions is for the caller to find out. */
extern const lanes_probe lanes_probe_scalar, lanes_probe_avx2, lanes_probe_avx512, lanes_probe_neon;

#endif
