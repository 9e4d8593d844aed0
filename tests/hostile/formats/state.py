"""Bytes of softmax states and of optimizers, which a library call reads: through the replay programs of tests/fuzz."""

import struct

import mutate
from case import Case

SHARE = 70

FIELDS = [("format", "I", 1), ("numerics", "I", 1), ("tile", "I", 1024), ("compute", "I", 1), ("temperature", "d", 1.0), ("masked", "I", 0),
          ("head", "I", 0), ("tail", "I", 5), ("flags", "I", 0), ("first", "Q", 0), ("end", "Q", 5), ("count", "Q", 5),
          ("maximum", "d", -float("inf")), ("maxima", "Q", 0), ("top", "Q", 0)]


def pack(code, value):
    return struct.pack("<d", value) if code == "d" else struct.pack("<" + code, value & (2 ** (32 if code == "I" else 64) - 1))


def state(rng):
    values = {name: value for name, _, value in FIELDS}
    wide = rng.random() < 0.4
    values["compute"] = 4 if wide else 1
    digits = [0] * (54 if wide else 12)
    what = "a state"
    for _ in range(rng.choice([0, 1, 1, 2])):
        name, code, value = rng.choice(FIELDS)
        values[name] = rng.choice(mutate.DOUBLES) if code == "d" else rng.choice([mutate.number(rng), value + 1, value - 1])
        what = name
    if rng.random() < 0.2:
        digits[rng.randrange(len(digits))] = mutate.number(rng) & (2**64 - 1)
        what = "digits"
    out = b"NAPIERST" + b"".join(pack(code, values[name]) for name, code, _ in FIELDS) + struct.pack("<%dQ" % len(digits), *digits)
    elements = [rng.choice([0.5, float("nan"), float("inf"), 3e38, -1.0]) for _ in range(rng.choice([5, 5, 5, 4, 6, 0]))]
    out += struct.pack("<%d%s" % (len(elements), "d" if wide else "f"), *elements)
    return what, out


def optimizer(rng):
    n, components, method = 6, 2, rng.choice([0, 1, 2])
    numbers = [n, components, 3]
    betas = [0.9, 0.5, 0.9, 1e-7]
    what = "an optimizer"
    kind = rng.randrange(4)
    version = 1
    if kind == 0:
        numbers[rng.randrange(3)] = mutate.number(rng) & (2**64 - 1)
        what = "a number"
    elif kind == 1:
        betas[rng.randrange(4)] = rng.choice([float("nan"), -1.0, 1.0, 0.0, float("inf")])
        what = "a beta"
    elif kind == 2:
        version, method = rng.choice([(0, 1), (2, 1), (1, 3), (1, 2**32 - 1)])
        what = "a method"
    out = b"NAPUMOPT" + struct.pack("<II4f3Q", version, method, *betas, *numbers)
    count = n * components * min(method, 2)
    values = [rng.choice([0.5, float("nan"), 1.0]) if kind == 3 else 0.5 for _ in range(count)]
    return what, out + struct.pack("<%df" % count, *values)


def good(rng):
    """Whether they are taken the replay programs do not say; that they run is all."""
    return Case("good", ["bytes"], {"bytes": b"\0" + state(rng)[1]}, program="replay_state_load")


def make(rng, index):
    what, data = optimizer(rng) if index % 4 == 3 else state(rng)
    data += mutate.checksum(data) if rng.random() < 0.95 else bytes(8)
    if rng.random() < 0.25:
        how, data = mutate.damage(rng, data)
        what += ", " + how
        if rng.random() < 0.6:
            data = data[:-8] + mutate.checksum(data[:-8])
    if index % 4 == 3:
        return Case(what, ["bytes"], {"bytes": data}, program="replay_umap_model")
    return Case(what, ["bytes"], {"bytes": b"\0" + data}, program="replay_state_load")  # 0: bytes as they are
