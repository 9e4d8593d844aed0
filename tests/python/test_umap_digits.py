"""Maps of data whose numbers are far from 0, or very small: float32 must not lose the digits in which rows differ."""

import warnings

import numpy as np
import pytest

import napier
from napier.umap import Model, fit, nearest_neighbors, nearest_neighbors_of, pca_layout, quality_of

METRICS = ("euclidean", "manhattan", "chebyshev", "minkowski", "seuclidean", "mahalanobis", "correlation")


def groups(n=300, seed=0):
    """Six groups on a line, as integers times 2^-10, so that a sum with 1e9 is exact."""
    draw = np.random.default_rng(seed)
    x = draw.standard_normal((n, 10)) + 10 * draw.integers(0, 6, n)[:, None] * draw.standard_normal((1, 10))
    return np.round(x * 1024) / 1024


def edges(model):
    return set(zip(*model.graph_.nonzero(), strict=True))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("offset", [1e5, 1e7, 1e9])
def test_an_offset_keeps_the_neighbours(metric, offset):
    x = groups()
    kwds = {"p": 3} if metric == "minkowski" else None
    moved = nearest_neighbors(x + offset, 15, metric, kwds)
    for have, want in zip(moved, nearest_neighbors(x, 15, metric, kwds), strict=True):
        assert (have == want).mean() > 0.99 if have.dtype == np.int32 else np.allclose(have, want, rtol=1e-4, atol=1e-6)
    of = nearest_neighbors_of(x + offset, x[:20] + offset, 5, metric, kwds)[0]
    assert (of == nearest_neighbors_of(x, x[:20], 5, metric, kwds)[0]).mean() > 0.97


def test_an_offset_keeps_the_map():
    x, new = groups(), groups(40, 1)
    plain, moved = (napier.UMAP(n_epochs=20).fit(x + o) for o in (0, 1e9))
    assert len(edges(plain) & edges(moved)) > 0.99 * len(edges(plain))
    assert quality_of(x + 1e9, plain.embedding_)[:2] == quality_of(x, plain.embedding_)[:2]
    assert (moved.transform(x + 1e9) == moved.embedding_).all()  # each of its own place
    model = fit(x + 1e9, n_epochs=20)
    read = Model.from_bytes(model.to_bytes())
    assert (read.transform(new + 1e9) == model.transform(new + 1e9)).all()
    places = model.embedding[nearest_neighbors_of(x, new, 1)[0][:, 0]]  # of the nearest row; the map is some 20 wide
    assert np.median(abs(model.transform(new + 1e9) - places)) < 0.5
    assert abs(read.inverse_transform(model.embedding[:9]) - 1e9).max() < 300
    assert np.allclose(pca_layout(x + 1e9), pca_layout(x), atol=1e-2)


def test_the_data_of_a_correlation_are_moved_back():
    x = groups() + np.arange(10.0)
    model = fit(x + 1e9, n_epochs=5, metric="correlation")
    assert abs(Model.from_bytes(model.to_bytes()).inverse_transform(model.embedding[:9]) - 1e9).max() < 300


def test_numbers_of_float32_keep_their_bits():
    x = (groups() + 4096).astype(np.float32)  # far from 0, and exact
    wide = fit(x.astype(np.float64), n_epochs=5)
    assert wide.to_bytes() == fit(x, n_epochs=5).to_bytes()
    assert fit(groups() / 3, n_epochs=5).to_bytes()[8] == 1  # not far from 0: no offsets in the file
    assert fit(groups() / 3 + 1e9, n_epochs=5).to_bytes()[8] == 3


@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_times_in_nanoseconds(dtype):
    x = np.round(groups() * 1e9).astype(np.int64)
    plain, moved = (napier.UMAP(n_epochs=5).fit((x + o).astype(dtype)) for o in (0, 1_700_000_000 * 10**9))
    assert len(edges(plain) & edges(moved)) > 0.99 * len(edges(plain))


@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "chebyshev", "seuclidean", "mahalanobis", "braycurtis"])
@pytest.mark.parametrize("size", [1e-23, 1e-34, 1e-60])
def test_small_numbers(metric, size):
    x = np.abs(groups())
    plain, small = (napier.UMAP(n_epochs=20, metric=metric).fit(x * s) for s in (1.0, size))
    assert len(edges(plain) & edges(small)) > 0.99 * len(edges(plain))
    if size > 1e-30:
        model, whole = fit((x * size).astype(np.float32), metric=metric, n_epochs=5), fit(x, metric=metric, n_epochs=5)
        assert quality_of(x, model.embedding).trustworthiness > quality_of(x, whole.embedding).trustworthiness - 0.02
        assert np.ptp(model.transform((x[:30] * size).astype(np.float32)), axis=0).min() > 0


def test_a_warning_where_digits_are_lost():
    x = np.vstack([groups() + 1e9, np.zeros((1, 10))])  # the row of zeros makes the range wide
    for call in (lambda: nearest_neighbors(x), lambda: fit(x, n_epochs=1), lambda: napier.UMAP(n_epochs=1).fit(x)):
        with pytest.warns(UserWarning, match=r"X: \d+ of 301 rows .*at distance 0") as caught:
            call()
        assert len(caught) == 1
    for fine in (x[:-1], np.repeat(groups(20), 20, axis=0)):  # and equal rows are not lost
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fit(fine, n_epochs=1)


def test_a_warning_of_integers_that_float64_does_not_hold():
    x = (groups() * 64).astype(np.int64)
    for dtype in (np.int64, np.uint64):
        far = x.astype(dtype) + np.array(1_700_000_000 * 10**9 + 5, dtype)
        for call in (nearest_neighbors, lambda x: fit(x, n_epochs=1), napier.UMAP(n_epochs=1).fit):
            with pytest.warns(UserWarning, match="X: column 0 has integers beyond") as caught:
                call(far)
            assert sum("integers" in str(w.message) for w in caught) == 1
    for fine in (x, x << 50, x * 10**10 + 17 * 10**17, np.broadcast_to(x[:1] + 2**53 + 1, (9, 10))):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            nearest_neighbors(fine, 9)


def test_a_warning_of_stored_values_that_float32_does_not_hold():
    import scipy.sparse

    x = groups()
    sparse = scipy.sparse.random(300, 10, 0.4, random_state=0, format="csr")
    far = sparse.copy()
    far.data += 1e7
    for call in (nearest_neighbors, lambda x: fit(x, n_epochs=1), napier.UMAP(n_epochs=1).fit):
        for shifted in (scipy.sparse.csr_matrix(x + 1e9), far):
            with pytest.warns(UserWarning, match=r"X: stored values .* X.toarray\(\)") as caught:
                call(shifted)
            assert sum("stored" in str(w.message) for w in caught) == 1
    for fine in (sparse, scipy.sparse.csr_matrix(x), far.astype(np.float32), far > 0):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            nearest_neighbors(fine)


def test_targets_far_from_zero():
    x, y = groups(), groups()[:, 0]
    plain, moved = (napier.UMAP(n_epochs=5, target_metric="l2").fit(x, y + o) for o in (0, 1e9))
    assert len(edges(plain) & edges(moved)) > 0.99 * len(edges(plain))
