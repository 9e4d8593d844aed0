#!/usr/bin/env python3
"""A map of handwritten digits: fitted to four in five of them, the others placed on it, and drawn.

    pip install '.[umap]'
    python3 examples/umap_digits.py [--out digits-map.png]

The 1,797 digits of data/digits are 8 x 8 grey values, rows of 64 numbers. UMAP sees these only; labels colour the picture
and tell how well digits of a kind lie together. What it prints is the same on every machine. Exit status 1 if
fewer than 95 in 100 of the held-out digits come to lie among their own.
"""

import argparse
import os
import sys

import numpy as np

from napier import UMAP, umap

DATA = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "data", "digits")


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--out", help="a picture, .png or .svg; needs matplotlib")
    parser.add_argument("--verbose", action="store_true", help="show progress")
    options = parser.parse_args()

    images = np.load(os.path.join(DATA, "images.npy")).reshape(-1, 64)
    labels = np.load(os.path.join(DATA, "labels.npy")).astype(int)
    held_out = np.arange(len(images)) % 5 == 4

    reducer = UMAP(n_neighbors=15, min_dist=0.1, verbose=options.verbose)
    map_ = reducer.fit_transform(images[~held_out])
    quality = umap.quality_of(images[~held_out], map_, labels[~held_out])
    print(f"{len(map_)} digits mapped: trustworthiness {quality.trustworthiness:.3f}, vote of 15 neighbours {quality.knn_accuracy:.3f}")

    placed = reducer.transform(images[held_out])
    nearest, _ = umap.nearest_neighbors_of(map_, placed, 5)
    votes = np.array([np.bincount(row, minlength=10).argmax() for row in labels[~held_out][nearest]])
    right = (votes == labels[held_out]).mean()
    print(f"{len(placed)} new digits placed: {right:.3f} among their own")

    back = reducer.inverse_transform(placed)
    error = np.sqrt(np.mean((back - images[held_out]) ** 2))
    print(f"drawn from their places alone: off by {error:.2f} of 16 grey values (rms)")

    if options.out:
        reducer.plot(labels[~held_out]).figure.savefig(options.out, dpi=150, bbox_inches="tight")
    return 0 if right >= 0.95 else 1


if __name__ == "__main__":
    sys.exit(main())
