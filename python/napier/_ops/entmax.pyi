"""Types of entmax. Array: as in _napier.pyi."""

from typing import Any, Optional

from .._napier import MaskedRows

Array = Any
DType = Any

def check_alpha(alpha: float) -> float: ...
def entmax_rows(z: Any, alpha: float, masked: float) -> Any: ...
def entmax(
    x: Array,
    axis: Optional[int | tuple[int, ...]] = -1,
    *,
    alpha: float = 1.5,
    temperature: float = 1.0,
    masked_rows: MaskedRows = "nan",
    mask: Optional[Array] = None,
    causal: bool = False,
    dtype: Optional[DType] = None,
) -> Any: ...
