"""Types of napier.torch.distributed."""

from typing import Any, Literal, Optional, Sequence

import torch
import torch.distributed as dist

from ..rl import TokenLogprobs as TokenLogprobs

__all__ = ["cross_entropy", "linear_token_logprobs", "log_softmax", "logsumexp", "softmax", "token_logprobs"]

def softmax(
    x: torch.Tensor,
    group: Optional[dist.ProcessGroup] = None,
    *,
    sizes: Optional[Sequence[int]] = None,
    temperature: float = 1.0,
    masked_rows: Literal["nan", "zero"] = "nan",
) -> torch.Tensor: ...
def log_softmax(
    x: torch.Tensor,
    group: Optional[dist.ProcessGroup] = None,
    *,
    sizes: Optional[Sequence[int]] = None,
    temperature: float = 1.0,
    masked_rows: Literal["nan", "zero"] = "nan",
) -> torch.Tensor: ...
def logsumexp(
    x: torch.Tensor,
    group: Optional[dist.ProcessGroup] = None,
    *,
    b: Optional[Any] = None,
    return_sign: bool = False,
    sizes: Optional[Sequence[int]] = None,
    temperature: float = 1.0,
) -> Any: ...
def token_logprobs(
    logits: torch.Tensor,
    ids: Optional[Any] = None,
    group: Optional[dist.ProcessGroup] = None,
    *,
    sizes: Optional[Sequence[int]] = None,
    temperature: float = 1.0,
    softcap: float = 0.0,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    lse: bool = False,
    entropy: bool = False,
    loss: bool = False,
) -> TokenLogprobs: ...
def linear_token_logprobs(
    hidden: torch.Tensor,
    weights: torch.Tensor,
    ids: Optional[Any] = None,
    group: Optional[dist.ProcessGroup] = None,
    *,
    sizes: Optional[Sequence[int]] = None,
    temperature: float = 1.0,
    softcap: float = 0.0,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    lse: bool = False,
    entropy: bool = False,
    loss: bool = False,
) -> TokenLogprobs: ...
def cross_entropy(
    logits: torch.Tensor,
    ids: Any,
    group: Optional[dist.ProcessGroup] = None,
    *,
    sizes: Optional[Sequence[int]] = None,
    reduction: Literal["none", "sum", "mean"] = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    temperature: float = 1.0,
    softcap: float = 0.0,
) -> torch.Tensor: ...
