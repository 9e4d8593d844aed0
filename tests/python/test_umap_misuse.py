"""Input that is nearly right: taken where it is clear what is meant, else a warning or an error that says what is wrong."""

import warnings

import numpy as np
import pytest

import napier
from napier.umap import fit, fuzzy_simplicial_set, nearest_neighbors


def rows(n=120, columns=6, seed=0):
    draw = np.random.default_rng(seed)
    return draw.standard_normal((n, columns)) + 6 * draw.integers(0, 3, n)[:, None]


def test_one_less_the_similarity_of_cosine():
    x = rows()
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    x[1::2] = x[::2]  # twins, at a distance of a rounding
    distances = (1 - x.astype(np.float32) @ x.T.astype(np.float32)).astype(np.float32)
    assert distances.min() < 0
    clean = np.maximum(distances, 0)
    np.fill_diagonal(clean, 0)
    for diagonal in (0.5, -0.5, np.nan):
        np.fill_diagonal(distances, diagonal)
        for have, want in zip(nearest_neighbors(distances, 9, "precomputed"), nearest_neighbors(clean, 9, "precomputed"), strict=True):
            assert (have == want).all()
    distances[3, 5] = -0.01
    with pytest.raises(ValueError, match="row 3, column 5 is -0.01"):
        fit(distances, metric="precomputed", n_epochs=1)


def test_neighbours_without_the_point_itself():
    x = rows()
    indices, distances = nearest_neighbors(x, 16)
    whole = indices[:, :15], distances[:, :15]
    some = indices.copy(), distances.copy()
    for part in some:
        part[::3, :15] = part[::3, 1:]  # left out in some rows only
    plain = napier.UMAP(n_epochs=5).fit(x).graph_
    for given in (whole, (indices[:, 1:], distances[:, 1:]), (indices[:, 1:15], distances[:, 1:15]), some):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            graph = napier.UMAP(n_epochs=5, precomputed_knn=given).fit(x).graph_
        assert (graph != plain).nnz == 0


def test_a_table_of_neighbours_that_is_wrong():
    indices, distances = nearest_neighbors(rows(), 9)
    for i, d, word in (
        (indices + 1, distances, "count from 0"),
        (indices, 1 - distances, "ascend|ascending"),
        (indices, np.ascontiguousarray(distances[:, ::-1]), "similarities"),
        (indices, -distances, "0|negative"),
    ):
        for call in (lambda i=i, d=d: fit(rows(), n_neighbors=9, knn=(i, d)), lambda i=i, d=d: fuzzy_simplicial_set(i, d)):
            with pytest.raises(ValueError, match=word):
                call()


def test_a_point_without_a_mutual_neighbour():
    x = np.vstack([rows(60), np.full((1, 6), 500.0)])
    with pytest.warns(UserWarning, match="4 of 61 points have no mutual neighbour"):
        made = fit(x, n_neighbors=5, set_op_mix_ratio=0, n_epochs=5)
    assert np.isnan(made.embedding[-1]).all()


def test_categories_that_look_like_numbers():
    x, y = rows(), np.random.default_rng(1).random(120)
    with pytest.warns(UserWarning, match="y looks like numbers"):
        napier.UMAP(n_epochs=1).fit(x, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        napier.UMAP(n_epochs=1).fit(x, np.arange(120.0) % 3)
        napier.UMAP(n_epochs=1, target_metric="l2").fit(x, y)


def test_numbers_that_are_not_known():
    x, y = rows(), np.arange(120.0)
    y[::4] = np.nan
    some = napier.UMAP(n_epochs=1, target_metric="l2").fit(x, y)
    missing = np.array([None if np.isnan(v) else int(v) for v in y], object)
    assert (napier.UMAP(n_epochs=1, target_metric="l2").fit(x, missing).embedding_ == some.embedding_).all()
    none = napier.UMAP(n_epochs=1, target_metric="l2").fit(x, np.full(120, np.nan))
    assert (none.embedding_ == napier.UMAP(n_epochs=1).fit(x, np.full(120, -1)).embedding_).all()  # as unknown categories
    y[::4] = np.inf
    with pytest.raises(ValueError, match="element 0 is inf"):
        napier.UMAP(n_epochs=1, target_metric="l2").fit(x, y)


def test_units_that_look_wrong():
    places = np.random.default_rng(0).uniform(-90, 90, (60, 2))
    with pytest.warns(UserWarning, match="looks like degrees"):
        napier.UMAP(n_epochs=1, metric="haversine").fit(places)
    with pytest.warns(UserWarning, match="jaccard compares only which values are 0"):
        napier.UMAP(n_epochs=1, metric="jaccard").fit(places)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        napier.UMAP(n_epochs=1, metric="haversine").fit(np.radians(places))
        napier.UMAP(n_epochs=1, metric="dice").fit(np.hstack([places > 0, places > 20, places < 10]))


@pytest.mark.parametrize("init", ["spectral", "pca", "random"])
@pytest.mark.parametrize("components", [51, 129, 256])
def test_many_components(components, init):
    x = rows(400, 300)
    one, many = (fit(x, n_components=components, init=init, n_epochs=5, threads=n) for n in (1, 7))
    assert one.to_bytes() == many.to_bytes() and np.isfinite(one.embedding).all()
    assert one.embedding.shape == (400, components) and np.isfinite(one.transform(x[:9] + 0.01)).all()
    assert init == "random" or napier.umap.quality_of(x, one.embedding).trustworthiness > 0.8  # 5 epochs are few


@pytest.mark.parametrize("factor", [1e-60, 1e60])
def test_values_that_float32_does_not_hold(factor):
    """An estimator scales them; the functions refuse them."""
    scipy_sparse = pytest.importorskip("scipy.sparse")
    x = np.abs(rows())
    places = napier.UMAP(n_epochs=5).fit_transform(x * 2.0**-200)
    assert (places == napier.UMAP(n_epochs=5).fit_transform(x * 2.0**200)).all()
    for given in (x * factor, scipy_sparse.csr_matrix(x * factor)):
        for call in (nearest_neighbors, lambda given: fit(given, n_epochs=1)):
            with pytest.raises(ValueError, match="float32"):
                call(given)


def test_what_a_mask_hides_is_not_used():
    x = np.ma.masked_greater(rows(), 6)
    for call in (napier.UMAP(n_epochs=1).fit, nearest_neighbors):
        with pytest.raises(ValueError, match="X: .* masked"):
            call(x)


@pytest.mark.parametrize("metric, make", [("haversine", lambda x: x[:, :2] * 1e-10 + 0.9), ("canberra", lambda x: x * 1e-2 + 1e9)])
def test_digits_that_metrics_without_offsets_lose(metric, make):
    with pytest.warns(UserWarning, match="float32 does not hold the digits"):
        nearest_neighbors(make(rows()), 5, metric)
    with pytest.warns(UserWarning, match="float32 does not hold the digits"):
        fit(make(rows()), metric=metric, n_epochs=1)
