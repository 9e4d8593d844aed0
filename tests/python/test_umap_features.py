"""What napier.UMAP takes over from umap-learn, continued: its rarer metrics, strings and bits as data, lists of epochs,
inverses by gradients, and functions that have the same bits on every machine."""

import math
import os

import numpy as np
import pytest
import scipy.sparse
from sklearn.datasets import load_digits

from conftest import bits, refuses, run_python
from napier import UMAP, umap
from napier._umap import elementary, targets


@pytest.fixture(scope="module")
def digits():
    return load_digits(return_X_y=True)


# ---- Metrics --------------------------------------------------------------------------------------------------------


def test_weighted_minkowski(rng):
    x, weights = rng.normal(size=(80, 6)), np.array([0, 1, 2, 0.5, 3, 1.0])
    for p in (1, 1.5, 2, 3):
        found = umap.nearest_neighbors(x, 8, "wminkowski", {"w": weights, "p": p})
        scaled = umap.nearest_neighbors(x * weights ** (1 / p), 8, "minkowski", {"p": p})
        assert (found[0] == scaled[0]).all() and np.allclose(found[1], scaled[1], rtol=1e-5)
    mapper = UMAP(metric="weighted_minkowski", metric_kwds={"w": weights, "p": 3}, n_epochs=20).fit(x)
    assert np.abs(mapper.model_.transform(x) - umap.model_from_bytes(mapper.model_.to_bytes()).transform(x)).max() == 0
    refuses(lambda: UMAP(metric="wminkowski", metric_kwds={"w": -weights, "p": 3}).fit(x), ValueError, "weight 1")
    refuses(lambda: UMAP(metric="poincare").fit(x), ValueError, "poincare")


@pytest.mark.parametrize("metric", ["poincare", "symmetric_kl", "ll_dirichlet", "softmax_hellinger"])
def test_rare_metrics_make_maps(digits, metric):
    x, y = digits[0][:400] + 0, digits[1][:400]
    x = x / {"poincare": 200, "softmax_hellinger": 4}.get(metric, 1)
    mapper = UMAP(metric=metric, n_epochs=150).fit(x[:300])
    assert umap.quality_of(x[:300], mapper.embedding_, y[:300], 5, metric).knn_accuracy > 0.8
    new = mapper.transform(x[300:])
    near = np.argmin(((new[:, None] - mapper.embedding_) ** 2).sum(2), axis=1)
    assert (y[near] == y[300:]).mean() > 0.8


def test_strings():
    words = [a + b + c for a in ("cat", "horse", "mouse") for b in ("", "s", "es", "ing", "ed") for c in ("", "!", "?", "-y")]
    mapper = UMAP(metric="string", n_neighbors=8, n_epochs=100).fit(words)
    known = np.array([[targets.edit_distance(a, b, 99) for b in words] for a in words])
    indices, distances = mapper._knn_indices, mapper._knn_dists
    assert (distances == known[np.arange(len(words))[:, None], indices]).all()
    assert (distances == np.sort(known, axis=1)[:, :8]).all()
    assert bits(mapper.transform(np.array(words))) == bits(mapper.embedding_)
    long = mapper.transform(["catz", "a" * 500])
    assert np.isfinite(long).all() and np.abs(long[0] - mapper.embedding_[:20].mean(axis=0)).max() < 4
    mapper = UMAP(metric="string", metric_kwds={"max_distance": 2, "normalisation": 4.0}, n_neighbors=60, n_epochs=5).fit(words)
    assert mapper._knn_dists.max() == 0.5
    assert len(mapper.update(["dog", "dogs"]).embedding_) == len(words) + 2
    refuses(lambda: UMAP(metric="string").fit([1, 2, 3]), ValueError, "strings")
    refuses(lambda: mapper.inverse_transform(mapper.embedding_), ValueError, "inverse_transform")


def test_packed_bits(rng):
    bytes_ = rng.integers(0, 256, size=(60, 4)).astype(np.uint8)
    wide = np.unpackbits(bytes_, axis=1)
    for packed, plain in (("bit_hamming", "manhattan"), ("bit_jaccard", "jaccard")):
        mapper = UMAP(metric=packed, n_epochs=20).fit(bytes_)
        assert bits(mapper.embedding_) == bits(UMAP(metric=plain, n_epochs=20).fit_transform(wide))
        assert bits(mapper.transform(bytes_)) == bits(mapper.embedding_)
    refuses(lambda: UMAP(metric="bit_jaccard").fit(bytes_ * 1000.0), ValueError, "bytes")


# ---- Epochs ---------------------------------------------------------------------------------------------------------


def test_lists_of_epochs(digits):
    x = digits[0][:200]
    mapper = UMAP(n_epochs=[0, 10, 50, 20, 50]).fit(x)
    assert len(mapper.embedding_list_) == 4 and bits(mapper.embedding_list_[-1]) == bits(mapper.embedding_)
    assert bits(mapper.embedding_) == bits(UMAP(n_epochs=50).fit_transform(x))
    assert bits(mapper.embedding_list_[0]) == bits(UMAP(n_epochs=0).fit_transform(x))
    assert len({bits(y) for y in mapper.embedding_list_}) == 4
    again = UMAP(n_epochs=(0, 10, 20, 50), n_jobs=3).fit(x)
    assert [bits(y) for y in again.embedding_list_] == [bits(y) for y in mapper.embedding_list_]
    twice = UMAP(n_epochs=[5, 10], unique=True).fit(np.vstack([x, x]))
    assert [len(y) for y in twice.embedding_list_] == [400, 400]
    round_ = UMAP(n_epochs=[5, 10], output_metric="haversine").fit(x)
    assert len(round_.embedding_list_) == 2 and bits(round_.embedding_list_[1]) == bits(round_.embedding_)
    assert bits(round_.embedding_) == bits(UMAP(n_epochs=10, output_metric="haversine").fit_transform(x))
    assert not hasattr(mapper.set_params(n_epochs=5).fit(x), "embedding_list_")


@pytest.mark.parametrize("epochs", [[10], (10, 10), np.array([10]), np.array([5, 10]), [0], np.array([0, 0])])
def test_a_list_of_epochs_always_gives_a_list_of_maps(digits, epochs):
    x = digits[0][:80]
    mapper = UMAP(n_epochs=epochs).fit(x)
    assert len(mapper.embedding_list_) == len(set(np.asarray(epochs).tolist()))
    assert bits(mapper.embedding_list_[-1]) == bits(mapper.embedding_) == bits(UMAP(n_epochs=max(epochs)).fit_transform(x))
    single = UMAP(n_epochs=epochs).fit(x[:1])
    assert len(single.embedding_list_) == len(mapper.embedding_list_)
    assert len((mapper + mapper).embedding_list_) == len(mapper.embedding_list_)
    refuses(lambda: UMAP(n_epochs=np.array(10)).fit(x), ValueError, "n_epochs: expected an integer, got array")


# ---- Inverses -------------------------------------------------------------------------------------------------------


def test_inverse_of_sparse_data(digits):
    x = digits[0][:300]
    dense, sparse = UMAP(n_epochs=50).fit(x), UMAP(n_epochs=50).fit(scipy.sparse.csr_matrix(x))
    assert bits(dense.embedding_) == bits(sparse.embedding_)
    for method in ("mean", "gradient"):
        back, other = dense.inverse_transform(dense.embedding_[:9], method), sparse.inverse_transform(dense.embedding_[:9], method)
        assert scipy.sparse.issparse(other) and np.allclose(back, other.toarray(), atol=1e-3)
    wide = scipy.sparse.random(300, 20000, 0.01, "csr", random_state=1)
    mapper = UMAP(n_epochs=20).fit(wide)
    back = mapper.inverse_transform(mapper.embedding_)
    assert back.shape == (300, 20000) and back.nnz < 300 * 20000 / 4
    near = np.asarray(back[:20].multiply(wide[:20]).sum(axis=1)) / np.asarray(back[:20].multiply(wide[50:70]).sum(axis=1) + 1e-9)
    assert np.median(near) > 2  # it contains the row itself


@pytest.mark.parametrize(
    "metric",
    [
        "euclidean",
        "manhattan",
        "chebyshev",
        "minkowski",
        "seuclidean",
        "canberra",
        "braycurtis",
        "cosine",
        "correlation",
        "hellinger",
        "symmetric_kl",
    ],
)
def test_inverse_by_gradients(digits, metric):
    x = digits[0][:300] + (0.5 if metric in ("canberra", "symmetric_kl") else 0)
    x = x[:, x.std(axis=0) > 0.5]
    mapper = UMAP(metric=metric, metric_kwds={"p": 3} if metric == "minkowski" else None, n_epochs=100).fit(x)
    points = mapper.embedding_[:12]
    mean, back = mapper.inverse_transform(points), mapper.inverse_transform(points, "gradient")
    assert np.isfinite(back).all() and bits(back) != bits(mean)
    scale = np.sqrt(((x - x.mean(axis=0)) ** 2).sum(axis=1).mean())
    assert np.sqrt(((back - x[:12]) ** 2).sum(axis=1).mean()) < 1.5 * scale  # of the data's size
    one = mapper.inverse_transform(points[3:4], "gradient")
    assert bits(one[0]) == bits(back[3])  # each row by itself


def test_inverse_that_cannot_be(digits):
    x = digits[0][:60]
    mapper = UMAP(metric="dice", n_epochs=5).fit(x > 7)
    assert mapper.inverse_transform(mapper.embedding_[:2]).shape == (2, 64)
    refuses(lambda: mapper.inverse_transform(mapper.embedding_, "gradient"), ValueError, "no gradient")
    refuses(lambda: mapper.inverse_transform(mapper.embedding_, "median"), ValueError, "method")

    def plain(a, b):
        return float(np.abs(a - b).sum())

    def steep(a, b):
        return float(np.abs(a - b).sum()), np.sign(a - b)

    mapper = UMAP(metric=plain, n_epochs=5).fit(x[:20])
    refuses(lambda: mapper.inverse_transform(mapper.embedding_, "gradient"), ValueError, "gradient")
    mapper = UMAP(metric=steep, n_epochs=5).fit(x[:20])
    named = UMAP(metric="manhattan", n_epochs=5).fit(x[:20])
    assert bits(mapper.embedding_) == bits(named.embedding_)
    same = mapper.inverse_transform(named.embedding_, "gradient"), named.inverse_transform(named.embedding_, "gradient")
    assert np.allclose(*same, atol=1e-2)


# ---- Neighbours and attributes --------------------------------------------------------------------------------------


def test_what_umap_learn_keeps(digits):
    x = digits[0][:100]
    mapper = UMAP(n_epochs=5, unique=True, densmap=True).fit(np.vstack([x, x[:10]]))
    assert (mapper._unique_inverse_[100:] == np.arange(10)).all()
    assert mapper._disconnection_distance == np.inf and mapper._small_data and mapper._initial_alpha == 1.0
    assert mapper._metric_kwds == mapper._target_metric_kwds == mapper._output_metric_kwds == {}
    assert mapper._densmap_kwds["lambda"] == 2.0 and mapper._densmap_kwds["graph_dists"].shape == (100, 100)
    assert mapper._knn_search_index is None and len(mapper._input_hash) == 32
    assert UMAP(metric="dice", n_epochs=5).fit(x)._disconnection_distance == 1.0
    knn = umap.nearest_neighbors(x, 20)
    with pytest.warns(UserWarning, match="different number of samples"):
        UMAP(n_epochs=5, precomputed_knn=knn).fit(x[:50])
    refuses(lambda: UMAP(precomputed_knn=(knn[0].tolist(), knn[1])).fit(x), ValueError, "precomputed_knn")


def test_gaussian_maps(digits):
    x, y = digits[0][:200], digits[1][:200]
    for metric, columns in (("spherical_gaussian_energy", 3), ("diagonal_gaussian_energy", 4), ("gaussian_energy", 5)):
        mapper = UMAP(output_metric=metric, n_components=columns, n_epochs=100).fit(x)
        assert mapper.embedding_.shape == (200, columns) and np.isfinite(mapper.embedding_).all()
        assert umap.quality_of(x, np.ascontiguousarray(mapper.embedding_[:, :2]), y, 5).knn_accuracy > 0.7
        refuses(lambda metric=metric: UMAP(output_metric=metric).fit(x), ValueError, "components")


# ---- Bits -----------------------------------------------------------------------------------------------------------


def test_elementary_functions(rng):
    def close(got, exact, ulps=4):
        exact = np.array(exact)
        assert (np.abs(got - exact) <= ulps * np.spacing(np.abs(exact))).all()

    x = rng.uniform(0.1, 1, 2000) * 10.0 ** rng.integers(-300, 300, 2000)
    close(elementary.log(x), [math.log(v) for v in x])
    z = rng.uniform(-740, 709, 2000)
    close(elementary.exp(z), [math.exp(v) for v in z])
    z = rng.uniform(0, 1, 2000)
    close(elementary.arcsin(z), [math.asin(v) for v in z], 8)
    z = rng.uniform(-1e5, 1e5, 2000)
    assert np.abs(elementary.sin(z) - [math.sin(v) for v in z]).max() < 4e-16
    assert np.abs(elementary.cos(z) - [math.cos(v) for v in z]).max() < 4e-16
    close(elementary.power(x**0.1, 1.79), [math.exp(1.79 * math.log(v)) for v in x**0.1], 400)
    assert np.isneginf(elementary.log(0.0)) and np.isposinf(elementary.log(np.inf)) and np.isnan(elementary.log(-1.0))
    assert elementary.exp(-1e9) == 0 and elementary.exp(0.0) == 1 and np.isposinf(elementary.exp(1e9))


_MAPS = """
import hashlib, napier, numpy as np, sys
from napier import UMAP
napier.set_isa(sys.argv[1])
napier.set_num_threads(int(sys.argv[2]))
x = np.random.Generator(np.random.Philox(1)).integers(0, 16, size=(60, 12)).astype(np.float32)
made = hashlib.sha256()
for metric, columns in (("haversine", 2), ("hyperboloid", 2), ("gaussian_energy", 5), ("minkowski", 2), ("correlation", 3)):
    mapper = UMAP(output_metric=metric, n_components=columns, n_epochs=8).fit(x)
    made.update(mapper.embedding_.tobytes())
    made.update(mapper.transform(x[:9] + 0.25).tobytes())
for metric in ("euclidean", "cosine", "mahalanobis", "symmetric_kl", "softmax_hellinger"):
    mapper = UMAP(metric=metric, metric_kwds={"VI": np.eye(12)} if metric == "mahalanobis" else None, n_epochs=12).fit(x)
    made.update(mapper.inverse_transform(mapper.embedding_[:9], "gradient").tobytes())
print(made.hexdigest())
"""


def test_bits_of_maps_made_with_numpy():
    """They do not depend on NumPy's instruction sets, the library's, or threads."""
    old = "AVX2 FMA3 AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR X86_V3 X86_V4"  # names of NumPy's
    plain = run_python("-c", _MAPS, "auto", 1)
    assert run_python("-W", "ignore", "-c", _MAPS, "scalar", 3, env=os.environ | {"NPY_DISABLE_CPU_FEATURES": old}) == plain
