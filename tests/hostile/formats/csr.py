"""Sparse rows as a caller of the library hands them over: through the replay program of tests/fuzz."""

from case import Case

SHARE = 40


def good(rng):
    return Case("good", ["bytes"], {"bytes": bytes(8) + rng.randbytes(40)}, program="replay_umap_csr")


def make(rng, index):
    metric, method, neighbors, init, rows, cols = index % 23, rng.randrange(3), rng.randrange(4), rng.randrange(3), rng.randrange(13), rng.randrange(12)
    head = bytes([metric, method, neighbors, init, rows, cols, rng.randrange(49), rng.randrange(8)])
    return Case("metric %d, %d rows" % (metric, rows), ["bytes"], {"bytes": head + rng.randbytes(rng.choice([0, 40, 200]))},
                program="replay_umap_csr")
