"""Masks of softmax and its kin; logaddexp, logcumsumexp, entmax, gumbel_softmax and cross_entropy, against their definitions in longer
arithmetic, with the same bits for all instruction sets and numbers of threads."""

import fractions
import math

import numpy as np
import pytest

import napier

ISAS = [isa for isa in ("scalar", "neon", "avx2", "avx512") if napier.isa_available(isa)]


def normal(*shape, seed=0, dtype=np.float64):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def the_same_everywhere(call):
    """The bytes of a call's result, which no instruction set and no number of threads changes."""
    found = set()
    try:
        for isa in ISAS:
            for threads in (1, 3):
                napier.set_isa(isa)
                napier.set_num_threads(threads)
                found.add(np.ascontiguousarray(call()).tobytes())
    finally:
        napier.set_isa("auto")
        napier.set_num_threads(0)
    assert len(found) == 1


# ---- Masks -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [napier.softmax, napier.log_softmax, napier.sparsemax, napier.logsumexp, napier.entmax])
def test_a_mask_is_a_logit_of_minus_infinity(function):
    x = normal(3, 4, 6, dtype=np.float32)
    mask = normal(4, 6, seed=1) > 0
    mask[2] = False
    x[0, 0, np.flatnonzero(~mask[0])[0]] = np.nan  # whatever is hidden
    hidden = np.where(mask, x, np.float32(-np.inf))
    for axis in (-1, 1, (0, 2), None):
        for given in (mask, mask.astype(int), mask.astype(np.uint8).tolist()):
            assert np.array_equal(function(x, axis, mask=given), function(hidden, axis), equal_nan=True), axis


@pytest.mark.parametrize("function", [napier.softmax, napier.log_softmax, napier.logsumexp])
def test_causal(function):
    for queries, keys in ((4, 4), (2, 5), (5, 2)):
        x = normal(2, queries, keys)
        seen = np.arange(keys)[None, :] - np.arange(queries)[:, None] <= keys - queries
        assert np.array_equal(function(x, axis=-1, causal=True), function(x, axis=-1, mask=seen), equal_nan=True)
    assert np.array_equal(napier.softmax(np.zeros((2, 2)), causal=True, mask=[[1, 1], [0, 1]]), [[1, 0], [0, 1]])


def test_rows_of_which_nothing_is_left():
    x, none = normal(2, 3), np.zeros((2, 3), bool)
    assert np.isnan(napier.softmax(x, mask=none)).all()
    assert (napier.softmax(x, mask=none, masked_rows="zero") == 0).all()
    assert (napier.log_softmax(x, mask=none, masked_rows="zero") == -np.inf).all()
    assert (napier.logsumexp(x, axis=1, mask=none) == -np.inf).all()
    assert (napier.entmax(x, mask=none, masked_rows="zero") == 0).all()


def test_masks_with_the_other_arguments():
    x, mask = normal(2, 3, dtype=np.float16), [True, False, True]
    out = np.empty((2, 3), np.float32)
    assert napier.softmax(x, mask=mask, out=out) is out
    assert np.array_equal(out, napier.softmax(np.where(mask, x, np.float16(-np.inf)), dtype="float32"))
    assert napier.softmax([[1, 2, 3]], mask=mask).dtype == np.float64
    kept = x.copy()
    napier.softmax(x, mask=mask)
    assert np.array_equal(x, kept), "the input is not changed"


def test_wrong_masks():
    x = normal(2, 3)
    for call, kind, text in (
        (lambda: napier.softmax(x, mask=np.ones(2)), TypeError, "mask: expected bool or integers"),
        (lambda: napier.softmax(x, mask=[True] * 4), ValueError, r"mask: shape \(4,\)"),
        (lambda: napier.logsumexp(x[0], causal=True), ValueError, "causal: True, but x has 1 dim"),
        (lambda: napier.softmax(np.ma.array(x), mask=[True] * 3), TypeError, "x: masked arrays"),
    ):
        with pytest.raises(kind, match=text):
            call()


# ---- logaddexp, logcumsumexp -------------------------------------------------------------------------------------------------


def test_logaddexp():
    x, y = 30 * normal(200), 30 * normal(200, seed=1)
    assert np.allclose(napier.logaddexp(x, y), np.logaddexp(x, y), rtol=1e-15, atol=1e-15)
    assert np.array_equal(napier.logaddexp(x, y), napier.logaddexp(y, x))
    assert np.array_equal(napier.logaddexp(x, y), napier.logsumexp(np.stack([x, y]), axis=0))
    assert napier.logaddexp(np.float32(x[:, None]), y[:3]).shape == (200, 3)
    assert napier.logaddexp(np.float32(x), np.float16(y)).dtype == np.float32 and napier.logaddexp(1, 2).dtype == np.float64
    special = np.array([-np.inf, np.inf, np.nan, 0.0])
    with np.errstate(invalid="ignore"):
        for a in special:
            assert np.array_equal(napier.logaddexp(a, special), np.logaddexp(a, special), equal_nan=True)
    assert np.allclose(np.exp(napier.logaddexp(1 + 1j, 2 - 3j)), np.exp(1 + 1j) + np.exp(2 - 3j))
    the_same_everywhere(lambda: napier.logaddexp(np.float32(x), np.float32(y)))
    with pytest.raises(ValueError, match=r"x2: shape \(3,\) does not broadcast"):
        napier.logaddexp(x, y[:3])


def test_logcumsumexp():
    x = normal(3, 40, 2, dtype=np.float32) * 5
    for axis in (0, 1, -1):
        want = np.logaddexp.accumulate(x.astype(np.float64), axis)
        assert np.allclose(napier.logcumsumexp(x, axis), want, rtol=1e-7, atol=1e-7)
        assert np.allclose(napier.logcumsumexp(x, axis, dtype="float64"), want, rtol=1e-14, atol=1e-13)
    one = napier.logcumsumexp([-np.inf, 0.0, 0.0, np.inf, np.nan, 1.0])
    assert np.array_equal(one, [-np.inf, 0.0, math.log(2), np.inf, np.nan, np.nan], equal_nan=True)
    x, g = normal(50), normal(50, seed=1)
    lse = np.logaddexp.accumulate(x)
    share = np.where(np.tri(50, dtype=bool), np.exp(x[None, :] - lse[:, None]), 0)
    assert np.allclose(napier.logcumsumexp_backward(x, g), g @ share, rtol=1e-13)
    assert np.allclose(napier.logcumsumexp_tangent(x, g), share @ g, rtol=1e-13)
    for call, kind, text in (
        (lambda: napier.logcumsumexp(x, None), TypeError, "axis: expected an integer, got None"),
        (lambda: napier.logcumsumexp(x, 1), IndexError, "axis: 1 is out of range"),
        (lambda: napier.logcumsumexp(x, temperature=0.0), ValueError, "temperature 0"),
        (lambda: napier.logcumsumexp_backward(x, g[1:]), ValueError, "grad_lse: its shape"),
    ):
        with pytest.raises(kind, match=text):
            call()


# ---- entmax ------------------------------------------------------------------------------------------------------------------


def exact_entmax15(z):
    """alpha = 1.5 in rational arithmetic but for the threshold, which is halved to 200 bits."""
    half = [fractions.Fraction(float(v)) / 2 for v in z]
    low, high = max(half) - 1, max(half)
    for _ in range(200):
        middle = (low + high) / 2
        total = sum((v - middle) ** 2 for v in half if v > middle)
        low, high = (middle, high) if total > 1 else (low, middle)
    return [float(max(v - low, 0) ** 2) for v in half]


def test_entmax():
    for seed, scale in ((0, 1.0), (1, 0.1), (2, 10.0), (3, 1e-3)):
        z = scale * normal(12, seed=seed)
        assert np.allclose(napier.entmax(z), exact_entmax15(z), rtol=0, atol=4e-15)
        assert np.allclose(napier.entmax(z + 1e3), napier.entmax(z), atol=1e-12)
    assert np.array_equal(napier.entmax(z, alpha=1), napier.softmax(z))
    assert np.array_equal(napier.entmax(z, alpha=2), napier.sparsemax(z))
    for alpha in (1.0001, 1.25, 1.499999, 3.0):
        p = napier.entmax(normal(7, 5), alpha=alpha)
        assert np.allclose(p.sum(-1), 1, atol=1e-14)
        tau = (alpha - 1) * normal(7, 5) - p ** (alpha - 1)  # the same where p > 0, and not more elsewhere
        assert np.allclose(np.where(p > 0, tau, tau.max(-1, keepdims=True)), tau.max(-1, keepdims=True), atol=1e-9)
    assert np.abs(napier.entmax(normal(5), alpha=1.0001) - napier.softmax(normal(5))).max() < 1e-3
    assert np.abs(napier.entmax(normal(5), alpha=1.499999) - napier.entmax(normal(5))).max() < 1e-5
    assert np.allclose(napier.entmax(normal(5), temperature=0.5), napier.entmax(2 * normal(5)), atol=1e-15)


def test_entmax_of_shapes_and_special_rows():
    x = normal(2, 3, 4)
    assert np.array_equal(napier.entmax(x, (0, 2)).transpose(1, 0, 2).reshape(3, 8), napier.entmax(x.transpose(1, 0, 2).reshape(3, 8)))
    assert np.array_equal(napier.entmax(x, None).ravel(), napier.entmax(x.ravel()))
    assert napier.entmax(np.zeros((0, 3))).shape == (0, 3) and napier.entmax(np.zeros((3, 0))).shape == (3, 0)
    assert napier.entmax(3.0) == 1 and napier.entmax([1, 2]).dtype == np.float64
    assert napier.entmax(np.float16([1, 2])).dtype == np.float16
    assert np.isnan(napier.entmax([[np.nan, 1.0], [np.inf, 1.0], [-np.inf, -np.inf]])).all()
    assert np.array_equal(napier.entmax([[-np.inf, 5.0]]), [[0, 1]])
    assert np.array_equal(napier.entmax([[1e308, -1e308]]), [[1, 0]])
    for alpha in (1.5, 1.3):
        the_same_everywhere(lambda: napier.entmax(normal(5, 70, dtype=np.float32), alpha=alpha))
    for call, text in (
        (lambda: napier.entmax(x, alpha=0.5), "alpha: 0.5"),
        (lambda: napier.entmax(x, temperature=0), "temperature: 0"),
        (lambda: napier.entmax(x, masked_rows="one"), "masked_rows: 'one'"),
    ):
        with pytest.raises(ValueError, match=text):
            call()
    with pytest.raises(TypeError, match="alpha: expected a number, got '1.5'"):
        napier.entmax(x, alpha="1.5")


# ---- gumbel_softmax ----------------------------------------------------------------------------------------------------------


def test_gumbel_softmax():
    x = normal(20000, 3) * 0 + np.log([0.2, 0.3, 0.5])
    hard = napier.gumbel_softmax(x, hard=True, rng=7)
    assert set(np.unique(hard)) == {0, 1} and (hard.sum(-1) == 1).all()
    assert np.abs(hard.mean(0) - [0.2, 0.3, 0.5]).max() < 0.02, "the choices have the softmax's probabilities"
    noise = normal(4, 3, seed=2)
    assert np.array_equal(napier.gumbel_softmax(x[:4], 0.5, noise=noise), napier.softmax(x[:4] + noise, temperature=0.5))
    assert np.array_equal(napier.gumbel_softmax(x, 0.5, rng=7).argmax(-1), hard.argmax(-1))
    assert napier.gumbel_softmax(np.float32(x), axis=0, rng=np.random.default_rng(1)).dtype == np.float32
    the_same_everywhere(lambda: napier.gumbel_softmax(np.float32(x[:300]), rng=3))
    for call, text in (
        (lambda: napier.gumbel_softmax(x, 0.0), "tau: 0.0 is not"),
        (lambda: napier.gumbel_softmax(x, noise=noise), "noise: shape"),
    ):
        with pytest.raises(ValueError, match=text):
            call()


# ---- Arrays of other libraries, wrong arguments --------------------------------------------------------------------------------


class Elsewhere:
    """An array on a CUDA device, such as CuPy's: it must not be asked for its elements."""

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, **_):
        raise AssertionError("asked")


class OnRocm(Elsewhere):
    def __dlpack_device__(self):
        return 10, 0


class Foreign:
    """An array of another library: with DLPack, and a namespace by the array API's standard."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __array_namespace__(self):
        return Namespace


class Namespace:
    from_dlpack = staticmethod(lambda x: Foreign(np.from_dlpack(x)))
    asarray = staticmethod(lambda x: Foreign(np.asarray(x)))


def test_arrays_of_other_libraries():
    x = normal(2, 3)
    for call in (
        napier.softmax,
        napier.log_softmax,
        napier.sparsemax,
        napier.entmax,
        napier.logcumsumexp,
        lambda x: napier.logsumexp(x),
        lambda x: napier.logsumexp(x, axis=(0, 1)),
        lambda x: napier.softmax(x, (0, 1)),
        lambda x: napier.softmax(x, mask=[1, 1, 0]),
        lambda x: napier.softmax_backward(x, x),
        lambda x: napier.logsumexp(x, b=[1, 2, 3]),
        lambda x: napier.logaddexp(x, x),
        lambda x: napier.swiglu(x, x),
        lambda x: napier.cross_entropy(x, [0, 1]),
        lambda x: napier.gumbel_softmax(x, rng=1),
    ):
        y = call(Foreign(x))
        assert isinstance(y, Foreign) and np.array_equal(y.array, call(x))
    pair = napier.logsumexp(Foreign(x), axis=1, return_sign=True)
    assert all(isinstance(y, Foreign) for y in pair)
    jnp = pytest.importorskip("jax.numpy")
    y = napier.softmax(jnp.asarray(x, "float32"))
    assert isinstance(y, type(jnp.zeros(1))) and np.array_equal(np.asarray(y), napier.softmax(np.float32(x)))
    assert napier.softmax(jnp.asarray(x, "bfloat16")).dtype == jnp.bfloat16


def test_arrays_on_another_device_are_refused_by_name():
    x, there = normal(2, 3), Elsewhere()
    for name, call in (
        ("x", napier.softmax),
        ("a", napier.logsumexp),
        ("x", napier.entmax),
        ("x", napier.logcumsumexp),
        ("x1", lambda d: napier.logaddexp(d, 1.0)),
        ("q", lambda d: napier.attention(d, d, d)),
        ("out", lambda d: napier.softmax(x, out=d)),
        ("mask", lambda d: napier.softmax(x, mask=d)),
        ("x", lambda d: napier.softmax(d, mask=[1])),
        ("input", lambda d: napier.cross_entropy(d, [0])),
    ):
        with pytest.raises(
            NotImplementedError,
            match=rf"^{name}: the array \(test_choices.Elsewhere\) is on CUDA device 0, .* this build of "
            r"napier computes on the CPU only: .* \(copy it to the CPU\)$",
        ):
            call(there)
    with pytest.raises(NotImplementedError, match=r"^x: the array \(test_choices.OnRocm\) is on a device of DLPack's type 10, and napier"):
        napier.softmax(OnRocm())


def test_wrong_arguments_are_named():
    x, z, heads = normal(2, 3), np.array([1j]), np.zeros((1, 2, 3, 4), np.float32)
    for call, kind, text in (
        (lambda: napier.logsumexp(z, b="a"), TypeError, "b: expected numbers"),
        (lambda: napier.logsumexp(z, b=object()), TypeError, "b: expected numbers"),
        (lambda: napier.logsumexp(z, b=[[1], [1, 2]]), ValueError, "b: not an array"),
        (lambda: napier.logsumexp(z, temperature="1"), TypeError, "temperature: expected a number, got '1'"),
        (lambda: napier.softmax(x, axis=(0, (1,))), TypeError, r"axis: .* got \(0, \(1,\)\)"),
        (lambda: napier.logsumexp(x, axis=(0, (1,))), TypeError, r"axis: .* got \(0, \(1,\)\)"),
        (lambda: napier.attention(None, heads, heads), TypeError, "q: expected numbers"),
        (lambda: napier.attention(heads, heads, heads, mask="a"), TypeError, "mask: expected numbers"),
        (lambda: napier.attention(heads, heads, heads, scale="a"), TypeError, "scale: expected a number, got 'a'"),
        (lambda: napier.logaddexp("a", 1), TypeError, "x1: expected numbers"),
        (lambda: napier.entmax(None), TypeError, "x: expected numbers"),
        (lambda: napier.entmax(x, temperature="a"), TypeError, "temperature: expected a number"),
        (lambda: napier.cross_entropy(None, [1]), TypeError, "input: expected numbers"),
        (lambda: napier.cross_entropy(x, None), TypeError, "target: expected numbers"),
        (lambda: napier.cross_entropy(x, [0, 1], label_smoothing="a"), TypeError, "label_smoothing: expected"),
        (lambda: napier.gumbel_softmax(x, "a"), TypeError, "tau: expected a number"),
        (lambda: napier.gumbel_softmax(x, rng="a"), TypeError, "rng: expected a numpy.random.Generator"),
    ):
        with pytest.raises(kind, match=text):
            call()


# ---- cross_entropy -----------------------------------------------------------------------------------------------------------


def test_cross_entropy():
    x, y, w = 3 * normal(6, 5, 2), np.random.default_rng(1).integers(0, 5, (6, 2)), np.array([0.5, 1.0, 2.0, 0.0, 1.5])
    y[0, 1] = -100
    logp = x - np.log(np.exp(x).sum(1, keepdims=True))
    each = -np.take_along_axis(logp, np.where(y < 0, 0, y)[:, None], 1)[:, 0] * (y >= 0)
    assert np.allclose(napier.cross_entropy(x, y, reduction="none"), each, atol=1e-14)
    assert np.isclose(napier.cross_entropy(x, y), each.sum() / (y >= 0).sum(), rtol=1e-14)
    weights = np.where(y < 0, 0, w[np.maximum(y, 0)])
    assert np.isclose(napier.cross_entropy(x, y, w), (each * weights).sum() / weights.sum(), rtol=1e-14)
    smooth = -(logp * w[None, :, None]).sum(1) * (y >= 0)
    assert np.isclose(
        napier.cross_entropy(x, y, w, label_smoothing=0.2, reduction="sum"), (0.8 * each * weights + 0.2 / 5 * smooth).sum(), rtol=1e-14
    )
    q = napier.softmax(normal(6, 5, 2, seed=3), 1)
    soft = -(q * logp * w[None, :, None]).sum(1)
    assert np.allclose(napier.cross_entropy(x, q, w, reduction="none"), soft, atol=1e-14)
    assert np.isclose(napier.cross_entropy(x, q, w), soft.mean(), rtol=1e-14), "the mean over targets, as in PyTorch"
    assert np.isclose(napier.cross_entropy(x[0, :, 0], y[0, 0]), each[0, 0], rtol=1e-14)
    assert napier.cross_entropy(np.float16(x), y).dtype == np.float16
    assert np.isnan(napier.cross_entropy(x, np.full((6, 2), -100)))
    assert napier.cross_entropy([0.0, -np.inf], [1.0, 0.0]) == 0, "no probability, no loss"
    the_same_everywhere(lambda: napier.cross_entropy(np.float32(x), y, w, label_smoothing=0.1))


def test_wrong_arguments_of_cross_entropy():
    x, y = normal(4, 3), np.array([0, 1, 2, 1])
    for call, kind, text in (
        (lambda: napier.cross_entropy(x, y + 1), IndexError, r"target: 3 is not in 0 \.\. 2"),
        (lambda: napier.cross_entropy(x, y[:2]), ValueError, r"target: shape \(2,\) is not \(4,\)"),
        (lambda: napier.cross_entropy(x, y * 1.0), ValueError, r"target: shape \(4,\) is not \(4, 3\)"),
        (lambda: napier.cross_entropy(x, y, np.ones(4)), ValueError, r"weight: shape \(4,\) is not \(3,\)"),
        (lambda: napier.cross_entropy(x, y, reduction="max"), ValueError, "reduction: 'max'"),
        (lambda: napier.cross_entropy(x, y, label_smoothing=2), ValueError, "label_smoothing: 2"),
        (lambda: napier.cross_entropy(x, y > 0), TypeError, "target: expected class indices"),
        (lambda: napier.cross_entropy(3.0, 1), ValueError, "input: expected at least 1"),
    ):
        with pytest.raises(kind, match=text):
            call()


def test_floats_of_eight_bits_may_have_no_infinity():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for kind in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
        x = np.array([1.0, 2.0, 3.0]).astype(kind)
        assert napier.softmax(x, mask=[1, 1, 0]).tolist() == napier.softmax(np.array([1, 2, -np.inf], np.float32)).tolist()
        assert napier.entmax(x).dtype == np.float32 and napier.cross_entropy(x, 1).dtype == np.float32


def test_choices_that_are_refused():
    with pytest.raises(TypeError, match="axis: None"):
        napier.gumbel_softmax(np.zeros((2, 3)), hard=True, axis=None)
    assert napier.gumbel_softmax(np.zeros((3, 0)), hard=True).shape == (3, 0)
    with pytest.raises(TypeError, match="weight: expected real"):
        napier.cross_entropy(np.zeros((1, 2)), [0], np.ones(2, complex))
