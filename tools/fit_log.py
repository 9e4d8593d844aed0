#!/usr/bin/env python3
"""Derives the constants of src/core/math/log.h: the table of reciprocals and the polynomial of log(1 + f).

log(1 + f) = f + f^2 q(f) on [-1/32, 1/16], q of degree 6, least maximum error relative to log(1 + f) (Remez exchange in
200 digits), coefficients rounded to double. Needs mpmath. Prints C and the error that was reached.
"""

from mpmath import mp, mpf, log, log1p, matrix, lu_solve, linspace, nstr

mp.prec = 400
LO, HI, DEGREE = mpf(-1) / 32, mpf(1) / 16, 6


def target(f):
    return (log1p(f) - f) / f**2


def weight(f):  # error of q, relative to log(1 + f)
    return f**2 / log1p(f)


def remez():
    n = DEGREE + 2
    nodes = [(LO + HI) / 2 - (HI - LO) / 2 * mp.cos(mp.pi * (2 * i + 1) / (2 * n)) for i in range(n)]
    for _ in range(12):
        rows, right = [], []
        for i, f in enumerate(nodes):
            rows.append([f**k for k in range(DEGREE + 1)] + [(-1) ** i / abs(weight(f))])
            right.append(target(f))
        solution = lu_solve(matrix(rows), matrix(right))
        q = [solution[k] for k in range(DEGREE + 1)]
        grid = [f for f in linspace(LO, HI, 4001) if f != 0]
        error = [(sum(c * f**k for k, c in enumerate(q)) - target(f)) * abs(weight(f)) for f in grid]
        # the largest error in each run of one sign
        peaks, start = [], 0
        for i in range(1, len(grid) + 1):
            if i == len(grid) or (error[i] > 0) != (error[start] > 0):
                peaks.append(max(range(start, i), key=lambda j: abs(error[j])))
                start = i
        if len(peaks) < n:
            break
        while len(peaks) > n:
            peaks.pop(0 if abs(error[peaks[0]]) < abs(error[peaks[-1]]) else -1)
        nodes = [grid[j] for j in peaks]
    return q, max(abs(e) for e in error)


def hexed(x):
    return float(x).hex()


q, error = remez()
print(f"/* q: relative error of log(1 + f) before rounding: 2^{nstr(log(error, 2), 4)} */")
rounded = [float(c) for c in q]
for k, c in enumerate(rounded):
    print(f"#define NAPIER_LOG_Q{k} {c.hex()}")
grid = [f for f in linspace(LO, HI, 20001) if f != 0]
worst = max(abs((f + f**2 * sum(mpf(c) * f**k for k, c in enumerate(rounded))) / log1p(f) - 1) for f in grid)
print(f"/* with rounded coefficients: 2^{nstr(log(worst, 2), 4)} */")
# 1/(middle of the bucket) to 8 bits, so that m * c - 1 has few bits; bucket 0 keeps c = 1.
cs = [mpf(1)] + [mpf(int(mp.nint(256 / (1 + (mpf(i) + mpf(1) / 2) / 16)))) / 256 for i in range(1, 16)]
extremes = [(1 + mpf(i) / 16) * c - 1 for i, c in enumerate(cs)] + [(1 + mpf(i + 1) / 16) * c - 1 for i, c in enumerate(cs)]
print(f"/* f lies in [{nstr(min(extremes), 8)}, {nstr(max(extremes), 8)}] */")
print("reciprocal:", ", ".join(hexed(c) for c in cs))
print("minus log: ", ", ".join(hexed(-log(c)) for c in cs))
print("ln2:", hexed(log(mpf(2))))
