"""Whole maps: nothing is equal there number by number, so what they are good for is compared: trustworthiness, the vote of
the neighbours, the radii of densMAP, new points and the way back."""
import functools

import numpy as np
import umap
from sklearn.manifold import trustworthiness
from umap_data import Graph, Map, at_least, at_most, digits, flowers, neighbors, own_vote, vote

MARGIN = 0.01  # of a share; two seeds of umap-learn differ by about half of it


@functools.cache
def digits_maps():
    x, _ = digits()
    return Map(x).embedding, umap.UMAP(random_state=42).fit_transform(x)


@functools.cache
def split_maps():
    """Both fitted on the same 1,347 digits; the other 450 are new to them."""
    x, labels = digits()
    new = np.arange(len(x)) % 4 == 3
    return Map(x[~new].copy()), umap.UMAP(random_state=42).fit(x[~new]), (x[~new], labels[~new]), (x[new], labels[new])


def compare(name, ours, theirs, margin=MARGIN):
    at_least(ours, theirs - margin, f"{name}, {theirs:.4f} with umap-learn")
    return f"{name} {ours:.4f} ({theirs:.4f})"


def test_map_of_digits():
    x, labels = digits()
    ours, theirs = digits_maps()
    return ", ".join((compare("trustworthiness", *(trustworthiness(x, y, n_neighbors=15) for y in (ours, theirs))),
                      compare("vote", *(own_vote(y, labels) for y in (ours, theirs)))))


def test_map_of_flowers():
    x, labels = flowers()
    maps = Map(x).embedding, umap.UMAP(random_state=42).fit_transform(x)
    return ", ".join((compare("trustworthiness", *(trustworthiness(x, y, n_neighbors=15) for y in maps)),
                      compare("vote", *(own_vote(y, labels) for y in maps), 0.03)))


def test_supervised_map():
    x, labels = digits()
    half = labels.copy()
    half[::2] = -1
    maps = Map(x, target_categories=half).embedding, umap.UMAP(random_state=42).fit_transform(x, half)
    return compare("vote", *(own_vote(y, labels) for y in maps))


# ---- densMAP ---------------------------------------------------------------------------------------------------------


def log_radii(graph, points):
    """log of the mean squared distance along the edges of `graph`, by weight, as densMAP has it."""
    graph = graph.tocoo()
    gap = ((points[graph.row] - points[graph.col]).astype(np.float64) ** 2).sum(1)
    total = np.bincount(graph.row, graph.data, len(points))
    return np.log(1e-8 + np.bincount(graph.row, graph.data * gap, len(points)) / total)


def graph_of(x, k=15):
    return Graph(*neighbors(np.ascontiguousarray(x, np.float32), k)).matrix()


def density_correlation(x, y):
    """Correlates the radii in the data, along its graph, with those on the map, along the map's own: as umap-learn reports it."""
    return np.corrcoef(log_radii(graph_of(x), x), log_radii(graph_of(y), y))[0, 1]


def blobs_of_many_widths():
    rng = np.random.default_rng(11)
    centres, widths = 20 * rng.normal(size=(12, 10)), 0.2 * 1.5 ** np.arange(12)
    group = np.arange(1200) % 12
    return (centres[group] + widths[group, None] * rng.normal(size=(1200, 10))).astype(np.float32), group


def test_densmap():
    remarks = []
    for name, x, labels in (("digits", *digits()), ("blobs", *blobs_of_many_widths())):
        ours, theirs = Map(x, densmap=1).embedding, umap.UMAP(densmap=True, random_state=42).fit_transform(x)
        plain = density_correlation(x, Map(x).embedding)
        remarks.append(compare(f"{name}: radii", density_correlation(x, ours), density_correlation(x, theirs), 0.02))
        remarks.append(compare("vote", own_vote(ours, labels), own_vote(theirs, labels)))
        remarks.append(compare("trustworthiness", *(trustworthiness(x, y, n_neighbors=15) for y in (ours, theirs))))
        remarks.append(f"without densMAP {plain:.4f}")
    return ", ".join(remarks)


# ---- New points ------------------------------------------------------------------------------------------------------


def test_transform_of_held_out_digits():
    ours, theirs, (x, labels), (new, new_labels) = split_maps()
    placed = ours.transform(new), theirs.transform(new)
    return compare("vote", vote(ours.embedding, labels, placed[0], new_labels),
                   vote(theirs.embedding_, labels, placed[1], new_labels))


def test_transform_of_the_fitted_points():
    """They come to lie where they were, as nearly as umap-learn's, in widths of the map."""
    ours, theirs, (x, _), _ = split_maps()

    def moved(y, again):
        return np.median(np.linalg.norm(y - again, axis=1)) / np.linalg.norm(y.std(0))

    x, y, their_y = x[:500], ours.embedding[:500], theirs.embedding_[:500]  # umap-learn knows its own data again
    mine, other = moved(y, ours.transform(x)), moved(their_y, theirs.transform(x))
    at_most(mine, 1.5 * other, f"median way of a fitted point, {other:.4f} with umap-learn")
    return f"median way {mine:.4f} ({other:.4f})"


def test_transform_of_one_row_alone():
    ours, _, _, (new, _) = split_maps()
    together = ours.transform(new)
    for row in (0, 7, 448):
        assert (ours.transform(new[row:row + 1].copy()) == together[row]).all(), row
    assert (ours.transform(new[::-1].copy()) == together[::-1]).all()
    assert ours.transform(new[:0].copy()).shape == (0, 2)


def test_inverse_transform():
    """Points of the map back to pixels: the mean distance from the digits that were placed there."""
    ours, theirs, _, (new, _) = split_maps()
    new = new[:100]

    def error(model):
        return np.sqrt(((model.inverse_transform(model.transform(new)) - new) ** 2).mean())

    mine, other = error(ours), error(theirs)
    at_most(mine, other * 1.02, f"root mean squared error of a pixel, {other:.3f} with umap-learn")
    return f"rms error {mine:.3f} ({other:.3f}) of 16"
