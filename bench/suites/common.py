"""What the suites share: cells, inputs drawn the same way every time, and results in float64."""
from dataclasses import dataclass, field

import numpy as np

WAYS_OF_FLOORS = ("floor_memory", "floor_read", "floor_exp", "floor_row")
SPREAD = 3.0  # standard deviation of logits


class Wrong(Exception):
    """Napier's result is not the truth, or there is none."""


@dataclass
class Cell:
    """One measurement. `words`: what the workers are told; `data`: cells with the same data read the same inputs;
    `bytes`: of inputs and results in each worker."""
    label: str
    op: str
    threads: int
    data: tuple
    bytes: int = 0
    words: dict = field(default_factory=dict)

    @property
    def name(self):
        return f"{self.label}-t{self.threads}"

    def __getattr__(self, key):
        try:
            return self.__dict__["words"][key]
        except KeyError:
            raise AttributeError(key) from None

    @property
    def item(self):
        return 4 if self.words["dtype"] == "f32" else 2


@dataclass
class Truth:
    """The rows `where` (None: all) of a result of `shape`. Errors are told relative to `scale`. Napier may be `bound` times
    the scale away from the truth; a peer as far as `peer_bound` says, or PEER_BOUND of the dtype."""
    shape: tuple
    values: np.ndarray
    scale: np.ndarray
    bound: float
    where: object = None
    allowed: object = None  # or a function of the peer, in place of bounds


# What a peer's error may be, by its dtype: a plain f32 sum over the vocabulary, or every step rounded to bf16.
PEER_BOUND = {"f32": 1e-3, "f16": 0.05, "bf16": 0.2}


def rounded(x, digits=5):
    return float(f"{x:.{digits}g}") if isinstance(x, float) else x


def bf16_bits(x):
    bits = x.view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(np.uint16)


def rounded_to(dtype, x):
    return bf16_bits(x) if dtype == "bf16" else x.astype(np.float16) if dtype == "f16" else x


def widen(x):
    """Converts to float64. 16 bits that are no float16 are a bf16."""
    return x.astype(np.float64) if x.dtype != np.uint16 else (
        (x.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64))


BLOCK = SPREAD * np.random.default_rng(20240229).standard_normal(4_194_319, dtype=np.float32)


def block_of(dtype, scale=1.0):
    """Normal numbers of odd count: repeated over and over, they make rows that differ."""
    block = BLOCK if scale == 1.0 else BLOCK * np.float32(scale)
    return bf16_bits(block) if dtype == "bf16" else block


def fill_file(path, dtype, count):
    """A file of so many logits, as an array."""
    block = block_of(dtype)
    with open(path, "wb") as f:
        while count > 0:
            block[:count].tofile(f)
            count -= len(block[:count])
    return np.memmap(path, block.dtype, "r")


def spread_over(count, most):
    return np.unique(np.arange(most) * count // most) if count > most else np.arange(count)


def compare(path, truth, cell, peer):
    """The largest error of the result in a file, and what is wrong (None if nothing)."""
    count = int(np.prod(truth.shape))
    size = path.stat().st_size // max(count, 1)
    if size not in (2, 4, 8):  # a shared file is as large as the largest result
        size = cell.item
    whole = np.issubdtype(truth.values.dtype, np.integer)
    kind = {2: np.float16 if cell.dtype == "f16" else np.uint16, 4: np.float32, 8: np.int64 if whole else np.float64}[size]
    got = np.memmap(path, kind, "r", shape=truth.shape)
    got = widen(np.ascontiguousarray(got if truth.where is None else got[truth.where]))
    difference = np.abs(got - truth.values)
    error = (difference / truth.scale).max(initial=0.0)
    if truth.allowed:
        allowed = truth.allowed(peer)
    else:
        bound = truth.bound if peer == "napier" else max(PEER_BOUND[cell.dtype], truth.bound)
        allowed = bound * truth.scale
    bad = ~(difference <= allowed)
    if not bad.any():
        return float(error), None
    first = np.unravel_index(int(np.argmax(bad)), bad.shape)
    return float(error), (f"wrong: {int(bad.sum())} of {bad.size}, first {got[first]:.9g} for {truth.values[first]:.9g}, "
                          f"error {error:.3g}")
