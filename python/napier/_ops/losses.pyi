"""Types of logaddexp, gumbel_softmax and cross_entropy. Array: as in _napier.pyi."""

from typing import Any, Literal, Optional, Sequence

Array = Any
DType = Any

def logaddexp(x1: Array, x2: Array, *, dtype: Optional[DType] = None) -> Any: ...
def gumbel_softmax(
    logits: Array, tau: float = 1.0, hard: bool = False, axis: int = -1, *, rng: Any = None, noise: Optional[Array] = None
) -> Any: ...
def class_axis(ndim: int) -> int: ...
def check_reduction(reduction: str, label_smoothing: float) -> None: ...
def check_target(shape: Sequence[int], target_shape: Sequence[int], soft: bool, axis: int) -> None: ...
def cross_entropy(
    input: Array,
    target: Array,
    weight: Optional[Array] = None,
    *,
    ignore_index: int = -100,
    reduction: Literal["none", "sum", "mean"] = "mean",
    label_smoothing: float = 0.0,
) -> Any: ...
