"""What is measured: shapes, operations, dtypes, axes, threads. A cell is one choice of each.

A shape R x C is R reductions of length C. Along the last axis it lies in memory as [R, C]; along the first axis the same
work lies as [C, R], so that the two can be compared."""
from dataclasses import dataclass

MILLION = 10**6
# rows, cols, in the quick run?
SHAPES = [
    (MILLION, 2, True), (MILLION, 8, True), (MILLION, 32, True),
    (100_000, 50, False), (100_000, 100, True),
    (32_768, 1024, True),
    *((8192, 2**k, 2**k in (256, 4096)) for k in range(7, 17)),
    *((rows, cols, (rows, cols) in ((1, 151_936), (8, 50_257), (64, 128_256)))
      for rows in (1, 8, 64, 256) for cols in (32_000, 50_257, 128_256, 151_936)),
    (1, MILLION, True), (1, 16_700_000, True), (1, 10**8, False),
    (1000, 50, True), (10_000, 100, False), (1024, 32_768, False),
]
QUICK_FIRST_AXIS = {(MILLION, 8), (32_768, 1024), (100_000, 100)}
QUICK_BF16 = {(MILLION, 8), (MILLION, 32), (32_768, 1024), (64, 128_256), (1, 16_700_000)}
OPS = ("softmax", "log_softmax", "logsumexp")
WHOLE = (1000, 1000)  # logsumexp_all of a million elements


@dataclass(frozen=True)
class Cell:
    threads: int
    dtype: str
    rows: int
    cols: int
    axis: str
    op: str

    @property
    def shape(self):
        return f"{self.rows}x{self.cols}"

    @property
    def name(self):
        return f"{self.op}-{self.dtype}-{self.axis}-{self.shape}-t{self.threads}"

    @property
    def data(self):
        """Cells with the same data name read the same input."""
        return f"{self.dtype}-{self.axis}-{self.shape}"

    @property
    def elements(self):
        return self.rows * self.cols

    @property
    def item(self):
        return 2 if self.dtype == "bf16" else 4

    @property
    def in_bytes(self):
        return self.elements * self.item

    @property
    def out_bytes(self):
        return {"logsumexp": self.rows, "logsumexp_all": 1}.get(self.op, self.elements) * self.item


def cells(quick, threads, dtypes, axes, ops):
    """In the order of measuring: workers live for one thread count, inputs for one shape, large arrays come last."""
    found = []
    for count in threads:
        for dtype in dtypes:
            for rows, cols, often in SHAPES:
                for axis in axes:
                    if axis == "first" and rows == 1:
                        continue  # the same memory, the same work
                    if quick and not (often and (axis == "last" or (rows, cols) in QUICK_FIRST_AXIS)
                                      and (dtype == "f32" or (rows, cols) in QUICK_BF16)):
                        continue
                    found += [Cell(count, dtype, rows, cols, axis, op) for op in OPS if op in ops]
            if "logsumexp_all" in ops and "last" in axes:
                found.append(Cell(count, dtype, *WHOLE, "last", "logsumexp_all"))
    return sorted(found, key=lambda c: (threads.index(c.threads), c.in_bytes, c.data, c.op))
