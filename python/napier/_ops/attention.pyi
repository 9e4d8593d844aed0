"""Types of attention. Array: as in _napier.pyi."""

from typing import Any, Optional

Array = Any

def attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    mask: Optional[Any] = None,
    causal: bool = False,
    scale: Optional[float] = None,
    masked_rows: str = "nan",
    query_offsets: Optional[Any] = None,
    key_offsets: Optional[Any] = None,
    prefix: Optional[tuple[Array, Array]] = None,
    return_lse: bool = False,
    bf16_weights: bool = False,
) -> Any: ...
def attention_backward(
    grad_output: Array,
    q: Array,
    k: Array,
    v: Array,
    output: Array,
    lse: Array,
    *,
    mask: Optional[Any] = None,
    causal: bool = False,
    scale: Optional[float] = None,
    masked_rows: str = "nan",
    query_offsets: Optional[Any] = None,
    key_offsets: Optional[Any] = None,
    prefix: Optional[tuple[Array, Array]] = None,
    bf16_gradient: bool = False,
    grad_lse: Optional[Array] = None,
) -> Any: ...
