"""napier.UMAP: scikit-learn's contract, umap-learn's parameters, and what a user of either expects."""

import multiprocessing
import pickle
import re
import subprocess
import sys
import warnings

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from conftest import bits, refuses
from napier import UMAP, umap


@pytest.fixture(scope="module")
def digits():
    bunch = load_digits()
    return bunch.data[:500], bunch.target[:500]


@pytest.fixture(scope="module")
def fitted(digits):
    return UMAP().fit(digits[0])


def test_scikit_learns_checks():
    results = check_estimator(UMAP(n_epochs=30), on_fail=None, on_skip=None)
    assert {r["check_name"]: str(r["exception"]) for r in results if r["status"] == "failed"} == {}


def test_without_scikit_learn_and_scipy(digits):
    code = """if True:
        import sys
        for name in ("sklearn", "scipy", "tqdm", "matplotlib"):
            sys.modules[name] = None
        import numpy as np, pickle
        from napier import UMAP
        x = np.random.default_rng(0).normal(size=(60, 4))
        m = UMAP(n_neighbors=5, n_epochs=20, verbose=True)
        assert m.fit_transform(x).shape == (60, 2) and m.graph_.shape == (60, 60)
        assert repr(m) == "UMAP(n_neighbors=5, n_epochs=20, verbose=True)", repr(m)
        assert list(m.get_feature_names_out()) == ["umap0", "umap1"]
        assert m.set_params(n_neighbors=7).get_params()["n_neighbors"] == 7
        assert (pickle.loads(pickle.dumps(m)).transform(x + 1) == m.transform(x + 1)).all()
        for bad in (x[:, :2], x[0], x * np.nan):
            try:
                m.transform(bad)
            except ValueError:
                continue
            raise AssertionError(bad.shape)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "UMAP: layout" in done.stderr


# ---- umap-learn's README --------------------------------------------------------------------------------------------


def test_the_first_example(digits):
    embedding = UMAP(n_neighbors=5, min_dist=0.3, metric="correlation").fit_transform(digits[0])
    assert embedding.shape == (500, 2) and embedding.dtype == np.float32
    assert umap.quality_of(digits[0], embedding, digits[1]).knn_accuracy > 0.9


def test_supervised_and_new_data(digits):
    x, y = digits
    mapper = UMAP(n_neighbors=5, random_state=42).fit(x[:400], y[:400])
    assert umap.quality_of(x[:400], mapper.embedding_, y[:400]).knn_accuracy > 0.99
    placed = mapper.transform(x[400:])
    nearest = umap.nearest_neighbors_of(mapper.embedding_, placed, 1)[0][:, 0]
    assert (y[:400][nearest] == y[400:]).mean() > 0.75
    names = np.array([f"digit {d}" for d in y[:400]])
    assert bits(UMAP(n_neighbors=5, random_state=42).fit(x[:400], names).embedding_) == bits(mapper.embedding_)
    partly = np.where(np.arange(400) % 2, y[:400], -1)
    assert bits(UMAP().fit_transform(x[:400], partly)) != bits(UMAP().fit_transform(x[:400], y[:400]))
    objects = partly.astype(object)
    objects[partly < 0] = None
    assert bits(UMAP().fit_transform(x[:400], partly)) == bits(UMAP().fit_transform(x[:400], objects))
    numbers = UMAP(target_metric="euclidean").fit(x[:400], y[:400].astype(float))
    assert numbers.graph_.nnz > UMAP().fit(x[:400]).graph_.nnz


class LikePandasNA:
    """What pandas.NA does: it compares as itself, and is neither true nor false."""

    def __ne__(self, other):
        return self

    def __bool__(self):
        raise TypeError("boolean value of NA is ambiguous")


def test_categories_that_are_not_known(digits):
    x, y = digits[0][:200], digits[1][:200]
    known = np.arange(200) % 2 == 1
    want = bits(UMAP(n_epochs=20).fit_transform(x, np.where(known, y, -1)))
    missing = [LikePandasNA(), None, float("nan"), np.float64("nan"), -1, -2.5, np.int64(-3), np.datetime64("NaT")]
    try:
        import pandas
    except ImportError:
        pass
    else:
        missing += [pandas.NA, pandas.NaT]
        series = pandas.Series(y, dtype="Int64").where(known)
        assert bits(UMAP(n_epochs=20).fit_transform(x, series)) == want
    objects = y.astype(object)
    objects[~known] = [missing[i % len(missing)] for i in range((~known).sum())]
    assert bits(UMAP(n_epochs=20).fit_transform(x, objects)) == want
    sides = y % 2 == 0
    assert bits(UMAP(n_epochs=20).fit_transform(x, sides.astype(object))) == bits(UMAP(n_epochs=20).fit_transform(x, sides))
    days = np.where(known, np.datetime64("2024-01-01") + y, np.datetime64("NaT"))
    assert bits(UMAP(n_epochs=20).fit_transform(x, days)) == want
    with pytest.raises(ValueError, match="^y: expected numbers, as target_metric is 'euclidean', got dtype object"):
        UMAP(target_metric="euclidean").fit(x, np.where(known, y.astype(object), "two"))
    negative = [isinstance(v, (int, float, np.int64)) and v < 0 for v in objects]
    numbers = np.where(known | negative, objects, np.nan).astype(np.float64)
    assert bits(UMAP(target_metric="l2", n_epochs=20).fit_transform(x, objects)) == bits(
        UMAP(target_metric="l2", n_epochs=20).fit_transform(x, numbers)
    )
    for wrong in (-np.inf, np.inf, 1e300):
        with pytest.raises(ValueError, match=f"^y: element 3 is {re.escape(str(wrong))}, and target_metric 'l2' needs finite"):
            UMAP(target_metric="l2").fit(x, np.where(np.arange(200) == 3, wrong, y))


def test_in_a_pipeline(digits):
    pipe = make_pipeline(StandardScaler(), UMAP(n_epochs=50)).set_params(umap__n_neighbors=7)
    assert pipe.fit_transform(digits[0]).shape == (500, 2)
    assert pipe.transform(digits[0][:3]).shape == (3, 2)
    assert list(pipe.get_feature_names_out()) == ["umap0", "umap1"]


# ---- What it promises -----------------------------------------------------------------------------------------------


def test_the_same_map_always(digits, fitted):
    x = digits[0]
    assert bits(UMAP(n_jobs=1).fit_transform(x)) == bits(UMAP(n_jobs=3).fit_transform(x)) == bits(fitted.embedding_)
    assert bits(fitted.embedding_) == bits(umap.fit(x).embedding)
    assert bits(UMAP(random_state=42).fit_transform(x)) == bits(fitted.embedding_)
    assert bits(UMAP(random_state=1).fit_transform(x)) != bits(fitted.embedding_)
    state = [UMAP(random_state=np.random.RandomState(3)).fit_transform(x) for _ in range(2)]
    assert bits(state[0]) == bits(state[1])
    assert bits(clone(fitted).fit_transform(x)) == bits(fitted.embedding_)


def test_transform_row_by_row(digits, fitted):
    x = digits[0]
    assert bits(fitted.transform(x[::-1])) == bits(fitted.embedding_[::-1])  # it knows its own data
    mixed = x[:40].copy()
    mixed[::2] += 0.5
    together = fitted.transform(mixed)
    assert bits(np.vstack([fitted.transform(row[None]) for row in mixed])) == bits(together)
    assert bits(together[1::2]) == bits(fitted.embedding_[1:40:2])
    assert bits(together[::2]) == bits(fitted.model_.transform(mixed[::2]))
    assert fitted.inverse_transform(fitted.embedding_[:5]).shape == (5, 64)


def test_pickles(digits, fitted):
    kept = pickle.dumps(fitted)
    assert b"napier._" not in kept  # a private module may move
    again = pickle.loads(kept)
    new = digits[0][:20] + 0.5
    assert bits(again.transform(new)) == bits(fitted.transform(new))
    assert bits(again.embedding_) == bits(fitted.embedding_)
    assert (again.graph_ != fitted.graph_).nnz == 0


def test_the_graph(digits, fitted):
    wanted = umap.fuzzy_simplicial_set(*umap.nearest_neighbors(digits[0]))
    assert isinstance(fitted.graph_, scipy.sparse.csr_matrix) and (fitted.graph_ != wanted).nnz == 0
    assert not hasattr(UMAP(), "graph_")
    x, y = digits
    mapper = UMAP().fit(x, y)
    assert (mapper.graph_ != umap.join_categories(wanted, y)).nnz == 0


def test_sparse_data(digits, fitted):
    sparse = scipy.sparse.csr_matrix(digits[0])
    mapper = UMAP().fit(sparse)
    assert mapper.embedding_.shape == (500, 2)
    assert umap.quality_of(digits[0], mapper.embedding_).trustworthiness > 0.95
    assert bits(mapper.transform(sparse)) == bits(mapper.embedding_)
    new = sparse[:9] * 1.5
    assert bits(np.vstack([mapper.transform(new[i]) for i in range(9)])) == bits(mapper.transform(new))


def test_precomputed(digits):
    x = digits[0]
    every = np.sqrt(((x[:, None] - x) ** 2).sum(2))
    mapper = UMAP(metric="precomputed").fit(every)
    assert umap.quality_of(x, mapper.embedding_).trustworthiness > 0.95
    near = np.sqrt(((x[:30, None] + 0.01 - x) ** 2).sum(2))
    assert np.abs(mapper.transform(near) - mapper.embedding_[:30]).max() < 1
    sparse = scipy.sparse.csr_matrix(np.where(every < np.sort(every)[:, 30:31], every + 1e-9, 0))
    mapper = UMAP(metric="precomputed").fit(sparse)
    assert np.abs(mapper.transform(sparse[:30]) - mapper.embedding_[:30]).max() < 2
    refuses(lambda: UMAP(metric="precomputed").fit(every[:, :9]), ValueError, "X")
    knn = umap.nearest_neighbors(x, 20)
    with pytest.warns(UserWarning, match="transforming new data"):
        given = UMAP(precomputed_knn=knn).fit_transform(x)
    assert bits(given) == bits(UMAP().fit_transform(x))
    with pytest.warns(UserWarning, match="ignored"):
        assert bits(UMAP(precomputed_knn=knn, n_neighbors=30).fit_transform(x)) == bits(UMAP(n_neighbors=30).fit_transform(x))
    refuses(lambda: UMAP(precomputed_knn=(knn[0], knn[1][:, :9])).fit(x), ValueError, "precomputed_knn")


def test_unique_rows(digits):
    x = digits[0][:100]
    twice = np.vstack([x, x])
    mapper = UMAP(unique=True).fit(twice)
    assert bits(mapper.embedding_[:100]) == bits(mapper.embedding_[100:]) == bits(UMAP().fit_transform(x))
    assert mapper.graph_.shape == (100, 100) and bits(mapper.transform(twice)) == bits(mapper.embedding_)


def test_disconnection(digits):
    x = np.vstack([digits[0][:100], digits[0][:100] + 20])
    near = UMAP(n_neighbors=150, disconnection_distance=100.0).fit(x)
    assert near.graph_[:100, 100:].nnz == 0 and UMAP(n_neighbors=150).fit(x).graph_[:100, 100:].nnz > 0
    assert np.isfinite(near.embedding_).all()


@pytest.mark.parametrize("metric", ["jaccard", "dice", "hellinger"])
def test_points_without_neighbours(metric, tmp_path):
    x = np.random.default_rng(0).uniform(0.1, 1, (60, 30)) * (np.random.default_rng(1).random((60, 30)) < 0.4)
    x[:, 28:] = 0
    x[7], x[8] = np.eye(30)[28:]  # share no column with anybody
    alone = np.isin(np.arange(60), (7, 8))
    with pytest.warns(UserWarning, match="2 of 60 points"):
        mapper = UMAP(n_neighbors=8, n_epochs=30, metric=metric).fit(x)
    assert (np.isnan(mapper.embedding_).all(1) == alone).all() and np.isfinite(mapper.embedding_[~alone]).all()
    assert umap.disconnected(mapper.embedding_) == 2 and (mapper.graph_[[7, 8]].nnz, mapper.graph_[0].nnz > 0) == (0, True)
    new = np.vstack([x[:2] * 0.5, np.eye(30)[29] * 0.5 + 0.0, np.eye(30)[28] * 0.25])
    with pytest.warns(UserWarning, match="2 of 4 points"):
        placed = mapper.transform(new)
    assert np.isnan(placed).all(1).tolist() == [False, False, True, True]
    with pytest.warns(UserWarning, match="2 of 60 points"):
        assert bits(mapper.transform(x)) == bits(mapper.embedding_)
    mapper.model_.save(tmp_path / "map")
    assert bits(umap.model_load(tmp_path / "map").embedding) == bits(mapper.embedding_)
    assert np.isfinite(mapper.inverse_transform(mapper.embedding_[~alone])).all()
    assert np.isfinite(umap.quality_of(x, mapper.embedding_, np.arange(60) % 2, 5, metric)).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        everybody = UMAP(n_neighbors=8, n_epochs=30, metric=metric, disconnection_distance=np.inf).fit_transform(x)
    assert np.isfinite(everybody).all()


def test_distances_that_overflow(digits):
    x = digits[0][:60].astype(np.float64)
    plain = UMAP(n_epochs=20, disconnection_distance=40.0).fit(x)
    for scale in (2.0**90, 2.0**122, 2.0**1000):  # float32 ends at 2^128
        large = UMAP(n_epochs=20, disconnection_distance=40.0 * scale).fit(x * scale)
        assert bits(large.embedding_) == bits(plain.embedding_) and (large.graph_ != plain.graph_).nnz == 0
        assert bits(large.transform(x * scale)) == bits(plain.embedding_)
        assert np.isfinite(large.transform(x[:5] * scale * 1.5)).all()
        assert np.allclose(large._knn_dists / scale, plain._knn_dists) and np.allclose(large._rhos / scale, plain._rhos)
        back = large.inverse_transform(large.embedding_[:5])
        assert np.allclose(back / scale, plain.inverse_transform(plain.embedding_[:5]), rtol=1e-5)
    assert np.isfinite(umap.fit(x * 1e30, n_epochs=20).embedding).all()
    sparse = scipy.sparse.csr_matrix(x)
    assert bits(UMAP(n_epochs=20).fit_transform(sparse * 2.0**1000)) == bits(UMAP(n_epochs=20).fit_transform(sparse))


def test_outliers(digits):
    x = digits[0][:60].astype(np.float64)
    plain = UMAP(n_epochs=20).fit(x)
    x[7, 3] = 1e300
    for data in (x, scipy.sparse.csr_matrix(x)):
        for metric in ("euclidean", "manhattan", "seuclidean", "cosine", "canberra", "braycurtis"):
            refuses(
                lambda: UMAP(metric=metric).fit(data),
                ValueError,
                r"^X: sizes from \d+ to 1e\+300 are more than "
                "float32 holds together; scale the columns, or leave out the outliers",
            )
    x[7, 3] = 1e20
    far = UMAP(n_epochs=20).fit(x)
    others = np.arange(60) != 7
    apart = others & (plain._knn_indices != 7).all(axis=1)  # the outlier is no neighbour in either
    assert apart.sum() > 20 and np.array_equal(far._knn_indices[apart], plain._knn_indices[apart])
    assert np.allclose(far._knn_dists[apart], plain._knn_dists[apart], rtol=1e-6)
    x[7, 3] = 1e30
    refuses(lambda: UMAP().fit(x), ValueError, "divide the data by a power of two")


def test_sizes_of_single_numbers(digits):
    x = digits[0][:60].astype(np.float64) * 2.0**200
    x[:, 3] = 2.0**-200 * (1 + np.arange(60))  # a column that counts as much as the others, or not at all
    for metric in ("seuclidean", "canberra"):
        refuses(lambda: UMAP(metric=metric).fit(x), ValueError, "X: sizes from 6.22302e-61 to")
    assert np.isfinite(UMAP(n_epochs=10).fit_transform(x)).all()


@pytest.mark.parametrize("metric", ["cosine", "correlation", "hellinger"])
def test_rows_of_many_sizes(digits, metric):
    x = digits[0][:60].astype(np.float64)
    sizes = 2.0 ** np.where(np.arange(60) == 5, 110, np.where(np.arange(60) % 2, -90, 0))[:, None]
    for factor in (1.0, 2.0**100):  # the second is beyond float32
        made = UMAP(metric=metric, n_epochs=20).fit(x * (sizes if factor == 1.0 else np.sqrt(sizes)) * factor)
        want = UMAP(metric=metric, n_epochs=20).fit(x)
        assert np.array_equal(made._knn_indices, want._knn_indices) and bits(made._knn_dists) == bits(want._knn_dists)


@pytest.mark.parametrize("distance", [0, -1.0, np.nan, "far"])
def test_a_disconnection_distance_that_cannot_be(digits, distance):
    refuses(lambda: UMAP(disconnection_distance=distance).fit(digits[0][:20]), ValueError, "disconnection_distance")


def test_a_start_of_the_users(digits):
    x = digits[0]
    start = np.random.default_rng(0).normal(size=(500, 2))
    assert bits(UMAP(init=start).fit_transform(x)) == bits(umap.fit(x, init=start).embedding)
    refuses(lambda: UMAP(init=start[:7]).fit(x), ValueError, "init")


def test_few_points(digits):
    for n in (1, 2, 3, 10):
        with np.errstate(all="raise"):
            mapper = UMAP(n_epochs=20).fit(digits[0][:n])
        assert mapper.embedding_.shape == (n, 2) and np.isfinite(mapper.embedding_).all()
        assert mapper.graph_.shape == (n, n)


@pytest.mark.parametrize(
    "parameters, kind",
    [
        ({"n_neighbors": 1}, ValueError),
        ({"n_neighbors": 2.5}, ValueError),
        ({"n_components": 0}, ValueError),
        ({"n_components": 257}, ValueError),
        ({"min_dist": 2.0}, ValueError),
        ({"min_dist": -1.0}, ValueError),
        ({"metric": "euklidean"}, ValueError),
        ({"metric": 45}, ValueError),
        ({"metric_kwds": {"q": 1}}, ValueError),
        ({"init": "pcs"}, ValueError),
        ({"n_epochs": -1}, ValueError),
        ({"n_epochs": [10, -1]}, ValueError),
        ({"n_epochs": []}, ValueError),
        ({"n_epochs": [1.5]}, ValueError),
        ({"learning_rate": 0.0}, ValueError),
        ({"learning_rate": "fast"}, TypeError),
        ({"set_op_mix_ratio": 2.0}, ValueError),
        ({"local_connectivity": -1.0}, ValueError),
        ({"repulsion_strength": -1.0}, ValueError),
        ({"negative_sample_rate": -1}, ValueError),
        ({"target_weight": 2.0}, ValueError),
        ({"a": 1.0}, ValueError),
        ({"target_metric": "hyperbolic"}, ValueError),
        ({"target_n_neighbors": 1}, ValueError),
        ({"n_jobs": 0}, ValueError),
        ({"random_state": -1}, ValueError),
        ({"random_state": "dice"}, ValueError),
        ({"dens_frac": 2.0}, ValueError),
        ({"output_metric": "hamming"}, ValueError),
        ({"output_metric": "precomputed"}, ValueError),
        ({"output_metric": "haversine", "n_components": 3}, ValueError),
        ({"output_metric": max}, ValueError),
        ({"output_metric": "haversine", "densmap": True}, ValueError),
        ({"output_dens": True}, ValueError),
        ({"transform_mode": "map"}, ValueError),
        ({"n_jobs": -2}, ValueError),
        ({"n_components": "2"}, ValueError),
    ],
)
def test_wrong_parameters_are_named(digits, parameters, kind):
    refuses(lambda: UMAP(**parameters).fit(digits[0]), kind, next(iter(parameters)))


def test_errors_before_a_fit_and_of_targets(digits):
    new = UMAP()
    for call in (lambda: new.transform(digits[0]), lambda: new.inverse_transform([[0, 0]]), lambda: new.plot()):
        refuses(call, ValueError, "not fitted")
    refuses(lambda: UMAP().fit(digits[0], digits[1][:3]), ValueError, "y:")
    refuses(lambda: UMAP(target_metric="l2").fit(digits[0], np.array(["a"] * 500)), ValueError, "y:")
    refuses(lambda: UMAP(neighbours=3), TypeError)


def test_verbose(digits, capfd):
    UMAP(verbose=True, n_epochs=20).fit(digits[0])
    assert "UMAP: layout" in capfd.readouterr().err


def test_densmap(digits):
    assert bits(UMAP(densmap=True).fit_transform(digits[0])) != bits(UMAP().fit_transform(digits[0]))


def test_plot(digits, fitted, tmp_path):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    for labels in (None, digits[1], digits[1].astype(float), np.arange(500)):
        axes = fitted.plot(labels)
        axes.figure.savefig(tmp_path / "map.png")
        matplotlib.pyplot.close(axes.figure)
    refuses(lambda: fitted.plot(digits[1][:3]), ValueError, "labels")


def _place(mapper_and_rows):
    mapper, rows = mapper_and_rows
    return UMAP(n_jobs=2, n_epochs=20).fit_transform(rows), mapper.transform(rows + 0.5)


def test_after_a_fork(digits, fitted):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of threads
        with multiprocessing.get_context("fork").Pool(2) as pool:
            there = pool.map_async(_place, [(fitted, digits[0])] * 2).get(timeout=120)
    here = _place((fitted, digits[0]))
    assert all(bits(a) == bits(b) for pair in there for a, b in zip(pair, here, strict=True))


def test_a_column_of_text_is_named():
    class Frame:  # what the package uses of a data frame
        columns = ("length", "name", "width")

        def __getitem__(self, name):
            return np.array(["x", "y"] * 10) if name == "name" else np.arange(20.0)

        def __array__(self, dtype=None, copy=None):
            return np.array([self[name] for name in self.columns], object).T.astype(dtype or object)

        shape, ndim = (20, 3), 2

        def __len__(self):
            return 20

    refuses(lambda: UMAP().fit(Frame()), ValueError, "^X: column 'name': .*'x'")
    refuses(lambda: umap.nearest_neighbors(Frame()), TypeError, "^X: expected numbers: column 'name'")
