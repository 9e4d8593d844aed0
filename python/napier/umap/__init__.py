"""UMAP stage by stage: NumPy arrays in and out, sparse data as SciPy matrices. `napier.UMAP` is the estimator.

    neighbours -> fuzzy set -> start -> layout
    nearest_neighbors, smooth_knn_dist, fuzzy_simplicial_set, spectral_layout, optimize_layout; fit runs them all

Stages have umap-learn's names; docs/umap.md describes each. The same input gives the same bits for any number of
threads, instruction set and machine.

Data are points in rows, [n, features], of any float dtype and layout, or a SciPy sparse matrix. Embeddings are float32
[n, n_components]. Edges are an array of dtype EDGE, sorted (sort_edges), or anything that `edges` accepts. Graphs are
scipy.sparse.csr_matrix, or Graph if SciPy is not installed.

`napier.umap.plot` draws maps. `napier.umap.umap_` has the functions of umap-learn's umap.umap_ for other packages.

Functions that may take long have a parameter `progress`, a function of (stage, share done); if it returns a true value,
the work stops with a RuntimeError. They also have `threads`; 0 is the number set by napier.set_num_threads. Ctrl-C
stops them too.
"""

from .._umap.stages import (  # noqa: F401
    apply,
    combine,
    disconnected,
    EDGE,
    edge_gradients,
    edges,
    find_ab_params,
    fit,
    fuzzy_simplicial_set,
    gradients,
    Graph,
    graph_from_edges,
    inverse_transform,
    join_categories,
    join_distances,
    join_numbers,
    loss,
    metric_disconnection,
    metric_from_name,
    metric_name,
    METRICS,
    Model,
    model_embedding,
    model_features,
    model_lost,
    model_from_bytes,
    model_load,
    model_of,
    model_save,
    model_to_bytes,
    nearest_neighbors,
    nearest_neighbors_of,
    negative_gradients,
    negative_targets,
    optimize_epochs,
    optimize_layout,
    Optimizer,
    optimizer_create,
    optimizer_from_bytes,
    optimizer_to_bytes,
    pca_layout,
    Quality,
    quality_of,
    random_layout,
    reduce_segments,
    segments,
    smooth_knn_dist,
    sort_edges,
    spectral_layout,
    transform,
)
from .._napier import __version__  # noqa: F401
from .._umap.raster import raster_lines, raster_points  # noqa: F401

for _name in (Graph, Quality, Optimizer, Model):
    _name.__module__ = __name__  # the module that pickles and help show
del _name


def __getattr__(name):
    if name == "UMAP":  # `from napier import umap` in place of `import umap`
        from .._umap.estimator import UMAP

        return UMAP
    if name == "AlignedUMAP":
        from .._umap.aligned import AlignedUMAP

        return AlignedUMAP
    if name in ("plot", "umap_"):
        import importlib

        return importlib.import_module("." + name, __name__)
    if name in ("ParametricUMAP", "parametric_loss"):
        from .._umap import parametric

        return getattr(parametric, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
