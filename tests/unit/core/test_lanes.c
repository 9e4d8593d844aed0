/* test_lanes.c - every operation of the virtual vector (src/core/simd/lanes.h), on every instruction set here,
 * against the same operation in plain C, bit for bit. A NaN need only be a NaN.
 *
 * It needs nothing of the library. With -DNAPIER_NO_CMOCKA it needs nothing but libc, so that it runs under an emulator:
 *   aarch64-linux-gnu-gcc -O2 -std=c11 -ffp-contract=off -static -DNAPIER_NO_CMOCKA -Isrc \
 *       tests/unit/core/test_lanes.c tests/unit/core/lanes_*.c -lm -o test_lanes && qemu-aarch64-static ./test_lanes */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if !defined(NAPIER_NO_CMOCKA)
#include "support/check.h"
#endif

#include "lanes_probe.h"

enum { LANES = 16, RANDOM_BLOCKS = 20000, SHOWN_FAILURES = 20 };

/* ---- the instruction sets of this machine ---------------------------------------------------------------------- */

enum { MAX_PROBES = 4 };
static const lanes_probe *probes[MAX_PROBES];
static int probe_count;

static void find_probes(void) {
    probes[probe_count++] = &lanes_probe_scalar;
#if defined(__aarch64__)
    probes[probe_count++] = &lanes_probe_neon;
#elif defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        probes[probe_count++] = &lanes_probe_avx2;
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
            probes[probe_count++] = &lanes_probe_avx512;
        }
    }
#endif
    printf("lanes:");
    for (int i = 0; i < probe_count; i++) {
        printf(" %s", probes[i]->name);
    }
    printf("\n");
}

/* ---- bits, numbers, failures ----------------------------------------------------------------------------------- */

static int failures;

#if defined(__GNUC__)
__attribute__((format(printf, 1, 2)))
#endif
static void
fail_with(const char *format, ...) {
    if (failures++ >= SHOWN_FAILURES) {
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
}

/* A test's last line. */
static void end_test(void) {
#if !defined(NAPIER_NO_CMOCKA)
    const int found = failures;
    failures = 0;
    assert_int_equal(found, 0);
#endif
}

static float float_of(const uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
static uint32_t bits_of(const float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
static double double_of(const uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
static uint64_t bits_of_double(const double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
static bool same_float(const float a, const float b) { return bits_of(a) == bits_of(b) || (isnan(a) && isnan(b)); }
static bool same_double(const double a, const double b) {
    return bits_of_double(a) == bits_of_double(b) || (isnan(a) && isnan(b));
}

/* splitmix64 (Steele, Lea, Flood 2014): any seed will do, the same numbers everywhere. */
static uint64_t random_state;
static uint64_t random64(void) {
    uint64_t z = (random_state += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

static const uint32_t special_bits[] = {
    0x00000000, 0x80000000,                                                 /* +-0 */
    0x00000001, 0x80000001, 0x00000002, 0x007fffff, 0x807fffff, 0x00400000, /* subnormals */
    0x00800000, 0x80800000, 0x00800001,                                     /* the smallest normals */
    0x3f800000, 0xbf800000, 0x3f7fffff, 0x3f800001,                         /* around +-1 */
    0x3f000000, 0xbf000000, 0x3fc00000, 0x40200000, 0xc0200000, 0x40600000, /* halves: 0.5, 1.5, 2.5, 3.5 */
    0x4b000000, 0x4b000001, 0x4affffff, 0x4b400000, 0xcb400001,             /* around 2^23 */
    0x4effffff, 0xceffffff, 0x4f000000, 0xcf000000,                         /* around 2^31 */
    0x477fe000, 0x477fefff, 0x477ff000, 0x477ff001, 0x47800000, 0xc77ff000, /* around half's largest */
    0x38800000, 0x387fffff, 0x387fe000, 0x387ff000, 0x38001000, 0x38003000, /* around half's smallest normal */
    0x33800000, 0x33000000, 0x33000001, 0x32ffffff, 0x33c00000, 0xb3000000, /* around half's smallest number */
    0x7f7fffff, 0xff7fffff, 0x7f000000,                                     /* the largest */
    0x7f800000, 0xff800000,                                                 /* +-inf */
    0x7fc00000, 0xffc00000, 0x7f800001, 0xffbfffff, 0x7fffffff,             /* NaN, quiet and signalling */
    0x7fffffff, 0xffffffff, 0x0000ffff, 0xffff0000, 0x12345678,             /* as integers */
};
enum { SPECIALS = sizeof special_bits / sizeof special_bits[0] };

/* Any bits, a number of moderate size, or a special one. */
static uint32_t random_bits(void) {
    const uint64_t r = random64();
    switch (r >> 62) {
    case 0: return (uint32_t)r;
    case 1: return special_bits[(uint32_t)r % SPECIALS];
    default: return ((uint32_t)r & 0x807fffff) | (120 + (uint32_t)(r >> 32) % 16) << 23;
    }
}
static double random_double(void) {
    const uint64_t r = random64();
    switch (r >> 61 & 3) {
    case 0: return double_of(random64());
    case 1: return (double)float_of(random_bits());
    case 2: { /* a float, and half an ulp of it, and a little more or less: where conversion to float is hard */
        const double x = (double)float_of(random_bits());
        const double half_way = double_of(bits_of_double(x) | 0x10000000);
        return double_of(bits_of_double(half_way) + r % 3 - 1);
    }
    default: return double_of((r & 0x800fffffffffffff) | (1015 + (r >> 52 & 15)) << 52);
    }
}

/* ---- operations of one lane in plain C ------------------------------------------------------------------------- */

/* The value of a half, from its fields. */
static float reference_from_f16(const uint32_t half) {
    const int exponent = (int)(half >> 10 & 31), mantissa = (int)(half & 1023);
    const float sign = (half & 0x8000) != 0 ? -1.0f : 1.0f;
    if (exponent == 31) {
        return mantissa != 0 ? NAN : sign * INFINITY;
    }
    if (exponent == 0) {
        return sign * ldexpf((float)mantissa, -24);
    }
    return sign * ldexpf((float)(1024 + mantissa), exponent - 25);
}

/* The half nearest to x: x counted in units of its last place, rounded to an integer by rint. */
static uint32_t reference_to_f16(const float x) {
    const uint32_t sign = bits_of(x) >> 16 & 0x8000;
    const double magnitude = fabs((double)x);
    if (isnan(x)) {
        return 0x7e00;
    }
    if (magnitude >= 65520.0) {
        return sign | 0x7c00;
    }
    const int exponent = magnitude < 0x1p-14 ? -14 : ilogb(magnitude);
    const double units = rint(ldexp(magnitude, 10 - exponent));
    return sign | (uint32_t)((exponent + 14) * 1024 + (int)units); /* a carry into the exponent is right */
}

/* What comes out: bits, or a float that may be any NaN, or a half that may be any NaN. */
typedef enum result_kind { BITS, FLOAT, HALF } result_kind;

typedef struct reference {
    result_kind kind;
    uint32_t (*run)(uint32_t a, uint32_t b, uint32_t c);
} reference;

static uint32_t halves(uint32_t high, uint32_t low) { return (high & 0xffff0000) | (low & 0xffff); }

/* Two roundings, whatever the compiler would like to contract. */
static float rounded(const float product) {
    const volatile float once = product;
    return once;
}
static double rounded_double(const double product) {
    const volatile double once = product;
    return once;
}

#define LANES_OP(name, kind, reference, put, operation)                              \
    static uint32_t c_##name(const uint32_t i, const uint32_t j, const uint32_t k) { \
        const float a = float_of(i), b = float_of(j), c = float_of(k);               \
        (void)a, (void)b, (void)c;                                                   \
        return reference;                                                            \
    }
#define LANES_DOUBLE_OP(name, reference, operation)                          \
    static double c_##name(const double a, const double b, const double c) { \
        (void)b, (void)c;                                                    \
        return reference;                                                    \
    }
#include "lanes_ops.inc.h"
#undef LANES_OP
#undef LANES_DOUBLE_OP

#define LANES_OP(name, kind, reference, put, operation) {kind, c_##name},
#define LANES_DOUBLE_OP(name, reference, operation)
static const reference references[] = {
#include "lanes_ops.inc.h"
};
#undef LANES_OP
#undef LANES_DOUBLE_OP
static bool same_result(const result_kind kind, const uint32_t got, const uint32_t want) {
    const bool half_nan = (want & 0x7fff) > 0x7c00;
    switch (kind) {
    case FLOAT: return same_float(float_of(got), float_of(want));
    case HALF: return got == want || (half_nan && got <= 0xffff && (got & 0x7fff) > 0x7c00);
    default: return got == want;
    }
}

/* vf_to_int promises nothing from 2^31 on. */
static bool is_defined(const char *name, const uint32_t a) {
    return strcmp(name, "vf_to_int") != 0 || fabsf(float_of(a)) < 0x1p31f;
}

static void check_block(const lanes_probe *probe, const lanes_op *op, const reference *expected, const uint32_t *a,
                        const uint32_t *b, const uint32_t *c) {
    uint32_t out[LANES];
    op->run(a, b, c, out);
    for (int i = 0; i < LANES; i++) {
        if (!is_defined(op->name, a[i])) {
            continue;
        }
        const uint32_t want = expected->run(a[i], b[i], c[i]);
        if (!same_result(expected->kind, out[i], want)) {
            fail_with("%s %s(%08x, %08x, %08x) lane %d: got %08x, want %08x", probe->name, op->name, (unsigned)a[i],
                      (unsigned)b[i], (unsigned)c[i], i, (unsigned)out[i], (unsigned)want);
        }
    }
}

/* All pairs of special values, then random ones. */
static void check_op(const lanes_probe *probe, const lanes_op *op, const reference *expected) {
    uint32_t a[LANES], b[LANES], c[LANES];
    for (int block = 0; block < SPECIALS * SPECIALS / LANES + 1; block++) {
        for (int i = 0; i < LANES; i++) {
            const int pair = (block * LANES + i) % (SPECIALS * SPECIALS);
            a[i] = special_bits[pair % SPECIALS];
            b[i] = special_bits[pair / SPECIALS];
            c[i] = random_bits();
        }
        check_block(probe, op, expected, a, b, c);
    }
    for (int block = 0; block < RANDOM_BLOCKS; block++) {
        for (int i = 0; i < LANES; i++) {
            a[i] = random_bits();
            b[i] = random_bits();
            c[i] = random_bits();
        }
        check_block(probe, op, expected, a, b, c);
    }
}

static void test_operations(void) {
    for (int i = 0; i < probe_count; i++) {
        random_state = 1;
        for (int k = 0; probes[i]->ops[k].name != NULL; k++) {
            check_op(probes[i], &probes[i]->ops[k], &references[k]);
        }
    }
    end_test();
}

/* ---- doubles --------------------------------------------------------------------------------------------------- */

typedef double double_reference(double a, double b, double c);

#define LANES_OP(name, kind, reference, put, operation)
#define LANES_DOUBLE_OP(name, reference, operation) c_##name,
static double_reference *const double_references[] = {
#include "lanes_ops.inc.h"
};
#undef LANES_OP
#undef LANES_DOUBLE_OP

static void random_doubles(double *v) {
    for (int i = 0; i < LANES; i++) {
        v[i] = random_double();
    }
}

/* vd_exponent, with which vd_power_of_two is tested, and vd_mantissa are for normal positive numbers. */
static double normal_positive(const double x) {
    const double magnitude = fabs(x);
    return isnormal(magnitude) ? magnitude : 1.5;
}

static void check_double_op(const lanes_probe *probe, const lanes_double_op *op, double_reference *expected) {
    const bool normal = strcmp(op->name, "vd_exponent") == 0 || strcmp(op->name, "vd_mantissa") == 0 ||
                        strcmp(op->name, "vd_power_of_two") == 0;
    double a[LANES], b[LANES], c[LANES], out[LANES];
    for (int block = 0; block < RANDOM_BLOCKS; block++) {
        random_doubles(a);
        random_doubles(b);
        random_doubles(c);
        for (int i = 0; normal && i < LANES; i++) {
            a[i] = normal_positive(a[i]);
        }
        op->run(a, b, c, out);
        for (int i = 0; i < LANES; i++) {
            const double want = expected(a[i], b[i], c[i]);
            if (!same_double(out[i], want)) {
                fail_with("%s %s(%a, %a, %a) lane %d: got %a, want %a", probe->name, op->name, a[i], b[i], c[i], i,
                          out[i], want);
            }
        }
    }
}

static void check_double_conversions(const lanes_probe *probe) {
    double a[LANES], b[LANES], wide[LANES], selected[LANES];
    float x[LANES], narrow[LANES];
    uint32_t less[LANES], mask[LANES];
    random_doubles(a);
    random_doubles(b);
    for (int i = 0; i < LANES; i++) {
        x[i] = float_of(random_bits());
        mask[i] = (uint32_t)random64() & 1;
        if (random64() % 8 == 0) {
            b[i] = a[i];
        }
    }
    probe->widen(x, wide);
    probe->narrow(a, narrow);
    probe->less(a, b, less);
    probe->select_double(mask, a, b, selected);
    for (int i = 0; i < LANES; i++) {
        if (!same_double(wide[i], (double)x[i])) {
            fail_with("%s vd_from_vf(%a)", probe->name, (double)x[i]);
        }
        if (!same_float(narrow[i], (float)a[i])) {
            fail_with("%s vd_to_vf(%a): %a", probe->name, a[i], (double)narrow[i]);
        }
        if (less[i] != (a[i] < b[i])) {
            fail_with("%s vd_lt(%a, %a)", probe->name, a[i], b[i]);
        }
        if (bits_of_double(selected[i]) != bits_of_double(mask[i] != 0 ? a[i] : b[i])) {
            fail_with("%s vd_select(%u, %a, %a)", probe->name, (unsigned)mask[i], a[i], b[i]);
        }
    }
}

static void check_table(const lanes_probe *probe) {
    _Alignas(64) double table[LANES];
    double v[LANES], out[LANES];
    random_doubles(table);
    random_doubles(v);
    probe->table(table, v, out);
    for (int i = 0; i < LANES; i++) {
        const uint64_t index = bits_of_double(v[i]) >> 48 & 15;
        if (bits_of_double(out[i]) != bits_of_double(table[index])) {
            fail_with("%s vd_table16(%a)", probe->name, v[i]);
        }
    }
}

static void test_doubles(void) {
    for (int i = 0; i < probe_count; i++) {
        random_state = 2;
        for (int k = 0; probes[i]->double_ops[k].name != NULL; k++) {
            check_double_op(probes[i], &probes[i]->double_ops[k], double_references[k]);
        }
        for (int block = 0; block < RANDOM_BLOCKS; block++) {
            check_double_conversions(probes[i]);
            check_table(probes[i]);
        }
    }
    end_test();
}

/* ---- half precision -------------------------------------------------------------------------------------------- */

static void run_f16(const lanes_probe *probe, const char *name, const uint32_t *in) {
    for (int k = 0; probe->ops[k].name != NULL; k++) {
        if (strcmp(probe->ops[k].name, name) == 0) {
            check_block(probe, &probe->ops[k], &references[k], in, in, in);
        }
    }
}

/* All 65,536 halves to float; to half: each half itself, the middle to the next one, and their neighbours. */
static void check_f16_exhaustive(const lanes_probe *probe) {
    for (uint32_t half = 0; half < 0x10000; half += LANES) {
        uint32_t in[LANES];
        for (uint32_t i = 0; i < LANES; i++) {
            in[i] = half + i;
        }
        run_f16(probe, "vf_from_f16", in);
    }
    for (uint32_t half = 0; half < 0x7c00; half += LANES) {
        for (int step = -1; step <= 1; step++) {
            uint32_t exact[LANES], middle[LANES];
            for (uint32_t i = 0; i < LANES; i++) {
                const float low = reference_from_f16(half + i);
                const float high = half + i == 0x7bff ? 65536.0f : reference_from_f16(half + i + 1);
                const uint32_t sign = (i & 1) << 31;
                exact[i] = (bits_of(low) + (uint32_t)step) | sign;
                middle[i] = (bits_of((low + high) / 2) + (uint32_t)step) | sign;
            }
            run_f16(probe, "vf_to_f16", exact);
            run_f16(probe, "vf_to_f16", middle);
        }
    }
}

static void check_f16_sample(const lanes_probe *probe) {
    enum { STRIDE = 4099 };
    for (uint64_t bits = 0; bits + LANES * STRIDE < 0x100000000; bits += (uint64_t)LANES * STRIDE) {
        uint32_t in[LANES];
        for (uint32_t i = 0; i < LANES; i++) {
            in[i] = (uint32_t)bits + i * STRIDE;
        }
        run_f16(probe, "vf_to_f16", in);
    }
}

static void test_f16(void) {
    for (int i = 0; i < probe_count; i++) {
        check_f16_exhaustive(probes[i]);
        check_f16_sample(probes[i]);
    }
    end_test();
}

/* ---- memory: no byte more than asked for is read or written ----------------------------------------------------- */

/* One page of memory between two that trap. */
static unsigned char *guarded_page;
static size_t page_size;

static bool make_guarded_page(void) {
    page_size = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *pages = mmap(NULL, 3 * page_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED || mprotect(pages + page_size, page_size, PROT_READ | PROT_WRITE) != 0) {
        return false;
    }
    guarded_page = pages + page_size;
    return true;
}

static void fill_page(void) {
    for (size_t i = 0; i < page_size; i++) {
        guarded_page[i] = (unsigned char)random64();
    }
}

/* At the page's very end, or at its very start. */
static void *place(const bool at_end, const size_t bytes) {
    return at_end ? guarded_page + page_size - bytes : guarded_page;
}

static void check_part_load(const lanes_probe *probe, const int n, const bool at_end) {
    fill_page();
    float *const p = place(at_end, (size_t)n * sizeof(float));
    float fill[LANES], out[LANES];
    for (int i = 0; i < LANES; i++) {
        fill[i] = float_of((uint32_t)random64());
    }
    probe->load_part(p, n, fill, out);
    for (int i = 0; i < LANES; i++) {
        uint32_t want = bits_of(fill[i]);
        if (i < n) {
            memcpy(&want, p + i, sizeof want);
        }
        if (bits_of(out[i]) != want) {
            fail_with("%s vf_load_part(%d) lane %d", probe->name, n, i);
        }
    }

    uint16_t *const q = place(at_end, (size_t)n * sizeof(uint16_t));
    uint32_t halves[LANES];
    probe->load_u16_part(q, n, halves);
    for (int i = 0; i < LANES; i++) {
        if (halves[i] != (i < n ? q[i] : 0)) {
            fail_with("%s vi_load_u16_part(%d) lane %d", probe->name, n, i);
        }
    }
}

/* The page must be what it was but for the n elements. */
static void check_page(const lanes_probe *probe, const char *name, const int n, const unsigned char *want) {
    if (memcmp(guarded_page, want, page_size) != 0) {
        fail_with("%s %s(%d): wrong bytes", probe->name, name, n);
    }
}

static void check_part_store(const lanes_probe *probe, const int n, const size_t offset, unsigned char *want) {
    float lanes[LANES];
    uint32_t words[LANES];
    for (int i = 0; i < LANES; i++) {
        words[i] = (uint32_t)random64();
        lanes[i] = float_of(words[i]);
    }
    fill_page();
    memcpy(want, guarded_page, page_size);
    memcpy(want + offset, words, (size_t)n * sizeof words[0]);
    probe->store_part((float *)(void *)(guarded_page + offset), n, lanes);
    check_page(probe, "vf_store_part", n, want);

    memcpy(want, guarded_page, page_size);
    for (int i = 0; i < n; i++) {
        const uint16_t low = (uint16_t)words[i];
        memcpy(want + offset + (size_t)i * sizeof low, &low, sizeof low);
    }
    probe->store_u16_part((uint16_t *)(void *)(guarded_page + offset), n, words);
    check_page(probe, "vi_store_u16_part", n, want);
}

/* The words, and the same the other way round. */
static void check_upper(const lanes_probe *probe, size_t offset, const uint32_t *words, unsigned char *want) {
    uint32_t turned[LANES];
    for (int i = 0; i < LANES; i++) {
        const uint16_t high = (uint16_t)(words[i] >> 16);
        turned[LANES - 1 - i] = words[i];
        memcpy(want + offset + (size_t)i * sizeof high, &high, sizeof high);
        memcpy(want + offset + (size_t)(2 * LANES - 1 - i) * sizeof high, &high, sizeof high);
    }
    probe->store_upper((uint16_t *)(void *)(guarded_page + offset), words, turned);
    check_page(probe, "vi_store_upper", 2 * LANES, want);
}

static void check_whole(const lanes_probe *probe, unsigned char *want) {
    float lanes[LANES], out[LANES];
    uint32_t words[LANES], loaded[LANES];
    for (size_t offset = 0; offset < 256; offset += sizeof(float)) {
        for (int i = 0; i < LANES; i++) {
            words[i] = (uint32_t)random64();
            lanes[i] = float_of(words[i]);
        }
        void *const p = guarded_page + offset;
        fill_page();
        memcpy(want, guarded_page, page_size);
        memcpy(want + offset, words, sizeof words);
        if (offset % 64 == 0) {
            probe->stream(p, lanes);
        } else {
            probe->store(p, lanes);
        }
        check_page(probe, "vf_store", LANES, want);
        probe->load(p, out);
        if (memcmp(out, words, sizeof words) != 0) {
            fail_with("%s vf_load", probe->name);
        }

        for (int i = 0; i < LANES; i++) {
            const uint16_t low = (uint16_t)words[i];
            memcpy(want + offset + (size_t)i * sizeof low, &low, sizeof low);
        }
        probe->store_u16(p, words);
        check_page(probe, "vi_store_u16", LANES, want);
        probe->load_u16(p, loaded);
        check_upper(probe, offset, words, want);
        for (int i = 0; i < LANES; i++) {
            if (loaded[i] != (words[i] & 0xffff)) {
                fail_with("%s vi_load_u16 lane %d", probe->name, i);
            }
        }
    }
}

static void check_memory(const lanes_probe *probe, unsigned char *want) {
    random_state = 3;
    for (int n = 0; n <= LANES; n++) {
        check_part_load(probe, n, true);
        check_part_load(probe, n, false);
        check_part_store(probe, n, 0, want);
        check_part_store(probe, n, 100, want);
        check_part_store(probe, n, page_size - (size_t)n * sizeof(float), want);
    }
    check_whole(probe, want);
}

static void test_memory(void) {
    if (make_guarded_page()) {
        unsigned char *const want = malloc(page_size);
        for (int i = 0; want != NULL && i < probe_count; i++) {
            check_memory(probes[i], want);
        }
        if (want == NULL) {
            fail_with("no memory");
        }
        free(want);
        munmap(guarded_page - page_size, 3 * page_size);
    } else {
        fail_with("no guarded page");
    }
    end_test();
}

/* ---- masks and across lanes ------------------------------------------------------------------------------------ */

static void check_mask(const lanes_probe *probe, const uint32_t bits) {
    uint32_t mask[LANES];
    for (int i = 0; i < LANES; i++) {
        mask[i] = bits >> i & 1;
    }
    const int count = __builtin_popcount(bits);
    if (probe->count(mask) != count || probe->any(mask) != (count > 0) || probe->all(mask) != (count == LANES)) {
        fail_with("%s vm_count, vm_any or vm_all of %04x", probe->name, (unsigned)bits);
    }
}

/* None of the halves is that of the other vector, then one is, then both of a lane are. */
static void check_any_eq16(const lanes_probe *probe) {
    for (int lane = 0; lane < LANES; lane++) {
        for (uint32_t same = 0; same < 4; same++) {
            uint32_t a[LANES], b[LANES];
            for (int i = 0; i < LANES; i++) {
                a[i] = 0x80000000u + 0x00020001u * (uint32_t)i;
                b[i] = a[i] ^ 0x01000010u;
            }
            b[lane] ^= (same & 1 ? 0x10u : 0) ^ (same & 2 ? 0x01000000u : 0);
            if (probe->any_eq16(a, b) != (same > 0)) {
                fail_with("%s vi_any_eq16 lane %d, halves %u", probe->name, lane, (unsigned)same);
            }
        }
    }
}

static void test_masks(void) {
    for (int i = 0; i < probe_count; i++) {
        check_any_eq16(probes[i]);
        for (uint32_t bits = 0; bits < 0x10000; bits++) {
            check_mask(probes[i], bits);
        }
        for (int n = 0; n <= LANES; n++) {
            uint32_t first[LANES];
            probes[i]->first(n, first);
            for (int lane = 0; lane < LANES; lane++) {
                if (first[lane] != (lane < n)) {
                    fail_with("%s vm_first(%d) lane %d", probes[i]->name, n, lane);
                }
            }
        }
    }
    end_test();
}

/* Folds by halves, as the contract has it. */
static float reference_fold(const float *v, const bool add) {
    float r[LANES];
    memcpy(r, v, sizeof r);
    for (int half = LANES / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; i++) {
            const float lower = r[i], upper = r[i + half];
            r[i] = add ? lower + upper : lower > upper ? lower : upper;
        }
    }
    return r[0];
}

static void check_across(const lanes_probe *probe, const bool with_nan) {
    float rows[LANES * LANES], maxima[LANES], sums[LANES], columns[LANES * LANES];
    for (int i = 0; i < LANES; i++) {
        const bool zeros = random64() % 4 == 0; /* which of +0 and -0 is the maximum is the contract's too */
        for (int j = 0; j < LANES; j++) {
            const uint32_t bits = random_bits();
            const bool replace = zeros || (isnan(float_of(bits)) && !with_nan);
            rows[LANES * i + j] = float_of(replace ? bits & 0x80000000 : bits);
        }
    }
    probe->hmax16(rows, maxima);
    probe->hadd16(rows, sums);
    probe->transpose(rows, columns);
    for (int i = 0; i < LANES; i++) {
        const float *const row = rows + LANES * i;
        const float sum = reference_fold(row, true), max = reference_fold(row, false);
        if (!same_float(probe->hadd(row), sum)) {
            fail_with("%s vf_hadd", probe->name);
        }
        if (!same_float(sums[i], sum)) {
            fail_with("%s vf_hadd16 lane %d", probe->name, i);
        }
        if (!with_nan && !same_float(probe->hmax(row), max)) {
            fail_with("%s vf_hmax", probe->name);
        }
        if (!with_nan && !same_float(maxima[i], max)) {
            fail_with("%s vf_hmax16 lane %d", probe->name, i);
        }
        for (int j = 0; j < LANES; j++) {
            if (bits_of(columns[LANES * j + i]) != bits_of(row[j])) {
                fail_with("%s vf_transpose", probe->name);
            }
            if (bits_of(probe->lane(row, j)) != bits_of(row[j])) {
                fail_with("%s vf_lane", probe->name);
            }
        }
    }
}

static void test_across(void) {
    for (int i = 0; i < probe_count; i++) {
        random_state = 4;
        for (int block = 0; block < RANDOM_BLOCKS / 10; block++) {
            check_across(probes[i], false);
            check_across(probes[i], true);
        }
    }
    end_test();
}

/* ---- run ------------------------------------------------------------------------------------------------------- */

#if defined(NAPIER_NO_CMOCKA)

static void run(const char *name, void (*test)(void)) {
    const int before = failures;
    test();
    printf("%s %s\n", failures == before ? "ok  " : "FAIL", name);
}

int main(void) {
    find_probes();
    run("operations", test_operations);
    run("doubles", test_doubles);
    run("f16", test_f16);
    run("memory", test_memory);
    run("masks", test_masks);
    run("across", test_across);
    if (failures > 0) {
        printf("%d failures\n", failures);
    }
    return failures > 0;
}

#else

int main(void) {
    find_probes();
    return RUN_TESTS("lanes", TEST(test_operations), TEST(test_doubles), TEST(test_f16), TEST(test_memory),
                     TEST(test_masks), TEST(test_across));
}

#endif
