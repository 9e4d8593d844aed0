"""softmax, log_softmax and logsumexp as modules of torch.nn."""

from typing import Any

import torch

from .logsumexp import logsumexp
from .softmax import log_softmax, softmax


class Softmax(torch.nn.Module):
    """softmax as a module; temperature divides its input.

    Examples
    --------
    >>> import torch, napier.torch
    >>> layer = torch.nn.Sequential(torch.nn.Linear(4, 3), napier.torch.Softmax(dim=-1, temperature=2.0))
    >>> layer(torch.zeros(2, 4)).shape
    torch.Size([2, 3])
    """

    _function = staticmethod(softmax)

    def __init__(self, dim: int = -1, temperature: float | torch.Tensor = 1.0, masked_rows: str = "nan") -> None:
        super().__init__()
        self.dim, self.temperature, self.masked_rows = dim, temperature, masked_rows

    def forward(self, x: torch.Tensor, mask: Any = None) -> Any:
        return self._function(x, self.dim, mask=mask, temperature=self.temperature, masked_rows=self.masked_rows)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, temperature={self.temperature}, masked_rows={self.masked_rows!r}"


class LogSoftmax(Softmax):
    """log_softmax as a module.

    Examples
    --------
    >>> import torch, napier.torch
    >>> napier.torch.LogSoftmax(dim=0)(torch.zeros(2, 3))[0].exp().tolist()
    [0.5, 0.5, 0.5]
    """

    _function = staticmethod(log_softmax)


class LogSumExp(torch.nn.Module):
    """logsumexp as a module.

    Examples
    --------
    >>> import torch, napier.torch
    >>> napier.torch.LogSumExp(dim=-1, keepdim=True)(torch.zeros(2, 3)).shape
    torch.Size([2, 1])
    """

    def __init__(self, dim: int = -1, keepdim: bool = False, temperature: float | torch.Tensor = 1.0) -> None:
        super().__init__()
        self.dim, self.keepdim, self.temperature = dim, keepdim, temperature

    def forward(self, x: torch.Tensor, mask: Any = None) -> Any:
        return logsumexp(x, self.dim, self.keepdim, mask=mask, temperature=self.temperature)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, keepdim={self.keepdim}, temperature={self.temperature}"
