"""What the umap tests share: data, Napier's calls on arrays, and measures of a map."""
import ctypes
import os

import numpy as np
import scipy.sparse

from napier_c import ROOT, napier

DIGITS = os.path.join(ROOT, "data", "digits")


def digits():
    """1,797 x 64 pixels and their labels."""
    return (np.load(os.path.join(DIGITS, "images.npy")).astype(np.float32),
            np.load(os.path.join(DIGITS, "labels.npy")).astype(np.int32))


def flowers():
    """150 x 4 in three groups, two of which touch: as the famous irises are, but made here."""
    rng = np.random.default_rng(7)
    centres = np.array([[5.0, 3.4, 1.5, 0.2], [5.9, 2.8, 4.3, 1.3], [6.6, 3.0, 5.5, 2.0]])
    scales = np.array([[0.35, 0.38, 0.17, 0.1], [0.5, 0.31, 0.47, 0.2], [0.64, 0.32, 0.55, 0.27]])
    labels = np.repeat(np.arange(3, dtype=np.int32), 50)
    return (centres[labels] + scales[labels] * rng.normal(size=(150, 4))).astype(np.float32), labels


# ---- Napier's calls on arrays ----------------------------------------------------------------------------------------


def samples(x):
    """A dense or CSR matrix as napier_umap_samples."""
    if not scipy.sparse.issparse(x):
        view = napier.view(napier.headers.struct("napier_const_matrix"), x)
        made = napier.make("napier_umap_samples", dense=view)
        made.alive.append(x)
        return made
    parts = [x.indptr.astype(np.int64), x.indices.astype(np.int32), x.data.astype(np.float32)]
    csr = napier.make("napier_csr_matrix", rows=x.shape[0], cols=x.shape[1], row_starts=parts[0], columns=parts[1],
                      values=parts[2])
    return napier.make("napier_umap_samples", sparse=csr)


def neighbors(x, k, **options):
    options = napier.make("napier_neighbors_options", n_neighbors=k, **options)
    indices, distances = np.empty((x.shape[0], k), np.int32), np.empty((x.shape[0], k), np.float32)
    napier.call("napier_nearest_neighbors", samples(x), options, indices, distances)
    return indices, distances


def array_at(address, count, dtype):
    kind = ctypes.POINTER(np.ctypeslib.as_ctypes_type(dtype))
    return np.ctypeslib.as_array(ctypes.cast(address, kind), shape=(count,)).copy() if count else np.empty(0, dtype)


class Graph:
    """A napier_umap_graph: the fuzzy set of these neighbours."""

    def __init__(self, indices, distances, local_connectivity=1.0, mix=1.0):
        self.pointer = napier.create("napier_umap_fuzzy_simplicial_set", indices, distances, *indices.shape, local_connectivity,
                                     mix)

    def matrix(self):
        """Returns it as a scipy matrix."""
        g = ctypes.cast(self.pointer, ctypes.POINTER(napier.headers.struct("napier_umap_graph"))).contents
        starts = array_at(g.starts, g.n + 1, np.int64)
        parts = array_at(g.weights, starts[-1], np.float32), array_at(g.targets, starts[-1], np.uint32).astype(np.int64)
        return scipy.sparse.csr_matrix((*parts, starts), shape=(g.n, g.n))

    def __del__(self):
        napier.call("napier_umap_graph_destroy", self.pointer)


class Map:
    """A fitted model."""

    def __init__(self, x, n_neighbors=15, **options):
        near = napier.make("napier_neighbors_options", n_neighbors=n_neighbors)
        options = napier.make("napier_umap_options", neighbors=near, **options)
        self.model = napier.create("napier_umap_fit", samples(x), options)
        view = napier.call("napier_umap_model_embedding", self.model)
        self.embedding = array_at(view.data, view.rows * view.cols, np.float32).reshape(view.rows, view.cols)
        self.features = napier.call("napier_umap_model_features", self.model)

    def transform(self, x):
        y = np.empty((x.shape[0], self.embedding.shape[1]), np.float32)
        napier.call("napier_umap_transform", self.model, samples(x), y)
        return y

    def inverse_transform(self, points):
        x = np.empty((len(points), self.features), np.float32)
        napier.call("napier_umap_inverse_transform", self.model, np.ascontiguousarray(points, np.float32), x)
        return x

    def __del__(self):
        napier.call("napier_umap_model_destroy", self.model)


# ---- Measures --------------------------------------------------------------------------------------------------------


def vote(train, train_labels, points, labels, k=15):
    """The share of points whose k nearest of `train` vote for their label."""
    from sklearn.neighbors import KNeighborsClassifier

    return KNeighborsClassifier(k).fit(train, train_labels).score(points, labels)


def own_vote(y, labels, k=15):
    from sklearn.neighbors import NearestNeighbors

    near = NearestNeighbors(n_neighbors=k).fit(y).kneighbors(return_distance=False)
    return np.mean([np.bincount(labels[row]).argmax() == own for row, own in zip(near, labels)])


def worst(ours, theirs):
    """The largest difference of two arrays, relative where they are above 1."""
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    return float(np.max(np.abs(ours - theirs) / np.maximum(1.0, np.abs(theirs)), initial=0.0))


def at_most(value, bound, what):
    assert value <= bound, f"{what}: {value:.3g} is more than {bound:.3g}"


def at_least(value, bound, what):
    assert value >= bound, f"{what}: {value:.4f} is less than {bound:.4f}"
