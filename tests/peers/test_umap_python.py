"""umap-learn's own README examples, run twice: as they stand, and with `from napier import UMAP` in place of umap-learn's.

The maps are not the same; that both show the data equally well is what is compared."""
import numpy as np
import sklearn.datasets
import umap as theirs
from sklearn.manifold import trustworthiness

import napier
from umap_data import digits

EXAMPLES = {
    "basic": "embedding = UMAP().fit_transform(data)",
    "parameters": "embedding = UMAP(n_neighbors=5, min_dist=0.3, metric='correlation').fit_transform(data)",
    "supervised": "embedding = UMAP(n_neighbors=5).fit_transform(data, y=labels)",
    "density": "embedding = UMAP(densmap=True, n_neighbors=30, n_epochs=200).fit_transform(data)",
    "dimensions": "embedding = UMAP(n_components=5, n_neighbors=10).fit(data).embedding_",
}


def run(example, UMAP, data, labels):
    names = {"UMAP": UMAP, "data": data, "labels": labels}
    exec(EXAMPLES[example], names)
    return names["embedding"]


def of_kind(embedding, labels):
    """How many of a point's five nearest are of its kind."""
    nearest = napier.umap.nearest_neighbors(np.asarray(embedding, np.float32), 6)[0][:, 1:]
    return (labels[nearest] == labels[:, None]).mean()


def test_readme_examples():
    data, labels = (x[:900] for x in digits())
    said = []
    for name in EXAMPLES:
        mine, other = run(name, napier.UMAP, data, labels), run(name, theirs.UMAP, data, labels)
        assert mine.shape == other.shape and mine.dtype == other.dtype == np.float32
        a, b = of_kind(mine, labels), of_kind(other, labels)
        assert a > b - 0.02, f"{name}: {a:.3f} against {b:.3f} of neighbours of one kind"
        if name != "supervised":
            s, t = (trustworthiness(data, e, n_neighbors=15) for e in (mine, other))
            assert s > t - 0.02, f"{name}: trustworthiness {s:.3f} against {t:.3f}"
        said.append(f"{name} {a:.3f} ({b:.3f})")
    return ", ".join(said)


def test_attributes_and_new_data():
    data, labels = (x[:700] for x in digits())
    models = [U(n_neighbors=10, random_state=42).fit(data[:600]) for U in (napier.UMAP, theirs.UMAP)]
    mine, other = models
    assert mine.embedding_.shape == other.embedding_.shape and mine.graph_.shape == other.graph_.shape
    assert abs(mine.graph_ - other.graph_).max() < 1e-3
    placed = [m.transform(data[600:]) for m in models]
    right = []
    for m, p in zip(models, placed):
        nearest = napier.umap.nearest_neighbors_of(np.asarray(m.embedding_, np.float32), np.asarray(p, np.float32), 1)[0][:, 0]
        right.append((labels[:600][nearest] == labels[600:]).mean())
    assert right[0] > right[1] - 0.05, right
    back = [m.inverse_transform(m.embedding_[:20]) for m in models]
    off = [np.abs(b - data[:20]).mean() for b in back]
    assert off[0] < off[1] + 0.5, off
    same = set(theirs.UMAP().get_params()) - set(napier.UMAP().get_params())
    assert not same, f"parameters of umap-learn that napier.UMAP has not: {same}"
    return f"new data {right[0]:.2f} ({right[1]:.2f}), inverse off by {off[0]:.2f} ({off[1]:.2f})"


def test_a_pipeline_on_random_data():
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    data, labels = sklearn.datasets.make_blobs(300, 20, centers=6, random_state=1)
    for U in (napier.UMAP, theirs.UMAP):
        embedding = make_pipeline(StandardScaler(), U(n_neighbors=12)).fit_transform(data)
        assert of_kind(embedding, labels) > 0.99
