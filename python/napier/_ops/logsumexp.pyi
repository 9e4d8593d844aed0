"""Types of logsumexp. Array: as in _napier.pyi."""

from typing import Any, Never, Optional

Array = Any
DType = Any

def logsumexp(
    a: Array,
    axis: Optional[int | tuple[int, ...]] = None,
    b: Optional[Array] = None,
    keepdims: bool = False,
    return_sign: bool = False,
    *,
    temperature: float = 1.0,
    dtype: Optional[DType] = None,
    mask: Optional[Array] = None,
    causal: bool = False,
    **other: Never,
) -> Any: ...
