"""Every stage up to the layout, each from the same input as umap-learn's function of that stage."""
import ctypes

import numpy as np
import scipy.sparse
import umap.distances
import umap.umap_ as reference
from napier_c import NapierError, napier
from sklearn.metrics import pairwise_distances
from support import raises
from umap.spectral import spectral_layout
from umap_data import Graph, at_least, at_most, digits, flowers, neighbors, samples, worst

K = 15


# ---- Neighbours ------------------------------------------------------------------------------------------------------


def check_neighbors(name, x, all_distances, indices, distances, bound):
    """Distances as umap-learn has them, sorted; where an index differs from its, the distances are equal."""
    k = indices.shape[1]
    theirs = np.sort(all_distances, axis=1)[:, :k]
    theirs[:, 0] = np.where(np.diag(all_distances) > 0, distances[:, 0], theirs[:, 0])
    at_most(worst(distances, theirs), bound, f"{name}: distances")
    at_most(worst(np.take_along_axis(all_distances, indices.astype(int), 1)[:, 1:], theirs[:, 1:]), bound,
            f"{name}: distances of the indices")


def brute_force(function, x, *arguments):
    return np.array([[function(a, b, *arguments) if i != j else 0.0 for j, b in enumerate(x)] for i, a in enumerate(x)])


REAL = ["euclidean", "manhattan", "chebyshev", "cosine", "correlation", "canberra", "braycurtis", "hellinger"]
BOOLEAN = ["hamming", "jaccard", "dice", "yule", "russellrao", "rogerstanimoto", "sokalmichener", "sokalsneath",
           "kulsinski", "matching"]


def metric_number(name):
    return napier.call("napier_metric_from_name", name)


def test_neighbors_of_digits():
    x, _ = digits()
    indices, distances = neighbors(x, K)
    check_neighbors("euclidean", x, pairwise_distances(x.astype(np.float64)), indices, distances, 1e-5)


def test_neighbors_by_metrics_of_numbers():
    x = np.abs(digits()[0][:100]) / 16
    for name in REAL:
        indices, distances = neighbors(x, K, metric=metric_number(name))
        theirs = brute_force(umap.distances.named_distances[name], x.astype(np.float64))
        # the square roots of what is left of 1 - cos: 1e-7 becomes 3e-4
        check_neighbors(name, x, theirs, indices, distances, 4e-4 if name == "hellinger" else 2e-6)
    return ", ".join(REAL)


def test_neighbors_by_boolean_metrics():
    x = (digits()[0][:100] > 7).astype(np.float32)
    for name in BOOLEAN:
        indices, distances = neighbors(x, K, metric=metric_number(name))
        theirs = brute_force(umap.distances.named_distances[name], x)
        check_neighbors(name, x, theirs, indices, distances, 2e-6)
    return ", ".join(BOOLEAN)


def test_neighbors_by_metrics_with_values():
    x = digits()[0][:100, 25:31]  # all of them vary
    variances = x.var(axis=0, ddof=1).astype(np.float32)
    inverse = np.ascontiguousarray(np.linalg.inv(np.cov(x.T)).astype(np.float32))
    named = umap.distances.named_distances
    wide = x.astype(np.float64)
    cases = [("minkowski", {"p": 3.0}, (3.0,)), ("seuclidean", {"metric_values": variances}, (variances.astype(float),)),
             ("mahalanobis", {"metric_values": inverse}, (inverse.astype(float),)),
             ("haversine", {}, ())]
    for name, options, arguments in cases:
        data = x if name != "haversine" else (x[:, :2] / 10).copy()
        indices, distances = neighbors(data, K, metric=metric_number(name), **options)
        theirs = brute_force(named[name], wide if name != "haversine" else data.astype(np.float64), *arguments)
        check_neighbors(name, data, theirs, indices, distances, 1e-5)
    return ", ".join(name for name, _, _ in cases)


def test_neighbors_by_rare_metrics():
    """Those of umap-learn that change their arguments get copies."""
    x, named = digits()[0][:100], umap.distances.named_distances
    weights = np.linspace(0.5, 2, 64).astype(np.float32)
    cases = [("wminkowski", x, {"p": 3.0, "metric_values": weights}, (weights.astype(float), 3.0)),
             ("poincare", x / 150, {}, ()), ("symmetric_kl", x, {}, ()), ("ll_dirichlet", x, {}, ()),
             ("softmax_hellinger", x / 4, {}, ())]
    for name, data, options, arguments in cases:
        data = np.ascontiguousarray(data, np.float32)
        indices, distances = neighbors(data, K, metric=metric_number(name), **options)
        theirs = brute_force(lambda a, b: named[name](a.copy(), b.copy(), *arguments), data.astype(np.float64))
        check_neighbors(name, data, theirs, indices, distances, 1e-5)
    words = [a + b for a in ("cat", "horse", "mouse", "m") for b in ("", "s", "es", "ing", "ing around the houses again")]
    codes = np.array([[ord(c) for c in word.ljust(40, "\0")] for word in words], np.float32)
    codes[codes == 0] = -1
    indices, distances = neighbors(codes, K, metric=metric_number("string"))
    theirs = np.array([[min(float(named["string"](a, b)), 20.0) for b in words] for a in words])
    check_neighbors("string", codes, theirs, indices, distances, 0)
    return ", ".join([name for name, *_ in cases] + ["string"])


def test_gradients():
    """Distances and gradients of our own, where umap-learn's gradient is that of its distance."""
    from napier._umap import gradients
    draw = np.random.default_rng(5)
    theirs = umap.distances.named_distances_with_gradients
    plain = ("euclidean", "manhattan", "chebyshev", "minkowski", "canberra", "braycurtis", "cosine", "hellinger",
             "haversine", "hyperboloid", "spherical_gaussian_energy", "softmax_hellinger")
    for name in plain:
        x, y = draw.uniform(0.2, 1.2, size=(2, 40, gradients.COMPONENTS.get(name, 5)))
        ours = (gradients.OF_MAPS | {"euclidean": gradients.OF_DATA["euclidean"]})[name](x, y)
        pairs = [theirs[name](a.copy(), b.copy()) for a, b in zip(x, y, strict=True)]
        at_most(worst(ours[0], np.array([p[0] for p in pairs])), 1e-5, f"{name}: distances")
        at_most(np.abs(ours[1] - np.array([p[1] for p in pairs])).max(), 1e-4, f"{name}: gradients")
    for name in ("diagonal_gaussian_energy", "gaussian_energy", "symmetric_kl", "correlation"):  # only the distances
        x, y = draw.uniform(0.2, 1.2, size=(2, 40, gradients.COMPONENTS.get(name, 5)))
        ours = gradients.OF_MAPS[name](x, y)[0]
        at_most(worst(ours, np.array([theirs[name](a.copy(), b.copy())[0] for a, b in zip(x, y, strict=True)])), 1e-5, name)
    return ", ".join(plain)


def test_neighbors_of_sparse_rows():
    x, _ = digits()
    x = x[:300]
    for name in ("euclidean", "manhattan", "cosine"):
        dense = neighbors(x, K, metric=metric_number(name))
        sparse = neighbors(scipy.sparse.csr_matrix(x), K, metric=metric_number(name))
        at_most(worst(sparse[1], dense[1]), 1e-5, name)
        at_most(worst(sparse[1], np.sort(pairwise_distances(x.astype(np.float64), metric=name), axis=1)[:, :K]), 1e-5, name)


def test_neighbors_precomputed():
    x, _ = flowers()
    distances = pairwise_distances(x)
    ours = neighbors(distances.astype(np.float32), K, metric=napier.NAPIER_METRIC_PRECOMPUTED)
    check_neighbors("precomputed", x, distances, *ours, 1e-6)


# ---- The fuzzy set ---------------------------------------------------------------------------------------------------


def scales(distances, local_connectivity):
    rhos, sigmas = np.empty(len(distances), np.float32), np.empty(len(distances), np.float32)
    napier.call("napier_umap_smooth_knn_dist", distances, *distances.shape, local_connectivity, rhos, sigmas)
    return rhos, sigmas


def test_rhos_and_sigmas():
    for x, _ in (flowers(), digits()):
        _, distances = neighbors(x, K)
        distances[:5, :4] = 0  # duplicates
        for local_connectivity in (0.0, 0.5, 1.0, 1.5, 3.0):
            sigmas, rhos = reference.smooth_knn_dist(distances, float(K), local_connectivity=local_connectivity)
            ours = scales(distances, local_connectivity)
            at_most(worst(ours[0], rhos), 1e-6, f"rhos at {local_connectivity}")
            # both end within 1e-5 of log2(k), in f32 and in double: where the sum is flat the scale may differ a little
            at_most(worst(ours[1], sigmas), 3e-5, f"sigmas at {local_connectivity}")


def reference_set(x, indices, distances, local_connectivity=1.0, mix=1.0):
    return reference.fuzzy_simplicial_set(x, K, np.random.RandomState(1), "euclidean", {}, indices, distances, False, mix,
                                          local_connectivity)[0]


def check_graph(ours, theirs, bound, what):
    ours, theirs = ours.matrix(), scipy.sparse.csr_matrix(theirs)
    assert (ours != ours.T).nnz == 0, f"{what}: not symmetric"
    at_most(abs(ours - theirs).max(), bound, what)
    missing = (abs(theirs) > bound).astype(int) - (abs(ours) > 0).astype(int)
    assert missing.max() <= 0, f"{what}: an edge is missing"


def test_fuzzy_set():
    for x, _ in (flowers(), digits()):
        near = neighbors(x, K)
        check_graph(Graph(*near), reference_set(x, *near), 2e-5, "weights")


def test_set_operations():
    x, _ = digits()
    near = neighbors(x, K)
    for options in ((1.0, 0.0), (1.0, 0.25), (2.5, 1.0), (3.0, 0.5), (0.0, 1.0)):
        what = "local_connectivity {}, set_op_mix_ratio {}".format(*options)
        check_graph(Graph(*near, *options), reference_set(x, *near, *options), 2e-5, what)


# ---- Supervision -----------------------------------------------------------------------------------------------------


def test_categories():
    x, labels = digits()
    indices, distances = neighbors(x, K)
    known = labels.copy()
    known[::3] = -1
    for weight in (0.0, 0.5, 0.9, 1.0):
        graph = Graph(indices, distances)
        theirs = reference_set(x, indices, distances)
        far = 2.5 / (1.0 - weight) if weight < 1 else 1e12
        theirs = reference.discrete_metric_simplicial_set_intersection(theirs, known, far_dist=far)
        napier.call("napier_umap_join_categories", ctypes.byref(graph.pointer), known, weight)
        check_graph(graph, theirs, 5e-5, f"target_weight {weight}")


def test_numbers():
    x, labels = digits()
    indices, distances = neighbors(x, K)
    numbers = (labels + np.random.default_rng(3).normal(size=len(labels))).astype(np.float32)
    for weight in (0.2, 0.5, 0.8):
        graph = Graph(indices, distances)
        by_numbers = reference.fuzzy_simplicial_set(
            pairwise_distances(numbers.reshape(-1, 1)), 10, np.random.RandomState(1), "precomputed", {}, None, None, False,
            1.0, 1.0, False)[0]
        theirs = reference.general_simplicial_set_intersection(reference_set(x, indices, distances), by_numbers, weight)
        theirs = reference.reset_local_connectivity(theirs)
        napier.call("napier_umap_join_numbers", ctypes.byref(graph.pointer), numbers, 10, weight)
        check_graph(graph, theirs, 2e-4, f"target_weight {weight}")


# ---- The curve -------------------------------------------------------------------------------------------------------


def rmse(a, b, min_dist, spread):
    x = np.linspace(0, 3 * spread, 300)
    wanted = np.where(x < min_dist, 1.0, np.exp(-(x - min_dist) / spread))
    return np.sqrt(np.mean((1.0 / (1.0 + a * x ** (2 * b)) - wanted) ** 2))


def test_a_and_b():
    for min_dist, spread in ((0.0, 1.0), (0.001, 1.0), (0.1, 1.0), (0.5, 1.0), (0.99, 1.0), (0.1, 2.0), (1.0, 5.0), (0.1, 0.5)):
        a, b = ctypes.c_float(), ctypes.c_float()
        napier.call("napier_umap_find_ab_params", min_dist, spread, ctypes.byref(a), ctypes.byref(b))
        theirs = reference.find_ab_params(spread, min_dist)
        at_most(worst([a.value, b.value], theirs), 2e-4, f"a, b of ({min_dist}, {spread})")
        at_most(rmse(a.value, b.value, min_dist, spread), rmse(*theirs, min_dist, spread) + 1e-6, "distance from the curve")


# ---- The start -------------------------------------------------------------------------------------------------------


def laplacian_vectors(graph, count):
    """D^-1/2 W D^-1/2, dense, and its exact eigenvectors below the first."""
    w = graph.toarray().astype(np.float64)
    root = 1.0 / np.sqrt(w.sum(0))
    scaled = root[:, None] * w * root
    values, vectors = np.linalg.eigh(scaled)
    return scaled, values[::-1][1:count + 1], vectors[:, ::-1][:, 1:count + 1]


def spectral(x, graph, components):
    start = np.empty((x.shape[0], components), np.float32)
    napier.call("napier_umap_spectral_layout", graph.pointer, samples(x), 42, start)
    return start


def closeness(y, vectors):
    """The least cosine of a column and its eigenvector, or, where one is given, of the angle between two planes."""
    y = y.astype(np.float64) / np.linalg.norm(y.astype(np.float64), axis=0)
    return np.abs(np.sum(y * vectors, axis=0)).min()


def test_spectral_start():
    remarks = []
    for name, (x, _), k in (("flowers", flowers(), 30), ("digits", digits(), 15)):
        indices, distances = neighbors(x, k)
        graph = Graph(indices, distances)
        matrix = graph.matrix()
        pieces = scipy.sparse.csgraph.connected_components(matrix)[0]
        assert pieces == 1, f"{name}: {pieces} components, where the test wants one"
        ours = spectral(x, graph, 2)
        scaled, values, vectors = laplacian_vectors(matrix, 2)
        theirs = spectral_layout(x, matrix, 2, np.random.RandomState(1))
        quotients = [float(v @ scaled @ v / (v @ v)) for v in ours.T.astype(np.float64)]
        near, their_near = closeness(ours, vectors), closeness(theirs, vectors)
        at_least(near, 0.999, f"{name}: cosine with the eigenvectors")
        at_most(worst(quotients, values), 1e-4, f"{name}: Rayleigh quotients")
        remarks.append(f"{name} cos {near:.6f} (umap-learn {their_near:.6f})")
    return ", ".join(remarks)


def test_many_components_end():
    rng = np.random.default_rng(5)
    x = (rng.normal(size=(600, 8)) + 100 * np.repeat(rng.normal(size=(30, 8)), 20, axis=0)).astype(np.float32)
    indices, distances = neighbors(x, 10)
    graph = Graph(indices, distances)
    pieces = scipy.sparse.csgraph.connected_components(graph.matrix())[0]
    assert pieces > 20, pieces
    start = spectral(x, graph, 2)
    assert np.isfinite(start).all() and np.abs(start).max() <= 10.01
    centres = start.reshape(30, 20, 2).mean(1)
    gaps = pairwise_distances(centres) + np.eye(30) * 1e9
    at_least(gaps.min(), 1e-3, "two components lie on one another")


def test_errors_name_the_value():
    x, _ = flowers()
    raises(NapierError, ("151", "n_neighbors"), lambda: neighbors(x, len(x) + 1))
