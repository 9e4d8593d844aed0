"""Types of napier.dask. Array: a dask.array.Array."""

from typing import Any, Literal, Optional, Sequence

__all__ = ["UMAP", "log_softmax", "logsumexp", "softmax"]

Array = Any
DType = Any
MaskedRows = Literal["nan", "zero"]

def softmax(
    x: Array, axis: Optional[int] = -1, *, temperature: float = 1.0, masked_rows: MaskedRows = "nan", dtype: Optional[DType] = None
) -> Array: ...
def log_softmax(
    x: Array, axis: Optional[int] = -1, *, temperature: float = 1.0, masked_rows: MaskedRows = "nan", dtype: Optional[DType] = None
) -> Array: ...
def logsumexp(
    a: Array,
    axis: int | Sequence[int] | None = None,
    b: Optional[Any] = None,
    keepdims: bool = False,
    return_sign: bool = False,
    *,
    temperature: float = 1.0,
    dtype: Optional[DType] = None,
) -> Any: ...

class UMAP:
    estimator_: Any
    sample_: Any
    def __init__(self, *, sample_size: int = 20000, sample_seed: int = 0, **parameters: Any) -> None: ...
    def fit(self, X: Array) -> UMAP: ...
    def transform(self, X: Array) -> Array: ...
    def fit_transform(self, X: Array) -> Array: ...
