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

from typing import TYPE_CHECKING

from .._umap.stages import (
    apply as apply,
    combine as combine,
    disconnected as disconnected,
    EDGE as EDGE,
    edge_gradients as edge_gradients,
    edges as edges,
    find_ab_params as find_ab_params,
    fit as fit,
    fuzzy_simplicial_set as fuzzy_simplicial_set,
    gradients as gradients,
    Graph as Graph,
    graph_from_edges as graph_from_edges,
    inverse_transform as inverse_transform,
    join_categories as join_categories,
    join_distances as join_distances,
    join_numbers as join_numbers,
    loss as loss,
    metric_disconnection as metric_disconnection,
    metric_from_name as metric_from_name,
    metric_name as metric_name,
    METRICS as METRICS,
    Model as Model,
    model_create as model_create,
    model_embedding as model_embedding,
    model_features as model_features,
    model_from_bytes as model_from_bytes,
    model_indistinct as model_indistinct,
    model_load as model_load,
    model_save as model_save,
    model_to_bytes as model_to_bytes,
    nearest_neighbors as nearest_neighbors,
    nearest_neighbors_of as nearest_neighbors_of,
    negative_gradients as negative_gradients,
    negative_targets as negative_targets,
    optimize_epochs as optimize_epochs,
    optimize_layout as optimize_layout,
    Optimizer as Optimizer,
    optimizer_create as optimizer_create,
    optimizer_from_bytes as optimizer_from_bytes,
    optimizer_to_bytes as optimizer_to_bytes,
    pca_layout as pca_layout,
    Quality as Quality,
    quality_of as quality_of,
    random_layout as random_layout,
    reduce_segments as reduce_segments,
    segments as segments,
    smooth_knn_dist as smooth_knn_dist,
    sort_edges as sort_edges,
    spectral_layout as spectral_layout,
    transform as transform,
)
from .._napier import __version__ as __version__
from .._umap.raster import raster_lines as raster_lines, raster_points as raster_points

for _name in (Graph, Quality, Optimizer, Model):
    _name.__module__ = __name__  # the module that pickles and help show
del _name


_RENAMED = {"model_of": model_create, "model_lost": model_indistinct}

if TYPE_CHECKING:
    model_of = model_create
    model_lost = model_indistinct
    from . import plot as plot, umap_ as umap_
    from .._umap.aligned import AlignedUMAP as AlignedUMAP
    from .._umap.estimator import UMAP as UMAP
    from .._umap.parametric import ParametricUMAP as ParametricUMAP, parametric_loss as parametric_loss
else:

    def __getattr__(name):
        if name in _RENAMED:
            import warnings

            globals()[name] = _RENAMED[name]
            warnings.warn(f"napier.umap.{name} is now napier.umap.{_RENAMED[name].__name__}", DeprecationWarning, stacklevel=2)
            return _RENAMED[name]
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
