"""Types of napier.torch.data_parallel."""

from typing import Any, Iterable, TypeVar, Union

import torch

__all__ = ["SequenceTree", "attach", "clip_grad_norm_"]

_Trainer = TypeVar("_Trainer")

class SequenceTree:
    batch: int
    average: bool
    def __init__(self, model: torch.nn.Module, batch: int, *, average: bool = True) -> None: ...
    def remove(self) -> None: ...
    def clip_grad_norm_(self, max_norm: float) -> torch.Tensor: ...

def clip_grad_norm_(parameters: Union[torch.Tensor, Iterable[torch.Tensor]], max_norm: float) -> torch.Tensor: ...
def attach(trainer: _Trainer) -> _Trainer: ...
