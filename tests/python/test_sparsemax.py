"""sparsemax and its gradient against the definition by sorting, in NumPy."""

import napier
import numpy as np
import pytest


def by_sorting(x, axis=-1):
    z = np.moveaxis(np.asarray(x, np.float64), axis, -1)
    d = z.max(-1, keepdims=True) - z
    s = np.sort(d, -1)
    t = (1 + np.cumsum(s, -1)) / np.arange(1, z.shape[-1] + 1)
    size = (s < t).sum(-1, keepdims=True)
    return np.moveaxis(np.maximum(np.take_along_axis(t, size - 1, -1) - d, 0), -1, axis)


@pytest.mark.parametrize("dtype, bound", [("float64", 1e-15), ("float32", 6e-8), ("float16", 6e-4)])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_every_axis(dtype, bound, axis, rng):
    x = rng.normal(size=(5, 7, 300)).astype(dtype)
    got = napier.sparsemax(x, axis)
    assert got.dtype == x.dtype and np.abs(got.astype(float) - by_sorting(x, axis)).max() <= bound
    assert np.array_equal(got, napier.sparsemax(np.asfortranarray(x), axis=axis))


def test_options(rng):
    x = rng.normal(size=(4, 1500))
    assert np.allclose(napier.sparsemax(x, temperature=5.0), by_sorting(x / 5), rtol=0, atol=1e-15)
    assert np.allclose(napier.sparsemax(x, None), by_sorting(x.reshape(-1)).reshape(x.shape), rtol=0, atol=1e-15)
    assert napier.sparsemax(x, dtype="float32").dtype == np.float32
    expected = napier.sparsemax(x)
    assert np.array_equal(napier.sparsemax(x + 0.0, algorithm="parallel"), expected)
    assert napier.sparsemax(x, out=x) is x and np.array_equal(x, expected)
    assert napier.sparsemax([3, 3]).tolist() == [0.5, 0.5] and napier.sparsemax([]).shape == (0,)


def test_special_values():
    inf, nan = np.inf, np.nan
    masked = np.full((2, 3), -inf, np.float32)
    assert np.isnan(napier.sparsemax(masked)).all() and not napier.sparsemax(masked, masked_rows="zero").any()
    assert napier.sparsemax([1e30, -1e30, -inf]).tolist() == [1, 0, 0]
    for row in ([nan, 0.0], [inf, 0.0], [inf, nan, -inf]):
        assert np.isnan(napier.sparsemax(row)).all()


def test_gradient(rng):
    x, grad = rng.normal(size=(6, 40)), rng.normal(size=(6, 40))
    for axis in (0, 1):
        p = napier.sparsemax(x, axis, temperature=2.0)
        inside = p > 0
        mean = (grad * inside).sum(axis, keepdims=True) / inside.sum(axis, keepdims=True)
        got = napier.sparsemax_backward(p, grad, axis, temperature=2.0)
        assert np.allclose(got, inside * (grad - mean) / 2, rtol=0, atol=1e-15)


def test_errors():
    x = np.zeros((2, 3))
    for call, text in (
        (lambda: napier.sparsemax(x, 2), "axis"),
        (lambda: napier.sparsemax(x, temperature=0), "temperature"),
        (lambda: napier.sparsemax(x, out=x.T), "^out: its shape"),
        (lambda: napier.sparsemax_backward(x, x.T), "^grad_probs: its shape"),
    ):
        with pytest.raises((ValueError, IndexError), match=text):
            call()
