#!/usr/bin/env python3
"""Derives and prints the constants of src/core/math/f64.c. Needs mpmath.

exp:  exp(r) = 1 + r + r^2/2 + r^3 c(r) on |r| <= ln2/2. c is interpolated at the Chebyshev nodes.
log:  log(1+f) = f - f^2/2 + f^3 c(f) on |f| <= 2^-6, c likewise. The table has 1/m to 10 bits at the
      middle of 64 intervals of m, and -log of that as two doubles; the intervals next to 1 have exactly 1 and 0.
"""

import mpmath as mp

mp.mp.prec = 300


def double(x):
    return mp.mpf(float(mp.nstr(x, 60, strip_zeros=False)))


def hexa(x):
    return float(x).hex()


def interpolate(target, low, high, degree):
    """The polynomial through the target at the Chebyshev nodes, its coefficients rounded to double."""
    middle, width = (low + high) / 2, (high - low) / 2
    nodes = [middle + width * mp.cos(mp.pi * (2 * i + 1) / (2 * degree + 2)) for i in range(degree + 1)]
    matrix, right = mp.matrix(degree + 1, degree + 1), mp.matrix(degree + 1, 1)
    for i, x in enumerate(nodes):
        right[i] = target(x)
        for j in range(degree + 1):
            matrix[i, j] = x**j
    return [double(c) for c in mp.lu_solve(matrix, right)]


def fit(target, weight, low, high, degree):
    coefficients = interpolate(target, low, high, degree)
    grid = [low + (high - low) * (2 * i + 1) / 2000 for i in range(1000)]
    return coefficients, max(abs((mp.polyval(coefficients[::-1], x) - target(x)) * weight(x)) for x in grid)


def series(x, terms):
    """sum of terms(i) x^i for small x: the targets below cancel at 0."""
    return sum(terms(i) * x**i for i in range(60))


ln2 = mp.log(2)
print("/* log2(e), and ln 2 as three doubles */")
print("LOG2E", hexa(1 / ln2))
rest = ln2
for name in ("LN2_1", "LN2_2", "LN2_3"):
    part = double(rest)
    rest -= part
    print(name, hexa(part))
print("remainder 2^%.1f" % mp.log(abs(rest), 2))

half = ln2 / 2 + mp.mpf(2) ** -20
c, worst = fit(lambda r: series(r, lambda i: 1 / mp.factorial(i + 3)), lambda r: r**3 / mp.exp(r), -half, half, 10)
print("\n/* exp: error of the polynomial relative to exp(r): 2^%.1f */" % mp.log(worst, 2))
for i, value in enumerate(c):
    print("EXP_C%d" % (i + 3), hexa(value))

bound = mp.mpf(2) ** -6
c, worst = fit(lambda f: series(f, lambda i: mp.mpf((-1) ** i) / (i + 3)), lambda f: f**2, -bound, bound, 8)
print("\n/* log: error of the polynomial relative to log(1+f): 2^%.1f */" % mp.log(worst, 2))
for i, value in enumerate(c):
    print("LOG_C%d" % (i + 3), hexa(value))

print("\n/* ln 2 with 11 zero bits below, so that k ln 2 is exact, and the rest */")
high = mp.floor(ln2 * 2**42) / 2**42
print("LN2_HI", hexa(high), "LN2_LO", hexa(double(ln2 - high)))

print("\n/* {c, -log(c) high, low}: bucket j holds m in [1 + j/64, 1 + (j+1)/64), halved from j = 27 on */")
largest = 0
for j in range(64):
    scale = mp.mpf(1) if j < 27 else mp.mpf(1) / 2
    least, most = scale * (1 + mp.mpf(j) / 64), scale * (1 + mp.mpf(j + 1) / 64)
    c = mp.mpf(1) if j in (0, 63) else mp.nint(512 * 2 / (least + most)) / 512
    high = double(-mp.log(c))
    low = double(-mp.log(c) - high)
    largest = max(largest, abs(least * c - 1), abs(most * c - 1))
    print("    {%s, %s, %s}," % (hexa(c), hexa(high), hexa(low)))
print("largest |f| = %s = 2^%.2f" % (mp.nstr(largest, 8), mp.log(largest, 2)))
