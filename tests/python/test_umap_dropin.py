"""What napier.UMAP takes over from umap-learn beyond fit and transform: maps that are combined, updated and aligned,
targets of every kind, metrics that are functions, other surfaces, radii."""

import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest
import scipy.sparse
from sklearn.datasets import load_digits, load_iris, make_blobs
from sklearn.manifold import trustworthiness

from conftest import bits, refuses
from napier import UMAP, umap
from napier._umap import functions, gradients, surfaces, targets


@pytest.fixture(scope="module")
def iris():
    return load_iris().data.astype(np.float32)


@pytest.fixture(scope="module")
def digits():
    return load_digits().data[:300]


def same_for_threads(make):
    """make(n_jobs) gives the same bits for any number of threads. Returns them once."""
    made = [make(n) for n in (1, 2, 7)]
    assert len({bits(m) for m in made}) == 1
    return made[0]


# ---- Two maps, more rows, several data sets -------------------------------------------------------------------------


def test_combined_maps(iris):
    def parts(n):
        return [UMAP(n_neighbors=10, min_dist=0.01, n_epochs=100, n_jobs=n).fit(iris[:, c]) for c in (slice(2), slice(2, 4))]

    left, right = parts(1)
    for operation, least in ((lambda a, b: a + b, 0.85), (lambda a, b: a * b, 0.85), (lambda a, b: a - b, 0.75)):
        embedding = same_for_threads(lambda n: operation(*parts(n)).embedding_)
        assert trustworthiness(iris, embedding, n_neighbors=10) > least
    both = left + right
    assert abs(both.graph_ - umap.combine(left.graph_, right.graph_, "union", n_neighbors=15)).max() == 0
    assert bits(pickle.loads(pickle.dumps(both)).embedding_) == bits(both.embedding_)
    refuses(lambda: both.transform(iris), ValueError, "combined")
    refuses(lambda: left + UMAP(n_epochs=10).fit(iris[:90]), ValueError, "150 and 90")
    refuses(lambda: left + 1, TypeError)
    refuses(lambda: left + UMAP(n_epochs=5, unique=True).fit(iris), ValueError, "unique")
    refuses(lambda: both.update(iris), ValueError, "combined")
    refuses(lambda: left * UMAP(), ValueError, "not fitted")


def test_set_operations(iris):
    a, b = (umap.fuzzy_simplicial_set(*umap.nearest_neighbors(iris[:, c], 8)) for c in (slice(2), slice(2, 4)))
    union = umap.combine(a, b)
    assert np.allclose(union.max(axis=1).toarray(), 1) and abs(union - union.T).max() == 0
    assert abs(umap.combine(a, b, "intersection", weight=0.0) - umap.combine(a, a, "intersection", weight=0.0)).max() < 1e-6
    assert umap.combine(a, a, "difference").max() <= 1
    for wrong in (dict(operation="xor"), dict(weight=2.0), dict(n_neighbors=-1)):
        refuses(lambda: umap.combine(a, b, **wrong), ValueError, next(iter(wrong)))
    refuses(lambda: umap.combine(a, b[:9, :9]), ValueError, "right")


def test_update(iris):
    first, rest = iris[:110], iris[110:]
    mapper = UMAP(n_neighbors=10).fit(first)
    before, placed = mapper.embedding_, mapper.transform(rest)
    mapper.update(rest)
    assert bits(mapper.embedding_) == bits(np.vstack([before, placed]))
    assert (mapper.graph_ != UMAP(n_neighbors=10).fit(iris).graph_).nnz == 0
    assert bits(mapper.transform(iris[[3, 120]])) == bits(mapper.embedding_[[3, 120]])
    assert trustworthiness(iris, mapper.embedding_, n_neighbors=10) > 0.95
    sparse = UMAP(n_neighbors=10, n_epochs=30).fit(scipy.sparse.csr_matrix(first)).update(scipy.sparse.csr_matrix(rest))
    assert sparse.embedding_.shape == (150, 2)
    refuses(lambda: UMAP(n_epochs=5).fit(iris, np.arange(150) % 3).update(iris), ValueError, "fitted with y")
    refuses(lambda: UMAP(metric="precomputed", n_epochs=5).fit(iris @ iris.T).update(iris), ValueError, "precomputed")
    refuses(lambda: UMAP().update(iris), ValueError, "not fitted")


def test_aligned_maps(iris):
    slices = [iris[i : i + 50] for i in range(0, 125, 25)]
    relations = [{a + 25: a for a in range(25)} for _ in range(4)]

    def gap(maps):
        return np.mean([np.linalg.norm(maps[i][25:] - maps[i + 1][:25], axis=1).mean() for i in range(4)])

    def fitted(n):
        return np.concatenate(umap.AlignedUMAP(n_jobs=n).fit_transform(slices, relations=relations))

    maps = np.split(same_for_threads(fitted), 5)
    for data, embedding in zip(slices, maps, strict=True):
        assert trustworthiness(data, embedding, n_neighbors=10) > 0.9
    apart = umap.AlignedUMAP(alignment_regularisation=0.0).fit(slices, relations=relations).embeddings_
    assert gap(maps) < 0.6 * gap(apart)
    mapper = umap.AlignedUMAP(n_neighbors=[15, 12, 15]).fit(slices[:3], relations=relations[:2])
    before = list(mapper.embeddings_)
    mapper.update(slices[3], relations=relations[2], n_neighbors=10)
    assert [bits(e) for e in mapper.embeddings_[:3]] == [bits(e) for e in before] and mapper.n_neighbors[-1] == 10
    assert np.isfinite(mapper.embeddings_[3]).all()
    assert bits(pickle.loads(pickle.dumps(mapper)).embeddings_[3]) == bits(mapper.embeddings_[3])
    refuses(lambda: umap.AlignedUMAP().fit(slices, relations=relations[:2]), ValueError, "relations")
    refuses(lambda: umap.AlignedUMAP().fit(slices), ValueError, "relations")
    refuses(lambda: umap.AlignedUMAP().fit(slices[:2], relations=[{0: 99}]), ValueError, "0 to 49")
    refuses(lambda: umap.AlignedUMAP(n_components=[2, 3]).fit(slices, relations=relations), ValueError, "n_components")
    refuses(lambda: umap.AlignedUMAP().update(slices[0], relations={}), ValueError, "fit")
    for wrong in ({"unique": True}, {"init": "pca"}, {"n_neighbors": [15, 10]}, {"alignment_window_size": 1.5}):
        refuses(lambda: umap.AlignedUMAP(**wrong).fit(slices, relations=relations), ValueError, next(iter(wrong)))
    refuses(lambda: umap.AlignedUMAP().fit(slices[:2], relations=[{20.7: 0.9}]), ValueError, "numbers of rows")
    refuses(lambda: mapper.update(slices[4], relations=relations[3], fit=3), ValueError, "fit")
    many = umap.AlignedUMAP(n_epochs=5).fit(slices[:2], relations=[{20: 0, 21: 0, 22: 0}]).embeddings_
    assert all(np.isfinite(e).all() for e in many)
    refuses(lambda: mapper.update(slices[4], relations=relations[3], neighbours=3), ValueError, "neighbours")


# ---- Targets --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "metric, labels",
    [
        ("string", lambda y: np.array(["this", "that", "other"])[y]),
        ("ordinal", lambda y: y),
        ("count", lambda y: y**2 + 2 * y),
        ("cosine", lambda y: np.eye(3)[y] + 0.1),
        ("hierarchical_categorical", lambda y: y),
        (lambda a, b: abs(a - b).sum(), lambda y: y),
    ],
)
def test_targets(metric, labels):
    data, y = make_blobs(60, cluster_std=0.5, random_state=42)
    keywords = {"cat_hierarchy": [{0: 0, 1: 1, 2: 2}, {0: 0, 1: 0, 2: 1}]} if metric == "hierarchical_categorical" else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = same_for_threads(
            lambda n: UMAP(
                n_neighbors=10, target_metric=metric, target_metric_kwds=keywords, target_weight=0.8, n_epochs=100, n_jobs=n
            ).fit_transform(data, labels(y))
        )
    assert trustworthiness(data, made, n_neighbors=10) > 0.9
    nearest = umap.nearest_neighbors(made, 6)[0][:, 1:]
    assert (y[nearest] == y[:, None]).mean() > 0.95


def test_distances_of_targets():
    a, b = np.array([0, 0, 1, 5]), np.array([0, 3, 4, 2])
    ranks = targets._ordinal(np.array([1.0, 2, 3, 4, 6, 9]))
    assert np.allclose(ranks(a, b), np.array([0, 3, 4, 6]) / 4)
    texts = targets._string(np.array(["kitten", "sitting", "", "abc", "abd", "xyz"]))
    most = 7 / 3
    assert np.allclose(texts(np.array([0, 3, 2]), np.array([1, 4, 3])), [min(3, most) / most, 1 / most, 1.0])
    counts = np.array([0.0, 1, 4, 9, 30, 2])
    rate, probability = (
        counts.mean(),
        np.cumsum([0] + [k * np.log(counts.mean()) - counts.mean() - sum(np.log(np.arange(1, k + 1))) for k in range(30)]),
    )
    wanted = abs(probability[[0, 9, 4, 2]] - probability[[0, 0, 30, 4]]) / (abs(probability[30] - probability[0]) / 2)
    assert rate and np.allclose(targets._count(counts)(np.array([0, 3, 2, 5]), np.array([0, 0, 4, 2])), wanted)
    refuses(lambda: targets._count(np.array([0.5])), ValueError, "whole numbers")
    refuses(lambda: UMAP(target_metric="hierarchical_categorical").fit(np.eye(9), np.arange(9)), ValueError, "cat_hierarchy")


# ---- Functions ------------------------------------------------------------------------------------------------------


def test_metrics_that_are_functions(iris):
    def taxicab(x, y, scale=1.0):
        return scale * np.abs(x - y).sum()

    with pytest.warns(UserWarning, match="11,175 pairs of 150 rows, for about 1 second"):
        mapper = UMAP(metric=taxicab, metric_kwds={"scale": 2.0}, n_epochs=100).fit(iris)
    wanted = UMAP(metric="manhattan", n_epochs=100).fit(iris * 2)
    assert abs(mapper.graph_ - wanted.graph_).max() < 1e-3
    assert trustworthiness(iris, mapper.embedding_, n_neighbors=10) > 0.95
    assert bits(mapper.transform(iris[:3])) == bits(mapper.embedding_[:3])
    new = mapper.transform(iris[:30] + 0.01)
    assert np.linalg.norm(new - mapper.embedding_[:30], axis=1).max() < 2
    assert bits(np.vstack([mapper.transform(iris[i : i + 1] + 0.01) for i in range(3)])) == bits(new[:3])
    assert np.abs(mapper.inverse_transform(mapper.embedding_[:20]) - iris[:20]).mean() < 0.5
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cut = UMAP(metric=taxicab, disconnection_distance=0.5, n_epochs=5).fit(iris)
        assert umap.disconnected(cut.embedding_) < 150 and cut.transform(iris + 0.01).shape == (150, 2)
        refuses(lambda: UMAP(metric=lambda x, y: None).fit(iris), ValueError, "metric")
        spoiled = iris.copy()
        spoiled[0] = np.nan
        UMAP(metric=lambda x, y: (0.0, x), n_epochs=5).fit(spoiled, ensure_all_finite=False)
        refuses(lambda: UMAP(metric=lambda x, y: -1.0).fit(iris), ValueError, "-1.0")
        refuses(lambda: UMAP().fit(spoiled), ValueError, "NaN")


def test_a_function_measures_each_pair_once(iris, monkeypatch):
    calls = []

    def taxicab(x, y):
        calls.append(1)
        return np.abs(x - y).sum()

    wanted = umap.nearest_neighbors(iris * 8, 12, "manhattan")  # of which iris has equal rows
    for pairs in (1 << 20, 1000, 1):  # at a time
        monkeypatch.setattr(functions, "_PAIRS", pairs)
        calls.clear()
        shares = []
        with pytest.warns(UserWarning, match="11,175 pairs"):
            found = functions.distance_of(taxicab).neighbors(iris * 8, 12, lambda stage, done, to=shares: to.append(done))
        assert len(calls) == 150 * 149 // 2 + 5 and shares[-1] == 1 and sorted(shares) == shares
        assert (found[0] == np.arange(150)[:, None]).sum() == 150 and (found[0][:, 0] == np.arange(150)).all()
        assert np.allclose(found[1], wanted[1], atol=1e-4) and (found[0] == wanted[0]).mean() > 0.99
    names = [functions._duration(s) for s in (0.1, 90, 150, 9000, 1e6)]
    assert names == ["1 second", "90 seconds", "2 minutes", "2 hours", "12 days"]


# ---- What comes out -------------------------------------------------------------------------------------------------


def test_the_graph_as_a_result(digits):
    mapper = UMAP(n_neighbors=10, transform_mode="graph")
    graph = mapper.fit_transform(digits[:250])
    assert (graph != UMAP(n_neighbors=10, n_epochs=1).fit(digits[:250]).graph_).nnz == 0
    new = mapper.transform(digits[250:])
    distances = umap.nearest_neighbors_of(digits[:250], digits[250:], 10)[1]
    sigmas, rhos = umap.smooth_knn_dist(distances, 0.0)
    wanted = np.exp(-np.maximum(distances - rhos[:, None], 0) / sigmas[:, None])
    assert new.shape == (50, 250) and np.allclose(np.sort(new.data.reshape(50, 10)), np.sort(wanted), atol=1e-6)
    assert (scipy.sparse.vstack([mapper.transform(digits[i : i + 1]) for i in range(250, 300)]) != new).nnz == 0
    assert not hasattr(mapper, "embedding_")
    again = (
        UMAP(n_epochs=5, densmap=True, output_dens=True).fit(digits).set_params(transform_mode="graph", densmap=False, output_dens=False)
    )
    again.fit(digits[:100])
    assert not any(hasattr(again, name) for name in ("embedding_", "model_", "rad_orig_", "rad_emb_"))
    again.set_params(transform_mode="embedding")
    refuses(lambda: again.transform(digits), ValueError, "transform_mode")
    refuses(lambda: again.update(digits), ValueError, "transform_mode")
    refuses(lambda: mapper.inverse_transform([[0, 0]]), ValueError, "no map")


def test_radii(digits):
    embedding, data_radii, map_radii = UMAP(densmap=True, output_dens=True, n_neighbors=10, n_epochs=200).fit_transform(digits)
    mapper = UMAP(densmap=True, output_dens=True, n_neighbors=10, n_epochs=200).fit(digits)
    assert bits(mapper.rad_orig_) == bits(data_radii) and bits(mapper.rad_emb_) == bits(map_radii)
    graph, (indices, distances) = mapper.graph_.toarray().astype(np.float64), umap.nearest_neighbors(digits, 10)
    squares = np.zeros_like(graph)
    np.put_along_axis(squares, indices, distances.astype(np.float64) ** 2, axis=1)
    squares = np.maximum(squares, squares.T)
    wanted = np.log(1e-8 + (graph * squares).sum(1) / graph.sum(1))
    assert np.abs(data_radii - wanted).max() < 1e-5
    assert np.corrcoef(data_radii, map_radii)[0, 1] > 0.5


def test_few_epochs_and_many_sizes(iris):
    start = UMAP(n_epochs=0).fit_transform(iris)
    assert bits(start) == bits(umap.spectral_layout(UMAP().fit(iris).graph_, iris))
    refuses(lambda: UMAP().fit(iris[:1]).transform(iris), ValueError, "single point")


def test_what_umap_learn_keeps(iris):
    mapper = UMAP(n_neighbors=10, n_epochs=5).fit(iris)
    indices, distances = umap.nearest_neighbors(iris, 10)
    sigmas, rhos = umap.smooth_knn_dist(distances)
    assert bits(mapper._knn_indices) == bits(indices) and bits(mapper._knn_dists) == bits(distances)
    assert bits(mapper._sigmas) == bits(sigmas) and bits(mapper._rhos) == bits(rhos)
    assert mapper._n_neighbors == 10 and not mapper._sparse_data and bits(mapper._raw_data) == bits(iris)


def test_rows_are_known_by_their_values(iris):
    data = np.unique(iris - iris[0], axis=0)
    mapper = UMAP(n_epochs=20).fit(data)
    for known in (data * 1, np.where(data == 0, np.float32(-0.0), data), scipy.sparse.csr_matrix(data), data.astype(np.float64)):
        assert bits(mapper.transform(known)) == bits(mapper.embedding_)
    twice = np.vstack([data, np.where(data == 0, np.float32(-0.0), data)])
    alike = UMAP(n_epochs=20, unique=True).fit(twice)
    assert bits(alike.embedding_[: len(data)]) == bits(alike.embedding_[len(data) :])
    assert bits(alike.transform(twice)) == bits(alike.embedding_)


# ---- Surfaces -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", sorted(surfaces.METRICS))
def test_gradients_on_surfaces(metric):
    columns = gradients.COMPONENTS.get(metric, 2)
    x, y = np.random.default_rng(1).normal(size=(2, 50, columns))
    if metric in ("hellinger", "symmetric_kl"):
        x, y = np.abs(x) + 0.1, np.abs(y) + 0.1
    keywords = {
        "seuclidean": {"V": [2.0, 0.5]},
        "mahalanobis": {"VI": [[2.0, 0.5], [0.5, 1.0]]},
        "minkowski": {"p": 3.5},
        "wminkowski": {"p": 1.5, "w": [0.5, 2.0]},
    }.get(metric, {})
    measure = surfaces.metric_of(metric, keywords)
    distance, gradient = measure(x, y)
    assert (distance >= 0).all() or metric.endswith("energy")
    for column in range(columns):
        step = np.zeros(columns)
        step[column] = 1e-6
        difference = (measure(x + step, y)[0] - measure(x - step, y)[0]) / 2e-6
        assert np.abs(difference - gradient[:, column]).max() < 1e-4 * max(1, np.abs(gradient).max())


def test_maps_on_surfaces(iris):
    def flat(x, y):
        gap = x - y
        distance = np.sqrt(gap @ gap)
        return distance, gap / (distance + 1e-9)

    for metric in ("haversine", "hyperboloid", "manhattan", flat):
        mapper = UMAP(n_neighbors=10, min_dist=0.01, n_epochs=30 if metric is flat else 200, output_metric=metric).fit(iris)
        y = mapper.embedding_
        if metric == "haversine":
            y = np.stack([np.sin(y[:, 0]) * np.cos(y[:, 1]), np.sin(y[:, 0]) * np.sin(y[:, 1]), np.cos(y[:, 0])], 1)
        assert trustworthiness(iris, y, n_neighbors=10) > 0.85, metric
        assert bits(mapper.transform(iris[:3])) == bits(mapper.embedding_[:3])
        if metric is not flat:
            new = mapper.transform(iris[:9] + 0.01)
            assert np.isfinite(new).all()
            assert bits(np.vstack([mapper.transform(iris[i : i + 1] + 0.01) for i in range(9)])) == bits(new)


def test_points_without_neighbours_on_surfaces():
    data = (np.random.default_rng(3).random((60, 30)) < 0.4).astype(np.float32)
    data[40] = 0
    data[40, 0], data[np.arange(60) != 40, 0] = 1, 0  # shares nothing with the others
    new = np.vstack([data[:4, ::-1], data[40:41]])
    new[:4, 0] = 0
    for metric in ("euclidean", "manhattan", "haversine"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            mapper = UMAP(metric="jaccard", output_metric=metric, n_epochs=30).fit(data)
            assert umap.disconnected(mapper.embedding_) == 1
            assert umap.disconnected(mapper.transform(new)) == 1
            mapper.set_params(n_epochs=30).update(new[:4])
        assert umap.disconnected(mapper.embedding_) == 1, metric


def test_starts_on_surfaces(iris):
    start = np.random.default_rng(0).uniform(0.5, 2.5, (150, 2)).astype(np.float32)
    for metric in ("haversine", "hyperboloid"):
        assert bits(UMAP(init=start, n_epochs=0, output_metric=metric).fit_transform(iris)) == bits(start)
        few = UMAP(output_metric=metric, n_epochs=20).fit(iris[:140])
        before = few.embedding_
        few.set_params(n_epochs=1, learning_rate=1e-6).update(iris[140:])
        assert np.abs(few.embedding_[:140] - before).max() < 1e-4
    refuses(lambda: UMAP(init=start[:7], n_epochs=0).fit(iris), ValueError, "init")
    refuses(lambda: UMAP(output_metric=lambda x, y: (0.0, x[:1])).fit(iris), ValueError, "gradient")
    refuses(lambda: UMAP(output_metric="haversine", output_metric_kwds={"r": 1}).fit(iris), ValueError, "output_metric_kwds")


def test_densmap_acts_everywhere(iris):
    def spread(options, y=None):
        mapper = UMAP(output_dens=True, densmap=True, **({"n_epochs": 100} | options)).fit(iris, y)
        kept = np.isfinite(mapper.rad_emb_)
        return np.corrcoef(mapper.rad_orig_[kept], mapper.rad_emb_[kept])[0, 1]

    def euclidean(x, y):
        return float(np.sqrt(((x - y) ** 2).sum()))

    for options, y in (({"target_metric": "ordinal", "target_weight": 0.1}, np.arange(150)), ({"n_epochs": [50, 100]}, None)):
        assert spread(options, y) > 0.6
    plain, mine = (UMAP(n_epochs=20, densmap=True, metric=m).fit(iris[:60]) for m in ("euclidean", euclidean))
    assert plain.graph_dists_.shape == (60, 60) and (plain.graph_dists_ != plain.graph_dists_.T).nnz == 0
    assert trustworthiness(iris[:60], mine.embedding_) > trustworthiness(iris[:60], plain.embedding_) - 0.03
    assert np.isfinite(UMAP(densmap=True, n_epochs=5).fit(iris[:100]).update(iris[100:]).embedding_).all()
    one = UMAP(densmap=True, output_dens=True).fit_transform(iris[:1])
    assert one[0].shape == (1, 2) and np.isnan(one[1]).all()


def test_in_the_place_of_umap_learn():
    """Packages that import umap and umap.umap_ get Napier's, once sys.modules says so."""
    code = (
        "import sys, napier.umap; sys.modules['umap'] = napier.umap\n"
        "import umap, umap.umap_, umap.plot\n"
        "from umap.umap_ import find_ab_params, fuzzy_simplicial_set, simplicial_set_embedding\n"
        "import numpy as np; data = np.random.default_rng(0).normal(size=(60, 4))\n"
        "graph, sigmas, rhos = fuzzy_simplicial_set(data, 10, np.random.RandomState(0), 'euclidean')\n"
        "found = simplicial_set_embedding(data, graph, 2, 1.0, None, None, 1.0, 5, [10, 20], 'random',\n"
        "                                 np.random.RandomState(0), 'euclidean', {}, False, {}, False)\n"
        "import napier; print(umap.__version__ == napier.__version__, found[0].shape, len(found[1]['embedding_list']), sigmas.shape)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True (60, 2) 2 (60,)"


def test_functions_of_umap_learn_refuse():
    from napier.umap import umap_

    data, start = np.zeros((5, 2)), {"graph": umap_.fuzzy_simplicial_set(np.eye(5), 3)[0]}
    for words, call in [
        ("densmap", lambda: umap_.simplicial_set_embedding(data, **start, densmap=True)),
        ("init: 'x'", lambda: umap_.simplicial_set_embedding(data, **start, init="x")),
        ("init: expected", lambda: umap_.simplicial_set_embedding(data, **start, init=np.zeros((4, 2)))),
        ("knn_indices", lambda: umap_.fuzzy_simplicial_set(data, 2, knn_indices=[[0]], knn_dists=[[0.0]])),
        ("k: 3", lambda: umap_.smooth_knn_dist(np.ones((2, 4)), 3)),
    ]:
        with pytest.raises(ValueError, match=words):
            call()
