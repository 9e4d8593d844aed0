"""Napier for PyTorch's autograd, torch.compile and torch.nn: the functions of `napier` and `napier.rl`, for tensors of float32,
float16, bfloat16 and (softmax and its kin) float64, on the CPU and, if napier was built with CUDA, on GPUs.

On a GPU a call adds its work to the device's current stream and does not wait. All tensors of a call must be on one device.
Invalid ids and offsets give NaN there, and synchronize() raises an error for them.

Functions are custom operators of torch.library (torch.ops.napier.*) with a rule for shapes and one for gradients, or are made of
such, so compiled graphs contain each operator as one node. Results have the same bits as those of `napier`. docs/python.md lists the
functions that have derivatives of every order, in torch.func's transforms and in forward mode too. Gradients of the others are once
differentiable, with backward() and torch.autograd.grad. An operator without a derivative raises an error if one is requested.
"""

from __future__ import annotations

from typing import Any

import torch

from .. import _napier
from .._torch.attention import attention, scaled_dot_product_attention
from .._torch.choices import cross_entropy, entmax, gumbel_softmax, logaddexp
from .._torch.grpo import compute_grpo_loss, group_advantages, grpo_from_hidden, grpo_from_logits, grpo_loss, grpo_token_loss
from .._torch.kl import kl_full, kl_per_response, rubric_score
from .._torch.layers import linear, rms_norm, rotary, rotary_angles, rotary_frequencies, swiglu
from .._torch.logcumsumexp import logcumsumexp
from .._torch.logsumexp import logsumexp
from .._torch.modules import LogSoftmax, LogSumExp, Softmax
from .._torch.products import matmul
from .._torch.softmax import fused_log_softmax, log_softmax, online_softmax, reduce_softmax, safe_softmax, softmax, sparsemax
from .._torch.tokens import gather_logprobs, linear_token_logprobs, sample, token_logprobs

__all__ = [
    "LogSoftmax",
    "LogSumExp",
    "Softmax",
    "attention",
    "compute_grpo_loss",
    "cross_entropy",
    "entmax",
    "fused_log_softmax",
    "gather_logprobs",
    "group_advantages",
    "grpo_from_hidden",
    "grpo_from_logits",
    "grpo_loss",
    "grpo_token_loss",
    "gumbel_softmax",
    "kl_full",
    "kl_per_response",
    "linear",
    "linear_token_logprobs",
    "log_softmax",
    "logaddexp",
    "logcumsumexp",
    "logsumexp",
    "matmul",
    "online_softmax",
    "reduce_softmax",
    "rms_norm",
    "rotary",
    "rotary_angles",
    "rotary_frequencies",
    "rubric_score",
    "safe_softmax",
    "sample",
    "scaled_dot_product_attention",
    "softmax",
    "sparsemax",
    "swiglu",
    "synchronize",
    "token_logprobs",
]


def synchronize(device: Any = None) -> None:
    """Waits for the current stream of a GPU (default: the current GPU). Raises a ValueError for the first id or offset that a
    kernel has found out of range since the last call.

    Examples
    --------
    >>> import torch, napier.torch
    >>> if torch.cuda.is_available():
    ...     napier.torch.synchronize()
    ...
    """
    stream = torch.cuda.current_stream(device)
    stream.synchronize()
    _napier._cuda_synchronize(torch.empty(0, device=stream.device))


for _name in __all__:  # what pickle writes
    globals()[_name].__module__ = __name__
