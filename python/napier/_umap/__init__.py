"""Maps: the stages that napier.umap shows, and the estimator."""
