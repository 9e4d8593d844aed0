#!/usr/bin/env python3
"""A map of handwritten digits that is a network: it places new digits and draws digits from points of the map.

    pip install '.[umap]' torch
    python3 examples/umap_parametric.py [--epochs 100]

napier.umap.ParametricUMAP finds the neighbours of the digits in data/digits and their fuzzy set, and PyTorch trains an
encoder on its edges and a decoder on the digits. The second part does the same with a training loop of its own, by
napier.umap.parametric_loss. Exit status 1 if fewer than 3 in 5 of the held-out digits come to lie among their own.
"""

import argparse
import os
import sys
from typing import Any

import numpy as np
import torch

from napier import umap

DATA = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "data", "digits")


def among_their_own(map_: Any, labels: Any, places: Any, wanted: Any) -> float:
    """The share of places whose five neighbours on the map vote for the wanted label."""
    nearest, _ = umap.nearest_neighbors_of(map_, places, 5)
    votes = np.array([np.bincount(row, minlength=10).argmax() for row in labels[nearest]])
    return float((votes == wanted).mean())


def train(images: Any, steps: int, seed: int = 42) -> torch.nn.Module:
    """A training loop of one's own: edges drawn by their weights, negatives among their ends."""
    torch.manual_seed(seed)
    graph = umap.fuzzy_simplicial_set(*umap.nearest_neighbors(images, 15)).tocoo()
    data, weights = torch.as_tensor(images), torch.as_tensor(graph.data)
    source, target = torch.as_tensor(graph.row.astype(np.int64)), torch.as_tensor(graph.col.astype(np.int64))
    network = torch.nn.Sequential(
        torch.nn.Linear(64, 100), torch.nn.ReLU(), torch.nn.Linear(100, 100), torch.nn.ReLU(), torch.nn.Linear(100, 2)
    )
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    a, b = umap.find_ab_params(min_dist=0.1)
    for _ in range(steps):
        edges = torch.multinomial(weights, 500)
        places, others = network(data[source[edges]]), network(data[target[edges]])
        loss = umap.parametric_loss(places, others, others[torch.randint(500, (500, 5))], a, b)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return network


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--epochs", type=int, default=100, help="how often an edge of weight 1 is drawn")
    options = parser.parse_args()
    images = np.load(os.path.join(DATA, "images.npy")).reshape(-1, 64).astype(np.float32) / 16
    labels = np.load(os.path.join(DATA, "labels.npy")).astype(int)
    held_out = np.arange(len(images)) % 5 == 4

    reducer = umap.ParametricUMAP(n_epochs=options.epochs, parametric_reconstruction=True)
    map_ = reducer.fit_transform(images[~held_out])
    placed = reducer.transform(images[held_out])
    right = among_their_own(map_, labels[~held_out], placed, labels[held_out])
    back = reducer.inverse_transform(placed)
    print(f"loss {reducer._history['loss'][0]:.3f} to {reducer._history['loss'][-1]:.3f}")
    print(f"{len(placed)} new digits placed: {right:.3f} among their own")
    print(f"drawn from their places alone: off by {16 * np.sqrt(np.mean((back - images[held_out]) ** 2)):.2f} of 16 grey values (rms)")

    network = train(images[~held_out], 10 * options.epochs)
    with torch.no_grad():
        map_, placed = (network(torch.as_tensor(part)).numpy() for part in (images[~held_out], images[held_out]))
    print(f"by a loop of our own: {among_their_own(map_, labels[~held_out], placed, labels[held_out]):.3f} among their own")
    return 0 if right >= 0.6 else 1


if __name__ == "__main__":
    sys.exit(main())
