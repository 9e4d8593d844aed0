"""napier.umap.umap_ beside umap.umap_: parameters and results of the functions."""
import inspect

import numpy as np
import umap.umap_ as theirs
from sklearn.datasets import load_digits
from sklearn.neighbors import NearestNeighbors

import napier.umap.umap_ as mine

DATA = load_digits().data[:300].astype(np.float32)
NAMES = ("nearest_neighbors", "smooth_knn_dist", "compute_membership_strengths", "fuzzy_simplicial_set",
         "simplicial_set_embedding", "find_ab_params")


def test_parameters():
    for name in NAMES:
        function = getattr(theirs, name)
        wanted = list(inspect.signature(getattr(function, "py_func", function)).parameters)
        assert list(inspect.signature(getattr(mine, name)).parameters) == wanted, name
    assert (mine.INT32_MIN, mine.INT32_MAX) == (theirs.INT32_MIN, theirs.INT32_MAX + 1)  # theirs is one less than int32's
    assert mine.DISCONNECTION_DISTANCES == theirs.DISCONNECTION_DISTANCES
    return f"{len(NAMES)} functions"


def neighbors():
    """By scikit-learn: umap-learn compiles NNDescent for 40 seconds."""
    distances, indices = NearestNeighbors(n_neighbors=15).fit(DATA).kneighbors(DATA)
    return indices, distances.astype(np.float32)


def test_results():
    state = np.random.RandomState(1)
    indices, distances, _ = mine.nearest_neighbors(DATA, 15, "euclidean", {}, False, state)
    other = neighbors()[1]
    assert np.allclose(distances, other, rtol=1e-4, atol=1e-2)
    ours, wanted = mine.smooth_knn_dist(distances, 15), theirs.smooth_knn_dist(distances, 15.0)
    assert all(np.allclose(a, b, rtol=1e-3) for a, b in zip(ours, wanted, strict=True))
    cut = indices.copy()
    cut[3, 5] = -1
    for bipartite in (False, True):
        for a, b in zip(mine.compute_membership_strengths(cut, distances, *wanted, True, bipartite),
                        theirs.compute_membership_strengths(cut, distances, *wanted, True, bipartite), strict=True):
            assert np.allclose(a, b, rtol=1e-5)
    for options in ({}, {"set_op_mix_ratio": 0.5}, {"apply_set_operations": False}, {"local_connectivity": 2.0}):
        known = {"knn_indices": indices, "knn_dists": distances, "return_dists": True} | options
        graph, _, _, edges = mine.fuzzy_simplicial_set(DATA, 15, state, "euclidean", **known)
        wanted, _, _, their_edges = theirs.fuzzy_simplicial_set(DATA, 15, state, "euclidean", **known)
        assert abs(graph - wanted).max() < 1e-3, options
        assert np.allclose(edges.toarray(), their_edges.toarray())


def test_embedding():
    a, b = mine.find_ab_params(1.0, 0.1)
    assert np.allclose((a, b), theirs.find_ab_params(1.0, 0.1), rtol=1e-2)
    indices, distances = neighbors()
    graph, _, _ = theirs.fuzzy_simplicial_set(DATA, 15, np.random.RandomState(1), "euclidean", knn_indices=indices, knn_dists=distances)
    call = (DATA, graph, 2, 1.0, a, b, 1.0, 5, 100, "spectral", np.random.RandomState(1), "euclidean", {}, False, {}, False)
    map_, details = mine.simplicial_set_embedding(*call)
    wanted, their_details = theirs.simplicial_set_embedding(*call)
    assert map_.shape == wanted.shape and map_.dtype == np.float32 and details == their_details == {}
