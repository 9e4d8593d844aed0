#!/usr/bin/env python3
"""The coefficients of src/core/math/pow.h: log2 and exp2 as short polynomials in f32.

    python3 tools/fit_pow.py

Needs numpy. Weighted least squares on Chebyshev nodes, which comes within a factor of two of the minimax polynomial, in
the relative error; coefficients are rounded to float one after the other, the rest fitted anew each time. Prints what the
header holds and the relative error reached (of the polynomial itself, in exact arithmetic).
"""

import numpy as np


def fit(f, low, high, degree, fixed=()):
    x = (low + high) / 2 + (high - low) / 2 * np.cos(np.pi * (np.arange(4000) + 0.5) / 4000)
    y = f(x)
    c = list(fixed)
    while len(c) <= degree:
        powers = np.arange(len(c), degree + 1)
        scale = max(abs(low), abs(high))
        a = (x[:, None] / scale) ** powers / y[:, None]
        rest = (y - np.polynomial.polynomial.polyval(x, c or [0.0])) / y
        best = np.linalg.lstsq(a, rest, rcond=None)[0] / scale**powers
        c.append(float(np.float32(best[0])))
    error = np.abs(np.polynomial.polynomial.polyval(x, c) / y - 1).max()
    return c, error


def show(name, c, error):
    for k, value in enumerate(c):
        mantissa, exponent = value.hex().split("p")
        print(f"#define {name}{k} {mantissa[:-7]}p{exponent}f")
    print(f"/* relative error 2^{np.log2(error):.2f} */")


def log2_over_f(f):  # log2(1 + f) / f; f is never 0 on the nodes
    return np.log1p(f) / f / np.log(2)


def main():
    show("NAPIER_LOG2_C", *fit(log2_over_f, np.sqrt(0.5) - 1, np.sqrt(2) - 1, 8))
    show("NAPIER_EXP2_C", *fit(np.exp2, -0.5, 0.5, 6, [1.0]))


if __name__ == "__main__":
    main()
