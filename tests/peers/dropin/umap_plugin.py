"""A plug-in of pytest that puts napier.UMAP and napier.umap.AlignedUMAP in the place of umap-learn's, and the search and
the scales of neighbours too: umap-learn's own tests, which its repository has, then test Napier. test_umap_dropin.py runs
them.
"""
import umap
import umap.aligned_umap
import umap.umap_

import napier.umap

umap.UMAP = umap.umap_.UMAP = napier.umap.UMAP


def nearest_neighbors(X, n_neighbors, metric, metric_kwds, angular, random_state, *_, **__):
    """With umap-learn's arguments and results; there is no search index."""
    return *napier.umap.nearest_neighbors(X, n_neighbors, metric, metric_kwds), None


def smooth_knn_dist(distances, k, n_iter=64, local_connectivity=1.0, bandwidth=1.0):
    """Takes k that is the number of neighbours, as umap-learn's own calls have it."""
    assert k == distances.shape[1] and bandwidth == 1.0
    return napier.umap.smooth_knn_dist(distances, local_connectivity)


umap.umap_.nearest_neighbors, umap.umap_.smooth_knn_dist = nearest_neighbors, smooth_knn_dist
umap.AlignedUMAP = umap.aligned_umap.AlignedUMAP = napier.umap.AlignedUMAP
