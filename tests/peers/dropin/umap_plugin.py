"""A plug-in of pytest that puts napier.UMAP and napier.umap.AlignedUMAP in the place of umap-learn's: umap-learn's own
tests, which its repository has, then test Napier. test_umap_dropin.py runs them.
"""
import umap
import umap.aligned_umap
import umap.umap_

import napier.umap

umap.UMAP = umap.umap_.UMAP = napier.umap.UMAP
umap.AlignedUMAP = umap.aligned_umap.AlignedUMAP = napier.umap.AlignedUMAP
