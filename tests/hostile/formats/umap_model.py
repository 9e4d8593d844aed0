"""Fitted maps, as `--save-model` keeps them: every field at its limits, with the checksum made right again."""

import struct

import mutate
from case import Case
from formats import npy

SHARE = 150

OPTIONS = [("n_neighbors", "Q", 4), ("metric", "Q", 0), ("p", "d", 2.0), ("method", "Q", 0), ("seed", "Q", 42), ("n_components", "Q", 2),
           ("n_epochs", "Q", 5), ("min_dist", "d", 0.1), ("spread", "d", 1.0), ("a", "d", 1.5), ("b", "d", 0.9), ("learning_rate", "d", 1.0),
           ("set_op_mix_ratio", "d", 1.0), ("local_connectivity", "d", 1.0), ("repulsion_strength", "d", 1.0), ("negative_sample_rate", "d", 5.0),
           ("init", "Q", 0), ("seed2", "Q", 42), ("transform_seed", "Q", 42), ("target_weight", "d", 0.5), ("densmap", "Q", 0)]
SIZES = ["n", "cols", "dense", "sparse", "metric_values", "embedding"]


class Map:
    """A map's parts; build() makes the bytes."""

    def __init__(self, rng, sparse=False, rows=12, cols=3):
        self.options = {name: value for name, _, value in OPTIONS}
        self.distance = rng.choice([0.0, 0.0, 2.0, 50.0])  # of disconnection: format 2, where there is one
        self.format, self.dense = 2 if self.distance > 0 else 1, 0 if sparse else 1
        self.values = []
        if sparse:
            starts = [2 * r for r in range(rows + 1)]
            self.starts = starts
            self.columns = [c for r in range(rows) for c in (r % cols, cols)]
            cols += 1
            self.data = [rng.uniform(0, 4) for _ in range(2 * rows)]
        else:
            self.data = [rng.uniform(-4, 4) for _ in range(rows * cols)]
        self.map = [rng.uniform(-10, 10) for _ in range(2 * rows)]
        self.sizes = {"n": rows, "cols": cols, "dense": 0 if sparse else rows * cols, "sparse": 2 * rows if sparse else 0,
                      "metric_values": 0, "embedding": 2 * rows}

    def build(self, right=True):
        out = b"NAPIERUM" + struct.pack("<II", self.format & 0xFFFFFFFF, self.dense & 0xFFFFFFFF)
        for name, code, _ in OPTIONS:
            value = self.options[name]
            out += struct.pack("<d", value) if code == "d" else struct.pack("<Q", value & (2**64 - 1))
        out += struct.pack("<d", self.distance) if self.format == 2 else b""
        for name in SIZES:
            out += struct.pack("<Q", self.sizes[name] & (2**64 - 1))
        out += struct.pack("<%df" % len(self.values), *self.values)
        if not self.dense:
            out += struct.pack("<%dq" % len(self.starts), *self.starts) + struct.pack("<%di" % len(self.columns), *self.columns)
        out += struct.pack("<%df" % len(self.data), *self.data) + struct.pack("<%df" % len(self.map), *self.map)
        return out + (mutate.checksum(out) if right else bytes(8))


def one_option(rng, m):
    name, code, value = rng.choice(OPTIONS)
    m.options[name] = rng.choice(mutate.DOUBLES) if code == "d" else rng.choice([mutate.number(rng), value + 1, rng.randrange(30)])
    return name


def one_size(rng, m):
    name = rng.choice(SIZES)
    m.sizes[name] = rng.choice([mutate.number(rng), m.sizes[name] + rng.choice([-1, 1])])
    return name


def wrapping_sizes(rng, m):
    """Sizes whose sum comes to the file's own size modulo 2^64."""
    name = rng.choice(["dense", "metric_values", "embedding", "n", "sparse", "cols"])
    m.sizes[name] += rng.choice([2**62, 2**61, 2**63, 2**64 - 2**32])
    other = rng.choice(["metric_values", "cols"])
    m.sizes[other] += rng.choice([0, 2**62, 2**32])
    return name


def two_sizes(rng, m):
    """Sizes that agree with one another and not with the file."""
    n = rng.choice([0, 1, 2, 2**20, 2**31 - 1, 2**31])
    m.sizes.update({"n": n, "embedding": 2 * n, "dense": n * m.sizes["cols"] if m.dense else 0})
    return "points"


def metric_values(rng, m):
    metric, count = rng.choice([(10, 3), (11, 9), (10, 9), (11, 3), (3, 3), (10, 0), (11, 0)])
    m.options["metric"] = metric
    m.values = [rng.choice([1.0, 0.0, -1.0, 1e38, float("nan"), 2.5]) for _ in range(count)]
    m.sizes["metric_values"] = count
    return "metric values"


def rows(rng, m):
    if m.dense:
        m.data[rng.randrange(len(m.data))] = rng.choice([float("nan"), float("inf"), 3e38, -3e38, 1e-40])
        return "a value"
    which = rng.choice([m.starts, m.columns])
    which[rng.randrange(len(which))] = rng.choice([-1, 2**31 - 1, 24, 25, 0, -(2**31), 3, 4])
    return "a row"


def places(rng, m):
    """NaN is the place of a point without neighbours: of all of it, not of one number."""
    at = rng.randrange(len(m.map))
    m.map[at] = rng.choice([float("nan"), float("inf"), 3e38, -3e38])
    if rng.random() < 0.3:
        m.map[at ^ 1] = m.map[at]
    return "a place"


def distance(rng, m):
    m.format, m.distance = 2, rng.choice(mutate.DOUBLES)
    return "%g" % m.distance


def head(rng, m):
    m.format, m.dense = rng.choice([(0, 1), (3 - m.format, 1), (3, 1), (2**32 - 1, 1), (1, 2), (1, 2**32 - 1), (1, 1)])
    return "head"


MUTATIONS = [one_option, one_size, wrapping_sizes, two_sizes, metric_values, rows, places, distance, head, None, one_option, rows]


def good(rng):
    sparse = rng.random() < 0.5
    return Case("good", ["umap", "in.npy", "--transform", "m.umap", "-o", "out.npy"],
                {"m.umap": Map(rng, sparse).build(), "in.npy": npy.table(rng, 5, 4 if sparse else 3)}, outputs=["out.npy"])


def make(rng, index):
    how = MUTATIONS[index % len(MUTATIONS)]
    m = Map(rng, sparse=rng.random() < 0.4)
    if how is None:
        what, data = mutate.damage(rng, m.build())
        if rng.random() < 0.6:
            data = data[:-8] + mutate.checksum(data[:-8])
    else:
        what = how.__name__ + ": " + how(rng, m)
        data = m.build(right=rng.random() < 0.95)
    if index % 7 == 6:
        return Case(what, ["map"], {"map": data}, program="replay_umap_model")
    name = mutate.file_name(rng, "m.umap")
    inverse = rng.random() < 0.4
    table = npy.table(rng, 5, 2 if inverse else rng.choice([3, 3, 4]))
    words = ["umap", "in.npy", "--inverse-transform" if inverse else "--transform", name, "-o", "out.npy"]
    return Case(what, words, {name: data, "in.npy": table}, outputs=["out.npy"])
