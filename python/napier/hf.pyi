"""Types of napier.hf."""

from contextlib import AbstractContextManager
from typing import Any, Optional

import torch
from torch.distributed.device_mesh import DeviceMesh

__all__ = ["is_patched", "patch", "patched", "token_logprobs", "unpatch"]

def is_patched(model: Any) -> bool: ...
def patch(model: Any, compute: str = "f32", bf16_gradient: bool = False, mesh: Optional[DeviceMesh] = None) -> Any: ...
def unpatch(model: Any) -> Any: ...
def patched(model: Any, compute: str = "f32", bf16_gradient: bool = False) -> AbstractContextManager[Any]: ...
def token_logprobs(
    model: Any,
    input_ids: torch.Tensor,
    attention_mask: Optional[torch.Tensor],
    completion_length: int,
    temperature: float = 1.0,
    entropy: bool = False,
) -> Any: ...
