"""softmax, log_softmax, logsumexp and their gradients against SciPy, over shapes, dtypes, axes, layouts and special values."""

import array
import ctypes
import itertools
import multiprocessing
import warnings

import numpy as np
import pytest
import scipy.special
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp

import napier
from conftest import BF16, FLOATS, TOLERANCE, bits, layouts, refuses, slope

MAPS = [(napier.softmax, scipy.special.softmax), (napier.log_softmax, scipy.special.log_softmax)]
both = pytest.mark.parametrize("ours, theirs", MAPS, ids=["softmax", "log_softmax"])
every_dtype = pytest.mark.parametrize("dtype", FLOATS, ids=str)


def assert_close(got, want, dtype):
    tolerance = TOLERANCE[np.dtype(dtype)]
    np.testing.assert_allclose(np.asarray(got, np.float64), want, rtol=tolerance, atol=tolerance)


@both
@every_dtype
@pytest.mark.parametrize("shape", [(1,), (7,), (3, 5), (2, 3, 4), (2, 1, 3, 5), (4, 0), (0, 4), (0,), (2, 3000)], ids=str)
def test_every_axis(ours, theirs, dtype, shape, rng):
    x = (3 * rng.standard_normal(shape)).astype(dtype)
    for axis in range(-len(shape), len(shape)):
        y = ours(x, axis)
        assert y.dtype == dtype and y.shape == shape and type(y) is np.ndarray
        if x.size:
            assert_close(y, theirs(x.astype(np.float64), axis=axis), dtype)


@both
@every_dtype
def test_layouts_have_the_same_bits(ours, theirs, dtype, rng):
    x = rng.standard_normal((3, 4, 5)).astype(dtype)
    for axis in range(3):
        want = bits(ours(x, axis))
        for name, y in layouts(x):
            assert bits(ours(y, axis)) == want, name


@both
def test_other_numbers_become_float64(ours, theirs):
    for x in (
        [[1, 2], [3, 5]],
        [1.5, 2.0],
        (True, False),
        np.arange(6, dtype=np.uint8).reshape(2, 3),
        np.array([True, False]),
        np.arange(3, dtype=np.longdouble),
        np.arange(4, dtype=">i2"),
        range(3),
    ):
        y = ours(x)
        assert y.dtype == np.float64
        assert_close(y, theirs(np.asarray(x, np.float64), axis=-1), np.float64)


@both
def test_integers_that_lose_digits(ours, theirs):
    """Times in nanoseconds, in which float64 keeps 256."""
    for x in (np.arange(3) + 16 * 10**17, np.array([2**64 - 1, 2**64 - 3], np.uint64), [2**53 + 1, 0]):
        with pytest.warns(UserWarning, match=r"^[ax]: integers beyond 2\*\*53"):
            ours(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours(np.array([2**60, -(2**63), 5]))


@both
def test_numbers(ours, theirs):
    for x in (3.0, 3, np.float32(3), np.float64(3), np.array(3.0), np.array(3.0, np.float16)):
        y = ours(x)
        assert np.ndim(y) == 0 and y == theirs(np.array([3.0]))[0]
    assert isinstance(ours(np.float32(3)), np.float32)


@both
def test_kinds_of_array(ours, theirs, tmp_path):
    x = np.array([[1.0, 2.0], [3.0, 5.0]])
    want = theirs(x, axis=-1)
    file = np.memmap(tmp_path / "x", np.float64, "w+", shape=x.shape)
    file[:] = x
    for y in (x.view(np.matrix), file, memoryview(x)):
        assert_close(ours(y), want, np.float64)
        assert type(ours(y)) is np.ndarray
    assert_close(ours(bytearray([1, 2, 3])), theirs(np.array([1.0, 2.0, 3.0])), np.float64)
    refuses(lambda: ours(np.ma.masked_array([1.0, 2.0], [True, False])), TypeError, "x: masked")


def nested(kind, x):
    """x as ctypes' array of arrays."""
    return kind(x) if np.ndim(x) == 0 else (type(nested(kind, x[0])) * len(x))(*(nested(kind, y) for y in x))


@both
def test_buffers_without_strides(ours, theirs):
    """ctypes' arrays, and so multiprocessing's, have a shape and a byte order in their format, but no strides."""
    x = np.array([[[1.0, 2.0, 5.0], [0.5, -1.0, 3.0]]] * 2)
    x[1] += np.arange(3)
    for kind, dtype in ((ctypes.c_float, np.float32), (ctypes.c_double, np.float64)):
        for y in (x[0, 0], x[0], x):
            given = nested(kind, y.tolist())
            for axis in range(y.ndim):
                for view in (given, memoryview(given)):
                    assert bits(ours(view, axis)) == bits(ours(y.astype(dtype), axis))
        assert ours(kind(3.0)) == ours(dtype(3.0)) and ours((kind * 0)()).shape == (0,)
        out = (kind * 3)()
        assert ours(x[0, 0], out=out) is out and bits(np.array(list(out), dtype)) == bits(ours(x[0, 0], dtype=dtype))
    raw = multiprocessing.RawArray("f", [1, 2, 3])
    assert bits(ours(raw)) == bits(ours(multiprocessing.Array("f", [1, 2, 3]).get_obj())) == bits(ours(np.float32([1, 2, 3])))


@both
def test_buffers_of_every_sort(ours, theirs):
    want = bits(ours(np.float32([1, 2, 3])))
    floats = array.array("f", [3, 9, 2, 9, 1])
    for y in (
        array.array("f", [1, 2, 3]),
        memoryview(floats)[::-2],
        memoryview(array.array("f", [1, 2, 3])).cast("B").cast("f"),
        (ctypes.c_float.__ctype_be__ * 3)(1, 2, 3),
        (ctypes.c_float.__ctype_le__ * 3)(1, 2, 3),
        np.array([1, 2, 3], ">f4"),
        np.array([1, 2, 3], "<f4"),
        np.array([1, 2, 3], "=f4"),
    ):
        assert bits(ours(y)) == want, y
    assert ours(memoryview(floats).cast("B").cast("f", [1, 5])).shape == (1, 5) and ours(memoryview(ctypes.c_float(3))) == ours(3.0)
    for whole in (bytearray([1, 2, 3]), array.array("i", [1, 2, 3]), (ctypes.c_int * 3)(1, 2, 3), (ctypes.c_uint8 * 3)(1, 2, 3)):
        assert bits(ours(whole)) == bits(ours([1.0, 2.0, 3.0]))
    packed = np.zeros(3, [("x", np.uint8), ("y", np.float32), ("z", BF16)])  # unaligned, and no whole steps apart
    packed["y"] = packed["z"] = [1, 2, 3]
    assert bits(ours(packed["y"])) == want and bits(ours(packed["z"])) == bits(ours(np.array([1, 2, 3], BF16)))

    class Record(ctypes.Structure):
        _fields_ = [("x", ctypes.c_float)]

    for y, text in (
        (b"abc", "dtype .S3"),
        (array.array("u", "abc"), "dtype <U1"),
        ((ctypes.c_char * 3)(), "dtype .S1"),
        ((Record * 3)(), "dtype .*x"),
        (np.zeros(3, "V0"), "dtype .V0"),
    ):
        refuses(lambda: ours(y), TypeError, "^x: expected numbers, got an array of " + text)
    for out, kind, text in (
        (bytes(12), TypeError, "bytes"),
        (memoryview(bytes(12)).cast("f"), ValueError, "read-only"),
        ((ctypes.c_float.__ctype_be__ * 3)(), TypeError, "c_float_be_Array_3"),
        ((ctypes.c_int * 3)(), TypeError, "c_int_Array_3"),
        (packed["y"], TypeError, "float32"),
        (packed["z"], ValueError, "bfloat16"),
    ):
        refuses(lambda: ours([1.0, 2.0, 3.0], out=out), kind, "^out: .*" + text)


def test_buffers_of_ids_and_masks():
    x = np.float32([[1, 2, 3], [4, 5, 7]])
    want = bits(napier.gather_logprobs(x, [2, 0]))
    for kind in (ctypes.c_int8, ctypes.c_uint8, ctypes.c_int16, ctypes.c_int32, ctypes.c_uint32, ctypes.c_int64, ctypes.c_long):
        assert bits(napier.gather_logprobs(x, (kind * 2)(2, 0))) == want, kind
    given = nested(ctypes.c_float, x.tolist())
    assert bits(napier.gather_logprobs(given, [2, 0])) == want and bits(napier.matmul(given, x.T)) == bits(napier.matmul(x, x.T))
    assert napier.SoftmaxState().update(given[1]).finish() == napier.SoftmaxState().update(x[1]).finish()
    kl = napier.kl_per_response(x[0], x[1], [0, 3], mask=[1, 0, 1])
    for kind in (ctypes.c_bool, ctypes.c_uint8, ctypes.c_int):
        assert napier.kl_per_response(given[0], given[1], [0, 3], mask=(kind * 3)(1, 0, 1)) == kl
    assert napier.kl_per_response(x[0], x[1], [0, 3], mask=memoryview(b"\1\1\0\1\1")[::2]) == kl


@both
def test_all_elements(ours, theirs, rng):
    """axis=None, as in SciPy."""
    for shape in [(), (5,), (3, 4), (2, 3, 4), (2, 1, 700), (0, 3)]:
        for dtype in FLOATS:
            x = np.array(3 * rng.standard_normal(shape), dtype)
            want = ours(x.ravel()).reshape(shape)
            if x.size:
                assert_close(want, theirs(x.astype(np.float64), axis=None), dtype)
            for name, y in layouts(x):
                for got in (ours(y, None), ours(y, axis=None)):
                    assert got.dtype == dtype and got.shape == y.shape and bits(got) == bits(want), name
            for name, out in layouts(x.copy()):
                if out.shape == shape and out.flags.writeable and out.flags.aligned and out.dtype == dtype:
                    assert ours(x, None, out=out) is out and bits(out) == bits(want), name
                    out[...] = x
                    assert ours(out, None, out=out) is out and bits(out) == bits(want), name
    x = np.array([[1.0, 5.0], [2.0, 3.0]], np.float32)
    for y in (x, x.T):
        assert bits(ours(y, None, temperature=2.0, dtype="float64", algorithm="online")) == bits(
            ours(y.ravel(), temperature=2.0, dtype="float64")
        )
        assert ours(np.full_like(y, -np.inf), None, masked_rows="zero").max() <= 0
        refuses(lambda: ours(y, None, out=np.zeros(4, np.float32)), ValueError, "^out: its shape")
    assert ours([[1.0, 2.0], [3.0, 4.0]], None).shape == (2, 2) and bits(ours(x)) == bits(ours(x, -1))
    assert bits(napier.safe_softmax(x, None)) == bits(napier.softmax(x, None))


@both
def test_out_and_dtype(ours, theirs):
    x, out = np.float32([1, 2, 3]), np.zeros(3)
    refuses(lambda: ours(x, out=out, dtype=np.float32), ValueError, "^dtype: float32 is not the dtype of out, float64")
    assert not out.any() and ours(x, out=out, dtype="float64") is out and bits(out) == bits(ours(x, dtype="float64"))
    with pytest.raises(ValueError, match="^dtype: float32 is not the dtype of out, float64"):
        napier.SoftmaxState().update(x).apply(x, dtype="float32", out=out)


@both
def test_64_dimensions(ours, theirs, rng):
    shape = [1] * 64
    for d in (0, 31, 62, 63):
        shape[d] = 3
    x = rng.standard_normal(shape)
    for axis in (0, 1, 31, 63, -1, -64):
        assert_close(ours(x, axis), theirs(x, axis=axis), np.float64)


@both
def test_special_values(ours, theirs):
    inf, nan = np.inf, np.nan
    rows = np.array(list(itertools.product([0.0, -1.5, 1000.0, -inf], repeat=3)))
    rows = rows[~np.all(np.isneginf(rows), axis=1)]
    assert_close(ours(rows), theirs(rows, axis=-1), np.float64)
    assert np.isnan(ours(np.array([[nan, 0.0], [-inf, -inf], [nan, inf]]))).all()
    masked = ours(np.array([[-inf, -inf], [0.0, 0.0]]), masked_rows="zero")
    assert masked[0].tolist() == ([0.0, 0.0] if ours is napier.softmax else [-inf, -inf]) and not np.isnan(masked).any()


@both
def test_a_logit_over_the_temperature_overflows(ours, theirs, recwarn):
    for dtype, big in (("float32", 3e38), ("float64", 1.5e308)):
        x = np.array([[1, 2], [big, big / 3]], dtype)
        with pytest.warns(RuntimeWarning, match="temperature overflows.*float64"):
            assert np.isnan(ours(x.T, 0, temperature=0.5)).tolist() == [[False, True]] * 2
    x = np.array([3e38, 1e38], "float32")
    assert_close(ours(x, temperature=0.5, dtype="float64"), theirs(x.astype("float64") / 0.5), np.float32)
    for row in ([np.inf, 1], [np.nan, 1], [1, 2]):
        ours(np.float32(row), temperature=0.5)
    assert not recwarn.list


@both
def test_temperature_and_dtype(ours, theirs, rng):
    x = rng.standard_normal((4, 9)).astype(np.float32)
    assert_close(ours(x, temperature=0.5), theirs(x.astype(np.float64) / 0.5, axis=-1), np.float32)
    names = [
        ("float16", np.float16),
        ("f4", np.float32),
        (np.float64, np.float64),
        (np.dtype("f8"), np.float64),
        (BF16, BF16),
        ("bfloat16", BF16),
        (float, np.float64),
    ]
    for name, dtype in names:
        y = ours(x, dtype=name)
        assert y.dtype == dtype
        assert_close(y, theirs(x.astype(np.float64), axis=-1), dtype)


@both
@every_dtype
def test_out(ours, theirs, dtype, rng):
    x = rng.standard_normal((3, 4, 5)).astype(dtype)
    for axis in (0, 1, 2):
        want = bits(ours(x, axis))
        for out in (np.empty_like(x), np.empty((5, 4, 3), dtype).T, np.empty((3, 4, 10), dtype)[..., ::2]):
            assert ours(x, axis, out=out) is out
            assert bits(out) == want
        y = x.copy()
        assert ours(y, axis, out=y) is y and bits(y) == want
        view = np.zeros((3, 8, 5), dtype)[:, ::2]
        view[...] = x
        ours(view, axis, out=view)
        assert bits(view) == want


@both
def test_out_that_cannot_be(ours, theirs):
    x = np.zeros((3, 4))
    read_only = np.zeros((3, 4))
    read_only.flags.writeable = False
    refuses(lambda: ours(x, out=read_only), ValueError, "^out: .*read-only")
    refuses(lambda: ours(x, out=np.zeros((4, 3))), ValueError, "^out: its shape")
    for wrong in (np.zeros((3, 4), int), [[0.0] * 4] * 3, np.zeros((3, 4), ">f8"), np.zeros((3, 4), complex)):
        refuses(lambda: ours(x, out=wrong), TypeError, "^out: expected an array of float32")
    memory = np.zeros((4, 5, 6))
    for part, shifted in ((memory[:3, :4], memory[1:, :4]), (memory[:3], memory[1:]), (memory[:3, :4], memory[:3, 1:])):
        refuses(lambda: ours(part, out=shifted), ValueError, "overlap")


@both
def test_errors_name_the_argument(ours, theirs):
    for refused in [
        (lambda: ours([1j, 2.0]), TypeError, "^x: complex"),
        (lambda: ours(np.zeros(2, np.complex64)), TypeError, "^x: complex"),
        (lambda: ours(["a"]), TypeError, "^x: expected numbers"),
        (lambda: ours(None), TypeError, "^x: expected numbers"),
        (lambda: ours([[1.0], [1.0, 2.0]]), ValueError, "^x: not an array"),
        (lambda: ours(np.array(["2000"], "M8[Y]")), TypeError, "^x: "),
        (lambda: ours([1.0], 1), IndexError, "^axis: 1 is out of range"),
        (lambda: ours([[1.0]], axis=-3), IndexError, "^axis: -3"),
        (lambda: ours([1.0], axis="0"), TypeError, "^axis: expected an integer"),
        (lambda: ours([1.0], axis=2**80), TypeError, "^axis: expected an integer"),
        (lambda: ours([1.0], temperature=0), ValueError, "temperature"),
        (lambda: ours([], temperature=-1), ValueError, "temperature"),
        (lambda: ours([1.0], temperature="hot"), TypeError, "^temperature: expected a number"),
        (lambda: ours([1.0], algorithm="fast"), ValueError, "^algorithm: 'fast' is not one of 'auto', 'safe'"),
        (lambda: ours([1.0], masked_rows=0), ValueError, "^masked_rows: 0 is not one of"),
        (lambda: ours([1.0], dtype="int32"), TypeError, "^dtype: 'int32' is not float32"),
        (lambda: ours([1.0], colour=1), TypeError, "unexpected keyword argument 'colour'"),
        (lambda: ours([1.0], x=1), TypeError, "multiple values for argument 'x'"),
        (lambda: ours(), TypeError, "missing required argument 'x'"),
        (lambda: ours([1.0], 0, 1.0), TypeError, "takes 2 positional arguments"),
    ]:
        refuses(*refused)


@both
def test_algorithms_have_the_same_bits(ours, theirs, rng):
    x = rng.standard_normal((3, 5000)).astype(np.float32)
    assert len({bits(ours(x, algorithm=name)) for name in ("auto", "safe", "online", "parallel")}) == 1
    if ours is napier.softmax:
        for alias in (napier.safe_softmax, napier.online_softmax, napier.reduce_softmax):
            assert bits(alias(x, 0)) == bits(ours(x, 0))


def shapes_and_axes():
    return hnp.array_shapes(min_dims=1, max_dims=5, min_side=1, max_side=9).flatmap(
        lambda shape: st.tuples(st.just(shape), st.integers(-len(shape), len(shape) - 1))
    )


@settings(max_examples=150, deadline=None)
@given(st.data(), shapes_and_axes(), st.sampled_from([np.float16, np.float32, np.float64]))
def test_random_arrays(data, shape_and_axis, dtype):
    shape, axis = shape_and_axis
    big = float(np.finfo(dtype).max) / 4
    width = np.dtype(dtype).itemsize * 8
    elements = st.one_of(st.floats(-50, 50, width=width), st.sampled_from([0.0, -0.0, big, -big, -np.inf]))
    x = data.draw(hnp.arrays(dtype, shape, elements=elements))
    order = data.draw(st.permutations(range(x.ndim)))
    y = x.transpose(order)
    wide = y.astype(np.float64)
    dead = np.all(np.isneginf(wide), axis=axis, keepdims=True)
    with np.errstate(invalid="ignore"):
        for ours, theirs in MAPS:
            want = np.where(dead, np.nan, theirs(wide, axis=axis))
            got = ours(y, axis)
            if ours is napier.log_softmax and dtype is np.float16:
                want = np.where(want < -65504, -np.inf, want)
                got = np.where(got < -65000, -np.inf, got)
                want = np.where(want < -65000, -np.inf, want)
            assert_close(got, want, dtype)
        lse = scipy.special.logsumexp(wide, axis=axis)
    if np.abs(lse[np.isfinite(lse)]).max(initial=0) < big:
        assert_close(napier.logsumexp(y, axis), lse, dtype)


@every_dtype
def test_logsumexp(dtype, rng):
    x = (3 * rng.standard_normal((2, 3, 4, 5))).astype(dtype)
    wide = x.astype(np.float64)
    axes = [None, 0, 1, -1, (0,), (1, 2), (3, 0), (-1, -2), (0, 1, 2, 3), (2, 0, 3), np.int64(2)]
    for axis, keepdims in itertools.product(axes, (False, True)):
        y = napier.logsumexp(x, axis, keepdims=keepdims)
        want = scipy.special.logsumexp(wide, axis=axis, keepdims=keepdims)
        assert y.shape == want.shape and y.dtype == dtype
        assert_close(y, want, dtype)
    for name, y in layouts(x):
        assert bits(napier.logsumexp(y, 1)) == bits(napier.logsumexp(x, 1)), name
        assert bits(napier.logsumexp(y, (0, 2))) == bits(napier.logsumexp(x, (0, 2))), name


def test_logsumexp_of_special_things():
    assert napier.logsumexp([]) == -np.inf
    assert napier.logsumexp(np.zeros((3, 0)), axis=1).tolist() == [-np.inf] * 3
    assert napier.logsumexp(np.zeros((3, 0)), axis=0).shape == (0,)
    assert napier.logsumexp(np.zeros((0, 3)), axis=(0, 1)) == -np.inf
    assert napier.logsumexp(5) == 5 and napier.logsumexp(5.0, axis=0) == 5
    assert napier.logsumexp(np.array([[1.0, 2.0]]).view(np.matrix)) == napier.logsumexp([1.0, 2.0])
    assert napier.logsumexp([np.inf, -np.inf]) == np.inf and np.isnan(napier.logsumexp([np.nan, np.inf]))
    assert isinstance(napier.logsumexp(np.ones(3, np.float32)), np.float32)
    assert napier.logsumexp(np.ones(3, np.float32), dtype="float64").dtype == np.float64
    x = np.array([1.0, 3.0])
    assert napier.logsumexp(x, temperature=2.0) == pytest.approx(scipy.special.logsumexp(x / 2))
    assert napier.logsumexp_all([[1.0, 2.0], [3.0, 4.0]]) == napier.logsumexp([1.0, 2.0, 3.0, 4.0])
    for refused in [
        (lambda: napier.logsumexp([1.0], axis=1), IndexError, "^axis: 1"),
        (lambda: napier.logsumexp([[1.0]], axis=(0, 2)), IndexError, "^axis: 2"),
        (lambda: napier.logsumexp([[1.0]], axis=(0, -2)), ValueError, "^axis: .*twice"),
        (lambda: napier.logsumexp([[1.0]], axis=1.5), TypeError, "^axis: expected an int"),
        (lambda: napier.logsumexp([[1.0], [1.0, 2.0]]), ValueError, "^a: not an array"),
        (lambda: napier.logsumexp([1.0, 2.0], b=[1.0, 2.0, 3.0]), ValueError, "^b: shape .3,. does not broadcast"),
        (lambda: napier.logsumexp([1.0], b=np.ma.masked_array([1.0], [True])), TypeError, "^b: masked"),
        (lambda: napier.logsumexp(np.ma.masked_array([1.0], [True])), TypeError, "^a: masked"),
        (lambda: napier.logsumexp([1.0], temperature=np.nan), ValueError, "temperature"),
    ]:
        refuses(*refused)


@settings(max_examples=120, deadline=None)
@given(st.data(), hnp.array_shapes(max_dims=4, max_side=5), st.sampled_from([np.float32, np.float64]), st.booleans(), st.booleans())
def test_weights(data, shape, dtype, keepdims, return_sign):
    """scipy.special.logsumexp's b and return_sign, over shapes, axes and what broadcasts."""
    a = data.draw(hnp.arrays(dtype, shape, elements=st.floats(-50, 50, width=32)))
    of = data.draw(st.sampled_from([np.float64, np.float32, np.int64, np.bool_]))
    some = tuple(n if data.draw(st.booleans()) else 1 for n in shape)[data.draw(st.integers(0, len(shape))) :]
    weights = st.floats(-4, 4, width=32).filter(lambda x: x == 0 or abs(x) > 1e-3)
    b = data.draw(hnp.arrays(np.float32, some, elements=weights)).astype(of)
    axis = data.draw(st.none() | st.integers(-len(shape), len(shape) - 1) | st.sets(st.integers(0, len(shape) - 1), min_size=1).map(tuple))
    ours = napier.logsumexp(a, axis, b, keepdims, return_sign)
    theirs = scipy.special.logsumexp(a, axis, b, keepdims, return_sign)
    wide, b64 = np.asarray(a, np.float64), np.asarray(b, np.float64)
    reach = scipy.special.logsumexp(wide, axis, np.abs(b64), keepdims)  # what cancels is right beside this
    lse, sign = scipy.special.logsumexp(wide, axis, b64, keepdims, True)
    sure = lse > reach - 3
    if return_sign:
        np.testing.assert_array_equal(ours[1][sure], sign[sure])
        ours, theirs = ours[0], theirs[0]
    else:
        assert (np.isnan(ours) == (sign < 0))[sure].all()
        lse = np.where(sign < 0, np.nan, lse)
    assert ours.shape == np.shape(theirs) and ours.dtype == theirs.dtype
    tolerance = 1e-12 if ours.dtype == np.float64 else 2e-5
    np.testing.assert_allclose(ours[sure], lse[sure], rtol=tolerance, atol=tolerance)


@every_dtype
def test_weights_of_one_and_zero(dtype, rng):
    x = (3 * rng.standard_normal((4, 1500))).astype(dtype)
    keep = rng.random((4, 1500)) < 0.7
    dropped = x.copy()
    dropped[~keep] = -np.inf
    x[~keep] = rng.choice(np.array([np.inf, np.nan, 5.0]), (~keep).sum()).astype(dtype)
    for axis in (0, 1, None):
        assert bits(napier.logsumexp(x, axis, keep.astype(dtype))) == bits(napier.logsumexp(dropped, axis))
        assert bits(napier.logsumexp(dropped, axis, 1)) == bits(napier.logsumexp(dropped, axis))
    lse, sign = napier.logsumexp(dropped, 1, return_sign=True)
    assert bits(lse) == bits(napier.logsumexp(dropped, 1)) and (sign == 1).all() and sign.dtype == dtype
    lse, sign = napier.logsumexp([[1.0, 1.0], [2.0, 1.0]], 1, [[1, -1], [-3, 1]], return_sign=True)
    assert lse[0] == -np.inf and sign.tolist() == [0, -1]
    assert np.isnan(napier.logsumexp([1.0], b=[-1])) and napier.logsumexp([], b=[]) == -np.inf


class OnlyDlpack:
    """What another library's array may be: DLPack and nothing else."""

    def __init__(self, x):
        self._x = x

    def __dlpack__(self, **options):
        return self._x.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._x.__dlpack_device__()


def test_what_has_dlpack_only(rng):
    a, b = rng.standard_normal((2, 3, 4)), rng.standard_normal((3, 1))
    for of_a, of_b in ((OnlyDlpack(a), b), (a, OnlyDlpack(b)), (OnlyDlpack(a), OnlyDlpack(b)), (OnlyDlpack(a), 2), (OnlyDlpack(a), None)):
        weights = b if of_b is not None and not isinstance(of_b, int) else of_b
        for axis in (None, 1, (0, 2)):
            assert bits(napier.logsumexp(of_a, axis, of_b)) == bits(napier.logsumexp(a, axis, weights))
            for got, want in zip(
                napier.logsumexp(of_a, axis, of_b, return_sign=True), napier.logsumexp(a, axis, weights, return_sign=True), strict=True
            ):
                assert bits(got) == bits(want)
    integers = np.arange(6).reshape(2, 3)
    for x in (a, a.T, integers, integers.T):
        assert bits(napier.softmax(OnlyDlpack(x), None)) == bits(napier.softmax(x, None))
        assert bits(napier.softmax(OnlyDlpack(x))) == bits(napier.softmax(x))


def central_difference(f, x, grad):
    """The vector-Jacobian product of f at x with grad."""
    return slope(lambda z: np.sum(f(z) * grad), x, 1e-6)


def test_gradients(rng):
    x = rng.standard_normal((3, 4, 2))
    grad = rng.standard_normal(x.shape)
    for axis in range(3):
        for t in (1.0, 0.7):
            got = napier.softmax_backward(napier.softmax(x, axis, temperature=t), grad, axis, temperature=t)
            want = central_difference(lambda z: scipy.special.softmax(z / t, axis), x, grad)
            np.testing.assert_allclose(got, want, atol=1e-8)
            got = napier.log_softmax_backward(napier.log_softmax(x, axis, temperature=t), grad, axis, temperature=t)
            want = central_difference(lambda z: scipy.special.log_softmax(z / t, axis), x, grad)
            np.testing.assert_allclose(got, want, atol=1e-8)
            one = grad.take(0, axis)
            got = napier.logsumexp_backward(x, one, axis, temperature=t)
            want = central_difference(lambda z: scipy.special.logsumexp(z / t, axis), x, one)
            np.testing.assert_allclose(got, want, atol=1e-8)
    for t in (1.0, 0.7):  # all elements, of arrays with and without gaps
        for y, g in ((x, grad), (x.transpose(2, 0, 1), grad.transpose(2, 0, 1)), (x[:, ::2], grad[:, ::2])):
            for map_, backward, of in (
                (napier.softmax, napier.softmax_backward, scipy.special.softmax),
                (napier.log_softmax, napier.log_softmax_backward, scipy.special.log_softmax),
            ):
                want = central_difference(lambda z: of(z / t, axis=None), y, g)
                result = map_(y, None, temperature=t)
                np.testing.assert_allclose(backward(result, g, None, temperature=t), want, atol=1e-8)
                for out in (np.empty(y.shape), np.empty((*y.shape, 2))[..., 1]):
                    assert backward(result, g, axis=None, temperature=t, out=out) is out
                    np.testing.assert_allclose(out, want, atol=1e-8)
            for one in (2.0, np.float64(2), [2.0], np.full((1, 1), 2.0)):
                got = napier.logsumexp_backward(y, one, None, temperature=t)
                np.testing.assert_allclose(got, 2 * scipy.special.softmax(y / t) / t, atol=1e-8)
                assert got.shape == y.shape
    got = napier.logsumexp_all_backward(x[0], 2.0, temperature=0.5)
    np.testing.assert_allclose(got, 2 * central_difference(lambda z: scipy.special.logsumexp(z / 0.5), x[0], 1.0), atol=1e-8)


@every_dtype
def test_gradients_of_every_dtype(dtype, rng):
    x = rng.standard_normal((3, 8)).astype(dtype)
    grad = rng.standard_normal((3, 8)).astype(dtype)
    p = napier.softmax(x)
    wide_p, wide_grad = p.astype(np.float64), grad.astype(np.float64)
    want = wide_p * (wide_grad - (wide_p * wide_grad).sum(1, keepdims=True))
    got = napier.softmax_backward(p, grad)
    assert got.dtype == dtype
    assert_close(got, want, dtype)
    assert napier.softmax_backward(p, grad, out=grad) is grad and bits(grad) == bits(got)
    one = napier.logsumexp_backward(x, np.ones(3, dtype))
    assert_close(one, p.astype(np.float64), dtype)


def test_errors_of_gradients():
    x = np.ones((2, 3))
    for call, text in [
        (lambda: napier.softmax_backward(x, x.T), "^grad_probs: its shape"),
        (lambda: napier.log_softmax_backward(x, x[0]), "^grad_logprobs: its shape"),
        (lambda: napier.logsumexp_backward(x, np.ones(3)), "^grad_lse: its shape"),
        (lambda: napier.logsumexp_backward(x, np.ones(2), None), "^grad_lse: expected 1 element, as axis is None"),
        (lambda: napier.logsumexp_all_backward(x, np.ones(3)), "^grad_lse: expected 1 element"),
        (lambda: napier.logsumexp_all_backward(np.ones((1, 1, 1)), 1.0), "^x: expected 1 or 2 dimensions"),
    ]:
        refuses(call, ValueError, text)


def test_dim_is_called_axis():
    """Every function that has an axis says so to who writes PyTorch's word for it."""
    import inspect

    have_axis = 0
    for name in napier.__all__:
        function = getattr(napier, name)
        if not callable(function) or inspect.isclass(function):
            continue
        try:
            names = inspect.signature(function).parameters
        except ValueError:
            continue
        if "axis" in names:
            have_axis += 1
            with pytest.raises(TypeError, match=r"'dim': it is called axis"):
                function(*[[1.0]] * sum(p.default is p.empty and p.kind != p.VAR_KEYWORD for p in names.values()), dim=0)
    assert have_axis >= 10
