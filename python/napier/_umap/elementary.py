"""exp, log, powers, sine and their kin on float64 arrays, with the same bits on every machine.

NumPy's own differ between instruction sets. These use only +, -, *, / and the square root, which are rounded in one way
everywhere, and a fixed order. Errors are a few units in the last place."""

import numpy as np

_LOG2_HIGH, _LOG2_LOW = float.fromhex("0x1.62e42feep-1"), float.fromhex("0x1.a39ef35793c76p-33")
# pi / 2 in parts of 33 bits, so that a multiple up to 2^20 of the first two is exact
_HALF_PI = tuple(float.fromhex(part) for part in ("0x1.921fb544p+0", "0x1.0b4611a6p-34", "0x1.3198a2e037073p-69"))
PI = float.fromhex("0x1.921fb54442d18p+1")
_HALF = float.fromhex("0x1.921fb54442d18p+0")
_ROOT_HALF = float.fromhex("0x1.6a09e667f3bcdp-1")


def _factorials(first, count):
    """1/first!, -1/(first + 2)!, 1/(first + 4)!, ... by exact integers."""
    terms, product = [], 1
    for i in range(1, first + 1):
        product *= i
    for k in range(count):
        terms.append((-1.0) ** k / product)
        product *= (first + 2 * k + 1) * (first + 2 * k + 2)
    return terms


_SINE, _COSINE = _factorials(1, 10), _factorials(0, 10)
_LOG = [1 / k for k in range(1, 24, 2)]
_EXP = [abs(c) for pair in zip(_factorials(0, 8), _factorials(1, 8), strict=True) for c in pair][:15]


def _polynomial(x, coefficients):
    result = np.full_like(x, coefficients[-1])
    for c in coefficients[-2::-1]:
        result *= x
        result += c
    return result


def log(x):
    x = np.asarray(x, np.float64)
    part, exponent = np.frexp(x)
    low = part < _ROOT_HALF
    part, exponent = np.where(low, part * 2, part), exponent - low
    with np.errstate(invalid="ignore", divide="ignore"):
        f = (part - 1) / (part + 1)
        result = exponent * _LOG2_HIGH + (exponent * _LOG2_LOW + 2 * f * _polynomial(f * f, _LOG))
    result = np.where(x == 0, -np.inf, result)
    return np.where(np.isposinf(x), np.inf, np.where((x < 0) | np.isnan(x), np.nan, result))


def exp(x):
    x = np.asarray(x, np.float64)
    bounded = np.clip(np.nan_to_num(x, nan=0.0), -746.0, 710.0)
    k = np.rint(bounded * (1 / 0.6931471805599453))
    rest = (bounded - k * _LOG2_HIGH) - k * _LOG2_LOW
    with np.errstate(over="ignore"):
        return np.where(np.isnan(x), np.nan, np.ldexp(_polynomial(rest, _EXP), k.astype(np.int32)))


def power(x, exponent):
    """x ** exponent for x >= 0 and an exponent above 0."""
    return exp(exponent * log(x))


def _turned(x, quarters):
    """sin(x + quarters * pi / 2), for |x| up to a million."""
    x = np.asarray(x, np.float64)
    k = np.rint(x / _HALF)
    rest = ((x - k * _HALF_PI[0]) - k * _HALF_PI[1]) - k * _HALF_PI[2]
    square = rest * rest
    turn = (k.astype(np.int64) + quarters) & 3
    value = np.where(turn & 1, _polynomial(square, _COSINE), rest * _polynomial(square, _SINE))
    return np.where(turn & 2, -value, value)


def sin(x):
    return _turned(x, 0)


def cos(x):
    return _turned(x, 1)


def arcsin(x):
    """For 0 <= x <= 1: a start by a series, then Newton's steps; from 1/2 on by the half angle."""
    x = np.clip(np.asarray(x, np.float64), 0, 1)
    high = x > 0.5
    small = np.where(high, np.sqrt((1 - x) / 2), x)
    square = small * small
    y = small * (1 + square * (1 / 6 + square * (3 / 40 + square * (15 / 336))))
    for _ in range(3):
        y += (small - sin(y)) / cos(y)
    return np.where(high, _HALF - 2 * y, y)


def arccosh(x):
    """For x >= 1."""
    return log(x + np.sqrt(x * x - 1))
