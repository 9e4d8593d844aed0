/* core/math/f64.inc.h - exp, log and log1p in double precision, and conversions from and to double (see f64.h). The CPU
 * compiles this once, in f64.c. For a kernel of a GPU, f64.h includes it. */

#include "core/math/exp_f64.h"

/* ---- exp ------------------------------------------------------------------------------------------------------- */

/* c[0] + c[1] x + ... + c[degree] x^degree */
NAPIER_BOTH double f64_polynomial(const double *c, int degree, double x) {
    double sum = c[degree];
    for (int i = degree - 1; i >= 0; i--) {
        sum = fma(sum, x, c[i]);
    }
    return sum;
}

/* A whole number next to x, |x| < 2^63. */
NAPIER_BOTH double f64_round_to_whole(double x) { return (double)(int64_t)(x + (x < 0 ? -0.5 : 0.5)); }

/* x - n ln 2. For large x the first n is known only to the spacing of its floats, and leaves a remainder of up to
 * hundreds of ln 2, which a second step removes. The second step runs only there. For smaller x, n is one
 * rounding of x log2(e), which never falls when x rises, and r stays within ln2/2 + 2^-23. Beyond 2^29
 * neighbouring x lie so far apart that the second step cannot reverse their order. For |x| <= 2^62 every low part
 * is below 2^-43, so the error is below 2^-95. */
NAPIER_BOTH napier_double2 f64_reduce(double x, int64_t *n) {
    const double n1 = f64_round_to_whole(x * NAPIER_F64_LOG2E);
    const napier_double2 a = napier_two_product(n1, NAPIER_F64_LN2_1), b = napier_two_product(n1, NAPIER_F64_LN2_2);
    const napier_double2 s1 = napier_two_sum(x, -a.high);
    const napier_double2 s2 = napier_two_sum(s1.high, -a.low);
    const napier_double2 s3 = napier_two_sum(s2.high, -b.high);
    double low = (s1.low + (s2.low + s3.low)) - fma(n1, NAPIER_F64_LN2_3, b.low);
    *n = (int64_t)n1;
    if (fabs(n1) < 0x1p30) {
        return napier_two_sum(s3.high, low);
    }
    const double n2 = f64_round_to_whole(s3.high * NAPIER_F64_LOG2E);
    const napier_double2 c = napier_two_product(n2, NAPIER_F64_LN2_1);
    const napier_double2 s4 = napier_two_sum(s3.high, -c.high);
    const napier_double2 s5 = napier_two_sum(s4.high, -c.low);
    low = fma(-n2, NAPIER_F64_LN2_2, low + (s4.low + s5.low));
    *n += (int64_t)n2;
    return napier_two_sum(s5.high, low);
}

NAPIER_BOTH_LONG napier_f64_parts napier_f64_exp_parts(double x) {
    napier_f64_parts parts;
    const napier_double2 r = f64_reduce(x, &parts.n);
    const napier_double2 square = napier_two_product(r.high, r.high);
    const double cubic = r.high * square.high * f64_polynomial(napier_f64_exp_c, 10, r.high);
    const napier_double2 s = napier_fast_two_sum(r.high, 0.5 * square.high);
    const napier_double2 t = napier_fast_two_sum(1.0, s.high);
    /* the low part of r changes exp(r) by r.low exp(r), and t.high is exp(r) to two digits */
    const double small = cubic + fma(r.low, t.high, fma(0.5, square.low, s.low + t.low));
    const napier_double2 p = napier_fast_two_sum(t.high, small);
    parts.p = p.high;
    parts.low = p.low;
    return parts;
}

NAPIER_BOTH_LONG double napier_f64_exp(double x) {
    if (x != x) {
        return napier_f64_nan();
    }
    if (x > 710.0) { /* exp(709.79) is the last that does not overflow */
        return HUGE_VAL;
    }
    if (x < -746.0) { /* exp(-745.14) is the last that does not round to 0 */
        return 0.0;
    }
    const napier_f64_parts parts = napier_f64_exp_parts(x);
    const int n = (int)parts.n;
    if (n < -1022 || (n == -1022 && parts.p < 1)) {
        /* subnormals have the spacing of the doubles from 1 to 2, times 2^-1022: round there, once */
        const double scale = napier_f64_power_of_two(n + 1022);
        const napier_double2 sum = napier_fast_two_sum(1.0, parts.p * scale);
        return (sum.high + fma(parts.low, scale, sum.low) - 1.0) * 0x1p-1022;
    }
    const int half = n / 2; /* in two steps, because 2^1024 is not a double */
    return parts.p * napier_f64_power_of_two(half) * napier_f64_power_of_two(n - half);
}

/* ---- log ------------------------------------------------------------------------------------------------------- */

/* ln 2 with 11 zero bits at its end, so that k NAPIER_F64_LN2_HI is exact, and the rest. */
#define NAPIER_F64_LN2_HI 0x1.62e42fefa3800p-1
#define NAPIER_F64_LN2_LO 0x1.ef35793c76730p-45

/* log(1 + f) = f - f^2/2 + f^3 c(f) on |f| <= 2^-6, to 2^-67.6 of its value. */
NAPIER_BOTH_TABLE double napier_f64_log_c[9] = {0x1.5555555555555p-2, -0x1p-2,
                                                0x1.9999999999999p-3, -0x1.555555555a55fp-3,
                                                0x1.2492492496e74p-3, -0x1.fffffdbfc31fep-4,
                                                0x1.c71c6fb332658p-4, -0x1.99c99d754b94dp-4,
                                                0x1.748969a4979d2p-4};

/* Interval j of the significand holds m in [1 + j/64, 1 + (j+1)/64). From j = 27 on m is halved, so that all m are near
 * 1. {c, high, low}: c is about 1/m, and high + low = -log c. Next to 1, c is 1, so that no accuracy is lost. */
enum { NAPIER_F64_HALVED = 27 };
NAPIER_BOTH_TABLE double napier_f64_log_table[64][3] = {
    {0x1p+0, 0x0p+0, 0x0p+0},
    {0x1.f40p-1, 0x1.8492528c8cabfp-6, -0x1.d192d0619fa67p-60},
    {0x1.ed0p-1, 0x1.35c8bfaa1306bp-5, -0x1.50830a65543a4p-63},
    {0x1.e50p-1, 0x1.bbcebfc68f420p-5, 0x1.e5cf3a0f56f72p-60},
    {0x1.de0p-1, 0x1.1973bd1465567p-4, -0x1.7558367a6acf6p-59},
    {0x1.d70p-1, 0x1.55e10050e0384p-4, -0x1.45f9d61c68c1bp-58},
    {0x1.d10p-1, 0x1.8a6477a91dc29p-4, -0x1.fa83214904842p-59},
    {0x1.ca0p-1, 0x1.c885801bc4b23p-4, 0x1.a38cb559a6706p-58},
    {0x1.c40p-1, 0x1.fe89139dbd566p-4, -0x1.ac9f4215f9393p-58},
    {0x1.be0p-1, 0x1.1aa2b7e23f72ap-3, -0x1.c6ef1d9b2ef7ep-59},
    {0x1.b80p-1, 0x1.365fcb0159016p-3, 0x1.7d411a5b944adp-58},
    {0x1.b20p-1, 0x1.527e5e4a1b58dp-3, -0x1.71a9682395bfdp-61},
    {0x1.ac0p-1, 0x1.6f0128b756abcp-3, -0x1.8de59c21e166cp-57},
    {0x1.a70p-1, 0x1.871213750e994p-3, 0x1.d685f35eea2a0p-57},
    {0x1.a10p-1, 0x1.a454082e6ab05p-3, 0x1.df207dc5c34c6p-58},
    {0x1.9c0p-1, 0x1.bd087383bd8adp-3, 0x1.dd355f6a516d7p-60},
    {0x1.970p-1, 0x1.d60a17f903515p-3, -0x1.c0df841a71b7ap-57},
    {0x1.920p-1, 0x1.ef5ade4dcffe6p-3, -0x1.08ab2ddc708a0p-58},
    {0x1.8d0p-1, 0x1.047e60cde83b8p-2, -0x1.0779634061cbcp-56},
    {0x1.880p-1, 0x1.1178e8227e47cp-2, -0x1.0e63a5f01c691p-57},
    {0x1.840p-1, 0x1.1bf99635a6b95p-2, -0x1.12aeb84249223p-57},
    {0x1.7f0p-1, 0x1.2941afb186b7cp-2, -0x1.856e61c515740p-57},
    {0x1.7b0p-1, 0x1.3401e12aecba1p-2, -0x1.cd55b8a4746c0p-58},
    {0x1.760p-1, 0x1.419b423d5e8c7p-2, 0x1.0dbb243827392p-57},
    {0x1.720p-1, 0x1.4c9e09e172c3cp-2, -0x1.123615b147a5dp-58},
    {0x1.6e0p-1, 0x1.57bf753c8d1fbp-2, -0x1.0908d15f88b63p-57},
    {0x1.6a0p-1, 0x1.630030b3aac49p-2, 0x1.dc18ce51fff99p-57},
    {0x1.660p+0, -0x1.5767717455a6cp-2, -0x1.526adb283660cp-56},
    {0x1.620p+0, -0x1.4be5f957778a1p-2, 0x1.259b35b04813dp-57},
    {0x1.5e8p+0, -0x1.41b941cce0beep-2, -0x1.6fec1bc0376f6p-56},
    {0x1.5b0p+0, -0x1.3772662bfd85bp-2, 0x1.b5629d8117de7p-59},
    {0x1.570p+0, -0x1.2b9303ab89d25p-2, 0x1.896b5fd852ad4p-56},
    {0x1.538p+0, -0x1.211255986160cp-2, 0x1.8745d6af3c50bp-56},
    {0x1.500p+0, -0x1.1675cababa60ep-2, -0x1.ce63eab883717p-61},
    {0x1.4c8p+0, -0x1.0bbccdb0d24bdp-2, 0x1.a667446409480p-57},
    {0x1.498p+0, -0x1.0274dc16c232fp-2, -0x1.e89cf835c2780p-57},
    {0x1.460p+0, -0x1.ef0adcbdc5936p-3, -0x1.48637950dc20dp-57},
    {0x1.430p+0, -0x1.dc1bca0abec7dp-3, -0x1.834c51998b6fcp-57},
    {0x1.3f8p+0, -0x1.c5cba543ae425p-3, 0x1.62134bab038d8p-57},
    {0x1.3c8p+0, -0x1.b2797ee46320cp-3, 0x1.1520da0151cf7p-57},
    {0x1.398p+0, -0x1.9ef83d2769a34p-3, 0x1.6f67f39bff3a5p-58},
    {0x1.368p+0, -0x1.8b46f8223625bp-3, -0x1.f2102dd7c92ecp-58},
    {0x1.338p+0, -0x1.7764c128f2127p-3, -0x1.240d1e78f44cep-57},
    {0x1.310p+0, -0x1.66acd4272ad51p-3, 0x1.0900e4e1ea8b2p-58},
    {0x1.2e0p+0, -0x1.526e5e3a1b438p-3, 0x1.746ff8a470d3ap-57},
    {0x1.2b8p+0, -0x1.41682bf727bc0p-3, 0x1.1c207e127261bp-59},
    {0x1.288p+0, -0x1.2cca0f5f5f251p-3, 0x1.e3235fe23f016p-57},
    {0x1.260p+0, -0x1.1b72ad52f67a0p-3, -0x1.483023472cd74p-58},
    {0x1.238p+0, -0x1.09f561ee719c3p-3, -0x1.f51d505cb0b76p-58},
    {0x1.208p+0, -0x1.e98b549671467p-4, -0x1.d227143a5a998p-58},
    {0x1.1e0p+0, -0x1.c5e548f5bc743p-4, -0x1.5d617ef8161b1p-60},
    {0x1.1b8p+0, -0x1.a1ef1d8061cd4p-4, -0x1.76df97bcb177fp-60},
    {0x1.198p+0, -0x1.84ef898e8282ap-4, -0x1.96dcb441b9227p-59},
    {0x1.170p+0, -0x1.60658a93750c4p-4, 0x1.388458ec21b6ap-58},
    {0x1.148p+0, -0x1.3b87598b1b6eep-4, 0x1.594aca31297a3p-61},
    {0x1.120p+0, -0x1.16536eea37ae1p-4, 0x1.79da3e8c22cdap-60},
    {0x1.100p+0, -0x1.f0a30c01162a6p-5, -0x1.85f325c5bbacdp-59},
    {0x1.0d8p+0, -0x1.a4fe9ffa3d235p-5, 0x1.28100a49366b4p-62},
    {0x1.0b8p+0, -0x1.67f94f094bd98p-5, -0x1.f3e7e4ed6b2d6p-60},
    {0x1.098p+0, -0x1.2a7ec2214e873p-5, -0x1.8856e9c01e6ddp-61},
    {0x1.070p+0, -0x1.b9fc027af9198p-6, 0x1.0ae69229dc868p-64},
    {0x1.050p+0, -0x1.3cea44346a575p-6, 0x1.0cb5a902b3a1cp-62},
    {0x1.030p+0, -0x1.7dc475f810a77p-7, 0x1.16d7687d3df21p-62},
    {0x1p+0, 0x0p+0, 0x0p+0},
};

/* u = 2^k m, f = m c - 1: log u = k ln 2 - log c + log(1 + f). */
NAPIER_BOTH_LONG napier_double2 napier_f64_log_of_sum(napier_double2 u) {
    int exponent = 0;
    if (u.high < 0x1p-1022) {
        u.high *= 0x1p54;
        u.low *= 0x1p54;
        exponent = -54;
    }
    const uint64_t bits = napier_double_bits(u.high);
    const int interval = (int)(bits >> 46) & 63;
    const int k = (int)(bits >> 52) - 1023 + (interval >= NAPIER_F64_HALVED ? 1 : 0);
    const double *entry = napier_f64_log_table[interval];
    /* scaled in two steps, because k may be 1024 */
    const double scale = napier_f64_power_of_two(-k / 2), again = napier_f64_power_of_two(-k - -k / 2);
    const double m = u.high * scale * again, m_low = u.low * scale * again;

    const napier_double2 product = napier_two_product(m, entry[0]);
    const napier_double2 f = napier_two_sum(product.high - 1.0, fma(m_low, entry[0], product.low));
    const napier_double2 square = napier_two_product(f.high, f.high);
    const double cubic = f.high * square.high * f64_polynomial(napier_f64_log_c, 8, f.high);

    const double whole = (double)(k + exponent);
    const napier_double2 s1 = napier_two_sum(whole * NAPIER_F64_LN2_HI, entry[1]);
    const napier_double2 s2 = napier_two_sum(s1.high, f.high);
    const napier_double2 s3 = napier_two_sum(s2.high, -0.5 * square.high);
    /* the low part of f changes log(1 + f) by f.low / (1 + f) */
    const double f_low = fma(-f.high, f.low, f.low);
    const double constants = fma(whole, NAPIER_F64_LN2_LO, entry[2]);
    const double small = (s1.low + s2.low + s3.low) + constants + (f_low - 0.5 * square.low);
    return napier_two_sum(s3.high, cubic + small);
}

NAPIER_BOTH_LONG double napier_f64_log(double x) {
    if (!(x > 0)) {
        return x == 0 ? -HUGE_VAL : napier_f64_nan();
    }
    if (x == HUGE_VAL) {
        return x;
    }
    return napier_f64_log_of_sum((napier_double2){x, 0}).high;
}

NAPIER_BOTH_LONG double napier_f64_log1p(double x) {
    if (!(x > -1)) {
        return x == -1 ? -HUGE_VAL : napier_f64_nan();
    }
    if (x == HUGE_VAL || fabs(x) < 0x1p-54) {
        return x; /* log1p(x) = x - x^2/2 */
    }
    return napier_f64_log_of_sum(napier_two_sum(1.0, x)).high;
}

/* ---- Conversions ----------------------------------------------------------------------------------------------- */

/* What differs between the two 16-bit formats: the bits of the fraction, and
 * the exponent of the smallest normal number. */
typedef struct napier_f64_format {
    int fraction_bits, least_exponent;
} napier_f64_format;

NAPIER_BOTH_TABLE napier_f64_format napier_f64_f16_format = {10, -14}, napier_f64_bf16_format = {7, -126};

NAPIER_BOTH double f64_widen(uint16_t bits, napier_f64_format f) {
    const uint64_t sign = (uint64_t)(bits >> 15) << 63;
    const int fraction = bits & ((1 << f.fraction_bits) - 1);
    const int exponent = (bits & 0x7fff) >> f.fraction_bits;
    const double unit = napier_f64_power_of_two(f.least_exponent - f.fraction_bits); /* of subnormals */
    double x;
    if (exponent == 0) {
        x = fraction * unit;
    } else if (exponent == 0x7fff >> f.fraction_bits) {
        x = fraction == 0 ? HUGE_VAL : napier_f64_nan();
    } else {
        x = (fraction + (1 << f.fraction_bits)) * unit * napier_f64_power_of_two(exponent - 1);
    }
    return napier_double_of_bits(napier_double_bits(x) | sign);
}

NAPIER_BOTH uint16_t f64_narrow(double x, napier_f64_format f) {
    const uint64_t bits = napier_double_bits(x), rest = bits & (UINT64_MAX >> 1);
    const uint32_t sign = (uint32_t)(bits >> 48) & 0x8000u;
    const uint32_t infinity = 0x7fffu >> f.fraction_bits << f.fraction_bits;
    if (x != x) {
        return (uint16_t)(infinity | 1u << (f.fraction_bits - 1));
    }
    const int exponent = (int)(rest >> 52) - 1023;
    const int below = exponent < f.least_exponent ? f.least_exponent - exponent : 0;
    const int dropped = 52 - f.fraction_bits + below;
    if (dropped > 53) { /* less than half of the smallest subnormal, including zero and the subnormals of double */
        return (uint16_t)sign;
    }
    if (exponent > 127) { /* above all finite values of both formats, infinity included */
        return (uint16_t)(sign | infinity);
    }
    const uint64_t significand = (rest & UINT64_C(0x000fffffffffffff)) | UINT64_C(0x0010000000000000);
    const uint64_t tail = significand & ((UINT64_C(1) << dropped) - 1), half = UINT64_C(1) << (dropped - 1);
    uint32_t kept = (uint32_t)(significand >> dropped);
    kept += tail > half || (tail == half && (kept & 1) != 0) ? 1u : 0u;
    /* if the result is normal, `kept` includes its leading 1: adding it raises the exponent field from 0 to 1 */
    const uint32_t field = below > 0 ? 0 : (uint32_t)(exponent - f.least_exponent) << f.fraction_bits;
    const uint32_t result = field + kept;
    return (uint16_t)(sign | (result < infinity ? result : infinity));
}

NAPIER_BOTH_LONG double napier_f64_from_f16(uint16_t bits) { return f64_widen(bits, napier_f64_f16_format); }
NAPIER_BOTH_LONG double napier_f64_from_bf16(uint16_t bits) { return f64_widen(bits, napier_f64_bf16_format); }
NAPIER_BOTH_LONG uint16_t napier_f64_to_f16(double x) { return f64_narrow(x, napier_f64_f16_format); }
NAPIER_BOTH_LONG uint16_t napier_f64_to_bf16(double x) { return f64_narrow(x, napier_f64_bf16_format); }

NAPIER_BOTH_LONG float napier_f64_to_f32(double x) {
    if (x != x) {
        const uint32_t bits = 0x7fc00000u;
        float nan;
        memcpy(&nan, &bits, sizeof nan);
        return nan;
    }
    return (float)x;
}

NAPIER_BOTH_LONG double napier_f64_load(const void *data, napier_dtype dtype, int64_t index) {
    switch (dtype) {
    case NAPIER_F32: return (double)((const float *)data)[index];
    case NAPIER_F16: return napier_f64_from_f16(((const uint16_t *)data)[index]);
    case NAPIER_BF16: return napier_f64_from_bf16(((const uint16_t *)data)[index]);
    case NAPIER_F64: return ((const double *)data)[index];
    }
    return napier_f64_nan();
}

NAPIER_BOTH_LONG void napier_f64_store(void *data, napier_dtype dtype, int64_t index, double x) {
    switch (dtype) {
    case NAPIER_F32: ((float *)data)[index] = napier_f64_to_f32(x); break;
    case NAPIER_F16: ((uint16_t *)data)[index] = napier_f64_to_f16(x); break;
    case NAPIER_BF16: ((uint16_t *)data)[index] = napier_f64_to_bf16(x); break;
    case NAPIER_F64: ((double *)data)[index] = x == x ? x : napier_f64_nan(); break;
    }
}
