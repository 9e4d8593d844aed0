"""scanpy and BERTopic with napier.umap in the place of umap-learn."""
import sys
import warnings

import numpy as np

import napier.umap

sys.modules["umap"] = napier.umap  # before the packages import it


def groups():
    """120 points in three groups, and the group of each."""
    group = np.arange(120) % 3
    return np.random.default_rng(0).normal(size=(120, 20)).astype(np.float32) + 6 * np.eye(20)[group].astype(np.float32), group


def share_of_neighbours(places, group):
    """The share of the 10 nearest on the map that are of the point's group."""
    nearest, _ = napier.umap.nearest_neighbors(places, 11)
    return float((group[nearest[:, 1:]] == group[:, None]).mean())


def test_scanpy():
    import anndata
    import scanpy as sc
    data, group = groups()
    cells = anndata.AnnData(data)
    sc.pp.neighbors(cells, n_neighbors=15, use_rep="X")
    sc.tl.umap(cells)
    share = share_of_neighbours(cells.obsm["X_umap"], group)
    assert cells.obsm["X_umap"].shape == (120, 2) and share > 0.99
    graph = cells.obsp["connectivities"]
    assert graph.shape == (120, 120) and abs(graph - graph.T).max() == 0 and graph.max() <= 1
    first = cells.obsm["X_umap"].copy()
    sc.tl.umap(cells)
    assert np.array_equal(first, cells.obsm["X_umap"])
    sc.tl.umap(cells, init_pos="random", n_components=3)
    assert cells.obsm["X_umap"].shape == (120, 3)
    assert not any(name.startswith("umap.") and "site-packages/umap" in str(getattr(module, "__file__", ""))
                   for name, module in list(sys.modules.items()))
    return f"{share:.3f} of the neighbours are of the same group"


class Plain:
    """Given embeddings need no model."""

    def __new__(cls):
        from bertopic.backend import BaseEmbedder

        class Backend(BaseEmbedder):
            def embed(self, documents, verbose=False):
                return np.zeros((len(documents), 20), np.float32)
        return Backend()


def test_bertopic():
    from bertopic import BERTopic
    data, group = groups()
    words = np.array(["ship sail harbour", "bread oven flour", "guitar drum song"])
    documents = [f"{words[g]} {words[g]} number{i}" for i, g in enumerate(group)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = BERTopic(embedding_model=Plain(), min_topic_size=15)
        topics, _ = model.fit_transform(documents, embeddings=data)
        again, _ = model.transform(documents[:10], embeddings=data[:10])
    assert isinstance(model.umap_model, napier.UMAP) and model.umap_model.embedding_.shape == (120, 5)
    topics = np.array(topics)
    assert len(set(topics.tolist()) - {-1}) == 3
    assert all(len(set(topics[(group == g) & (topics >= 0)].tolist())) == 1 for g in range(3))
    assert (np.array(again) == topics[:10]).mean() >= 0.8
    return f"{(topics >= 0).mean():.2f} of the documents in three topics"
