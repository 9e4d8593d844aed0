"""logsumexp of complex numbers, in float64 arithmetic whose order is fixed.

Let j be the element whose term |b exp(a)| is greatest. All terms are divided by it, so that their sizes are exp(d) with
d <= 0. The sum is that term's direction plus the sum of the others, and log |sum| comes from log1p, so that small terms beside
a great one are not lost. exp, log and the sums are those of Napier's kernels. sin, cos and the angle are computed here from
single additions, multiplications and divisions, because those of the C library differ between machines.
"""

import functools

import numpy as np

from .._napier import _dot_rows, _exp, _log

# ---- cos, sin, angle -------------------------------------------------------------------------------------------------


@functools.cache
def _half_pi(bits):
    """pi / 2 times 2^bits, rounded down, by Machin's formula: pi / 4 = 4 arctan(1/5) - arctan(1/239)."""
    one = 1 << (bits + 32)

    def arctan_of_inverse(n):
        power, total, k = one // n, 0, 1
        while power:
            total += power // k if k % 4 == 1 else -(power // k)
            power, k = power // (n * n), k + 2
        return total

    return (8 * arctan_of_inverse(5) - 2 * arctan_of_inverse(239)) >> 32


@functools.cache
def _parts_of_half_pi():
    """pi / 2 as the sum of three doubles. The first two have 33 bits, so that their products with k < 2^20 are exact."""
    whole, bits = _half_pi(200), 200
    first = whole >> (bits - 32) << (bits - 32)
    second = (whole - first) >> (bits - 65) << (bits - 65)
    return tuple(float(part) * 2.0**-bits for part in (first, second, whole - first - second))


_SIMPLE = 2.0**20  # below it the reduction by three parts keeps all digits


def _reduced_exactly(x):
    """(quarter, rest): x less a multiple of pi / 2, in integers of any length."""
    bits = 1200
    numerator, denominator = float(x).as_integer_ratio()
    scaled, unit = (numerator << bits) // denominator, _half_pi(bits)
    quarter = (2 * scaled + unit) // (2 * unit)
    return quarter % 4, (scaled - quarter * unit) / (1 << bits)


def _series(z, first, count):
    """sum over k < count of (-z)^k / (2k + first)!, times first!. The error of the sums is below 1e-18 for z < 0.62."""
    total = np.ones_like(z)
    for k in range(count - 1, 0, -1):
        n = 2 * k + first
        total = 1.0 - z * total / (n * (n - 1))
    return total


def cos_sin(x):
    """(cos x, sin x) of an array of float64, to 2 ulp; NaN where x is not finite."""
    x = np.where(np.isfinite(x), x, np.nan)
    first, second, third = _parts_of_half_pi()
    k = np.rint(x * (1.0 / first))
    rest = ((x - k * first) - k * second) - k * third
    quarter = np.where(np.abs(x) < _SIMPLE, k, 0.0).astype(np.int64) % 4
    for i in np.flatnonzero(np.abs(x) >= _SIMPLE):
        quarter.flat[i], rest.flat[i] = _reduced_exactly(x.flat[i])
    z = rest * rest
    sine = rest - rest * z * _series(z, 3, 9) / 6.0
    half = 0.5 * z
    near = 1.0 - half
    cosine = near + (((1.0 - near) - half) + z * z * _series(z, 4, 9) / 24.0)
    odd = quarter % 2 == 1
    c, s = np.where(odd, sine, cosine), np.where(odd, cosine, sine)
    return np.where((quarter == 1) | (quarter == 2), -c, c), np.where(quarter >= 2, -s, s)


def _magnitude(x, y):
    """sqrt(x^2 + y^2) without overflow."""
    most = np.maximum(np.abs(x), np.abs(y))
    scale = np.where(most > 0, most, 1.0)
    x, y = x / scale, y / scale
    return most * np.sqrt(x * x + y * y)


def _angle(y, x):
    """The angle of (x, y) in [-pi, pi]: a coarse one, and the angle that is left after it has been rotated away."""
    most = np.maximum(np.abs(x), np.abs(y))
    scale = np.where(most > 0, most, 1.0)
    x, y = x / scale, y / scale
    steep = np.abs(y) > np.abs(x)
    t = np.where(steep, np.abs(x), np.abs(y))
    coarse = t / (1.0 + 0.28 * t * t)
    half = sum(_parts_of_half_pi())
    coarse = np.where(steep, half - coarse, coarse)
    coarse = np.copysign(np.where(np.signbit(x), 2.0 * half - coarse, coarse), y)
    c, s = cos_sin(coarse)
    left = np.where(most > 0, (y * c - x * s) / np.where(most > 0, x * c + y * s, 1.0), 0.0)
    square = left * left
    return coarse + (left - left * square * (1.0 / 3.0 - square * 0.2))


# ---- exp, log1p ---------------------------------------------------------------------------------------------------------


def exp_of_array(x):
    """exp of complex numbers; 0 where the real part is -inf."""
    none = x.real == -np.inf
    size, (c, s) = _exp(np.asarray(x.real, np.float64)), cos_sin(np.where(none, 0.0, x.imag))
    return np.where(none, 0.0, size * c + 1j * (size * s)).astype(x.dtype)


def _log1p(x):
    """log(1 + x) for x > -1/2, by Kahan's correction: u = 1 + x is rounded, but log(u) / (u - 1) hardly changes with u."""
    u = 1.0 + x
    same = u == 1.0
    return np.where(same, x, _log(u) * (x / np.where(same, 1.0, u - 1.0)))


# ---- logsumexp ----------------------------------------------------------------------------------------------------------


def _rotations(imag, b, keep):
    """Logarithms of |b| and directions b / |b| cis(imag) of the terms, as (log, cosine, sine). Without weights the first is
    None."""
    c, s = cos_sin(np.where(keep, imag, 0.0))
    if b is None:
        return None, c, s
    scale = np.where(keep, np.maximum(np.abs(b.real), np.abs(b.imag)), 1.0)  # |b| may overflow, or lose its digits
    p, q = b.real / scale, b.imag / scale
    unit = np.where(keep, np.sqrt(p * p + q * q), 1.0)
    p, q = p / unit, q / unit
    return _log(scale) + _log(unit), p * c - q * s, p * s + q * c


def finite_rows(a, b):
    """(log |sum|, angle of the sum, its cosine and sine) of rows that have a greatest term which is finite."""
    keep = (a.real > -np.inf) if b is None else (a.real > -np.inf) & (b != 0)
    size, c, s = _rotations(a.imag, b, keep)
    level = np.where(keep, a.real, -np.inf)
    if size is not None:
        level = level + np.where(keep, size, 0.0)
    j = np.argmax(level, 1)[:, None]
    most, c_j, s_j = (np.take_along_axis(x, j, 1)[:, 0] for x in (level, c, s))
    terms = _exp(level - most[:, None])
    c, s = np.where(terms > 0, c, 0.0), np.where(terms > 0, s, 0.0)
    np.put_along_axis(terms, j, 0.0, 1)
    x, y = _dot_rows(terms, c)[:, 0], _dot_rows(terms, s)[:, 0]
    real, imag = c_j * x + s_j * y, c_j * y - s_j * x  # the sum of the others, seen from the greatest term
    more = 2.0 * real + (real * real + imag * imag)
    near = more > -0.5
    log = np.where(near, 0.5 * _log1p(np.where(near, more, 0.0)), _log(_magnitude(np.where(near, 0.0, 1.0 + real), imag)))
    x, y = c_j + x, s_j + y
    scale = _magnitude(x, y)
    scale = np.where(scale > 0, scale, 1.0)
    return most + log, _angle(y, x), x / scale, y / scale


def _as_in_c99(library, a, b):
    """Rows with infinities or NaN, or without terms, by the array library's own exp, sum and log: (log sum, log |sum|, sign)."""
    terms = library.exp(a) if b is None else b * library.exp(a)
    total = terms.sum(-1)
    sign = library.sgn(total) if hasattr(library, "sgn") else library.sign(total)
    return library.log(total), library.log(abs(total)), sign


def logsumexp_rows(a, b, library, of, to):
    """(logsumexp, log |sum|, sum / |sum|) of rows [R, n] of complex128, with weights b of this shape or without.

    library, of, to: the module of the caller's arrays, and functions from and to NumPy's."""
    with np.errstate(all="ignore"):
        if a.shape[1] == 0:
            none = np.full(len(a), -np.inf)
            return none.astype(np.complex128), none, np.zeros(len(a), np.complex128)
        if b is not None:
            a = np.where(b == 0, -np.inf, a)
        terms = a.real > -np.inf
        odd = ~np.isfinite(a.real.max(1)) | (terms & ~np.isfinite(a.imag)).any(1)
        if b is not None:
            odd |= ~np.isfinite(b).all(1)
        plain = ~odd
        lse, size, sign = np.empty(len(a), np.complex128), np.empty(len(a)), np.empty(len(a), np.complex128)
        if plain.any():
            log, angle, c, s = finite_rows(a[plain], None if b is None else b[plain])
            nothing = log == -np.inf
            size[plain] = lse.real[plain] = log
            lse.imag[plain] = np.where(nothing, 0.0, angle)
            sign.real[plain], sign.imag[plain] = np.where(nothing, 0.0, c), np.where(nothing, 0.0, s)
        if odd.any():
            given = _as_in_c99(library, of(a[odd]), None if b is None else of(b[odd]))
            lse[odd], size[odd], sign[odd] = (to(x) for x in given)
        return lse, size, sign
