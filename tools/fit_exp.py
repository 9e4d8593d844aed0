#!/usr/bin/env python3
"""Derives the coefficients of src/core/math/exp.h: exp(r) = 1 + r + r^2 q(r) on |r| <= ln 2 / 2, q of degree 4.

1. Remez exchange (mpmath, 100 digits): least maximum error relative to exp(r), c0 = c1 = 1 exact.
2. The coefficients are rounded to f32, and the f32 evaluation (six fma, as in napier_exp_polynomial) is measured in units
   in the last place on every step-th float r. The steps' rounding rule: 0.706 ulp for these and for the header's, which
   differ in the last bits of c4 to c6; a search over neighbouring floats found nothing better. What the reduction of x to
   r adds, tests/exhaustive measures on all floats.

Needs mpmath and numpy. Prints C, the errors, and how the header's coefficients stand beside them.

    tools/fit_exp.py [--step 97]
"""

import argparse
import os
import re

import numpy as np
from mpmath import exp, expm1, linspace, log, lu_solve, matrix, mp, mpf, nstr

mp.dps = 100
HEADER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "src", "math", "exp.h")
EDGE = log(mpf(2)) / 2
TERMS = 5  # c2 .. c6


def remez():
    """Coefficients of q and the largest relative error."""
    n = TERMS + 1
    nodes = [-EDGE * mp.cos(mp.pi * (2 * i + 1) / (2 * n)) for i in range(n)]
    for _ in range(10):
        rows = [[r**k for k in range(TERMS)] + [(-1) ** i * exp(r) / r**2] for i, r in enumerate(nodes)]
        right = [(expm1(r) - r) / r**2 for r in nodes]
        solution = lu_solve(matrix(rows), matrix(right))
        q = [solution[k] for k in range(TERMS)]
        grid = [r for r in linspace(-EDGE, EDGE, 3001) if abs(r) > mpf(10) ** -30]
        error = [(1 + r + r**2 * sum(c * r**k for k, c in enumerate(q))) / exp(r) - 1 for r in grid]
        peaks, start = [], 0
        for i in range(1, len(grid) + 1):
            if i == len(grid) or (error[i] > 0) != (error[start] > 0):
                peaks.append(max(range(start, i), key=lambda j: abs(error[j])))
                start = i
        while len(peaks) > n:
            peaks.pop(0 if abs(error[peaks[0]]) < abs(error[peaks[-1]]) else -1)
        if len(peaks) < n:
            break
        nodes = [grid[j] for j in peaks]
    return q, max(abs(e) for e in error)


def fma(a, b, c):
    """f32 fma: the product is exact in f64; the sum is rounded twice, which differs from once in 1 of 2^29."""
    return (a.astype(np.float64) * b.astype(np.float64) + c).astype(np.float32)


def arguments(step):
    """Floats |r| <= ln 2 / 2 a step apart in their bits, from 2^-12 on: below, the result is 1 + r rounded."""
    low, high = (int(np.float32(x).view(np.uint32)) for x in (2.0**-12, float(EDGE)))
    r = np.arange(low, high + 1, step, dtype=np.uint32).view(np.float32)
    return np.concatenate([-r[::-1], r])


def worst_ulp(coefficients, r, truth, ulp):
    p = np.full_like(r, coefficients[-1])
    for c in list(coefficients[-2::-1]) + [np.float32(1), np.float32(1)]:
        p = fma(p, r, np.float64(c))
    return float(np.max(np.abs(p.astype(np.longdouble) - truth) / ulp))


def header_coefficients():
    text = open(HEADER).read()
    names = [f"NAPIER_EXP_C{k}" for k in range(2, 7)]
    return [np.float32(float.fromhex(re.search(name + r" (\S+)f\b", text).group(1))) for name in names]


def show(title, coefficients, error):
    print(f"/* {title}: {error:.4f} ulp */")
    for k, c in enumerate(coefficients):
        print(f"#define NAPIER_EXP_C{k + 2} {float(c).hex()}f")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--step", type=int, default=97)
    options = parser.parse_args()
    q, relative = remez()
    print(f"/* c2 .. c6 before rounding: relative error 2^{nstr(log(relative, 2), 5)} */")
    r = arguments(options.step)
    truth = np.exp(r.astype(np.longdouble))
    ulp = np.where(truth >= 1, 2.0**-23, 2.0**-24).astype(np.longdouble)
    for title, c in (("rounded", [np.float32(float(c)) for c in q]), ("the header's", header_coefficients())):
        show(title, c, worst_ulp(c, r, truth, ulp))


main()
