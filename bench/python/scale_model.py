#!/usr/bin/env python3
"""The model of docs/scale.md: what the exchanges of a step cost with 2 to 1,000 nodes, on paper. Change its assumptions here.

python3 bench/python/scale_model.py [--latency 5e-6] [--bandwidth 12.5e9] [--rows 8192] [--task 5e-4]
"""

import argparse
import math

NODES = (2, 4, 8, 16, 64, 256, 1000)
SUM, FLOAT = 112, 4  # bytes of a row's exact sum, and of a float
BOUNDARY = 1024  # bytes of a row at a boundary that is anywhere: 256 logits of 4 bytes, the mean


def vocabulary(n, a):
    """Seconds of the exchanges of a step: the boundaries, the sums of all nodes to each, the sums merged up and down a tree, and
    three all-reduces."""
    hops = math.ceil(math.log2(n))
    boundary = a.latency + BOUNDARY * a.rows / a.bandwidth
    gather = hops * a.latency + SUM * a.rows * (n - 1) / a.bandwidth
    tree = 2 * hops * (a.latency + SUM * a.rows / a.bandwidth)
    reduces = 3 * (2 * hops * a.latency + 2 * (n - 1) / n * FLOAT * a.rows / a.bandwidth)
    return boundary, gather, tree, reduces


def array(n, a):
    """Seconds of logsumexp of the rows of an array of 20 GB a node: the reading of it, the states, and Dask's scheduler."""
    size, chunk, row_chunks = 20e9 * n, 128e6, 8
    chunks = size / chunk
    rows = chunk / (4 * 32768)  # of a chunk, which is 32768 columns wide
    read = size / (n * a.read)
    states = math.ceil(math.log(row_chunks, 4)) * (a.latency + rows * 200 / a.bandwidth)
    return read, states, 3 * chunks * a.task


def prompts(n, a):
    """The slowest shard against the mean, and the seconds in which all nodes read the weights from one store."""
    return 1 + math.sqrt(2 * math.log(n) / a.prompts), n * a.weights / a.store


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value, what in (
        ("latency", 5e-6, "seconds of a message"),
        ("bandwidth", 12.5e9, "bytes a second of a node's link"),
        ("rows", 8192, "tokens of a step"),
        ("read", 2e9, "bytes a second that a node makes or reads"),
        ("task", 5e-4, "seconds of Dask's scheduler for a task"),
        ("prompts", 1000, "prompts of a shard"),
        ("weights", 1.2e9, "bytes of a model"),
        ("store", 20e9, "bytes a second of the shared store"),
    ):
        parser.add_argument("--" + name, type=float, default=value, help=f"{what} (default: {value:g})")
    a = parser.parse_args()
    print(
        "nodes | boundaries, sums to all, in a tree, three all-reduces (ms) | array: read (s), states (ms), scheduler (s) | prompts: slowest, weights (s)"
    )
    for n in NODES:
        v, d, p = vocabulary(n, a), array(n, a), prompts(n, a)
        print(
            f"{n:5d} | "
            + " ".join(f"{1e3 * t:8.2f}" for t in v)
            + f" | {d[0]:6.1f} {1e3 * d[1]:8.2f} {d[2]:8.1f} | {p[0]:5.2f} {p[1]:6.1f}"
        )


if __name__ == "__main__":
    main()
