"""UMAP stage by stage: NumPy arrays in and out, SciPy matrices for what is sparse. `napier.UMAP` is the estimator.

    neighbours -> fuzzy set -> start -> layout
    nearest_neighbors, smooth_knn_dist, fuzzy_simplicial_set, spectral_layout, optimize_layout; fit runs them all

Stages are named as umap-learn names them; docs/umap.md says what each does. For given input every result has the same
bits, whatever the number of threads, the instruction set or the machine.

Data are points in rows, [n, features], of any float dtype and layout, or a SciPy sparse matrix. Embeddings are float32
[n, n_components]. Edges are an array of dtype EDGE, sorted (sort_edges), or anything that `edges` takes. Graphs are
scipy.sparse.csr_matrix, or Graph where SciPy is not installed.

What may take long also takes `progress`, a function of (stage, share done): a true answer stops the work with a
RuntimeError; and `threads`, 0 for as many as napier.set_num_threads says. Ctrl-C stops it too.
"""
from ._umap_stages import (  # noqa: F401
    apply, disconnected, EDGE, edge_gradients, edges, find_ab_params, fit, fuzzy_simplicial_set, gradients, Graph,
    graph_from_edges, inverse_transform, join_categories, join_numbers, loss, metric_disconnection, metric_from_name,
    metric_name, METRICS, Model, model_embedding, model_features, model_from_bytes, model_load, model_save,
    model_to_bytes, nearest_neighbors, nearest_neighbors_of, negative_gradients, negative_targets, optimize_epochs,
    optimize_layout, Optimizer, optimizer_from_bytes, optimizer_to_bytes, pca_layout, Quality, quality_of,
    random_layout, reduce_segments, segments, smooth_knn_dist, sort_edges, spectral_layout, transform,
)

for _name in (Graph, Quality, Optimizer, Model):
    _name.__module__ = __name__  # pickles and help say where users find them
del _name


def __getattr__(name):
    if name == "UMAP":  # `from napier import umap` in place of `import umap`
        from ._umap_estimator import UMAP
        return UMAP
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
