"""napier.umap: every stage against its formula in NumPy, its shapes and dtypes, and its errors. The numbers themselves
are the matter of tests/unit."""

import concurrent.futures
import pathlib
import pickle
import re
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import scipy.sparse
from scipy.spatial.distance import cdist

import napier
from conftest import bits, layouts, refuses
from napier import umap

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def data(rng):
    centers = rng.normal(size=(4, 6)) * 5
    return (centers[np.arange(200) % 4] + rng.normal(size=(200, 6))).astype(np.float32)


@pytest.fixture
def graph(data):
    return umap.fuzzy_simplicial_set(*umap.nearest_neighbors(data, 10))


def test_every_function_of_the_header_is_there():
    text = (ROOT / "include" / "napier" / "umap.h").read_text()
    names = re.findall(r"NAPIER_API [\w ]+?\**napier_(\w+)\(", text)
    wanted = {name.removeprefix("umap_") for name in names if not name.endswith("_destroy")}
    assert len(wanted) > 30
    assert {name for name in wanted if not callable(getattr(umap, name, None))} == set()
    assert all(getattr(umap, name).__doc__ for name in wanted)


# ---- The curve, edges and forces ------------------------------------------------------------------------------------


def test_find_ab_params_fits_the_curve():
    a, b = umap.find_ab_params(1.0, 0.25)
    d = np.linspace(0, 3, 300)
    wanted = np.where(d < 0.25, 1, np.exp(-(d - 0.25)))
    assert np.abs(1 / (1 + a * d ** (2 * b)) - wanted).max() < 0.06
    refuses(lambda: umap.find_ab_params(1.0, 2.0), ValueError, "min_dist")
    refuses(lambda: umap.find_ab_params("wide"), TypeError, "spread")


def test_edges_and_segments(rng):
    sparse = scipy.sparse.random(20, 20, 0.2, format="coo", random_state=1, dtype=np.float32)
    order = rng.permutation(sparse.nnz)
    shuffled = umap.edges((sparse.row[order], sparse.col[order], sparse.data[order]))
    ordered = umap.sort_edges(shuffled)
    assert ordered.dtype == umap.EDGE and bits(ordered) == bits(umap.edges(sparse))
    assert bits(shuffled) != bits(ordered)  # a copy was sorted
    starts, counts = umap.segments(ordered, 20)
    assert counts.tolist() == np.bincount(sparse.row, minlength=20).tolist()
    assert all((ordered["source"][s : s + c] == v).all() for v, (s, c) in enumerate(zip(starts, counts, strict=True)))
    assert (umap.graph_from_edges(ordered, 20) != sparse.tocsr()).nnz == 0
    refuses(lambda: umap.segments(ordered[::-1], 20), ValueError, "sorted")
    refuses(lambda: umap.segments(ordered, 3), ValueError, "edge")


def test_forces_are_their_formulas(data, graph, rng):
    y = rng.normal(size=(len(data), 3)).astype(np.float32)
    e, (a, b) = umap.edges(graph), umap.find_ab_params()
    on_source, on_target = umap.edge_gradients(y, e)
    delta = (y[e["source"]] - y[e["target"]]).astype(float)
    d2 = (delta**2).sum(1, keepdims=True)
    force = np.clip(-2 * a * b * d2 ** (b - 1) / (1 + a * d2**b) * delta, -4, 4) * e["weight"][:, None]
    np.testing.assert_allclose(on_source, force, rtol=1e-5, atol=1e-6)
    assert bits(on_target) == bits(-on_source)
    sums = umap.reduce_segments(on_source, *umap.segments(e, len(y)))
    assert bits(sums) == bits(umap.gradients(y, e, move_targets=False))
    moved = y.copy()
    assert umap.apply(moved, sums, 0.5) is moved
    np.testing.assert_allclose(moved, y + 0.5 * sums, rtol=1e-6, atol=1e-6)


def test_repulsion_and_loss_are_their_formulas(data, graph, rng):
    y = rng.normal(size=(len(data), 2)).astype(np.float32)
    a, b = umap.find_ab_params()
    targets = umap.negative_targets(len(y), 4, epoch=3, seed=7)
    assert targets.dtype == np.uint32 and targets.shape == (len(y), 4) and targets.max() < len(y)
    assert bits(targets) == bits(umap.negative_targets(len(y), 4, epoch=3, seed=7))
    assert bits(targets) != bits(umap.negative_targets(len(y), 4, epoch=4, seed=7))
    delta = (y[:, None] - y[targets]).astype(float)
    d2 = (delta**2).sum(2, keepdims=True)
    force = np.clip(2 * 1.5 * b / ((0.001 + d2) * (1 + a * d2**b)) * delta, -4, 4).sum(1)
    np.testing.assert_allclose(umap.negative_gradients(y, targets, repulsion_strength=1.5), force, rtol=1e-4, atol=1e-5)
    e = umap.edges(graph)
    ends = ((y[e["source"]] - y[e["target"]]).astype(float) ** 2).sum(1)
    wanted = (e["weight"] * np.log1p(a * ends**b)).sum()
    assert umap.loss(y, e) == pytest.approx(wanted, rel=1e-5)
    assert umap.loss(y, e, targets) > wanted
    refuses(lambda: umap.loss(y, e, gamma=1), TypeError, "unexpected keyword")


@pytest.mark.parametrize("method", ["sgd", "momentum", "adam"])
def test_epochs_go_on_where_they_stopped(graph, method):
    start, e = umap.random_layout(200), umap.edges(graph)
    whole = umap.optimize_epochs(start.copy(), e, umap.Optimizer(200, 2, method), count=8, move_targets=False)
    optimizer, parts = umap.Optimizer(200, 2, method), start.copy()
    umap.optimize_epochs(parts, e, optimizer, count=3, total=8, move_targets=False)
    optimizer = pickle.loads(pickle.dumps(optimizer))
    umap.optimize_epochs(parts, e, optimizer, first=3, count=5, total=8, move_targets=False)
    assert bits(whole) == bits(parts) and bits(whole) != bits(start)


def test_epochs_with_targets_of_the_callers(graph):
    start, e = umap.random_layout(200), umap.edges(graph)
    targets = umap.negative_targets(200, 5)
    given = umap.optimize_epochs(start.copy(), e, targets=targets, rate_per="vertex")
    drawn = umap.optimize_epochs(start.copy(), e, rate_per="vertex")
    assert bits(given) == bits(drawn)
    refuses(lambda: umap.optimize_epochs(start.copy(), e, targets=targets[:, :3], rate_per="vertex"), ValueError, "targets")
    refuses(lambda: umap.optimize_epochs(start.astype(np.float64), e), TypeError, "embedding")
    refuses(lambda: umap.optimize_epochs(start, e, "adam"), TypeError, "optimizer")
    refuses(lambda: umap.Optimizer(10, 2, "lbfgs"), ValueError, "method")
    refuses(lambda: umap.Optimizer.from_bytes(b"no optimizer"), ValueError)


# ---- Neighbours and the fuzzy set -----------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "chebyshev", "cosine", "correlation", "canberra"])
def test_neighbours_are_scipys(data, metric):
    indices, distances = umap.nearest_neighbors(data, 7, metric)
    every = cdist(data.astype(float), data.astype(float), {"manhattan": "cityblock"}.get(metric, metric))
    assert indices.dtype == np.int32 and distances.dtype == np.float32 and indices.shape == (200, 7)
    assert (indices[:, 0] == np.arange(200)).all()
    np.testing.assert_allclose(distances, np.sort(every, 1)[:, :7], rtol=1e-4, atol=2e-4)
    of_indices, of_distances = umap.nearest_neighbors_of(data, data[:5] + 1, 3, metric)
    assert of_indices.shape == of_distances.shape == (5, 3)


def test_metric_keywords(data, rng):
    wanted = np.sort(cdist(data, data, "minkowski", p=3), 1)[:, :5]
    np.testing.assert_allclose(umap.nearest_neighbors(data, 5, "minkowski", {"p": 3})[1], wanted, rtol=1e-4, atol=1e-4)
    v = rng.uniform(1, 2, 6)
    wanted = np.sort(cdist(data, data, "seuclidean", V=v), 1)[:, :5]
    np.testing.assert_allclose(umap.nearest_neighbors(data, 5, "seuclidean", {"V": v})[1], wanted, rtol=1e-4, atol=1e-4)
    sparse = scipy.sparse.csr_matrix(data)
    assert bits(umap.nearest_neighbors(sparse, 5, "seuclidean", {"V": v})[1]) == bits(
        umap.nearest_neighbors(data, 5, "seuclidean", {"V": v})[1]
    )
    for call in (
        lambda: umap.nearest_neighbors(sparse, 5, "seuclidean"),
        lambda: umap.fit(sparse, metric="seuclidean"),
        lambda: umap.UMAP(metric="seuclidean").fit(sparse),
    ):
        refuses(call, ValueError, "metric_kwds: for sparse data seuclidean needs V")
    inverse = np.diag(v)
    wanted = np.sort(cdist(data, data, "mahalanobis", VI=inverse), 1)[:, :5]
    got = umap.nearest_neighbors(data, 5, "mahalanobis", {"VI": inverse})[1]
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)
    assert umap.metric_name(umap.metric_from_name("cosine")) == "cosine"
    assert umap.metric_name(99) is None and umap.metric_from_name("none") == -1
    for metric, options, text in (
        ("euklidean", None, "metric"),
        ("euclidean", {"p": 3}, "metric_kwds"),
        ("seuclidean", {"V": v[:3]}, "metric_values"),
    ):
        refuses(lambda: umap.nearest_neighbors(data, 5, metric, options), ValueError, text)
    refuses(lambda: umap.nearest_neighbors(data, 5, lambda x, y: 0), ValueError, "metric")


def test_layouts_and_dtypes_of_the_data(data):
    data = np.round(data)
    wanted = umap.nearest_neighbors(data, 5)[0]
    for name, x in layouts(data):
        assert bits(umap.nearest_neighbors(x, 5)[0]) == bits(wanted), name
    for dtype in (np.float64, np.float16, np.int32, np.int8):
        assert bits(umap.nearest_neighbors(data.astype(dtype), 5)[0]) == bits(wanted), dtype
    assert bits(umap.nearest_neighbors(data.tolist(), 5)[0]) == bits(wanted)
    for form in (scipy.sparse.csr_matrix, scipy.sparse.csc_matrix, scipy.sparse.coo_matrix, scipy.sparse.csr_array):
        assert bits(umap.nearest_neighbors(form(data), 5)[0]) == bits(wanted), form
    for x, kind, text in (
        (data[0], ValueError, "X: expected 2 dimensions, got 1"),
        (data + 1j, TypeError, "X: complex"),
        ([["a"]], TypeError, "X: expected numbers"),
        ([[1, 2], [3]], ValueError, "X: not an array"),
    ):
        refuses(lambda: umap.nearest_neighbors(x, 2), kind, text)
    spoiled = data.copy()
    spoiled[3, 2] = np.nan
    refuses(lambda: umap.nearest_neighbors(spoiled, 5), ValueError, "3")
    refuses(lambda: umap.nearest_neighbors(data, 201), ValueError, "n_neighbors")


def test_hostile_sparse_data_is_refused():
    good = scipy.sparse.csr_matrix(np.eye(6, dtype=np.float32))
    for change in ({"indices": good.indices + 9}, {"indptr": good.indptr[::-1]}, {"indptr": good.indptr + 100}, {"data": good.data[:2]}):
        part = {"data": good.data, "indices": good.indices, "indptr": good.indptr, "shape": (6, 6)} | change
        refuses(lambda: umap.nearest_neighbors(umap.Graph(**part), 3), ValueError)


def test_the_fuzzy_set(data):
    indices, distances = umap.nearest_neighbors(data, 10)
    sigmas, rhos = umap.smooth_knn_dist(distances)
    np.testing.assert_array_equal(rhos, distances[:, 1])
    a = np.zeros((200, 200))
    np.put_along_axis(a, indices, np.exp(-np.maximum(0, distances - rhos[:, None]) / sigmas[:, None]), 1)
    np.fill_diagonal(a, 0)
    np.testing.assert_allclose(a.sum(1), np.log2(10), rtol=1e-3)
    for mix in (1.0, 0.3):
        graph = umap.fuzzy_simplicial_set(indices, distances, set_op_mix_ratio=mix)
        assert isinstance(graph, scipy.sparse.csr_matrix) and graph.dtype == np.float32
        wanted = mix * (a + a.T - a * a.T) + (1 - mix) * a * a.T
        np.testing.assert_allclose(graph.toarray(), wanted, rtol=1e-5, atol=1e-6)
    refuses(lambda: umap.fuzzy_simplicial_set(indices, distances, 1.0, 2.0), ValueError, "set_op_mix_ratio")
    refuses(lambda: umap.fuzzy_simplicial_set(distances, distances), TypeError, "indices")
    refuses(lambda: umap.fuzzy_simplicial_set(indices, distances[:, :3]), ValueError, "distances")


def test_supervision(data, graph):
    labels = np.arange(200) // 4 % 2  # both in every cluster
    joined = umap.join_categories(graph, labels)
    same = labels[:, None] == labels
    assert joined.toarray()[~same].sum() < 0.1 * graph.toarray()[~same].sum() > 0
    assert umap.join_numbers(graph, data[:, 0], 5).shape == (200, 200)
    refuses(lambda: umap.join_categories(graph, labels[:7]), ValueError, "categories")
    refuses(lambda: umap.join_numbers(graph, data[:, 0], 5, 3.0), ValueError, "target_weight")
    refuses(lambda: umap.join_categories(graph.toarray(), labels), TypeError, "graph")


# ---- The whole, and its parts ---------------------------------------------------------------------------------------


def test_the_stages_make_what_fit_makes(data):
    knn = umap.nearest_neighbors(data)
    graph = umap.fuzzy_simplicial_set(*knn)
    start = umap.spectral_layout(graph, data)
    assert start.shape == (200, 2) and start.dtype == np.float32
    model = umap.fit(data)
    assert bits(umap.optimize_layout(graph, start)) == bits(model.embedding)
    assert bits(umap.fit(data, knn=knn).embedding) == bits(model.embedding)
    assert bits(umap.fit(data, init=start).embedding) == bits(model.embedding)
    assert umap.pca_layout(data, 3).shape == (200, 3)
    assert np.abs(umap.random_layout(50)).max() <= 10
    assert umap.model_features(model) == 6 and umap.model_embedding(model).shape == (200, 2)


def test_threads_and_instruction_sets_change_no_bit(data):
    wanted = umap.fit(data, threads=1).to_bytes()
    assert umap.fit(data, threads=3).to_bytes() == wanted
    for isa in ("scalar", "avx2", "avx512", "neon"):
        if napier.isa_available(isa):
            napier.set_isa(isa)
            assert umap.fit(data).to_bytes() == wanted, isa
    refuses(lambda: umap.fit(data, threads=-1), ValueError, "threads")


def test_models_are_kept(data, tmp_path):
    model = umap.fit(data, n_components=3)
    path = tmp_path / "map"
    umap.model_save(model, path)
    assert path.read_bytes() == umap.model_to_bytes(model)
    new = data[:9] + 0.1
    wanted = umap.transform(model, new)
    for again in (umap.model_load(path), umap.model_from_bytes(path.read_bytes()), pickle.loads(pickle.dumps(model))):
        assert bits(again.transform(new)) == bits(wanted) and bits(again.embedding) == bits(model.embedding)
    assert umap.inverse_transform(model, wanted).shape == (9, 6)
    refuses(lambda: umap.model_from_bytes(path.read_bytes()[:-3]), ValueError)
    refuses(lambda: umap.model_load(tmp_path / "nothing"), OSError, "model_load")
    refuses(lambda: model.save(tmp_path / "no" / "folder"), OSError)
    refuses(lambda: model.transform(data[:, :5]), ValueError, "5")
    refuses(lambda: model.inverse_transform(data), ValueError)


def test_a_row_alone_is_a_row_among_others(data):
    model = umap.fit(data)
    new = data[:20] + 0.25
    together = model.transform(new)
    assert bits(np.vstack([model.transform(row[None]) for row in new])) == bits(together)
    assert bits(model.transform(new[::-1])[::-1]) == bits(together)
    assert model.transform(new[:0]).shape == (0, 2)


def test_precomputed_distances(data):
    every = cdist(data, data).astype(np.float32)
    assert umap.fit(every, metric="precomputed").embedding.shape == (200, 2)
    model = umap.fit(every, metric="precomputed")
    near = model.transform(cdist(data[:9] + 1e-3, data))
    assert np.abs(near - model.embedding[:9]).max() < 1.5
    refuses(lambda: model.transform(every[:, :9]), ValueError, "columns")


def test_quality(data):
    model = umap.fit(data)
    quality = umap.quality_of(data, model.embedding, np.arange(200) % 4)
    assert quality.trustworthiness > 0.9 and quality.knn_accuracy > 0.9
    assert np.isnan(umap.quality_of(data, model.embedding).knn_accuracy)
    sklearn = pytest.importorskip("sklearn.manifold")
    wanted = sklearn.trustworthiness(data, model.embedding, n_neighbors=15)
    assert quality.trustworthiness == pytest.approx(wanted, abs=1e-6)


# ---- Progress, and stopping -----------------------------------------------------------------------------------------


def test_progress_is_told_and_can_stop(data):
    told = []
    umap.fit(data, progress=lambda stage, done: told.append((stage, done)))
    assert [s for i, (s, _) in enumerate(told) if i == 0 or told[i - 1][0] != s] == ["neighbours", "fuzzy set", "start", "layout"]
    assert all(0 <= done <= 1 for _, done in told)
    refuses(lambda: umap.fit(data, progress=lambda stage, done: stage == "layout"), RuntimeError, "cancelled")
    refuses(lambda: umap.fit(data, progress=lambda stage, done: 1 / 0), ZeroDivisionError)
    refuses(lambda: umap.fit(data, progress=3), TypeError, "progress")


def test_a_stopped_layout_is_that_of_the_last_whole_epoch(graph):
    e, start = umap.edges(graph), umap.random_layout(200)
    calls = []
    stopped = start.copy()
    with pytest.raises(RuntimeError, match="cancelled"):
        umap.optimize_epochs(stopped, e, count=9, progress=lambda *_: calls.append(1) or len(calls) == 4)
    whole = [umap.optimize_epochs(start.copy(), e, count=n, total=9) for n in range(1, 9)]
    assert bits(stopped) in {bits(w) for w in whole}


def test_an_interrupt_stops_the_work(data):
    many = np.tile(data, (25, 1)) + np.arange(5000, dtype=np.float32)[:, None] / 50
    timer = threading.Timer(0.2, signal.raise_signal, [signal.SIGINT])
    began = time.monotonic()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        umap.fit(many, n_epochs=100000)
        time.sleep(5)  # a machine that had done by then
    assert time.monotonic() - began < 60
    timer.join()


def test_other_threads_run_meanwhile(data):
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: umap.fit(data, threads=1).to_bytes(), range(4)))
    assert len(set(results)) == 1


def test_functions_do_without_scikit_learn():
    """Only the estimator imports it, which takes a second: the functions fit, save and transform without it."""
    code = (
        "import sys, numpy as np, napier.umap as umap\n"
        "x = np.random.default_rng(0).normal(size=(60, 4))\n"
        "umap.transform(umap.fit(x, n_neighbors=5, n_epochs=10), x[:3])\n"
        "assert 'sklearn' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
