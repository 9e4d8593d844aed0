"""logsumexp of complex numbers, and softmax over several axes."""

import numpy as np
import pytest
import scipy.special

import napier
from conftest import bits, refuses
from napier._ops import complex as ours_of_complex


def random_complex(rng, *shape, scale=1.0):
    return scale * (rng.standard_normal(shape) + 1j * rng.standard_normal(shape))


def reference(a, b=None):
    """(sum, log |sum|, error that float64 allows) of one row, with the greatest term taken out, in long double."""
    terms = np.exp((a - a.real.max()).astype(np.clongdouble)) * (1 if b is None else b.astype(np.clongdouble))
    total = terms.sum()
    return total, np.log(abs(total)) + a.real.max(), 2.0**-53 * float(np.abs(terms).sum() / abs(total))


def test_values_within_the_bound(rng):
    """The bound of docs/python.md: an ulp of the result, and 16 * 2^-53 times sum |b exp(a)| / |sum b exp(a)|."""
    if np.finfo(np.longdouble).eps > 2.0**-60:
        pytest.skip("no long double")
    for n in (1, 2, 3, 50, 3000):
        for scale in (1e-9, 1.0, 30.0, 3000.0):
            for b in (None, rng.standard_normal(n), random_complex(rng, n)):
                a = random_complex(rng, n, scale=scale)
                if scale > 100:
                    a = a.real + 1j * rng.uniform(-3, 3, n)  # long double's own cos keeps its digits there
                total, log, unit = reference(a, b)
                given, (size, sign) = napier.logsumexp(a, b=b), napier.logsumexp(a, b=b, return_sign=True)
                bound = 16 * unit + 2.0**-52 * (abs(float(log)) + (abs(a.real).max() if b is not None else 0.0))
                assert abs(float(given.real - log)) <= bound and size == given.real
                assert abs(complex(np.exp(1j * np.clongdouble(given.imag)) - total / abs(total))) <= 20 * unit + 2.0**-50
                assert abs(complex(sign - total / abs(total))) <= 20 * unit and abs(given.imag) <= np.pi


def test_small_terms_beside_great_ones():
    for a, want in (([0, -40], 4.248354255291589e-18), ([0j, -40 + 0.5j], np.exp(-40 + 0.5j)), ([5j, 5j - 50], 5j - 2j * np.pi)):
        np.testing.assert_allclose(napier.logsumexp(np.array(a, complex)), want, rtol=1e-14)
    assert napier.logsumexp([3.5 - 2j]) == 3.5 - 2j
    assert napier.logsumexp([0.5j, -1e5]).real == 0
    assert napier.logsumexp([1.0, 2.0], b=[1.0, 0j]) == 1.0, "a weight of 0 drops its element"
    assert napier.logsumexp([1.0, np.nan + 1j, np.inf], b=[2.0, 0, 0]) == np.log(2.0) + 1.0
    assert abs(napier.logsumexp([710.0, 710.0, 1j]) - np.log(2) - 710.0) < 1e-12


def test_cos_sin_of_any_size(rng):
    """Against the C library, which is right to an ulp or two; at multiples of pi / 2 the rest is what float64 leaves out."""
    x = np.concatenate([rng.standard_normal(500) * 10.0**e for e in (-300, -8, 0, 2, 5.9, 6.1, 12, 300)])
    x = np.append(x, [0.0, -0.0, np.pi / 2, np.pi, 2.0**20, 1e22])
    c, s = ours_of_complex.cos_sin(x)
    np.testing.assert_allclose(c, np.cos(x), rtol=1e-15, atol=0)
    np.testing.assert_allclose(s, np.sin(x), rtol=1e-15, atol=0)
    assert all(np.isnan(ours_of_complex.cos_sin(np.array([np.inf, -np.inf, np.nan]))).ravel())


def test_same_bits(rng, monkeypatch):
    """Over instruction sets, threads, layouts and batches, and without the functions of the C library."""
    a, b = random_complex(rng, 4, 700, scale=5.0), random_complex(rng, 4, 700)
    wide = np.zeros((700, 8), complex)
    wide[:, ::2] = a.T

    def every():
        results = [napier.logsumexp(a, 1), *napier.logsumexp(a, 1, b, return_sign=True), napier.logsumexp(a.astype("c8"), 0)]
        return [bits(r) for r in results]

    want = every()
    assert bits(napier.logsumexp(wide[:, ::2], 0)) == want[0]
    assert bits(np.array([napier.logsumexp(row) for row in a])) == want[0]
    before = napier.get_isa()
    for isa in ("scalar", "avx2", "avx512", "neon"):
        if napier.isa_available(isa):
            napier.set_isa(isa)
            for threads in (1, 2, 3):
                napier.set_num_threads(threads)
                assert every() == want, (isa, threads)
    napier.set_isa(before)
    napier.set_num_threads(0)
    for name in ("exp", "log", "log1p", "sin", "cos", "arctan2", "hypot", "sum"):
        monkeypatch.setattr(np, name, None)
    assert every() == want


def test_shapes_and_dtypes(rng):
    a = random_complex(rng, 2, 3, 4)
    for axis in (None, 0, -1, (0, 2), (2, 0), (0, 1, 2)):
        for keepdims in (False, True):
            given, want = (f(a, axis, keepdims=keepdims) for f in (napier.logsumexp, scipy.special.logsumexp))
            np.testing.assert_allclose(given, want, rtol=1e-13)
            assert given.shape == want.shape and given.dtype == want.dtype
    single = a.astype("c8")
    assert napier.logsumexp(single).dtype == "c8" and napier.logsumexp(single, dtype="complex128").dtype == "c16"
    assert [r.dtype for r in napier.logsumexp(single, 0, return_sign=True)] == ["f4", "c8"]
    assert napier.logsumexp(np.float32([1, 2]), b=np.complex64([1j, 1])).dtype == "c8"
    np.testing.assert_allclose(napier.logsumexp(a, temperature=0.5), napier.logsumexp(a / 0.5), rtol=1e-14)
    assert napier.logsumexp(np.zeros((0, 3), complex), 0).tolist() == [-np.inf] * 3
    assert napier.logsumexp(np.zeros((0, 3), complex), 1).shape == (0,)
    refuses(lambda: napier.logsumexp(a, dtype="float32"), TypeError, "^dtype: expected complex64 or complex128")
    refuses(lambda: napier.logsumexp(a, temperature=0), ValueError, "^temperature: 0")
    rows = np.arange(12).reshape(3, 4) * (1 + 0.1j)
    for axis in (0, 1, (0, 1)):
        for z in (rows, np.asfortranarray(rows), rows.T):
            np.testing.assert_allclose(napier.logsumexp(z, axis, temperature=0.5), napier.logsumexp(z / 0.5, axis), rtol=1e-14)
    assert napier.logsumexp(np.array(1j), axis=0) == 1j
    for b in (1.5e308 + 1.5e308j, 5e-324 + 5e-324j):  # |b| overflows, or has no digits
        wanted = complex(np.log(abs(b.real)) + np.log(2) / 2, np.pi / 4)
        np.testing.assert_allclose(napier.logsumexp([0j, 0j], b=[b, 0]), wanted, rtol=1e-14)
    refuses(lambda: napier.logsumexp(a, 3), IndexError, "^axis: 3")
    refuses(lambda: napier.softmax(a), TypeError, "^x: complex")


SEVERAL = [(0,), (1, 3), (3, 0), (-1, 0, 1), (0, 1, 2, 3)]


@pytest.mark.parametrize(
    "ours, theirs",
    [(napier.softmax, scipy.special.softmax), (napier.log_softmax, scipy.special.log_softmax)],
    ids=["softmax", "log_softmax"],
)
def test_several_axes(ours, theirs, rng):
    x = rng.standard_normal((2, 3, 4, 5))
    backward = napier.softmax_backward if ours is napier.softmax else napier.log_softmax_backward
    for axis in SEVERAL:
        y = ours(x, axis)
        np.testing.assert_allclose(y, theirs(x, axis=axis), rtol=1e-13)
        out = np.empty_like(x)
        assert ours(x, axis, out=out) is out and bits(out) == bits(y)
        assert ours(x.astype("f4"), axis).dtype == "f4" and ours(x.astype("f4"), axis, dtype="f8").dtype == "f8"
        g = rng.standard_normal(x.shape)
        last = [i for i in range(4) if i not in [a % 4 for a in axis]] + [a % 4 for a in axis]
        joined = [np.transpose(z, last).reshape(*[x.shape[i] for i in last[: 4 - len(axis)]], -1) for z in (y, g)]
        one = backward(*joined, -1).reshape([x.shape[i] for i in last]).transpose(np.argsort(last))
        assert bits(backward(y, g, axis)) == bits(one)
    assert bits(ours(x, (0, 1, 2, 3))) == bits(ours(x, None)) and bits(ours(x, (2,))) == bits(ours(x, 2))
    assert ours(3.0, (0,)) == ours(3.0, None) and ours(np.zeros((0, 3)), (0, 1)).shape == (0, 3)
    refuses(lambda: ours(x, (0, 4)), IndexError, "^axis: 4")
    refuses(lambda: ours(x, (0, -4)), ValueError, "^axis: .* names an axis twice")
    refuses(lambda: ours(x, (0, 1.5)), TypeError, "^axis: expected an int")
    refuses(lambda: ours(x, (0, 1), out=np.empty((2, 3))), ValueError, "^out: its shape")
    refuses(lambda: ours(x, (0, 1), out=np.empty(x.shape), dtype="f4"), ValueError, "^dtype: ")
    refuses(lambda: ours(np.ma.masked_array(x, x > 0), (0, 1)), TypeError, "^x: masked")
