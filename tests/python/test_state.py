"""napier.SoftmaxState: whatever the split, the bits of the one call."""

import concurrent.futures
import copy
import pickle
import threading

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import napier
from conftest import BF16, bits, refuses

DTYPES = [np.float16, BF16, np.float32, np.float64]


def parts_of(x, cuts, dtype, **options):
    edges = [0, *sorted(cuts), len(x)]
    parts = []
    for a, b in zip(edges, edges[1:]):
        parts.append(napier.SoftmaxState(dtype, a, **options).update(x[a:b]))
    return parts


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_split_and_merge(dtype, rng):
    x = (4 * rng.standard_normal(5000)).astype(dtype)
    compute = "float64" if dtype is np.float64 else "float32"
    whole = napier.SoftmaxState(compute).update(x)
    lse = whole.finish()
    assert np.float64(lse).astype(dtype) == napier.logsumexp(x)
    parts = parts_of(x, [1, 1000, 1024, 3333], compute)
    for i in (3, 1, 0, 2):  # neighbours only: 3 and 4, 1 and 2, then the rest
        into, other = {3: (3, 4), 1: (1, 2), 0: (0, 1), 2: (0, 3)}[i]
        assert parts[into].merge(parts[other]) is parts[into]
    assert parts[0].count == 5000 and parts[0].first_index == 0
    assert parts[0].finish() == lse
    for kind, function in (("softmax", napier.softmax), ("log_softmax", napier.log_softmax)):
        want = function(x)
        assert bits(parts[0].apply(x, kind)) == bits(want)
        assert bits(parts[0].apply(x[77:2000], kind)) == bits(want[77:2000])
        out = np.empty_like(x)
        assert parts[0].apply(x, kind, out=out) is out and bits(out) == bits(want)
        assert bits(parts[0].apply(x[::-3], kind)) == bits(want[::-3])


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 6000), st.lists(st.integers(0, 6000), max_size=6), st.integers(0, 2**32))
def test_random_cuts(n, cuts, seed):
    x = np.random.default_rng(seed).standard_normal(n).astype(np.float32)
    parts = parts_of(x, [min(c, n) for c in cuts], "float32", temperature=0.7)
    total = parts[0]
    for part in parts[1:]:
        total.merge(pickle.loads(pickle.dumps(part)))
    total.finish()
    assert bits(total.apply(x)) == bits(napier.softmax(x, temperature=0.7))


def test_bytes_and_copies(rng):
    s = napier.SoftmaxState("float64", 7, temperature=2.0).update(rng.standard_normal(3000))
    for t in (pickle.loads(pickle.dumps(s)), copy.copy(s), copy.deepcopy(s), napier.SoftmaxState.from_bytes(s.to_bytes())):
        assert type(t) is napier.SoftmaxState and (t.first_index, t.count) == (7, 3000)
        assert t.to_bytes() == s.to_bytes() and t.finish() == s.finish()
    data = s.to_bytes()
    for wrong in (b"", data[:-1], data + b"x", b"x" * 100, data[:50] + bytes([data[50] ^ 1]) + data[51:]):
        refuses(lambda: napier.SoftmaxState.from_bytes(wrong), ValueError, "from_bytes")
    refuses(lambda: napier.SoftmaxState.from_bytes("text"), TypeError)
    assert napier.SoftmaxState.from_bytes(bytearray(data)).count == 3000


def test_errors():
    s = napier.SoftmaxState()
    assert s.count == 0 and s.finish() == -np.inf
    with pytest.raises(ValueError, match="apply"):  # it grew: not finished
        s.update(np.ones(3, np.float32)).apply(np.ones(3, np.float32))
    refuses(lambda: s.update(np.ones(3)), ValueError, "update")
    assert s.count == 3
    for refused in [
        (lambda: s.update(np.ones((2, 2), np.float32)), ValueError, "^block: expected 1 dimension"),
        (lambda: s.merge(3), TypeError, "^other: expected a SoftmaxState"),
        (lambda: s.merge(napier.SoftmaxState(first_index=10).update(np.ones(2, np.float32))), ValueError, "merge"),
        (lambda: napier.SoftmaxState("float64").merge(s), ValueError, "merge"),
        (lambda: s.apply([1.0], kind="max"), ValueError, "^kind: 'max' is not one of 'softmax'"),
        (lambda: s.apply([[1.0]]), ValueError, "^logits: expected 1 dimension"),
        (lambda: napier.SoftmaxState("int8"), TypeError, "^dtype: 'int8'"),
        (lambda: napier.SoftmaxState("float16"), ValueError, "SoftmaxState"),
        (lambda: napier.SoftmaxState(first_index=-1), ValueError, "first_index"),
        (lambda: napier.SoftmaxState(temperature=0), ValueError, "temperature"),
        (lambda: napier.SoftmaxState(masked_rows="none"), ValueError, "^masked_rows"),
        (lambda: napier.SoftmaxState(colour=1), TypeError, "'colour'"),
        (lambda: napier.SoftmaxState(1, 2, 3), TypeError, "positional"),
        (lambda: napier.SoftmaxState(*range(9)), TypeError, "arguments"),
    ]:
        refuses(*refused)
    assert s.finish() == pytest.approx(1 + np.log(3))


def test_masked_rows():
    x = np.full(3, -np.inf, np.float32)
    for masked, want in (("nan", np.nan), ("zero", 0.0)):
        s = napier.SoftmaxState(masked_rows=masked).update(x)
        assert s.finish() == -np.inf
        np.testing.assert_array_equal(s.apply(x), np.full(3, want))


def test_one_state_from_many_threads(rng):
    """Work on a state runs without the GIL: calls on the same state wait for each other."""
    a, b = napier.SoftmaxState(), napier.SoftmaxState(first_index=1024 * 64)
    blocks = [np.full(1024, k, np.float32) for k in range(64)]

    def work(k):
        (a if k % 2 else b).update(blocks[k])
        a.to_bytes()
        return a.count + b.count

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(64)))
    c, d = copy.copy(a), copy.copy(b)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:  # crosswise: no deadlock
        both = [pool.submit(c.merge, d), pool.submit(d.merge, c)]
        assert [x.exception() for x in both].count(None) >= 1
    assert a.merge(b).finish() == napier.logsumexp(np.concatenate(blocks))
    assert a.count == 64 * 1024


def test_the_gil_is_released():
    """Another thread counts on while a state takes in a long block."""
    block, counts, done = np.zeros(1 << 25, np.float32), [0], threading.Event()

    def count():
        while not done.is_set():
            counts[0] += 1

    thread = threading.Thread(target=count)
    state = napier.SoftmaxState()
    thread.start()
    before = counts[0]
    state.update(block)
    after = counts[0]
    done.set()
    thread.join()
    assert after - before > 100


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_weighted(dtype, rng):
    x, b = (4 * rng.standard_normal(5000)).astype(dtype), rng.standard_normal(5000).astype(dtype)
    compute = "float64" if dtype is np.float64 else "float32"
    want = napier.logsumexp(x.astype(compute), b=b.astype(compute), return_sign=True)
    parts = [
        napier.SoftmaxState(compute, first, weighted=True).update(x[first:end], b[first:end])
        for first, end in ((0, 1), (1, 1500), (1500, 1501), (1501, 5000))
    ]
    parts[2].merge(pickle.loads(pickle.dumps(parts[3])))
    parts[0].merge(parts[1]).merge(parts[2])
    assert parts[0].finish(return_sign=True) == (float(want[0]), float(want[1]))
    alone = parts[0].finish()
    assert np.isnan(alone) if want[1] < 0 else alone == float(want[0])
    assert len(parts[2].to_bytes()) > len(napier.SoftmaxState(compute, 1500).update(x[1500:]).to_bytes())


def test_weights_where_they_do_not_belong():
    x = np.ones(3, np.float32)
    weighted, plain = napier.SoftmaxState(weighted=True), napier.SoftmaxState()
    refuses(lambda: weighted.update(x), ValueError, "needs weights")
    refuses(lambda: plain.update(x, x), ValueError, "takes no weights")
    refuses(lambda: weighted.update(x, x[:2]), ValueError, "weights: size 2")
    refuses(lambda: weighted.update(x, "abc"), (TypeError, ValueError), "weights")
    refuses(lambda: weighted.update(x, x).merge(plain.update(x)), ValueError, "weighted")
    weighted.finish()
    refuses(lambda: weighted.apply(x), ValueError, "weighted")
    assert plain.finish(return_sign=True)[1] == 1.0
    assert weighted.update(weights=-2 * x, block=x).finish(return_sign=True)[1] == -1.0
